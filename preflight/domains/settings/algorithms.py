"""Which collectives NCCL has no algorithm for, with a value of NCCL_ALGO. Pure.

User guide of NCCL, NCCL_ALGO: until 2.23 NCCL fell back to Ring; since 2.24 a collective without an
algorithm fails. Which algorithms a collective has is in src/device/generate.py (algos_of_coll).
"""

from __future__ import annotations

from collections.abc import Mapping

ALGORITHMS = "Ring Tree CollnetChain CollnetDirect NVLS NVLSTree PAT"

OF_COLLECTIVE: Mapping[str, frozenset[str]] = {
    "Broadcast": frozenset(("ring",)),
    "Reduce": frozenset(("ring",)),
    "AllGather": frozenset(("ring", "collnetdirect", "nvls", "pat")),
    "ReduceScatter": frozenset(("ring", "collnetdirect", "nvls", "pat")),
    "AllReduce": frozenset(("ring", "tree", "collnetdirect", "collnetchain", "nvls", "nvlstree")),
}
"""Collective -> its algorithms in lower case; whether the hardware has them is another matter."""

STRICT = (2, 24)
"""The first NCCL that does not fall back to Ring."""


def entries(value: str) -> list[tuple[str, str]]:
    """The (function, list of names) pairs of `[function:][^]a,b;…`, the function empty where none
    is named. parseList (src/graph/tuning.cc) splits an entry at its first colon and reads on to the
    next one."""
    parts = ([part for part in entry.split(":") if part] for entry in value.split(";"))
    return [("", part[0]) if len(part) == 1 else (part[0], part[1]) for part in parts if part]


def collectives_without_algorithm(value: str) -> tuple[str, ...]:
    """The collectives for which no algorithm is left, in NCCL's spelling and the order of
    OF_COLLECTIVE; a list without a function counts for all that are not named."""
    every = frozenset(ALGORITHMS.lower().split())
    left = dict.fromkeys(OF_COLLECTIVE, every)
    for function, names in entries(value):
        words = frozenset(filter(None, names.lower().removeprefix("^").split(",")))
        if words:
            allowed = every - words if names.startswith("^") else words
            named = {name for name in OF_COLLECTIVE if function.lower() in ("", name.lower())}
            left.update(dict.fromkeys(named, allowed))
    return tuple(name for name, allowed in left.items() if not allowed & OF_COLLECTIVE[name])


def falls_back(version: str) -> bool:
    """Whether an NCCL of this version, `2.21.5`, takes Ring for such a collective; False where the
    version is not told."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    return len(numbers) == len(STRICT) and tuple(numbers) < STRICT
