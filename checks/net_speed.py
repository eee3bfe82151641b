"""What are the TCP bandwidth and latency between the nodes, and is a node or link slower?

Level        standard
Looks at     bytes per second in both directions and round trips between pairs of nodes, over the
             address that NCCL or Gloo uses, one TCP connection per pair: up to five rounds in which
             every node gets another partner, all pairs of a round at once; retransmissions;
             decisive values are measured twice; error counters of the network cards and of their
             drivers before and after that, their duplex mode, the members of a bond, and the most
             that net.ipv4.tcp_rmem and tcp_wmem allow
Fails if     a node or a link moves less than is expected (--expect tcp_gbits), or both connections
             from one node to another stop after about as many bytes; never because it is slow,
             without that expectation: a slow network does not prevent a start
Warns if     one node sends or receives at less than 40 % of the rate of the others, with each of
             its partners; one link has less than 40 % of the rate of its ends with other nodes; a
             round trip takes over 1 ms and ten times that of the others; 0.6 % of the segments of
             one node or link are retransmitted, and of the others less than a quarter of that; a
             card counts damaged frames during the check, or is half duplex; its link goes down
             meanwhile, or went down ten times since boot and no other node's did a fifth as often;
             a member of a bond has no link; with nothing to compare with: less than 100 Mbit/s, or
             2 % retransmitted
Undecided    a node exchanged no data with any partner
Not covered  RDMA and NVLink (world.bandwidth); a switch that is slow under full load only; links
             faster than 8 Gbit/s, where one TCP stream measures the CPU; the rate between nodes
             with round trips of over 25 ms, where TCP takes longer than we measure to get fast
Seen as      no error at all: every step of every rank takes as long as on the slowest node
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.net import pairing as pairs
from preflight.domains.net import slow_pairs as speeds
from preflight.domains.net.interfaces import listen_addresses
from preflight.domains.net.nic_counters import DOWNS, Card, cards_since, flapping, read_errors
from preflight.domains.net.rounds import ROUNDS, PairRounds, Trial
from preflight.domains.net.slow_pairs import IN, OUT, Edge, EdgeRate, PairSpeeds
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host, number
from preflight.humanize import duration, plural, size
from preflight.model import (
    Blame,
    CannotObserve,
    Cell,
    Command,
    Confidence,
    FindingType,
    Found,
    Grid,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = Check(
    scope=Scope.PAIR,
    stage=Stage.FABRIC,
    budget=12.0,
    needs=("net.mesh",),
    level=Level.STANDARD,
    required=False,
    requires=frozenset({Requirement.PEERS}),
    disturbs="the network: one TCP stream per node for a second",
    blame=Blame.NETWORK,
    explains=("world.bandwidth", "world.gloo:slow", "world.nccl:slow"),
)

# more slow links than this part of the nodes, and it is no matter of single links
CROWD = 0.25
KEPT = 4
GBIT = 1.25e8
SLOWER = ("world.gloo:slow", "world.nccl:slow")
VERBS = ((OUT, "sends"), (IN, "receives"))

TEST = (
    Command("iperf3 -s", "{to}"),
    Command("iperf3 -c {to}; iperf3 -c {to} -R", "{node}"),
)
CARD = Command("ethtool {interface}; ethtool -S {interface} | grep -iE 'err|drop|crc'", "{node}")
BUFFERS = Command("sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem", "{node}")

FINDINGS = {
    "transfer-stops": FindingType(
        headline="each connection from {node} to {to} stops for good after {bytes}",
        cause="a firewall, an intrusion prevention system or a tunnel on the path that blocks a "
        "connection after a number of bytes, or loses track of it",
        means="a hang in the first large collective: the connections stay open, and the next "
        "packets are sent again and again",
        text="let the job's connections pass what inspects them on the path (a firewall's limits "
        "of bytes, an IPS, window tracking of conntrack); compare with a node that is not behind "
        "it",
        commands=(
            Command("ss -tino dst {to}", "{node}, while a transfer hangs"),
            Command("nft list ruleset; sysctl net.netfilter", "both nodes, as root"),
        ),
        explains=("world.*",),
    ),
    "node-slow": FindingType(
        headline="the network of {node} is slow: {seen}",
        cause="a NIC that fell back to a lower speed, a bad cable, a rate limit, the quota of a "
        "virtual machine, small buffers of TCP",
        means="no error at all: every all-reduce of every rank waits for this node",
        text="exclude {node!s}; compare the NIC's speed and error counters with those of another "
        "node",
        commands=(CARD, BUFFERS, *TEST),
        status=Status.WARN,
        blame=Blame.NODE,
    ),
    "link-slow": FindingType(
        headline="the path between {node} and {to} is slow: {seen}",
        cause="a path through a congested or broken switch port or uplink, or a route through "
        "another network",
        means="no error at all: a ring that uses this link is as slow as the link",
        text="check the path between the two, and the counters of the switch ports on it",
        commands=(Command("tracepath -n {to}", "{node}"), *TEST),
        status=Status.WARN,
    ),
    "speed-low": FindingType(
        headline="the network between {node} and {to} is slow: {seen}",
        cause="a NIC or cable at either end, the switch between them, a rate limit, or the "
        "management network used for data",
        means="no error at all: training is slow",
        text="compare with a third node; check that NCCL_SOCKET_IFNAME names the fast network",
        commands=(CARD, *TEST),
        status=Status.WARN,
        explains=SLOWER,
    ),
    "below-expected": FindingType(
        headline="the network is slower than expected: {seen}",
        cause="anything that slows all nodes or links alike, so that none is slower than the "
        "others",
        means="no error at all: training is slower than when the expectation was recorded",
        text="compare with the baseline: preflight baseline diff",
        commands=(CARD, *TEST),
        blame=(Blame.NETWORK, Blame.NODE),
        explains=SLOWER,
    ),
    "latency-high": FindingType(
        headline="the latency is high: {seen}",
        cause="a node in another room or zone, a tunnel or proxy on the path, or a busy machine",
        means="no error at all: every small collective takes that much longer",
        text="use nodes near each other, and a path without a tunnel",
        commands=(Command("tracepath -n {to}", "{node}"),),
        status=Status.WARN,
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    "packets-lost": FindingType(
        headline="{seen}",
        cause="a bad cable or transceiver, a duplex mismatch, a full buffer, a rate limit",
        means="some steps take 0.2 s or seconds longer; with more loss timeouts",
        text="check the error counters of the NIC and of its switch port",
        commands=(CARD,),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.NETWORK),
        explains=("net.mesh", "world.bandwidth", *SLOWER),
    ),
    "nic-errors": FindingType(
        headline="the network card {interface} of {node} receives damaged frames: {seen}",
        cause="a bad cable, transceiver or switch port, or a duplex mismatch with the switch",
        means="damaged packets are dropped and retransmitted: sometimes a step takes 0.2 s or "
        "seconds longer; with more damage there are timeouts",
        text="check the cable and transceiver of {interface} on {node!s}, then try another switch "
        "port",
        commands=(CARD,),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=("net.mesh", "world.bandwidth", *SLOWER),
    ),
    "link-flapped": FindingType(
        headline="the link of {interface} on {node} goes down: {seen}",
        cause="a bad cable, transceiver or switch port, or a bond that the switch does not know",
        means="each time it is away for a second or more: connections stall, RDMA queue pairs "
        "break, and a job may end with a timeout hours after its start",
        text="check the cable and transceiver of {interface} on {node!s}, then try another switch "
        "port",
        commands=(
            Command("dmesg -T | grep -i link | grep {interface}", "{node}, as root"),
            CARD,
        ),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=("net.mesh", "world.bandwidth", *SLOWER),
    ),
    "duplex-half": FindingType(
        headline="the network card {interface} of {node} runs half duplex",
        cause="autonegotiation that failed: one end has a fixed speed and the other has not",
        means="collisions and lost packets as soon as both directions are busy, as in every "
        "all-reduce",
        text="let both ends negotiate, or set the same speed and duplex at both",
        commands=(CARD,),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=("world.bandwidth", *SLOWER),
    ),
    "bond-degraded": FindingType(
        headline="a member of the bond on {node} has no link: {seen}",
        cause="a cable, transceiver or switch port of that member",
        means="the other members carry all of its traffic: training is slower, without any error",
        text="check the cable and the switch port of {interface} on {node!s}",
        commands=(Command("cat /proc/net/bonding/*", "{node}"),),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=("world.bandwidth", *SLOWER),
    ),
    "not-measured": FindingType(
        headline="the network speed of {at} could not be measured: {seen}",
        who="whoever runs this node",
        cause="a node too busy to answer in time, or a path that passes small packets only",
        means="whether the network of this node is fast is unknown",
        text="fix what net.mesh and net.payload report first; re-run when the node is idle",
        status=Status.UNDECIDED,
    ),
}


@dataclass(frozen=True, slots=True)
class Speed:
    """What one node learnt in the rounds: of each partner what came in, and round trips."""

    place: pairs.NodeNumber
    interface: str
    trials: tuple[Trial, ...]
    cards: tuple[Card, ...] = ()
    """Those below the interface, with what they counted meanwhile."""
    buffers: tuple[int, int] = (0, 0)
    """The largest that TCP may take by itself to receive and to send, 0 where it is not known."""


def observe(host: Host, ctx: Context) -> Speed:
    if ctx.world_size < 2:
        raise NotApplicable("there is no other node")
    ways = listen_addresses(host, ctx).found
    if not ways:
        raise CannotObserve("no interface that NCCL or Gloo would use has an address")
    name = ways[0].interface
    before = read_errors(host, name)
    try:
        with PairRounds(host, ctx, ways[0].ip) as tour:
            place, trials = pairs.NodeNumber(ctx.rank, ctx.world_size), tour.all_rounds()
        cards = tuple(cards_since(host, name, before))
        return Speed(place, name, trials, cards, _buffers(host))
    except OSError as error:
        raise CannotObserve(f"{ways[0].interface} {ways[0].ip}: {error.strerror}") from None


def _buffers(host: Host) -> tuple[int, int]:
    texts = (host.read_or_none(f"/proc/sys/net/ipv4/tcp_{way}mem") or "" for way in "rw")
    receive, send = (number((text.split() or [""])[-1]) or 0 for text in texts)
    return receive, send


def judge(world: World[Speed], expect: Expect) -> Iterator[Found]:
    if len(world.topology.nodes) < 2:
        return
    names = {here.node: seen.interface for here, seen in world.each()}
    for finding in _judge(world, expect):
        interface = names.get(finding.fields.get("node", ""), "")
        if finding.code in EXPLAINED:
            why = _held_up(world, finding) + _small_buffers(world, finding)
            finding = finding.with_(saw=finding.saw + why)
        yield finding.with_(fields={"interface": interface, **finding.fields})


BUFFER_LEAST = 256 * 1024
"""Bytes; the kernel's own values are 6 and 4 MiB (tcp(7))."""
EXPLAINED = ("node-slow", "link-slow", "packets-lost", "speed-low")
"""Findings for which a card below may give the reason."""


