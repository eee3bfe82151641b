"""One agent as if it had a machine of its own, and the nursery that forks many: a process which has
imported everything once. No nursery has very many, since the kernel keeps one lock for the memory
of all that come from one process.

    python bench/member.py       a nursery: what to start comes in by lines of JSON
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from place import CLONE_NEWUTS, LIBC, PR_SET_PDEATHSIG, reap, unshare

from preflight import registry
from preflight.config.resolve import Flags
from preflight.engine import agent
from preflight.meeting import session
from preflight.output import files
from preflight.process import pool
from preflight.process.signals import Interrupt
from preflight.render.human import Look

ADDRESS, PORT = "10.78.0.1", 29500
"""Where they meet: another address of the loopback interface, in a network namespace of ours."""
CHECKS = ("env.identity", "env.vars", "net.port", "rdzv.reach", "agree.env")
"""What needs no torch and looks at the job, not at the one machine that all of them are on."""
ODD = ("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
"""What one agent alone has set: its ranks would wait for collectives that no other rank calls."""

PATIENT_SECONDS = 60.0
"""A fork takes milliseconds of a machine of one's own, and many seconds where a thousand agents
fork at the same moment: no check is given up for that, nor a server that should have forked it."""
PER_AGENT_SECONDS = 0.02
"""By which the deadline is later: all agents have to share the CPUs of one machine."""
LEADERS_NICE = -10
"""Where that is allowed: on a machine of its own it need not share a CPU with a thousand others,
who would be blamed for what they had to wait for it."""


@dataclass(frozen=True, slots=True)
class World:
    """What is started: one agent of `each` ranks for each of `nodes`. None of rank `absent`, two of
    rank `twin`, and one with a setting that nobody else has. The leader waits `arrive` seconds, and
    its deadline is later for each of them; 0: both are what they are where nobody sets them."""

    nodes: int
    arrive: float
    each: int = 1
    absent: int | None = None
    twin: int | None = None
    odd: int | None = None

    @property
    def ranks(self) -> Iterator[tuple[int, str]]:
        """Each agent's rank and host name, the leader first. A second one of a rank is early: once
        every rank has come nobody else is waited for."""
        yield 0, name_of(0)
        if self.twin is not None:
            yield self.twin, name_of(self.twin, "b")
        for rank in range(1, self.nodes):
            if rank != self.absent:
                yield rank, name_of(rank)


def name_of(rank: int, more: str = "") -> str:
    return f"n{rank:04}{more}"


def import_everything() -> None:
    """So that no agent has to: it shares our memory until it writes to it, and what is frozen is
    not written to by the garbage collector."""
    catalogue = registry.load()
    missing = [i for i in CHECKS if i not in catalogue.checks]
    if missing:
        raise SystemExit(f"not there, or broken: {', '.join(missing)} {dict(catalogue.broken)}")
    for name in CHECKS:
        registry.imported(name)
    for name in ("preflight.render.json", "psutil"):
        importlib.import_module(name)
    pool.FORK_LIMIT = PATIENT_SECONDS
    if "torch" in sys.modules:
        raise SystemExit("torch is imported: every agent would carry it")
    gc.collect()
    gc.freeze()


# --- one agent ---


def tie_to(parent: int) -> None:
    """Die with it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


def fork(world: World, rank: int, name: str, folder: str) -> int:
    """Start an agent."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be(world, rank, name, parent, folder)
    return pid


def _be(world: World, rank: int, name: str, parent: int, folder: str) -> NoReturn:
    """In the fork: what `preflight run --nodes N --node-rank R` does, without its command line."""
    code = 70
    try:
        tie_to(parent)
        os.setsid()  # Ctrl-C at a terminal is for the one who started us all
        if rank == 0:
            _go_first()
        unshare(CLONE_NEWUTS)
        socket.sethostname(name)
        nowhere = os.open(os.devnull, os.O_RDWR)
        said = os.open(f"{folder}/said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, file in ((0, nowhere), (1, nowhere), (2, said)):
            os.dup2(file, number)
        if rank == world.odd:
            os.environ[ODD[0]] = ODD[1]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        code = _run(world, rank, folder)
    except BaseException:  # noqa: BLE001  whatever it is: never back into the code of our parent
        with contextlib.suppress(OSError):
            os.write(2, f"{name}: {traceback.format_exc()}".encode())
    finally:
        os._exit(code)


def _go_first() -> None:
    """The kernel may deal out the CPUs by sessions before it does by processes."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, LEADERS_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(LEADERS_NICE))


