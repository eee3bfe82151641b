"""A report is the same to the letter, whether what the nodes said was packed or not."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import NAMES, catalogue, observations

from preflight import redact
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import Node, Observation, Observations, Seen, key_of, place_of
from preflight.packed import Packed, Packing
from preflight.render import json as as_json
from preflight.serde import encode


def packed(seen: Observations) -> Observations:
    """As the host of a meeting keeps them."""
    packing = Packing()

    def kept(one: Observation) -> Observation:
        if not isinstance(one, Seen):
            return one
        return dataclasses.replace(one, value=packing.of(json.loads(json.dumps(encode(one.value)))))

    checks = {c: {key: kept(one) for key, one in by.items()} for c, by in seen.checks.items()}
    return dataclasses.replace(seen, checks=checks)


def report(seen: Observations) -> str:
    seen = redact.without(seen, ("secret-of-a-user",))
    return as_json.render(verdict.judge(seen, catalogue(), Expect()))


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario(name: str) -> None:
    seen = observations(name)
    assert report(packed(seen)) == report(seen)


def often(seen: Observations, times: int) -> Observations:
    """A world in which each node is there so many times, with names and ranks of its own."""
    size = 1 + max((rank for node in seen.topology.nodes for rank in node.ranks), default=0)

    def named(name: str, turn: int) -> str:
        return f"{name}-{turn}"

    nodes = tuple(
        Node(named(n.name, turn), tuple(r + turn * size for r in n.ranks), n.addr, n.size)
        for turn in range(times)
        for n in seen.topology.nodes
    )
    checks: dict[str, dict[str, Observation]] = {check: {} for check in seen.checks}
    for check, by_key in seen.checks.items():
        for turn in range(times):
            for key, one in by_key.items():
                node, rank = place_of(key)
                told = named(node, turn) if node else node
                checks[check][key_of(told, None if rank is None else rank + turn * size)] = one
    topology = dataclasses.replace(seen.topology, nodes=nodes, size=size * times)
    return dataclasses.replace(seen, topology=topology, checks=checks)


NUMBERS = st.floats(0.5, 1.5) | st.sampled_from(["", None, 7])
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.integers(0, 10**6), NUMBERS | st.sampled_from(["", None, 7])
    ),
    max_size=12,
)


def changed(seen: Observations, changes: list[tuple[int, int, Any]]) -> Observations:
    """With other leaves here and there, also such as no check would tell."""
    checks = {check: dict(by_key) for check, by_key in seen.checks.items()}
    keys = [(c, key) for c, by in checks.items() for key, o in by.items() if isinstance(o, Seen)]
    for number, leaf, new in changes:
        check, key = keys[number % len(keys)]
        one = checks[check][key]
        assert isinstance(one, Seen)
        value = copy.deepcopy(encode(one.value))
        places = list(leaves(value))
        if places:
            within, step = places[leaf % len(places)]
            old = within[step]
            scaled = isinstance(old, float) and isinstance(new, float)
            within[step] = old * new if scaled else new
        checks[check][key] = dataclasses.replace(one, value=value)
    return dataclasses.replace(seen, checks=checks)


def leaves(data: Any) -> Any:
    steps = data.items() if isinstance(data, dict) else enumerate(data)
    for step, inner in steps if isinstance(data, (dict, list)) else ():
        if isinstance(inner, (dict, list)):
            yield from leaves(inner)
        else:
            yield data, step


@given(st.sampled_from(["healthy", *NAMES]), st.integers(1, 3), CHANGES)
@settings(max_examples=25, deadline=None)
def test_any_world(name: str, times: int, changes: list[tuple[int, int, Any]]) -> None:
    seen = changed(often(observations(name), times), changes)
    assert report(packed(seen)) == report(seen)


def test_a_hundred_nodes_in_groups() -> None:
    """From 128 observations on they are written in groups."""
    seen = often(observations("healthy"), 70)
    seen = changed(seen, [(n * 7919, n * 31, 1.0 + n / 1000) for n in range(200)])
    kept = packed(seen)
    values = [o.value for by in kept.checks.values() for o in by.values() if isinstance(o, Seen)]
    assert any(isinstance(value, Packed) for value in values)
    assert report(kept) == report(seen)
    read = as_json.parse(report(kept))
    assert as_json.render(read) == report(seen)
