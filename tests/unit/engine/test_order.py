"""What was observed, in the order of the world and not twice."""

from __future__ import annotations

from preflight.engine.agent import in_order
from preflight.model import Node, Observation, Seen, Topology


def test_in_the_order_of_nodes_and_ranks() -> None:
    top = Topology(nodes=(Node("b", (2, 10)), Node("a", (0, 1))))
    keys = ["c", "a/1", "b/10", "a/0", "b/2"]
    seen: dict[str, Observation] = {key: Seen(key) for key in keys}
    checks = {"one": dict(seen), "none": {}, "other": dict(seen)}
    made = in_order(checks, top)
    assert checks == {}, "a hundred thousand ranks are there once"
    assert list(made) == ["one", "other"]
    for by_key in made.values():
        assert list(by_key) == ["b/2", "b/10", "a/0", "a/1", "c"]
        assert all(by_key[key] is seen[key] for key in keys)