def _held_up(world: World[Speed], finding: Found) -> str:
    """What the cards at its ends have held up or dropped meanwhile."""
    ends = [node for s in finding.subjects for node in (s.node, s.to) if node]
    cards = {here.node: seen.cards for here, seen in world.each()}
    told = [
        f" · {card.name} of {node}: {card.held_up}"
        for node in dict.fromkeys(ends)
        for card in cards.get(node, ())
        if card.held_up
    ]
    return "".join(told[:2])


def _small_buffers(world: World[Speed], finding: Found) -> str:
    """The buffers of TCP at its ends, where they hold up any path that takes a millisecond."""
    ends = {node for s in finding.subjects for node in (s.node, s.to) if node}
    small = [
        f" · net.ipv4.tcp_{name} of {here.node} ends at {most} bytes"
        for here, seen in world.each()
        for name, most in zip(("rmem", "wmem"), seen.buffers, strict=True)
        if here.node in ends and 0 < most < BUFFER_LEAST
    ]
    return "".join(small[:2])


def _judge(world: World[Speed], expect: Expect) -> Iterator[Found]:
    seen = world.once(_speeds_of)
    if halted := world.once(_stopped):
        yield _halted(halted)
        seen = replace(seen, rates={e: r for e, r in seen.rates.items() if e not in halted})
    yield from _unmeasured(world, seen)
    damaged: set[str] = set()
    for found in _bad_cards(world):
        damaged.add(found.subjects[0].node)
        yield found
    if speeds.all_broken(seen):
        yield _unclear(seen, list(seen.rates), "every connection is that slow")
        return
    low = speeds.below(seen, (expect.number("tcp_gbits") or 0.0) * GBIT)
    yield from _below_expected(world, seen, low, expect)
    told = {*low.nodes, *(node for edge in low.edges for node in edge)}
    # a card that counts damaged frames says why packets are lost there
    told |= damaged
    lossy = {n: ends for n, ends in speeds.lossy_nodes(seen).items() if n not in told}
    # what is lost slows it down, unless a limit is as fast with each partner and drops the rest
    slow = {
        n: ends
        for n, ends in speeds.slow_nodes(seen).items()
        if not {*ends} <= {*lossy.get(n, ())} or speeds.limited(seen, n, ends)
    }
    slow = {n: ends for n, ends in slow.items() if n not in told}
    for node, ends in slow.items():
        yield _slow_node(world, seen, node, ends)
    lossy = {n: ends for n, ends in lossy.items() if n not in slow}
    for node, ends in lossy.items():
        yield _lossy_node(world, seen, node, ends)
    blamed = {*told, *slow, *lossy}
    yield from _lossy_everywhere(seen, blamed)
    # of the edges of a node that is named already nothing more is said
    yield from _slow_links(seen, blamed)
    yield from _far_apart(world, seen, blamed)
    yield from _lossy_links(seen, blamed)


