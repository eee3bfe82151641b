"""The results of copies between GPUs: which are slow, and what a lost observation had copied. Pure.

Healthy copies differ by far more than faulty ones do: below one switch, across it, across sockets,
through the host's memory. So only those are compared of which it is known that they are alike, and
each with its own way back; a slow pair that has no peers stays unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from preflight.frozen import dataclass
from preflight.humanize import MIB
from preflight.inference import outliers
from preflight.model import Mark

Pair = tuple[int, int]

BLOCK = 64 * MIB
"""Bytes of one copy: large enough for full speed."""

BEYOND = re.compile(r"peer mapping resources exhausted|too many peers", re.IGNORECASE)
"""cudaErrorTooManyPeers: without NVSwitch a GPU may map eight others (CUDA Programming Guide,
"Peer-to-Peer Memory Access"), and torch keeps all it ever mapped. That is no fault."""

TEXT = 200
STEP = re.compile(r"(copy|wrong|failed) ([0-9]{1,4})->([0-9]{1,4})(?:: (.*))?", re.DOTALL)

SLOW = 0.5
"""Of the median of the same kind. Published matrices of NVIDIA's p2pBandwidthLatencyTest differ by
less than a tenth within a kind; a GPU that has lost half of its lanes or of its slot does half."""
BACK = 0.4
"""Of the way back, where nothing else is known: more generous, since between sockets one way may be
somewhat slower than the other."""

ALIKE_ON_NODES, ALIKE_HERE = "NVLink", ("PIX", "PXB")
"""Ways of one kind: the same number of lanes wherever it is; PCIe switches of one machine. Above
them the way leads through CPUs, and pairs differ by where they are."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A pair in one direction, by the GPUs' numbers.

    peer     whether the driver lets the first one write to the second one; else the data go
             through the host's memory. None: not told
    way      what joins them: `NVLink` with lanes, or the topology level; empty when not told
    wrong    what is wrong with what arrived; empty when it is exact
    error    what torch raised instead
    stuck    seconds for which it was waited for in vain
    rate     bytes per second
    """

    source: int
    target: int
    peer: bool | None = None
    way: str = ""
    wrong: str = ""
    error: str = ""
    stuck: float | None = None
    rate: float | None = None

    @property
    def pair(self) -> Pair:
        return self.source, self.target

    @property
    def beyond(self) -> bool:
        """CUDA maps no more peers for this GPU."""
        return bool(BEYOND.search(self.error))

    @property
    def exact(self) -> bool:
        return not (self.wrong or self.error) and self.stuck is None

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class CopyGpu:
    """A GPU. number: NVML's where it is known, else torch's; lacks: why it takes no part."""

    number: int
    name: str = ""
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied between the GPUs of a node, in blocks of so many bytes. `ended`: why no more
    than that; `virtual`: a virtual machine, None when nothing tells; `avoided`: NCCL is told to let
    no GPU write to another."""

    parties: tuple[CopyGpu, ...]
    copies: tuple[Copy, ...]
    block: int = BLOCK
    ended: str = ""
    virtual: bool | None = None
    avoided: bool = False


def copies_from_marks(marks: Sequence[Mark]) -> tuple[tuple[Copy, ...], tuple[Copy, float] | None]:
    """The copies that an observation had made before it was lost, and the one that it was at then,
    with the time of its beginning."""
    made: dict[Pair, Copy] = {}
    at: tuple[Copy, float] | None = None
    for mark in marks:
        found = STEP.fullmatch(mark.name)
        at = None
        if found is None:
            continue
        copy = Copy(int(found[2]), int(found[3]))
        text = (found[4] or "?")[:TEXT]
        if found[1] == "copy":
            at = copy, mark.at
        elif found[1] == "wrong":
            copy = replace(copy, wrong=text)
        else:
            copy = replace(copy, error=text)
        made[copy.pair] = copy
    if at is not None:
        del made[at[0].pair]
    return tuple(made.values()), at


@dataclass(frozen=True, slots=True)
class SlowCopies:
    """A GPU whose copies are slow with all others of its kind, or a pair. `usual`: bytes per second
    of their kind; `back`: of the way back, which is all that it was compared with."""

    gpus: tuple[int, ...]
    copies: tuple[Copy, ...]
    usual: float
    back: bool = False


