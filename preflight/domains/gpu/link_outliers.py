"""Finds GPUs and pairs with fewer or slower links than peers. Pure; two alone are no majority.

All functions but slow_lanes take the topology of each node, and return what differs by node.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

from preflight.domains.gpu import nvlink
from preflight.domains.gpu.nvlink import GpuTopology, LinkedGpu, Pair
from preflight.domains.params import NVLINKED
from preflight.frozen import dataclass
from preflight.humanize import parties
from preflight.inference import MAJORITY_OF, consensus
from preflight.model import each_once

SHOWN = 6


@dataclass(frozen=True, slots=True)
class MissingLanes:
    """A GPU with fewer lanes up than `usual`. `lost` are the numbers of links that are down and are
    not so on the others."""

    gpu: LinkedGpu
    usual: int
    holders: tuple[str, ...]
    lost: tuple[int, ...]

    @property
    def text(self) -> str:
        shown = ", ".join(map(str, self.lost[:SHOWN])) + ", …" * (len(self.lost) > SHOWN)
        named = f"link {shown} down, " if self.lost and self.gpu.active else ""
        return f"GPU {self.gpu.index}: {named}{self.gpu.active} of {self.usual} lanes up"


def missing_lanes(
    nodes: Mapping[str, GpuTopology], virtual: frozenset[str]
) -> dict[str, list[MissingLanes]]:
    """GPUs with fewer lanes than more than half of their model; without such a majority, with fewer
    than several that have all of theirs up to switches, which a board wires to its GPUs alike.
    `virtual` are nodes that are virtual machines."""
    models: dict[str, dict[str, tuple[str, LinkedGpu]]] = {}
    uneven = _uneven(each_once(nodes.values()))
    for node, joined in nodes.items() if uneven else ():
        told = nvlink.STATE not in joined.refused
        for gpu in joined.gpus:
            if (gpu.lanes or told) and gpu.whole and gpu.name in uneven:
                models.setdefault(gpu.name, {})[f"{node} GPU {gpu.index}"] = node, gpu
    found: dict[str, list[MissingLanes]] = {}
    for gpus in models.values():
        agreed = consensus({who: gpu.active for who, (_, gpu) in gpus.items()})
        usual, holders = agreed.value, agreed.holders
        if agreed.tie and all(gpu.switched for _, gpu in gpus.values()):
            usual = max(gpu.active for _, gpu in gpus.values())
            holders = tuple(who for who, (_, gpu) in gpus.items() if gpu.active == usual)
            if len(holders) < 2 or any(_down(gpus[who][1]) for who in holders):
                continue
        peers = [gpus[who][1] for who in holders]
        switched = any(peer.switched for peer in peers)
        for node, gpu in gpus.values():
            if usual is None or gpu.active >= usual:
                continue
            # a card without a bridge is no fault, nor is a GPU that has nobody to talk to; a
            # virtual machine may have got only some of the GPUs that a board wires together
            unwired = not gpu.active and len(nodes[node].gpus) == 1
            wired = bool(gpu.active or (NVLINKED.search(gpu.name) and not unwired))
            if (switched and not unwired) or (wired and node not in virtual):
                usually = set.intersection(*(_down(peer) for peer in peers))
                lost = tuple(sorted(_down(gpu) - usually))
                found.setdefault(node, []).append(MissingLanes(gpu, usual, holders, lost))
    return found


def boards_without_lanes(
    nodes: Mapping[str, GpuTopology],
) -> dict[str, list[LinkedGpu]]:
    """GPUs of a board that NVLink joins by the model's design, none of which has a lane up. Cards
    for a slot are none of these: their bridges are sold apart."""
    found = {}
    for node, joined in nodes.items():
        gpus = [*joined.gpus]
        told = nvlink.STATE not in joined.refused or all(gpu.lanes for gpu in gpus)
        alike = len({gpu.name for gpu in gpus}) == 1 and len(gpus) > 1
        down = all(gpu.whole and not gpu.active for gpu in gpus)
        if told and alike and down and NVLINKED.search(gpus[0].name):
            found[node] = gpus
    return found


def cards_without_lanes(nodes: Mapping[str, GpuTopology]) -> dict[str, list[LinkedGpu]]:
    """The GPUs of nodes without any lane that is up, of a model that has some on another node."""
    linked: dict[str, set[str]] = {}
    for node, joined in nodes.items():
        for gpu in joined.gpus:
            if gpu.active:
                linked.setdefault(gpu.name, set()).add(node)
    found = {}
    for node, joined in nodes.items() if linked else ():
        told = nvlink.STATE not in joined.refused
        if told and not any(gpu.active for gpu in joined.gpus):
            cards = [gpu for gpu in joined.gpus if gpu.whole and gpu.name and gpu.name in linked]
            found[node] = cards if len(joined.gpus) > 1 else []
    return {node: cards for node, cards in found.items() if cards}


SAME = 0.02
"""Of the larger one: speeds that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class SlowLanes:
    """A GPU with active lanes that are slower than usual: lane -> speed in MB/s. `agreed` of the
    `compared` lanes of its model in this node have the speed `usual`."""

    gpu: LinkedGpu
    speeds: Mapping[int, int]
    usual: int
    agreed: int
    compared: int

    @property
    def text(self) -> str:
        """`GPU 2: lanes 7, 9 at 13281 of 26562 MB/s`."""
        by_speed: dict[int, list[str]] = {}
        for lane, speed in self.speeds.items():
            by_speed.setdefault(speed, []).append(str(lane))
        parts = (
            f"lane{'s' * (len(lanes) > 1)} {parties(lanes, SHOWN)} at {speed} of {self.usual} MB/s"
            for speed, lanes in sorted(by_speed.items())[:SHOWN]
        )
        return f"GPU {self.gpu.index}: {', '.join(parts)}"


