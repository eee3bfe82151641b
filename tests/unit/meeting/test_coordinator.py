"""Who has come to a meeting: counted one by one it must be what counting them all again gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.meeting import handshake
from preflight.meeting.coordinator import Headcount, KnownMarks
from preflight.meeting.protocol import Hello, marks_of

SIZES = st.integers(0, 5)
CLAIMS = st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple), SIZES)


def hello(ranks: tuple[int, ...], size: int) -> Hello:
    return Hello("1", "", "n", "id", 1, ranks, size, "n:1", False, "nonce")


@given(st.lists(CLAIMS, min_size=1), st.lists(CLAIMS), SIZES)
def test_it_is_what_counting_all_anew_gives(
    stay: list[tuple[tuple[int, ...], int]], leave: list[tuple[tuple[int, ...], int]], size: int
) -> None:
    counted = Headcount()
    for ranks, world in [*leave, *stay]:
        counted.add(hello(ranks, world))
    for ranks, world in leave:
        counted.remove(hello(ranks, world))
    there = [rank for ranks, _ in stay for rank in ranks]
    assert counted.claims == len(there)
    assert counted.ranks == len(set(there))
    assert counted.sizes == {world for _, world in stay}
    assert counted.all_of(size) == (sorted(there) == list(range(size)))


def test_a_limit_of_open_files_that_is_lowered_meanwhile_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = [100, 1000]
    monkeypatch.setattr(handshake.resource, "getrlimit", lambda what: tuple(limit))

    def set_limit(what: int, soft_and_hard: tuple[int, int]) -> None:
        assert soft_and_hard[0] <= limit[1]
        limit[:] = soft_and_hard

    monkeypatch.setattr(handshake.resource, "setrlimit", set_limit)

    def none_left(path: str) -> list[str]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(handshake.os, "listdir", none_left)
    files = handshake.OpenFiles(300, 0)
    assert files.limit == limit[0] == 300
    limit[:] = [20, 20]
    files.restore()
    assert limit == [20, 20]


MARKS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1, 1.0]))).map(
    lambda marks: {"marks": [list(mark) for mark in marks]}
)


@given(st.lists(MARKS))
def test_equal_marks_are_one_object_and_say_the_same(said: list[dict[str, object]]) -> None:
    known = KnownMarks()
    kept = [known.of(data) for data in said]
    assert kept == [marks_of(data) for data in said]
    each = [mark for marks in kept for mark in marks]
    assert len({id(mark) for mark in each}) == len(set(each))
    held = known.held
    assert all(known.of(data) is marks for data, marks in zip(said, kept, strict=True))
    assert known.held == held, "what was said before takes nothing more"


def test_marks_that_nobody_has_said_before_count() -> None:
    known = KnownMarks()
    for number in range(100):
        before = known.held
        known.of({"marks": [[f"{number} " + "x" * 150, 0.5]]})
        assert known.held - before > 150
