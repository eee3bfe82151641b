"""Which signals reached the whole process group that we share with the rehearsed command: `kill --
-PGID`, timeout(1), slurmstepd and a terminal send them so. What has had one already is not given it
again: a second SIGTERM ends torchrun while it still ends its ranks, a second SIGUSR1 requeues a job
twice.

No field of a signal says to whom else it went. So a process of ours in that group does nothing but
note what it gets.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import NoReturn

from preflight.process.worker import PR_SET_PDEATHSIG, close_from, prctl

NOTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
PATIENCE = 1.0
"""Seconds for which it may need a CPU after we have had ours."""


class GroupSignals:
    """From its making on. Where no process can be had, no signal is known to have gone to all."""

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._had: dict[int, float] = {}
        self._pid = 0
        try:
            self._line, write = os.pipe()
        except OSError:
            self._line = -1
            return
        # a handler that comes between a look and a read may have read it all
        os.set_blocking(self._line, False)
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, NOTED)  # one that comes now is kept
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _note(write, parent)
        except OSError:
            pass
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(write)

    def has(self, number: int) -> bool:
        """Whether one that we have had went to all of the group. Each counts once, and so does one
        of the same number that comes to us alone just before or after it: timeout(1) sends both."""
        if time.monotonic() < self._had.get(number, 0.0) + PATIENCE:
            return True
        found = self._noted(number)
        if found:
            self._had[number] = time.monotonic()
        return found

    def _noted(self, number: int) -> bool:
        until = time.monotonic() + PATIENCE
        while number not in self._seen:
            left = until - time.monotonic()
            if not self._pid or left <= 0 or not select.select([self._line], [], [], left)[0]:
                return False
            with contextlib.suppress(BlockingIOError):
                if not (told := os.read(self._line, 64)):
                    return False  # somebody has killed it
                self._seen += told
        self._seen.remove(number)
        return True

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # it is ours until it is waited for
            os.waitpid(self._pid, 0)
            self._pid = 0
        if self._line >= 0:
            os.close(self._line)
            self._line = -1


def _note(line: int, parent: int) -> NoReturn:
    """In the fork, with all of NOTED blocked: until we are gone."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os.dup2(line, 3)
        close_from(4)
        while os.getppid() == parent:
            os.write(3, bytes([signal.sigwait(NOTED)]))
    finally:
        os._exit(0)
