"""What is made of the answers of NCCL's RAS service."""

from __future__ import annotations

from preflight.domains.job.nccl_ras import (
    Communicator,
    Member,
    Ras,
    diverging,
    unchanged,
    with_ranks,
)


def test_what_changes_between_two_answers_is_not_told() -> None:
    late, later = (Member(1, 7, "h", (("AllReduce", n),)) for n in (41, 42))
    first = Ras("2", (Communicator("a", 2, (("AllReduce", 42),), (late,)),), (Member(3),))
    second = Ras("2", (Communicator("a", 2, (("AllReduce", 43),), (later,)),))
    assert unchanged(first, second, 5.0) == Ras("2", seconds=5.0)
    assert unchanged(first, first, 5.0) == Ras("2", first.communicators, first.lost, 5.0)
    assert unchanged(first, None, 5.0) is None


def test_ranks_of_a_smaller_communicator_are_known_by_their_processes() -> None:
    odd = (Member(0, 7, "10.0.0.1"), Member(1, 8, "10.0.0.1"), Member(1, 7, "10.0.0.2"))
    found = with_ranks(Ras("2", (Communicator("a", 2, (), odd),)), 4, {(7, "10.0.0.1"): 2})
    assert [m.of for m in found.communicators[0].odd] == [2, None, None]
    found = with_ranks(Ras("2", (Communicator("a", 4, (), odd),)), 4, {})
    assert [m.of for m in found.communicators[0].odd] == [0, 1, 1]
    assert diverging("a", 0, [], []) is None


def test_where_all_launched_as_much_none_is_odd() -> None:
    here = [Member(rank, 100 + rank, "h", (("AllReduce", 5),)) for rank in range(4)]
    assert diverging("c", 4, here, ()) is None
    gone = Member(4, 104, "h", state="dead")
    left = Member(5, 105, "h")
    assert diverging("c", 6, here, (gone, left)) == Communicator("c", 6, (), (gone,))


def test_in_a_tie_those_are_odd_that_launched_less() -> None:
    here = [
        Member(rank, 100 + rank, "h", (("AllReduce", 5 + rank), ("Reduce", 1))) for rank in (0, 1)
    ]
    found = diverging("c", 2, here, ())
    assert found is not None
    assert found.usual == (("AllReduce", 6),)
    assert [(m.rank, m.counts) for m in found.odd] == [(0, (("AllReduce", 5),))]