def slow_lanes(joined: GpuTopology) -> list[SlowLanes]:
    """GPUs of a node with lanes slower than the speed that more than half of the active lanes of
    their model have here; none where there are fewer than three."""
    models: dict[str, list[LinkedGpu]] = {}
    for gpu in joined.gpus:
        if gpu.name and gpu.whole:
            models.setdefault(gpu.name, []).append(gpu)
    found = []
    for gpus in models.values():
        told = [_speeds(gpu) for gpu in gpus]
        counts = Counter(speed for speeds in told for speed in speeds.values())
        if len(counts) < 2:  # all alike, or nothing is told
            continue
        near = {s: sum(n for t, n in counts.items() if _same(s, t)) for s in counts}
        usual = max(near, key=lambda s: (near[s], counts[s], s))
        compared = counts.total()
        if compared < MAJORITY_OF or 2 * near[usual] <= compared:
            continue
        for gpu, speeds in zip(gpus, told, strict=True):
            slow = {n: s for n, s in speeds.items() if s < usual and not _same(s, usual)}
            if slow:
                found.append(SlowLanes(gpu, slow, usual, near[usual], compared))
    return found


def _same(one: int, other: int) -> bool:
    return abs(one - other) < SAME * max(one, other)


def _speeds(gpu: LinkedGpu) -> dict[int, int]:
    """Lane -> speed, of the active lanes that tell it."""
    return {lane.number: lane.speed for lane in gpu.lanes if lane.active and lane.speed}


def _down(gpu: LinkedGpu) -> set[int]:
    return {lane.number for lane in gpu.lanes if not lane.active}


def _uneven(told: Iterable[GpuTopology]) -> set[str]:
    """The models whose GPUs have not all as many lanes: of others there is nothing to compare."""
    lanes: dict[str, set[int]] = {}
    for gpu in (gpu for joined in told for gpu in joined.gpus if gpu.name):
        lanes.setdefault(gpu.name, set()).add(gpu.active)
    return {name for name, counts in lanes.items() if len(counts) > 1}


