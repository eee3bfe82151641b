"""Whether rank 0 is where all others look for it: at MASTER_ADDR. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.domains.net.dns import is_loopback
from preflight.domains.rendezvous.arrivals import MeetingView
from preflight.domains.rendezvous.attempts import Reach, describe_attempts
from preflight.humanize import plural, rank_list
from preflight.identity.addresses import loopback
from preflight.model import Confidence, Found, Kind, Subject, World
from preflight.nodeset import hostlist
from preflight.roster import Roll

SHOWN = 4
"""Addresses of one finding that are told of."""
OWN_ERRORS = {
    "ETIMEDOUT": "no answer",
    "ECONNREFUSED": "refused",
    "stranger": "somebody else answers",
    "EHOSTUNREACH": "no route",
    "ENETUNREACH": "no route",
}
LISTEN_ERRORS = {
    "EADDRINUSE": "the port is in use",
    "EACCES": "not permitted for this user",
    "EADDRNOTAVAIL": "this machine has no such address",
}


def localhost(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """The loopback in a job of several nodes. Who has met all others has proved the contrary."""
    if view is not None and (view.guests or len(view.came) >= view.roll.size):
        return
    wrong = [
        (h, r)
        for h, r in world.each()
        if _resolves_to_loopback(r.roll) and _needs_others(world, h, r)
    ]
    if wrong:
        roll = wrong[0][1].roll
        yield Found(
            "localhost",
            tuple(Subject(Kind.SOFTWARE, h.node, "MASTER_ADDR", h.ranks) for h, _ in wrong),
            saw=f"MASTER_ADDR {roll.name[:80]!r} is the machine itself wherever it is read; the "
            f"job has {plural(roll.size, 'rank')}, of which {rank_list(roll.ranks)} here",
            expected="an address of the node of rank 0 that every node can reach",
        )


def _resolves_to_loopback(roll: Roll) -> bool:
    return loopback(roll.name) or (bool(roll.ips) and all(map(is_loopback, roll.ips)))


def _needs_others(world: World[Reach], here: Subject, reach: Reach) -> bool:
    """Whether ranks of other machines are meant to come here for sure: a launcher that starts a
    process per rank and says no more may well start all of them on one machine. The name of rank
    0's own node may be in its /etc/hosts as the loopback, and elsewhere lead to the node."""
    roll, top = reach.roll, world.topology
    if 0 in roll.ranks and (reach.kubernetes or not loopback(roll.name)):
        return False
    told = any(n.name == here.node and n.size for n in top.nodes)
    known = told or len(roll.ranks) > 1 or len(top.nodes) > 1
    return known and roll.size > max(top.ranks_on(here.node), len(roll.ranks))


