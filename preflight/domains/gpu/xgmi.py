"""XGMI: which of AMD's GPUs of a node it joins, as KFD's topology says.

KFD links every GPU of a hive with every other one (amdkfd/kfd_crat.c, kfd_create_vcrat_image_gpu):
a pair without XGMI is of two hives, or one of the two has not joined its own.
"""

from __future__ import annotations

from collections.abc import Callable

from preflight.domains import pci
from preflight.domains.gpu import kfd
from preflight.domains.gpu.nvlink import GPUS_MAX, GpuTopology, Lane, LinkedGpu
from preflight.host import Host


def read_topology(host: Host, mark: Callable[[str], None]) -> GpuTopology:
    """The GPUs that this process may open, each with a lane for every GPU that XGMI leads to."""
    mark("/sys/class/kfd")
    given = kfd.openable_nodes(host)[:GPUS_MAX]
    buses = {node.number: node.bus for node in kfd.nodes(host)}
    gpus = tuple(
        LinkedGpu(
            index,
            name=kfd.model_name(host, node.bus),
            uuid=node.uuid,
            bus=node.bus,
            lanes=tuple(Lane(n, active=True, remote=buses.get(n, "")) for n in node.links),
            above=pci.bridges(host, node.bus),
            iommu=pci.iommu(host, node.bus),
        )
        for index, node in enumerate(given)
    )
    return GpuTopology(driver=kfd.module_version(host), count=len(gpus), gpus=gpus)
