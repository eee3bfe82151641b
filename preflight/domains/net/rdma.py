"""RDMA ports as /sys/class/infiniband shows them, and which of them NCCL would take.

sysfs       Documentation/ABI/stable/sysfs-class-infiniband, drivers/infiniband/core/sysfs.c
hca_rule    NCCL_IB_HCA: ncclIbInitDevices (src/transport/net_ib/init.cc)
chosen_gid  ncclIbGetGidIndex and what it calls (src/transport/net_ib/connect.cc)
_subnet     the same, and ncclIbExtractFlid there
roce_mtu    iboe_get_mtu (include/rdma/ib_addr.h)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from ipaddress import IPv6Address

from preflight.domains.params import NameList, name_list, strtoll, switched_on
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.sanitize import clip

TOP = "/sys/class/infiniband"
TEXT = 64
"""Characters kept of any name or word."""

DEVICES, PORTS, GIDS, PKEYS = 64, 8, 256, 16
"""What is looked at at most; a GID table of mlx5 has 256 entries, one of partition keys 128."""

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
DOWN, INIT, ARMED, ACTIVE = 1, 2, 3, 4  # enum ib_port_state
LINK_UP = 5  # enum ib_port_phys_state
STATES = ("NOP", "Down", "Init", "Armed", "Active", "Active_Defer")
RECOVERING = 6
PHYSICAL = ("", "Sleep", "Polling", "Disabled", "Training", "LinkUp", "LinkErrorRecovery", "Test")

RNIC = 4
"""node_type of iWARP: no GID in the sense of RoCE."""

EFA = "efa"
"""The driver of Amazon's own transport: NCCL takes it by a plug-in, whatever NCCL_IB_HCA says."""

COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
RESENT = ("packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err", "out_of_sequence")
"""Counters of packets that were lost, in hw_counters: those that this port had to send again, and
those that were missing of what it received (RDMA/mlx5: "Understanding mlx5 ethtool counters")."""
NOISE = 3
NEVER = ("link_downed", "link_error_recovery")
"""A sound link may have a symbol error every few minutes (IBTA: at most one bit in 10^12), so that
one in a second is bad luck on some port of a large job; a link that goes down never is."""
LOST_PACKETS = 10
"""Between two looks: a few are a sender's that has just been killed."""
LISTED = 4
"""Counters that are shown."""

LANES = 32
"""The widest PCIe link."""
MAX_HCAS = 32
"""Entries that NCCL reads of NCCL_IB_HCA (MAX_IB_DEVS)."""

GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"


