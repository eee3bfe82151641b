"""The rows of docs/detection.md: a fault or a healthy world is run, and judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torchrun
from faults import healthy, inject
from faults import world as worlds
from faults.healthy_worlds import alarms
from faults.inject import Fault
from faults.world import Seen, WorldFault

NOT_TRIED = "not tried here"
NOT_COMPARED = "not compared"


@dataclass(slots=True)
class Row:
    """A row of a table and what the summary counts of it. `good`: named, at the right subject;
    `said`: what is not as it should be; `found_in`: seconds from the start of a job of several
    machines to its end with the finding, None where somebody had to be waited for."""

    cells: list[str]
    tried: bool = True
    good: bool = False
    alarms: int = 0
    ready: int = 0
    runs: int = 0
    said: tuple[str, ...] = ()
    found_in: float | None = None


def _untried(name: str, why: str, width: int) -> Row:
    return Row([name, NOT_TRIED, why, *[""] * (width - 3)], tried=False)


def failed(name: str, error: Exception, width: int) -> Row:
    said = " ".join(str(error).split())[:60]
    return Row([name, f"could not be run: {said}", "**no**", "0", *[""] * (width - 4)])


def _yes(right: bool, missed: str = "") -> str:
    return "yes" if right else f"no: {missed}" if missed else "**no**"


# --- one machine ---


def machine_fault(fault: Fault) -> Row:
    if why := inject.lacking(fault):
        return _untried(fault.name, why, 5)
    outcome = inject.run(fault)
    verdict = inject.judge(fault, outcome)
    finding = f"`{fault.check}` {fault.code}" if fault.code else f"exit code {fault.exit}"
    sure = {f["code"]: f["confidence"] for f in outcome.findings if f["check"] == fault.check}
    detected = verdict.detected and outcome.ended.code == fault.exit
    named = detected and verdict.named
    if fault.code and detected:
        finding += f" ({fault.status}, {sure[fault.code]})"
    return Row(
        [
            fault.name,
            finding,
            _yes(named, fault.missed),
            str(len(verdict.false_alarms)),
            f"{outcome.ended.seconds:.1f}",
        ],
        good=named,
        alarms=len(verdict.false_alarms),
        said=verdict.problems,
    )


def gpu_fault(fault: Fault) -> Row:
    """With what is there in place of the GPUs."""
    row = machine_fault(fault)
    return dataclasses.replace(row, cells=[*row.cells, fault.stand_in])


def healthy_machine(variant: Fault) -> Row:
    """Looked at several times at level quick and once at level standard."""
    if why := inject.lacking(variant):
        return _untried(variant.name, why, 4)
    runs = [variant] * healthy.TIMES
    if variant.args == ("--level", "quick"):
        runs.append(dataclasses.replace(variant, args=("--level", "standard")))
    outcomes = [inject.run(one) for one in runs]
    found = tuple(inject.line(f) for outcome in outcomes for f in outcome.findings)
    ready = sum(outcome.ended.code == 0 for outcome in outcomes)
    slowest = max(outcome.ended.seconds for outcome in outcomes)
    cells = [variant.name, f"{ready} of {len(runs)}", str(len(found)), f"{slowest:.1f}"]
    return Row(cells, alarms=len(found), ready=ready, runs=len(runs), said=found)


# --- several machines ---

_healthy_seconds: dict[tuple[int, int, tuple[str, ...]], float] = {}


def _kind(fault: WorldFault) -> tuple[int, int, tuple[str, ...]]:
    return len(fault.machines), fault.nproc, fault.args


def measure(faults: Sequence[WorldFault]) -> None:
    """How long healthy runs of the same worlds take; before the processes that need it are made."""
    for fault in faults:
        if _kind(fault) not in _healthy_seconds and not worlds.lacking(fault):
            twin = worlds.healthy_twin(fault, len(fault.machines))
            _healthy_seconds[_kind(fault)] = worlds.run(twin).seconds


def world_fault(fault: WorldFault) -> Row:
    if why := worlds.lacking(fault):
        return _untried(fault.name, why, 7)
    healthy_seconds = _healthy_seconds[_kind(fault)]
    seen = worlds.run(fault)
    verdict = worlds.judge(fault, seen, healthy_seconds)
    right = verdict.named and not any("is not among those" in p for p in verdict.problems)
    return Row(
        [
            fault.name,
            _found(fault, seen),
            _yes(verdict.detected, fault.missed),
            _yes(right, fault.missed),
            str(len(verdict.false_alarms)),
            f"{seen.seconds:.1f} ({seen.seconds - healthy_seconds:+.1f})",
            NOT_COMPARED if torchrun.comparable(fault) else "-",
        ],
        good=verdict.detected and right,
        alarms=len(verdict.false_alarms),
        said=verdict.problems,
        found_in=None if _waits(fault) else seen.seconds,
    )


def _waits(fault: WorldFault) -> bool:
    """Whether somebody does not come, or goes while the job runs, or a name server is silent: the
    time of these is how long we are told to wait."""
    silent = any("silent" in b.what for of in fault.breaks.values() for b in of)
    return bool(fault.absent or fault.act or silent)


def _found(fault: WorldFault, seen: Seen) -> str:
    """The finding that was to be there, or both of them; how sure it is if it is there."""
    wanted = [(fault.check, (fault.code, *fault.alike)), (fault.second[0], (fault.second[1],))]
    parts = []
    for check, codes in wanted:
        there = [f for f in seen.findings if f["check"] == check and f["code"] in codes]
        sure = f" ({there[0]['status']}, {there[0]['confidence']})" if there else ""
        if check:
            parts.append(f"`{check}` {there[0]['code'] if there else codes[0]}{sure}")
    return " and ".join(parts)


def torchrun_says(fault: WorldFault) -> str:
    try:
        return torchrun.says(fault)
    except (RuntimeError, OSError) as error:
        return f"could not be tried: {str(error)[:60]}"


def healthy_world(world: WorldFault) -> Row:
    with_torch = ", with torch" if worlds.needs_torch(world) else ""
    if why := worlds.lacking(world):
        return _untried(world.name + with_torch, why, 4)
    seen = worlds.run(world)
    found = tuple(alarms(seen))
    cells = [world.name + with_torch, f"{0 if found else 1} of 1", str(len(seen.findings))]
    return Row(
        [*cells, f"{seen.seconds:.1f}"],
        alarms=len(seen.findings),
        ready=int(not found),
        runs=1,
        said=found,
    )
