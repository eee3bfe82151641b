"""Compares GPUs of one model, which must compute the same bits at about the same speed. Pure.

A key is a GPU's. What is named here is only ever compared within its model; where that has too few
GPUs nothing is concluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from statistics import median

from preflight.frozen import dataclass
from preflight.inference import consensus, outliers

SLOW = 0.15
"""Below the median of its model. Healthy GPUs of a model differ by 8 % on average and 22 % from the
best to the worst of a cluster (Sinha et al., SC22, arXiv 2208.11035), half of that from the median;
a GPU that is throttled loses a third or more there. Beyond the noise of its peers, besides."""

BUS_SLOW = 0.5
"""The way to the far socket, or a bus that neighbours use, costs up to a third; a link that came up
with a quarter of its lanes or two generations back has a quarter."""

NEIGHBOURS = 2
"""GPUs of the model on the same node without which nobody knows what this node's bus can do."""


@dataclass(frozen=True, slots=True)
class ComputeShortfall:
    """How far one GPU is behind its peers in one metric; `of` counts the GPUs of the model."""

    metric: str
    rate: float
    median: float
    of: int


Rates = Mapping[str, Mapping[str, float]]
"""key -> metric -> rate."""


def slow_gpus(
    rates: Rates, models: Mapping[str, Hashable], metrics: Collection[str]
) -> dict[str, list[ComputeShortfall]]:
    """Those that are slower than their model, and in what."""
    found: dict[str, list[ComputeShortfall]] = {}
    for metric, group in _by_model(rates, models, metrics, SLOW):
        seen = outliers(group, floor=SLOW, high=False)
        for key, rate in seen.odd.items():
            found.setdefault(key, []).append(
                ComputeShortfall(metric, rate, seen.median, len(group))
            )
    return found


def slow_buses(
    rates: Rates,
    models: Mapping[str, Hashable],
    node_of: Callable[[str], str],
    metrics: Collection[str],
) -> dict[str, list[ComputeShortfall]]:
    """Those whose way to the host is slower than that of the model, and than that of their
    neighbours: a node that is slow as a whole may be of another kind."""
    found: dict[str, list[ComputeShortfall]] = {}
    for metric, group in _by_model(rates, models, metrics, BUS_SLOW):
        seen = outliers(group, floor=BUS_SLOW, high=False)
        for key, rate in seen.odd.items():
            here = node_of(key)
            near = [n for k, n in group.items() if k != key and node_of(k) == here]
            if len(near) >= NEIGHBOURS and rate < (1 - BUS_SLOW) * median(near):
                found.setdefault(key, []).append(
                    ComputeShortfall(metric, rate, seen.median, len(group))
                )
    return found


def _by_model(
    rates: Rates, models: Mapping[str, Hashable], metrics: Collection[str], floor: float
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each metric with the GPUs of each model that have it, where the best and the worst of them
    are `floor` apart: else nobody can be that far below their median, and of a hundred thousand
    GPUs nothing is to be sorted."""
    told = {id(own): own for own in rates.values()}  # many have the same ones
    numbers = dict.fromkeys(
        zip(map(id, rates.values()), map(models.__getitem__, rates), strict=True)
    )
    ends: dict[tuple[str, Hashable], tuple[float, float]] = {}
    for number, model in numbers:
        for metric, rate in told[number].items():
            if metric.partition(" of ")[0] in metrics and 0 < rate < math.inf:
                least, most = ends.get((metric, model), (rate, rate))
                ends[metric, model] = min(least, rate), max(most, rate)
    for (metric, model), (least, most) in ends.items():
        if most - least >= floor * least:
            yield (
                metric,
                {
                    key: own[metric]
                    for key, own in rates.items()
                    if models[key] == model and own.get(metric, 0.0) > 0
                },
            )


@dataclass(frozen=True, slots=True)
class DifferingBits:
    """GPUs whose products have other bits than the rest; all `of` them where there is no majority.
    `sure`: one has bits of its own, and most have the same others. `unclear`: one has bits of its
    own, but it may be the only right one. Neither: no defect gives two GPUs the same wrong bits."""

    kinds: tuple[str, ...]
    keys: tuple[str, ...]
    of: int
    sure: bool
    unclear: bool


def differing_bits(
    digests: Mapping[str, Mapping[str, str]], alike: Mapping[str, Hashable]
) -> list[DifferingBits]:
    """Whose products have other bits. `digests`: key -> kind of numbers -> digest; `alike`: what
    must be the same so that the bits are."""
    groups: dict[tuple[Hashable, str], dict[str, str]] = {}
    for key, own in digests.items():
        for kind, digest in own.items():
            groups.setdefault((alike[key], kind), {})[key] = digest
    sure: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for (_, kind), group in groups.items():
        for keys in consensus(group).odd.values() if not consensus(group).tie else ():
            if len(keys) == 1:
                sure.setdefault((keys, len(group)), []).append(kind)
    named = {key for keys, _ in sure for key in keys}
    other: dict[tuple[tuple[str, ...], bool, int], list[str]] = {}
    for (_, kind), group in groups.items():
        # who is odd in one kind is no witness in another
        rest = {key: digest for key, digest in group.items() if key not in named}
        seen = consensus(rest)
        alone = seen.tie and any(len(keys) == 1 for keys in seen.odd.values())
        for keys in [tuple(rest)] if seen.tie else seen.odd.values():
            other.setdefault((keys, alone, len(rest)), []).append(kind)
    return [
        *(DifferingBits(tuple(kinds), keys, of, True, False) for (keys, of), kinds in sure.items()),
        *(
            DifferingBits(tuple(kinds), keys, of, False, un)
            for (keys, un, of), kinds in other.items()
        ),
    ]