@dataclass(frozen=True, slots=True)
class Gid:
    """An entry of a port's GID table. version is 1 or 2 of RoCE, 0: nothing says so."""

    index: int
    address: str
    version: int = 0

    @property
    def link_local(self) -> bool:
        return self.address.startswith("fe80:0000:0000:0000")

    @property
    def ipv4(self) -> str:
        """The IPv4 address that it stands for; empty when it does for none."""
        mapped = IPv6Address(self.address).ipv4_mapped
        return str(mapped) if mapped else ""


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port. `kind` is the make of its card, alike on cards that are alike; `card` its PCI address
    without the function, so that two ports of one card share it.

    rate      Gb/s, 0 where nothing says so; width and speed as in `4X NDR`
    virtual   an SR-IOV function whose owner is this same machine
    given     this process may open the device
    mtu       of the network interface (Ethernet only), 0: not known
    gids      the filled ones of `gid_slots` entries (of an active Ethernet port)
    pkey      the key at the index that NCCL_IB_PKEY names; None: not readable
    full_pkey (index, key) of another entry with full membership, where `pkey` has none
    grown     counter -> by how much it grew between two looks
    downed    how often its link went down since boot (link_downed); None: not told
    counted   counter -> what it is at, of those that are not 0
    was_up    its link has been up since boot: it has a partner, or had one
    firmware  of the card, as its driver says it
    subnet    the prefix of its InfiniBand subnet; empty: not known, or a router leads to others
    pcie      lanes of its card's PCIe link times GT/s of each, 0: not known; pcie_max: what the
              card can; lanes_max: the lanes that it can have
    function  of its card, what follows the last dot of its PCI address; empty: not known
    """

    device: str
    number: int
    layer: str = INFINIBAND
    state: int = ACTIVE
    physical: int = LINK_UP
    rate: float = 0.0
    width: str = ""
    kind: str = ""
    card: str = ""
    driver: str = ""
    virtual: bool = False
    iwarp: bool = False
    given: bool = True
    numa: int | None = None
    mtu: int = 0
    gids: tuple[Gid, ...] = ()
    gid_slots: int = 0
    pkey: int | None = None
    grown: Mapping[str, int] = field(default_factory=dict)
    was_up: bool = False
    downed: int | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    firmware: str = ""
    full_pkey: tuple[int, int] | None = None
    subnet: str = ""
    pcie: float = 0.0
    pcie_max: float = 0.0
    lanes_max: int = 0
    function: str = ""

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"

    @property
    def active(self) -> bool:
        return self.state == ACTIVE

    @property
    def idle(self) -> bool:
        """Known not to carry anything."""
        return self.state in (DOWN, INIT, ARMED)

    @property
    def says(self) -> str:
        """`state Down, physical Polling`."""
        return f"state {_word(STATES, self.state)}, physical {_word(PHYSICAL, self.physical)}"


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) and words[number] else f"{number}"


MULTICAST_LID = 0xC000
"""Local identifiers from here on are no port's (IBTA 4.1.1); what was never given one has 0 or
0xffff."""


def hca_rule(text: str) -> NameList:
    """The rule in a value of NCCL_IB_HCA; an empty one admits all. What reads the list skips a
    further sign behind the first two."""
    signs = re.match(r"\^?=?", text)
    first = signs[0] if signs else ""
    rest = text[len(first) :]
    return name_list(first + (rest[1:] if rest[:1] in ("^", "=") else rest), MAX_HCAS)


def devices(host: Host) -> tuple[str, ...]:
    """The names of the RDMA devices, at most DEVICES of them."""
    return tuple(clip(name, TEXT) for name in host.listdir(TOP)[:DEVICES])


def buses(host: Host) -> dict[str, str]:
    """Network interface -> PCI address, of the cards that are RDMA devices."""
    found: dict[str, str] = {}
    for device in devices(host):
        bus = host.readlink(f"{TOP}/{device}/device").rpartition("/")[2]
        for name in host.listdir(f"{TOP}/{device}/device/net")[:PORTS]:
            found[name] = clip(bus, TEXT)
    return found


def ports(host: Host) -> Iterator[RdmaPort]:
    """All ports, as they are at this moment."""
    nodes = dict(_verbs(host))
    pkey = min(max(strtoll(nccl_setting(host, "NCCL_IB_PKEY"))[0], 0), 1 << 16)
    for device in devices(host):
        folder = f"{TOP}/{device}"
        pci = host.readlink(f"{folder}/device").rpartition("/")[2]
        kinds = (_text(host, f"{folder}/hca_type"), _text(host, f"{folder}/board_id"))
        driver = host.readlink(f"{folder}/device/driver").rpartition("/")[2]
        numa = host.read_int(f"{folder}/device/numa_node")
        pcie, pcie_max = (_pcie(host, f"{folder}/device", which) for which in ("current", "max"))
        lanes = host.read_int(f"{folder}/device/max_link_width") or 0
        for number, here in _port_folders(host, device):
            layer, state = _text(host, f"{here}/link_layer"), _number(host, f"{here}/state")
            rate, width = _rate(_text(host, f"{here}/rate"))
            ethernet = layer == ETHERNET
            key = None if ethernet else host.read_int(f"{here}/pkeys/{pkey}")
            slots = _slots(host, here) if ethernet and state == ACTIVE else ()
            yield RdmaPort(
                device=device,
                number=int(number[:4]),
                layer=layer,
                state=state,
                physical=_number(host, f"{here}/phys_state"),
                rate=rate,
                width=width,
                kind=" ".join(k for k in kinds if k),
                card=clip(pci.rpartition(".")[0], TEXT),
                function=clip(pci.rpartition(".")[2], TEXT),
                driver=clip(driver, TEXT),
                virtual=host.exists(f"{folder}/device/physfn"),
                iwarp=_number(host, f"{folder}/node_type") == RNIC,
                given=device in nodes and not host.refused(nodes[device]),
                numa=numa if numa is not None and numa >= 0 else None,
                mtu=_mtu(host, folder) if ethernet else 0,
                gids=tuple(_gids(host, here, slots)),
                gid_slots=len(slots),
                pkey=key,
                full_pkey=None if key is None or full_member(key) else _full_pkey(host, here),
                was_up=_was_up(host, folder, here, state),
                downed=host.read_int(f"{here}/counters/link_downed"),
                firmware=_text(host, f"{folder}/fw_ver"),
                subnet=_subnet(host, here) if state == ACTIVE and layer == INFINIBAND else "",
                pcie=pcie,
                pcie_max=pcie_max,
                lanes_max=lanes if 0 < lanes <= LANES else 0,
            )


def _pcie(host: Host, device: str, which: str) -> float:
    """Lanes times GT/s of a PCIe link; 0 where the kernel does not know (of virtual functions)."""
    lanes = host.read_int(f"{device}/{which}_link_width") or 0
    speed = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s", _text(host, f"{device}/{which}_link_speed"))
    return lanes * float(speed[1]) if speed and 0 < lanes <= LANES else 0.0


def full_member(pkey: int) -> bool:
    """Whether a partition key is one of a full member: the others must not talk to each other."""
    return bool(pkey & 0x8000) and bool(pkey & 0x7FFF)


def _full_pkey(host: Host, port: str) -> tuple[int, int] | None:
    """The first entry with full membership; each look at one may ask the firmware."""
    keys = ((n, host.read_int(f"{port}/pkeys/{n}") or 0) for n in range(PKEYS))
    return next((entry for entry in keys if full_member(entry[1])), None)


def counters(host: Host) -> dict[str, dict[str, int]]:
    """device:port -> the error counters that it has."""
    found: dict[str, dict[str, int]] = {}
    files = {**dict.fromkeys(COUNTERS, "counters"), **dict.fromkeys(RESENT, "hw_counters")}
    for device in devices(host):
        for number, here in _port_folders(host, device):
            read = {name: host.read_int(f"{here}/{at}/{name}") for name, at in files.items()}
            found[f"{device}:{number}"] = {n: v for n, v in read.items() if v is not None}
    return found


def _port_folders(host: Host, device: str) -> Iterator[tuple[str, str]]:
    """(number, folder) of a device's ports."""
    top = f"{TOP}/{device}/ports"
    return ((n, f"{top}/{n}") for n in host.listdir(top)[:PORTS] if n.isdecimal())


