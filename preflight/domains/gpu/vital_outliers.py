"""Finds GPUs whose VBIOS, NVLink domain, count of corrected errors or memory temperature is not
that of their peers.

Pure. All functions take the GPUs of the job by node. Two alone are no majority: then both are told.

NVLink domain   nvml.h, nvmlGpuFabricInfo_t: GPUs with the same cluster UUID and the same clique
                reach each other over NVLink; without one the UUID is all zeros
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from preflight.domains.gpu.vitals import VGPU, Vitals
from preflight.frozen import dataclass
from preflight.humanize import parties
from preflight.inference import consensus

FLOOD, TIMES = 1000, 100
"""Corrected errors since the driver was loaded: hundreds are usual after months, thousands on one
GPU beside others that have next to none come from a weak row or channel."""
HOT_MEMORY, HOTTER = 95, 20
"""°C: what nvidia-smi names as the most for the memory of an A100, and how much more than its peers
have is no difference of load or place."""
PEERS = 3
"""GPUs of one model in a box that it takes to say what is usual there."""

RACK = 18
"""Compute trays of a GB200 NVL72, the largest NVLink domain: a larger job must have several."""
JOINED = 3
"""nvml.h, nvmlGpuFabricState_t: completed."""
SHOWN = 4

Place = tuple[str, int | None]
"""A GPU by its node and index; without one the whole node."""
Nodes = Mapping[str, Sequence[Vitals]]


@dataclass(frozen=True, slots=True)
class Unlike:
    """Places that differ, what they have, and what the others have. `tie`: nobody can say which of
    them is the outlier. `alternatives`: what else it may be."""

    places: tuple[Place, ...]
    saw: str
    expected: str
    tie: bool = False
    alternatives: tuple[str, ...] = ()


def place_name(place: Place) -> str:
    node, index = place
    return node if index is None else f"{node} GPU {index}"


def _unlike(values: Mapping[Place, str], goal: str) -> Iterator[Unlike]:
    """The odd ones by majority; without one both sides."""
    places = {place_name(place): place for place in values}
    agreed = consensus({place_name(place): value for place, value in values.items()})
    odd = list(agreed.odd.items())
    for sides in [odd] if agreed.tie else [[side] for side in odd]:
        yield Unlike(
            tuple(places[who] for _, some in sides for who in some),
            " · ".join(f"{value} on {parties(some, 3)}" for value, some in sides[:SHOWN]),
            goal if agreed.tie else f"{agreed.value}, as on {parties(agreed.holders, 3)}",
            agreed.tie,
            tuple(f"{parties(some, 3)} is the one that differs" for _, some in sides[:SHOWN])
            if agreed.tie
            else (),
        )


_version = attrgetter("name", "board", "vbios", "virtual")


def other_vbios(nodes: Nodes) -> Iterator[Unlike]:
    """GPUs of one model and board with other VBIOS than most of them. Nodes that have one version
    each are compared as nodes, whatever number of GPUs they have."""
    told = {_version(gpu) for gpus in nodes.values() for gpu in gpus}
    if max(Counter((name, board) for name, board, *_ in told).values(), default=0) < 2:
        return
    boards: dict[tuple[str, int], dict[Place, str]] = {}
    for node, gpus in nodes.items():
        for gpu in gpus:
            if gpu.name and gpu.vbios and gpu.virtual != VGPU:
                boards.setdefault((gpu.name, gpu.board), {})[node, gpu.index] = gpu.vbios
    for versions in boards.values():
        each: dict[str, set[str]] = {}
        for (node, _), version in versions.items():
            each.setdefault(node, set()).add(version)
        alike: dict[Place, str] = {(node, None): min(told) for node, told in each.items()}
        mixed = any(len(told) > 1 for told in each.values())
        yield from _unlike(versions if mixed else alike, "one VBIOS version on all of them")


def corrected_floods(gpus: Sequence[Vitals]) -> Iterator[tuple[Vitals, int]]:
    """GPUs of one box with a hundred times as many corrected errors as the others of their model,
    with what these have."""
    for gpu in gpus:
        mine = gpu.corrected or 0
        if mine < FLOOD:
            continue
        others = [
            other.corrected
            for other in gpus
            if other is not gpu and other.name == gpu.name and other.corrected is not None
        ]
        if len(others) + 1 >= PEERS:
            usual = int(_median(others))
            if mine >= TIMES * max(1, usual):
                yield gpu, usual


def hot_memory(gpus: Sequence[Vitals]) -> Iterator[tuple[Vitals, int]]:
    """GPUs of one box whose memory is hot while that of the others of their model is not, with what
    these have: where the driver names no limit."""
    for gpu in gpus:
        mine = gpu.memory_temperature or 0
        if mine < HOT_MEMORY or gpu.memory_max:
            continue
        others = [
            other.memory_temperature
            for other in gpus
            if other is not gpu and other.name == gpu.name and other.memory_temperature
        ]
        if len(others) + 1 >= PEERS and mine >= _median(others) + HOTTER:
            yield gpu, int(_median(others))


def _median(values: Sequence[int]) -> float:
    from statistics import median  # with fractions and random, which few machines have a use for

    return median(values)


def other_domains(nodes: Nodes) -> Iterator[Unlike]:
    """GPUs of a tray, then trays, that are not in the NVLink domain of the others of their model.
    Several domains are no fault: a job that is larger than a rack or a partition has several."""
    each = {(id(gpu.fabric), gpu.mig): gpu for gpus in nodes.values() for gpu in gpus}
    if len(set(map(_domain, each.values()))) < 2:
        return  # all in one, or none in any
    models: dict[str, dict[str, list[Vitals]]] = {}
    for node, gpus in nodes.items():
        for gpu in gpus:
            models.setdefault(gpu.name, {}).setdefault(node, []).append(gpu)
    for alike in models.values():
        yield from _other_domains(alike)


def _other_domains(nodes: Nodes) -> Iterator[Unlike]:
    trays: dict[str, tuple[str, int]] = {}
    for node, gpus in nodes.items():
        domains = {g.index: d for g in gpus if (d := _domain(g)) is not None}
        if len(set(domains.values())) > 1:
            told: dict[Place, str] = {(node, i): _text(d) for i, d in domains.items()}
            yield from _unlike(told, "one NVLink domain for the GPUs of a tray")
        elif domains:
            trays[node] = next(iter(domains.values()))
    yield from _outside(trays)
    inside = {node: domain for node, domain in trays.items() if domain[0]}
    agreed = consensus(inside)
    if agreed.tie:
        if len(inside) == 2 and len({cluster for cluster, _ in inside.values()}) == 1:
            cliques: dict[Place, str] = {(node, None): _text(d) for node, d in inside.items()}
            yield from _unlike(cliques, "one clique for trays of one cluster")
        return
    for domain, some in agreed.odd.items():
        assert agreed.value is not None
        other_rack = domain[0] != agreed.value[0]
        # several trays beside are a second rack or partition, on purpose
        if len(some) == 1 and not (other_rack and len(trays) > RACK):
            yield Unlike(
                ((some[0], None),),
                f"{_text(domain)} on {some[0]}",
                f"{_text(agreed.value)}, as on {parties(agreed.holders, 3)}",
                alternatives=("the scheduler took it from another rack, the first being full",)
                if other_rack
                else (),
            )


def _outside(trays: Mapping[str, tuple[str, int]]) -> Iterator[Unlike]:
    """Trays that are in no NVLink domain while others are."""
    told: dict[Place, str] = {
        (node, None): "in an NVLink domain" if cluster else "in no NVLink domain"
        for node, (cluster, _) in trays.items()
    }
    for one in _unlike(told, "all trays in an NVLink domain"):
        # most are in none: then the rack is not set up as one, and the others are
        if one.tie or "in no NVLink domain" in one.saw:
            yield one


def _domain(gpu: Vitals) -> tuple[str, int] | None:
    """Cluster and clique of a GPU that has joined its fabric; None of others."""
    fabric = gpu.fabric
    if fabric is None or gpu.mig or fabric.state != JOINED or fabric.status:
        return None
    return fabric.cluster, fabric.clique if fabric.cluster else 0


def _text(domain: tuple[str, int]) -> str:
    cluster, clique = domain
    return f"clique {clique} of cluster {cluster[:8]}" if cluster else "no NVLink domain"
