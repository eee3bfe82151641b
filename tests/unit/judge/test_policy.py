"""judge.policy: --strict and --tolerate, what they turn into what, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.scripted_checks import (
    FINDINGS,
    RANKS,
    SEEN,
    Script,
    catalogue,
    judged,
    outcome,
    says,
    topology,
)

from preflight.expect import Expect
from preflight.judge import verdict
from preflight.judge.policy import Policy, Waiver
from preflight.model import Blame, Cause, Kind, Missing, Status, Subject, Verdict

FAIL, WARN = Status.FAIL, Status.WARN
READY, NOT_READY = ("ready", 0), ("not_ready", 3)
HUNG = Missing(Cause.TIMED_OUT, "no answer in 5.0 s, killed", 5.0)

STRICT = Policy(strict=True, today="2026-05-01")


def waive(pattern: str, until: str = "", strict: bool = False) -> Policy:
    return Policy(strict, (Waiver(pattern, "INC-1", until),), "2026-05-01")


def test_a_warning_is_ready_unless_strict() -> None:
    assert outcome({"a.a": SEEN}, a_a=says(WARN)) == READY
    assert outcome({"a.a": SEEN}, STRICT, a_a=says(WARN)) == NOT_READY
    assert outcome({"a.a": SEEN}, STRICT, a_a=Script()) == READY


def test_strict_sees_a_warning_behind_a_doubt() -> None:
    top = topology("n1", ranks=2)
    script = says(WARN, Subject(Kind.RANK, "n1", "0", ranks=(0,)), check=RANKS)
    seen = {"a.a": {"n1/0": SEEN, "n1/1": HUNG}}
    assert outcome(seen, STRICT, top, a_a=script) == NOT_READY


def test_what_sites_set_on_purpose_is_no_failure_to_strict() -> None:
    known = {"bad": replace(FINDINGS["bad"], status=WARN, strict=False), "worse": FINDINGS["bad"]}
    chosen = replace(says(WARN), FINDINGS=known)
    assert outcome({"a.a": SEEN}, STRICT, a_a=chosen) == READY
    other = replace(says(WARN, code="worse"), FINDINGS=known)
    assert outcome({"a.a": SEEN}, STRICT, a_a=other) == NOT_READY
    assert outcome({"a.a": SEEN, "b.b": SEEN}, STRICT, a_a=chosen, b_b=says(WARN)) == NOT_READY
    assert outcome({"a.a": SEEN}, STRICT, a_a=replace(says(FAIL), FINDINGS=known)) == NOT_READY


@pytest.mark.parametrize("pattern", ["a.a", "a", "a.*", "*"])
def test_a_tolerated_failure_is_a_warning(pattern: str) -> None:
    report = judged({"a.a": SEEN}, waive(pattern), a_a=says(FAIL, blame=Blame.NODE))
    assert report.verdict is Verdict.READY
    assert report.tolerated == ("a.a",)
    assert report.rows[0].status is WARN
    assert report.findings[0].status is WARN
    assert report.findings[0].saw == "saw · tolerated: INC-1"
    assert report.exclude == ()


def test_a_waiver_is_for_its_own_check_only() -> None:
    scripts = {"a_a": says(FAIL), "b_b": says(FAIL)}
    report = judged({"a.a": SEEN, "b.b": SEEN}, waive("b.b"), **scripts)
    assert report.verdict is Verdict.NOT_READY
    assert report.tolerated == ("b.b",)


def test_a_waiver_for_what_does_not_fail_says_nothing() -> None:
    report = judged({"a.a": SEEN}, waive("a.a"), a_a=says(WARN))
    assert report.tolerated == ()
    assert report.findings[0].saw == "saw"


@pytest.mark.parametrize(
    ("until", "ends"), [("2026-05-01", False), ("2026-04-30", True), ("2027-01-01", False)]
)
def test_a_waiver_ends_after_its_day(until: str, ends: bool) -> None:
    report = judged({"a.a": SEEN}, waive("a.a", until), a_a=says(FAIL))
    assert report.verdict is (Verdict.NOT_READY if ends else Verdict.READY)
    assert ("its waiver ended on" in report.findings[0].saw) is ends
    assert report.tolerated == (() if ends else ("a.a",))


def test_of_two_waivers_one_that_holds_is_enough() -> None:
    waivers = (Waiver("a.a", "old", "2020-01-01"), Waiver("a", "new"))
    report = judged({"a.a": SEEN}, Policy(False, waivers, "2026-05-01"), a_a=says(FAIL))
    assert report.findings[0].saw == "saw · tolerated: new"


def test_what_is_waived_is_no_warning_to_strict() -> None:
    assert outcome({"a.a": SEEN}, waive("a.a", strict=True), a_a=says(FAIL)) == READY
    assert outcome({"a.a": SEEN}, waive("a.a", strict=True), a_a=says(WARN)) == READY
    assert outcome({"a.a": SEEN}, waive("b.b", strict=True), a_a=says(WARN)) == NOT_READY


def test_what_is_waived_does_not_block_others() -> None:
    """The runner asks passed() what may go on."""
    known = catalogue(a_a=says(FAIL))
    top = topology()
    standing = verdict.passed("a.a", {"n1": SEEN}, known, top, Expect())
    assert standing.by_subject == {"n1": FAIL}
    assert standing.headline
    policy = waive("a.a")
    standing = verdict.passed("a.a", {"n1": SEEN}, known, top, Expect(), policy)
    assert (standing.by_subject, standing.headline) == ({"n1": WARN}, "")
