"""What torchrun says of a fault of tests/faults: the same machines, broken in the same way, and an
all-reduce over Gloo in place of preflight."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from faults.world import PORT, WorldFault, commands
from lab.host import Command, Ended, Lab
from lab.running import Running

TRAINING = Path(__file__).parents[1] / "tests/faults/allreduce.py"
SECONDS = 60.0
START_SECONDS = 40.0
"""At most, until nothing is imported any more: SECONDS begin then, however busy the machine is."""
CALM_SECONDS, CALM_CPU = 1.5, 0.15
"""Whoever uses so little of the CPUs in such a time has started, and waits."""
STARTING = multiprocessing.Semaphore(2)
"""Many labs may wait at a time, but not start: importing torch is all that takes the CPUs here."""
POLL = 0.05
SHOWN = 80
TICKS = os.sysconf("SC_CLK_TCK")

NOTHING = f"nothing in {SECONDS:g} s"
"""Behind a colon its last warning, where there was one."""

# a line of an exception, with the prefix that torch gives the lines of a rank
ERROR = re.compile(r"(?:\[rank\d+\]: *)?((?:\w+\.)*\w*(?:Error|Exception|Timeout): .+)")
# torchrun's own, which only repeats that a rank has failed
REPEATED = "ChildFailedError"
WARNING = re.compile(r"\[[WE]\d.*?\] (?:\[c10d\] |Warning: )?(.+)")
WHERE = re.compile(r"\[(?:enforce fail at )?[^\s\[\]]*/[^\s\[\]]*:\d+\][. ]*")
"""Where in the sources of Gloo: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:163]."""


def comparable(fault: WorldFault) -> bool:
    """Whether torchrun can have it at all: not what is done to agents while they run, nor what is
    about flags and variables that only preflight reads."""
    variables = {*fault.env, *(name for own in fault.on.values() for name in own)}
    ours = any(name.startswith("PREFLIGHT_") for name in variables)
    return not (ours or fault.act or fault.flags)


def says(fault: WorldFault) -> str:
    """The last line of error of the first rank that fails, and when; or that all is well."""
    with Lab(*fault.machines, subnet=fault.subnet, named=fault.named) as lab:
        for name, breaks in fault.breaks.items():
            lab[name].break_(*breaks)
        with STARTING:
            begun = {
                name: lab[name].begin(c.argv, c.env, user=c.user)
                for name, c in started(fault).items()
            }
            _await_calm(begun)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and not _over(begun):
            time.sleep(POLL)
        return told({name: running.ended() for name, running in begun.items()})


def started(fault: WorldFault) -> dict[str, Command]:
    """What every machine runs. What a variable says (PET_NNODES …) is left to the variable."""
    made = {}
    numbers = {machine.name: number for number, machine in enumerate(fault.machines)}
    for name, command in commands(fault).items():
        env = dict(command.env or {})
        flags = {
            "nnodes": fault.nodes.get(name, len(fault.machines)),
            "nproc-per-node": fault.nproc,
            "node-rank": fault.node_rank.get(name, numbers[name]),
            "master-addr": env.get("MASTER_ADDR"),
            "master-port": env.get("MASTER_PORT", PORT),
        }
        argv = [str(Path(sys.executable).with_name("torchrun"))]
        for flag, value in flags.items():
            if value is not None and f"PET_{flag.upper().replace('-', '_')}" not in env:
                argv += [f"--{flag}", str(value)]
        made[name] = Command([*argv, str(TRAINING)], env, user=command.user)
    return made


def _await_calm(begun: Mapping[str, Running]) -> None:
    until = time.monotonic() + START_SECONDS
    before = -1.0
    while time.monotonic() < until and not _over(begun):
        used = sum(_used(running.process.pid) for running in begun.values())
        if 0 <= used - before < CALM_CPU and before >= 0:
            return
        before = used
        time.sleep(CALM_SECONDS)


def _used(pid: int) -> float:
    """Seconds of CPU of a process, of those that it has waited for and of those below it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = sum(int(ticks) for ticks in fields[11:15]) / TICKS
    return own + sum(_used(int(child)) for child in children)


def _over(begun: Mapping[str, Running]) -> bool:
    """All of them, or one that failed: nobody has to wait for the others then."""
    return all(r.over for r in begun.values()) or any(
        r.over and r.process.returncode for r in begun.values()
    )


def told(ended: Mapping[str, Ended]) -> str:
    failed = [e for e in ended.values() if e.code]
    if not failed:
        if all(e.code == 0 for e in ended.values()):
            return "ok"
        warnings = [WARNING.search(line) for e in ended.values() for line in _lines(e)]
        last = next((found[1] for found in reversed(warnings) if found), "")
        return f"{NOTHING}: {_short(last)}" if last else NOTHING
    first = min(failed, key=lambda e: e.seconds)
    lines = _lines(first)
    errors = [found[1] for line in lines if (found := ERROR.match(line))]
    line = next((e for e in reversed(errors) if REPEATED not in e), (lines or ["nothing"])[-1])
    return f"{_short(line)} ({first.seconds:.0f} s)"


def _lines(ended: Ended) -> list[str]:
    """A carriage return may be what an error is about, and ends no line."""
    return [line for line in ended.err.replace("\r", "\\r").split("\n") if line]


def _short(line: str) -> str:
    text = WHERE.sub("", " ".join(line.split())).replace("|", "\\|").replace("`", "'")
    return f"`{text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'}`"
