"""Stages, needs and budgets with real workers; what every way of ending amounts to."""

from __future__ import annotations

import itertools
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from preflight import registry
from preflight.check import Requirement
from preflight.engine.dispatch import observation_of, without_torch
from preflight.engine.plan import Outcome, Plan, Progress
from preflight.engine.scheduler import Passed, Run
from preflight.model import (
    Cause,
    LeftBehind,
    Mark,
    Missing,
    Node,
    Observation,
    Seen,
    Standing,
    Status,
    Topology,
)
from preflight.process.call import Call
from preflight.process.pool import Died, Raised, Returned, TimedOut, Workers
from preflight.process.servers import LIGHT, TORCH, TORCH_MODULES
from preflight.registry import Catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return registry.load()


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    made.open(LIGHT)  # not a fork of this process: pytest may have threads
    yield made
    made.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def topology(ranks: int = 2, size: int = 0) -> Topology:
    node = Node("n1", tuple(range(ranks)))
    return Topology(
        size=size or ranks, nodes=(node,), master_addr="127.0.0.1", master_port=free_port()
    )


def evidence(check_id: str, seen: Mapping[str, Observation], top: Topology) -> Standing:
    """The rule of these tests: what was seen has passed."""
    passed = {k: Status.PASS if isinstance(o, Seen) else Status.SKIP for k, o in seen.items()}
    return Standing(passed)


def failing(*ids: str) -> Passed:
    return lambda i, seen, top: (
        Standing(dict.fromkeys(seen, Status.FAIL), f"{i} is broken")
        if i in ids
        else evidence(i, seen, top)
    )


def observe(
    catalogue: Catalogue, workers: Workers, *ids: str, **more: Any
) -> tuple[Outcome, list[Progress]]:
    """Run these checks; a dict instead of an id says why one is left out."""
    selected = more.pop("selected", None) or dict.fromkeys(ids, "")
    passed = more.pop("passed", evidence)
    interrupted = more.pop("interrupted", lambda: "")
    values: dict[str, Any] = {"topology": topology(), "deadline": 30.0} | more
    plan = Plan(catalogue=catalogue, selected=selected, **values)
    seen: list[Progress] = []

    def watch(progress: Callable[[], Progress]) -> None:
        seen.append(progress())

    return Run(plan, workers, passed, watch, interrupted).observe(), seen


def missing(outcome: Outcome, check_id: str) -> Missing:
    """Why a check that was not run on any subject was not."""
    (found, *others) = outcome.checks[check_id].values()
    assert isinstance(found, Missing)
    assert all(o == found for o in others)
    return found


# --- what is observed ---


def test_each_subject_is_observed_once(catalogue: Catalogue, workers: Workers) -> None:
    outcome, _ = observe(catalogue, workers, "host.limits", "env.identity")
    assert set(outcome.checks["host.limits"]) == {"n1"}
    assert list(outcome.checks["env.identity"]) == ["n1/0", "n1/1"], "in the order of the ranks"
    for by_key in outcome.checks.values():
        assert all(isinstance(o, Seen) for o in by_key.values())
    assert outcome.interrupted == ""
    assert 0 < outcome.seconds < 10


def test_what_the_user_leaves_out_is_not_run(catalogue: Catalogue, workers: Workers) -> None:
    selected = {"host.limits": "skipped by you (--skip)", "host.cpu": ""}
    outcome, _ = observe(catalogue, workers, selected=selected)
    assert missing(outcome, "host.limits") == Missing(
        Cause.SKIPPED, "skipped by you (--skip)", by="user"
    )
    assert isinstance(outcome.checks["host.cpu"]["n1"], Seen)


def test_what_could_not_be_loaded_is_there(catalogue: Catalogue, workers: Workers) -> None:
    broken = Catalogue(catalogue.checks, {"bad.one": "SyntaxError"})
    outcome, _ = observe(broken, workers, "host.limits", "bad.one")
    assert missing(outcome, "bad.one").detail == "could not be loaded: SyntaxError"
    assert isinstance(outcome.checks["host.limits"]["n1"], Seen)
    outcome, _ = observe(broken, workers, "host.limits")
    assert "bad.one" not in outcome.checks


def test_nothing_to_do_ends_at_once(catalogue: Catalogue, workers: Workers) -> None:
    outcome, _ = observe(catalogue, workers)
    assert outcome.checks == {}
    assert outcome.seconds < 1


# --- needs ---


def test_a_failed_need_blocks_and_names_itself(catalogue: Catalogue, workers: Workers) -> None:
    ids = ("env.identity", "net.port", "rdzv.store", "world.gloo", "world.ddp")
    outcome, told = observe(catalogue, workers, *ids, passed=failing("net.port"))
    (port,) = (row for row in told[-1].rows if row.check == "net.port")
    assert port.headline == "net.port is broken", "who watches can act on it now"
    for check_id in ("rdzv.store", "world.gloo", "world.ddp"):
        assert missing(outcome, check_id) == Missing(Cause.BLOCKED, by="net.port"), "the root of it"
        assert list(outcome.checks[check_id]) == ["n1/0", "n1/1"]
    assert outcome.seconds < 5, "torch is not waited for"


