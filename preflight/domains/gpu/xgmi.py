"""What joins AMD's GPUs: XGMI as KFD's topology has it, and what is odd about it.

KFD links every GPU of a hive with every other one (amdkfd/kfd_crat.c, kfd_create_vcrat_image_gpu):
a pair without XGMI is of two hives, or one of the two has not joined its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from preflight.domains.gpu import kfd as amd
from preflight.domains.gpu.nvlink import GPUS_MAX, Joined, Lane, LinkedGpu, bridges, iommu
from preflight.host import Host
from preflight.inference import consensus


def ask(host: Host, mark: Callable[[str], None]) -> Joined:
    """The GPUs that this process may open, each with a lane for every GPU that XGMI leads to."""
    mark("/sys/class/kfd")
    given = amd.visible(host)[:GPUS_MAX]
    buses = {node.number: node.bus for node in amd.nodes(host)}
    gpus = tuple(
        LinkedGpu(
            index,
            name=amd.name(host, node.bus),
            uuid=node.uuid,
            bus=node.bus,
            lanes=tuple(Lane(n, active=True, remote=buses.get(n, "")) for n in node.links),
            above=bridges(host, node.bus),
            iommu=iommu(host, node.bus),
        )
        for index, node in enumerate(given)
    )
    return Joined(driver=amd.module_version(host), count=len(gpus), gpus=gpus)


def apart(nodes: Mapping[str, Joined]) -> dict[str, list[tuple[LinkedGpu, LinkedGpu]]]:
    """Pairs of one model on one node that XGMI does not join, where it joins most of them. Pure."""
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
