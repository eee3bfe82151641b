"""compare: the guilty ones are named, or nobody is; never an innocent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.compare import Late, late
from preflight.model import Mark


def marks(**names: str) -> dict[int, tuple[Mark, ...]]:
    """r0="a b" is rank 0 with the marks a and b."""
    return {
        int(rank[1:]): tuple(Mark(name, at) for at, name in enumerate(text.split()))
        for rank, text in names.items()
    }


def test_the_silent_one_is_late() -> None:
    found = late(marks(r0="store init", r1="store init", r2="store", r3="store init"))
    assert found == Late("init", (0, 1, 3), {2: "store"}, clear=True)


def test_one_that_gave_no_sign() -> None:
    assert late(marks(r0="store", r1="", r2="store")) == Late("store", (0, 2), {1: ""}, True)


def test_a_server_that_waits_for_its_last_client_is_not_late() -> None:
    found = late(marks(r0="store", r1="store init", r2="store init", r3=""))
    assert found is not None
    assert found.behind == {3: ""}


def test_two_parties_are_no_majority_but_this_is_evidence() -> None:
    found = late(marks(r0="a b", r1="a"))
    assert found is not None
    assert (found.behind, found.clear) == ({1: "a"}, True)


def test_many_behind_one_are_not_clear() -> None:
    found = late(marks(r0="a b", r1="a", r2="a", r3="a"))
    assert found is not None
    assert not found.clear


@pytest.mark.parametrize(
    "seen",
    [{}, marks(r0="a"), marks(r0="", r1=""), marks(r0="a b", r1="a b"), marks(r0="a", r1="z")],
    ids=["nobody", "alone", "no sign", "same", "strange marks"],
)
def test_cannot_tell(seen: dict[int, tuple[Mark, ...]]) -> None:
    found = late(seen)
    assert found is None or found.behind == {1: ""}


def test_a_mark_that_comes_again_is_a_step_of_its_own() -> None:
    found = late(marks(r0="a b a b", r1="a b a", r2="a b a b"))
    assert found is not None
    assert found.behind == {1: "a"}


@given(st.data())
def test_a_planted_culprit(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 12))
    few = 1 if n == 2 else (n - 1) // 2
    ranks = data.draw(st.permutations(range(n)))
    culprits = set(ranks[: data.draw(st.integers(1, few))])
    stopped_at = data.draw(st.integers(0, 4))
    furthest = data.draw(st.integers(stopped_at + 1, 6))
    # marks repeat or don't: the names are drawn too
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=6, max_size=6))
    reached = {
        rank: stopped_at if rank in culprits else data.draw(st.integers(stopped_at + 1, furthest))
        for rank in range(n)
    }
    reached[next(r for r in range(n) if r not in culprits)] = furthest
    world = {r: tuple(Mark(name, 0.0) for name in names[:count]) for r, count in reached.items()}
    found = late(world)
    assert found is not None
    assert set(found.behind) == culprits
    assert found.clear