def _run(world: World, rank: int, folder: str) -> int:
    set_by_us = {
        "arrive": f"{world.arrive:g}s",
        "deadline": f"{world.arrive + 60 + PER_AGENT_SECONDS * world.nodes:g}s",
    }
    flags = Flags(
        nproc=world.each,
        nodes=world.nodes,
        node_rank=rank,
        meet=f"{ADDRESS}:{PORT}",
        only=CHECKS,
        **(set_by_us if world.arrive else {}),
        timeout=tuple(f"{check_id}={PATIENT_SECONDS:g}s" for check_id in CHECKS),
        output=(f"json={folder}/report",),
    )
    kept = Kept()
    setattr(session, "Company", kept.made_of)  # noqa: B010  it is made deep inside ending_of()
    setattr(agent, "report_of", _watched(agent.report_of))  # noqa: B010
    with agent.session(Interrupt()) as workers:
        ended = agent.ending_of(agent.Wish(flags), workers, Interrupt(), lambda progress: None)
        if ended.report is not None and kept.hosting:
            files.publish(workers, ended.outputs, ended.report, Look())
            Path(folder, "leader").write_text(json.dumps(kept.figures(world)))
        elif ended.report is not None:
            worst = [f"{f.check} {f.code}: {f.saw}" for f in ended.report.findings[:1]]
            os.write(2, f"rank {rank} was on its own: {worst}\n".encode())
    return ended.exit_code


CPU_BEFORE = [0.0]
"""This process's CPU seconds when it began to put its report together."""


def _watched(report_of: Any) -> Any:
    def watched(*args: Any, **more: Any) -> Any:
        CPU_BEFORE.append(time.process_time())
        return report_of(*args, **more)

    return watched


class Watched(session.Company):
    """An agent's company, with the times of what an agent has no reason to tell."""

    met = judged = cpu_met = cpu_judged = 0.0

    def _place(self, host: Any) -> None:
        self.met, self.cpu_met = time.monotonic(), time.process_time()
        super()._place(host)

    def tell_end(self, *ends: Any) -> None:
        self.judged = time.monotonic()
        self.cpu_judged = time.process_time() - CPU_BEFORE[-1]
        super().tell_end(*ends)


@dataclass(slots=True)
class Kept:
    """The company of this very agent."""

    made: Watched | None = None

    def made_of(self, *args: Any, **more: Any) -> Watched:
        self.made = Watched(*args, **more)
        return self.made

    @property
    def hosting(self) -> bool:
        return self.made is not None and self.made.hosting is not None

    def figures(self, world: World) -> dict[str, float]:
        assert self.made is not None
        assert self.made.hosting is not None
        return {
            "met": self.made.met,
            "judged": self.made.judged,
            "named": time.monotonic(),
            "due": self.made.began + world.arrive,
            "cpu": time.process_time(),
            "cpu_met": self.made.cpu_met,
            "cpu_judged": self.made.cpu_judged,
            "peak": _peak(),
            "received": self.made.hosting.received,
        }


def _peak() -> float:
    """The most memory that this process had, in MiB, with what it shares with its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# --- a nursery ---


def told(world: World, folder: str) -> bytes:
    """What a nursery has to know first."""
    first = {"world": asdict(world), "folder": folder, "parent": os.getpid()}
    return json.dumps(first).encode() + b"\n"


def _first_line() -> bytes:
    """By single bytes: what comes after it is for select()."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def nurse() -> None:
    """Import, say that it is done, then start an agent for each line `[rank, name]`, and say with
    which code each has ended. Over when there is nobody left and no more to come."""
    first = json.loads(_first_line())
    tie_to(first["parent"])
    world, folder = World(**first["world"]), first["folder"]
    import_everything()
    os.write(1, f"ready {time.process_time()}\n".encode())
    pids: set[int] = set()
    rest, ended = b"", False
    while pids or not ended:
        if not ended and select.select([0], [], [], 0.02)[0]:
            data = os.read(0, 65536)
            *lines, rest = (rest + data).split(b"\n")
            ended = not data
            for line in lines:
                rank, name = json.loads(line)
                pids.add(fork(world, rank, name, folder))
        elif ended:
            time.sleep(0.02)
        for pid, code in reap():
            if pid in pids:
                pids.discard(pid)
                os.write(1, f"{code}\n".encode())


if __name__ == "__main__":
    nurse()
