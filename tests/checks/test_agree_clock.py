"""agree.clock: clocks far apart are told from unsteady measuring, and the outlier from the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import agree_clock
from preflight.checks.agree_clock import ClockOffset
from preflight.host import Host
from preflight.model import Blame, Cause, Confidence, Missing, Node, NotApplicable, Status, Topology
from preflight.roster import Roll

conforms(agree_clock)


def nodes(count: int) -> Topology:
    return Topology(size=count, nodes=tuple(Node(f"n{i}", (i,)) for i in range(count)))


def at(
    *offsets: float | None,
    error: float = 0.001,
    unsynced: tuple[int, ...] | None = None,
    heartbeats: bool = True,
) -> dict[str, Any]:
    """Nodes with these offsets; `unsynced` are those that say so, where anybody says anything."""
    return {
        f"n{i}": ClockOffset(
            offset,
            None if offset is None else error,
            None if unsynced is None else i not in unsynced,
            heartbeats=heartbeats,
        )
        for i, offset in enumerate(offsets)
    }


def case(
    name: str,
    saw: dict[str, Any],
    code: str | None = None,
    status: Status | None = None,
    subject: str | None = None,
) -> Case:
    return Case(name, saw, code, status, topology=nodes(len(saw)), subject=subject)


FAR, OFF, UNSTEADY = "clock-skew-large", "clock-skew", "clock-offset-uncertain"
MIXED = at(0.0, 0.0, 0.3) | {"n2": ClockOffset(0.3, 0.9)}
SHAKY = at(0.0, 12.0, 0.0, 0.0) | {"n4": ClockOffset(13.0, 5.0)}

CASES = (
    case("alike", at(0.0, 0.0004, -0.0002)),
    case("two, alike", at(0.0, 0.01)),
    case("0.9 s", at(0.0, 0.9)),
    case("1 s, give or take", at(0.0, 1.1, error=0.2)),
    case("0.3 s, give or take 0.9", MIXED),
    case("unsynchronised, and right all the same", at(0.0, 0.01, unsynced=(0, 1))),
    case("one agent alone", at(0.0)),
    case("one that is not measured, alone", at(None)),
    case("nobody looked", {"n0": Missing(Cause.CANNOT_OBSERVE), "n1": ClockOffset(9.0, 0.1)}),
    case("1.5 s", at(0.0, 1.5), OFF, Status.WARN),
    case("9 s", at(0.0, 9.0, 0.0, error=0.1), OFF, Status.WARN, subject="n1"),
    case("9.9 s, give or take 0.2", at(0.0, 0.0, 9.9, error=0.1), OFF, Status.WARN),
    case("10.1 s, give or take 0.2", at(0.0, 0.0, 10.1, error=0.1), OFF, Status.WARN),
    case("11 s", at(0.0, 0.0, 11.0), FAR, Status.FAIL, subject="n2"),
    case("11 s behind", at(0.0, 0.0, -11.0), FAR, Status.FAIL, subject="n2"),
    case("the meeting's host is the one that differs", at(0.0, 40.0, 40.2), FAR, subject="n0"),
    case("two nodes", at(0.0, 20.0), FAR, Status.FAIL),
    case("2 h, and no torchrun", at(0.0, 7200.0, heartbeats=False), FAR, Status.WARN),
    case("by an unsteady measure, far all the same", SHAKY, FAR, Status.FAIL, subject="n1"),
    case("not measured", at(0.0, None), UNSTEADY, Status.UNDECIDED, subject="n1"),
    case(
        "too unsteady",
        at(0.0, 0.2, error=0.6) | {"n1": ClockOffset(0.2, 1.4)},
        UNSTEADY,
        subject="n1",
    ),
    case("no number", at(0.0, math.nan), UNSTEADY, Status.UNDECIDED, subject="n1"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(agree_clock, case)


def only(saw: dict[str, Any]) -> Any:
    findings = judged(agree_clock, case("", saw))
    assert len(findings) == 1, [(f.code, f.saw) for f in findings]
    return findings[0]


def blamed(saw: dict[str, Any]) -> tuple[tuple[str, ...], Confidence]:
    finding = only(saw)
    return tuple(s.node for s in finding.subjects), finding.confidence


def test_a_majority_names_the_odd_one() -> None:
    assert blamed(at(0.0, 0.0, 20.0)) == (("n2",), Confidence.CERTAIN)
    assert blamed(at(0.0, -30.0, 0.1, 0.2, 30.0)) == (("n1", "n4"), Confidence.CERTAIN)
    assert only(at(0.0, 0.0, 20.0)).blame is Blame.NODE


def test_two_are_no_majority() -> None:
    assert blamed(at(0.0, 20.0)) == (("n0", "n1"), Confidence.POSSIBLE)
    finding = only(at(0.0, 20.0))
    assert finding.alternatives == ("the clock of n0 is wrong", "the clock of n1 is wrong")
    assert finding.blame is Blame.UNKNOWN


def test_of_two_the_one_that_is_not_synchronised() -> None:
    assert blamed(at(0.0, 20.0, unsynced=(0,))) == (("n0",), Confidence.LIKELY)
    assert blamed(at(0.0, 20.0, unsynced=(1,))) == (("n1",), Confidence.LIKELY)
    for neither in (at(0.0, 20.0, unsynced=(0, 1)), at(0.0, 20.0, unsynced=())):
        assert blamed(neither) == (("n0", "n1"), Confidence.POSSIBLE)
    one_is_silent = at(0.0, unsynced=()) | {"n1": ClockOffset(20.0, 0.001)}
    assert blamed(one_is_silent)[1] is Confidence.POSSIBLE


def test_who_may_be_on_either_side_makes_no_majority() -> None:
    unsure = at(0.0, 12.0, 0.0) | {"n3": ClockOffset(13.0, 5.0)}
    finding = next(f for f in judged(agree_clock, case("", unsure)) if f.code == FAR)
    assert finding.confidence is Confidence.POSSIBLE


def test_two_groups_of_equal_size_are_both_named() -> None:
    halves = at(0.0, 0.1, 20.0, 20.1)
    assert blamed(halves) == (("n0", "n1", "n2", "n3"), Confidence.POSSIBLE)
    told = at(0.0, 0.1, 20.0, 20.1, unsynced=(2, 3))
    assert blamed(told) == (("n2", "n3"), Confidence.LIKELY)


def test_a_majority_that_is_not_synchronised_yields_to_one_that_is() -> None:
    assert blamed(at(20.0, 20.0, 0.0, unsynced=(0, 1))) == (("n0", "n1"), Confidence.LIKELY)


def test_a_chain_has_ends_but_no_culprit() -> None:
    """Each is within 10 s of the middle, the ends are not within 10 s of each other."""
    assert blamed(at(0.0, 6.0, 12.0)) == (("n0", "n2"), Confidence.POSSIBLE)


def test_one_far_and_one_off_are_two_findings() -> None:
    findings = judged(agree_clock, case("", at(0.0, 0.0, 0.1, 3.0, 60.0)))
    assert [(f.code, f.subjects[0].node) for f in findings] == [(FAR, "n4"), (OFF, "n3")]


def test_who_is_far_is_not_called_unsteady_too() -> None:
    assert [
        (f.code, [s.node for s in f.subjects]) for f in judged(agree_clock, case("", SHAKY))
    ] == [
        (FAR, ["n1"]),
        (UNSTEADY, ["n4"]),
    ]


def test_what_is_said() -> None:
    finding = only(at(0.0, 0.0, 20.0, unsynced=(2,)))
    assert finding.saw == (
        "clocks 20.0 s +- 2 ms apart: n2 +20.0 s (unsynchronised), n0 +0 ms · their kernel calls "
        "these clocks unsynchronised, the others synchronised"
    )
    assert finding.expected == "every two within 10.0 s"
    assert finding.explains == ("rdzv.torchrun",)


def said(saw: dict[str, Any]) -> tuple[str, str]:
    """What to do, up to the next step, and where the commands belong."""
    finding = only(saw)
    advice = agree_clock.FINDINGS[finding.code].filled(finding.fields)
    return advice.text.partition(";")[0], advice.commands[0].where


def test_whose_clock_is_to_be_set() -> None:
    assert said(at(0.0, 40.0, 0.0)) == ("set the clock of n1, or exclude it", "n1")
    both = "set the clock of n1 and n2, or exclude them"
    assert said(at(0.0, 40.0, 41.0, 0.0, 0.0)) == (both, "each of them")
    assert said(at(0.0, 40.0)) == ("set the clock of n0 or n1, or exclude it", "each of them")


def test_what_is_next_to_nothing_has_no_sign() -> None:
    assert "n1 +0 ms" in only(at(0.0, -0.00001, 40.0)).saw
    assert "n1 -5 ms" in only(at(0.0, -0.005, 40.0)).saw


def test_what_is_measured() -> None:
    def text(saw: dict[str, Any]) -> str:
        return agree_clock.measured(world("agree.clock", saw, nodes(len(saw)))).text

    assert text(at(0.0, 0.0003, error=0.00005)) == "offset <= 0.4 ms"
    assert text(at(0.0, 0.0003, None, error=0.00005)) == "offset <= 0.4 ms · 1 not measured"
    assert text(at(None, None)) == "not measured"
    assert text(at(0.0, 11.5)) == "offset <= 11.5 s"


def look(roll: Roll | None) -> ClockOffset:
    seen = agree_clock.observe(Host(environ={}), context(roll=roll))
    round_trips(seen)
    return seen


def test_observe_takes_what_the_meeting_measured() -> None:
    seen = look(Roll(False, "n0", 29500, 4, offset=0.25, uncertainty=0.01))
    assert (seen.offset, seen.uncertainty) == (0.25, 0.01)
    unknown = look(Roll(False, "n0", 29500, 4))
    assert (unknown.offset, unknown.uncertainty) == (None, None)


def test_the_meetings_host_is_the_measure() -> None:
    seen = look(Roll(True, "n0", 29500, 4))
    assert (seen.offset, seen.uncertainty) == (0.0, 0.0)


def test_observe_asks_this_kernel() -> None:
    seen = look(Roll(True, "n0", 29500, 4))
    assert isinstance(seen.synchronised, bool)
    assert seen.max_error is not None
    assert 0 <= seen.max_error < 100  # the kernel stops counting at 16 s


def test_without_a_meeting_there_is_nothing_to_compare() -> None:
    with pytest.raises(NotApplicable):
        look(None)