def test_an_undecided_need_does_not_block(catalogue: Catalogue, workers: Workers) -> None:
    def unsure(check_id: str, seen: Mapping[str, Observation], top: Topology) -> Standing:
        return Standing(dict.fromkeys(seen, Status.UNDECIDED))

    ids = [i for i, c in catalogue.checks.items() if not c.check.torch]
    outcome, _ = observe(catalogue, workers, *ids, passed=unsure)
    for by_key in outcome.checks.values():
        for observation in by_key.values():
            assert not (isinstance(observation, Missing) and observation.cause is Cause.BLOCKED)


def test_ranks_of_other_processes_are_not_met(catalogue: Catalogue, workers: Workers) -> None:
    top = topology(ranks=1, size=4)
    outcome, _ = observe(catalogue, workers, "rdzv.store", topology=top)
    found = missing(outcome, "rdzv.store")
    assert found.cause is Cause.SKIPPED
    assert found.by == "", "nobody has asked for it, so nobody may take it for READY"
    assert found.detail.startswith("not run at --level quick (needs 3 ranks of other processes)")


# --- time ---


def test_the_deadline_of_the_run(catalogue: Catalogue, workers: Workers) -> None:
    began = time.monotonic()
    everything = list(catalogue.checks)
    outcome, _ = observe(catalogue, workers, *everything, deadline=0.005)
    assert time.monotonic() - began < 3
    assert set(outcome.checks) == set(everything)
    causes = {
        o.cause
        for by_key in outcome.checks.values()
        for o in by_key.values()
        if isinstance(o, Missing)
    }
    assert causes <= {Cause.INTERRUPTED, Cause.SKIPPED}
    assert missing(outcome, "world.gloo").detail == (
        "not started: the run's deadline of 0.005 s was over"
    )
    assert outcome.interrupted == ""


def test_a_signal_before_the_start(catalogue: Catalogue, workers: Workers) -> None:
    outcome, _ = observe(catalogue, workers, "host.limits", interrupted=lambda: "SIGTERM")
    assert missing(outcome, "host.limits") == Missing(
        Cause.SKIPPED, "not started: interrupted by SIGTERM"
    )
    assert outcome.interrupted == "SIGTERM"


def test_a_signal_in_the_middle(catalogue: Catalogue, workers: Workers) -> None:
    """As soon as something has been asked for."""
    light = [i for i, c in catalogue.checks.items() if not c.check.torch]
    asked = iter([""] * 2)
    outcome, _ = observe(catalogue, workers, *light, interrupted=lambda: next(asked, "SIGINT"))
    found = [o for by_key in outcome.checks.values() for o in by_key.values()]
    cut = [o for o in found if isinstance(o, Missing) and o.cause is Cause.INTERRUPTED]
    assert cut
    assert {o.detail for o in cut} == {"interrupted by SIGINT"}
    assert outcome.interrupted == "SIGINT"


def test_progress_names_what_is_waited_for(catalogue: Catalogue, workers: Workers) -> None:
    light = [i for i, c in catalogue.checks.items() if not c.check.torch]
    _, seen = observe(catalogue, workers, *light)
    assert {p.total for p in seen} == {len(light)}
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    named = [p for p in seen if p.check]
    for progress in named:
        assert progress.check in light
        assert progress.limit == catalogue.checks[progress.check].check.budget
        assert progress.waiting_for.startswith("n1")
    assert all({row.check for row in p.rows} == set(light) for p in seen)
    for before, after in itertools.pairwise(seen):
        done = {row.check for row in before.rows if row.status is not None}
        assert done <= {row.check for row in after.rows if row.status is not None}
    running = {row.check for p in seen for row in p.rows if row.limit}
    assert {p.check for p in named} <= running
    assert all(p.leads and p.speaks for p in seen)


# --- torch ---


def test_a_lost_import_of_torch(catalogue: Catalogue, workers: Workers) -> None:
    """Its server dies at once: what needs torch is blocked, what reports on it says so."""
    workers.open(TORCH, preload=("no_such_module_at_all",), seconds=0.0)
    outcome, _ = observe(catalogue, workers, "host.software", "rdzv.store")
    assert missing(outcome, "rdzv.store") == Missing(Cause.BLOCKED, by="host.software")
    found = missing(outcome, "host.software")
    assert found.cause is Cause.TIMED_OUT
    assert found.last_mark == "import torch"


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.3.1+cu121", "torch 2.3.1+cu121 is too old"),
        ("2.4.0a0+git", ""),
        ("2.15.0", ""),
        ("", ""),
    ],
)
def test_a_torch_that_is_too_old(catalogue: Catalogue, version: str, why: str) -> None:
    """What needs torch is not run, what reports on it is."""
    imported = {"seconds": 1.0, "error": "", "absent": False, "version": version}
    preloaded = dict.fromkeys(TORCH_MODULES, imported)
    blocked = Missing(Cause.BLOCKED, why, by="host.software") if why else None
    of_torch = catalogue.of_torch
    assert without_torch(catalogue.checks["world.gloo"], preloaded, of_torch) == blocked
    assert without_torch(catalogue.checks["host.software"], preloaded, of_torch) is None


