"""One call of a function in another process: what it has said so far, and what became of it.

No process is started, waited for or killed here; pool.py does that.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any

from preflight.frozen import dataclass
from preflight.model import LeftBehind, Mark
from preflight.process.lines import LineBuffer
from preflight.serde import parsed

if TYPE_CHECKING:
    from preflight.process.worker import Channel

Target = Callable[[Any, "Channel", Any], Any]
"""What a worker is to call: `function(args, channel, preloaded)` at the top of a module."""

ANSWER_LIMIT = 8 << 20
"""Bytes that one worker may send in all; more is no answer."""
TAIL = 8192
"""Bytes kept of the end of a worker's stderr."""
MARKS_LIMIT = 1000
ARGS_LIMIT = 1 << 16
"""Bytes of arguments that go to the server with the request."""
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker tells the others of its group; `to`: which ranks of them, None for all."""

    rank: int
    topic: str
    value: Any
    to: tuple[int, ...] | None = None

    def meant_for(self, rank: int) -> bool:
        return rank != self.rank and (self.to is None or rank in self.to)

    @property
    def line(self) -> bytes:
        told = {"heard": self.topic, "rank": self.rank, "value": self.value}
        return json.dumps(told).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any
    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Killed at its deadline; `left_behind` when even that did not end it. `cpu_wait`: for how many
    of the seconds it was ready to go on and had no CPU."""

    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""
    left_behind: LeftBehind | None = None
    cpu_wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Died:
    """Ended without an answer. `code` is the exit status, negative for a signal; None: the process
    that should have forked it is gone."""

    code: int | None
    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    kind: str
    message: str
    traceback: str
    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""


Result = Returned | TimedOut | Died | Raised


class State(Enum):
    QUEUED = "queued"  # its server is not ready yet
    ASKED = "asked"
    RUNNING = "running"
    ANSWERED = "answered"
    TERMINATED = "terminated"  # SIGTERM sent
    KILLED = "killed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stream:
    """What a worker is to have besides its arguments (Channel.parts()): too much to be held at
    once, so that each part is made when the worker has taken the one before. Its time stands still
    meanwhile, and it has that of `bytes_a_second` to take them."""

    parts: Iterator[bytes]
    bytes_a_second: float