def met_themselves(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """Nodes without rank 0 on which the name leads to an address of their own: each waits there for
    the others, who meet elsewhere."""
    if view is None or 0 not in view.came:
        return
    for here, reach in world.each():
        roll = reach.roll
        own = reach is not view.reach and roll.hosts and not roll.failed and roll.mine
        own = own and roll.name == view.roll.name
        if own and roll.ips and 0 not in roll.ranks and not {*roll.ips} & {*view.roll.ips}:
            right = next(iter(view.roll.ips), "")
            line = f", by {reach.known_by}" if reach.known_by else ""
            yield Found(
                "address-elsewhere",
                (here if here.ranks else Subject(Kind.NODE, here.node, ranks=roll.ranks),),
                saw=f"{here.node}: {roll.name[:80]!r} is {', '.join(roll.ips[:4])} here{line}, "
                f"an address of its own, at which it waited for the others · the meeting is at "
                f"{right}",
                expected=f"MASTER_ADDR {roll.name[:80]!r} leads to {right}, as on other nodes",
                confidence=Confidence.LIKELY,
                fields={
                    "name": roll.name,
                    "port": str(roll.port),
                    "ip": roll.ips[0],
                    "right": right,
                    "outside": here.node,
                },
            )


def each_its_own(world: World[Reach]) -> Iterator[Found]:
    """Nodes without rank 0 that have MASTER_ADDR as an address of their own, where nobody listened
    and nobody came: Docker's bridge has 172.17.0.1 on every machine, or each node was given its own
    name."""
    lone = [
        (h, r)
        for h, r in world.each()
        if r.roll.hosts and r.roll.mine and not r.roll.failed and len(r.roll.arrivals) <= 1
    ]
    leader = next((r for r in world.seen.values() if 0 in r.roll.ranks), None)
    # which of the nodes is the first torchrun finds out itself
    wrong = [
        (h, r)
        for h, r in lone
        if r.roll.ips and (0 not in r.roll.ranks or (r.numbers and r is not leader))
    ]
    wrong = [(h, r) for h, r in wrong if r.roll.ranks]
    if leader is not None:  # a name that leads elsewhere there is another thing
        at = leader.roll
        wrong = [(h, r) for h, r in wrong if r.roll.name != at.name or r.roll.ips == at.ips]
    if not wrong:
        return
    shared = leader is not None and any(r.roll.ips == leader.roll.ips for _, r in wrong)
    told = [(h, r) for h, r in lone if (h, r) in wrong or (shared and r is leader)]
    ips = leader.roll.ips if leader is not None else ()
    yield Found(
        "address-own",
        tuple(Subject(Kind.SOFTWARE, h.node, "MASTER_ADDR", r.roll.ranks) for h, r in told),
        saw=_own_addresses(told)
        + (" · each met only itself" if shared else " · nobody else came: rank 0 is elsewhere"),
        expected="an address of the node of rank 0, and of no other",
        confidence=Confidence.CERTAIN if leader is not None else Confidence.LIKELY,
        alternatives=() if leader else ("rank 0 is meant to run here, and was not started",),
        fields={
            "nodes": hostlist([h.node for h, _ in told]),
            "right": _other_address(leader, ips if shared else ()),
        },
    )


def _own_addresses(told: Sequence[tuple[Subject, Reach]]) -> str:
    """`MASTER_ADDR 'n2' is an address of n2 (eth0), …`."""
    by_name: dict[tuple[str, str], list[str]] = {}
    for here, reach in told:
        by_name.setdefault((reach.roll.name, reach.interface), []).append(here.node)
    said = [
        f"MASTER_ADDR {name[:80]!r} is an address of {hostlist(nodes)}"
        + (f" ({interface})" if interface else "")
        for (name, interface), nodes in by_name.items()
    ]
    more = f" · and so on {plural(len(said) - SHOWN, 'more node')}" if len(said) > SHOWN else ""
    return " · ".join(said[:SHOWN]) + more


def _other_address(leader: Reach | None, ips: Sequence[str]) -> str:
    """Of rank 0's node, by which others may reach it: where it waits, else another one."""
    if leader is None:
        return ""
    waits = leader.roll.ips if leader.roll.mine else ()
    return next((ip for ip in (*waits, *leader.addresses) if ip not in ips), "")


def cannot_listen(world: World[Reach]) -> Iterator[Found]:
    for here, reach in world.each():
        roll = reach.roll
        if roll.failed:
            why = LISTEN_ERRORS.get(roll.failed, "")
            yield Found(
                "cannot-listen",
                (Subject(Kind.SOFTWARE, here.node, "MASTER_PORT", here.ranks, port=roll.port),),
                saw=f"listening on port {roll.port}: {roll.failed[:60]}{why and f', {why}'}",
                expected=f"port {roll.port} free on the node of rank 0",
                fields={"port": str(roll.port)},
            )


def leader_elsewhere(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """Rank 0 on another machine than MASTER_ADDR. An address that no machine has as its own may be
    translated on the way: that is only a fault when nobody got in by it."""
    if any(reach.agent for reach in world.seen.values()):
        return
    if view is not None and len(view.roll.arrivals) > 1:
        leader = next((a for a in view.roll.arrivals if 0 in a.ranks), None)
        if leader is not None and not leader.mine:
            owners = (a for a in view.roll.arrivals if a.mine and a.identity != leader.identity)
            owner = next(owners, None)
            if owner is not None:
                right = leader.addr or ""
                yield _misplaced(leader.node, leader.ranks, view.roll, owner.node, right)
        return
    for here, reach in world.each():
        roll = reach.roll
        alone = not roll.failed if roll.hosts else roll.reached is None
        if 0 not in roll.ranks or roll.mine or not roll.ips or not alone or roll.itself == "ok":
            continue
        others = [(h, r.roll) for h, r in world.each() if h.node != here.node]
        owner_node = next(
            (h.node for h, other in others if other.mine and not _resolves_to_loopback(other)), ""
        )
        right = next(iter(reach.addresses), "")
        if owner_node:
            yield _misplaced(here.node, roll.ranks, roll, owner_node, right)
        elif not reach.kubernetes or roll.itself:
            tried = [f"{h.node}: {describe_attempts(other)}" for h, other in others]
            tried += [f"{here.node}: {describe_attempts(roll)}"] if roll.ladder else []
            tried += [f"{here.node}: {_own_way(roll)}"] if roll.itself else []
            finding = _misplaced(here.node, roll.ranks, roll, "", right)
            yield finding.with_(
                saw=" · ".join([finding.saw, *tried[:4]]),
                confidence=Confidence.POSSIBLE if len(tried) < 2 else Confidence.LIKELY,
                alternatives=("the address is translated (NAT) to this node's",),
            )


def cut_from_itself(world: World[Reach]) -> Iterator[Found]:
    """Rank 0 listens, and its own client can't get there by way of MASTER_ADDR, which leads to this
    machine from others: proven by those who came."""
    for here, reach in world.each():
        roll = reach.roll
        others = [a for a in roll.arrivals if (a.host, a.pid) != (roll.host, roll.pid)]
        if not roll.hosts or roll.itself in ("", "ok") or not others:
            continue
        yield Found(
            "self-unreachable",
            (Subject(Kind.SOFTWARE, here.node, "MASTER_ADDR", here.ranks),),
            saw=f"{_own_way(roll)} from {here.node} itself, and "
            f"{plural(len({a.node for a in others}), 'other node')} reached it · this machine has "
            f"{', '.join(reach.addresses[:4]) or 'no address'}",
            expected="a MASTER_ADDR at which rank 0's own process reaches its store",
            confidence=Confidence.LIKELY,
            fields={
                "name": roll.name,
                "ip": roll.ips[0],
                "host": here.node,
                "here": next(iter(reach.addresses), ""),
            },
        )


def _own_way(roll: Roll) -> str:
    how = OWN_ERRORS.get(roll.itself, roll.itself[:60])
    return f"{', '.join(roll.ips[:4])}, port {roll.port}: {how}"


def _misplaced(node: str, ranks: tuple[int, ...], roll: Roll, owner: str, right: str) -> Found:
    is_ = f"{roll.name[:80]!r}" + (f" ({', '.join(roll.ips[:4])})" if roll.ips else "")
    of = (
        f"an address of {owner}"
        if owner
        else "not an address of this machine, and no agent met there"
    )
    return Found(
        "leader-elsewhere",
        (Subject(Kind.SOFTWARE, node, "MASTER_ADDR", ranks),),
        saw=f"MASTER_ADDR {is_} is {of} · rank 0 runs on {node}",
        expected="an address of the node of rank 0",
        fields={"right": right},
    )
