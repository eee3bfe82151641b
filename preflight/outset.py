"""What is settled before a run begins: who is in this world, and which checks it will do.

`run` goes on from here, `plan` shows it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

from preflight import check, topology
from preflight.check import Requirement
from preflight.config import Config
from preflight.isolate import Call, Result, Returned, Workers
from preflight.launchers import wants_gpus
from preflight.model import Setting, Topology
from preflight.plan import Effect, Planned, Step
from preflight.runner import REACH
from preflight.start import LIGHT, open_light

COUNT_SECONDS = 5.0
"""How long NVML or KFD may take to count the GPUs."""
MASK, MASK_MOST = "CUDA_VISIBLE_DEVICES", 64
"""The variable, and how many devices of it count: a longer list is a mistake."""
STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""`True` where torchrun's own store has the port at MASTER_ADDR."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable that names the file in which GitHub Actions take what a step has to say."""


def world(workers: Workers, chosen: Config, wake: Callable[[], bool]) -> Topology:
    """Who is in this world. Only where neither a flag nor a launcher nor CUDA_VISIBLE_DEVICES says
    how many ranks there are, NVML or KFD is asked: in a worker, and not for long."""
    gpus, source = 0, ""
    if _counts_gpus(chosen):
        open_light(workers)
        target = "preflight._observer:count_gpus"
        call = workers.call(LIGHT, target, None, seconds=COUNT_SECONDS)
        counted = wait(workers, call, COUNT_SECONDS + 3.0, wake)
        if isinstance(counted, Returned):
            gpus, source = int(counted.value["gpus"]), f"{counted.value['by']}: GPUs of this node"
    elif (mask := os.environ.get(MASK)) is not None:
        devices = [entry for entry in mask.split(",") if entry.strip()]
        gpus, source = min(len(devices), MASK_MOST), f"env {MASK}"
    return topology.discover(
        os.environ,
        os.uname().nodename,
        nproc=chosen.nproc,
        nproc_source=chosen.nproc_source,
        nodes=chosen.nodes,
        node_rank=chosen.node_rank,
        meet=chosen.meet,
        gpus=gpus,
        gpus_source=source,
        cpus=len(os.sched_getaffinity(0)),
    )


def _counts_gpus(chosen: Config) -> bool:
    """Whether only NVML or KFD can say how many ranks there are to be here."""
    return chosen.nproc is None and MASK not in os.environ and wants_gpus(os.environ)


def meets(chosen: Config, here: Topology) -> bool:
    """Whether there are other agents in this job, and this level asks them."""
    return chosen.level is not check.Level.QUICK and here.size > here.met


def selected(catalogue: check.Catalogue, chosen: Config, meeting: bool) -> Mapping[str, str]:
    """The checks of this run, id -> "" or why it is left out. Those that need another agent are not
    in it where there is none, unless they were named; and where there are others, who came is
    always looked at."""
    found = dict(
        check.select(
            catalogue,
            level=chosen.level,
            only=chosen.only,
            skip=chosen.skip,
            enabled=chosen.enabled,
        )
    )
    if not chosen.only:
        left_out = {Requirement.REHEARSAL} | (set() if meeting else {Requirement.PEERS})
        for loaded in catalogue:
            if left_out & loaded.check.requires:
                found.pop(loaded.id, None)
    if meeting and REACH in catalogue.checks:
        found.setdefault(REACH, "")
    return found


def wait(
    workers: Workers, call: Call, seconds: float, wake: Callable[[], bool] = lambda: False
) -> Result | None:
    """What one call comes to; None when it has not ended in time."""
    until = time.monotonic() + seconds
    while call.result is None and time.monotonic() < until and not wake():
        next(workers.run(until, wake), None)
    return call.result


# --- the plan ---


