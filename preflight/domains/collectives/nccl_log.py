"""What NCCL says of itself with NCCL_DEBUG=INFO, as facts: which network and which transports it
chose. Pure; the text may be cut, mixed with other output, or hostile.

The forms of the lines are those of NCCL's source from 2.18 to 2.31 (src/init.cc, src/bootstrap.cc,
src/graph/topo.cc, src/graph/rings.cc, src/plugin/net.cc, src/transport/*.cc), of aws-ofi-nccl, and
of RCCL, which writes the same with a tail of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from preflight.frozen import dataclass
from preflight.sanitize import clip, one_line

ASKED = {
    "NCCL_DEBUG": "INFO",
    # BOOTSTRAP is INIT before 2.23, which knows no such word and passes over it
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH",
}
FILE = "NCCL_DEBUG_FILE"
"""What has NCCL log all of this, and where to."""

LINE = 1024
"""Characters looked at of a line; NCCL's own buffer is as long (src/debug.cc)."""
NAME, TEXT = 64, 300
WARNINGS, LINKS, DEVICES, PEERS, COMMUNICATORS = 8, 128, 32, 128, 8
"""How many of each are kept."""
RANK_MAX = 1 << 24

SOCKETS = "Socket"
"""NCCL's own network over TCP (src/transport/net_socket.cc)."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connections of this rank with a peer that go one way: `P2P/CUMEM`, `SHM`, `NET/IB`. `gdr`
    is whether a network card reads and writes the GPU's memory itself."""

    peer: int
    way: str
    count: int
    gdr: bool = False

    @property
    def net(self) -> str:
        """The network that it goes over; empty within a node."""
        return self.way.removeprefix("NET/") if self.way.startswith("NET/") else ""


@dataclass(frozen=True, slots=True)
class NcclLog:
    """What one rank's log tells.

    interface, address   where the ranks meet first (bootstrap)
    network              the network that was chosen: IB, Socket, a plugin's name; empty: unsaid
    plugin, provider     an external network plugin that was loaded; libfabric's provider in it
    devices              the devices of that network, as `mlx5_0:1/IB`
    hcas                 NCCL_IB_HCA, where it was set
    links                the connections that were made, by peer and way
    gdr_on, gdr_off      devices that can, and can't, reach the GPUs' memory
    nvlink               ranks whose GPU NVLink (AMD: XGMI) joins with this rank's, switch included
    nodes                machines that NCCL counts; 0: unsaid
    rings, trees, nvls   channels of each kind
    collnet              connections to a network that adds up itself (SHARP)
    warnings             what it warned of, each once
    diagnosed            what NCCL's own diagnostics (from 2.31, NCCL_RUN_DIAGNOSTICS=1) found wrong
    communicators        (rank, size) of each that was begun, each pair once
    """

    version: str = ""
    interface: str = ""
    address: str = ""
    network: str = ""
    plugin: str = ""
    provider: str = ""
    devices: tuple[str, ...] = ()
    hcas: str = ""
    links: tuple[Link, ...] = ()
    gdr_on: tuple[str, ...] = ()
    gdr_off: tuple[str, ...] = ()
    nvlink: tuple[int, ...] = ()
    nodes: int = 0
    rings: int = 0
    trees: int = 0
    nvls: int = 0
    collnet: int = 0
    warnings: tuple[str, ...] = ()
    diagnosed: tuple[str, ...] = ()
    communicators: tuple[tuple[int, int], ...] = ()

    @property
    def over_tcp(self) -> bool:
        """Whether the network between the nodes is TCP. libfabric has a provider for it, too."""
        return self.network == SOCKETS or self.provider.startswith(("tcp", "sockets"))

    def of_job(self, rank: int, size: int) -> NcclLog:
        """Without whatever names peers, unless every communicator is one of the whole job: in that
        of a part the peers have other numbers, and no line says to which one it belongs. And
        without the network where none of them needs it: of one node, or joined by NVLink."""
        if set(self.communicators) == {(rank, size)}:
            return self
        used = any(link.net for link in self.links) if self.links else self.nodes > 1
        network = self.network if used else ""
        return replace(self, network=network, links=(), nvlink=())