def _below_expected(
    world: World[Speed], seen: PairSpeeds, low: speeds.BelowFloor, expect: Expect
) -> Iterator[Found]:
    """Report what is slower than expected (--expect tcp_gbits), however slow the others are."""
    wanted = f"at least {_bits((expect.number('tcp_gbits') or 0.0) * GBIT)}"
    expected = wanted + expect.aside("tcp_gbits")
    for node in low.nodes:
        ways = [(word, e) for end, word in VERBS if (e := seen.at(node, end))]
        does = [f"{word} {_describe_range([r.rate for r in e.values()])}" for word, e in ways]
        saw = f"{node} {', '.join(does)} · its partners do better with others"
        partners = list(ways[0][1])
        found = _warning("below-expected", (world.subject(node),), saw, expected, partners[0])
        yield found.with_(explains=CHECK.explains)
    if low.edges:
        found = _unclear(seen, low.edges, " of ")
        yield found.with_(code="below-expected", expected=expected)


def _speeds_of(world: World[Speed]) -> PairSpeeds:
    names = pairs.by_number({here.node: seen.place for here, seen in world.each()})
    return speeds.pair_speeds(names, {key: value.trials for key, value in world.seen.items()})


def _stopped(world: World[Speed]) -> Mapping[Edge, tuple[int, ...]]:
    names = pairs.by_number({here.node: seen.place for here, seen in world.each()})
    return speeds.stopped(names, {key: value.trials for key, value in world.seen.items()})


