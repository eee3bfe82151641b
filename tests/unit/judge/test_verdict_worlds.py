"""judge.verdict: what must hold of the report of any world, whatever its checks say."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.scripted_checks import NODE, SEEN, Script, catalogue, observed, topology

from preflight.check import Check, Scope, Stage
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.judge.policy import Policy, Waiver
from preflight.judge.verdict import BY_USER, EXIT
from preflight.model import (
    Blame,
    Cause,
    Confidence,
    Finding,
    Kind,
    Missing,
    Report,
    Status,
    Subject,
    Verdict,
)
from preflight.registry import Catalogue
from preflight.render import json as as_json

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED

BY_WISH = Missing(Cause.SKIPPED, "skipped by you (--skip)", by=BY_USER)
NO_TORCH = Missing(Cause.SKIPPED, "torch is not installed here")
BLOCKED = Missing(Cause.BLOCKED, by="a.a")
NOT_HERE = Missing(Cause.NOT_APPLICABLE, "no GPU here")
ABSENT = Missing(Cause.NOT_ARRIVED, "never connected")
HUNG = Missing(Cause.TIMED_OUT, "no answer in 5.0 s, killed", 5.0)
CUT = Missing(Cause.INTERRUPTED, "interrupted by SIGINT", 1.0)

NAMES = ("a.a", "a.b", "b.a", "c.c")
STATUSES = st.sampled_from([FAIL, WARN, UNDECIDED])
SUBJECTS = st.sampled_from(
    [
        NODE,
        Subject(Kind.NODE, "n2", ranks=(2, 3)),
        Subject(Kind.JOB),
        Subject(Kind.RANK, "n1", "0", ranks=(0,)),
        Subject(Kind.RANK, "n2", "3", ranks=(3,)),
        Subject(Kind.LINK, "n1", to="n2"),
        Subject(Kind.NODE, "n9"),
    ]
)
FINDINGS = st.builds(
    Finding,
    code=st.sampled_from(["bad", "no-such-code"]),
    status=STATUSES,
    subjects=st.lists(SUBJECTS, min_size=1, max_size=3).map(tuple),
    saw=st.sampled_from(["saw", "other"]),
    blame=st.sampled_from(Blame),
    confidence=st.sampled_from(Confidence),
    explains=st.lists(st.sampled_from([*NAMES, "a", "*"]), max_size=2).map(tuple),
)
OBSERVATIONS = st.sampled_from(
    [SEEN, SEEN, SEEN, NOT_HERE, BY_WISH, NO_TORCH, BLOCKED, HUNG, CUT, ABSENT]
)
KEYS = ("n1", "n2"), ("n1/0", "n1/1", "n2/2", "n2/3")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Any], Catalogue, Policy, list[Finding]]:
    """Observations, checks that say what they like of them, and how strict to be."""
    checks: dict[str, Any] = {}
    scripts: dict[str, Script] = {}
    said = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        keys = draw(st.sampled_from(KEYS))
        checks[name] = {key: draw(OBSERVATIONS) for key in keys}
        findings = draw(st.lists(FINDINGS, max_size=3))
        said += [f.with_(check=name) for f in findings]
        check = Check(
            draw(st.sampled_from(Scope)), Stage.MACHINE, 1.0, required=draw(st.booleans())
        )
        scripts[name.replace(".", "_")] = Script(lambda w, found=findings: found, CHECK=check)  # type: ignore[misc]
    waivers = tuple(
        Waiver(pattern, "why", until)
        for pattern in draw(st.lists(st.sampled_from([*NAMES, "a"]), max_size=2))
        for until in (draw(st.sampled_from(["", "2020-01-01", "2030-01-01"])),)
    )
    policy = Policy(draw(st.booleans()), waivers, "2026-05-01")
    return checks, catalogue(**scripts), policy, said


def judge_world(world: Any) -> Report:
    checks, known, policy, _ = world
    return verdict.judge(observed(checks, topology("n1", "n2", ranks=2)), known, Expect(), policy)


@given(worlds())
def test_no_failure_is_lost(world: Any) -> None:
    report = judge_world(world)
    for lost in world[3]:
        if lost.status is not FAIL:
            continue
        under = [f for f in report.findings if lost.check in (f.check, *f.folded)]
        if lost.check in report.tolerated:
            assert under
        else:
            assert any(f.status is FAIL for f in under)
            assert report.verdict is Verdict.NOT_READY


@given(worlds())
def test_the_exit_code_is_a_function_of_the_report(world: Any) -> None:
    report = judge_world(world)
    policy = world[2]
    statuses = {s for row in report.rows for s in (row.status, *row.by_subject.values())}
    assert report.exit_code == EXIT[report.verdict]
    if FAIL in statuses:
        assert report.verdict is Verdict.NOT_READY
    elif report.verdict is Verdict.NOT_READY:
        assert policy.strict
        assert any(f.status is WARN or f.folded for f in report.findings)
    elif Status.MISSING in statuses:
        assert report.verdict is Verdict.INCOMPLETE
    elif report.verdict is Verdict.READY:
        assert statuses & {Status.PASS, WARN}
        assert not any(UNDECIDED in row.by_subject.values() for row in report.rows if row.required)
    else:
        assert report.verdict is Verdict.UNDECIDED


@given(worlds())
def test_judging_again_says_the_same(world: Any) -> None:
    _, known, policy, _ = world
    report = judge_world(world)
    assert judge_world(world) == report
    saved = as_json.parse(as_json.render(report))
    assert verdict.judge(saved.observations, known, Expect(), policy) == report
    assert json.loads(as_json.render(saved)) == json.loads(as_json.render(report))


@given(worlds())
def test_only_nodes_that_a_failure_blames_are_left_out(world: Any) -> None:
    report = judge_world(world)
    blaming = [
        f
        for f in report.findings
        if f.status is FAIL and f.blame is Blame.NODE and f.confidence is not Confidence.POSSIBLE
    ]
    # one that says the same of several nodes was several: each had its own first subject
    assert {f.subjects[0].node for f in blaming} - {""} <= set(report.exclude)
    assert set(report.exclude) <= {s.node for f in blaming for s in f.subjects}
    if report.verdict is not Verdict.NOT_READY:
        assert report.exclude == ()
