"""The rehearsed command as a child of ours: with our standard streams, in our process group, so
that a terminal's signals reach it as they would without us."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping

from preflight.process.worker import PR_SET_PDEATHSIG
from preflight.rehearsal.group_signals import NOTED, GroupSignals

PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
"""What a scheduler warns a job with (`sbatch --signal=USR1@90`), which then saves a checkpoint. It
would end us, and with us the command."""

TERM_SECONDS = 10.0
"""How long it may take to end after a signal: torchrun first ends its own."""
TICK = 0.05

SIZE = "2000"
"""Entries of the flight recorder, as by default."""
SWITCH, FORMER = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
"""The second one is deprecated, which torch says where it is set; for torch before 2.7, which knows
no other, it is set in the processes themselves."""


def variables(environ: Mapping[str, str], folder: str, name: str) -> dict[str, str]:
    """What is set for the command, beside what it would have without us."""
    paths = [folder, *filter(None, [environ.get("PYTHONPATH", "")])]
    found = {name: folder, "PYTHONPATH": os.pathsep.join(paths)}
    # torch 2.7 to 2.10 record nothing unless it is set
    said = {name: environ[name].strip() for name in (SWITCH, FORMER) if name in environ}
    return found | {name: SIZE for name in said or (SWITCH,) if said.get(name, "0") == "0"}


class NotStarted(Exception):
    """The command can't be started, for the reason of this OSError."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Running:
    """The command from its start on. `exit` is its exit status once it has ended, negative for a
    signal. Raises NotStarted."""

    def __init__(self, argv: list[str], environ: Mapping[str, str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        parent = os.getpid()

        def tie() -> None:
            """It does not outlive us: nobody would watch it, or end it when the time is over."""
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        self._group = GroupSignals()
        self._early: list[int] | None = []
        for number in PASSED_ON:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, frame: self.pass_on(number))
        try:
            self._process = subprocess.Popen(argv, env=dict(environ), preexec_fn=tie)
        except OSError as error:
            self._group.close()
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # it is we who may open no more
            raise NotStarted(error) from error
        self.began = time.monotonic()
        early, self._early = self._early, None
        for came in early:
            self.pass_on(came)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit(self) -> int | None:
        return self._process.poll()

    def pass_on(self, number: int) -> None:
        """What we have had, to the command itself, unless it has had it as well. It passes it on or
        not, as it would without us. One that comes meanwhile waits: its handler would be done
        first, and take what is noted of this one."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, NOTED)
        try:
            self._pass_on(number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _pass_on(self, number: int) -> None:
        if self._early is not None:  # it has not started yet
            self._early.append(number)
        elif not self._group.has(number):
            self._signal(number)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """SIGTERM, and some seconds for it."""
        self._signal(signal.SIGTERM)
        self.wait()

    def close(self) -> None:
        """Its signals are not looked at any more."""
        self._group.close()

    def wait(self) -> None:
        """The seconds that it may take to end after a signal; it may still be there then."""
        until = time.monotonic() + TERM_SECONDS
        while self.exit is None and time.monotonic() < until:
            time.sleep(TICK)