def nonzero(counters: Mapping[str, int]) -> dict[str, int]:
    """The counters that have counted something since boot."""
    return {name: value for name, value in counters.items() if value and name in COUNTERS}


def link_errors(grown: Mapping[str, int]) -> dict[str, int]:
    """Of what grew between two looks, what no sound link counts."""
    return {n: by for n, by in grown.items() if n not in RESENT and (by >= NOISE or n in NEVER)}


def lost_packets(grown: Mapping[str, int]) -> dict[str, int]:
    """The same of packets that were lost, where there are enough of them."""
    resent = {n: by for n, by in grown.items() if n in RESENT}
    return resent if sum(resent.values()) >= LOST_PACKETS else {}


def grown_words(grown: Mapping[str, int]) -> str:
    """`symbol_error +7, …`."""
    return ", ".join(f"{name} +{by}" for name, by in sorted(grown.items())[:LISTED])


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What grew; a counter that was reset meanwhile did not."""
    return {n: after[n] - v for n, v in before.items() if after.get(n, v) > v}


def _verbs(host: Host) -> Iterator[tuple[str, str]]:
    """Device -> the node that ibv_open_device() opens."""
    top = "/sys/class/infiniband_verbs"
    for name in host.listdir(top)[: 4 * DEVICES]:
        if name.startswith("uverbs"):
            yield _text(host, f"{top}/{name}/ibdev"), f"/dev/infiniband/{name}"


def _interface_numbers(host: Host, folder: str, name: str) -> list[int]:
    """A number of each network interface of a device's PCI function."""
    interfaces = host.listdir(f"{folder}/device/net")[:PORTS]
    found = (host.read_int(f"{folder}/device/net/{n}/{name}") for n in interfaces)
    return [number for number in found if number]


def _mtu(host: Host, folder: str) -> int:
    return max(_interface_numbers(host, folder, "mtu"), default=0)


def _was_up(host: Host, folder: str, port: str, state: int) -> bool:
    """Whether a link has been up since the driver was loaded: it went down (IBTA: LinkDowned counts
    links that were up), its interface has had a carrier (sysfs-class-net), or a subnet manager has
    given it its address, which it keeps until then."""
    if state == ACTIVE or _number(host, f"{port}/phys_state") == LINK_UP:
        return True
    downed = host.read_int(f"{port}/counters/link_downed")
    lids = [_hexadecimal(_text(host, f"{port}/{name}")) for name in ("lid", "sm_lid")]
    given = all(0 < lid < MULTICAST_LID for lid in lids)
    return given or bool(downed) or bool(_interface_numbers(host, folder, "carrier_up_count"))


def _hexadecimal(text: str) -> int:
    """`0x364`; 0 for what is none."""
    return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,8}", text) else 0


def _slots(host: Host, port: str) -> tuple[int, ...]:
    indexes = (int(n) for n in host.listdir(f"{port}/gids") if n.isdecimal() and len(n) < 5)
    return tuple(sorted(indexes)[:GIDS])