def _halted(edges: Mapping[Edge, tuple[int, ...]]) -> Found:
    told = [
        f"{a}->{b} {', '.join(size(n) for n in counts)}"
        for (a, b), counts in list(edges.items())[:KEPT]
    ]
    (a, b), counts = next(iter(edges.items()))
    return Found(
        "transfer-stops",
        tuple(_link(edge) for edge in list(edges)[:KEPT]),
        saw=f"{' · '.join(told)}, then nothing more, though it is sent again",
        expected="connections that carry any number of bytes",
        confidence=Confidence.LIKELY,
        fields={"node": a, "to": b, "bytes": size(int(statistics.median(counts)))},
    )


def _unmeasured(world: World[Speed], seen: PairSpeeds) -> Iterator[Found]:
    deaf = [h.node for h, own in world.each() if not any(t.moved.inward for t in own.trials)]
    blind = list(speeds.unmeasured(seen, deaf))
    if blind:
        yield Found(
            "not-measured",
            tuple(world.subject(node) for node, _ in blind),
            saw=" · ".join(f"{node}: {why}" for node, why in blind[:KEPT]),
            expected="bytes from and to at least one other node",
            confidence=Confidence.POSSIBLE,
        )


def _slow_node(world: World[Speed], seen: PairSpeeds, node: str, ends: tuple[int, ...]) -> Found:
    words, usual = [], []
    for end in ends:
        mine = seen.at(node, end)
        best = [
            max(r.rate for r in e.values())
            for n in seen.nodes
            if (e := seen.at(n, end)) and n != node
        ]
        usual.append(statistics.median(best))
        verb = "sends at most" if end == OUT else "receives at most"
        rates = [r.rate for r in mine.values()]
        words.append(
            f"{verb} {_bits(max(rates))} with {plural(len(mine), 'partner')}, the others "
            f"{_describe_range(best)}{_describe_loss(mine.values())}"
        )
    saw = f"{node} {' · '.join(words)}" + (
        _describe_other_direction(seen, node, ends[0]) if len(ends) == 1 else ""
    )
    expected = f"about {_bits(min(usual))}, as the others"
    partners = list(seen.at(node, ends[0]))
    found = _warning("node-slow", (world.subject(node),), saw, expected, partners[0])
    return found.with_(confidence=Confidence.CERTAIN) if len(partners) > 2 else found


