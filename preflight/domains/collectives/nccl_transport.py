"""Which way the data went between the GPUs, and whether it was the best that is there. Pure.

NCCL falls back without an error: a job over sockets beside an idle fabric, or over the CPU's memory
beside NVLink, is right and slow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from preflight import humanize
from preflight.domains.collectives.nccl_log import SOCKETS, Link, NcclLog
from preflight.domains.collectives.stalls import Signature
from preflight.domains.net.rdma import hca_rule
from preflight.frozen import dataclass
from preflight.humanize import parties
from preflight.inference import consensus
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Status,
    Subject,
    World,
    place_of,
)

FAST = 200
"""Gb/s from which an Ethernet port with RDMA passes for the fabric of the GPUs. A judgement: slower
ones are often a cloud's or a server's plain network card, whose network carries no RoCE."""

SHOWN = 4
MANY = 32
"""Devices and ports that are known: of as many some may be missing."""
CHOSEN = ("NCCL_IB_HCA", "MELLANOX_VISIBLE_DEVICES")
"""Settings that say which HCAs a job is to use."""
MAY_FORBID = "NCCL_IB_DISABLE NCCL_NET NCCL_IB_HCA"
"""What is left set where none of it was seen, as in a file of NCCL's."""

FINDINGS = {
    "nets-differ": FindingType(
        headline="the ranks use different NCCL networks",
        who="job author",
        cause="a network plugin, /dev/infiniband or a setting that only some ranks have",
        means="a hang in the first collective between the nodes, or 'wrong type' and 'internal "
        "error' in one rank",
        now="export NCCL_NET=Socket   on all ranks: slow, but the job starts",
        text="use the same image, devices and NCCL_* variables on every node; for the node that "
        "differs read net.rdma, and the 'NET/' lines of NCCL_DEBUG=INFO",
    ),
    "sockets-chosen": FindingType(
        headline="{seen}",
        who="job author",
        cause="a container without /dev/infiniband, an NCCL_IB_DISABLE or NCCL_NET that was left "
        "set, or an image without libibverbs or the plugin of the fabric",
        means="no error: the job is 10 to 50 times slower between nodes, 'Using network Socket'",
        now="unset {unset!s}",
        text="expose the fabric, unless a setting disables it: docker, podman: "
        "--device=/dev/infiniband --ulimit memlock=-1; pod: the resource of the RDMA device "
        "plugin; EFA: an image with aws-ofi-nccl",
        commands=(Command("ls /dev/infiniband; ldconfig -p | grep ibverbs", "the container"),),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.UNKNOWN, Blame.JOB),
        explains=("world.bandwidth",),
    ),
    "p2p-unused": FindingType(
        headline="{seen}",
        who="job author",
        cause="an NCCL_P2P_DISABLE or NCCL_P2P_LEVEL that was left set, or ranks in containers "
        "that don't share devices or namespaces",
        means="no error: all-reduces are several times slower within the node, 'via "
        "SHM/direct/direct'",
        now="unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL",
        text="make all GPUs of the node visible to every rank (SLURM: --gpu-bind=none), in one "
        "container",
        commands=(Command("nvidia-smi topo -m; nvidia-smi topo -p2p r", "the node"),),
        status=Status.WARN,
        blame=(Blame.UNKNOWN, Blame.JOB),
        explains=(),
    ),
    "hcas-unused": FindingType(
        headline="{seen}",
        who="job author",
        cause="a container that was given some of /dev/infiniband/uverbs* only, or other "
        "permissions on the rest",
        means="no error: the network between nodes is slower by as much, and all nodes wait",
        text="expose all of /dev/infiniband (docker, podman: --device=/dev/infiniband; pod: one "
        "RDMA resource per HCA); if the other ports are for storage, say so with "
        "NCCL_IB_HCA={used!s}",
        commands=(Command("ls -l /dev/infiniband; ibv_devices", "the container"),),
        status=Status.WARN,
        explains=("world.bandwidth",),
    ),
    "nccl-diagnostics": FindingType(
        headline="{seen}",
        cause="a link, GPU or NIC that NCCL's own diagnostics (NCCL_RUN_DIAGNOSTICS=1) found "
        "broken or slow",
        means="wrong results, a hang in the first collective, or one node that slows down all "
        "others",
        text="read the 'NCCL DIAG' lines of the job, which name the pair; check it with gpu.p2p "
        "and net.rdma",
        status=Status.WARN,
        explains=(),
        was=("diagnosed",),
    ),
    "gdr-off": FindingType(
        headline="{seen}",
        cause="the module nvidia_peermem not loaded on that node, or loaded before the RDMA driver",
        means="no error: the data goes through host memory, 'GPU Direct RDMA Disabled for HCA', "
        "and all nodes wait for that one",
        text="load it at boot, after the RDMA stack; or use the open driver with kernel 5.12 or "
        "later, which does not need it (DMA-BUF)",
        commands=(Command("modprobe nvidia-peermem; lsmod | grep peermem", "the node, as root"),),
        status=Status.WARN,
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class RdmaPorts:
    """Active RDMA ports by kind, as `mlx5_0:1`; `gbits` is the rate of the fastest Ethernet one,
    `rates` those of the InfiniBand ones."""

    infiniband: tuple[str, ...] = ()
    ethernet: tuple[str, ...] = ()
    efa: tuple[str, ...] = ()
    gbits: int = 0
    rates: tuple[int, ...] = ()

    @property
    def fast(self) -> tuple[str, ...]:
        """The InfiniBand ports but for those that are much slower than the fastest: they are there
        for something else."""
        rates = self.rates or (0,) * len(self.infiniband)
        best = max(rates, default=0)
        return tuple(p for p, r in zip(self.infiniband, rates, strict=True) if 2 * r >= best)


@dataclass(frozen=True, slots=True)
class NcclReport:
    """What a rank's NCCL said, the fabric of its machine, and the settings that take a way away."""

    log: NcclLog
    fabric: RdmaPorts = RdmaPorts()
    told: tuple[str, ...] = ()


def different_networks(told: Mapping[int, Any]) -> list[str]:
    """The networks that ranks chose, if they are several: they can't talk to each other."""
    nets = {str(net) for net in told.values() if net}
    return sorted(nets)[:SHOWN] if len(nets) > 1 else []


def findings(world: World[Any], heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    """What is wrong with the ways that the ranks of `heard` took."""
    if humanize.several(world):
        differ = list(_nets_differ(world, heard))
        yield from differ or (
            *_sockets(world, heard),
            *_gdr_off(world, heard),
            *_hcas_unused(heard),
        )
    yield from _p2p_unused(world, heard)
    yield from _diagnosed(heard)


def warnings_survived(
    world: World[Any],
    heard: Mapping[str, NcclReport],
    signatures: Collection[Signature],
) -> Iterator[Found]:
    """What NCCL warned of and got over, where one of these tells the cause."""
    for signature in signatures:
        quotes = {
            key: next(w for w in h.log.warnings if re.search(signature.pattern, w))
            for key, h in heard.items()
            if any(re.search(signature.pattern, w) for w in h.log.warnings)
        }
        if not quotes:
            continue
        first = next(iter(quotes))
        more = f" · so {humanize.ranks_of(world, quotes)}" if len(quotes) > 1 else ""
        yield Found(
            signature.code,
            tuple(world.subject(k) for k in quotes),
            saw=f"{humanize.ranks_of(world, [first])} warns: {quotes[first]}{more}",
            expected=signature.expected,
            blame=signature.blame,
            confidence=Confidence.POSSIBLE,
            alternatives=("NCCL recovered and used another path",),
            status=Status.WARN,
            explains=(),
        )
        return  # one warning brings the next


def _nets_differ(world: World[Any], heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    chosen = {k: h.log.network for k, h in heard.items() if h.log.network}
    if len(set(chosen.values())) < 2:
        return
    agreed = consensus(chosen)
    odd = [k for keys in agreed.odd.values() for k in keys]
    # of two nodes, none is the one that differs, however many ranks each has
    clear = not agreed.tie and not humanize.one_of_two(world, odd)
    groups: dict[str, list[str]] = {}
    for key, net in chosen.items():
        groups.setdefault(net, []).append(key)
    said = [
        f"{net}: {humanize.ranks_of(world, keys)}" for net, keys in list(groups.items())[:SHOWN]
    ]
    yield Found(
        "nets-differ",
        tuple(world.subject(k) for k in odd) if clear else (Subject(Kind.JOB),),
        saw=f"NCCL chose different networks · {' · '.join(said)}",
        expected="the same network on all ranks",
        confidence=Confidence.LIKELY if clear else Confidence.CERTAIN,
        evidence=tuple(odd[:1]),
    )


def _sockets(world: World[Any], heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    """TCP between nodes that all have the same kind of fabric; where one has none, TCP may be all
    that they share."""
    slow = [k for k in heard if _over_tcp(world, k, heard[k].log)]
    fabrics = [h.fabric for h in heard.values()]
    if not slow:
        return
    for name in ("infiniband", "efa", "ethernet"):
        if all(getattr(f, name) for f in fabrics):
            break
    else:
        return
    first = heard[slow[0]]
    sure = name != "ethernet" or all(f.gbits >= FAST for f in fabrics)
    kind = {"infiniband": "InfiniBand", "efa": "EFA", "ethernet": "RoCE"}[name]
    ports: tuple[str, ...] = getattr(first.fabric, name)
    via = f" ({', '.join(first.log.devices[:SHOWN])})" if first.log.devices else ""
    told = [t for t in first.told if t.startswith(("NCCL_NET", "NCCL_IB_"))]
    yield Found(
        "sockets-chosen",
        tuple(Subject(Kind.NODE, node) for node in humanize.on_nodes(slow)),
        saw=f"NCCL sends over TCP{via} between the nodes, in spite of active {kind} ports "
        f"{', '.join(ports[:SHOWN])}{', …' if len(ports) > SHOWN else ''}"
        + "".join(f" · {t}" for t in told[:SHOWN]),
        expected="a plugin for EFA (aws-ofi-nccl)" if name == "efa" else "NET/IB between the nodes",
        blame=Blame.JOB if told else Blame.UNKNOWN,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        alternatives=()
        if sure
        else ("plain Ethernet NICs, whose network is not configured for RoCE",),
        fields={"unset": " ".join(t.partition("=")[0] for t in told) or MAY_FORBID},
        status=Status.FAIL if sure else Status.WARN,
    )


def _over_tcp(world: World[Any], key: str, log: NcclLog) -> bool:
    """Whether this rank's data for other nodes goes over TCP. A rank that reaches only those of its
    own node, or others by NVLink (MNNVL), has nothing to say; one whose connections were not logged
    is taken at its choice."""
    nets = [link.net for link in _links_to_other_nodes(world, key, log) if link.net]
    if log.links:
        return SOCKETS in nets or (bool(nets) and log.over_tcp)
    return log.over_tcp


def _links_to_other_nodes(world: World[Any], key: str, log: NcclLog) -> list[Link]:
    """The links to ranks of other nodes."""
    own = set(_ranks_of(world, place_of(key)[0]))
    return [link for link in log.links if link.peer not in own]


def _ranks_of(world: World[Any], node: str) -> Iterator[int]:
    for other in world.observations:
        name, rank = place_of(other)
        if name == node and rank is not None:
            yield rank


def _gdr_off(world: World[Any], heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    """Nodes on which no rank's network card reaches the GPUs' memory, where other nodes' do. Ranks
    of one node may differ and be well: a card that is far from a GPU does better without."""
    able: dict[str, bool] = {}
    for key, h in heard.items():
        links = [
            link
            for link in _links_to_other_nodes(world, key, h.log)
            if link.net not in ("", SOCKETS)
        ]
        if links:
            node = place_of(key)[0]
            has = bool(h.log.gdr_on) or any(link.gdr for link in links)
            able[node] = able.get(node, False) or has
    off = [node for node, has in able.items() if not has]
    if not off or len(off) == len(able):
        return
    says = {
        hca
        for key, h in heard.items()
        if place_of(key)[0] in off
        for hca in (*h.log.gdr_off, *(t for t in h.told if t.startswith("NCCL_NET_GDR")))
    }
    on = [node for node in able if node not in off]
    why = f" ({', '.join(sorted(says)[:SHOWN])})" if says else ""
    yield Found(
        "gdr-off",
        tuple(Subject(Kind.NODE, node) for node in off),
        saw=f"no GPUDirect RDMA on {parties(off, SHOWN)}{why}; there is on {parties(on, SHOWN)}",
        expected="NICs with access to GPU memory on all nodes",
        confidence=Confidence.LIKELY,
    )


def _hcas_unused(heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    """Nodes whose NCCL found at most half of the active InfiniBand ports, or fewer than it found on
    nodes with the same ones. What a setting leaves out is meant so, and what it names should be
    used; a few that are left out everywhere are storage's."""
    found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    named: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for key, h in heard.items():
        active = frozenset(h.fabric.fast)
        names = {device.partition("/")[0] for device in h.log.devices}
        said = h.log.hcas or any(t.startswith(CHOSEN) for t in h.told)
        many = max(len(h.log.devices), len(h.fabric.infiniband)) >= MANY
        listed = frozenset(port for port in active if _is_named(h.log.hcas, port))
        if listed and not many and h.log.network.startswith("IB"):
            before = named.get(place_of(key)[0], (listed, frozenset()))[1]
            named[place_of(key)[0]] = listed, listed & names | before
        if said or many or not h.log.network.startswith("IB") or not names & active:
            continue
        used = active & names | found.get(place_of(key)[0], (active, frozenset()))[1]
        found[place_of(key)[0]] = active, used
    for node, (active, used) in found.items():
        peers = [u for a, u in found.values() if a == active]
        if 2 * len(used) <= len(active) or any(used < u for u in peers):
            yield _ports_unused(node, active, used, named=False)
    for node, (listed, used) in named.items():
        if used < listed:
            yield _ports_unused(node, listed, used, named=True)


def _ports_unused(node: str, active: frozenset[str], used: frozenset[str], *, named: bool) -> Found:
    left, taken = (sorted(ports, key=_by_number) for ports in (active - used, used))
    more = ", …" if len(left) > SHOWN else ""
    return Found(
        "hcas-unused",
        (Subject(Kind.NODE, node),),
        saw=f"NCCL on {node} uses {len(used)} of {len(active)} active InfiniBand ports"
        f"{' that NCCL_IB_HCA names' if named else ''}, not {', '.join(left[:SHOWN])}{more}",
        expected="every active port that NCCL_IB_HCA names"
        if named
        else "every active port of that speed, without NCCL_IB_HCA",
        blame=Blame.UNKNOWN,
        confidence=Confidence.LIKELY if named else Confidence.POSSIBLE,
        alternatives=() if named else ("ports that are there for storage",),
        fields={"used": ",".join(port.partition(":")[0] for port in taken[:MANY])},
    )


def _is_named(rule: str, port: str) -> bool:
    """Whether NCCL_IB_HCA has this very port or its device: `mlx5_1:1`."""
    device, _, number = port.partition(":")
    return hca_rule(rule).means(device, int(number) if number.isdecimal() else None)


def _by_number(port: str) -> tuple[int, ...]:
    return tuple(int(digits[:9]) for digits in re.findall(r"\d+", port))


def _p2p_unused(world: World[Any], heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    ways: dict[str, tuple[int, str]] = {}
    for key, h in heard.items():
        joined = set(h.log.nvlink) & set(_ranks_of(world, place_of(key)[0]))
        direct = {link.peer for link in h.log.links if link.way.startswith("P2P/")}
        for link in h.log.links:
            if link.peer in joined - direct:
                ways.setdefault(key, (link.peer, link.way))
    if not ways:
        return
    key, (peer, way) = next(iter(ways.items()))
    told = [t for t in heard[key].told if t.startswith("NCCL_P2P_")]
    more = f" · so {humanize.ranks_of(world, ways)}" if len(ways) > 1 else ""
    yield Found(
        "p2p-unused",
        tuple(world.subject(k) for k in ways),
        saw=f"{humanize.ranks_of(world, [key])} reaches rank {peer} by {way}, although NVLink "
        f"connects their GPUs{''.join(f' · {t}' for t in told[:SHOWN])}{more}",
        expected="P2P between GPUs connected by NVLink",
        blame=Blame.JOB if told else Blame.UNKNOWN,
        confidence=Confidence.LIKELY,
        alternatives=("an intended mode without P2P, such as confidential computing",),
    )


def _diagnosed(heard: Mapping[str, NcclReport]) -> Iterator[Found]:
    """What NCCL found itself; rank 0 tells it for all."""
    told = list(dict.fromkeys(text for h in heard.values() for text in h.log.diagnosed))
    if told:
        yield Found(
            "nccl-diagnostics",
            (Subject(Kind.JOB),),
            saw=f"NCCL's diagnostics: {' · '.join(told[:SHOWN])}",
            expected="all pairs verified, all NICs near their median",
            confidence=Confidence.LIKELY,
        )


def transport_summary(heard: Mapping[str, NcclReport]) -> str:
    """`transport NET/IB/GDRDMA + P2P/CUMEM + NVLS`: the ways that were taken, the farthest first;
    the network where no connection was logged."""
    logs = [h.log for h in heard.values()]
    ways: dict[str, bool] = {}
    for log in logs:
        for link in log.links:
            ways[link.way] = ways.get(link.way, True) and link.gdr
    names = [f"{way}/GDRDMA" if gdr else way for way, gdr in sorted(ways.items(), key=_far)]
    names += ["NVLS"] if any(log.nvls for log in logs) else []
    names += ["COLLNET"] if any(log.collnet for log in logs) else []
    if names:
        return "transport " + " + ".join(names[: 2 * SHOWN])
    nets = sorted({log.network for log in logs} - {""})
    return f"network {', '.join(nets[:SHOWN])}" if nets else ""


def _far(item: tuple[str, bool]) -> tuple[int, str]:
    way = item[0]
    return (0 if way.startswith("NET/") else 1 if way.startswith("P2P/") else 2, way)
