"""Crashes of the rehearsed command's processes, each held for a moment.

What a process says when it crashes (faulthandler's stacks) goes into a line to the watch, of so
small a buffer that the write waits until somebody reads. Until then the process is there: its other
threads answer, and no launcher has noticed it and ended the rest, so that all ranks can be asked
what they are in. Then the line is read, and the crash goes on. Once the watch is over the lines are
broken, and nothing waits.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

NAME = "crashes"
"""The socket in the folder of a rehearsal; preflight_responder.py connects to it."""
SETTLE = 0.2
"""Seconds for which a crash is held before anybody is asked: others are on their way into the call
that it happens in. And the seconds of silence after which it has said all."""
HELD = 3.0
"""Seconds in which all must have answered: one that has crashed in Python's own code never does."""
READ = 1.0
"""Seconds in which it must have said all."""
AGAIN = 5.0
"""Seconds after which what comes over the same line is another crash: of a child that has it too.
"""
WAITING, GREETING, LIMIT = 512, 16, 1 << 20
"""Lines that may wait to be accepted; letters of the pid that each begins with; bytes of one."""


@dataclass(slots=True)
class Line:
    socket: socket.socket
    heard: bytes = b""
    held: float = 0.0


class Crashes:
    """The lines of all processes, among what the watch polls. `ask`: what is done while one of them
    is held."""

    def __init__(self, folder: str, poll: select.poll, ask: Callable[[float], object]) -> None:
        self._poll = poll
        self._ask = ask
        self._lines: dict[int, Line] = {}
        self.text: dict[int, str] = {}
        """pid -> what it has said."""
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._door.bind(os.path.join(folder, NAME))
        self._door.listen(WAITING)
        poll.register(self._door, select.POLLIN)

    def come(self, descriptor: int) -> None:
        """Something has come: a line, or over one. Other descriptors are none of ours."""
        if descriptor == self._door.fileno() >= 0:
            self._accept()
        elif descriptor in self._lines and not self._hear(self._lines[descriptor]):
            self._poll.unregister(descriptor)
            self._lines.pop(descriptor).socket.close()

    def close(self) -> None:
        """From now on nothing is held."""
        for line in [self._door, *(line.socket for line in self._lines.values())]:
            self._poll.unregister(line)
            line.close()
        self._lines.clear()

    def _accept(self) -> None:
        try:
            made, _ = self._door.accept()
        except OSError:
            return
        made.setblocking(False)
        self._lines[made.fileno()] = Line(made)
        self._poll.register(made, select.POLLIN)

    def _hear(self, line: Line) -> bool:
        """Whether its other end is still there."""
        there = _read(line)
        pid, ended, said = line.heard.partition(b"\n")
        if not (said and ended and pid.isdigit() and len(pid) < GREETING):
            return there
        if time.monotonic() - line.held > AGAIN:
            time.sleep(SETTLE)
            self._ask(HELD)
            line.held = time.monotonic()
        until = time.monotonic() + READ
        one = select.poll()
        one.register(line.socket, select.POLLIN)
        while there and time.monotonic() < until and one.poll(SETTLE * 1000):
            there = _read(line)
        self.text[int(pid)] = line.heard.partition(b"\n")[2].decode(errors="replace")
        return there


def _read(line: Line) -> bool:
    """What is too much is read and forgotten: its writer must not be held forever."""
    try:
        data = line.socket.recv(1 << 16)
    except BlockingIOError:
        return True
    except OSError:
        return False
    if len(line.heard) < LIMIT:
        line.heard += data
    return bool(data)
