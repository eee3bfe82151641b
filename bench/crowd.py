"""Many agents on one machine, each as if it had one of its own: forked from a few processes that
have imported everything, with host names of their own in a network that nobody else sees.

Only what is started here is ever killed, and all of it: agents die with the process that forked
them (the kernel sees to that), that one with this process; their orphans become its children, and
at a deadline whoever is still there is ended.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import member
from member import PORT, World
from place import children, connected, kill, listening, reap

WINDOW = 32
"""Agents that have been started and have not connected yet: each takes 0.15 s of a CPU, which in a
cluster is one of its own. Beyond that, starting waits."""
NURSERY = 32
"""Agents that one process forks."""
UP_SECONDS = 20.0
LEAVE_SECONDS = 5.0
"""For the leader to listen; and for what is left of agents that have ended."""


@dataclass(frozen=True, slots=True)
class Held:
    """How it went. All times are seconds after the last agent was started, some may be before.

    spread    from the first start to the last
    met       the leader waits for nobody any more; judged: it has its verdict; named: its report
              is written; due: its patience ended, or would have
    cpu       seconds of the leader's own process, of which `cpu_met` until all had met
    peak      its memory in MiB; received: bytes, from all of the others
    agents    CPU seconds of all agents, their servers and their workers, without the nurseries'
              imports: what a cluster has as many CPUs for as it has nodes
    codes     exit code -> how many agents ended with it; None: they had to be killed
    left      processes that outlived their agents
    """

    spread: float
    met: float
    judged: float
    named: float
    due: float
    cpu: float
    cpu_met: float
    peak: float
    received: int
    agents: float
    codes: dict[int | None, int]
    left: int
    report: dict[str, Any]
    said: str


class Nursery:
    """Our end of a process that forks agents."""

    def __init__(self, world: World, folder: str) -> None:
        self.agents = 0
        self.cpu = 0.0
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, member.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pid = self._process.pid
        self._tell(member.told(world, folder))

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), line)

    def wait(self, until: float) -> None:
        """Until it has imported everything, for so many seconds of `cpu`."""
        while not (said := self.said()):
            if time.monotonic() > until:
                raise TimeoutError("a nursery does not get ready")
            time.sleep(0.01)
        self.cpu = float(said[0].removeprefix("ready "))

    def start(self, rank: int, name: str) -> None:
        self.agents += 1
        self._tell(json.dumps([rank, name]).encode() + b"\n")

    def said(self) -> list[str]:
        """The lines that it has written since."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        os.set_blocking(output, False)
        try:
            self._rest += os.read(output, 65536)
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]

    def close(self) -> None:
        """Nothing more to start: it ends when its agents have."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.returncode = 0  # reaped by us, with all others


@dataclass(slots=True)
class Crowd:
    """The agents of one world, as a context: none of them is left after it."""

    world: World
    folder: str
    limit: float
    codes: dict[int | None, int] = field(default_factory=dict)
    left: int = 0
    started: int = 0
    imports: float = 0.0
    """CPU seconds that the nurseries' own took."""
    _leader: int = 0
    _nurseries: list[Nursery] = field(default_factory=list)

    def __enter__(self) -> Crowd:
        agents = sum(1 for _ in self.world.ranks)
        for _ in range(-(-agents // NURSERY)):
            self._nurseries.append(Nursery(self.world, self.folder))
        for nursery in self._nurseries:
            nursery.wait(self.limit)
            self.imports += nursery.cpu
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hear()
        if missing := self.there:
            self.codes[None] = missing
            for pid in (self._leader, *(nursery.pid for nursery in self._nurseries)):
                if pid in children():  # and so not reaped: no other's
                    kill(pid)
        for nursery in self._nurseries:
            nursery.close()
        until = time.monotonic() + LEAVE_SECONDS
        while self._reaped() and time.monotonic() < until:
            time.sleep(0.01)
        self.left = len(self._reaped())
        until += LEAVE_SECONDS
        while (strays := self._reaped()) and time.monotonic() < until:
            for pid in strays:
                kill(pid)
            time.sleep(0.01)

    def _reaped(self) -> list[int]:
        """Who of our children is still there. Servers and workers whose agent has ended are among
        them, and end by themselves."""
        for pid, code in reap():
            if pid == self._leader:
                self._ended(code)
        return children()

    def _ended(self, code: int) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1

    def _hear(self) -> None:
        self._reaped()
        for nursery in self._nurseries:
            for line in nursery.said():
                self._ended(int(line))

    @property
    def there(self) -> int:
        """How many have not ended."""
        return self.started - sum(self.codes.values())

    def start(self, rank: int, name: str) -> None:
        """The leader is a fork of ours, and first: with whom nobody shares anything."""
        if self.started:
            self._nurseries[self.started % len(self._nurseries)].start(rank, name)
        else:
            self._leader = member.fork(self.world, rank, name, self.folder)
        self.started += 1

    def wait(self) -> None:
        """Until all agents have ended, or time is over."""
        while self.there and time.monotonic() < self.limit:
            self._hear()
            time.sleep(0.02)

    def wait_for_window(self) -> None:
        """Until few enough of those that were started are on their way."""
        while self.there - connected() > WINDOW and time.monotonic() < self.limit:
            self._hear()
            time.sleep(0.005)

    def wait_for_leader(self) -> None:
        """Until somebody listens: then nobody takes the leader's place, as one who finds
        MASTER_ADDR on its own machine would after a while, and here it is on everybody's."""
        until = time.monotonic() + UP_SECONDS
        while not listening(PORT):
            if time.monotonic() > until:
                raise TimeoutError("the leader does not listen")
            time.sleep(0.01)


def hold(world: World, limit: float) -> Held:
    """Start a world, and see it to its end; at most `limit` seconds after its last start."""
    with tempfile.TemporaryDirectory(prefix="preflight-scale-") as folder:
        before = _cpu_of_ended()
        with Crowd(world, folder, time.monotonic() + limit) as crowd:
            began = time.monotonic()
            for rank, name in world.ranks:
                crowd.start(rank, name)
                if rank == 0:
                    crowd.wait_for_leader()
                crowd.wait_for_window()
            last = time.monotonic()
            crowd.limit = last + limit
            crowd.wait()
        said = Path(folder, "said").read_text(errors="replace")
        try:
            leader = json.loads(Path(folder, "leader").read_text())
            report = json.loads(Path(folder, "report").read_text())
        except (OSError, ValueError) as error:
            raise RuntimeError(f"no report of the leader: {error}\n{said}") from None
    times = {key: leader[key] - last for key in ("met", "judged", "named", "due")}
    counts = {key: leader[key] for key in ("cpu", "cpu_met", "peak", "received")}
    codes = {code: count for code, count in crowd.codes.items() if count}
    return Held(
        spread=last - began,
        **times,
        **counts,
        agents=_cpu_of_ended() - before - crowd.imports,
        codes=codes,
        left=crowd.left,
        report=report,
        said=said,
    )


def _cpu_of_ended() -> float:
    """CPU seconds of all that we have reaped, with what that had reaped itself."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
