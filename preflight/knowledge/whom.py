"""Ranks in words: with their nodes where there are several, and all of a node as one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from preflight.compare import parties
from preflight.model import World, place_of

RANKS, NODES = 8, 4
"""So many are named, of the others there is a number or `…`."""


def several(world: World[Any]) -> bool:
    """Whether a rank's number alone leaves open on which node it is."""
    return len({place_of(key)[0] for key in world.observations}) > 1


def on_nodes(keys: Iterable[str]) -> dict[str, list[str]]:
    """Node -> those of these keys that are its own."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(place_of(key)[0], []).append(key)
    return found


def whole_node(world: World[Any], keys: Iterable[str]) -> str:
    """The node whose ranks, all of them, these are, where there are several nodes; else empty."""
    if not several(world):
        return ""
    nodes = on_nodes(keys)
    if len(nodes) != 1:
        return ""
    ((node, own),) = nodes.items()
    return node if len(own) == len(on_nodes(world.observations)[node]) else ""


def one_of_two(world: World[Any], keys: Iterable[str]) -> bool:
    """Whether these are all ranks of one of two nodes: two parties, of which none is the majority,
    however many ranks each has."""
    return bool(whole_node(world, keys)) and len(on_nodes(world.observations)) == 2


def ranks(world: World[Any], keys: Iterable[str]) -> str:
    """`rank 5`, `ranks 4, 5`; of several nodes `rank 5 on n3`, `all 4 ranks of n3`."""
    if not several(world):
        return _numbers(keys)
    everybody = on_nodes(world.observations)
    nodes = on_nodes(keys)
    whole = [n for n, own in nodes.items() if len(own) == len(everybody[n]) and len(own) > 1]
    parts = []
    if len(whole) == 1:
        parts.append(f"all {len(everybody[whole[0]])} ranks of {whole[0]}")
    elif whole:
        parts.append(f"all ranks of {parties(whole, NODES)}")
    rest = [n for n in nodes if n not in whole]
    parts += [f"{_numbers(nodes[n])} on {n}" for n in rest[:NODES]]
    if len(rest) > NODES:
        parts.append(f"ranks of {len(rest) - NODES} more nodes")
    return " and ".join(parts)


def numbered(numbers: Iterable[int]) -> str:
    """`rank 5`, `ranks 4, 5` of ranks that are known by their numbers alone."""
    return _numbers(str(number) for number in sorted(numbers))


def _numbers(keys: Iterable[str]) -> str:
    numbers = [key if (rank := place_of(key)[1]) is None else str(rank) for key in keys]
    shown = ", ".join(numbers[:RANKS]) + (", …" if len(numbers) > RANKS else "")
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"
