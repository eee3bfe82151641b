"""Do large packets pass between all nodes, or are they lost (MTU black hole)?

Level        standard
Looks at     64 B, 1400 B, 9000 B, 64 KiB and 1 MiB over every edge of net.mesh, each acknowledged
             with its checksum; all but the last over eleven more connections from other source
             ports; the path MTU that the kernel found and the packets that it retransmitted
Fails if     data from some size on never arrives, although it is retransmitted, on all connections
             of an edge or on some of them; a seventh or more of what an edge carries is sent again,
             or a connection that had carried packets of full size stops for seconds; data arrives
             corrupted; no node can connect to a port of one, after net.mesh could to another one
Warns if     some connections lose packets each time that they are used, and others none; it arrives
             late after retransmissions (the kernel found a smaller size that passes:
             net.ipv4.tcp_mtu_probing), or the time is over before all of it has arrived
Undecided    the other end received the data and did not acknowledge it, or nothing was sent
Not covered  speed (net.speed): 1 MiB that would take seconds is not sent; RDMA's own MTU
             (net.rdma)
Seen as      "Timed out waiting 1800000ms for recv operation to complete", "Watchdog caught
             collective operation timeout"; init and small all-reduces pass, a large one hangs
"""

from __future__ import annotations

import math
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from socket import socket

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.net.fault_localisation import (
    ALL,
    EITHER,
    LINK,
    NODE,
    SPLIT,
    Pair,
    Suspect,
    describe_edges,
    link_subjects,
    names_by_number,
    shared_by,
    suspects,
    untested_edges,
)
from preflight.domains.net.interfaces import (
    ListenAddress,
    dialled_by_gloo,
    gloo_alone,
    needs_none,
    never_dialled,
)
from preflight.domains.net.mesh_probe import (
    CLOSED,
    FRAME,
    OK,
    REFUSED,
    TIMED_OUT,
    Dialled,
    flows_of_an_edge,
    joined,
)
from preflight.domains.net.mesh_view import other_range
from preflight.domains.net.pairing import NodeNumber
from preflight.domains.net.tcp import (
    READ,
    WRITE,
    Steps,
    discard_unsent,
    errno_name,
    listen_overflows,
    receive,
    tcp_info,
    unacknowledged_bytes,
)
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, plural, size
from preflight.inference import BOTH, INBOUND
from preflight.model import (
    Blame,
    Cell,
    Command,
    Confidence,
    FindingType,
    Found,
    Grid,
    Measured,
    Status,
    World,
)

CHECK = Check(
    scope=Scope.PAIR,
    stage=Stage.FABRIC,
    budget=12.0,
    needs=("net.mesh",),
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    disturbs="sends up to 2 MB over every edge",
    blame=Blame.NETWORK,
    explains=("net.speed", "world.*"),
)

SIZES = (64, 1400, 9000, 1 << 16, 1 << 20)
PATTERN = bytes(range(251)) * 4200

STALLED, UNANSWERED, DAMAGED, UNFINISHED = "stalled", "unanswered", "damaged", "unfinished"
SLOW = "slow"
STOPPED = "stopped"
"""Stalled as well, but packets of full size had come through before: no MTU does that."""
KNOWN = (OK, SLOW, STALLED, STOPPED, DAMAGED, UNFINISHED)
UNOPENED = (TIMED_OUT, *REFUSED)
TRIED = (OK, SLOW, STALLED, STOPPED, UNFINISHED)

# connections of an edge, each from another source port: a path of four shows with 97 % on one edge,
# and a node has several
PATHS = 12
# where the first one took longer, they would be in the way of each other and of net.speed
QUICK = 1.0
# sizes sent on each of these connections; where packets were lost the last size is sent again, in
# this many further rounds
PATH_SIZES, ROUNDS = SIZES[:4], 2
# the least number of connections that lose packets in every round, and of those that stall; the
# probability below which the loss is no coincidence
LOSSY, STALLS, LUCK = 3, 2, 0.01
# of the connections with loss at least this share lose packets in every further round
MOST = 0.6
# one packet at a time over those that did: what a queue drops for lack of room is part of a burst,
# what a cable drops is any packet. Of the connections that lose in each round at least this share
# loses some of them, too
SINGLES, SINGLE, MOST_SINGLES = 32, 1400, 0.4
SINGLES_WITHIN = 3.0
# at least this share loses nothing, else the loss is not that of single paths
CLEAN = 0.25

# the least share of an edge's packets that are sent again, and their least number, with which TCP
# comes to a fraction of its speed on any network. A queue that overflows once, when a connection
# finds out how fast it may be, loses less; of single bad paths most connections lose nothing
HEAVY, HEAVY_COUNT = 0.15, 10
ALONE = 0.5
"""Of packets that are sent one at a time at least this part of that share is lost, too, unless it
is a queue that is too short for bursts; other connections may fill that as well."""
HEADERS = 52
"""Bytes of a packet that are IPv4's and TCP's, with its timestamps."""