@dataclass(slots=True, eq=False)
class Call:
    """One function call in one process; `result` is there once it has ended.

    limit is how many bytes it may answer, stream what it is to have besides its arguments, broken
    what was raised where that could not be made, takes whoever has what it says; line and output
    are our ends of its socket and of the pipe of its standard streams; `due` is when something has
    to be done about it (monotonic), `answer` what it answered.
    """

    id: int
    server: str
    label: str
    request: Mapping[str, Any]
    seconds: float
    group: str = ""
    rank: int = 0
    limit: int = ANSWER_LIMIT
    stream: Stream | None = None
    takes: Callable[[Any], object] | None = None
    broken: Exception | None = None
    state: State = State.QUEUED
    pid: int = 0
    began: float = 0.0
    due: float = float("inf")
    marks: list[Mark] = field(default_factory=list)
    result: Result | None = None
    line: socket.socket | None = None
    output: int = -1
    answer: Mapping[str, Any] | None = None
    code: int | None = None
    overdue: bool = False
    cpu_wait: float = 0.0
    starved: tuple[float, int] | None = None
    """At its deadline it was ready and had no CPU: since when, and cpu_wait.ready_since()."""
    unsent: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    _received: int = 0
    _lines: LineBuffer = field(default_factory=LineBuffer)

    def open_files(self) -> tuple[socket.socket, int]:
        """Make the socket and the pipe; the worker's ends are returned."""
        self.line, theirs = socket.socketpair()
        self.output, write = os.pipe()
        self.line.setblocking(False)
        os.set_blocking(self.output, False)
        return theirs, write

    def close_files(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None
        if self.output >= 0:
            os.close(self.output)
            self.output = -1

    def understand(self, data: bytes) -> list[Told]:
        """Take what came over the line: marks are kept, the answer too; what it says to its peers
        is returned. Hostile input: bounded and parsed, nothing else."""
        self._received += len(data)
        if self._received > self.limit:
            self.answer = invalid(f"more than {self.limit} bytes of answer")
            self._lines.clear()
            return []
        return [
            told
            for line in self._lines.add(data)
            if self.answer is None and (told := self._understand_line(line))
        ]

    def _understand_line(self, line: bytes) -> Told | None:
        try:
            message = parsed(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.answer = invalid("its answer is not a JSON object")
        elif "mark" in message:
            at = message.get("at")
            if len(self.marks) < MARKS_LIMIT:
                seconds = float(at) if isinstance(at, (int, float)) else 0.0
                self.marks.append(Mark(str(message["mark"])[:200], seconds))
        elif "say" in message:
            to = message.get("to")
            numbers = tuple(n for n in to if isinstance(n, int)) if isinstance(to, list) else None
            return Told(self.rank, str(message["say"])[:200], message.get("value"), numbers)
        else:
            self.answer = message
        return None

    @property
    def flooded(self) -> bool:
        return self._received > self.limit

    def asked(self) -> tuple[Mapping[str, Any], bytes]:
        """What its server is asked, and what the worker is to read from its own socket: a server
        takes requests one after another, and arguments as large as a report would keep it."""
        line = json.dumps({"args": self.request["args"]}).encode() + b"\n"
        if len(line) <= ARGS_LIMIT:
            return self.request, b""
        return {**self.request, "args": None, "args_follow": True}, line

    def tell(self, line: bytes = b"") -> None:
        """Send to the worker what fits into its socket now, and keep the rest. One that doesn't
        read loses what is too much."""
        if self.line is None:
            return
        if not self.unsent or len(self.unsent) + len(line) <= ANSWER_LIMIT:
            self.unsent += line
        if self.stream is not None and self.has_more and not self.unsent:
            self._take_part(self.stream)
        try:
            while self.unsent:
                sent = self.line.send(memoryview(self.unsent)[:CHUNK])
                del self.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:  # it has ended
            self.unsent.clear()
            self.stream = None

    def _take_part(self, stream: Stream) -> None:
        """Make the next part of what the worker is to have: one, since others wait as well."""
        began = time.monotonic()
        try:
            part = next(stream.parts, None)
        except Exception as error:  # noqa: BLE001  whoever asked raises it, once the worker is gone
            self.broken, part = error, None
        if part is None:
            self.stream = None
            self.unsent += b"-1\n" if self.broken else b"0\n"
        elif part:
            self.unsent += b"%d\n" % len(part)
            self.unsent += part
            self.due += len(part) / stream.bytes_a_second
        self.due += time.monotonic() - began

    @property
    def has_more(self) -> bool:
        """Whether there is something that the worker is still to have."""
        waits = self.state in (State.ASKED, State.RUNNING)
        return bool(self.unsent) or (waits and self.stream is not None)

    def conclude(self, seconds: float, left: LeftBehind | None, lost: str) -> Result:
        """The result, from all that is known at the end. `lost`: why its server is gone."""
        marks, tail = tuple(self.marks), self.tail.decode(errors="replace")
        raised = (self.answer or {}).get("raised")
        if isinstance(raised, dict):
            kind, message, trace = (
                str(raised.get(k, "")) for k in ("kind", "message", "traceback")
            )
            return Raised(kind, message, trace, seconds, marks, tail)
        if self.answer is not None and "value" in self.answer:
            return Returned(self.answer["value"], seconds, marks, tail)
        if self.overdue or left is not None:
            return TimedOut(seconds, marks, tail, left, self.cpu_wait)
        return Died(self.code, seconds, marks, tail or lost)


def name_of(target: Callable[..., object]) -> str:
    """`module:function`, by which a worker finds a function; ValueError where it could not."""
    module, name = target.__module__, target.__qualname__
    if getattr(sys.modules.get(module), name, None) is not target:
        raise ValueError(f"no worker can find {module}:{name}: it is at the top of no module")
    return f"{module}:{name}"


def invalid(why: str) -> Mapping[str, Any]:
    """The answer of a worker whose answer is none."""
    return {"raised": {"kind": "InvalidAnswer", "message": why, "traceback": ""}}


def unobserved(why: str) -> Mapping[str, Any]:
    """The answer in place of a worker that could not be had."""
    return {"raised": {"kind": "CannotObserve", "message": why, "traceback": ""}}