def _gids(host: Host, port: str, slots: Iterable[int]) -> Iterator[Gid]:
    """The entries that are filled. Those of other network namespaces read as zeros here."""
    for index in slots:
        address = _text(host, f"{port}/gids/{index}")
        if GID.fullmatch(address) and address != EMPTY:
            kind = _text(host, f"{port}/gid_attrs/types/{index}")
            yield Gid(index, address, 2 if kind.startswith("RoCE v2") else 1 if kind else 0)


def _subnet(host: Host, port: str) -> str:
    """What the first GID begins with. Where InfiniBand routers join subnets the next one has a
    forwardable identifier (FLID) in its third group, by which NCCL finds ports of other subnets."""
    own, routed = (_text(host, f"{port}/gids/{index}") for index in (0, 1))
    if not GID.fullmatch(own) or own == EMPTY:
        return ""
    return "" if GID.fullmatch(routed) and routed[10:14] != "0000" else own[:19]


def chosen_gid(gids: Iterable[Gid], version: int = 2, ipv6: bool = False) -> Gid | None:
    """The entry that NCCL from 2.21 on takes by itself; None where the first one, which it falls
    back to, is empty. NCCL_IB_ADDR_RANGE is not looked at."""
    table = {gid.index: gid for gid in gids}
    now = table.get(0)
    for index in sorted(table)[bool(now) :]:
        other = table[index]
        if bool(other.ipv4) == ipv6:
            continue
        # an empty entry counts as IPv6
        family = bool(now and now.ipv4) != bool(other.ipv4)
        worse = now is None or now.link_local or now.version != other.version
        if family or (worse and not other.link_local and other.version == version):
            now = other
    return now


def roce_mtu(mtu: int) -> int:
    """The RDMA MTU that an interface's MTU leaves room for: 1500 gives 1024, 4200 gives 4096."""
    headers = 40 + 8 + 12 + 4 + 28 + 4  # GRH, UDP, BTH, XRC, atomic, ICRC
    return max((m for m in (256, 512, 1024, 2048, 4096) if m <= mtu - headers), default=0)


def peer_memory(host: Host) -> bool | None:
    """Whether an HCA may reach into the memory of NVIDIA's GPUs; None where nothing says so.

    NCCL looks for the modules (src/transport/net_ib/gdr.cc); without one it needs dma-buf, which
    takes the open kernel modules and Linux 5.12 (NVIDIA's GPU operator guide, GPUDirect RDMA)."""
    memory = "/sys/kernel/mm/memory_peers"
    signs = (f"{memory}/nv_mem", f"{memory}/nv_mem_nc", "/sys/module/nvidia_peermem")
    if any(host.exists(sign) for sign in signs):
        return True
    driver = host.read_or_none("/proc/driver/nvidia/version")
    kernel = re.match(r"([0-9]{1,3})\.([0-9]{1,3})", _text(host, "/proc/sys/kernel/osrelease"))
    if not driver or not kernel:
        return None
    return "Open Kernel Module" in driver and (int(kernel[1]), int(kernel[2])) >= (5, 12)


def disabled_by(host: Host) -> str:
    """The setting by which NCCL leaves RDMA alone; empty where there is none."""
    disabled, net = nccl_setting(host, "NCCL_IB_DISABLE"), nccl_setting(host, "NCCL_NET")
    if disabled and switched_on(disabled):
        return f"NCCL_IB_DISABLE={disabled[:40]}"
    return f"NCCL_NET={net}" if net.lower() == "socket" else ""


def _rate(text: str) -> tuple[float, str]:
    """`400 Gb/sec (4X NDR)` -> 400.0 and `4X NDR`."""
    found = re.match(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec(?: \(([^)]*)\))?", text)
    return (float(found[1]), (found[2] or "").strip()) if found else (0.0, "")


def _number(host: Host, path: str) -> int:
    """The number before the colon of `4: ACTIVE`; -1 where there is none."""
    found = re.match(r"[0-9]{1,3}(?=:|$)", _text(host, path))
    return int(found[0]) if found else -1


def _text(host: Host, path: str) -> str:
    return clip((host.read_or_none(path) or "").strip(), TEXT)


def rdma_ports(host: Host) -> Iterator[tuple[str, str]]:
    """(device:port, link layer) of the active RDMA ports."""
    for device in devices(host):
        for number, here in _port_folders(host, device):
            if _number(host, f"{here}/state") == ACTIVE:
                yield f"{device}:{number}", _text(host, f"{here}/link_layer")