# without any progress: time for four repetitions. Where tcp_mtu_probing is set, the kernel tries
# smaller packets at the fifth, some 6 seconds after the first packet
PATIENCE, PROBING = 3.5, 7.0
# so many repetitions of one packet take a second or more; a healthy network rarely needs one
REPEATED = 2
LATE = 1.0
# larger ones take that long where the network is merely slow, and lose packets in its queues
LATE_SIZES = 3
# where the last size would take longer, by the one before it, it is not sent
LONG = 2.0

OTHERWISE = (
    "a firewall lets some of its ports pass only",
    "its listen queue was full (nstat -az TcpExtListenOverflows)",
    "it was stopped or too busy for some seconds between the two checks",
)
MEANS = (
    "init_process_group and small all-reduces pass, the first large one hangs: 'Timed out waiting "
    "… for recv operation to complete'"
)
PROBE = Command("ping -M do -c 2 -s {ping} {to_ip}", "{node}")
WIDTH = Command("ip -s link show dev {interface}", "{node}")
SAME = (
    "set one MTU on all interfaces and switch ports between the nodes, or let ICMP's "
    "'fragmentation needed' through"
)

BLACKHOLE = FindingType(
    who="cluster administrator", cause="", means=MEANS, text=SAME, commands=(PROBE, WIDTH)
)

