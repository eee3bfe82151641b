"""Who has come to a meeting: counted one by one it must be what counting them all again gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from preflight.meeting.coordinator import Headcount
from preflight.meeting.protocol import Hello

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
