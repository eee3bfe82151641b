"""A command on a machine of the lab, while it runs and when it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

BORN_SECONDS = 5.0
REAP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended; `code` is None for one that did not in time. After Host.run its
    machine was ended then, and all that it had started with it; after Lab.run_all the command."""

    code: int | None
    out: str
    err: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Command:
    """What to run; without `env` with host.ENVIRONMENT, and in the machine's scratch folder."""

    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: str = ""
    user: int = 0


@dataclass(slots=True)
class Running:
    """A command that was begun. `process` is nsenter, which waits for it and ends as it did; what
    it says goes to files, so that nobody has to read while it runs, and that a child which keeps
    them open holds up nobody."""

    process: subprocess.Popen[str]
    files: tuple[IO[str], IO[str]]
    began: float
    _ended: float | None = None
    _outside: int = field(default=0)

    @classmethod
    def begun(cls, argv: Sequence[str], env: Mapping[str, str]) -> Running:
        files = _file(), _file()
        began = time.monotonic()
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1], text=True
        )
        return cls(process, files, began)

    @property
    def out(self) -> str:
        """Its stdout so far."""
        return _read(self.files[0])

    @property
    def err(self) -> str:
        return _read(self.files[1])

    @property
    def over(self) -> bool:
        if self.process.poll() is None:
            return False
        self._ended = self._ended or time.monotonic()
        return True

    @property
    def pid(self) -> int:
        """Its process id as the machine sees it."""
        status = Path(f"/proc/{self._born()}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        return int(line.split()[-1])

    def wait(self, seconds: float) -> Ended:
        """Until it has ended, or for this long; then the code is None, and it goes on."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        return self.ended()

    def ended(self) -> Ended:
        """How it ended; the code is None while it has not."""
        code = self.process.returncode if self.over else None
        until = self._ended or time.monotonic()
        return Ended(code, self.out, self.err, until - self.began)

    def send(self, number: int) -> None:
        """A signal to it alone, not to what it has started."""
        if not self.over:
            os.kill(self._born(), number)

    def kill(self) -> None:
        """As the kernel does when memory runs out: it alone, at once."""
        self.send(signal.SIGKILL)
        self._wake()

    def stop(self) -> None:
        """It does nothing any more, but its connections stay open."""
        self.send(signal.SIGSTOP)

    def cont(self) -> None:
        self.send(signal.SIGCONT)
        self._wake()

    def end(self) -> None:
        """Kill it with all that is below it, and wait until it is gone."""
        if not self.over:
            end(self.process)

    def close(self) -> None:
        self.end()
        for file in self.files:
            file.close()

    def _wake(self) -> None:
        """nsenter stops itself when its child was stopped."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)

    def _born(self) -> int:
        """Its process id as we see it: the child of nsenter, which stays the same through the
        commands that replace each other on the way to it."""
        until = time.monotonic() + BORN_SECONDS
        while not self._outside:
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError(f"the command was not started: {self.err[-2000:]}")
            self._outside = next(iter(_children(self.process.pid)), 0)
            time.sleep(0.002)
        return self._outside


def end(process: subprocess.Popen[str]) -> None:
    """End nsenter with all that is below it: from there upwards, so that it still waits for its
    child. Else process 1 of this system had to, which may take its time, and the machine with it.
    """
    for pid in _below(process.pid):
        _kill(pid)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(REAP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _file() -> IO[str]:
    """One without a name."""
    return os.fdopen(os.memfd_create("said"), "w+")


def _read(file: IO[str]) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def _children(pid: int) -> list[int]:
    """Those of all its threads."""
    try:
        files = [
            f"/proc/{pid}/task/{thread}/children" for thread in os.listdir(f"/proc/{pid}/task")
        ]
        return [int(word) for file in files for word in Path(file).read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _below(pid: int) -> list[int]:
    return [p for child in _children(pid) for p in (child, *_below(child))]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
