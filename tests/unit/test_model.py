"""Keys of observations: a peer or a report may call them anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from preflight.model import (
    Cause,
    Found,
    Missing,
    Node,
    Seen,
    Subject,
    Topology,
    World,
    place_of,
)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("n1", ("n1", None)),
        ("n1/7", ("n1", 7)),
        ("a/b/7", ("a/b", 7)),
        ("/7", ("", 7)),
        ("n1/", ("n1/", None)),
        ("n1/-1", ("n1/-1", None)),
        ("n1/²", ("n1/²", None)),
        ("n1/" + "9" * 5000, ("n1/" + "9" * 5000, None)),
    ],
)
def test_the_rank_of_a_key_is_a_number_of_a_rank(key: str, place: tuple[str, int | None]) -> None:
    assert place_of(key) == place


def test_a_rule_looks_once_at_what_is_one_object() -> None:
    looked: list[str] = []
    same, other = [1], [1]

    def rule(subject: Subject, value: list[int]) -> Iterator[Found]:
        looked.append(subject.node)
        if value is other:
            yield Found("x", (subject,), "saw")

    seen = {"n1": Seen(same), "n2": Seen(same), "n3": Seen(other), "n4": Seen(other)}
    found = World("site.x", seen, Topology()).found(rule)
    assert [f.subjects[0].node for f in found] == ["n3", "n4"]
    assert looked == ["n1", "n3", "n4"]


def test_a_rule_is_asked_again_where_a_node_has_another_number_of_ranks() -> None:
    """How many GPUs a node needs, for one, goes by its ranks."""
    same = ["a"]
    looked = []

    def rule(subject: Subject, value: list[str]) -> Iterator[Found]:
        looked.append(subject.node)
        if len(subject.ranks) > 1:
            yield Found("x", (subject,), "saw")

    top = Topology(nodes=(Node("n1", (0,)), Node("n2", (1,)), Node("n3", (2, 3))))
    seen = {name: Seen(same) for name in ("n1", "n2", "n3")}
    found = World("site.x", seen, top).found(rule)
    assert [f.subjects[0].node for f in found] == ["n3"]
    assert looked == ["n1", "n3"]


def test_nodes_are_found_by_name() -> None:
    top = Topology(nodes=(Node("a", (0, 1), size=4), Node("b", (2,)), Node("a", (9,))))
    assert (top.ranks_of("a"), top.ranks_of("b"), top.ranks_of("c")) == ((0, 1), (2,), ())
    assert (top.ranks_on("a"), top.ranks_on("b"), top.ranks_on("c")) == (4, 1, 0)


def test_what_many_have_said_is_there_once() -> None:
    one, other = ["a"], ["a"]
    seen = {"n1": Seen(one), "n2": Missing(Cause.CRASHED), "n3": Seen(other), "n4": Seen(one)}
    world: World[list[str]] = World("x", seen, Topology())
    assert [id(value) for value in world.distinct] == [id(one), id(other)]


def test_what_is_told_of_each_is_asked_once() -> None:
    one, other, third = [1], [2], [3]
    seen = {"a": Seen(one), "b": Missing(Cause.SKIPPED), "c": Seen(other), "d": Seen(one)}
    world = World("x", {**seen, "e": Seen(third)}, Topology())
    asked: list[int] = []

    def make(value: list[int]) -> int | None:
        asked.append(value[0])
        return value[0] * 10 if value[0] < 3 else None

    assert world.told(make) == {"a": 10, "c": 20, "d": 10}
    assert asked == [1, 2, 3]
    assert world.told(lambda value: None) == {}


def test_a_world_without_drawings_is_the_same() -> None:
    world = World("x", {"a": Seen(1), "b": Missing(Cause.SKIPPED)}, Topology())
    assert world.drawn
    assert not world.undrawn().drawn
    assert world.undrawn().seen == world.seen == {"a": 1}
    assert world.undrawn().missing() == world.missing()


def test_what_is_missing_for_some_causes() -> None:
    hung, crashed = Missing(Cause.TIMED_OUT), Missing(Cause.CRASHED)
    seen = {"a": Seen(1), "b": hung, "c": crashed, "d": hung}
    world: World[int] = World("x", seen, Topology())
    assert world.missing() == world.missing(Cause.CRASHED, Cause.TIMED_OUT)
    assert world.missing() == {"b": hung, "c": crashed, "d": hung}
    assert world.missing(Cause.TIMED_OUT, Cause.BLOCKED) == {"b": hung, "d": hung}
    assert world.missing(Cause.BLOCKED) == {}
    assert World("x", {"a": Seen(1)}, Topology()).missing(Cause.CRASHED) == {}
