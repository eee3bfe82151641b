"""Stages, needs and budgets: a Plan to Observations. No judgement, no printing.

What has passed is asked of a pure function (verdict.passed); what is shown is told to a callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from preflight.check import LOCAL, Requirement, Scope, Stage
from preflight.engine.dispatch import Place, ask, observation_of, server_of, without_torch
from preflight.engine.plan import CheckProgress, Outcome, Plan, Progress, Watch
from preflight.humanize import plural
from preflight.identity.discover import with_numbers
from preflight.model import (
    WEIGHT,
    Cause,
    Missing,
    Node,
    Observation,
    Standing,
    Status,
    Topology,
    key_of,
)
from preflight.process.call import Call
from preflight.process.pool import Workers
from preflight.process.servers import LIGHT, TORCH, TORCH_SECONDS, open_light, open_torch
from preflight.registry import Loaded
from preflight.serde import encode

if TYPE_CHECKING:
    from preflight.meeting.session import Company

TICK = 0.1
"""Seconds between two looks at the clock of the progress line."""

Passed = Callable[[str, Mapping[str, Observation], Topology], Standing]

REMOTE_GRACE = 8.0
"""Seconds beyond a check's budget for which the host waits for another agent's answer: its torch
may still be importing, and its kill takes a moment."""


class Run:
    """One run of a plan over the workers of this agent, alone or with the others of its job."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        passed: Passed,
        watch: Watch = lambda progress: None,
        interrupted: Callable[[], str] = lambda: "",
        company: Company | None = None,
    ) -> None:
        self.plan = plan
        self.workers = workers
        self.passed = passed
        self.watch = watch
        self.interrupted = interrupted
        self.company = company
        self.outcome = Outcome()
        self.topology = plan.topology
        self.meeting = plan.catalogue.of_meeting
        chosen = [c for i, c in plan.catalogue.checks.items() if i in plan.selected]
        # what may take longest begins first
        self.waiting = sorted(chosen, key=lambda c: -c.check.budget)
        self.calls: dict[str, dict[str, Call]] = {}
        self.owed: dict[str, dict[str, None]] = {}
        """check -> the keys of what other agents have still to say of it."""
        self._patience: dict[str, float] = {}
        """check -> when that is given up (monotonic)."""
        self._standings: dict[str, Standing] = {}
        self.began = time.monotonic()
        self._encoded = encode(plan.topology)

    @property
    def node(self) -> Node:
        """This agent's own node, as it is called in the report, with the ranks that it owns."""
        return self.plan.topology.nodes[0]

    def observe(self) -> Outcome:
        """Run everything; returns early, with what there is, at the deadline or on a signal. As a
        guest: until the host of the meeting says that it is over."""
        self._observe()
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    def forget(self) -> None:
        """All has been observed: what it took to know what comes next may go. Of a hundred thousand
        ranks that is as much as is kept of them."""
        self._standings.clear()
        self.owed.clear()

    def _observe(self) -> None:
        for check_id, why in self.plan.catalogue.broken.items():
            if check_id in self.plan.selected:
                missing = Missing(Cause.CRASHED, f"could not be loaded: {why}")
                self.outcome.checks[check_id] = {self.node.name: missing}
        if any(c.check.torch and not self.plan.selected[c.id] for c in self.waiting):
            open_torch(self.workers, self.plan.python)
        open_light(self.workers)
        self._open_preloads()
        while not self._finished():
            until = self.began + self.plan.deadline
            if self.company is not None:
                until += self.company.seconds_more
            if self.interrupted() or time.monotonic() >= until:
                self._give_up()
                break
            self._meet()
            self._start_what_may()
            pause = TICK if self.company is None else max(TICK, self.company.pause)
            tick = min(until, time.monotonic() + pause)
            for call in self.workers.run(tick, wake=lambda: bool(self.interrupted())):
                self._ended(call)
                self._start_what_may()
            self.watch(self._whole_progress)
        self.outcome.interrupted = self.interrupted()

    def _finished(self) -> bool:
        company = self.company
        if company is not None and company.attending is not None and not company.gone:
            return company.over is not None
        return not (self.waiting or self.calls or self.owed)

    # --- the others ---

    def _meet(self) -> None:
        """Let the meeting happen, and take what came of it."""
        company = self.company
        if company is None:
            return
        if not self._unfinished(Stage.MACHINE):
            company.finished(Stage.MACHINE)
        if company.wants_port() and not self._port_is_held():
            company.open()
        before = company.nodes
        company.tend(self._mark())
        if company.nodes is not before:
            self._placed(company)
        for one in company.take():
            self._take(one.check, one.key, one.observation)
        self._give_up_others(company)
        if company.gone:
            self._settle_without_meeting()
        for check_id in company.called:
            if check_id not in self.plan.selected and check_id not in self.outcome.checks:
                self._leave_out(check_id)

    def _give_up_others(self, company: Company) -> None:
        """What is owed by an agent that is gone, or that has taken too long."""
        now, lost = time.monotonic(), company.lost
        for check_id, keys in list(self.owed.items()):
            for key in [key for key in lost if key in keys]:
                self._take(check_id, key, Missing(Cause.BLOCKED, lost[key], by=self.meeting))
            for key in list(keys) if now >= self._patience[check_id] else ():
                why = "its agent has given no answer"
                self._take(check_id, key, Missing(Cause.TIMED_OUT, why))

    def _leave_out(self, check_id: str) -> None:
        """The host runs what was not chosen here: it must not wait for this agent."""
        loaded = self.plan.catalogue.checks.get(check_id)
        if loaded is not None:
            self._settle(loaded, Missing(Cause.SKIPPED, "not chosen on this node"))
        self.outcome.checks.setdefault(check_id, {})

    def _placed(self, company: Company) -> None:
        """Everybody has a seat: nodes are called by the names that they have in the report."""
        old, ranks = self.node, company.ranks
        top = company.placed(self.plan.topology)
        if not company.gone:
            top = with_numbers(top)
        self.topology = top
        own = top.nodes[company.number if company.decides else 0]
        mine = replace(own, ranks=ranks, size=max(old.size, len(own.ranks)))
        self.plan = replace(self.plan, topology=replace(top, nodes=(mine,)))
        self._encoded = encode(self.plan.topology)
        if (own.name, ranks) == (old.name, old.ranks):
            return
        self._standings.clear()
        names = {old.name: own.name} | {
            key_of(old.name, was): key_of(own.name, now)
            for was, now in zip(old.ranks, ranks, strict=True)
        }
        for check_id, seen in self.outcome.checks.items():
            # at once: the ranks before and after may overlap
            self.outcome.checks[check_id] = {names.get(key, key): o for key, o in seen.items()}
        for check_id, calls in self.calls.items():
            for key, call in calls.items():
                call.label = names.get(key, key)
            self.calls[check_id] = {call.label: call for call in calls.values()}

    def _take(self, check_id: str, key: str, observation: Observation) -> None:
        """An observation of another agent. The first one counts."""
        if check_id in self.plan.catalogue.checks:
            self.outcome.checks.setdefault(check_id, {}).setdefault(key, observation)
            self._standings.pop(check_id, None)
        keys = self.owed.get(check_id, {})
        keys.pop(key, None)
        if check_id in self.owed and not keys:
            del self.owed[check_id]

    def _settle_without_meeting(self) -> None:
        """This agent is on its own: it says how that came, and runs nothing that needs others."""
        blocked = Missing(Cause.BLOCKED, by=self.meeting)
        for loaded in list(self.waiting):
            if loaded.check.stage not in LOCAL and loaded.id != self.meeting:
                self.waiting.remove(loaded)
                self._settle(loaded, blocked)

    def _mark(self) -> str:
        """What this agent is at, for those who wait for it."""
        progress = self._progress()
        return f"{progress.check}: {progress.waiting_for}".strip(": ")[:200]

    def _open_preloads(self) -> None:
        for loaded in self.waiting:
            preload, name = loaded.check.preload, server_of(loaded.check)
            if preload and not self.plan.selected[loaded.id] and not self.workers.opened(name):
                self.workers.open(name, preload=preload, parent=TORCH, seconds=TORCH_SECONDS)

    # --- what may start ---

    def _start_what_may(self) -> None:
        """Start each waiting check whose stage has come and whose needs are done. What is blocked
        ends at once and may free others, hence the loop."""
        progress = True
        while progress:
            progress = False
            for loaded in list(self.waiting):
                if self._due(loaded) and self._start(loaded):
                    self.waiting.remove(loaded)
                    progress = True

    def _unfinished(self, stage: Stage) -> bool:
        """Whether anything of a stage, or of one before it, is still to be done."""
        stages = tuple(Stage)
        ids = [*self.calls, *self.owed, *(c.id for c in self.waiting)]
        checks = (self.plan.catalogue.checks[i].check for i in ids)
        return any(stages.index(c.stage) <= stages.index(stage) for c in checks)

    def _due(self, loaded: Loaded) -> bool:
        """Whether its stage has come and its needs are done. After the machine stage that is the
        host's to say."""
        check, company = loaded.check, self.company
        if company is not None and check.stage not in LOCAL and not company.gone:
            if not company.decides:
                return loaded.id in company.called
            if not company.assembled:
                return False
        stages = tuple(Stage)
        before = () if check.stage in LOCAL else stages[: stages.index(check.stage)]
        if before and self._unfinished(before[-1]):
            return False
        if check.stage not in LOCAL and loaded.id != self.meeting and self._meeting_is_open():
            return False
        unfinished = {*self.calls, *self.owed, *(w.id for w in self.waiting)}
        return not any(need in unfinished for need in check.needs)

    def _meeting_is_open(self) -> bool:
        """Who is there is the first thing to know of the meeting: nothing is begun beside it."""
        open_ids = {*self.calls, *self.owed, *(w.id for w in self.waiting)}
        return self.company is not None and self.meeting in open_ids

    def _port_is_held(self) -> bool:
        """Whether a check of this agent has yet to be done with MASTER_PORT."""
        running = [self.plan.catalogue.checks[i] for i in self.calls]
        return any(loaded.check.holds_port for loaded in (*running, *self.waiting))

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
            missing = without_torch(loaded, preloaded, self.plan.catalogue.of_torch)
        if missing is not None:
            self._settle(loaded, missing)
            return True
        self.outcome.checks.setdefault(loaded.id, {})
        if self._shared(loaded):
            assert self.company is not None
            seconds = self.plan.budgets.get(loaded.id, loaded.check.budget)
            due = time.monotonic() + seconds + REMOTE_GRACE
            if keys := self.company.keys(loaded):
                self.owed[loaded.id] = dict.fromkeys(keys)
                self._patience[loaded.id] = due
            self.company.start(loaded)
        if calls := {key: self._ask(loaded, rank) for key, rank in self._subjects(loaded)}:
            self.calls[loaded.id] = calls
        return True

    def _shared(self, loaded: Loaded) -> bool:
        """Whether this agent has to start it on the others, too."""
        company = self.company
        return company is not None and company.decides and loaded.check.stage not in LOCAL

    def _subjects(self, loaded: Loaded) -> list[tuple[str, int | None]]:
        """What this agent observes of a check: one key a rank, or one for its node if it speaks for
        that."""
        if loaded.check.scope in (Scope.NODE, Scope.PAIR):
            silent = self.company is not None and not self.company.voice
            return [] if silent else [(self.node.name, None)]
        return [(key_of(self.node.name, rank), rank) for rank in self.node.ranks]

    def _settle(self, loaded: Loaded, missing: Missing) -> None:
        """A check that is not run: nowhere, where that is for this agent to say."""
        keys = [key for key, _ in self._subjects(loaded)]
        if self._shared(loaded) and self.company is not None:
            keys += self.company.keys(loaded)
        for key in keys:
            self._note(loaded.id, key, missing)

    def _note(self, check_id: str, key: str, observation: Observation) -> None:
        """This agent's own observation."""
        self.outcome.checks.setdefault(check_id, {})[key] = observation
        self._standings.pop(check_id, None)
        if self.company is not None:
            self.company.observed(check_id, key, observation)

    def _standing(self, check_id: str) -> Standing:
        """What a check says by now."""
        if check_id not in self._standings:
            seen = self.outcome.checks.get(check_id, {})
            judged = self.passed(check_id, seen, self.topology) if seen else Standing({})
            self._standings[check_id] = judged
        return self._standings[check_id]

    def _blocked(self, loaded: Loaded) -> Missing | None:
        """Why a check can't be run: a need failed, or has nothing to look at here. One that is
        undecided doesn't block: this check brings evidence of its own."""
        company = self.company
        if company is None and loaded.check.requires & {Requirement.PEERS}:
            return Missing(Cause.NOT_APPLICABLE, "single node, not needed")
        others = self.plan.topology.size - len(self.node.ranks)
        if company is None and loaded.check.scope is Scope.WORLD and others > 0:
            detail = f"not run at --level quick (needs {plural(others, 'rank')} of other processes)"
            return Missing(Cause.SKIPPED, detail)
        if self._shared(loaded) and company is not None and loaded.id != self.meeting:
            alone = Requirement.PEERS in loaded.check.requires and len(company.nodes) < 2
            world = loaded.check.scope is Scope.WORLD
            if company.lost or (world and not company.whole):
                return Missing(Cause.BLOCKED, by=self.meeting)
            if loaded.check.scope is Scope.PAIR and alone:
                if not company.whole:
                    return Missing(Cause.BLOCKED, by=self.meeting)
                return Missing(Cause.NOT_APPLICABLE, "all ranks are on one node")
        guest = company is not None and not company.decides and not company.gone
        if guest and loaded.check.stage not in LOCAL:
            return None  # the host has said that it is to be run
        for need in loaded.check.needs:
            if any(s is Status.FAIL for s in self._standing(need).by_subject.values()):
                return Missing(Cause.BLOCKED, by=need)
            for observation in self.outcome.checks.get(need, {}).values():
                if isinstance(observation, Missing):
                    if observation.cause is Cause.BLOCKED:
                        return observation
                    # where there are no other nodes, nothing about them can be in the way
                    needed = self.plan.catalogue.checks.get(need)  # none: its file is broken
                    alone = needed is not None and Requirement.PEERS in needed.check.requires
                    if observation.cause is Cause.NOT_APPLICABLE and not alone:
                        return Missing(Cause.NOT_APPLICABLE, observation.detail)
        return None

    # --- calls ---

    def _ask(self, loaded: Loaded, rank: int | None) -> Call:
        company = self.company
        check = loaded.check
        roll = None
        if company is not None and (check.scope, check.stage) == (Scope.NODE, Stage.MEETING):
            roll = encode(company.roll)
        place = self._place(loaded)
        ip = company.roll.master_ip if company is not None else ""
        return ask(self.workers, self.plan, self._encoded, loaded, rank, place, roll, ip)

    def _place(self, loaded: Loaded) -> Place:
        company, node = self.company, self.node
        if company is None or loaded.check.stage in LOCAL or not company.nodes:
            return Place(node.name, node.ranks, len(node.ranks))
        here = company.nodes[company.number if company.decides else 0]
        seat = company.attending.seat if company.attending is not None else None
        nodes = seat.nodes if seat is not None else len(company.nodes)
        return Place(node.name, here.ranks, self.plan.topology.size, company.number, nodes)

    def _ended(self, call: Call) -> None:
        loaded = self.plan.catalogue.checks.get(call.group)
        if loaded is None or call.group not in self.calls:
            return
        self._note(call.group, call.label, observation_of(call))
        seen, calls = self.outcome.checks[call.group], self.calls[call.group]
        # by what has come out of the workers: several calls may have ended by now
        if all(key in seen for key in calls):
            others = {k: o for k, o in seen.items() if k not in calls}
            self.outcome.checks[call.group] = {key: seen[key] for key in calls} | others
            del self.calls[call.group]

    def _give_up(self) -> None:
        """The deadline or a signal: end what runs, and say of the rest that it was not run."""
        why = f"interrupted by {self.interrupted()}"
        if not self.interrupted():
            why = f"the run's deadline of {self.plan.deadline:g} s was over"
        for check_id, calls in self.calls.items():
            for key, call in calls.items():
                if key not in self.outcome.checks.get(check_id, {}):
                    ended = time.monotonic() - call.began if call.began else 0.0
                    missing = Missing(Cause.INTERRUPTED, why, ended, tuple(call.marks))
                    self._note(check_id, key, missing)
        for check_id, keys in list(self.owed.items()):
            for key in list(keys):
                self._take(check_id, key, Missing(Cause.INTERRUPTED, why))
        for loaded in self.waiting:
            self._settle(loaded, Missing(Cause.SKIPPED, f"not started: {why}"))
        self.calls, self.waiting, self.owed = {}, [], {}

    def _progress(self) -> Progress:
        total = len(self.plan.selected)
        now = time.monotonic()
        running = [
            (c, check_id)
            for check_id, calls in self.calls.items()
            for c in calls.values()
            if c.result is None and c.pid
        ]
        if not running and self.company is not None:
            told, since, limit = self.company.progress
            if told:
                done = total - len(self.waiting) - len(self.calls)
                return Progress(done, total, now - self.began, self.meeting, since, limit, told)
        if not running:
            done = total - len(self.waiting) - len(self.calls)
            name, since, limit = self._import_awaited()
            return Progress(
                done,
                total,
                now - self.began,
                running_for=now - since if limit else 0.0,
                limit=limit,
                waiting_for=f"import {name}" if name else "",
            )
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

    def _import_awaited(self) -> tuple[str, float, float]:
        """What a fork server is importing while nothing else runs, since when (monotonic) and for
        how long at most; empty where none is awaited."""
        servers = {c.server for calls in self.calls.values() for c in calls.values()} - {LIGHT}
        if any(c.check.torch for c in self.waiting):
            servers.add(TORCH)
        times = {name: self.workers.importing(name) for name in sorted(servers)}
        awaited = {name: at for name, at in times.items() if at is not None}
        first = min(awaited.values(), default=(0.0, 0.0))
        return ", ".join(awaited), *first

    def _whole_progress(self) -> Progress:
        """With what is known of each check by now."""
        company, node = self.company, self.node
        return replace(
            self._progress(),
            rows=tuple(self._rows()),
            leads=company is None or bool(company.gone) or company.decides or 0 in node.ranks,
            speaks=company is None or company.voice,
        )

    def _rows(self) -> Iterator[CheckProgress]:
        now = time.monotonic()
        unfinished = {*self.owed, *(c.id for c in self.waiting)}
        for loaded in self.plan.catalogue:
            if self.plan.selected.get(loaded.id, "not chosen"):
                continue
            stage = loaded.check.stage.value
            running = [c for c in self.calls.get(loaded.id, {}).values() if c.pid and not c.result]
            if running:
                first = min(running, key=lambda call: call.began)
                yield CheckProgress(loaded.id, stage, None, now - first.began, first.seconds)
            elif loaded.id in unfinished or loaded.id in self.calls:
                yield CheckProgress(loaded.id, stage)
            else:
                seen = self.outcome.checks.get(loaded.id, {})
                seconds = max((o.seconds for o in seen.values()), default=0.0)
                standing = self._standing(loaded.id)
                by_subject = standing.by_subject.values()
                status = max(by_subject, key=lambda s: WEIGHT[s], default=Status.SKIP)
                yield CheckProgress(loaded.id, stage, status, seconds, headline=standing.headline)
