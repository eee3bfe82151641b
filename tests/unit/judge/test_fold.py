"""judge.fold: one root, its consequences under it, and nobody's failure lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.judge.fold import explains, fold, matches
from preflight.model import Blame, Confidence, Finding, FindingType, Kind, Status, Subject

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
N1, N2 = Subject(Kind.NODE, "n1"), Subject(Kind.NODE, "n2")


def finding(check: str, *, status: Status = FAIL, on: Any = N1, **more: Any) -> Finding:
    subjects = on if isinstance(on, tuple) else (on,)
    more["explains"] = tuple(more.get("explains", ()))
    return Finding("bad", status, subjects, saw=f"{check} is bad", check=check, **more)


def shown(*findings: Finding) -> list[tuple[str, tuple[str, ...]]]:
    return [(f.check, f.folded) for f in fold(findings)]


@pytest.mark.parametrize(
    ("check_id", "pattern", "does"),
    [
        ("net.port", "net.port", True),
        ("net.port", "net", True),
        ("net.port", "net.*", True),
        ("net.port", "*.port", True),
        ("net.port", "ne", False),
        ("net.port", "net.por", False),
        ("network.port", "net", False),
        ("net.port", "NET.PORT", False),
        ("net.port", "", False),
    ],
)
def test_patterns(check_id: str, pattern: str, does: bool) -> None:
    assert matches(check_id, pattern) is does


def test_a_consequence_goes_under_its_cause() -> None:
    cause, effect = finding("a.a", explains=["b.b"]), finding("b.b")
    assert shown(cause, effect) == [("a.a", ("b.b",))]
    assert shown(effect, cause) == [("a.a", ("b.b",))], "whatever the order"


def test_only_what_is_named() -> None:
    assert shown(finding("a.a", explains=["b"]), finding("b.b"), finding("c.c")) == [
        ("a.a", ("b.b",)),
        ("c.c", ()),
    ]


def test_only_where_the_subjects_meet() -> None:
    cause = finding("a.a", explains=["b.b"])
    assert shown(cause, finding("b.b", on=N2)) == [("a.a", ()), ("b.b", ())]
    assert shown(cause, finding("b.b", on=(N2, N1))) == [("a.a", ("b.b",))]
    ranks = (Subject(Kind.RANK, "n1", "0", ranks=(0,)), Subject(Kind.RANK, "n1", "1", ranks=(1,)))
    assert shown(finding("a.a", on=ranks[0], explains=["b"]), finding("b.b", on=ranks[1])) == [
        ("a.a", ()),
        ("b.b", ()),
    ]
    job = Subject(Kind.JOB)
    assert shown(finding("a.a", on=job, explains=["b"]), finding("b.b", on=N2)) == [
        ("a.a", ("b.b",))
    ]


EDGE = Subject(Kind.LINK, "n1", to="n2", ranks=(0, 1, 2, 3))
INNOCENT = Subject(Kind.RANK, "n3", "4", ranks=(4,))


@pytest.mark.parametrize("cause", [EDGE, N1], ids=str)
@pytest.mark.parametrize("sure", [Confidence.LIKELY, Confidence.POSSIBLE])
def test_whoever_complains_the_broken_edge_is_the_cause(cause: Subject, sure: Confidence) -> None:
    mesh = finding("net.mesh", on=cause, explains=["rdzv.store", "world.*"])
    silent = finding("rdzv.store", on=INNOCENT, confidence=sure)
    assert shown(mesh, silent) == [("net.mesh", ("rdzv.store",))]
    elsewhere = Subject(Kind.LINK, "n3", to="n4", ranks=(4, 5))
    unreached = finding("world.gloo", on=elsewhere, confidence=sure, blame=Blame.NETWORK)
    assert shown(mesh, unreached) == [("net.mesh", ("world.gloo",))]


@pytest.mark.parametrize(
    "more",
    [
        {"confidence": Confidence.CERTAIN},  # it died by a signal, or its text tells the cause
        {"confidence": Confidence.LIKELY, "blame": Blame.NODE},  # a wrong sum
        {"confidence": Confidence.LIKELY, "blame": Blame.JOB},
        {"confidence": Confidence.LIKELY, "on": Subject(Kind.NODE, "n3")},  # a check of its own
    ],
    ids=str,
)
def test_a_second_fault_elsewhere_is_not_hidden(more: dict[str, Any]) -> None:
    mesh = finding("net.mesh", on=EDGE, explains=["world.*"])
    other = finding("world.gloo", **{"on": INNOCENT} | more)
    assert shown(mesh, other) == [("net.mesh", ()), ("world.gloo", ())]


def test_a_symptom_goes_under_faults_that_name_it_only() -> None:
    silent = finding("world.gloo", on=INNOCENT, confidence=Confidence.LIKELY)
    for cause in (
        finding("net.mesh", on=EDGE, explains=["net.payload"]),
        finding("net.mesh", on=EDGE, explains=["world.*"], confidence=Confidence.POSSIBLE),
        finding("net.mesh", on=EDGE, explains=["world.*"], status=WARN),
    ):
        assert dict(shown(cause, silent)) == {"net.mesh": (), "world.gloo": ()}


def test_what_is_folded_is_no_alternative_too() -> None:
    warning = finding("a.a", status=WARN, explains=["b"])
    failure = finding("b.b", explains=["a.a:bad"])
    (kept,) = fold([warning, failure])
    assert (kept.check, kept.folded, kept.alternatives) == ("b.b", ("a.a",), ())
    apart = fold([warning, finding("b.b")])
    assert apart[0].alternatives == ("a.a: a.a is bad",)


def test_nothing_goes_under_what_is_only_possible() -> None:
    cause = finding("a.a", explains=["b"], confidence=Confidence.POSSIBLE)
    assert shown(cause, finding("b.b")) == [("a.a", ()), ("b.b", ())]


def test_what_is_named_with_its_code_is_the_same_thing_seen_from_farther_away() -> None:
    for sure in Confidence:
        cause = finding("a.a", explains=["b.b:bad"], confidence=sure)
        assert shown(cause, finding("b.b")) == [("a.a", ("b.b",))]
        other = finding("a.a", explains=["b.b:worse"], confidence=sure)
        assert shown(other, finding("b.b")) == [("a.a", ()), ("b.b", ())], "another code"
    warning = finding("a.a", explains=["b.b:bad"], status=WARN)
    assert shown(warning, finding("b.b")) == [("b.b", ()), ("a.a", ())], "nor a FAIL"


def test_no_failure_goes_under_a_warning() -> None:
    warning = finding("a.a", status=WARN, explains=["b"])
    failure = finding("b.b")
    first, second = fold([warning, failure])
    assert (first.check, second.check) == ("b.b", "a.a"), "the heaviest first"
    assert first.alternatives == ("a.a: a.a is bad",), "but it is a hint"
    assert shown(warning, finding("b.b", status=WARN)) == [("a.a", ("b.b",))]
    assert shown(warning, finding("b.b", status=UNDECIDED)) == [("b.b", ()), ("a.a", ())]


def test_what_is_undecided_explains_nothing() -> None:
    cause = finding("a.a", status=UNDECIDED, explains=["b"])
    assert shown(cause, finding("b.b", status=WARN)) == [("a.a", ()), ("b.b", ())]


def test_what_is_undecided_explains_what_it_names() -> None:
    """Another check that could not look for the same reason."""
    cause = finding("a.a", status=UNDECIDED, explains=["b.b:bad"])
    assert shown(cause, finding("b.b", status=UNDECIDED)) == [("a.a", ("b.b",))]
    for status in (WARN, FAIL):
        assert len(shown(cause, finding("b.b", status=status))) == 2


def test_chains_end_at_their_first_link() -> None:
    chain = [
        finding("a.a", explains=["b.b"]),
        finding("b.b", explains=["c.c"]),
        finding("c.c", explains=["d.d"]),
        finding("d.d"),
    ]
    expected = [("a.a", ("b.b", "c.c", "d.d"))]
    assert shown(*chain) == expected
    assert [f for f, _ in shown(*reversed(chain))] == ["a.a"]


def test_of_two_that_explain_each_other_the_earlier_is_the_cause() -> None:
    one, two = finding("a.a", explains=["b"]), finding("b.b", explains=["a"])
    assert shown(one, two) == [("a.a", ("b.b",))]


def test_a_circle_keeps_one_of_them() -> None:
    circle = [
        finding("a.a", explains=["b.b"]),
        finding("b.b", explains=["c.c"]),
        finding("c.c", explains=["a.a"]),
    ]
    (root,) = fold(circle)
    assert {root.check, *root.folded} == {"a.a", "b.b", "c.c"}


def test_a_finding_is_explained_by_its_old_code_too() -> None:
    cause = finding("a.a", explains=["b.b:old"])
    advice = FindingType(who="w", cause="c", means="m", was=("old",))
    assert not explains(cause, finding("b.b"))
    assert explains(cause, finding("b.b").with_(advice=advice))


def test_a_check_does_not_explain_itself() -> None:
    one, two = finding("a.a", explains=["a.a", "a"]), finding("a.a", on=N2)
    assert not explains(one, one)
    assert len(fold([one, two])) == 2


def test_a_consequence_is_named_once() -> None:
    effects = [finding("b.b"), finding("b.b", status=WARN)]
    assert shown(finding("a.a", explains=["b"]), *effects) == [("a.a", ("b.b",))]


IDS = ("a.a", "a.b", "b.a", "b.b", "c.c")
SUBJECTS = (
    N1,
    N2,
    Subject(Kind.JOB),
    Subject(Kind.RANK, "n1", "0", ranks=(0,)),
    Subject(Kind.RANK, "n2", "1", ranks=(1,)),
    Subject(Kind.LINK, "n1", to="n2"),
)
FINDINGS = st.builds(
    finding,
    st.sampled_from(IDS),
    status=st.sampled_from([FAIL, WARN, UNDECIDED, Status.MISSING]),
    on=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=3).map(tuple),
    explains=st.lists(st.sampled_from([*IDS, "a", "b.*", "*"]), max_size=3),
    confidence=st.sampled_from(Confidence),
)


@given(st.lists(FINDINGS, max_size=12))
def test_no_failure_is_ever_lost(findings: list[Finding]) -> None:
    roots = fold(findings)
    for lost in findings:
        kept = [r for r in roots if r.check == lost.check or lost.check in r.folded]
        assert kept
        if lost.status is FAIL:
            assert any(r.status is FAIL for r in kept), "a FAIL is shown under a FAIL only"
    for root in roots:
        if root.folded:
            assert root.confidence is not Confidence.POSSIBLE
            assert root.status in (FAIL, WARN)
    assert len(roots) <= len(findings)
    assert bool(roots) is bool(findings)


@given(st.lists(FINDINGS, max_size=8))
def test_what_is_shown_is_not_folded_again(findings: list[Finding]) -> None:
    """Each root is one of the findings, and none of them is explained by another root that is not
    in a circle with it."""
    roots = fold(findings)
    said = {(f.check, f.status, f.subjects) for f in findings}
    assert all((r.check, r.status, r.subjects) in said for r in roots)
    for root in roots:
        for cause in roots:
            if explains(cause, root):
                assert explains(root, cause) or root.folded, "only a circle leaves both"