def missing_lanes_between(nodes: Mapping[str, GpuTopology]) -> dict[str, list[str]]:
    """Pairs with fewer lanes between them than the same pair has on most nodes with the very same
    GPUs; in words."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node, joined in nodes.items():
        if all(gpu.whole and gpu.name for gpu in joined.gpus):
            alike.setdefault(tuple(gpu.name for gpu in joined.gpus), []).append(node)
    found: dict[str, list[str]] = {}
    for some in alike.values():
        # of what many nodes have in common there is one
        known = {id(nodes[node]): nodes[node] for node in some}
        made = {number: _lanes_by_pair(joined) for number, joined in known.items()}
        lanes = {node: made[id(nodes[node])] for node in some}
        for one, other in sorted({pair for between in made.values() for pair in between}):
            agreed = consensus({node: lanes[node].get((one, other), 0) for node in some})
            usual = agreed.value or 0
            for count, odd in agreed.odd.items():
                for node in odd if count < usual else ():
                    text = f"GPUs {one}/{other}: {count} of {usual}"
                    found.setdefault(node, []).append(f"{text} on {parties(agreed.holders)}")
    return found


def _lanes_by_pair(joined: GpuTopology) -> dict[tuple[int, int], int]:
    pairs = {
        (one.index, other.index): one.lanes_to(other)
        for one in joined.gpus
        for other in joined.gpus[one.index + 1 :]
    }
    return {pair: lanes for pair, lanes in pairs.items() if lanes}


def by_nvlink(one: LinkedGpu, other: LinkedGpu) -> bool:
    """Whether NVLink joins two GPUs, directly or through switches."""
    return (one.switched and other.switched) or one.lanes_to(other) > 0


def pairs_without_p2p(
    nodes: Mapping[str, GpuTopology], virtual: frozenset[str]
) -> dict[str, list[Pair]]:
    """Pairs below one CPU's switches, without NVLink, that have no P2P where most pairs of these
    models at this level have it. In a virtual machine that is as the host has grouped them."""
    known = {id(joined): joined for joined in nodes.values()}.values()
    if not any(pair.reason for joined in known for pair in joined.pairs):
        return {}
    alike: dict[tuple[str, ...], dict[str, tuple[str, Pair]]] = {}
    for node, joined in nodes.items():
        for pair in joined.pairs if node not in virtual else ():
            one, other = joined.ends(pair)
            near = pair.level is not None and pair.level <= nvlink.MULTIPLE
            comparable = near and one.name and other.name and one.whole and other.whole
            if comparable and pair.reason is not None and not by_nvlink(one, other):
                kind = (*sorted((one.name, other.name)), str(pair.level))
                alike.setdefault(kind, {})[f"{node} {pair.name}"] = node, pair
    found: dict[str, list[Pair]] = {}
    for pairs in alike.values():
        agreed = consensus({who: not pair.reason for who, (_, pair) in pairs.items()})
        for who in agreed.odd.get(False, ()) if agreed.value else ():
            node, pair = pairs[who]
            found.setdefault(node, []).append(pair)
    return found


def pairs_without_xgmi(
    nodes: Mapping[str, GpuTopology],
) -> dict[str, list[tuple[LinkedGpu, LinkedGpu]]]:
    """Pairs of one model on one node that XGMI does not join, where it joins most of them."""
    found: dict[str, list[tuple[LinkedGpu, LinkedGpu]]] = {}
    for node, joined in nodes.items():
        models: dict[str, dict[str, tuple[LinkedGpu, LinkedGpu]]] = {}
        for one, other in itertools.combinations(joined.gpus, 2):
            if one.name and one.name == other.name:
                models.setdefault(one.name, {})[f"{one.index}/{other.index}"] = one, other
        for pairs in models.values():
            agreed = consensus({p: one.lanes_to(other) > 0 for p, (one, other) in pairs.items()})
            if agreed.value:
                odd = agreed.odd.get(False, ())
                found.setdefault(node, []).extend(pairs[p] for p in odd)
    return {node: pairs for node, pairs in found.items() if pairs}
