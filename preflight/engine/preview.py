"""What `run` would do here, found out without running a check: `preflight plan`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from preflight import check, registry
from preflight.check import Requirement
from preflight.config.resolve import Config
from preflight.engine.plan import SUMMARY
from preflight.engine.setup import STORE, _counts_gpus, meets, selected, world
from preflight.frozen import dataclass
from preflight.model import Setting, Topology
from preflight.process.pool import Workers

# --- the plan ---


def planned(
    workers: Workers, chosen: Config, catalogue: registry.Catalogue, wake: Callable[[], bool]
) -> Planned:
    """All of it, found out without running a check."""
    here = world(workers, chosen, wake)
    if meeting := meets(chosen, here):
        chosen = chosen.among(here.size)
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
    catalogue: registry.Catalogue, chosen: Config, here: Topology, meeting: bool
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
    loaded: registry.Loaded,
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
        return (
            "not run at --level quick (needs other nodes)" if others else "single node, not needed"
        )
    if one.scope is check.Scope.WORLD and not meeting and here.size > here.met:
        return "not run at --level quick (needs other nodes)"
    if one.scope is check.Scope.PAIR and peers and not here.several_nodes:
        return "all ranks are on one node"
    return ""


def _effects(
    catalogue: registry.Catalogue,
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


@dataclass(frozen=True, slots=True)
class Step:
    """One check as `run` would do it here. `why` is the reason why it is left out, or on what it
    depends, which only shows once it runs."""

    id: str
    stage: str
    scope: str
    level: str
    runs: bool
    why: str
    budget: float
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    touches: str = "-"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a run leaves or touches, and what of it does so."""

    what: str
    by: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What `run` would do here. `meets`: there are other agents, and they are asked; `asked`: what
    had to be found out by a worker to know that much."""

    topology: Topology
    settings: Mapping[str, Setting]
    steps: tuple[Step, ...]
    effects: tuple[Effect, ...]
    meets: bool
    asked: str = ""
