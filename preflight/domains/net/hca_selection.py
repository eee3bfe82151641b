"""Which RDMA ports a job would use, and which of those that are down ought not to be."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from preflight.domains.kernel_log import DeviceError
from preflight.domains.net.gpudirect import GpuPath
from preflight.domains.net.rdma import (
    ARMED,
    EFA,
    ETHERNET,
    INFINIBAND,
    INIT,
    LINK_UP,
    Gid,
    RdmaPort,
    chosen_gid,
    hca_rule,
)
from preflight.domains.params import NameList
from preflight.frozen import dataclass
from preflight.inference import MAJORITY_OF, consensus
from preflight.model import of_each

FEW = 4
"""Down ports are a fault by themselves only where at most one in so many of a make is down."""


@dataclass(frozen=True, slots=True)
class NodeRdma:
    """A node's RDMA ports, and what the job says of them.

    rule       NCCL_IB_HCA; gid_index, pkey_index: NCCL_IB_GID_INDEX (None: NCCL looks for itself)
               and NCCL_IB_PKEY (None: nobody says, so 0)
    off        the setting that keeps NCCL away from all of them, empty: none
    searched   NCCL looks for the GID in a way that is followed here (no NCCL_IB_ADDR_RANGE)
    ours       the option `ports`
    gpus       device files of GPUs; gpu_numa: the NUMA nodes of NVIDIA's
    peering    an HCA may reach into the GPUs' memory; None: nothing says so, or no GPU that could
    inside     the kind of container that this is, or empty
    dead       what the kernel logged of HCAs that do not work any more; underpowered: of those
               whose PCIe slot offers too little power; not_sending: of those with an interface of
               which the queue was stuck, without a sign of recovery since
    paths      the way to a GPU of each HCA that shares a PCI switch with one; virtual: whether this
               is a virtual machine, None: nothing tells; gdr_level: NCCL_NET_GDR_LEVEL
    apart      seconds between the two looks at the error counters
    """

    ports: tuple[RdmaPort, ...]
    rule: str = ""
    off: str = ""
    gid_index: int | None = None
    pkey_index: int | None = None
    searched: bool = True
    roce_version: int = 2
    ipv6: bool = False
    ours: str = ""
    gpus: int = 0
    gpu_numa: tuple[int, ...] = ()
    peering: bool | None = None
    inside: str = ""
    apart: float = 0.0
    dead: tuple[DeviceError, ...] = ()
    underpowered: tuple[DeviceError, ...] = ()
    paths: tuple[GpuPath, ...] = ()
    virtual: bool | None = None
    gdr_level: str = ""
    not_sending: tuple[DeviceError, ...] = ()

    @property
    def parsed(self) -> NameList:
        return hca_rule(self.rule)

    @property
    def concerned(self) -> bool:
        """Whether NCCL will run here and look at RDMA at all."""
        return self.gpus > 0 and not self.off

    @property
    def within_reach(self) -> tuple[RdmaPort, ...]:
        """What this process may open. Where it may open nothing, that is another check's business
        (host.limits), and the ports are judged as they are."""
        given = tuple(p for p in self.ports if p.given)
        return given or self.ports

    @property
    def taken(self) -> tuple[RdmaPort, ...]:
        """What NCCL takes."""
        rule = self.parsed
        return tuple(
            p
            for p in self.within_reach
            if p.active
            and p.layer in (INFINIBAND, ETHERNET)
            and p.driver != EFA
            and rule.admits(p.device, p.number)
        )

    @property
    def preferred(self) -> tuple[RdmaPort, ...]:
        """Those of them that are named or not much slower than the fastest: where NCCL may choose,
        it leaves alone a card that is there for everything else."""
        taken = self.taken
        best = max((p.rate for p in taken), default=0.0)
        return tuple(p for p in taken if 2 * p.rate >= best or self.named(p) or self.claims(p))

    def claims(self, port: RdmaPort) -> bool:
        """Whether the option `ports` says that it is ours."""
        patterns = [p.strip() for p in self.ours.split(",")]
        return any(fnmatchcase(port.device, p) or fnmatchcase(port.name, p) for p in patterns if p)

    def named(self, port: RdmaPort) -> bool:
        return self.parsed.means(port.device, port.number)

    def leaves_out(self, port: RdmaPort) -> bool:
        """Whether NCCL_IB_HCA keeps NCCL from this one."""
        return bool(self.rule) and not self.parsed.admits(port.device, port.number)

    def alike(self, port: RdmaPort) -> tuple[RdmaPort, ...]:
        """The ports of the same make that are meant for the same as far as one can see: not a
        virtual function, not the spare port of a card whose other port is in use."""
        used = {p.card for p in self.ports if p.active and p.card}
        return tuple(
            p
            for p in self.ports
            if (p.kind, p.layer) == (port.kind, port.layer)
            and not p.virtual
            and (p.active or p.card not in used)
        )

    def few_down(self, port: RdmaPort) -> int:
        """How many of its kind are down, this one among them, where nearly all others of it are
        Active; 0 where that is not so."""
        alike = self.alike(port)
        down = sum(p.idle for p in alike)
        return down if port.kind and port in alike and down * FEW <= len(alike) else 0

    def gid(self, port: RdmaPort) -> Gid | None:
        """The GID that NCCL would use."""
        if self.gid_index is None:
            return chosen_gid(port.gids, self.roce_version, self.ipv6)
        return next((g for g in port.gids if g.index == self.gid_index), None)

    def port(self, name: str) -> RdmaPort | None:
        return next((p for p in self.ports if p.name == name), None)


def waits_for_manager(port: RdmaPort) -> bool:
    """Whether a port's link is up but it has no address yet: there is no subnet manager (opensm or
    the switch's own)."""
    return port.layer == INFINIBAND and port.state in (INIT, ARMED) and port.physical == LINK_UP


