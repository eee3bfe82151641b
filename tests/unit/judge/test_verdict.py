"""What was seen becomes a report; the exit code is a function of it, and only evidence
makes READY."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from support.scripted_checks import (
    NODE,
    RANKS,
    SEEN,
    Answer,
    Script,
    judged,
    observed,
    outcome,
    says,
    topology,
)

from preflight.check import Check, Scope, Stage
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.judge.verdict import BY_USER
from preflight.model import (
    Blame,
    Cause,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Missing,
    Seen,
    Status,
    Subject,
    Topology,
    Verdict,
    World,
)
from preflight.registry import Catalogue
from preflight.render import json as as_json

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
OPTIONAL = Check(Scope.NODE, Stage.MACHINE, 1.0, required=False)

BY_WISH = Missing(Cause.SKIPPED, "skipped by you (--skip)", by=BY_USER)
NO_TORCH = Missing(Cause.SKIPPED, "torch is not installed here")
BLOCKED = Missing(Cause.BLOCKED, by="a.a")
NOT_HERE = Missing(Cause.NOT_APPLICABLE, "no GPU here")
ABSENT = Missing(Cause.NOT_ARRIVED, "never connected")
HUNG = Missing(Cause.TIMED_OUT, "no answer in 5.0 s, killed", 5.0)
CUT = Missing(Cause.INTERRUPTED, "interrupted by SIGINT", 1.0)


READY, NOT_READY = ("ready", 0), ("not_ready", 3)
UNSURE, INCOMPLETE = ("undecided", 4), ("incomplete", 5)


# --- what READY needs ---


def test_one_that_looked_and_found_nothing() -> None:
    assert outcome({"a.a": SEEN}, a_a=Script()) == READY


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (NOT_HERE, READY),
        (BY_WISH, READY),
        (NO_TORCH, UNSURE),
        (BLOCKED, UNSURE),
        (HUNG, UNSURE),
        (CUT, UNSURE),
        (Missing(Cause.UNKILLABLE, "pid 7 can't be killed"), UNSURE),
        (Missing(Cause.CRASHED, "RuntimeError"), UNSURE),
        (Missing(Cause.CANNOT_OBSERVE, "no permission"), UNSURE),
        (ABSENT, INCOMPLETE),
    ],
    ids=lambda value: str(getattr(value, "cause", "")),
)
def test_one_that_did_not_look_beside_one_that_did(
    missing: Missing, expected: tuple[str, int]
) -> None:
    scripts = {"a_a": Script(), "b_b": Script()}
    assert outcome({"a.a": SEEN, "b.b": missing}, **scripts) == expected


@pytest.mark.parametrize("missing", [NOT_HERE, BY_WISH, NO_TORCH, HUNG, BLOCKED, CUT])
def test_blindness_alone_is_never_ready(missing: Missing) -> None:
    assert outcome({"a.a": missing}, a_a=Script()) == UNSURE


def test_nothing_at_all_is_never_ready() -> None:
    assert outcome({}) == UNSURE
    assert outcome({"a.a": {}}, a_a=Script()) == UNSURE
    assert outcome({"a.a": SEEN, "b.b": {}}, a_a=Script(), b_b=Script()) == UNSURE


@pytest.mark.parametrize("missing", [HUNG, NO_TORCH, BLOCKED, CUT])
def test_what_is_not_required_may_be_blind(missing: Missing) -> None:
    scripts = {"a_a": Script(), "b_b": Script(CHECK=OPTIONAL)}
    assert outcome({"a.a": SEEN, "b.b": missing}, **scripts) == READY


def test_a_warning_beside_doubt_about_everybody_is_no_evidence() -> None:
    def find(world: World[Answer]) -> Iterator[Found]:
        for status in (WARN, UNDECIDED):
            yield Found("bad", (NODE,), saw="saw", status=status)

    assert outcome({"a.a": SEEN}, a_a=Script(find, CHECK=OPTIONAL)) == UNSURE


def test_what_is_not_required_may_not_fail() -> None:
    scripts = {"a_a": Script(), "b_b": says(FAIL, check=OPTIONAL)}
    assert outcome({"a.a": SEEN, "b.b": SEEN}, **scripts) == NOT_READY


@pytest.mark.parametrize("missing", [HUNG, NO_TORCH, BLOCKED, CUT])
def test_every_rank_has_to_be_looked_at(missing: Missing) -> None:
    top = topology("n1", ranks=2)
    one_warned = says(WARN, Subject(Kind.RANK, "n1", "0", ranks=(0,)), check=RANKS)
    for script in (Script(CHECK=RANKS), one_warned):
        seen = {"a.a": {"n1/0": SEEN, "n1/1": missing}}
        assert outcome(seen, top=top, a_a=script) == UNSURE


def test_an_answer_that_says_itself_that_it_did_not_get_through() -> None:
    stuck = Seen({"value": 1, "trouble": "connection closed"})
    together = Script(CHECK=Check(Scope.WORLD, Stage.TRAINING, 1.0))
    assert outcome({"a.a": SEEN, "b.b": stuck}, a_a=Script(), b_b=together) == UNSURE


def test_a_warning_for_all_does_not_stand_for_the_one_that_is_silent() -> None:
    """A finding about the job touches every rank; it is no evidence of the one that hung."""
    top = topology("n1", ranks=2)
    script = says(WARN, Subject(Kind.JOB), check=RANKS)
    report = judged({"a.a": {"n1/0": SEEN, "n1/1": HUNG}}, top=top, a_a=script)
    assert report.verdict is Verdict.UNDECIDED
    assert [f.code for f in report.findings] == ["no-answer", "bad"]
    assert report.rows[0].by_subject == {"n1/0": WARN, "n1/1": UNDECIDED}


def test_a_check_that_nobody_knows() -> None:
    report = judged({"a.a": SEEN, "old.one": SEEN}, a_a=Script())
    assert (report.verdict, report.exit_code) == (Verdict.UNDECIDED, 4)
    assert report.rows[1].reason == "could not be loaded: this version has no such check"


def test_a_check_that_could_not_be_loaded() -> None:
    crashed = Missing(Cause.CRASHED, "could not be loaded: SyntaxError")
    report = judged({"a.a": SEEN, "b.b": crashed}, broken={"b.b": "SyntaxError"}, a_a=Script())
    (finding,) = report.findings
    assert (finding.code, finding.blame, finding.saw) == ("not-loaded", Blame.TOOL, "SyntaxError")
    assert report.exit_code == 4


# --- precedence ---


def test_failure_before_absence_before_doubt_before_ready() -> None:
    every: dict[str, Any] = {"a.a": SEEN, "b.b": HUNG, "c.c": ABSENT, "d.d": SEEN}
    scripts = {"a_a": Script(), "b_b": Script(), "c_c": Script(), "d_d": says(FAIL)}
    assert outcome(every, **scripts) == NOT_READY
    del every["d.d"]
    assert outcome(every, **scripts) == INCOMPLETE
    del every["c.c"]
    assert outcome(every, **scripts) == UNSURE
    del every["b.b"]
    assert outcome(every, **scripts) == READY


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_run_has_the_signals_code(name: str, code: int) -> None:
    assert outcome({"a.a": SEEN}, interrupted=name, a_a=Script()) == ("ready", code)
    assert outcome({"a.a": SEEN}, interrupted=name, a_a=says(FAIL)) == ("not_ready", code)


def test_a_failure_of_a_subject_that_nobody_observed_counts() -> None:
    """A link to another node, or a judge that names a node by another name."""
    elsewhere = says(FAIL, Subject(Kind.NODE, "n9"))
    report = judged({"a.a": SEEN}, a_a=elsewhere)
    assert report.verdict is Verdict.NOT_READY
    assert report.rows[0].status is FAIL


# --- rows and findings ---


def test_the_heaviest_finding_of_each_subject() -> None:
    top = topology("n1", ranks=3)

    def find(world: World[Answer]) -> Iterator[Found]:
        for rank, status in ((1, WARN), (1, FAIL), (2, WARN)):
            subject = Subject(Kind.RANK, "n1", str(rank), ranks=(rank,))
            yield Found("bad", (subject,), saw="saw", status=status)

    seen = {"a.a": {f"n1/{rank}": SEEN for rank in range(3)}}
    report = judged(seen, top=top, a_a=Script(find, CHECK=RANKS))
    assert report.rows[0].by_subject == {"n1/0": Status.PASS, "n1/1": FAIL, "n1/2": WARN}
    assert report.rows[0].covered == 3


@pytest.mark.parametrize("missing", [HUNG, BLOCKED, ABSENT, CUT])
@pytest.mark.parametrize("status", [None, WARN, FAIL, UNDECIDED])
@pytest.mark.parametrize("about", ["rank 2", "all"])
def test_ranks_that_share_an_observation_are_judged_as_if_each_had_its_own(
    missing: Missing, status: Status | None, about: str
) -> None:
    """Of a hundred thousand ranks that are blocked alike there is one observation."""
    top = topology("n1", ranks=4)
    subject = Subject(Kind.RANK, "n1", "2", ranks=(2,)) if about == "rank 2" else Subject(Kind.JOB)
    script = says(status, subject, check=RANKS) if status else Script(CHECK=RANKS)
    shared = {f"n1/{rank}": missing if rank else SEEN for rank in range(4)}
    own = {key: dataclasses.replace(one) for key, one in shared.items()}
    one, other = (judged({"a.a": seen}, top=top, a_a=script) for seen in (shared, own))
    assert one.rows == other.rows
    assert one.findings == other.findings
    assert len({id(o) for o in own.values()}) == 4


def test_templates_are_filled() -> None:
    command = Command("kill {pid}", "{node}")
    advice = {
        "bad": FindingType(
            who="{who}",
            cause="c",
            means="means {word}",
            now="now {word}",
            text="text",
            commands=(command,),
        )
    }
    fields = {"word": "{braces} stay", "pid": "7"}
    made = Found("bad", (NODE,), saw="saw", fields=fields)
    report = judged({"a.a": SEEN}, a_a=Script(lambda world: (made,), FINDINGS=advice))
    found = report.findings[0].advice
    assert found is not None
    assert (found.means, found.now) == ("means {braces} stay", "now '{braces} stay'")
    assert found.commands == (Command("kill 7", "NODE"),), "what a judge forgot shows"


def test_the_last_line_and_the_last_mark_of_what_hung() -> None:
    from preflight.model import Mark

    hung = Missing(Cause.TIMED_OUT, "stack\nno answer in 5.0 s", 5.0, (Mark("nvmlInit", 0.1),))
    report = judged({"a.a": hung}, a_a=Script())
    assert report.findings[0].saw == 'no answer in 5.0 s · last mark "nvmlInit"'
    assert report.findings[0].confidence is Confidence.POSSIBLE


def test_those_that_are_missing_for_one_reason_are_one_finding() -> None:
    top = topology("n1", ranks=4)
    seen = {"a.a": {f"n1/{n}": HUNG if n else CUT for n in range(4)}}
    report = judged(seen, top=top, a_a=Script(CHECK=RANKS))
    assert sorted((f.code, len(f.subjects)) for f in report.findings) == [
        ("interrupted", 1),
        ("no-answer", 3),
    ]


def test_a_judge_may_say_more_of_what_is_missing() -> None:
    report = judged({"a.a": HUNG}, a_a=says(FAIL, code="driver-hangs"))
    assert [f.code for f in report.findings] == ["driver-hangs"]
    assert report.verdict is Verdict.NOT_READY
    report = judged({"a.a": NOT_HERE}, a_a=says(FAIL))
    assert report.verdict is Verdict.NOT_READY


def test_skipped_by_the_user_is_said() -> None:
    report = judged({"a.a": SEEN, "b.b": BY_WISH}, a_a=Script(), b_b=Script())
    assert report.skipped == ("b.b",)
    assert report.rows[1].reason == "skipped by you (--skip)"
    report = judged({"a.a": SEEN, "b.b": NO_TORCH}, a_a=Script(), b_b=Script())
    assert report.skipped == ()


def test_an_answer_that_does_not_fit_is_ours() -> None:
    report = judged({"a.a": Seen({"value": "text"})}, a_a=Script())
    (finding,) = report.findings
    assert (finding.code, finding.blame) == ("crashed", Blame.TOOL)
    assert report.exit_code == 4


def raises(world: World[Answer]) -> Iterator[Found]:
    yield Found("bad", (NODE,), saw="before it stopped")
    raise KeyError("ours")


@pytest.mark.parametrize(
    "script",
    [
        Script(lambda world: None),  # type: ignore[arg-type, return-value]
        Script(lambda world: [None]),  # type: ignore[list-item]
        Script(lambda world: (Found("bad", (), saw="nobody"),)),
        Script(shows=lambda world: None),
        Script(shows=lambda world: Measured("x", {"a": object()})),
        Script(shows=lambda world: 1 / 0),
    ],
    ids=["none", "no findings", "no subject", "no measure", "not JSON", "raises"],
)
def test_a_judge_that_fails_accuses_nobody(script: Script) -> None:
    report = judged({"a.a": SEEN, "b.b": SEEN}, a_a=script, b_b=Script())
    (finding,) = report.findings
    assert (finding.code, finding.status, finding.blame) == ("unjudged", UNDECIDED, Blame.TOOL)
    assert any("verdict.py:" in line for line in finding.evidence), "the traceback is in the report"
    assert report.exit_code == 4
    assert [row.status for row in report.rows] == [UNDECIDED, Status.PASS], "others are unharmed"
    as_json.render(report)


def test_a_check_that_does_not_load_has_its_traceback_in_the_report() -> None:
    known = Catalogue({}, {"a.a": "NameError: x"}, {"a.a": ("a_a.py:3 in <module>",)})
    (finding,) = verdict.judge(observed({"a.a": SEEN}), known, Expect()).findings
    assert (finding.code, finding.evidence) == ("not-loaded", ("a_a.py:3 in <module>",))


def test_what_was_found_before_a_judge_failed_stays() -> None:
    report = judged({"a.a": SEEN}, a_a=Script(raises))
    assert [f.code for f in report.findings] == ["bad", "unjudged"]
    assert report.verdict is Verdict.NOT_READY


def test_a_code_without_advice_is_shown_all_the_same() -> None:
    report = judged({"a.a": SEEN}, a_a=says(WARN, code="no-such-code"))
    assert report.findings[0].advice is not None
    assert report.findings[0].advice.who == "the authors of preflight"


# --- who is left out ---


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({}, ("n1",)),
        ({"blame": Blame.JOB}, ()),
        ({"blame": Blame.NETWORK}, ()),
        ({"blame": Blame.TOOL}, ()),
        ({"blame": Blame.UNKNOWN}, ()),
        ({"confidence": Confidence.LIKELY}, ("n1",)),
        ({"confidence": Confidence.POSSIBLE}, ()),
    ],
    ids=str,
)
def test_only_a_node_that_is_surely_to_blame(changes: Any, left_out: tuple[str, ...]) -> None:
    script = says(FAIL, **({"blame": Blame.NODE} | changes))
    assert judged({"a.a": SEEN}, a_a=script).exclude == left_out
    script = says(WARN, **({"blame": Blame.NODE} | changes))
    assert judged({"a.a": SEEN}, a_a=script).exclude == ()


def test_the_primary_subject_is_left_out_and_not_its_peers() -> None:
    script = says(FAIL, Subject(Kind.NODE, "n2"), NODE, blame=Blame.NODE)
    assert judged({"a.a": SEEN}, a_a=script).exclude == ("n2",)


def test_a_consequence_leaves_nobody_out() -> None:
    """The cause says who is to blame: here the job."""
    cause = says(FAIL, blame=Blame.JOB, explains=("b.b",))
    effect = says(FAIL, blame=Blame.NODE)
    report = judged({"a.a": SEEN, "b.b": SEEN}, a_a=cause, b_b=effect)
    assert [f.folded for f in report.findings] == [("b.b",)]
    assert report.exclude == ()


def test_what_a_world_is_asked_twice_is_made_once() -> None:
    made: list[tuple[World[int], int]] = []

    def total(world: World[int], factor: int) -> int:
        made.append((world, factor))
        return factor * sum(world.seen.values())

    worlds = [World("a.b", {"n1": Seen(number)}, Topology()) for number in (1, 2)]
    assert [w.once(total, 10) for w in worlds * 2] == [10, 20, 10, 20]
    assert worlds[0].once(total, 100) == 100
    assert len(made) == 3
