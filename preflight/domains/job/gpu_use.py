"""What a rank's GPU did while the rank took its steps, as the driver told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median

from preflight.frozen import dataclass

LOADED = 0.5
"""Part of the time that a GPU computes at a look whose clock counts: an idle one clocks down."""
LEAST = 5
"""Looks from which anything is said of a GPU."""


@dataclass(frozen=True, slots=True)
class GpuLook:
    """One look at a GPU, `at` seconds on a clock that only counts forward. busy: part of the time
    before it in which anything computed there; clock in MHz, used in bytes, power in watts. None:
    the driver does not tell."""

    at: float
    busy: float | None = None
    clock: float | None = None
    used: int | None = None
    power: float | None = None


@dataclass(frozen=True, slots=True)
class WatchedGpu:
    """A GPU of this node, by its number there, and the looks at it."""

    index: int
    name: str = ""
    uuid: str = ""
    bus: str = ""
    memory: int = 0
    looks: tuple[GpuLook, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Of a rank that trains. index: the driver's number of its GPU; None where that is not known,
    and then nothing but `reserved` is. looks: how many there were since its first steps, loaded:
    those at which the GPU computed; busy, power: means over all of them, clock: the median over the
    loaded ones; used: bytes in use on the GPU at most, by whomever; reserved: those that torch's
    allocator has taken there at most."""

    index: int | None = None
    name: str = ""
    looks: int = 0
    loaded: int = 0
    busy: float | None = None
    clock: float | None = None
    power: float | None = None
    used: int = 0
    memory: int = 0
    reserved: int = 0
    ranks: int = 1
    """Of this job that have this GPU."""

    @property
    def share(self) -> float | None:
        """Part of the time in which the GPU computed for this rank. None of too few looks, and
        where it computes for other ranks as well."""
        return self.busy if self.looks >= LEAST and self.ranks == 1 else None


def use_of(
    gpu: WatchedGpu | None, reserved: int, since: float, until: float, ranks: int = 1
) -> GpuUse:
    """What a GPU, which `ranks` ranks share, did from `since` to `until`."""
    if gpu is None:
        return GpuUse(reserved=reserved)
    looks = [look for look in gpu.looks if since <= look.at <= until]
    busy = [look.busy for look in looks if look.busy is not None]
    power = [look.power for look in looks if look.power is not None]
    clocks = [look.clock for look in looks if look.clock and (look.busy or 0.0) >= LOADED]
    return GpuUse(
        index=gpu.index,
        name=gpu.name,
        looks=len(busy),
        loaded=len(clocks),
        busy=round(fmean(busy), 3) if busy else None,
        clock=float(median(clocks)) if clocks else None,
        power=round(fmean(power), 1) if power else None,
        used=max((look.used or 0 for look in looks), default=0),
        memory=gpu.memory,
        reserved=reserved,
        ranks=ranks,
    )


def slow_clocks(uses: Mapping[str, GpuUse], below: float) -> dict[str, float]:
    """key -> the median clock of its peers, of those whose own is below so much of it. Peers are
    loaded GPUs of the same model; two have no majority, and a half of them is none."""
    loaded = {key: use for key, use in uses.items() if use.clock and use.loaded >= LEAST}
    found, alike = {}, 0
    for key, use in loaded.items():
        peers = [p.clock or 0.0 for k, p in loaded.items() if k != key and p.name == use.name]
        if len(peers) >= 2 and (use.clock or 0.0) < below * median(peers):
            found[key] = median(peers)
            alike = max(alike, len(peers) + 1)
    return found if 2 * len(found) < alike else {}