_SAYS = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<text>.*)")
_VERSION = re.compile(r"\bR?N?CCL version (\d[\w.+-]*)")
# its [INFO] marks notices as well as what is wrong
_DIAGNOSED = re.compile(r"NCCL DIAG \[INFO\] (p2p: (?:only )?\d+/\d+ .*|net bw: .*% off median.*)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using ([^:\s]+):(\S+?)<\d+>")
_NETWORK = re.compile(r"Using network (\S.*)")
_PLUGIN = re.compile(r"NET/Plugin ?: Loaded net plugin (.+?)(?: \(v\d+\))?$")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;.-]+)")
_DEVICES = re.compile(r"NET/([^:]{1,64}?) : Using\b(.*)")
# devices that 2.20 to 2.22 put together stand in braces: [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}
_DEVICE = re.compile(r"\[\d+\] ?([^\s\[\]={},]+)")
_HCAS = re.compile(r"NCCL_IB_HCA set (?:by environment )?to (\S+)")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '([^']*)'")
_BEGUN = re.compile(r"\bcomm 0x\w+ rank (\d{1,9}) nranks (\d{1,9}) .*\bInit START")
_NODES = re.compile(r"nRanks \d+ nNodes (\d+) localRanks")
_NVLS = re.compile(r"coll channels, (?:\d+ collnet channels, )?(\d+) nvls channels")
_RING = re.compile(r"Channel \d+/(\d+) :(?:\s+\d+)+\s*$")
_TREES = re.compile(r"Trees\s+(\[.*)")
_LINK = re.compile(
    r"Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(send|receive)\] )?via (\S.*)"
)
_NET = re.compile(r"NET/([^/]+)/\d+(?:\(\d+\))?(/GDRDMA)?")
_COLLNET = re.compile(r"via COLLNET/")
# a GPU of the tree of the machine with its rank, and the links that are printed below it
_GPU = re.compile(r"\bGPU/([0-9A-Fa-f-]+) \((\d+)\)")
_JOINED = re.compile(r" *\+ (?:NVL|XGMI)\[[\d. ]+\] - ((?:GPU|NVS)/?[0-9A-Fa-f-]*)")


def parse(lines: Iterable[str], rank: int) -> NcclLog:
    """The facts in the lines of one rank's log."""
    reader = _Reader()
    for line in lines:
        reader.read(line[:LINE].rstrip())
    return reader.log(rank)


