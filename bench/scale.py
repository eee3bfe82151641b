"""Hundreds of agents on one machine: how long they take to meet, what that costs the leader, and
whether the one that is absent, double or odd is found among them.

    make scale                       256, 512 and 1,024 agents
    python bench/scale.py 24         fewer

Every size is started three times: with one agent that is odd, with a rank that two of them claim,
and with one that never comes. All times are counted from the start of the last agent. Exits 1 when
a bar is not met. Root, or a kernel that lets users have namespaces.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NoReturn

from crowd import Held, hold
from member import ADDRESS, World, import_everything, name_of
from place import seclude

SIZES = (256, 512, 1024)
CPUS = 2
MEET_SECONDS, REPORT_SECONDS, PEAK_MIB = 2.0, 15.0, 100.0
FEW = 15.0
"""Times as long for fewer agents than SIZES: those are a test, on a machine that has more to do."""
GROWTH = 1.5
"""By which the leader's work for one agent may be more among the most than among the fewest."""
LATE_SECONDS = 1.0
"""After the leader's patience, for the absent one to be named: 1 s, and some for each agent that
has to be asked before that."""
LATE_PER_AGENT = 0.04
MIB_PER_AGENT = 16
"""What one of them takes while it is at work: its own process, its server, and their workers."""

LEAST_ARRIVE = 5.0
LIMIT_SECONDS, LIMIT_PER_AGENT = 90.0, 0.25
"""Of one world, after which what is left of it is killed."""

NOT_PLANTED = ("agent-late",)
"""What is true of agents that are started one after another on a machine that is full of them."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One world, and the only finding that there may be about it: (check, code), and the nodes or
    ranks that it must name."""

    what: str
    world: World
    finding: tuple[str, str]
    subjects: frozenset[str]


def planted(agents: int, arrive: float) -> Iterator[Planted]:
    odd, twin, absent = agents // 3, agents // 2, agents * 2 // 3
    world = World(agents, arrive)
    yield Planted(
        "odd",
        replace(world, odd=odd),
        ("agree.env", "setting-differs"),
        frozenset({name_of(odd)}),
    )
    yield Planted(
        "twin",
        replace(world, twin=twin),
        ("rdzv.reach", "rank-duplicate"),
        frozenset({f"{name_of(twin)}/{twin}", f"{name_of(twin, 'b')}/{twin}"}),
    )
    yield Planted(
        "absent",
        replace(world, absent=absent),
        ("rdzv.reach", "absent"),
        frozenset({f"/{absent}"}),
    )


def problems(plant: Planted, held: Held) -> list[str]:
    """What is wrong with the report, or with how the agents ended."""
    found = [f for f in held.report["findings"] if f["code"] not in NOT_PLANTED]
    heaviest = [f for f in found if f["status"] in ("fail", "missing", "undecided")]
    wrong = []
    if [(f["check"], f["code"]) for f in heaviest] != [plant.finding]:
        said = ", ".join(f"{f['check']} {f['code']}" for f in heaviest[:4]) or "nothing"
        wrong.append(f"the report says {said}")
    named = {s for f in found for s in map(_subject, f["subjects"])}
    named |= {s.partition("/")[0] for s in named if s.partition("/")[0]}
    allowed = plant.subjects | {s.partition("/")[0] for s in plant.subjects}
    if not plant.subjects <= named | {""} or named - allowed:
        wrong.append(f"it names {', '.join(sorted(named)[:4])}, not {', '.join(plant.subjects)}")
    if set(held.codes) != {held.report["exit_code"]}:
        wrong.append(f"agents ended with {held.codes}, the leader with {held.report['exit_code']}")
    if held.left:
        wrong.append(f"{held.left} processes were left")
    return wrong


def _subject(subject: dict[str, Any]) -> str:
    rank = subject["name"] if subject["kind"] == "rank" else ""
    return f"{subject['node']}/{rank}" if rank else str(subject["node"])


@dataclass(slots=True)
class Bars:
    """What was to be met; `missed` is what was not."""

    missed: list[str]

    def hold(self, what: str, value: float, bar: float, unit: str) -> str:
        if value > bar:
            self.missed.append(f"{what}: {value:.2f} {unit}, the bar is {bar:g} {unit}")
        return f"{value:.2f} {unit} (<= {bar:g} {unit}{'' if value <= bar else ', NOT MET'})"


