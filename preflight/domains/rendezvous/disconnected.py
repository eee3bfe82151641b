"""Who was in the meeting and is not any more: lost, cut off, or stopped for a while. Pure.

A guest that loses the host and a host that loses a guest see the same. Who of them it was, the
others tell; with two parties nobody can, unless the connection was ended rather than silent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from preflight.domains.rendezvous.arrivals import MeetingView, node_of, who
from preflight.domains.rendezvous.attempts import AttemptOutcome, Reach, host_port, main_outcome
from preflight.humanize import duration, rank_list, size
from preflight.model import (
    STARVED,
    Blame,
    Confidence,
    Found,
    Kind,
    Status,
    Subject,
    World,
)
from preflight.nodeset import folded, same_host
from preflight.roster import GAVE_UP, HALFWAY, SILENT, Arrival, Roll

PAUSED = 5.0
"""Seconds; a little less than the silence after which somebody is given up."""

SHOWN = 4
ONE_BY_ONE = 64
"""Lost agents that are a finding each."""

Part = tuple[Subject, Reach]


def lost_agents(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    still = list(_paused(world, view))
    yield from still
    nodes = {subject.node for finding in still for subject in finding.subjects}
    if view is not None and view.node in nodes:
        return
    slow = list(_sending_slowly(world, view, nodes))
    yield from slow
    nodes |= {subject.node for finding in slow for subject in finding.subjects}
    told: set[str] = set()
    if view is not None:
        gone = [a for a in view.roll.arrivals if a.lost and a.node not in nodes]
        told = {a.node for a in gone}
        yield from _lost_guests(gone, view, _lost_the_host(world))
    parts = [p for p in _lost_the_host(world) if p[0].node not in told | nodes]
    if parts:
        yield _lost_host(parts, world, view)
        told |= {here.node for here, _ in parts}
    others = (p for p in _lost_the_meeting(world) if p[0].node not in told | nodes)
    yield from _lost_speakers(others)


def _lost_the_meeting(world: World[Reach]) -> list[Part]:
    """The guests that were in and lost the meeting, by their own words."""
    return [(h, r) for h, r in world.each() if r.roll.lost and not r.roll.hosts]


def _lost_the_host(world: World[Reach]) -> list[Part]:
    """Those of them that were there themselves."""
    return [part for part in _lost_the_meeting(world) if part[1].roll.speaker < 0]


def orphaned(world: World[Reach], view: MeetingView | None) -> list[Part]:
    """Agents that found nobody listening where others had been in, until the host was lost."""
    if view is not None or not _lost_the_host(world):
        return []
    outside = (p for p in world.each() if p[1].roll.reached is None and not p[1].roll.failed)
    return [
        (here, reach) for here, reach in outside if main_outcome(reach)[0] is AttemptOutcome.REFUSED
    ]


def _fell_silent(why: str) -> bool:
    return SILENT in why


# --- itself ---


def _paused(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """Agents that did nothing for so long that they were given up: their own clocks say so."""
    for here, reach in world.each():
        roll = reach.roll
        lost = [a.node for a in roll.arrivals if a.lost] if roll.hosts else [roll.name]
        if roll.stood < PAUSED or not (lost if roll.hosts else roll.lost):
            continue
        agent = f"the agent on {here.node} (pid {roll.pid})"
        starved = roll.starved >= STARVED * roll.stood
        did = "waited for a CPU that others used" if starved else "was stopped (no CPU time)"
        yield Found(
            "agent-paused",
            (Subject(Kind.NODE, here.node, ranks=roll.ranks),),
            status=Status.UNDECIDED if starved else Status.FAIL,
            saw=f"{agent} {did} for {duration(roll.stood)}"
            + (f", and was given up by {folded(lost)}" if roll.hosts else _and_then(roll, view)),
            expected="every agent runs to the end",
            fields={"host": here.node, "pid": str(roll.pid)},
        )


def _and_then(roll: Roll, view: MeetingView | None) -> str:
    said = f", and was out of the meeting then: {roll.lost[:120]}"
    if view is None:
        return said
    # containers of one machine may each have a process 1
    mine = [
        a.lost
        for a in view.roll.arrivals
        if (a.host, a.pid) == (roll.host, roll.pid) and set(roll.ranks) <= set(a.ranks)
    ]
    return said + "".join(f"; {view.node} had lost it: {why[:80]}" for why in mine if why)


# --- the host takes what they send, at a crawl ---


def _sending_slowly(
    world: World[Reach], view: MeetingView | None, known: Collection[str]
) -> Iterator[Found]:
    """Agents that gave up a host which went on acknowledging what they sent: it lives, and their
    own signs of life were still in the queue."""
    for here, reach in _lost_the_host(world):
        roll, crawl = reach.roll, reach.roll.crawl
        if crawl is None or here.node in known or not crawl.seconds:
            continue
        host = meeting_host(world, view, here, roll)
        there = host.node or roll.name[:80]
        rate = size(int(crawl.acked / crawl.seconds))
        scaling = "" if crawl.scaled else "; their connection has no TCP window scaling"
        slow = (
            "packets are lost, or the network is that slow",
            f"{there} hardly reads: it has no CPU",
        )
        yield Found(
            "sending-slow",
            (Subject(Kind.LINK, here.node, ranks=here.ranks, to=there, port=roll.port),),
            saw=f"{there} acknowledged {size(crawl.acked)} within {duration(crawl.seconds)}, "
            f"{size(crawl.queued)} were still waiting on {here.node}{scaling} · {roll.lost[:120]}",
            expected="what each agent sends reaches the host at once",
            confidence=Confidence.POSSIBLE if crawl.scaled else Confidence.LIKELY,
            alternatives=slow if crawl.scaled else (),
            fields={
                "sender": here.node,
                "receiver": there,
                "rate": f"{rate}/s",
                "port": str(roll.port),
                "why": f"the network is slow, or {there} hardly reads"
                if crawl.scaled
                else "TCP window scaling is off or was stripped",
            },
        )


# --- guests, as the host has it ---


def _lost_guests(
    gone: Sequence[Arrival], view: MeetingView, parts: Sequence[Part]
) -> Iterator[Found]:
    nodes = list(dict.fromkeys(a.node for a in gone))
    machines = len({a.identity for a in view.guests})
    all_gone = len(gone) == len(view.roll.arrivals) - 1
    if all_gone and machines > 1 and all(_fell_silent(a.lost) for a in gone):
        yield _cut_off(gone, view, parts)
        return
    alive = {here.node: reach.roll.lost for here, reach in parts if reach.roll.lost}
    through: dict[tuple[str, int], list[Arrival]] = {}
    for arrival in gone:
        through.setdefault((arrival.identity, arrival.through), []).append(arrival)
    for arrival in [a for a in gone if not a.through][:ONE_BY_ONE]:
        # once: others with this number, in containers of their own, come after it in the roll
        beside = through.pop((arrival.identity, arrival.pid), [])
        after = sorted({rank for a in beside for rank in a.ranks})
        out = f" · {rank_list(after)} of {arrival.node} could be heard through it alone"
        mark = f" · last mark {arrival.mark[:80]!r}" if arrival.mark else ""
        finding = Found(
            "lost",
            (node_of(arrival),),
            saw=f"{who(arrival)}, {rank_list(arrival.ranks)}, came after {duration(arrival.at)} "
            f"and was lost: {arrival.lost[:120]}{mark}{out if after else ''}",
            expected="every agent stays to the end",
            confidence=Confidence.LIKELY,
            fields={"host": arrival.node},
        )
        silent = _fell_silent(arrival.lost)
        if silent and (shared := _mac_shared(arrival, view)) is not None:
            yield shared
            continue
        if silent and arrival.lost.startswith(GAVE_UP):
            yield _deaf(arrival, view, machines)
            continue
        if HALFWAY in arrival.lost:
            crawls = f"what {arrival.node} sends to {view.node} crawls, and it gave up"
            killed = "it was killed, or its machine went down"
            finding = finding.with_(confidence=Confidence.POSSIBLE, alternatives=(killed, crawls))
        # one to which a reset still came was not cut off: packets were lost, on any part of the way
        reached = arrival.node in alive and not _fell_silent(alive[arrival.node])
        if _fell_silent(arrival.lost) and (machines == 1 or reached):
            yield _lost_between_two(finding, arrival, view, alive)
        elif all_gone and len(nodes) > 1:
            mine = (f"{view.node} lost all of them: its own network",)
            yield finding.with_(confidence=Confidence.POSSIBLE, alternatives=mine)
        else:
            yield finding


def _mac_shared(arrival: Arrival, view: MeetingView) -> Found | None:
    """The same of a guest for whose address, and that of another machine, the host has one MAC
    address: it hears nothing while frames for it go to the other. A router that answers ARP for all
    (some clouds') is no such thing, but it does so for all; a guest that said nothing itself may as
    well have died behind one."""
    macs = view.reach.macs
    mac = macs.get(arrival.addr, "")
    machines = {a.identity: a for a in view.guests if mac and macs.get(a.addr) == mac}
    all_of_them = len({a.identity for a in view.guests})
    if len(machines) < 2 or (all_of_them > 2 < len(machines)):
        return None
    if not arrival.lost.startswith(GAVE_UP) and all_of_them == len(machines):
        return None
    guests = folded(sorted({a.node for a in machines.values()}))
    lost = f"packets from {view.node} to {arrival.node} are lost, and a router answers ARP for both"
    return Found(
        "mac-shared",
        tuple(node_of(a) for a in machines.values()),
        saw=f"{view.node} has {mac} for "
        + ", ".join(f"{a.addr} ({a.node})" for a in machines.values())
        + f" · {who(arrival)} {'said' if arrival.lost.startswith(GAVE_UP) else 'was lost'}: "
        + arrival.lost[:120],
        expected="a different MAC address for every interface of a network",
        confidence=Confidence.POSSIBLE,
        alternatives=(f"{guests} have the same MAC address", lost),
        fields={"host": arrival.node, "leader": view.node, "guests": guests, "mac": mac},
    )


def _deaf(arrival: Arrival, view: MeetingView, machines: int) -> Found:
    """A guest that was heard to the end and heard nothing itself. That others heard the host says
    on which end it is."""
    link = Subject(Kind.LINK, view.node, ranks=view.host.ranks, to=arrival.node)
    alone = machines == 1
    ends = (f"at {view.node}", f"at {arrival.node}", "between them")
    others = "" if alone else f" · the others heard {view.node} all the time"
    return Found(
        "nothing-received",
        (link if alone else node_of(arrival),),
        saw=f"{who(arrival)}, {rank_list(arrival.ranks)}, came after {duration(arrival.at)} and "
        f"said: {arrival.lost[:120]}{others}",
        expected="what each agent sends reaches the others",
        blame=Blame.NETWORK if alone else Blame.NODE,
        confidence=Confidence.POSSIBLE if alone else Confidence.LIKELY,
        alternatives=tuple(f"packets are lost {end}" for end in ends) if alone else (),
        fields={"host": arrival.node, "leader": view.node},
    )


def _lost_between_two(
    finding: Found, arrival: Arrival, view: MeetingView, alive: Mapping[str, str]
) -> Found:
    """Two machines of which one heard nothing of the other: if both live, it is what is between
    them. `alive`: nodes that told themselves why they had lost the host."""
    network = "the network between them broke, at either end"
    if arrival.node in alive:
        edge = Subject(Kind.LINK, view.node, ranks=view.host.ranks, to=arrival.node)
        why = alive[arrival.node]
        told = f"lost {view.node}: {why[:80]}"
        if _fell_silent(why):
            told = f"says the same of {view.node}"
        ends = (f"at {view.node}", f"at {arrival.node}", "between them")
        return finding.with_(
            subjects=(edge,),
            saw=f"{finding.saw} · it lives, and {told}",
            blame=Blame.NETWORK,
            confidence=Confidence.POSSIBLE,
            alternatives=tuple(f"the network broke {end}" for end in ends),
        )
    stopped = f"{arrival.node} is down, or stopped"
    return finding.with_(confidence=Confidence.POSSIBLE, alternatives=(stopped, network))


def _cut_off(gone: Sequence[Arrival], view: MeetingView, parts: Sequence[Part]) -> Found:
    """All guests fell silent at once: the one end that all these ways have in common."""
    nodes = list(dict.fromkeys(a.node for a in gone))
    alive = [here.node for here, reach in parts if here.node in nodes]
    said = f" · {folded(alive)} lived, and lost {view.node}" if alive else ""
    stopped = "all the others were stopped, or lost their power, at once"
    return Found(
        "cut-off",
        (Subject(Kind.NODE, view.node, ranks=view.host.ranks),),
        saw=f"{view.node}, which held the meeting, lost all of {folded(nodes)}: "
        f"{gone[0].lost[:80]}{said}",
        expected="the others are heard to the end",
        confidence=Confidence.LIKELY if alive else Confidence.POSSIBLE,
        alternatives=() if alive else (f"the network of {view.node} was cut", stopped),
        fields={"host": view.node},
    )


# --- the one that speaks for its node, as its neighbours have it ---


def _lost_speakers(parts: Iterable[Part]) -> Iterator[Found]:
    by_speaker: dict[tuple[str, int], list[Part]] = {}
    for here, reach in parts:
        by_speaker.setdefault((here.node, reach.roll.speaker), []).append((here, reach))
    for (node, speaker), lost in by_speaker.items():
        ranks = sorted({rank for _, reach in lost for rank in reach.roll.ranks})
        why = lost[0][1].roll.lost[:120]
        yield Found(
            "lost",
            (Subject(Kind.NODE, node, ranks=(speaker,)),),
            saw=f"the agent of rank {speaker}, through which {rank_list(ranks)} of {node} could be "
            f"heard, was lost: {why}",
            expected="every agent stays to the end",
            confidence=Confidence.LIKELY,
            fields={"host": node},
        )


# --- the host, as guests have it ---


def meeting_host(
    world: World[Reach], view: MeetingView | None, here: Subject, roll: Roll
) -> Subject:
    """The node of the meeting's host, or only the name that it has."""
    if view is not None:
        return Subject(Kind.NODE, view.node, ranks=view.host.ranks, port=roll.port)
    node = next((n.name for n in world.topology.nodes if same_host(n.name, roll.name)), "")
    node = "" if node == here.node else node
    ranks = world.topology.ranks_of(node)
    return Subject(Kind.NODE, node, "" if node else roll.name[:80], ranks, port=roll.port)


def _lost_host(parts: Sequence[Part], world: World[Reach], view: MeetingView | None) -> Found:
    here, reach = parts[0]
    host = meeting_host(world, view, here, reach.roll)
    name = host.node or host.name
    ip = next((a.ip for a in reach.roll.ladder if a.answer == "ours"), reach.roll.name[:80])
    ended = [p for p in parts if not _fell_silent(p[1].roll.lost)]
    alone = len({h.node for h, _ in parts}) == 1
    edge = Subject(Kind.LINK, here.node, "", here.ranks, to=name, port=reach.roll.port)
    unclear = alone and not ended
    after = orphaned(world, view)
    late = f" · {folded(h.node for h, _ in after)} found nothing listening there" if after else ""
    gone = "it ended or was killed, or its machine did"
    broke = "the connection between them broke"
    reset = "something between them ended the connection"
    return Found(
        "lost",
        (edge,) if unclear else (host,),
        saw=f"the meeting at {name} {host_port(ip, reach.roll.port)} "
        + ("ended without a message: " if ended else "fell silent: ")
        + " · ".join(f"{h.node}: {r.roll.lost[:120]}" for h, r in (ended or parts)[:SHOWN])
        + late,
        expected="the host of the meeting stays to the end",
        confidence=Confidence.POSSIBLE if unclear else Confidence.LIKELY,
        alternatives=(gone, broke if unclear else reset) if alone else (),
        fields={"host": name},
    )
