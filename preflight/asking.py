"""How a check is put to the workers: with which ranks, variables, time and server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from preflight import _observer
from preflight.calls import Call
from preflight.check import Loaded, Requirement, Scope
from preflight.isolate import NOT_STARTED, Workers
from preflight.model import Cause, Mark, Missing, key_of
from preflight.plan import Plan
from preflight.start import LIGHT, TORCH, TORCH_MODULES

AGENT_VARIABLES = (
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_ERROR_FILE",
)
"""torchrun's own: our ranks must not take its store for theirs."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an observer is among all.

    ranks     all ranks of its node, also those of other agents
    together  ranks of a WORLD check
    number    of its node among the `nodes` that have met
    """

    node: str
    ranks: tuple[int, ...]
    together: int
    number: int = 0
    nodes: int = 1


def ask(
    workers: Workers,
    plan: Plan,
    encoded: Any,
    loaded: Loaded,
    rank: int | None,
    place: Place,
    roll: Any,
) -> Call:
    """Have one observation of a check made; `rank` None: the node's. `encoded` is the topology,
    `roll` what is known of the meeting, both as JSON."""
    top, check = plan.topology, loaded.check
    world = check.scope is Scope.WORLD
    seconds = plan.budgets.get(loaded.id, check.budget)
    context: dict[str, Any] = {
        "node": place.node,
        "seconds": seconds,
        "rank": place.number if check.scope is Scope.PAIR else rank or 0,
        "local_rank": place.ranks.index(rank) if rank is not None else 0,
        "world_size": {Scope.WORLD: place.together, Scope.PAIR: place.nodes}.get(check.scope, 1),
        "local_world_size": len(place.ranks),
        "master_addr": top.master_addr,
        "master_port": top.master_port,
        "options": dict(plan.options.get(loaded.id, {})),
        "roll": roll,
    }
    env: dict[str, str] = {}
    if world:
        env = {
            "RANK": str(context["rank"]),
            "LOCAL_RANK": str(context["local_rank"]),
            "WORLD_SIZE": str(place.together),
            "LOCAL_WORLD_SIZE": str(len(place.ranks)),
            "MASTER_ADDR": top.master_addr,
            "MASTER_PORT": str(top.master_port),
        }
    return workers.call(
        loaded.id if check.preload else TORCH if check.torch else LIGHT,
        _observer.TARGET,
        _observer.request(loaded.id, plan.root, encoded, **context),
        seconds=seconds,
        label=key_of(place.node, rank),
        group=loaded.id,
        rank=context["rank"],
        env=env,
        unset=AGENT_VARIABLES if env and not plan.launchers_store else (),
    )


def without_torch(loaded: Loaded, preloaded: Mapping[str, Any]) -> Missing | None:
    """What the import of torch means for a check that needs it, or that reports on it."""
    lost = preloaded.get("", {}).get("error", "")
    if lost:
        if Requirement.TORCH in loaded.check.requires:
            return Missing(Cause.BLOCKED, by="host.software")
        if NOT_STARTED in lost:
            return Missing(Cause.CANNOT_OBSERVE, lost)
        seconds = preloaded[""]["seconds"]
        cause = Cause.TIMED_OUT if "did not end within" in lost else Cause.CRASHED
        return Missing(cause, lost, seconds, (Mark("import torch", 0.0),))
    if Requirement.TORCH not in loaded.check.requires:
        return None
    if preloaded["torch"]["absent"]:
        return Missing(Cause.SKIPPED, "torch is not installed here")
    if any(preloaded[name]["error"] for name in TORCH_MODULES):
        return Missing(Cause.BLOCKED, by="host.software")
    return None