def _warning(code: str, subjects: tuple[Subject, ...], saw: str, expected: str, to: str) -> Found:
    """Of one node, or of one link: the first of the subjects."""
    first = subjects[0]
    return Found(
        code,
        subjects,
        saw=saw,
        expected=expected,
        blame=Blame.NODE if first.kind is Kind.NODE else Blame.NETWORK,
        confidence=Confidence.LIKELY,
        fields={"node": first.node, "to": to},
    )


def _describe_other_direction(seen: PairSpeeds, node: str, end: int) -> str:
    """That the other direction is fine: it tells a rate limit from a card."""
    rates = [r.rate for r in seen.at(node, 1 - end).values()]
    verb = "receives" if end == OUT else "sends"
    return f" · {verb} {_bits(max(rates))}" if rates else ""


def _slow_links(seen: PairSpeeds, blamed: Collection[str]) -> Iterator[Found]:
    links = speeds.slow_links(seen)
    certain = {e: usual for e, usual in links.certain.items() if not set(e) & set(blamed)}
    pairs_of = _by_pair(certain)
    if len(pairs_of) > max(2, CROWD * len(seen.nodes)):
        fine = [e for e in seen.rates if e not in links.certain]
        yield _unclear(seen, list(certain), _describe_split(seen, list(certain), fine))
    else:
        for edges in pairs_of:
            usual = min(certain[e] for e in edges)
            saw = f"{_describe_edges(seen, edges)} · both reach {_bits(usual)} or more with others"
            expected = f"about {_bits(usual)}"
            yield _warning("link-slow", tuple(map(_link, edges)), saw, expected, edges[0][1])
    for edges in _by_pair(e for e in links.unclear if not set(e) & set(blamed)):
        yield _unclear(seen, edges, "there is no other connection to compare with")


def _unclear(seen: PairSpeeds, edges: Sequence[Edge], why: str) -> Found:
    """Slow edges that blame no single node and no single link."""
    a, b = edges[0]
    return Found(
        "speed-low",
        tuple(_link(e) for e in edges[:KEPT]),
        saw=f"{_describe_edges(seen, edges)} · {why}",
        expected=f"at least {_bits(speeds.BROKEN)}, and about the same on every connection",
        confidence=Confidence.POSSIBLE,
        alternatives=(f"{a} itself", f"{b} itself")
        if len(_by_pair(edges)) == 1
        else ("several nodes at once", "the network between them is shared and busy"),
        fields={"node": a, "to": b},
    )


def _describe_split(seen: PairSpeeds, apart: Sequence[Edge], joined: Sequence[Edge]) -> str:
    islands = speeds.groups(seen.nodes, apart, joined)
    if not islands:
        return f"{plural(len(_by_pair(apart)), 'link')} of {speeds.measured_pairs(seen)}"
    return "all between " + " and ".join(", ".join(g[:KEPT]) for g in islands[:KEPT])


