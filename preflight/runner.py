"""Stages, needs and budgets: a Plan to Observations. No judgement, no printing.

What has passed is asked of a pure function (verdict.passed); what is shown is told to a callback.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight import _observer
from preflight.check import Catalogue, Loaded, Requirement, Scope, Stage
from preflight.document import encode
from preflight.isolate import NOT_STARTED, Call, Died, Raised, Returned, TimedOut, Workers
from preflight.model import (
    Cause,
    LeftBehind,
    Mark,
    Missing,
    Observation,
    Seen,
    Status,
    Topology,
    key_of,
)
from preflight.start import (
    LIGHT,
    TORCH,
    TORCH_MODULES,
    TORCH_SECONDS,
    open_light,
    open_torch,
)
from preflight.units import duration, plural

TICK = 0.1
"""Seconds between two looks at the clock of the progress line."""

AGENT_VARIABLES = (
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_ERROR_FILE",
)
"""torchrun's own: our ranks must not take its store for theirs."""

Passed = Callable[[str, Mapping[str, Observation]], Mapping[str, Status]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run. `selected` is id -> "" or why the user left it out."""

    catalogue: Catalogue
    selected: Mapping[str, str]
    topology: Topology
    deadline: float
    root: str = "/"
    budgets: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the run is: ids done of all, and what is in flight with its seconds and limit."""

    done: int
    total: int
    seconds: float
    check: str = ""
    running_for: float = 0.0
    limit: float = 0.0
    waiting_for: str = ""


@dataclass(slots=True)
class Outcome:
    """What a run has seen."""

    checks: dict[str, dict[str, Observation]] = field(default_factory=dict)
    interrupted: str = ""
    left_behind: tuple[LeftBehind, ...] = ()
    seconds: float = 0.0


class Run:
    """One run of a plan over the workers of this node."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        passed: Passed,
        watch: Callable[[Progress], None] = lambda progress: None,
        interrupted: Callable[[], str] = lambda: "",
    ) -> None:
        self.plan = plan
        self.workers = workers
        self.passed = passed
        self.watch = watch
        self.interrupted = interrupted
        self.outcome = Outcome()
        self.node = plan.topology.nodes[0]
        chosen = [c for i, c in plan.catalogue.checks.items() if i in plan.selected]
        # what may take longest begins first
        self.waiting = sorted(chosen, key=lambda c: -c.check.budget)
        self.calls: dict[str, dict[str, Call]] = {}
        self.statuses: dict[str, Mapping[str, Status]] = {}
        self.began = time.monotonic()
        self._topology = encode(plan.topology)

    def observe(self) -> Outcome:
        """Run everything; returns early, with what there is, at the deadline or on a signal."""
        self._observe()
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    def _observe(self) -> None:
        for check_id, why in self.plan.catalogue.broken.items():
            if check_id in self.plan.selected:
                missing = Missing(Cause.CRASHED, f"could not be loaded: {why}")
                self.outcome.checks[check_id] = {self.node.name: missing}
        if any(c.check.torch and not self.plan.selected[c.id] for c in self.waiting):
            open_torch(self.workers)
        open_light(self.workers)
        self._open_preloads()
        until = self.began + self.plan.deadline
        while self.waiting or self.calls:
            if self.interrupted() or time.monotonic() >= until:
                self._give_up()
                break
            self._start_what_may()
            tick = min(until, time.monotonic() + TICK)
            for call in self.workers.run(tick, wake=lambda: bool(self.interrupted())):
                self._ended(call)
                self._start_what_may()
            self.watch(self._progress())
        self.outcome.interrupted = self.interrupted()

    def _open_preloads(self) -> None:
        for loaded in self.waiting:
            if loaded.check.preload and not self.plan.selected[loaded.id]:
                self.workers.open(
                    loaded.id, preload=loaded.check.preload, parent=TORCH, seconds=TORCH_SECONDS
                )

    # --- what may start ---

    def _start_what_may(self) -> None:
        """Start each waiting check whose stage has come and whose needs are done. What is blocked
        ends at once and may free others, hence the loop."""
        progress = True
        while progress:
            progress = False
            unfinished = [self.plan.catalogue.checks[i].check.stage for i in self.calls] + [
                c.check.stage for c in self.waiting
            ]
            if not unfinished:
                return
            stage = min(unfinished, key=tuple(Stage).index)
            for loaded in list(self.waiting):
                due = loaded.check.stage is stage and not any(
                    n in self.calls or any(w.id == n for w in self.waiting)
                    for n in loaded.check.needs
                )
                if due and self._start(loaded):
                    self.waiting.remove(loaded)
                    progress = True

    def _start(self, loaded: Loaded) -> bool:
        """Start a check or settle why not; False when it has to wait for torch's import."""
        why = self.plan.selected[loaded.id]
        if why:
            self._settle(loaded, Missing(Cause.SKIPPED, why, by="user"))
            return True
        missing = self._blocked(loaded)
        if missing is None and loaded.check.torch:
            preloaded = self.workers.preloaded(TORCH)
            if preloaded is None:
                return False
            missing = self._without_torch(loaded, preloaded)
        if missing is not None:
            self._settle(loaded, missing)
            return True
        self.calls[loaded.id] = {
            key: self._call(loaded, rank) for key, rank in self._subjects(loaded)
        }
        self.outcome.checks[loaded.id] = {}
        return True

    def _subjects(self, loaded: Loaded) -> list[tuple[str, int | None]]:
        if loaded.check.scope is Scope.NODE:
            return [(self.node.name, None)]
        return [(key_of(self.node.name, rank), rank) for rank in self.node.ranks]

    def _settle(self, loaded: Loaded, missing: Missing) -> None:
        """A check that is not run."""
        self.outcome.checks[loaded.id] = {key: missing for key, _ in self._subjects(loaded)}
        self.statuses[loaded.id] = self.passed(loaded.id, self.outcome.checks[loaded.id])

    def _blocked(self, loaded: Loaded) -> Missing | None:
        """Why a check can't be run: a need failed, or has nothing to look at here. One that is
        undecided doesn't block: this check brings evidence of its own."""
        if loaded.check.scope is Scope.WORLD and self.plan.topology.size > len(self.node.ranks):
            others = self.plan.topology.size - len(self.node.ranks)
            detail = f"{plural(others, 'rank')} of other processes: this version meets no other"
            return Missing(Cause.SKIPPED, detail)
        for need in loaded.check.needs:
            if any(s is Status.FAIL for s in self.statuses.get(need, {}).values()):
                return Missing(Cause.BLOCKED, by=need)
            for observation in self.outcome.checks.get(need, {}).values():
                if isinstance(observation, Missing):
                    if observation.cause is Cause.BLOCKED:
                        return observation
                    if observation.cause is Cause.NOT_APPLICABLE:
                        return Missing(Cause.NOT_APPLICABLE, observation.detail)
        return None

    def _without_torch(self, loaded: Loaded, preloaded: Mapping[str, Any]) -> Missing | None:
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

    # --- calls ---

    def _call(self, loaded: Loaded, rank: int | None) -> Call:
        top, ranks = self.plan.topology, self.node.ranks
        local = ranks.index(rank) if rank is not None else 0
        together = len(ranks) if loaded.check.scope is Scope.WORLD else 1
        seconds = self.plan.budgets.get(loaded.id, loaded.check.budget)
        context = {
            "node": self.node.name,
            "seconds": seconds,
            "rank": rank or 0,
            "local_rank": local,
            "world_size": together,
            "local_world_size": len(ranks),
            "master_addr": top.master_addr,
            "master_port": top.master_port,
            "options": dict(self.plan.options.get(loaded.id, {})),
        }
        env: dict[str, str] = {}
        if loaded.check.scope is Scope.WORLD:
            env = {
                "RANK": str(rank or 0),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(together),
                "LOCAL_WORLD_SIZE": str(len(ranks)),
                "MASTER_ADDR": top.master_addr,
                "MASTER_PORT": str(top.master_port),
            }
        server = loaded.id if loaded.check.preload else TORCH if loaded.check.torch else LIGHT
        return self.workers.call(
            server,
            _observer.TARGET,
            _observer.request(loaded.id, self.plan.root, self._topology, **context),
            seconds=seconds,
            label=key_of(self.node.name, rank),
            group=loaded.id,
            rank=rank or 0,
            env=env,
            unset=AGENT_VARIABLES if env else (),
        )

    def _ended(self, call: Call) -> None:
        loaded = self.plan.catalogue.checks.get(call.group)
        if loaded is None or call.group not in self.calls:
            return
        self.outcome.checks[call.group][call.label] = observation_of(call)
        calls = self.calls[call.group]
        # by what has come out of the workers: several calls may have ended by now
        if len(self.outcome.checks[call.group]) == len(calls):
            order = list(calls)
            seen = self.outcome.checks[call.group]
            self.outcome.checks[call.group] = {key: seen[key] for key in order if key in seen}
            del self.calls[call.group]
            self.statuses[call.group] = self.passed(call.group, self.outcome.checks[call.group])

    def _give_up(self) -> None:
        """The deadline or a signal: end what runs, and say of the rest that it was not run."""
        why = f"interrupted by {self.interrupted()}"
        if not self.interrupted():
            why = f"the run's deadline of {self.plan.deadline:g} s was over"
        for check_id, calls in self.calls.items():
            for key, call in calls.items():
                if key not in self.outcome.checks[check_id]:
                    ended = time.monotonic() - call.began if call.began else 0.0
                    missing = Missing(Cause.INTERRUPTED, why, ended, tuple(call.marks))
                    self.outcome.checks[check_id][key] = missing
        for loaded in self.waiting:
            missing = Missing(Cause.SKIPPED, f"not started: {why}")
            self.outcome.checks[loaded.id] = {key: missing for key, _ in self._subjects(loaded)}
        self.calls, self.waiting = {}, []

    def _progress(self) -> Progress:
        total = len(self.plan.selected)
        now = time.monotonic()
        running = [
            (c, check_id)
            for check_id, calls in self.calls.items()
            for c in calls.values()
            if c.result is None and c.pid
        ]
        if not running:
            importing = "import torch" if self.waiting else ""
            done = total - len(self.waiting) - len(self.calls)
            return Progress(done, total, now - self.began, waiting_for=importing)
        oldest, check_id = min(running, key=lambda pair: pair[0].began)
        mark = f' (last mark: "{oldest.marks[-1].name}")' if oldest.marks else ""
        return Progress(
            done=total - len(self.waiting) - len(self.calls),
            total=total,
            seconds=now - self.began,
            check=check_id,
            running_for=now - oldest.began,
            limit=oldest.seconds,
            waiting_for=f"{oldest.label}{mark}",
        )


def observation_of(call: Call) -> Observation:
    """The observation that an ended call amounts to."""
    result = call.result
    match result:
        case Returned():
            return Seen(result.value, round(result.seconds, 4), result.marks)
        case TimedOut():
            left = result.left_behind
            if left is not None:
                where = f", in {left.wchan}" if left.wchan else ""
                detail = f"pid {left.pid} can't be killed: state {left.state}{where}; left behind"
                return Missing(Cause.UNKILLABLE, detail, result.seconds, result.marks)
            stack = f"{result.stderr.strip()}\n" if result.stderr.strip() else ""
            detail = f"{stack}no answer in {duration(call.seconds)}, killed"
            return Missing(Cause.TIMED_OUT, detail, result.seconds, result.marks)
        case Raised(kind="CannotObserve"):
            return Missing(Cause.CANNOT_OBSERVE, result.message, result.seconds, result.marks)
        case Raised(kind="NotApplicable"):
            return Missing(Cause.NOT_APPLICABLE, result.message, result.seconds, result.marks)
        case Raised():
            detail = f"{result.traceback.strip()}\n{result.kind}: {result.message}".strip()
            return Missing(Cause.CRASHED, detail, result.seconds, result.marks)
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
