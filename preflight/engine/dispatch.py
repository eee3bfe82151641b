"""How a check is put to the workers: with which ranks, variables, time and server."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from preflight.check import OLDEST_TORCH, Check, Requirement, Scope
from preflight.engine import tasks
from preflight.engine.plan import Plan
from preflight.expect import numbers
from preflight.frozen import dataclass
from preflight.humanize import duration
from preflight.model import (
    NO_CPU,
    NO_PROCESS,
    Cause,
    Mark,
    Missing,
    Observation,
    Seen,
    key_of,
    too_little_cpu,
)
from preflight.process.call import Call, Died, Raised, Returned, TimedOut
from preflight.process.interpreter import NAMED, ON_PATH
from preflight.process.pool import NOT_STARTED, Workers
from preflight.process.servers import LIGHT, TORCH, TORCH_MODULES
from preflight.registry import Loaded

AGENT_VARIABLES = (
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_ERROR_FILE",
)
"""torchrun's own: our ranks must not take its store for theirs."""


RUNNING = "R"
"""The state of a process that has a CPU or waits for one: it hangs nowhere."""


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
    master_ip: str,
) -> Call:
    """Have one observation of a check made; `rank` None: the node's. `encoded` is the topology,
    `roll` what is known of the meeting, both as JSON; `master_ip`: see Context."""
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
        "master_ip": master_ip,
        "patience": plan.patience,
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
        server_of(check),
        tasks.perform,
        tasks.request(loaded.id, plan.root, encoded, **context),
        seconds=seconds,
        label=key_of(place.node, rank),
        group=loaded.id,
        rank=context["rank"],
        env=env,
        unset=AGENT_VARIABLES if env and not plan.launchers_store else (),
    )


def server_of(check: Check) -> str:
    """The fork server that forks a check's workers; checks that preload the same share one."""
    return ",".join(check.preload) if check.preload else TORCH if check.torch else LIGHT


def without_torch(loaded: Loaded, preloaded: Mapping[str, Any], of_torch: str) -> Missing | None:
    """What the import of torch means for a check that needs it, or that reports on it: its id is
    `of_torch`."""
    lost = preloaded.get("", {}).get("error", "")
    if lost:
        if Requirement.TORCH in loaded.check.requires:
            return Missing(Cause.BLOCKED, by=of_torch)
        if lost.startswith(NO_PROCESS):
            return Missing(Cause.CANNOT_OBSERVE, lost.partition("\n")[0])
        if NOT_STARTED in lost:
            return Missing(Cause.CANNOT_OBSERVE, lost)
        seconds = preloaded[""]["seconds"]
        if why := too_little_cpu(preloaded[""].get("cpu_wait", 0.0), seconds):
            return Missing(Cause.CANNOT_OBSERVE, why, seconds)
        cause = Cause.TIMED_OUT if "did not end within" in lost else Cause.CRASHED
        return Missing(cause, lost, seconds, (Mark("import torch", 0.0),))
    if Requirement.TORCH not in loaded.check.requires:
        return None
    if preloaded["torch"]["absent"]:
        return Missing(Cause.SKIPPED, torch_absent(preloaded["torch"].get("note", "")))
    if any(preloaded[name]["error"] for name in TORCH_MODULES):
        return Missing(Cause.BLOCKED, by=of_torch)
    version = preloaded["torch"]["version"]
    if numbers(version) and numbers(version) < OLDEST_TORCH:
        return Missing(Cause.BLOCKED, f"torch {version} is too old", by=of_torch)
    return None


def torch_absent(note: str) -> str:
    """Which Python has no torch; `note` as of process.interpreter.job_python."""
    if note == NAMED:
        return "the Python that --python names has no torch"
    if note.endswith(ON_PATH):
        return f"torch is not installed here, nor for {note}"
    return "torch is not installed here" + (f": {note}" if note else "")


def observation_of(call: Call) -> Observation:
    """The observation that an ended call amounts to."""
    result = call.result
    match result:
        case Returned():
            return Seen(result.value, round(result.seconds, 4), result.marks)
        case TimedOut():
            left = result.left_behind
            why = too_little_cpu(result.cpu_wait, result.seconds)
            if left is not None and not why and left.state != RUNNING:
                where = f", in {left.wchan}" if left.wchan else ""
                detail = f"pid {left.pid} can't be killed: state {left.state}{where}; left behind"
                return Missing(Cause.UNKILLABLE, detail, result.seconds, result.marks)
            if left is not None:  # it takes a CPU to end, too
                why = f"{why or NO_CPU}; pid {left.pid} was killed, and has not ended yet"
            if why:
                return Missing(Cause.CANNOT_OBSERVE, why, result.seconds, result.marks)
            stack = f"{result.stderr.strip()}\n" if result.stderr.strip() else ""
            detail = f"{stack}no answer in {duration(call.seconds)}, killed"
            return Missing(Cause.TIMED_OUT, detail, result.seconds, result.marks)
        case Raised(kind="CannotObserve"):
            return Missing(Cause.CANNOT_OBSERVE, result.message, result.seconds, result.marks)
        case Raised(kind="RuntimeError", message="can't start new thread"):
            why = f"{NO_PROCESS}: {result.message}"
            return Missing(Cause.CANNOT_OBSERVE, why, result.seconds, result.marks)
        case Raised(kind="NotApplicable"):
            return Missing(Cause.NOT_APPLICABLE, result.message, result.seconds, result.marks)
        case Raised():
            detail = f"{result.traceback.strip()}\n{result.kind}: {result.message}".strip()
            return Missing(Cause.CRASHED, detail, result.seconds, result.marks)
        case Died(code=None) if result.stderr.startswith(NO_PROCESS):
            why = result.stderr.partition("\n")[0]
            return Missing(Cause.CANNOT_OBSERVE, why, result.seconds, result.marks)
        case Died():
            return Missing(Cause.CRASHED, _fate(result), result.seconds, result.marks)
    raise AssertionError(f"{call.label} has not ended")


def _fate(died: Died) -> str:
    if died.code is None:
        why = died.stderr.strip().partition("\n")[0]
        fate = "the process that should have started it is gone" + (f": {why}" if why else "")
    elif died.code < 0:
        try:
            fate = f"killed by {signal.Signals(-died.code).name}"
        except ValueError:
            fate = f"killed by signal {-died.code}"
    else:
        fate = f"ended with exit code {died.code} and no answer"
    return f"{died.stderr.strip()}\n{fate}".strip()
