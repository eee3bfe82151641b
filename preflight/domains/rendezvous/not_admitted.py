"""Why agents are not in the meeting: their own words, joined into one diagnosis. Pure.

Several that fail in the same way point at the host's side; one that fails where others got in
points at itself; with two parties nobody can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from preflight.domains.net.dns import NO_RESOLVER, is_loopback
from preflight.domains.net.icmp import REJECTS, STANDS_IN
from preflight.domains.rendezvous import on_the_way
from preflight.domains.rendezvous.arrivals import MeetingView
from preflight.domains.rendezvous.attempts import (
    AttemptOutcome,
    Reach,
    describe_attempt,
    describe_attempts,
    describe_probes,
    host_port,
    main_outcome,
    outcome_of,
)
from preflight.domains.rendezvous.connection_limit import dropped_outside, limited
from preflight.domains.rendezvous.disconnected import meeting_host, orphaned
from preflight.frozen import dataclass
from preflight.humanize import duration, parties, plural
from preflight.model import Blame, Confidence, Found, Kind, Status, Subject, World
from preflight.nodeset import hostlist
from preflight.roster import Attempt, StoreStage

SHOWN = 4

FEW_HOPS = 32
"""Routers on the way, at most, that no cluster has."""

RESET_WITHIN = 1.0
"""Seconds: before that, nobody has given up waiting."""

NAMES = (AttemptOutcome.UNKNOWN, AttemptOutcome.UNANSWERED)
"""What is wrong before anything is sent: no side to tell."""

SET_THERE = (AttemptOutcome.OTHER_MEETING, AttemptOutcome.TOKEN)
"""What is wrong with the meeting itself: no way to it has a part in that."""

NOT_THE_NODES = (
    *SET_THERE,
    AttemptOutcome.NOT_OURS,
    AttemptOutcome.UNCLEAR,
    AttemptOutcome.UNANSWERED,
)
"""What no single node is to blame for, though it may be the only one that met it."""

ELSEWHERE = (
    AttemptOutcome.NOT_OURS,
    AttemptOutcome.REFUSED,
    AttemptOutcome.PROHIBITED,
    AttemptOutcome.DROPPED,
    AttemptOutcome.DEAD,
)
"""What another machine answers, or nobody, where a name leads to the wrong one."""

LISTENS = 1.0
"""Seconds after its begin in which the meeting's host may not listen yet."""
AT_HOST, OWN, BETWEEN, OPEN = "host", "own", "between", "open"

DROPS = "a firewall drops the packets"
SILENT_HOST = f"{DROPS}, or the host is down"
"""Why nobody answers: where the meeting's host is known, it lives."""

OWN_RULE = ("EACCES", "EPERM")
"""errno of connect() where a rule or route of this node itself refuses; over IPv6 the first may
also come from an ICMP message."""
FIREWALLS = {
    OWN: "a firewall rule of this node for outgoing connections",
    AT_HOST: "a firewall on the host's side",
    BETWEEN: "a firewall between them",
}
NO_ENDPOINT = "a Service without a ready pod: kube-proxy rejects for it until rank 0's pod is ready"

LATE_THERE = "rank 0's agent still imports torch, which it needs to write there"
ENDED_THERE = "rank 0's preflight was not started, or has ended"
MISLEADS = "the NAT rule of this node is stale: it leads to a machine that is not rank 0's"
DROPS_ECN = (
    "a firewall drops SYNs that ask for ECN, as all of this node do: "
    "net.ipv4.tcp_ecn with net.ipv4.tcp_ecn_fallback=0"
)


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """An agent that is not in."""

    here: Subject
    reach: Reach
    way: AttemptOutcome
    attempt: Attempt | None

    @property
    def asks_for_ecn(self) -> bool:
        """Whether that may be why nothing at all came back."""
        return self.reach.ecn and not any(p.answered for p in self.reach.elsewhere)

    @property
    def rejecting_side(self) -> str:
        """Where the firewall is that rejects it, as its own kernel or the sender of an ICMP message
        says; empty: that is not known, or it is not rejected."""
        if self.way is not AttemptOutcome.PROHIBITED or self.attempt is None:
            return ""
        by = self.attempt.icmp_by
        if self.attempt.icmp not in REJECTS:
            own = self.attempt.error in OWN_RULE and ":" not in self.attempt.ip
            return OWN if own else ""
        if by in self.reach.addresses or is_loopback(by):
            return OWN
        return AT_HOST if by == self.attempt.ip else BETWEEN

    def seen_on_the_way(self, view: MeetingView | None) -> str:
        return on_the_way.seen_on_the_way(self.way, self.attempt, self.reach, view)