def same_port(fabrics: Mapping[str, NodeRdma], name: str) -> dict[str, RdmaPort]:
    """Node -> its port of this name, where there is one whose state is known."""
    found = of_each(fabrics, lambda fabric: fabric.port(name))
    return {node: port for node, port in found.items() if port and (port.active or port.idle)}


def expected_active(fabrics: Mapping[str, NodeRdma], name: str) -> tuple[str, ...]:
    """The nodes that have this port Active where they are most of at least three."""
    states = {node: port.active for node, port in same_port(fabrics, name).items()}
    agreed = consensus(states)
    return agreed.holders if agreed.value and len(states) >= MAJORITY_OF else ()


def alone_without(
    fabrics: Mapping[str, NodeRdma], seen: NodeRdma, port: RdmaPort
) -> tuple[str, ...]:
    """The nodes whose ranks use this port, where none of this node's ports is Active: NCCL takes
    sockets here and RDMA there, and finds no way between the two."""
    if any(p.active for p in seen.ports):
        return ()
    return tuple(
        node
        for node, other in fabrics.items()
        if other.concerned and any(p.name == port.name for p in other.preferred)
    )


def layers(seen: NodeRdma) -> frozenset[str]:
    """The link layers of what NCCL uses; empty where it uses nothing."""
    return frozenset(p.layer for p in seen.preferred) if seen.concerned else frozenset()


def partitions(seen: NodeRdma) -> frozenset[str]:
    """The partitions that NCCL's InfiniBand ports are in: keys without the bit of the full member,
    0x7fff; empty where a key is not known or names none."""
    ports = [p for p in seen.preferred if p.layer == INFINIBAND] if seen.concerned else []
    keys = [(p.pkey or 0) & 0x7FFF for p in ports]
    return frozenset(f"{key:#06x}" for key in keys) if all(keys) else frozenset()


def subnets(seen: NodeRdma) -> frozenset[str]:
    """The prefixes of the subnets that NCCL's InfiniBand ports are in; empty where one of them is
    not known, or has a way to others."""
    ports = [p for p in seen.preferred if p.layer == INFINIBAND] if seen.concerned else []
    return frozenset(p.subnet for p in ports) if all(p.subnet for p in ports) else frozenset()


def unused_everywhere(fabrics: Mapping[str, NodeRdma], name: str) -> bool:
    """Whether at least two nodes have this port and none has it Active: the site's layout."""
    states = [port.active for port in same_port(fabrics, name).values()]
    return len(states) > 1 and not any(states)


def faster_twins(seen: NodeRdma, port: RdmaPort) -> tuple[RdmaPort, ...]:
    """The ports of the same make that run faster, where nearly all of them do and there are as many
    as the GPUs ask for: one for each, two, or one for two. With more of them than that one may be
    there for something else, and slower on purpose."""
    alike = tuple(p for p in seen.alike(port) if p.active and p.rate)
    rails = len(alike) > 2 and len(alike) * 2 in (seen.gpus, 2 * seen.gpus, 4 * seen.gpus)
    usual = max((p.rate for p in alike), default=0.0)
    fast = tuple(p for p in alike if p.rate == usual)
    few = (len(alike) - len(fast)) * FEW <= len(alike)
    return fast if port.kind and rails and few and port.rate < usual else ()
