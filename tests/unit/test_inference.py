"""inference: the guilty ones are named, or nobody is; never an innocent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.domains.net import pairing
from preflight.humanize import parties
from preflight.inference import Blamed, Consensus, Edge, Late, blame, consensus, late, outliers
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


# --- consensus ---


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Consensus(None, (), {}, False)),
        ({"a": 1}, Consensus(1, ("a",), {}, False)),
        ({"a": 1, "b": 1}, Consensus(1, ("a", "b"), {}, False)),
        ({"a": 1, "b": 2}, Consensus(None, (), {1: ("a",), 2: ("b",)}, True)),
        ({"a": 1, "b": 2, "c": 1}, Consensus(1, ("a", "c"), {2: ("b",)}, False)),
        (
            {"a": 1, "b": 2, "c": 3},
            Consensus(None, (), {1: ("a",), 2: ("b",), 3: ("c",)}, True),
        ),
        (
            {"a": 1, "b": 2, "c": 1, "d": 2},
            Consensus(None, (), {1: ("a", "c"), 2: ("b", "d")}, True),
        ),
        (
            {"a": 1, "b": 2, "c": 1, "d": 3, "e": 1},
            Consensus(1, ("a", "c", "e"), {2: ("b",), 3: ("d",)}, False),
        ),
    ],
)
def test_consensus(values: dict[str, int], expected: Consensus[int]) -> None:
    assert consensus(values) == expected


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.integers(0, 3)))
def test_everybody_is_a_holder_or_odd_and_two_have_no_odd_one(values: dict[str, int]) -> None:
    found = consensus(values)
    parties = sorted([*found.holders, *(key for keys in found.odd.values() for key in keys)])
    assert parties == sorted(values)
    assert found.tie == (found.value is None and bool(values))
    if len(values) <= 2:
        assert found.tie or not found.odd
    if found.odd and not found.tie:
        assert 2 * len(found.holders) > len(values) >= 3


def test_parties() -> None:
    assert parties(["n1"]) == "n1"
    assert parties([f"n{i}" for i in range(16)]) == "n0, n1, n2, n3 and 12 more"


# --- outliers ---


def numbered(*numbers: float) -> dict[str, float]:
    return {f"n{i}": number for i, number in enumerate(numbers)}


@pytest.mark.parametrize(
    ("numbers", "odd"),
    [
        ((), ""),
        ((1, 1, 9), ""),  # three can't tell
        ((1, 1, 1, 9), "n3"),
        ((1, 1, 1, 1), ""),
        ((10, 10, 10, 8.1), ""),  # the MAD is 0, the gap below the floor
        ((10, 10, 10, 7.9), "n3"),
        ((1, 1, 5, 5), ""),  # two halves
        ((0, 0, 0, 7), ""),  # no part of nothing
        ((-10, -10, -10, -1), "n3"),
        ((10, 10, 10, float("nan")), ""),  # three are left
        ((10, 10, 10, 10, float("inf")), ""),
        ((10, 10, 10, 10, 1, float("inf")), "n4"),
        ((10, 12, 8, 11, 9, 5), ""),  # far, but so is everybody
    ],
)
def test_outliers(numbers: tuple[float, ...], odd: str) -> None:
    assert " ".join(outliers(numbered(*numbers)).odd) == odd


def test_only_the_wanted_side_is_odd() -> None:
    both = numbered(10, 10, 10, 10, 1, 99)
    assert set(outliers(both).odd) == {"n4", "n5"}
    assert set(outliers(both, low=False).odd) == {"n5"}
    assert outliers(both, high=False).odd == {"n4": 1}


def test_too_few_is_said() -> None:
    assert not outliers(numbered(1, 1, 9)).enough
    assert outliers(numbered(1, 1, 1, 1)).enough


@given(
    st.floats(1e-6, 1e12),
    st.lists(st.floats(-0.09, 0.09), min_size=4, max_size=40),
    st.floats(0.2, 0.5),
)
def test_noise_below_the_floor_is_never_odd(
    middle: float, noise: list[float], floor: float
) -> None:
    found = outliers(numbered(*(middle * (1 + n) for n in noise)), floor=floor)
    assert found.enough
    assert not found.odd


@given(st.lists(st.floats(1.0, 2.0), min_size=4, max_size=40))
def test_most_are_never_odd(numbers: list[float]) -> None:
    assert 2 * len(outliers(numbered(*numbers), floor=0.0).odd) < len(numbers)


@given(
    st.lists(st.floats(-0.02, 0.02), min_size=4, max_size=40), st.floats(0.0, 0.5), st.booleans()
)
def test_a_planted_slow_one(noise: list[float], slow: float, at_start: bool) -> None:
    numbers = [100 * (1 + n) for n in noise]
    numbers[0 if at_start else -1] = 100 * slow
    assert list(outliers(numbered(*numbers)).odd.values()) == [100 * slow]


# --- blame ---


def edges(text: str) -> set[Edge]:
    """`ab ba`: from a to b, and back."""
    return {(edge[0], edge[1]) for edge in text.split()}


def mesh(nodes: str) -> set[Edge]:
    return {(a, b) for a in nodes for b in nodes if a != b}


@pytest.mark.parametrize(
    ("failed", "nodes", "at", "links", "undetermined"),
    [
        ("", "abc", "", "", ""),
        ("ab", "ab", "", "", "ab"),  # two are no majority
        ("ab ba", "ab", "", "", "ab ba"),
        ("ac bc", "abc", "c=inbound", "", ""),
        ("ca cb", "abc", "c=outbound", "", ""),
        ("ac bc ca cb", "abc", "c=both", "", ""),
        ("ac bc ca", "abc", "c=inbound", "ca", ""),
        ("ab", "abc", "", "ab", ""),
        ("ab ba", "abc", "", "ab ba", ""),
        # c can't be reached and a-b is broken, or a can't send and b-c is broken
        ("ac bc ab", "abc", "", "", "ab ac bc"),
        # the same with one more witness each
        ("ac bc dc ab", "abcd", "c=inbound", "ab", ""),
        # two dead nodes are all that the other two see fail
        ("ab ac ad ba bc bd ca cb da db", "abcd", "a=both b=both", "", ""),
        # one half is cut from the other
        ("ac ad bc bd ca cb da db", "abcd", "", "ac ad bc bd ca cb da db", ""),
        # half of its peers can't reach it: links, which all name it
        ("be ce", "abcde", "", "be ce", ""),
        ("be ce de", "abcde", "e=inbound", "", ""),
        # a's firewall is closed to all, b's way out is shut
        ("ba ca da bc bd", "abcd", "a=inbound b=outbound", "", ""),
    ],
)
def test_blame(failed: str, nodes: str, at: str, links: str, undetermined: str) -> None:
    found = blame(edges(failed), mesh(nodes))
    assert " ".join(f"{node}={way}" for node, way in found.at.items()) == at
    assert set(found.links) == edges(links)
    assert found.nodes == tuple(found.at)
    assert set(found.undetermined) == edges(undetermined)


def test_where_nothing_works_nobody_is_named() -> None:
    for nodes in ("abc", "abcdef"):
        found = blame(mesh(nodes), mesh(nodes))
        assert found == Blamed((), (), tuple(sorted(mesh(nodes))), {})


def test_a_hub_that_all_failed_to_reach_is_not_known_to_be_at_fault() -> None:
    """Nobody tested anything else."""
    star = edges("ba ca da")
    assert blame(star, star).nodes == ()
    # one who got there tells that the hub works; what is wrong with the other two it does not tell
    found = blame(edges("ba ca"), edges("ba ca da"))
    assert (found.nodes, found.links) == ((), ())
    assert set(found.undetermined) == edges("ba ca")


def test_one_witness_who_was_never_asked_by_others_is_none() -> None:
    found = blame(edges("ab ac"), edges("ab ac ad"))
    assert (found.nodes, found.links) == ((), ())


def test_an_edge_to_itself_and_one_that_nobody_tested() -> None:
    assert blame({("a", "a")}, {("a", "a")}) == Blamed((), (), (), {})
    assert blame(edges("ac bc"), edges("ab ba ca cb")).at == {"c": "inbound"}


def test_a_thousand_nodes() -> None:
    count = 1024
    tested = {(f"n{i}", f"n{j}") for i in range(count) for j in pairing.dials(i, count)}
    dead = {"n7", "n8", "n700"}
    failed = {e for e in tested if dead & set(e)} | {("n1", "n2")}
    found = blame(failed, tested)
    assert set(found.nodes) == dead
    assert set(found.at.values()) == {"both"}
    assert (found.links, found.undetermined) == ((("n1", "n2"),), ())


def planted(data: st.DataObject, nodes: list[str], tested: set[Edge]) -> tuple[str, set[Edge]]:
    """A bad node, or "", and the edges of a bad link, or none, in a random direction each."""
    kind = data.draw(st.sampled_from(("node", "link", "pair")))
    one, two = data.draw(st.lists(st.sampled_from(nodes), min_size=2, max_size=2, unique=True))
    link = {(one, two), (two, one)} if data.draw(st.booleans()) else {(one, two)}
    bad = data.draw(st.sampled_from(nodes)) if kind != "link" else ""
    return bad, (link if kind != "node" else set()) & tested


@given(st.data())
def test_the_planted_culprit_or_nobody(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12) | st.integers(65, 80))
    nodes = [f"n{i}" for i in range(count)]
    tested = {(a, nodes[j]) for i, a in enumerate(nodes) for j in pairing.dials(i, count)}
    whole = data.draw(st.booleans())
    if not whole:  # some never got to it
        tested -= set(data.draw(st.lists(st.sampled_from(sorted(tested)), max_size=40)))
    bad, link = planted(data, nodes, tested)
    way = data.draw(st.sampled_from(("outbound", "inbound", "both")))
    ends = {"outbound": (0,), "inbound": (1,)}.get(way, (0, 1))
    closed = {edge for edge in tested if any(edge[end] == bad for end in ends)}
    failed = closed | link
    found = blame(failed, tested)

    assert set(found.nodes) <= {bad}
    assert set(found.links) <= link
    assert set(found.links) | set(found.undetermined) <= failed
    for edge in failed - set(found.links) - set(found.undetermined):
        assert set(edge) & set(found.nodes), "an edge that nobody answers for"
    if count == 2:
        assert set(found.undetermined) == failed
    elif whole and not (count == 3 and closed and link):
        # three are too few for two faults, in all other worlds the culprits are named
        assert found.nodes == ((bad,) if bad else ())
        assert set(found.links) == link - closed
        assert set(found.at.values()) <= {way}