FINDINGS = {
    "blackhole-node": replace(
        BLACKHOLE,
        headline="large packets to or from {node} are lost: its path has a smaller MTU (black "
        "hole)",
        cause="a switch port, bridge or tunnel of this node with a smaller MTU than its interface",
        now="sysctl -w net.ipv4.tcp_mtu_probing=1   on every node",
        blame=Blame.NODE,
    ),
    "blackhole-link": replace(
        BLACKHOLE,
        headline="large packets from {node} to {to} are lost: the path has a smaller MTU (black "
        "hole)",
        cause="a smaller MTU on the path between these two nodes only",
        now="sysctl -w net.ipv4.tcp_mtu_probing=1   on both nodes",
        commands=(PROBE, Command("tracepath -n {to_ip}", "{node}")),
    ),
    "blackhole-everywhere": replace(
        BLACKHOLE,
        headline="large packets between all nodes are lost: the network has a smaller MTU than the "
        "interfaces",
        cause="an overlay, a VPN or a switch with a smaller MTU than the interfaces have",
        now="ip link set dev {interface} mtu 1400   on every node",
    ),
    "blackhole-somewhere": replace(
        BLACKHOLE,
        headline="large packets from {node} to {to} are lost: the path has a smaller MTU (black "
        "hole)",
        cause="a smaller MTU at either end or between the nodes",
        now="sysctl -w net.ipv4.tcp_mtu_probing=1   on every node",
        text=SAME + ". A run with a third node shows which end it is",
    ),
    "paths-blackhole": replace(
        BLACKHOLE,
        headline="{seen}",
        cause="a smaller MTU on one member of a link aggregation or one of several equal-cost "
        "paths (ECMP): the addresses and ports of a connection decide which one it takes",
        means="a collective hangs in one start and passes in the next: some connections carry "
        "nothing but small messages",
        now="sysctl -w net.ipv4.tcp_mtu_probing=1   on every node",
        text="run without {node!s}; compare the MTU of all members of the bond and of all uplinks "
        "of the switch",
        commands=(Command("cat /proc/net/bonding/*; ip -d link", "{node}"), PROBE),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    "paths-lossy": FindingType(
        headline="{seen}",
        who="cluster administrator",
        cause="a bad cable or transceiver of one member of a link aggregation or of one of several "
        "equal-cost paths (ECMP): the addresses and ports of a connection decide which one it "
        "takes",
        means="some connections of each collective are many times slower than the others, which "
        "wait for them; another start has other ones",
        text="look for errors at each member of the bond of {node!s} and each uplink of its "
        "switch, and take the bad one out",
        commands=(Command("cat /proc/net/bonding/*; ip -s link", "{node}"),),
        status=Status.WARN,
        blame=(Blame.NETWORK, Blame.NODE),
        explains=(
            *("net.mesh:syn-lost", "net.speed", "world.bandwidth"),
            *("world.gloo:slow", "world.nccl:slow"),
        ),
    ),
    "payload-damaged": FindingType(
        headline="data to or from {at} arrives corrupted: wrong checksum",
        cause="a NIC, an offload or a middlebox that corrupts data",
        means="training continues with wrong gradients, or the loss becomes NaN",
        text="exclude {node!s} and {to!s}; disable the offloads one by one, then replace the NIC",
        commands=(Command("ethtool -K {interface} tso off gso off gro off", "{node}"),),
        blame=Blame.NODE,
    ),
    "packets-lost": FindingType(
        headline="packets are lost: {seen}",
        who="cluster administrator, then network administrator",
        cause="a bad cable or transceiver, or a limit that drops what comes too fast (a policer on "
        "the switch port or in the firewall); in one direction alone, the receiving card or the "
        "rule that polices what comes in",
        means="collectives take many times as long or do not end: 'Timed out waiting …ms for recv "
        "operation to complete'; init may pass",
        text="run without {node!s}; look for errors at its card and at its switch port, and for "
        "limits in its firewall",
        commands=(
            Command(
                "ip -s -s link show dev {interface}; tc -s qdisc show dev {interface}", "{node}"
            ),
            Command("nft list ruleset; iptables-save", "{node}"),
        ),
        blame=(Blame.NETWORK, Blame.NODE),
        explains=(
            *("net.speed", "world.*", "rdzv.store"),
            *("net.mesh:syn-lost", "net.mesh:connections-limited"),
        ),
    ),
    "payload-slow": FindingType(
        headline="messages are delayed: {seen}",
        cause="packet loss: a smaller MTU on the path that the kernel found by probing, or a bad "
        "cable",
        means="every new connection stalls for seconds first; collectives are slow",
        text=SAME + "; check the cable and switch port for errors",
        commands=(PROBE, WIDTH),
        status=Status.WARN,
    ),
    "ports-closed": FindingType(
        headline="{node} can be reached by the other nodes on some ports only",
        who="network administrator",
        cause="a firewall that opens the ephemeral range of other machines, and not all of this "
        "node's net.ipv4.ip_local_port_range",
        means="init_process_group hangs in one start and passes in the next: NCCL and Gloo listen "
        "on ports that the kernel chooses",
        text="allow all TCP between the nodes of a job, or set net.ipv4.ip_local_port_range of "
        "{node} to the range that is open",
        commands=(
            Command("sysctl net.ipv4.ip_local_port_range", "every node"),
            Command("nft list ruleset; iptables-save", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NETWORK,
    ),
    "edges-unanswered": FindingType(
        headline="{seen}",
        who="whoever runs this job",
        cause="a node that was too busy to answer in time, or a proxy that accepts all data",
        means="whether these connections work is unknown",
        now="preflight run --only net.payload",
        text="re-run when the nodes are less busy",
        status=Status.UNDECIDED,
    ),
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was sent to node number `to`: seconds of each size that came through, in the order of
    SIZES; why the next one did not (OK: all did; SLOW: it was not sent); packets retransmitted; the
    path MTU, 0: unknown; where many were retransmitted, how many of those that were then sent one
    at a time, -1: not tried; packets with data that were sent, repetitions included, 0: unknown."""

    to: int
    libraries: str
    seconds: tuple[float, ...]
    result: str = OK
    retransmits: int = 0
    mtu: int = 0
    singles: int = -1
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Paths:
    """Connections to node number `to` from different source ports, where not all were alike: how
    many were tried, stalled, lost nothing, lost packets, and then lost some each time that they
    were used; and of these those that lost some of the packets that were sent one at a time, too. A
    single packet that is sent again may be a probe of the kernel's, on a busy machine."""

    to: int
    tried: int
    stalled: int = 0
    clean: int = 0
    lost: int = 0
    lossy: int = 0
    single: int = 0


@dataclass(frozen=True, slots=True)
class Payload:
    place: NodeNumber
    ways: tuple[ListenAddress, ...]
    sweeps: tuple[Sweep, ...]
    paths: tuple[Paths, ...] = ()
    ports: tuple[int, ...] = ()
    overflowed: int = 0


def observe(host: Host, ctx: Context) -> Payload:
    ways, peer = joined(host, ctx)
    patience = PROBING if host.read_int("/proc/sys/net/ipv4/tcp_mtu_probing") else PATIENCE
    before = listen_overflows(host)
    with peer:
        ctx.mark("send")
        met = peer.meet(
            lambda sock: _sweep_first(sock, peer.ends - 0.5, patience),
            min(PATHS, flows_of_an_edge(ctx.world_size)),
            lambda sock: _sweep_path(sock, peer.ends - 0.5, patience),
            enough=_takes_long,
        )
    place = NodeNumber(ctx.rank, ctx.world_size)
    paths = tuple(_paths(met, peer.further))
    ports = (host.read_or_none("/proc/sys/net/ipv4/ip_local_port_range") or "").split()[:2]
    return Payload(
        place,
        ways.found,
        tuple(_sweep_of(d) for d in met),
        paths,
        tuple(int(port) for port in ports if port.isdecimal()),
        max(0, listen_overflows(host) - before),
    )


def _takes_long(dialled: Dialled) -> bool:
    """Whether the edge is so slow that as much again on other connections would take seconds, and
    not for what was lost, which others may not lose."""
    if not dialled.answer:
        return False
    took, result, lost, *_ = dialled.answer
    only_last = len(took) == len(PATH_SIZES)  # what these connections send has passed, and no more
    slow = result in (SLOW, UNFINISHED) or only_last or sum(took) > QUICK
    return bool(slow and lost < REPEATED)


def _paths(met: Iterable[Dialled], further: Iterable[Dialled]) -> Iterator[Paths]:
    """The connections of each edge, its first one among them, where one stalled or lost packets."""
    # the first one's size is another: of what it loses nothing can be compared
    first = [(d.target, (d.answer[1], 0, False, False)) for d in met if d.answer]
    rest = [(d.target, d.answer) for d in further if d.answer]
    by_edge: dict[tuple[int, str], list[tuple[str, int, bool, bool]]] = {}
    for target, ended in (*first, *rest):
        by_edge.setdefault((target.number, target.libraries), []).append(ended)
    for (to, _), all_of_it in by_edge.items():
        paths = Paths(
            to,
            tried=sum(result in TRIED for result, *_ in all_of_it),
            stalled=sum(result == STALLED for result, *_ in all_of_it),
            clean=sum(result in (OK, SLOW) and not lost for result, lost, *_ in all_of_it),
            lost=sum(_loses(result, lost) for result, lost, *_ in all_of_it),
            lossy=sum(again for _, _, again, _ in all_of_it),
            single=sum(single for *_, single in all_of_it),
        )
        if paths.stalled or paths.lost:
            yield paths


def _loses(result: str, lost: int) -> bool:
    return result in (OK, UNFINISHED, STOPPED) and lost >= REPEATED


def _sweep_path(sock: socket, ends: float, patience: float) -> Steps[tuple[str, int, bool, bool]]:
    """One of several connections of an edge: how it ended, packets sent again, whether it lost some
    each time, and some of those that were sent one at a time."""
    _, result, lost, *_ = yield from _sweep(sock, ends, patience, PATH_SIZES)
    again, before = _loses(result, lost), lost
    for _ in range(ROUNDS if again and result == OK else 0):
        _, more, now, *_ = yield from _sweep(sock, ends, patience, PATH_SIZES[-1:])
        again, before = again and more in (OK, UNFINISHED) and now > before, now
    single = False
    if again and result == OK:
        until = min(ends, time.monotonic() + SINGLES_WITHIN)
        _, _, now, *_ = yield from _sweep(sock, until, patience, (SINGLE,) * SINGLES)
        single = now - before >= REPEATED
    return result, lost, again, single


def _sweep_of(dialled: Dialled) -> Sweep:
    """The sweep over one connection; an edge that net.mesh already knows to be closed has sent
    nothing."""
    edge = dialled.edge
    seconds, result, *more = dialled.answer or ((), edge.result)
    return Sweep(edge.to, edge.libraries, seconds, result, *more)


def _sweep_first(
    sock: socket, ends: float, patience: float
) -> Steps[tuple[tuple[float, ...], str, int, int, int, int]]:
    """The first connection of an edge: as a Sweep has it."""
    took, result, lost, mtu, sent = yield from _sweep(sock, ends, patience)
    singles = -1
    if result in (OK, SLOW) and lost >= HEAVY_COUNT:
        until = min(ends, time.monotonic() + SINGLES_WITHIN)
        _, ended, now, *_ = yield from _sweep(sock, until, patience, (SINGLE,) * SINGLES)
        singles = now - lost if ended == OK else -1
    return took, result, lost, mtu, singles, sent


def _sweep(
    sock: socket, ends: float, patience: float, sizes: tuple[int, ...] = SIZES
) -> Steps[tuple[tuple[float, ...], str, int, int, int]]:
    """Seconds of each size that came through, how it ended, packets sent again, the path MTU, and
    packets with data that were sent."""
    took: list[float] = []
    result = OK
    info = tcp_info(sock)
    # what net.ipv4.tcp_mtu_probing makes of it later passes where full size does not
    full = info.mss if info else 0
    left = 0
    try:
        for length in sizes:
            began = time.monotonic()
            data = PATTERN[:length]
            wanted = FRAME.pack(length, zlib.crc32(data))
            rest = memoryview(wanted + data)
            left = len(rest)
            while rest:
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    yield from _wait_for_progress(sock, WRITE, ends, patience)
            yield from _wait_for_progress(sock, READ, ends, patience)
            if (yield from receive(sock, FRAME.size, patience)) != wanted:
                result = DAMAGED
                break
            took.append(round(time.monotonic() - began, 6))
            if sizes[len(took) :] == SIZES[-1:] and took[-1] * SIZES[-1] / length > LONG:
                result = SLOW
                break
    except TimeoutError:
        discard_unsent(sock)
        info = tcp_info(sock)
        waits = unacknowledged_bytes(sock)
        if time.monotonic() > ends:
            result = UNFINISHED
        else:
            # what the other kernel took is not lost, whatever its process does; what never leaves
            # this one for seconds, though the other has room, is dropped on this machine
            lost = waits != 0 and (
                info is None or info.retransmits >= REPEATED or info.held is False
            )
            # each size begins with a packet of its own: when the one before has been acknowledged
            acknowledged = 0 if waits is None else left - len(rest) - waits
            came = max(acknowledged, *sizes[: len(took)], 0)
            stalled = STOPPED if 0 < full <= came else STALLED
            result = stalled if lost else UNANSWERED
    except EOFError:
        result = CLOSED
    except OSError as error:
        result = errno_name(error)
    info = tcp_info(sock)
    counts = (info.retransmits, info.mtu, info.sent) if info else (0, 0, 0)
    return tuple(took), result, *counts


def _wait_for_progress(sock: socket, event: int, ends: float, patience: float) -> Steps[None]:
    """Wait for the socket as long as the other end goes on to acknowledge what was sent."""
    left, moved = unacknowledged_bytes(sock), time.monotonic()
    while True:
        try:
            yield sock, event, 0.1
            return
        except TimeoutError:
            now, before = time.monotonic(), left
            left = unacknowledged_bytes(sock)
            if left != before:
                moved = now
            if now - moved > patience or now > ends:
                raise


def judge(world: World[Payload], expect: Expect) -> Iterator[Found]:
    sweeps = world.once(_sweeps)
    known = {e: s for e, s in sweeps.items() if s.result in KNOWN}
    paths = _paths_by_edge(world)
    most = {e for e, p in paths.items() if e in known and p.clean < CLEAN * p.tried}
    # what stops after many packets may do so only on the one connection that carries most
    most |= (stops := {e for e, s in known.items() if s.result == STOPPED})
    heavy = {e: _share(known[e]) for e in sorted(most) if e in stops or _heavy_loss(known[e])}
    # beside one of which it is sure, those of which most connections lose something
    found = suspects(most if heavy else (), known)
    losing = [suspect for suspect in found if {*suspect.edges} & {*heavy}]
    for suspect in losing:
        yield _packets_lost(world, suspect, heavy, known, paths)
    # what is lost at random may now and then be all that a connection sends for seconds
    known = {e: s for e, s in known.items() if not _at(losing, e)}
    paths = {e: p for e, p in paths.items() if not _at(losing, e)}
    thin = {
        e: p
        for e, p in paths.items()
        if 0 < p.stalled < p.tried and not (e in known and _crawls(known[e], p.tried))
    }
    if sum(p.stalled for p in thin.values()) < STALLS:
        thin = {}
    at_random = _lost_at_random(paths, thin, known)
    if at_random:
        for suspect in shared_by(at_random, known, 0.0):
            yield _packets_lost(world, suspect, {}, known, paths)
    elif thin:
        yield _some_paths(world, "paths-blackhole", thin, known)
    aside = {*thin, *at_random}
    stalled = [e for e, s in known.items() if s.result == STALLED and e not in aside]
    yield from _lossy_paths(world, paths, known)
    for suspect in suspects(stalled, known):
        yield _blackhole(world, suspect, known)
    damaged = [e for e, s in known.items() if s.result == DAMAGED]
    for suspect in suspects(damaged, known):
        yield Found(
            "payload-damaged",
            suspect.subjects(world.topology),
            saw=f"{suspect.where(known)}: wrong checksum",
            expected="what arrives is what was sent",
            blame=suspect.blame,
            confidence=suspect.confidence,
            alternatives=suspect.alternatives("the port or interface"),
            fields=_advice_fields(world, suspect),
        )
    slow = [e for e, s in known.items() if _slow(s)]
    for suspect in suspects(slow, known):
        worst = max((sweeps[e] for e in suspect.edges), key=lambda s: max(s.seconds, default=0.0))
        unfinished = sum(sweeps[e].result == UNFINISHED for e in suspect.edges)
        ended = f" · {unfinished} did not end in time" if unfinished else ""
        yield Found(
            "payload-slow",
            suspect.subjects(world.topology),
            saw=f"{suspect.where(known)}: up to {duration(max(worst.seconds, default=0.0))} for "
            f"a message · {worst.retransmits} packets retransmitted · path MTU {worst.mtu}{ended}",
            expected="1 MiB at once and without lost packets",
            confidence=Confidence.LIKELY,
            fields=_advice_fields(world, suspect),
        )
    closed = list(_closed(world, sweeps))
    yield from closed
    told = {s.node for found in closed for s in found.subjects}
    explained = {e for e in sweeps if e[1] in told or _at(losing, e)}
    yield from _unanswered(world, set(known) | explained)


def _heavy_loss(sweep: Sweep) -> bool:
    """Whether a large share of an edge's packets was sent again."""
    if sweep.result not in (OK, SLOW, UNFINISHED) or sweep.retransmits < HEAVY_COUNT:
        return False
    share = _share(sweep)
    if 0 <= sweep.singles < ALONE * share * SINGLES:
        return False  # most of it was part of a burst: a shaper with a short queue
    return share >= HEAVY


def _share(sweep: Sweep) -> float:
    """The part of an edge's packets that was sent again."""
    if sweep.sent:
        return min(1.0, sweep.retransmits / sweep.sent)
    segment = max((sweep.mtu or 1500) - HEADERS, 500)
    # of a size that did not pass all may have been sent
    tried = SIZES[: len(sweep.seconds) + (sweep.result in (UNFINISHED, STOPPED))]
    packets = sum(-(-length // segment) for length in tried)
    return sweep.retransmits / max(1, packets + sweep.retransmits)


def _crawls(sweep: Sweep, connections: int) -> bool:
    """Whether an edge is so slow that this number of connections at once wait for each other longer
    than one is waited for."""
    took = max(sweep.seconds, default=0.0)
    return sweep.result == SLOW and took * connections > PATIENCE


def _lost_at_random(
    paths: Mapping[Pair, Paths], thin: Mapping[Pair, Paths], known: Collection[Pair]
) -> list[Pair]:
    """The edges of these nodes with connections that lose packets, where not fewer of them do so
    now and then than stall: a member of a bond with a smaller MTU does nothing to the others."""
    nodes = {name for edge in thin for name in edge}
    near = {e: p for e, p in paths.items() if e in known and nodes & {*e}}
    lost, again = sum(p.lost for p in near.values()), sum(p.lossy for p in near.values())
    if lost < max(1, sum(p.stalled for p in thin.values())) or again >= MOST * lost:
        return []
    return sorted(near)


def _at(losing: Iterable[Suspect], edge: Pair) -> bool:
    """Whether an edge is of a node, or between two, that lose so much: of a connection the
    acknowledgements go the other way."""
    return any(
        one.names[0] in edge if one.what == NODE else edge in one.edges or edge[::-1] in one.edges
        for one in losing
    )


def _packets_lost(
    world: World[Payload],
    suspect: Suspect,
    heavy: Mapping[Pair, float],
    known: Mapping[Pair, Sweep],
    paths: Mapping[Pair, Paths],
) -> Found:
    ended = sum(known[e].result == UNFINISHED for e in suspect.edges)
    late = f", and {plural(ended, 'connection')} did not end in time" if ended else ""
    stops = [known[e] for e in suspect.edges if known[e].result == STOPPED]
    if stops:
        late += f", and {plural(len(stops), 'connection')} stopped for seconds"
    node, to = suspect.ends
    at = {BOTH: "to and from", INBOUND: "to"}.get(suspect.at, "from")
    where = f"{at} {node}" if suspect.what == NODE else f"between {node} and {to}"
    # where the acknowledgements get lost, the other direction repeats what had arrived
    sure = [e for e in suspect.edges if e in heavy]
    if suspect.what == LINK and len(sure) == 1:
        suspect = replace(suspect, edges=tuple(sure))
        ((node, to),) = sure
        where = f"from {node} to {to}"
    if suspect.what in (ALL, SPLIT):
        where = "between the nodes"
    shares = sorted(heavy[e] for e in suspect.edges if e in heavy)
    cut: tuple[str, ...] = ()
    if stops and shares[-1] < HEAVY:
        least = min((SIZES[len(s.seconds) - 1] for s in stops if s.seconds), default=0)
        after = f" after {size(least)} or more had passed" if least else ""
        again = sum(s.retransmits for s in stops)
        saw = f"{plural(len(stops), 'connection')} {where} stopped for seconds{after}, and "
        saw += f"{plural(again, 'packet')} sent again got no answer"
        cut = ("a firewall or middlebox that cuts a connection after so much data",)
    elif shares:
        some = "" if shares[0] == shares[-1] else f"{shares[0]:.0%} to "
        saw = f"{some}{shares[-1]:.0%} of what is sent {where} is sent again{late}"
    else:
        these = [paths[e] for e in suspect.edges if e in paths]
        stalled, lost = sum(p.stalled for p in these), sum(p.lost for p in these)
        saw = f"{plural(stalled, 'connection')} {where} stalled for seconds, {lost} sent much again"
    return Found(
        "packets-lost",
        suspect.subjects(world.topology),
        saw=f"{saw} · {suspect.where(known)}",
        expected="no packet, or one of thousands",
        blame=suspect.blame,
        confidence=Confidence.POSSIBLE if suspect.what == EITHER else Confidence.LIKELY,
        alternatives=(*suspect.alternatives("the port or interface"), *cut),
        fields=_advice_fields(world, suspect),
    )


def _closed(world: World[Payload], sweeps: Mapping[Pair, Sweep]) -> Iterator[Found]:
    """Nodes that no other one could connect to this time. To other ports of theirs they could, in
    net.mesh: where they couldn't, that is told there, and this follows from it. A range of ports
    that no other node has says that a firewall was made for theirs; without one it may as well be
    the node that was busy for these seconds."""
    ranges = {node: seen.ports for node, seen in world.seen.items()}
    gloo = gloo_alone({node: seen.ways for node, seen in world.seen.items()})
    nodes = [node.name for node in world.topology.nodes]
    to: dict[str, list[Sweep]] = {}
    into: dict[str, list[Pair]] = {}
    for (start, node), sweep in sweeps.items():
        to.setdefault(node, []).append(sweep)
        into.setdefault(node, []).append((start, node))
    for node, tried in to.items():
        if len(tried) > 1 and all(s.result == TIMED_OUT for s in tried) and node in world.seen:
            full = world.seen[node].overflowed
            differs = other_range(ranges, node)
            sure = differs is not None and not full
            queue = f" · its listen queue was full {plural(full, 'time')}" if full else ""
            yield Found(
                "ports-closed",
                (world.subject(node),),
                saw=f"{plural(len(tried), 'connection')} from other nodes: no answer from the "
                f"port at which {node} listened, after those of net.mesh to another port"
                + (f" · {differs}" if differs is not None else "")
                + queue,
                expected="connections to all ports that the kernel chooses",
                confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
                alternatives=() if sure else OTHERWISE,
                status=Status.WARN if needs_none(gloo, into[node], nodes) else None,
                fields={"node": node},
            )


def _sweeps(world: World[Payload]) -> Mapping[Pair, Sweep]:
    """The worst sweep of each edge (NCCL's and Gloo's addresses may differ), by names. Node
    numbers are untrusted input."""
    names = names_by_number(world)
    order = (STALLED, DAMAGED, UNFINISHED)
    worst: dict[Pair, Sweep] = {}
    for here, seen in world.each():
        node = here.node
        if names.get(seen.place.number) != node:
            continue
        for sweep in seen.sweeps:
            to = names.get(sweep.to, node)
            if to == node:
                continue
            known = worst.setdefault((node, to), sweep)
            if known is not sweep and sweep.result in order and known.result not in order:
                worst[node, to] = sweep
    return worst


def _paths_by_edge(world: World[Payload]) -> dict[Pair, Paths]:
    """Node numbers are untrusted input, as in _sweeps()."""
    names = names_by_number(world)
    found: dict[Pair, Paths] = {}
    for here, seen in world.each():
        for some in seen.paths if names.get(seen.place.number) == here.node else ():
            to = names.get(some.to, here.node)
            if to != here.node:
                found.setdefault((here.node, to), some)
    return found


def _lossy_paths(
    world: World[Payload], paths: Mapping[Pair, Paths], known: Mapping[Pair, Sweep]
) -> Iterator[Found]:
    """Where some connections lose packets each time and others never, it is not chance: if all lost
    as many, then by the part that lost nothing few of those that did would go on in each round."""
    bad = {e: p for e, p in paths.items() if p.lossy}
    each, lost = sum(p.lossy for p in bad.values()), sum(p.lost for p in bad.values())
    clean, tried = sum(p.clean for p in bad.values()), sum(p.tried for p in bad.values())
    if each < max(LOSSY, MOST * lost) or clean < CLEAN * tried:
        return
    if sum(p.single for p in bad.values()) < MOST_SINGLES * each:
        return  # a shaper, or a switch, with little room for bursts: net.speed says how slow
    chance = (1 - (clean / tried) ** (PATH_SIZES[-1] / sum(PATH_SIZES))) ** ROUNDS
    luck = sum(
        math.comb(lost, n) * chance**n * (1 - chance) ** (lost - n) for n in range(each, lost + 1)
    )
    if luck < LUCK:
        yield _some_paths(world, "paths-lossy", _without_strays(bad), known)


def _without_strays(bad: Mapping[Pair, Paths]) -> Mapping[Pair, Paths]:
    """Those of one node, where a single connection elsewhere lost something as often: on a busy
    machine the kernel may send a probe in each round."""
    worse = [edge for edge, paths in bad.items() if paths.lossy > 1]
    common = set.intersection(*({*edge} for edge in worse)) if len(worse) > 1 else set()
    kept = {edge: paths for edge, paths in bad.items() if paths.lossy > 1 or common & {*edge}}
    return kept if len(common) == 1 and len(bad) - len(kept) == 1 else bad


def _some_paths(
    world: World[Payload], code: str, bad: Mapping[Pair, Paths], known: Mapping[Pair, Sweep]
) -> Found:
    """Who shares the edges of which some connections are bad."""
    stalls = code == "paths-blackhole"
    count = sum(p.stalled if stalls else p.lossy for p in bad.values())
    tried = sum(p.tried for p in bad.values())
    found = shared_by(bad, known, (1 - count / tried) ** PATHS)
    one = found[0] if len(found) == 1 else None
    node = one is not None and one.what == NODE
    where = f"of {one.names[0]}" if one is not None and node else describe_edges(list(bad))
    does = "lose all large packets" if stalls else f"lose packets in each of {ROUNDS + 1} rounds"
    return Found(
        code,
        one.subjects(world.topology)
        if one is not None
        else link_subjects(list(bad), world.topology),
        saw=f"{count} of {tried} connections {where} {does}; the others, from other source ports, "
        "pass",
        expected="all connections between two nodes alike, whatever their source port",
        blame=Blame.NODE if node else Blame.NETWORK,
        confidence=Confidence.LIKELY
        if one is not None and one.what != EITHER
        else Confidence.POSSIBLE,
        alternatives=one.alternatives("a member of the bond") if one is not None else (),
        fields=_advice_fields(world, one if one is not None else found[0]),
    )


def _slow(sweep: Sweep) -> bool:
    slowest = max(sweep.seconds[:LATE_SIZES], default=0.0)
    late = slowest > LATE and sweep.retransmits >= REPEATED
    return sweep.result == UNFINISHED or (sweep.result in (OK, SLOW) and late)


CODES = {ALL: "everywhere", SPLIT: "link", NODE: "node", LINK: "link", EITHER: "somewhere"}


def _blackhole(world: World[Payload], suspect: Suspect, known: dict[Pair, Sweep]) -> Found:
    found = [known[e] for e in suspect.edges]
    stops = Counter(SIZES[min(len(s.seconds), len(SIZES) - 1)] for s in found)
    first = stops.most_common(1)[0][0]
    passed = SIZES[SIZES.index(first) - 1] if first != SIZES[0] else 0
    mtus = sorted({s.mtu for s in found if s.mtu})
    by_kernel = f" · the kernel believes the path MTU is {mtus[-1]}" if mtus else ""
    so_far = f"{passed} B pass, " if passed else ""
    return Found(
        f"blackhole-{CODES[suspect.what]}",
        suspect.subjects(world.topology),
        saw=f"{suspect.where(known)}: {so_far}{first} B never arrive{by_kernel}",
        expected="data of any size arrives",
        blame=suspect.blame,
        confidence=suspect.confidence,
        alternatives=suspect.alternatives("the port or interface"),
        fields=_advice_fields(world, suspect) | {"ping": str(max(mtus, default=1500) - 28)},
    )


def _advice_fields(world: World[Payload], suspect: Suspect) -> dict[str, str]:
    node, to = suspect.ends
    here, there = world.seen.get(node), world.seen.get(to)
    return {
        "node": node,
        "to": to,
        "to_ip": there.ways[0].ip if there and there.ways else "ADDRESS",
        "interface": here.ways[0].interface if here and here.ways else "",
        "ping": "1472",
    }


def _unanswered(world: World[Payload], known: set[Pair]) -> Iterator[Found]:
    """Edges of the plan, between two nodes that both answered, of which nothing is known."""
    ways = {here.node: seen.ways[0] for here, seen in world.each() if len(seen.ways) == 1}
    missing = untested_edges(world, known)
    left = [(a, b) for a, b in missing if not never_dialled(ways.get(a), ways.get(b))]
    # a firewall that lets only answers in: net.mesh warns of it
    gloo = gloo_alone({node: seen.ways for node, seen in world.seen.items()})
    closed = {e for e, s in world.once(_sweeps).items() if s.result in UNOPENED}
    if gloo:
        left = [e for e in left if e not in closed or dialled_by_gloo(*map(gloo.get, e))]
    if left:
        yield Found(
            "edges-unanswered",
            link_subjects(left, world.topology),
            saw=f"{plural(len(left), 'connection')} without an answer: {describe_edges(left)}",
            expected="an answer over every connection of net.mesh",
        )


def measured(world: World[Payload]) -> Measured:
    sweeps = world.once(_sweeps)
    if not sweeps:
        return Measured()
    fine = [s for s in sweeps.values() if s.result == OK]
    mtus = sorted({s.mtu for s in sweeps.values() if s.mtu})
    slow = sum(s.result == SLOW for s in sweeps.values())
    words = [f"{size(SIZES[-1])} on {len(fine)}/{len(sweeps)} edges"]
    if slow:  # which is no fault, but why not all of them have passed
        words.append(f"{slow} too slow for it")
    if mtus:
        words.append(f"path MTU {mtus[0]}" + (f"-{mtus[-1]}" if len(mtus) > 1 else ""))
    slowest = max((s.seconds[-1] for s in fine if s.seconds), default=None)
    if slowest is not None:
        words.append(f"{duration(slowest)} at most")
    values = {"edges": len(sweeps), "passed": len(fine), "mtus": mtus}
    return Measured(" · ".join(words), values, _grid(sweeps) if world.drawn else None)


def _grid(sweeps: Mapping[Pair, Sweep]) -> Grid | None:
    """Between whom the largest size came through, or would have, given more time."""
    nodes = tuple(dict.fromkeys(name for pair in sorted(sweeps) for name in pair))
    number = {node: index for index, node in enumerate(nodes)}
    if len(nodes) < 3:
        return None
    whole = len(sweeps) == len(nodes) * (len(nodes) - 1)
    passed = {pair: s.result in (OK, SLOW) for pair, s in sweeps.items()}
    return Grid(
        title=f"where {size(SIZES[-1])} came through: from the row to the column",
        rows=nodes,
        columns=nodes,
        cells=tuple(
            Cell(number[a], number[b], 1.0 if fine else 0.0)
            for (a, b), fine in sorted(passed.items())
            if not (fine and whole)
        ),
        usual=1.0,
        rest=1.0 if whole else None,
    )