def planned(
    workers: Workers, chosen: Config, catalogue: check.Catalogue, wake: Callable[[], bool]
) -> Planned:
    """All of it, found out without running a check."""
    here = world(workers, chosen, wake)
    meeting = meets(chosen, here)
    found = tuple(_steps(catalogue, chosen, here, meeting))
    nproc = Setting(here.met, here.facts["nproc"].source)
    return Planned(
        topology=here,
        settings={"nproc": nproc, **chosen.shown},
        steps=found,
        effects=tuple(_effects(catalogue, chosen, here, found, meeting)),
        meets=meeting,
        asked="how many GPUs this node has" if _counts_gpus(chosen) else "",
    )


CONDITIONS = {Requirement.TORCH: "torch", Requirement.GPU: "a GPU"}


def _steps(
    catalogue: check.Catalogue, chosen: Config, here: Topology, meeting: bool
) -> Iterator[Step]:
    """Every check there is, in the order in which they run."""
    would = selected(catalogue, chosen, meeting)
    for loaded in catalogue:
        one = loaded.check
        why = would.get(loaded.id) or _left_out(loaded, would, chosen, here, meeting)
        conditions = [CONDITIONS[r] for r in sorted(one.requires) if r in CONDITIONS]
        yield Step(
            id=loaded.id,
            stage=str(one.stage),
            scope=str(one.scope),
            level=str(chosen.enabled.get(loaded.id, one.level)),
            runs=not why,
            why=why or ("needs " + ", ".join(conditions) if conditions else ""),
            budget=chosen.budgets.get(loaded.id, one.budget),
            needs=one.needs,
            requires=tuple(sorted(map(str, one.requires))),
            touches=one.disturbs,
        )
    for check_id, fault in catalogue.broken.items():
        if check_id in would:
            why = f"could not be loaded: {fault}"
            yield Step(check_id, "", "", "", runs=False, why=why, budget=0.0)


def _left_out(
    loaded: check.Loaded,
    would: Mapping[str, str],
    chosen: Config,
    here: Topology,
    meeting: bool,
) -> str:
    """Why a check is not for this run, as far as that shows before it; empty when it is."""
    one = loaded.check
    peers = Requirement.PEERS in one.requires
    if Requirement.REHEARSAL in one.requires:
        return "only of a command: preflight rehearse"
    if loaded.id not in would:
        if chosen.only:
            return "not named by --only"
        level = chosen.enabled.get(loaded.id, one.level)
        if not chosen.level.includes(level):
            return f"of level {level}"
    if peers and not meeting:
        others = here.size > here.met
        return "level quick meets nobody" if others else "one agent has all ranks of this job"
    if one.scope is check.Scope.WORLD and not meeting and here.size > here.met:
        return "level quick meets nobody"
    if one.scope is check.Scope.PAIR and peers and not here.several_nodes:
        return "all ranks are on one node"
    return ""


def _effects(
    catalogue: check.Catalogue,
    chosen: Config,
    here: Topology,
    steps: tuple[Step, ...],
    meeting: bool,
) -> Iterator[Effect]:
    """What a run does beside looking."""
    running = [step for step in steps if step.runs]
    at = here.meets_at
    if meeting and os.environ.get(STORE) == "True":
        if 0 in here.nodes[0].ranks:
            yield Effect("a free port is listened on", "meeting")
            yield Effect(f"torchrun's store at {at} is told of it: one key", "meeting")
        else:
            yield Effect(f"torchrun's store at {at} is asked where the meeting is", "meeting")
    elif meeting and 0 in here.nodes[0].ranks:
        yield Effect(f"{at} is listened on, and free again at the end", "meeting")
    elif meeting:
        yield Effect(f"{at} is connected to", "meeting")
    yield from (Effect(step.touches, step.id) for step in running if step.touches != "-")
    each = f"one for each of the {here.met} ranks here" if here.met > 1 else "one for the rank here"
    yield Effect(f"processes, each killed at its budget; of checks of ranks {each}", "run")
    if any(catalogue.checks[step.id].check.torch for step in running):
        yield Effect("torch is imported, in a process that is then forked", "run")
    for output in chosen.outputs:
        if output.file != "-":
            yield Effect(f"{output.file} is written", f"-o {output.format}")
    if os.environ.get(SUMMARY):
        yield Effect(f"the file that {SUMMARY} names is appended to", "run")