@dataclass
class _CopyClass:
    """Copies that should be equally fast: (node, numbers) -> copy."""

    copies: dict[tuple[str, Pair], Copy] = field(default_factory=dict)

    def partners(self) -> dict[tuple[str, int], set[int]]:
        found: dict[tuple[str, int], set[int]] = {}
        for node, (source, target) in self.copies:
            found.setdefault((node, source), set()).add(target)
            found.setdefault((node, target), set()).add(source)
        return found


def slow_copies(nodes: Mapping[str, Copied]) -> dict[str, list[SlowCopies]]:
    """What is slow, by node."""
    found: dict[str, list[SlowCopies]] = {}
    told: set[tuple[str, frozenset[int]]] = set()
    for kind in _classes(nodes).values():
        for node, one in (*_slow_gpus(kind, told), *_slow_pairs(kind, told)):
            found.setdefault(node, []).append(one)
    for node, seen in nodes.items():
        names = {party.number: party.name for party in seen.parties}
        by_pair = {copy.pair: copy for copy in seen.copies if copy.rate and copy.peer}
        for (source, target), copy in by_pair.items():
            back = by_pair.get((target, source))
            alike = names.get(source, "") == names.get(target, "") != ""
            if back is None or not alike or (node, frozenset(copy.pair)) in told:
                continue
            if (copy.rate or 0.0) < BACK * (back.rate or 0.0):
                one = SlowCopies((source, target), (copy,), back.rate or 0.0, back=True)
                found.setdefault(node, []).append(one)
    return found


def _classes(nodes: Mapping[str, Copied]) -> Mapping[tuple[object, ...], _CopyClass]:
    kinds: dict[tuple[object, ...], _CopyClass] = {}
    for node, seen in nodes.items():
        names = {party.number: party.name for party in seen.parties}
        for copy in seen.copies:
            one, other = (names.get(number, "") for number in copy.pair)
            if one != other or not one or not copy.peer or not copy.rate:
                continue
            # the topology that a virtual machine shows is made up
            here = copy.way in ALIKE_HERE and seen.virtual is False
            if copy.way.startswith(ALIKE_ON_NODES) or here:
                key = (one, copy.way, seen.block, node if here else "")
                kinds.setdefault(key, _CopyClass()).copies[node, copy.pair] = copy
    return kinds


def _slow_gpus(
    kind: _CopyClass, told: set[tuple[str, frozenset[int]]]
) -> list[tuple[str, SlowCopies]]:
    """GPUs whose very best copy is slow: the others may be slow for their partners' sake."""
    partners = kind.partners()
    best: tuple[dict[str, float], dict[str, float]] = ({}, {})
    keys: dict[str, tuple[str, int]] = {}
    for (node, pair), copy in kind.copies.items():
        for end, number in enumerate(pair):
            if len(partners[node, number]) > 1:  # of two the pair is slow
                name = f"{node} {number}"
                keys[name] = node, number
                best[end][name] = max(best[end].get(name, 0.0), copy.rate or 0.0)
    compared = [outliers(rates, floor=SLOW, high=False) for rates in best]
    odd = {keys[name]: of.median for of in compared for name in of.odd}
    found = []
    for (node, number), usual in odd.items():
        its = tuple(
            copy
            for (where, pair), copy in kind.copies.items()
            if where == node and number in pair and (copy.rate or 0.0) <= SLOW * usual
        )
        told |= {(node, frozenset(copy.pair)) for copy in its}
        found.append((node, SlowCopies((number,), its, usual)))
    return found


def _slow_pairs(
    kind: _CopyClass, told: set[tuple[str, frozenset[int]]]
) -> list[tuple[str, SlowCopies]]:
    """Pairs that are slow though both GPUs are fast elsewhere, or have nobody else."""
    left = {
        f"{node} {copy}": (node, copy)
        for (node, pair), copy in kind.copies.items()
        if (node, frozenset(pair)) not in told
    }
    of = outliers(
        {key: copy.rate or 0.0 for key, (_, copy) in left.items()}, floor=SLOW, high=False
    )
    both: dict[tuple[str, frozenset[int]], list[Copy]] = {}
    for node, copy in (left[key] for key in of.odd):
        both.setdefault((node, frozenset(copy.pair)), []).append(copy)
    told |= set(both)
    return [
        (node, SlowCopies(tuple(sorted(ends)), tuple(copies), of.median))
        for (node, ends), copies in both.items()
    ]