def measure(agents: int, bars: Bars) -> Held:
    """The three worlds of one size. The first is what is measured; how long it took to meet says
    how long the leader of the last waits for the absent one."""
    first: Held | None = None
    for plant in planted(agents, 0.0):
        patience = 120.0 + agents / 4
        if plant.world.absent is not None and first is not None:
            patience = max(LEAST_ARRIVE, 1.5 * (first.spread + max(first.met, 0.0)) + 3.0)
        limit = patience + LIMIT_SECONDS + LIMIT_PER_AGENT * agents
        signal.alarm(int(2 * limit))  # not even a fault of this script goes on forever
        held = hold(replace(plant.world, arrive=patience), limit)
        signal.alarm(0)
        what = f"{agents} agents, {plant.what}"
        wrong = problems(plant, held)
        bars.missed += [f"{what}: {problem}" for problem in wrong]
        if wrong and held.said:
            print(held.said[:2000], file=sys.stderr)
        if first is None:
            first = held
            print(f"{agents} agents, started in {held.spread:.1f} s")
            times = 1.0 if agents >= SIZES[0] else FEW
            met = bars.hold(what + ", met", held.met, times * MEET_SECONDS, "s")
            print(f"  met                 {met}")
            report = bars.hold(what + ", report", held.named, times * REPORT_SECONDS, "s")
            print(f"  verdict, report     {held.judged:.2f} s, {report}")
            peak = bars.hold(what + ", memory", held.peak, PEAK_MIB, "MiB")
            print(f"  leader's memory     {peak}")
            print(f"  leader's CPU        {held.cpu:.2f} s, {held.cpu_met:.2f} s until all had met")
            print(f"  leader received     {held.received / 1024:.0f} KiB")
            each = 1000 * held.agents / agents
            least = held.agents / len(os.sched_getaffinity(0))
            print(f"  CPU of the agents   {held.agents:.1f} s, {each:.0f} ms each", end="")
            print(f": {least:.0f} s here, were nobody else at work")
        told = ", ".join(sorted(plant.subjects))
        when = f"{held.named:.2f} s"
        if plant.world.absent is not None:
            bar = LATE_SECONDS + LATE_PER_AGENT * agents
            late = bars.hold(f"{what}, named", held.named - held.due, bar, "s")
            when += f", after the {patience:.0f} s that the leader waited {late}"
        print(f"  {plant.what:<7} {'NOT ' if wrong else ''}named  {told}: {when}", flush=True)
    assert first is not None
    return first


def growth(held: dict[int, Held], bars: Bars) -> None:
    """The leader's work for one agent, among few and among many."""
    print(f"{'the leader, per agent':<24}" + "".join(f"{n:>10}" for n in held))
    for what, unit, field, factor in (
        ("CPU", "ms", "cpu", 1000),
        ("CPU until met", "ms", "cpu_met", 1000),
        ("received", "B", "received", 1),
    ):
        each = [getattr(h, field) * factor / n for n, h in held.items()]
        ratio = bars.hold(f"the leader's {what} per agent grows", each[-1] / each[0], GROWTH, "x")
        print(f"  {what + ', ' + unit:<22}" + "".join(f"{e:>10.2f}" for e in each) + f"   {ratio}")


def enough_memory(agents: int) -> bool:
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return free / 1024 > agents * MIB_PER_AGENT


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("agents", type=int, nargs="*", default=list(SIZES))
    sizes = sorted(parser.parse_args(arguments).agents)
    if sizes[0] < 8:
        parser.error("8 agents are the fewest of which one can be odd")
    for name in [n for n in os.environ if n.startswith(("PREFLIGHT_", "MASTER_", "NCCL_"))]:
        del os.environ[name]  # they would be everybody's
    signal.signal(signal.SIGTERM, _ended)
    load = os.getloadavg()[0]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
    try:
        seclude(ADDRESS)
    except OSError as error:
        raise SystemExit(f"scale: {error}; it takes root or user namespaces") from None
    import_everything()
    began = time.monotonic()
    cpus = len(os.sched_getaffinity(0))
    print(f"{cpus} CPUs, load {load:.1f} before and without us, seconds from the last start\n")
    bars = Bars([])
    held: dict[int, Held] = {}
    for agents in sizes:
        if enough_memory(agents):
            held[agents] = measure(agents, bars)
        else:
            bars.missed.append(f"{agents} agents: {agents * MIB_PER_AGENT} MiB are not free")
    if held:
        growth(held, bars)
    print(f"\n{time.monotonic() - began:.0f} s in all")
    for line in bars.missed:
        print(f"NOT MET  {line}")
    raise SystemExit(1 if bars.missed else 0)


if __name__ == "__main__":
    main()
