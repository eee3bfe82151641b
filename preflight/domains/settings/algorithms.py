"""Which collectives NCCL has no algorithm for, with a value of NCCL_ALGO. Pure.

User guide of NCCL, NCCL_ALGO: until 2.23 NCCL fell back to Ring; since 2.24 a collective without an
algorithm fails. Which algorithms a collective has is in src/device/generate.py (algos_of_coll).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
NONE: frozenset[str] = frozenset()
BY_PROTOCOL = (2, 31)
"""The first one in which a collective that NCCL_PROTO is about has only the algorithms that
NCCL_ALGO gives it by name (ncclTuningCostModelInit of src/tuning/cost_model.cc; seen in
vllm-project/vllm#58179)."""


def entries(value: str) -> list[tuple[str, str]]:
    """The (function, list of names) pairs of `[function:][^]a,b;…`, the function empty where none
    is named. parseList (src/graph/tuning.cc) splits an entry at its first colon and reads on to the
    next one."""
    parts = ([part for part in entry.split(":") if part] for entry in value.split(";"))
    return [("", part[0]) if len(part) == 1 else (part[0], part[1]) for part in parts if part]


def collectives_without_algorithm(
    value: str, protocols: str = "", version: str = ""
) -> tuple[str, ...]:
    """The collectives for which no algorithm is left, in NCCL's spelling and the order of
    OF_COLLECTIVE; a list without a function counts for all that are not named. `protocols` is the
    value of NCCL_PROTO, `version` of NCCL (`2.26.2`), both empty where not known."""
    every = frozenset(ALGORITHMS.lower().split())
    left = dict.fromkeys(OF_COLLECTIVE, every)
    if value and numbers(version) >= BY_PROTOCOL:
        left.update(dict.fromkeys((name for part in _lists(protocols) for name in part[0]), NONE))
    for names, words, but in _lists(value):
        left.update(dict.fromkeys(names, every - words if but else words))
    return tuple(name for name, allowed in left.items() if not allowed & OF_COLLECTIVE[name])


def _lists(value: str) -> Iterator[tuple[list[str], frozenset[str], bool]]:
    """Each list of a value that is not empty: the collectives that it is about, its words in lower
    case, and whether it is of what is left out."""
    for function, names in entries(value):
        words = frozenset(filter(None, names.lower().removeprefix("^").split(",")))
        if words:
            about = [name for name in OF_COLLECTIVE if function.lower() in ("", name.lower())]
            yield about, words, names.startswith("^")


def with_ring(value: str, protocols: str = "", version: str = "") -> str:
    """A value near this one that leaves no collective without an algorithm: `ring;allreduce:tree`
    for `Tree`."""
    for better in (f"ring;allreduce:{value.lower()}", f"ring;{value.lower()}"):
        named = all(function for function, _ in entries(better)[1:])
        if named and not collectives_without_algorithm(better, protocols, version):
            return better
    return "ring,tree"


def falls_back(version: str) -> bool:
    """Whether an NCCL of this version, `2.21.5`, takes Ring for such a collective; False where the
    version is not told."""
    return () < numbers(version) < STRICT


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, none where it has not two."""
    found = [int(part) for part in version.split(".")[:2] if part.isdecimal() and len(part) < 9]
    return tuple(found) if len(found) == len(STRICT) else ()
