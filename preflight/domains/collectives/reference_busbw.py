"""What common systems reach in an all-reduce, and how to read a curve of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from preflight.frozen import dataclass

HALF = 0.5
"""Of the best bus bandwidth, from which on a size is bound by it and no longer by latency."""


@dataclass(frozen=True, slots=True)
class System:
    """GB/s of bus bandwidth, at 1 GiB and more, between all GPUs of one node. A hint, no bar."""

    model: str
    gpus: int
    gbs: float


SYSTEMS = (
    # Azure/azurehpc-health-checks at 0e0a1ac, floors: conf/nd40rs_v2.conf (messages of 8 GiB), and
    # those of NC80adis (two GPUs with NVLink bridges) and NC96ads (PCIe only)
    System("V100-SXM", 8, 110),
    System("H100 NVL", 2, 208),
    System("A100 80GB PCIe", 4, 25),
    # stas00/ml-engineering, network/README.md and network/benchmarks/README.md: measured
    System("A100-SXM", 8, 235),
    System("H200", 8, 482),
    System("B200", 8, 723),
    # NVIDIA/nccl-tests#290: what NVIDIA's staff call the expected range
    System("H100 80GB HBM3", 8, 476),
)


def hint(models: Collection[str], ranks: int) -> str:
    """`8 x H200 reach about 482 GB/s`; empty where the GPUs differ or nothing is known of them."""
    if len(models) != 1:
        return ""
    (model,) = models
    known = model.removeprefix("NVIDIA ").removeprefix("Tesla ")
    for system in SYSTEMS:
        # `H200 NVL` is another machine than `H200`
        rest = known.removeprefix(system.model)
        if rest != known and "NVL" not in rest and system.gpus == ranks:
            return f"{system.gpus} x {system.model} reach about {system.gbs:g} GB/s"
    return ""


def bound_from(speeds: Mapping[int, float]) -> int:
    """Of bus bandwidths by size: the size from which on all have half of the best, or more."""
    best = max(speeds.values())
    found = max(speeds)
    for count in sorted(speeds, reverse=True):
        if speeds[count] < HALF * best:
            break
        found = count
    return found


def gbs(rate: float) -> str:
    """GB/s as `181 GB/s`, `1.2 MB/s`."""
    return f"{rate:.3g} GB/s" if rate >= 0.01 else f"{rate * 1000:.3g} MB/s"
