"""Takes the inventory of a node: names, network interfaces, GPUs, CPUs and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from preflight.check import Context
from preflight.domains.gpu import nvml, vendor
from preflight.domains.net import interface_rules
from preflight.domains.net.arp import mac_address
from preflight.domains.net.interfaces import NCCL, ListenAddresses, listen_addresses
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.frozen import dataclass
from preflight.host import Host, Interface, number
from preflight.model import CannotObserve

TEXT = 200
"""Characters kept of any name."""
KEPT = 64
"""Interfaces that are kept, and GPUs; real nodes have two dozen."""
USED = 8
"""Interfaces whose MAC address is kept."""
PATIENCE = 3.0
"""Seconds for NVML: a driver that hangs shall not take the other facts along."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One node, as the job sees it.

    host, boot, space   its name, the kernel's boot id, the network namespace
    interfaces          without loopback; speeds: in Mbit/s, where the driver tells
    used                which of them NCCL and Gloo take first and which leads to MASTER_ADDR, in
                        this order; carries: the one that carries the data, empty where RDMA does
    macs                interface -> MAC address of those that are used
    gpus                names by NVML or KFD; None: no answer. off: the job hides them on purpose
    """

    host: str
    boot: str = ""
    space: str = ""
    hostid: str = ""
    interfaces: tuple[Interface, ...] = ()
    speeds: Mapping[str, int] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    carries: str = ""
    macs: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] | None = ()
    off: bool = False
    cpus: int = 0
    memory: int = 0

    @property
    def machine(self) -> str:
        """Agents with the same one share their network; empty where that can't be told."""
        return f"{self.boot} {self.space}" if self.boot and self.space else ""

    @property
    def outside(self) -> tuple[Interface, ...]:
        """The interfaces that may lead to other hosts."""
        return tuple(i for i in self.interfaces if not interface_rules.isolated(i.name))


def take_inventory(host: Host, ctx: Context) -> Hardware:
    """Everything about this node; no threshold, no opinion."""
    ways = listen_addresses(host, ctx) if host.live else ListenAddresses(())
    loops = {i.name for i in host.interfaces if i.loopback}
    used = dict.fromkeys([*(way.interface for way in ways.found), ways.meeting])
    names = [name for name in used if name and name not in loops]
    rdma = bool(host.listdir("/sys/class/infiniband"))
    by_rdma = rdma and any(way.library == NCCL for way in ways.found)
    real = [i for i in host.interfaces if not i.loopback]
    real.sort(key=lambda i: (i.name not in names, interface_rules.virtual(i.name), not i.running))
    speeds = {i.name: host.read_int(f"/sys/class/net/{i.name}/speed") or 0 for i in real[:KEPT]}
    return Hardware(
        host=host.hostname()[:TEXT],
        boot=(host.read_or_none("/proc/sys/kernel/random/boot_id") or "").strip()[:TEXT],
        space=host.readlink("/proc/self/ns/net")[:TEXT],
        hostid=nccl_setting(host, "NCCL_HOSTID")[:TEXT],
        interfaces=tuple(real[:KEPT]),
        speeds={name: speed for name, speed in speeds.items() if speed > 0},
        used=tuple(names),
        carries="" if by_rdma else next(iter(names), ""),
        macs={name: mac for name in names[:USED] if (mac := mac_address(host, name))},
        gpus=_gpu_names(host) if host.gpu_files() else (),
        off=nvml.all_hidden(host.environ),
        cpus=len(host.affinity()),
        memory=_total_memory(host),
    )


def _gpu_names(host: Host) -> tuple[str, ...] | None:
    """The names of the GPUs that the driver shows; asked in a thread, since a driver may hang."""
    import threading

    answers: list[nvml.GpuListing] = []

    def ask() -> None:
        try:
            answers.append(vendor.detect(host).list_gpus(host, lambda _: None, PATIENCE / 2))
        except CannotObserve:
            return  # gpu.visible says so

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if not answers or answers[0].code or len(answers[0].gpus) < answers[0].count:
        return None
    return tuple(gpu.name for gpu in answers[0].gpus[:KEPT])


def _total_memory(host: Host) -> int:
    for line in (host.read_or_none("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return (number(rest.removesuffix("kB")) or 0) << 10
    return 0