class _Reader:
    """The lines so far."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        self.most: Counter[str] = Counter()
        self.devices: dict[str, tuple[str, ...]] = {}
        self.warnings: dict[str, None] = {}
        self.diagnosed: dict[str, None] = {}
        self.gdr: dict[str, bool] = {}
        self.communicators: dict[tuple[int, int], None] = {}
        self.links: Counter[tuple[int, str, bool]] = Counter()
        self.rank_of: dict[str, int] = {}
        self.joined: dict[str, set[str]] = {}
        self._gpu, self._column = "", 0

    def read(self, line: str) -> None:
        # the version has a prefix in some releases only
        if "version" in line and (found := _VERSION.search(line)):
            self._once("version", found[1])
        said = _SAYS.search(line)
        if said is None:
            if (found := _DIAGNOSED.search(line)) and len(self.diagnosed) < WARNINGS:
                self.diagnosed[one_line(found[1], TEXT)] = None
            return
        text = said["text"]
        if said["level"] == "WARN":
            if len(self.warnings) < WARNINGS and text.strip():
                self.warnings[one_line(text, TEXT)] = None
        elif text.startswith("Channel ") or "via COLLNET/" in text:
            self._channel(text)
        else:
            self._machine(text)
            self._chosen(text)

    def _once(self, name: str, value: str) -> None:
        self.first.setdefault(name, one_line(value, NAME))

    def _chosen(self, text: str) -> None:
        if found := _BOOTSTRAP.search(text):
            self._once("interface", found[1])
            self._once("address", found[2])
        elif found := _NETWORK.search(text):
            self._once("network", found[1])
        elif found := _PLUGIN.search(text):
            self._once("plugin", found[1])
        elif found := _PROVIDER.search(text):
            self._once("provider", found[1])
        elif found := _HCAS.search(text):
            self._once("hcas", found[1])
        elif found := _GDR.search(text):
            # a line for each communicator: one that can is one that can
            name = clip(found[2], NAME)
            if name in self.gdr or len(self.gdr) < DEVICES:
                self.gdr[name] = self.gdr.get(name, False) or found[1] == "Enabled"
        elif found := _BEGUN.search(text):
            if len(self.communicators) < COMMUNICATORS:
                self.communicators[int(found[1]), int(found[2])] = None
        elif found := _NODES.search(text):
            self._most("nodes", found[1])
        elif found := _NVLS.search(text):
            self._most("nvls", found[1])
        elif found := _TREES.search(text):
            for number in re.findall(r"\[(\d+)\] ", found[1])[:PEERS]:
                self._most("trees", str(int(number[:6]) + 1))
        elif (found := _DEVICES.search(text)) and len(self.devices) < WARNINGS:
            self.devices[found[1]] = tuple(
                clip(name, NAME) for name in _DEVICE.findall(found[2])[:DEVICES]
            )

    def _most(self, name: str, number: str) -> None:
        self.most[name] = max(self.most[name], int(number[:6]))

    def _channel(self, text: str) -> None:
        if found := _LINK.search(text):
            sender, receiver = int(found[1][:9]), int(found[2][:9])
            peer = sender if found[3] == "receive" else receiver
            way, gdr = _way(found[4])
            key = (peer, way, gdr)
            if way and peer < RANK_MAX and (key in self.links or len(self.links) < LINKS):
                self.links[key] += 1
        elif _COLLNET.search(text):
            self.most["collnet"] += 1
        elif found := _RING.search(text):
            self._most("rings", found[1])

    def _machine(self, text: str) -> None:
        """The tree of the machine. What is joined with a GPU stands below it: in the lines after
        its own that begin in its column."""
        if found := _GPU.search(text):
            self._gpu, self._column = found[1][:NAME], found.start()
            if len(self.rank_of) < PEERS:
                self.rank_of[self._gpu] = int(found[2][:9])
        elif found := _JOINED.match(text):
            if self._gpu in self.rank_of and text.index("+") == self._column:
                self.joined.setdefault(self._gpu, set()).add(found[1][: 2 * NAME])
        elif text.startswith(("CPU/", "===")):
            self._gpu = ""

    def _nvlink(self, rank: int) -> Iterator[int]:
        for gpu in (g for g, r in self.rank_of.items() if r == rank):
            mine = self.joined.get(gpu, set())
            switches = {end for end in mine if end.startswith("NVS")}
            for other, peer in self.rank_of.items():
                if peer != rank and (
                    f"GPU/{other}" in mine or switches & self.joined.get(other, set())
                ):
                    yield peer

    def log(self, rank: int) -> NcclLog:
        network = self.first.get("network", "")
        # the plugin with SHARP calls itself IBext_v8 and its devices those of NET/IB
        kin = "IB" if network.startswith("IB") else network
        return NcclLog(
            version=self.first.get("version", ""),
            interface=self.first.get("interface", ""),
            address=self.first.get("address", ""),
            network=network,
            plugin=self.first.get("plugin", ""),
            provider=self.first.get("provider", ""),
            hcas=self.first.get("hcas", ""),
            devices=self.devices.get(network) or self.devices.get(kin, ()),
            links=tuple(
                Link(peer, way, count, gdr)
                for (peer, way, gdr), count in sorted(self.links.items())
            ),
            gdr_on=tuple(name for name, on in self.gdr.items() if on),
            gdr_off=tuple(name for name, on in self.gdr.items() if not on),
            nvlink=tuple(sorted(set(self._nvlink(rank)))[:PEERS]),
            nodes=self.most["nodes"],
            rings=self.most["rings"],
            trees=self.most["trees"],
            nvls=self.most["nvls"],
            collnet=self.most["collnet"],
            warnings=tuple(self.warnings),
            diagnosed=tuple(self.diagnosed),
            communicators=tuple(self.communicators),
        )


def _way(via: str) -> tuple[str, bool]:
    """A transport without the device and the details, and whether it is GPUDirect RDMA. Empty for a
    word that is not known."""
    if found := _NET.match(via):
        return f"NET/{clip(found[1], NAME)}", found[2] is not None
    head, _, rest = via.partition("/")
    if head == "P2P":
        # `direct pointer`, with /read or /CE behind it, and RCCL's tail
        return f"P2P/{clip(re.split(r'[/ ]', rest, maxsplit=1)[0], NAME)}", False
    if head == "SHM" or via.startswith("direct shared memory"):
        return "SHM", False
    return "", False