def _far_apart(world: World[Speed], seen: PairSpeeds, blamed: Collection[str]) -> Iterator[Found]:
    for node, usual in speeds.far_nodes(seen).items():
        if node in blamed:
            continue
        trips = seen.trips_at(node)
        nearest = min(trips, key=lambda n: trips[n])
        saw = (
            f"{node}: a round trip takes {_ms(trips[nearest])} or more to each of "
            f"{plural(len(trips), 'partner')}, between the others {_ms(usual)}"
        )
        expected = f"about {_ms(usual)}, as the others"
        yield _warning("latency-high", (world.subject(node),), saw, expected, nearest)
    far = {e: usual for e, usual in speeds.far_links(seen).items() if not set(e) & set(blamed)}
    if len(far) > max(2, CROWD * len(seen.nodes)):
        near = [(a, b) for a, b in map(tuple, seen.trips) if not {(a, b), (b, a)} & set(far)]
        a, b = next(iter(far))
        yield Found(
            "latency-high",
            tuple(_link(e) for e in list(far)[:KEPT]),
            saw=f"{a}-{b} {_ms(seen.trips[frozenset((a, b))])} · "
            + _describe_split(seen, list(far), near),
            expected=f"about {_ms(max(far.values()))}",
            confidence=Confidence.POSSIBLE,
            alternatives=("two places far from each other", "a slow path between two switches"),
            fields={"node": a, "to": b},
            explains=(),
        )
        return
    for (a, b), usual in far.items():
        saw = (
            f"{a}-{b}: a round trip takes {_ms(seen.trips[frozenset((a, b))])}, of each to another "
            f"node {_ms(usual)} or less"
        )
        yield _warning("latency-high", (_link((a, b)),), saw, f"about {_ms(usual)}", b)


def _lossy_node(world: World[Speed], seen: PairSpeeds, node: str, ends: tuple[int, ...]) -> Found:
    rates = [r for end in ends for r in seen.at(node, end).values()]
    least = min(r.lost for r in rates if r.lost is not None)
    way = ("leaves", "goes to")[ends[0]] if len(ends) == 1 else "leaves or goes to"
    partners = list(seen.at(node, ends[0]))
    saw = (
        f"packets are lost: of what {way} {node}, {least:.1%} or more is sent again, with each of "
        f"{plural(len(partners), 'partner')} · {_describe_range([r.rate for r in rates])}"
    )
    expected = f"less than {speeds.LOSS:.1%}, as between the others"
    return _warning("packets-lost", (world.subject(node),), saw, expected, partners[0])


def _lossy_links(seen: PairSpeeds, blamed: Collection[str]) -> Iterator[Found]:
    """What a slow link or node loses is said with it: it may be the queue in front of it."""
    lossy = speeds.lossy_links(seen)
    slow = speeds.slow_links(seen).certain if lossy else ()
    for (a, b), share in lossy.items():
        if (a, b) in slow or {a, b} & set(blamed):
            continue
        saw = f"packets are lost: {share:.1%} of what {a} sends to {b} is sent again"
        expected = f"less than {speeds.LOSS:.1%}, as elsewhere"
        yield _warning("packets-lost", (_link((a, b)),), saw, expected, b)


def _lossy_everywhere(seen: PairSpeeds, blamed: Collection[str]) -> Iterator[Found]:
    """Losses with nobody to compare with: of two nodes, or on all edges alike."""
    lossy = {e: n for e, n in speeds.lossy_everywhere(seen).items() if not {*e} & {*blamed}}
    if lossy and not speeds.slow_links(seen).unclear:
        some = [f"{a}->{b} {share:.1%}" for (a, b), share in list(lossy.items())[:KEPT]]
        (a, b), *_ = lossy
        two = len(seen.nodes) == 2
        ends = (f"the card or cable of {a}", f"that of {b}") if two else ()
        saw = f"packets are lost: retransmitted {', '.join(some)}"
        found = _warning("packets-lost", tuple(map(_link, lossy))[:KEPT], saw, "less than 2 %", b)
        yield found.with_(
            confidence=Confidence.POSSIBLE,
            alternatives=(*ends, "a switch or a network between them that is full"),
        )


