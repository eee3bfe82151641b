"""SIGINT, SIGTERM and SIGHUP: the first ends a run with what it has seen so far, a second one at
once."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

TOGETHER = 0.5
"""Seconds within which a second signal is the same wish: timeout(1) signals the process and then
its group, a terminal reaches us beside the launcher that passes it on."""


class Interrupt:
    """What has come in: `name` is empty until something has."""

    def __init__(self) -> None:
        self.name = ""
        self.at = 0.0
        """When, on the monotonic clock."""
        self._taken = ""
        self._before: dict[signal.Signals, object] = {}

    def listen(self) -> None:
        """Take these signals, but not what we were started to ignore (nohup, a shell's `&`)."""
        for number in ENDS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """From now on they end this process, as they do any other."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)

    def take(self) -> str:
        """What has come in. It has had its effect: the next one is a first one again."""
        self._taken, self.name = self.name or self._taken, ""
        return self._taken

    @property
    def exit_code(self) -> int:
        """130, 143 or 129; 0 when there was none."""
        name = self.name or self._taken
        return 128 + signal.Signals[name] if name else 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.name:
            self.name, self.at = signal.Signals(number).name, now
        elif now - self.at > TOGETHER:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