def not_admitted(world: World[Reach]) -> list[NotAdmitted]:
    """Everybody whose own part says that it never got in."""
    return [
        NotAdmitted(_with_ranks(here, reach), reach, *main_outcome(reach))
        for here, reach in world.each()
        if not reach.roll.hosts and not reach.roll.failed and reach.roll.reached is None
    ]


def _with_ranks(here: Subject, reach: Reach) -> Subject:
    return here if here.ranks else Subject(Kind.NODE, here.node, ranks=reach.roll.ranks)


def diagnose(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """One finding for all who failed in the same way at the same place."""
    groups: dict[tuple[str, AttemptOutcome, str, str, str, str, int], list[NotAdmitted]] = {}
    too_late: list[NotAdmitted] = []
    too_early: list[NotAdmitted] = []
    explained = {here.node for here, _ in orphaned(world, view)}
    if limited(world, view) is not None:
        explained |= {here.node for here, _ in dropped_outside(world)}
    for one in not_admitted(world):
        if one.here.node in explained or (view is not None and _was_spoken_for(one, view)):
            continue
        if view is not None and one.way is AttemptOutcome.REFUSED and _after(one, view) > 0:
            too_late.append(one)
            continue
        if view is not None and one.way is AttemptOutcome.REFUSED and _before(one, view) > 0:
            too_early.append(one)
            continue
        roll, wrong = one.reach.roll, _right_address(one, world, view)
        code = one.seen_on_the_way(view)
        waits_for = str(roll.store)
        key = (wrong, one.way, one.rejecting_side, code, waits_for, roll.name, roll.port)
        groups.setdefault(key, []).append(one)
    for (wrong, *_), group in groups.items():
        yield _wrong_address(group, wrong) if wrong else _diagnosis(group, world, view)
    if too_late and view is not None:
        yield _too_late(too_late, view)
    if too_early and view is not None:
        yield _host_too_late(too_early, view)


def _was_spoken_for(one: NotAdmitted, view: MeetingView) -> bool:
    """Whether another agent of its node was in the meeting for it, and has ended: that the port is
    closed by then accuses nobody."""
    through = (a.ranks for a in view.roll.arrivals if a.through and a.node == one.here.node)
    ranks = {rank for ranks in through for rank in ranks}
    return bool(one.reach.roll.ranks) and {*one.reach.roll.ranks} <= ranks


# --- the meeting was over ---


def _after(one: NotAdmitted, view: MeetingView) -> float:
    """Seconds after the meeting's end at which this agent began, if the two clocks agree."""
    began = (one.reach.roll.began, view.roll.began)
    return began[0] - began[1] - view.roll.waited if all(began) else 0.0


def _before(one: NotAdmitted, view: MeetingView) -> float:
    """Seconds from this agent's last try to when the meeting surely listened, if the clocks agree.
    A host that has no CPU listens later than it begins."""
    own, host = one.reach.roll, view.roll
    if not own.began or not host.began:
        return 0.0
    tried = max((attempt.at for attempt in own.ladder), default=0.0) or own.waited
    return host.began + LISTENS + host.stood - own.began - tried


def _host_too_late(group: Sequence[NotAdmitted], view: MeetingView) -> Found:
    """Nobody listened yet while these waited: that accuses no way between the two."""
    early = (
        f"{view.node} began {duration(view.roll.began - o.reach.roll.began)} after "
        f"{o.here.node}, which waited for {duration(o.reach.roll.waited)}"
        for o in group[:SHOWN]
    )
    return Found(
        "agent-too-late",
        (Subject(Kind.NODE, view.node, ranks=view.host.ranks),),
        saw=f"{' · '.join(early)} · {describe_attempts(group[0].reach.roll)}",
        expected="rank 0's node first, or while the others wait",
        confidence=Confidence.LIKELY,
        alternatives=("the two clocks differ, and a firewall rejects the connections",),
        fields={"host": view.node},
    )


def _too_late(group: Sequence[NotAdmitted], view: MeetingView) -> Found:
    """What an agent finds when the host has given it up is what it finds without a host."""
    late = (
        f"{o.here.node} began {duration(_after(o, view) + view.roll.waited)} after {view.node}"
        for o in group[:SHOWN]
    )
    return Found(
        "agent-too-late",
        tuple(one.here for one in group),
        saw=f"{' · '.join(late)}, which waited for {duration(view.roll.waited)} · "
        + describe_attempts(group[0].reach.roll),
        expected=f"all {plural(view.roll.size, 'rank')} within {duration(view.roll.patience)}",
        confidence=Confidence.LIKELY,
        alternatives=("the two clocks differ, and a firewall rejects the connections",),
        fields={"host": hostlist(one.here.node for one in group)},
    )


# --- the name leads elsewhere ---


def _working_addresses(world: World[Reach], view: MeetingView | None) -> tuple[str, ...]:
    """The addresses by which others got in, and then those of the meeting's host."""
    reached = [
        a.ip
        for reach in world.seen.values()
        if reach.roll.reached is not None
        for a in reach.roll.ladder
        if a.answer == "ours"
    ]
    mine = view.reach.addresses if view is not None and view.roll.mine else ()
    return tuple(dict.fromkeys((*reached, *mine)))


def _right_address(one: NotAdmitted, world: World[Reach], view: MeetingView | None) -> str:
    """The right address, when the name gives this agent none at which anybody met; else empty."""
    good = _working_addresses(world, view)
    tried = {a.ip for a in one.reach.roll.ladder}
    if view is None or not good or not tried or tried & set(good):
        return ""
    # the host's own idea of the name, unless it is the loopback of /etc/hosts
    named = [ip for ip in view.roll.ips if ip in good and not ip.startswith("127.")]
    return next(iter([*named, *good]))


def _wrong_address(group: Sequence[NotAdmitted], right: str) -> Found:
    first = group[0]
    return Found(
        "address-elsewhere",
        tuple(one.here for one in group),
        saw=" · ".join(f"{o.here.node}: {_where_to(o)}" for o in group[:SHOWN])
        + f" · the meeting is at {right}",
        expected=f"MASTER_ADDR {first.reach.roll.name[:80]!r} leads to {right}, as on other nodes",
        confidence=Confidence.LIKELY,
        fields=_fields(group, right),
    )


def _where_to(one: NotAdmitted) -> str:
    known = f", by {one.reach.known_by}" if one.reach.known_by else ""
    return describe_attempts(one.reach.roll) + known


# --- the address is right ---


def _diagnosis(
    group: Sequence[NotAdmitted], world: World[Reach], view: MeetingView | None
) -> Found:
    first = group[0]
    way, code = first.way, first.seen_on_the_way(view)
    if code == on_the_way.STORE_NOT_SERVED:
        return _store_not_served(group)
    if code == on_the_way.UNANNOUNCED:
        return _unannounced(group)
    if code == on_the_way.DATA_LOST:
        return _data_lost(group, world, view)
    if code == on_the_way.REVERSE_PATH:
        return _answers_dropped(group, view)
    if code == on_the_way.ANSWERS_FILTERED:
        return _answers_filtered(group, view)
    if code == on_the_way.FILTERED_THERE and view is not None:
        return _filtered_there(group, view)
    if code == on_the_way.RETURN_ROUTE and view is not None:
        return _dropped_there(group, view)
    if code == on_the_way.LINK_DOWN:
        return _link_down(group, view)
    if code == on_the_way.DIVERTED:
        return _diverted(group, view)
    if code == on_the_way.SEARCH_DOMAIN:
        return _completed(group, view)
    if code == on_the_way.TRANSLATED:
        return _rewritten(group, view)
    if way is AttemptOutcome.EXPIRED:
        return _expired(group, world, view)
    side, sure = (OWN, Confidence.CERTAIN) if way in NAMES else _side(group, view)
    if first.rejecting_side:
        side, sure = first.rejecting_side, Confidence.LIKELY
    if way is AttemptOutcome.NO_ROUTE and all(_own_route(one) for one in group):
        # that everybody lacks the way to it is the address's fault
        side = OWN if view is not None and view.guests else side
    host = meeting_host(world, view, first.here, first.reach.roll)
    links = _links(group, host)
    nodes = tuple(one.here for one in group)
    at_host = (host,) if way in SET_THERE else (host, *links)
    subjects = {AT_HOST: at_host, OWN: nodes}.get(side, links)
    if code == on_the_way.INTERCEPTED:
        clear = on_the_way.clearly_intercepted(first.reach, first.attempt)
        sure = Confidence.LIKELY if clear else Confidence.POSSIBLE
        side, subjects = _who_intercepts(group, world, view, side, {OWN: nodes, AT_HOST: at_host})
    expected, alternatives, sure = _expectation(group, view, side, sure)
    if view is None and first.reach.known_by and way in ELSEWHERE and first.attempt:
        where = (
            f"{first.reach.roll.name[:80]} is {first.attempt.ip} here, by {first.reach.known_by}"
        )
        alternatives = (*alternatives, f"{where}, and may be another machine elsewhere")
    if way is AttemptOutcome.DROPPED and any(one.asks_for_ecn for one in group):
        alternatives = (DROPS_ECN, *alternatives)
    rewritten = any(one.attempt and one.attempt.ip in one.reach.rewritten for one in group)
    if way is AttemptOutcome.REFUSED and view is None and rewritten:
        alternatives = (*alternatives, MISLEADS)
    own = side == OWN and way not in NOT_THE_NODES
    if way is AttemptOutcome.UNKNOWN:  # of the node alone where others do resolve the name
        own = any(reach.roll.ips for reach in world.seen.values())
    tried = any(one.attempt or one.reach.roll.store for one in group)
    return Found(
        code or str(way),
        subjects,
        saw=_what_they_saw(group, view),
        expected=expected,
        status=Status.UNDECIDED if way is AttemptOutcome.UNCLEAR and not tried else None,
        blame=Blame.NODE if own else None,
        confidence=sure,
        alternatives=alternatives,
        fields={
            **_fields(group, ""),
            "silent": SILENT_HOST if view is None else DROPS,
            "firewall": _firewall(first, host.node or host.name),
        },
    )


def _links(group: Sequence[NotAdmitted], host: Subject) -> tuple[Subject, ...]:
    """The ways from each to the meeting's host."""
    if not host.node:
        return tuple(_edge(one) for one in group)
    return tuple(Subject(Kind.LINK, o.here.node, ranks=o.here.ranks, to=host.node) for o in group)


def _expired(group: Sequence[NotAdmitted], world: World[Reach], view: MeetingView | None) -> Found:
    """Whether the nodes themselves give their packets too few hops, or the way goes in circles."""
    first = group[0]
    small = [one for one in group if one.reach.ttl is not None and one.reach.ttl < FEW_HOPS]
    own = len(small) == len(group)
    saw = _what_they_saw(group, view)
    if small:
        saw = f"net.ipv4.ip_default_ttl={small[0].reach.ttl} on {small[0].here.node} · {saw}"
    host = meeting_host(world, view, first.here, first.reach.roll)
    return Found(
        str(AttemptOutcome.EXPIRED),
        tuple(one.here for one in group) if own else _links(group, host),
        saw=saw,
        expected="net.ipv4.ip_default_ttl=64" if own else "a way that does not go in circles",
        blame=Blame.NODE if own else Blame.NETWORK,
        confidence=Confidence.CERTAIN if own else Confidence.LIKELY,
        fields={**_fields(group, ""), "by": first.attempt.icmp_by[:45] if first.attempt else ""},
    )


def _firewall(one: NotAdmitted, host: str) -> str:
    """Which one rejects, as far as that is known."""
    by = one.attempt.icmp_by[:45] if one.attempt is not None else ""
    known = {
        OWN: f"{one.here.node}'s own firewall",
        AT_HOST: f"{host}'s firewall",
        BETWEEN: f"a firewall at {by}",
    }
    return known.get(one.rejecting_side, "a firewall")


def _who_intercepts(
    group: Sequence[NotAdmitted],
    world: World[Reach],
    view: MeetingView | None,
    side: str,
    subjects: Mapping[str, tuple[Subject, ...]],
) -> tuple[str, tuple[Subject, ...]]:
    """On which machine a proxy takes the connections: the nodes', unless none of several gets in
    and only the host has one."""
    at_host = side == AT_HOST or (view is not None and bool(view.reach.sidecar))
    if any(one.reach.sidecar for one in group) or (view is not None and view.guests):
        at_host = False
    side = AT_HOST if at_host else OWN
    return side, subjects[side]


def store_not_served(view: MeetingView) -> Found | None:
    """The same at the host of the meeting, to which the others can't come: torchrun's store is
    where they would have learned of it."""
    if not (view.reach.agent and on_the_way.nobody_serves(view.reach)):
        return None
    here = Subject(Kind.NODE, view.node, ranks=view.host.ranks)
    named = {"name": view.roll.name, "port": str(view.roll.port)}
    return _unserved((here,), view.reach, named)


def _store_not_served(group: Sequence[NotAdmitted]) -> Found:
    return _unserved(tuple(one.here for one in group), group[0].reach, _fields(group, ""))


def _unserved(nodes: tuple[Subject, ...], reach: Reach, fields: Mapping[str, str]) -> Found:
    names, tried = "TORCHELASTIC_USE_AGENT_STORE=True", describe_probes(reach.elsewhere)
    return Found(
        on_the_way.STORE_NOT_SERVED,
        nodes,
        saw=f"{names} says that torchrun holds the store at {reach.roll.name[:80]}: {tried}",
        expected="a torchrun that serves the store, or none of its variables",
        confidence=Confidence.CERTAIN,
        fields=fields,
    )


def _unannounced(group: Sequence[NotAdmitted]) -> Found:
    """That a worker had no torch in time says nothing of the way to the others."""
    roll = group[0].reach.roll
    imports = roll.store is StoreStage.IMPORT
    announced = "the agent of rank 0 has written nothing there"
    return Found(
        on_the_way.UNANNOUNCED,
        tuple(one.here for one in group),
        saw=f"{'torch was not imported' if imports else announced} within {duration(roll.waited)}",
        expected=f"where the agents meet, from torchrun's store, within {duration(roll.patience)}",
        confidence=Confidence.CERTAIN if imports else Confidence.POSSIBLE,
        status=Status.UNDECIDED if imports else Status.MISSING,
        alternatives=() if imports else (LATE_THERE, ENDED_THERE),
        fields=_fields(group, ""),
    )


def _answers_dropped(group: Sequence[NotAdmitted], view: MeetingView | None) -> Found:
    first = group[0]
    ip = first.attempt.ip if first.attempt is not None else ""
    way = first.reach.ways[ip]
    return Found(
        on_the_way.REVERSE_PATH,
        tuple(one.here for one in group),
        saw=f"{first.here.node} sends to {ip} by {way.leaves} with {way.source}'s address, and "
        f"{way.source} has rp_filter={way.filter} · {_what_they_saw(group, view)}",
        expected=f"a route to {ip} by {way.source}, or rp_filter=2",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields=_fields(group, ""),
    )


def _answers_filtered(group: Sequence[NotAdmitted], view: MeetingView | None) -> Found:
    first = group[0]
    return Found(
        on_the_way.ANSWERS_FILTERED,
        tuple(one.here for one in group),
        saw=f"{first.here.node} dropped {plural(first.reach.discarded, 'packet')} for its reverse "
        f"path filter while it tried {plural(len(first.reach.elsewhere), 'port')} · "
        f"{_what_they_saw(group, view)}",
        expected="answers on the interface by which this node sends, or rp_filter=2",
        confidence=Confidence.LIKELY,
        fields=_fields(group, ""),
    )


def _filtered_there(group: Sequence[NotAdmitted], view: MeetingView) -> Found:
    nic = view.reach.interface
    return Found(
        on_the_way.FILTERED_THERE,
        (Subject(Kind.NIC, view.node, nic, view.host.ranks),),
        saw=f"{nic} of {view.node} has rp_filter=1 and MASTER_ADDR, and the route to its subnet is "
        f"on another interface · {_what_they_saw(group, view)}",
        expected=f"a route to the subnet by {nic}, or rp_filter=2",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields={**_fields(group, ""), "nic": nic, "host": view.node},
    )


def _dropped_there(group: Sequence[NotAdmitted], view: MeetingView) -> Found:
    ways = [on_the_way.dropped_there(one.reach, view) for one in group]
    way = next(filter(None, ways))
    return Found(
        on_the_way.RETURN_ROUTE,
        (Subject(Kind.NIC, view.node, way.comes, view.host.ranks),),
        saw=f"{view.node} sends to {way.network} by {way.leaves}, and {way.comes} with MASTER_ADDR "
        f"has rp_filter=1 · {_what_they_saw(group, view)}",
        expected=f"a route to {way.network} by {way.comes}, or rp_filter=2",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields={
            **_fields(group, ""),
            "nic": way.comes,
            "host": view.node,
            "leaves": way.leaves,
            "network": way.network,
        },
    )


def _link_down(group: Sequence[NotAdmitted], view: MeetingView | None) -> Found:
    first = group[0]
    ip = first.attempt.ip if first.attempt is not None else ""
    nics = [(one.here, one.reach.idle.get(ip, first.reach.idle[ip])) for one in group]
    return Found(
        on_the_way.LINK_DOWN,
        tuple(Subject(Kind.NIC, here.node, nic, here.ranks) for here, nic in nics),
        saw=f"{first.here.node} has {nics[0][1]} in the network of {ip}, without a link · "
        f"{_what_they_saw(group, view)}",
        expected="an interface with a link in the network of MASTER_ADDR",
        confidence=Confidence.LIKELY,
        fields={**_fields(group, ""), "nic": nics[0][1]},
    )


def _diverted(group: Sequence[NotAdmitted], view: MeetingView | None) -> Found:
    first = group[0]
    ip = first.attempt.ip if first.attempt is not None else ""
    ways = [(one.here, one.reach.ways.get(ip, first.reach.ways[ip])) for one in group]
    way = ways[0][1]
    ports = ", of some ports only" if way.by_port else ""
    rule = f" (an ip rule leads to table {way.table}{ports})" if way.table else ""
    leaves = f"the router {way.gateway}" if way.gateway and not way.beside else way.leaves
    nic = way.beside or way.leaves
    return Found(
        on_the_way.DIVERTED,
        tuple(Subject(Kind.NIC, here.node, w.leaves, here.ranks) for here, w in ways),
        saw=f"{first.here.node} sends to {ip} by {leaves}{rule}, and has {nic} in its "
        f"network · {_what_they_saw(group, view)}",
        expected=f"a route to {ip} by {nic}" + " without a router" * bool(way.gateway),
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields={**_fields(group, ""), "leaves": leaves, "nic": nic},
    )


def _completed(group: Sequence[NotAdmitted], view: MeetingView | None) -> Found:
    first = group[0]
    name, domain = first.reach.roll.name[:80], first.reach.searched[:80]
    ip = first.attempt.ip if first.attempt is not None else ""
    saw = f"{name}.{domain} is {ip}"
    if first.reach.wildcard:
        saw += f", as any name below {domain}"
    elsewhere = "nobody answers there, and rank 0 runs on that machine"
    return Found(
        on_the_way.SEARCH_DOMAIN,
        tuple(one.here for one in group),
        saw=f"{saw}; /etc/hosts has no {name} · {_what_they_saw(group, view)}",
        expected=f"{name} leads to rank 0's node",
        confidence=Confidence.LIKELY if first.reach.wildcard else Confidence.POSSIBLE,
        alternatives=() if first.reach.wildcard else (elsewhere,),
        fields={**_fields(group, ""), "domain": domain},
    )


def _rewritten(group: Sequence[NotAdmitted], view: MeetingView | None) -> Found:
    first = group[0]
    ip = first.attempt.ip if first.attempt is not None else ""
    target = first.reach.rewritten[ip]
    right = "the rule is right, and nobody answers there: that machine is down, or a firewall drops"
    expected = f"a rule that leads to rank 0's node, {view.node}" if view is not None else ""
    return Found(
        on_the_way.TRANSLATED,
        tuple(one.here for one in group),
        saw=_what_they_saw(group, view),
        expected=expected or "a rule that leads to rank 0's node, or none",
        confidence=Confidence.POSSIBLE if view is None else Confidence.LIKELY,
        alternatives=(right,) if view is None else (),
        fields={**_fields(group, ""), "target": target},
    )


def _data_lost(
    group: Sequence[NotAdmitted], world: World[Reach], view: MeetingView | None
) -> Found:
    """Which direction: what this agent sent was never acknowledged, or what the host sent to the
    connection that it saw never came."""
    first = group[0]
    roll = first.reach.roll
    host = meeting_host(world, view, first.here, roll)
    there = host.node or roll.name[:80]
    out = bool(first.attempt and first.attempt.unacked)
    if out:
        links = tuple(replace(_edge(one), to=there) for one in group)
    else:
        links = tuple(
            Subject(Kind.LINK, there, ranks=host.ranks, to=o.here.node, port=roll.port)
            for o in group
        )
    here = hostlist(one.here.node for one in group)
    sender, receiver = (here, there) if out else (there, here)
    what = f"{first.attempt.unacked} bytes unacknowledged" if first.attempt and out else ""
    if what and first.attempt and first.attempt.seconds < RESET_WITHIN:
        what += f" when the connection was reset after {duration(first.attempt.seconds)}"
    what = what or f"{there} accepted the connection and sent a greeting, nothing came back"
    return Found(
        on_the_way.DATA_LOST,
        links,
        saw=f"{what}; the handshake and the other direction pass · {_what_they_saw(group, view)}",
        expected="what is sent arrives in both directions",
        confidence=Confidence.LIKELY,
        fields={**_fields(group, ""), "sender": sender, "receiver": receiver},
    )


def _edge(one: NotAdmitted) -> Subject:
    """The way from this node to a place of which only the name is known."""
    roll = one.reach.roll
    return Subject(Kind.LINK, one.here.node, ranks=one.here.ranks, to=roll.name, port=roll.port)


def _side(group: Sequence[NotAdmitted], view: MeetingView | None) -> tuple[str, Confidence]:
    """Whose side it is, by who got in and who did not."""
    failed = len({one.here.node for one in group})
    met = len({a.identity for a in view.guests}) if view is not None else 0
    if not met:
        return (AT_HOST, Confidence.LIKELY) if failed > 1 else (OPEN, Confidence.POSSIBLE)
    if failed == 1:
        return OWN, Confidence.LIKELY if met > 1 else Confidence.POSSIBLE
    return (AT_HOST if failed > met else BETWEEN), Confidence.POSSIBLE


def _expectation(
    group: Sequence[NotAdmitted], view: MeetingView | None, side: str, sure: Confidence
) -> tuple[str, tuple[str, ...], Confidence]:
    """What was expected, what else it may be, and how sure that is."""
    way, roll = group[0].way, group[0].reach.roll
    meeting = f"the meeting of this job at {roll.name[:80]}:{roll.port}"
    at, own = _sides(side)
    up = any(p.answered for one in group for p in one.reach.elsewhere)
    match way:
        case AttemptOutcome.UNANSWERED if roll.lookup in NO_RESOLVER:
            later = "the name does not exist yet: a pod or node that is still to start"
            silent = "its name server does not answer"
            return f"an address for {roll.name[:80]!r}", (later, silent), Confidence.POSSIBLE
        case AttemptOutcome.UNKNOWN | AttemptOutcome.UNANSWERED:
            return f"an address for {roll.name[:80]!r}", (), Confidence.CERTAIN
        case AttemptOutcome.OTHER_MEETING | AttemptOutcome.TOKEN:
            return meeting, (), Confidence.CERTAIN
        case AttemptOutcome.NOT_OURS if group[0].seen_on_the_way(view):
            busy = "rank 0's node had no time: its kernel accepts for it"
            return meeting, (busy,) if sure is Confidence.POSSIBLE else (), sure
        case AttemptOutcome.NOT_OURS:
            proxy = ("a proxy accepts connections for a host that does not listen",)
            return meeting, proxy, Confidence.LIKELY
        case AttemptOutcome.REFUSED if view is not None:
            reset = "a firewall on the host's side rejects this node"
            after = "it arrived after the meeting was over"
            limit = "a rule that counts connections rejects those beyond its limit"
            return f"{meeting}, which was held", (reset, after, limit), sure
        case AttemptOutcome.REFUSED:
            listens = "nothing listens there: rank 0 was not started, died, runs elsewhere or was "
            listens += "given another MASTER_PORT"
            reset = "something listens, but a firewall rejects the connection"
            return f"a listener at {roll.name[:80]}:{roll.port}", (listens, reset), sure
        case AttemptOutcome.PROHIBITED if group[0].rejecting_side:
            if view is None and any(one.reach.kubernetes for one in group):
                return meeting, (FIREWALLS[side], NO_ENDPOINT), Confidence.POSSIBLE
            return meeting, (STANDS_IN,) if side == AT_HOST else (), sure
        case AttemptOutcome.PROHIBITED if not up:
            down = "the host is down, and the router or an ARP that is running out says so"
            return meeting, (f"a firewall {at}", own, down), Confidence.POSSIBLE
        case AttemptOutcome.DROPPED if not up and view is None:
            down = "the host is down: no other port of it answers either"
            return meeting, (down, "a firewall drops all that is sent there"), Confidence.POSSIBLE
        case AttemptOutcome.PROHIBITED | AttemptOutcome.DROPPED if sure is Confidence.POSSIBLE:
            return meeting, (f"a firewall {at}", own), _by_port(up, view)
        case AttemptOutcome.NO_ROUTE if side != OWN:
            wrong = "MASTER_ADDR is an address of a network that this node is not in"
            return "a route to it", ("a route is missing here", wrong), Confidence.POSSIBLE
        case AttemptOutcome.UNCLEAR if _rejected_by_meeting(group[0]):
            return meeting, (), Confidence.CERTAIN
        case AttemptOutcome.UNCLEAR:
            gone = ("the host left", "it listens, but had no time")
            return meeting, gone, Confidence.POSSIBLE
        case AttemptOutcome.DEAD if _runs_there(group[0], view):
            return meeting, (), Confidence.LIKELY
        case AttemptOutcome.DEAD if sure is Confidence.POSSIBLE:
            down = "the machine is down"
            return meeting, (down, "no machine has this address"), sure
    return meeting, ((f"it is {at}", own) if sure is Confidence.POSSIBLE else ()), sure


def _runs_there(one: NotAdmitted, view: MeetingView | None) -> bool:
    """Whether the machine that it tries is the meeting's host, which is there."""
    if one.attempt is None or view is None:
        return False
    return one.attempt.ip in view.reach.addresses


def _rejected_by_meeting(one: NotAdmitted) -> bool:
    """Whether the meeting itself turned it away, with its reason."""
    return one.attempt is not None and one.attempt.answer not in ("", "ours")


def _by_port(up: bool, view: MeetingView | None) -> Confidence:
    """That a host which answers elsewhere drops this very port is a firewall's doing, on whichever
    side it stands; while others got in it is one side's, and which can't be told."""
    return Confidence.LIKELY if up and view is None else Confidence.POSSIBLE


def _sides(side: str) -> tuple[str, str]:
    if side == BETWEEN:
        return "between them and the host", "several of these nodes are set up alike"
    return "on the host's side", "a firewall on this node, for outgoing connections"


def _what_they_saw(group: Sequence[NotAdmitted], view: MeetingView | None) -> str:
    words = []
    for one in group[:SHOWN]:
        who = f"{one.here.node}: " if len(group) > 1 else ""
        said = who + describe_attempts(one.reach.roll)
        if one.reach.elsewhere and one is group[0]:
            said += f" · other ports there: {describe_probes(one.reach.elsewhere)}"
        if one.attempt is not None and one.attempt.ip in one.reach.rewritten:
            said += f" · a NAT rule of this node sends it to {one.reach.rewritten[one.attempt.ip]}"
        if one.reach.sidecar:
            said += f" · a listener here is {one.reach.sidecar}"
        if _own_route(one):
            said += f" · this node's routing: {_own_route(one)}"
        words.append(said)
    if len(group) > SHOWN:
        words.append(f"and {len(group) - SHOWN} more nodes")
    if view is not None and view.reach.sidecar:
        words.append(f"a listener on {view.node} is {view.reach.sidecar}")
    waited = max(one.reach.roll.waited for one in group)
    words.append(f"within {duration(waited)}")
    if view is not None and view.guests:
        words.append(f"{plural(len({a.node for a in view.guests}), 'other node')} got in")
    return " · ".join(words)


def _own_route(one: NotAdmitted) -> str:
    return one.reach.routes.get(one.attempt.ip, "") if one.attempt is not None else ""


def _fields(group: Sequence[NotAdmitted], right: str) -> Mapping[str, str]:
    one = group[0]
    roll = one.reach.roll
    ip = one.attempt.ip if one.attempt is not None else roll.name
    outside = parties([o.here.node for o in group])
    named = {"name": roll.name, "port": str(roll.port)}
    return {**named, "ip": ip, "right": right, "outside": outside}


# --- they are in, but torch would not be ---


def silent_addresses(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """Addresses before the one that led in: c10d goes on after an error, never after silence."""
    stuck: dict[str, list[tuple[Subject, Reach, Attempt]]] = {}
    inside = [(h, r) for h, r in world.each() if not r.roll.hosts and r.roll.reached is not None]
    for here, reach in inside:
        for attempt in reach.roll.ladder:
            way = outcome_of(attempt, reach.routes)
            if way is AttemptOutcome.IN:
                break
            if way in (
                AttemptOutcome.DROPPED,
                AttemptOutcome.DEAD,
                AttemptOutcome.NOT_OURS,
                AttemptOutcome.OTHER_MEETING,
            ):
                stuck.setdefault(attempt.ip, []).append((here, reach, attempt))
                break
    for ip, met in stuck.items():
        fine = sum(_reached_by(reach, ip) for _, reach in inside)
        _, reach, attempt = met[0]
        good = next((a.ip for a in reach.roll.ladder if a.answer == "ours"), "")
        slow = all(outcome_of(a, r.routes) is AttemptOutcome.DEAD for _, r, a in met)
        yield Found(
            "address-silent",
            _stuck_subjects(met, view)
            if view is not None and not fine
            else tuple(h for h, _, _ in met),
            saw=" · ".join(f"{h.node}: {describe_attempt(a)}" for h, _, a in met[:SHOWN])
            + f" · only then {host_port(good, reach.roll.port)} reached the meeting",
            expected=f"each address of {reach.roll.name[:80]!r} answers, or refuses at once",
            blame=Blame.NODE if fine else Blame.NETWORK,
            confidence=Confidence.LIKELY if fine else Confidence.CERTAIN,
            explains=() if slow else None,
            fields={
                "name": reach.roll.name,
                "port": str(reach.roll.port),
                "ip": attempt.ip,
                "right": good,
            },
            status=Status.WARN if slow else Status.FAIL,
        )


def _stuck_subjects(
    met: Sequence[tuple[Subject, Reach, Attempt]], view: MeetingView
) -> tuple[Subject, ...]:
    """All who tried it are stuck: it is the name, or the host's side, when they are several."""
    links = tuple(Subject(Kind.LINK, h.node, ranks=h.ranks, to=view.node) for h, _, _ in met)
    host = Subject(Kind.SOFTWARE, view.node, "MASTER_ADDR", view.host.ranks)
    return (host, *links) if len(met) > 1 else links


def _reached_by(reach: Reach, ip: str) -> bool:
    return any(a.ip == ip and a.answer == "ours" for a in reach.roll.ladder)