@pytest.mark.parametrize("note", ["", "root runs no Python that is only on PATH: --python /x"])
def test_no_torch(catalogue: Catalogue, note: str) -> None:
    nowhere = {"seconds": 0.0, "error": "…", "absent": True, "version": "", "note": note}
    preloaded = dict.fromkeys(TORCH_MODULES, nowhere)
    skipped = without_torch(catalogue.checks["world.gloo"], preloaded, catalogue.of_torch)
    assert skipped is not None
    assert skipped.detail == "torch is not installed here" + (f": {note}" if note else "")


@pytest.mark.torch
def test_ranks_meet_in_forks_of_one_import(catalogue: Catalogue, workers: Workers) -> None:
    outcome, _ = observe(catalogue, workers, "env.identity", "net.port", "rdzv.store")
    assert all(isinstance(o, Seen) for o in outcome.checks["rdzv.store"].values())
    assert len(outcome.checks["rdzv.store"]) == 2


def test_torch_is_not_begun_where_nothing_needs_it(catalogue: Catalogue, workers: Workers) -> None:
    observe(catalogue, workers, "host.limits")
    assert not workers.opened(TORCH)
    needing = [i for i, c in catalogue.checks.items() if Requirement.TORCH in c.check.requires]
    observe(catalogue, workers, selected=dict.fromkeys(needing, "skipped by you"))
    assert not workers.opened(TORCH)


# --- results ---

MARKS = (Mark("began", 0.1),)


def call(result: Any, seconds: float = 5.0) -> Call:
    made = Call(1, "light", "label", {}, seconds)
    made.result = result
    return made


@pytest.mark.parametrize(
    ("result", "cause", "detail"),
    [
        (TimedOut(5.3, MARKS), Cause.TIMED_OUT, "no answer in 5.0 s, killed"),
        (TimedOut(5.3, MARKS, "stack\n"), Cause.TIMED_OUT, "stack\nno answer in 5.0 s, killed"),
        (
            TimedOut(6.3, MARKS, "", LeftBehind(7, "D", "nfs_wait")),
            Cause.UNKILLABLE,
            "pid 7 can't be killed: state D, in nfs_wait; left behind",
        ),
        (
            TimedOut(6.3, MARKS, "", LeftBehind(7, "D")),
            Cause.UNKILLABLE,
            "pid 7 can't be killed: state D; left behind",
        ),
        (
            TimedOut(20.0, MARKS, "", None, 11.0),
            Cause.CANNOT_OBSERVE,
            "it got too little CPU time: it waited for a CPU for 11.0 of its 20.0 s",
        ),
        (
            TimedOut(6.3, MARKS, "", LeftBehind(7, "D", "unlink_file_vma"), 4.0),
            Cause.CANNOT_OBSERVE,
            "it got too little CPU time: it waited for a CPU for 4.0 of its 6.3 s; pid 7 was "
            "killed, and has not ended yet",
        ),
        (
            TimedOut(6.3, MARKS, "", LeftBehind(7, "R")),
            Cause.CANNOT_OBSERVE,
            "it got too little CPU time; pid 7 was killed, and has not ended yet",
        ),
        (TimedOut(5.3, MARKS, "", None, 2.0), Cause.TIMED_OUT, "no answer in 5.0 s, killed"),
        (Raised("CannotObserve", "no", "t", 1.0, MARKS), Cause.CANNOT_OBSERVE, "no"),
        (Raised("NotApplicable", "no", "t", 1.0, MARKS), Cause.NOT_APPLICABLE, "no"),
        (Raised("KeyError", "'x'", "trace\n", 1.0, MARKS), Cause.CRASHED, "trace\nKeyError: 'x'"),
        (Died(-signal.SIGSEGV, 1.0, MARKS), Cause.CRASHED, "killed by SIGSEGV"),
        (Died(-200, 1.0, MARKS), Cause.CRASHED, "killed by signal 200"),
        (Died(3, 1.0, MARKS, "why\n"), Cause.CRASHED, "why\nended with exit code 3 and no answer"),
        (
            Died(None, 1.0, MARKS),
            Cause.CRASHED,
            "the process that should have started it is gone",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_end_amounts_to(result: Any, cause: Cause, detail: str) -> None:
    found = observation_of(call(result))
    assert isinstance(found, Missing)
    assert (found.cause, found.detail) == (cause, detail)
    assert found.marks == MARKS
    assert found.seconds == result.seconds


def test_an_answer() -> None:
    assert observation_of(call(Returned({"a": 1}, 0.12345, MARKS))) == Seen({"a": 1}, 0.1235, MARKS)


@pytest.mark.torch
def test_what_only_others_can_have_does_not_keep_one_agent_from_its_store(
    catalogue: Catalogue, workers: Workers
) -> None:
    ids = ("env.identity", "env.vars", "net.port", "net.mesh", "rdzv.store")
    outcome, _ = observe(catalogue, workers, *ids)
    assert missing(outcome, "net.mesh").cause is Cause.NOT_APPLICABLE
    assert all(isinstance(o, Seen) for o in outcome.checks["rdzv.store"].values())