def _bad_cards(world: World[Speed]) -> Iterator[Found]:
    """What the cards themselves say of their cables."""
    all_cards = [(here.node, card) for here, seen in world.each() for card in seen.cards]
    flapped = {(node, card.name): most for node, card, most in flapping(all_cards)}
    for here, seen in world.each():
        for card in seen.cards:
            what: tuple[str, str, str] | None = None
            sure = Confidence.CERTAIN
            if now := card.errors.get(DOWNS):
                what = (
                    "link-flapped",
                    f"{plural(now, 'time')} within this check",
                    "a link that stays",
                )
            elif (here.node, card.name) in flapped:
                most = flapped[here.node, card.name]
                saw = f"{plural(card.downs, 'time')} since its driver was loaded"
                what = "link-flapped", saw, f"{most} at most, as on the others"
                sure = Confidence.LIKELY
            elif card.damaged:
                what = "nic-errors", f"{card.damaged} within this check", "no damaged frames"
            elif card.duplex == "half":
                what = "duplex-half", f"{card.name} is half duplex", "full duplex"
            elif card.bond and not card.linked:
                what = "bond-degraded", f"{card.name} of {card.bond} is down", "a link"
            if what is not None:
                code, saw, expected = what
                nic = Subject(Kind.NIC, here.node, card.name, world.topology.ranks_of(here.node))
                fields = {"node": here.node, "to": "", "interface": card.name}
                yield Found(code, (nic,), saw, expected, confidence=sure, fields=fields)


def _link(edge: Edge) -> Subject:
    return Subject(Kind.LINK, edge[0], to=edge[1])


def _by_pair(edges: Iterable[Edge]) -> list[list[Edge]]:
    """Both directions of a link together."""
    found: dict[frozenset[str], list[Edge]] = {}
    for edge in edges:
        found.setdefault(frozenset(edge), []).append(edge)
    return list(found.values())


def _describe_edges(seen: PairSpeeds, edges: Sequence[Edge]) -> str:
    some = [f"{a}->{b} {_bits(seen.rates[a, b].rate)}" for a, b in edges[:KEPT]]
    more = f" and {len(edges) - KEPT} more" if len(edges) > KEPT else ""
    return ", ".join(some) + more + _describe_loss(seen.rates[e] for e in edges)


def _describe_loss(rates: Iterable[EdgeRate]) -> str:
    shares = [r.lost for r in rates if r.lost is not None]
    return f" · {max(shares):.1%} sent again" if shares and max(shares) >= speeds.LOSS else ""


def _bits(rate: float) -> str:
    """Bytes per second as bits: `9.4 Gbit/s`, `87 Mbit/s`."""
    return f"{rate * 8e-9:.1f} Gbit/s" if rate >= 1.25e8 else f"{rate * 8e-6:.3g} Mbit/s"


def _describe_range(rates: Collection[float]) -> str:
    low, high = _bits(min(rates)), _bits(max(rates))
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(unit) else low}-{high}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.001 else duration(seconds)


def measured(world: World[Speed]) -> Measured:
    seen = world.once(_speeds_of)
    count = len(seen.nodes)
    plan = pairs.rounds(count, ROUNDS)
    if not plan or not seen.rates:
        return Measured()
    rates = [r.rate for r in seen.rates.values()]
    done, planned = speeds.measured_pairs(seen), sum(len(made) for made in plan)
    text = f"{count} nodes in {plural(len(plan), 'round')}: {done} of {plural(planned, 'pair')} · "
    far = all(rate.far and not rate.started for rate in seen.rates.values())
    text += "too far apart for a rate" if far else _describe_range(rates)
    values = {
        "pairs": done,
        "bytes_per_s": {f"{a}->{b}": r.rate for (a, b), r in seen.rates.items()},
        "latency_s": {"-".join(sorted(pair)): trip for pair, trip in seen.trips.items()},
    }
    if seen.trips:
        text += f" · latency {_ms(statistics.median(seen.trips.values()))}"
    return Measured(text, values, _grid(seen) if world.drawn else None)


def _grid(seen: PairSpeeds) -> Grid | None:
    """What one TCP stream moved from the row to the column. Of two nodes there is one pair, which
    the row has."""
    if len(seen.nodes) < 3:
        return None
    number = {node: index for index, node in enumerate(seen.nodes)}
    best: dict[str, float] = {}
    for pair, rate in seen.rates.items():
        best |= {node: max(rate.rate, best.get(node, 0.0)) for node in pair}
    # what a node can do that is as the others: of three nodes one slow one has most of the edges
    usual = statistics.median(best.values())
    return Grid(
        title=f"TCP from the row to the column, as parts of {usual * 1e-9:.2g} GB/s",
        rows=seen.nodes,
        columns=seen.nodes,
        cells=tuple(
            Cell(number[a], number[b], rate.rate * 1e-9) for (a, b), rate in seen.rates.items()
        ),
        usual=usual * 1e-9,
        unit="GB/s",
    )
