"""Do MASTER_ADDR and the hostnames resolve to the same machines on every node?

Level        standard
Looks at     on every node: the addresses of MASTER_ADDR and of the hostnames of up to 7 other
             nodes, as this node resolves them; whose addresses they are, according to the nodes'
             interfaces
Fails if     MASTER_ADDR resolves to a machine other than rank 0's on a node, or, where it is not
             known whose address is right, to a different address from the other nodes
Warns if     a node tries another machine's address of MASTER_ADDR before the right one; a hostname
             resolves to a machine other than its own, on one node or on all; a node can't resolve
             names that the others can, or no node can resolve one node's name
Undecided    a copied file tree is checked: names are resolved on the live machine only. With two
             nodes it can't tell whose records are wrong, and shows both
Not covered  names that resolve slowly or not at all, and the hostname on its own node (net.name);
             names that only their own node resolves, or that lead to the host around them, which is
             usual for pods and containers; the name that torchrun advertises (rdzv.torchrun)
Seen as      "The client socket has timed out after", "clients joined", "connection closed by peer"
             on one node only; ssh and mpirun that end up on the wrong machine
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.net.dns import (
    NO_RESOLVER,
    Lookup,
    LookupBatch,
    addresses,
    c10d_order,
    is_loopback,
    why_translated,
)
from preflight.domains.net.pairing import dialled_by, dials
from preflight.domains.rendezvous.torchrun_names import addresses_of, reachable_addresses
from preflight.domains.system import container
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import parties, plural
from preflight.identity.addresses import flaw
from preflight.inference import consensus
from preflight.model import (
    Blame,
    CannotObserve,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
)
from preflight.sanitize import quoted

CHECK = Check(
    scope=Scope.PAIR,
    stage=Stage.MEETING,
    budget=7.0,
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    disturbs="the name servers: 8 lookups per node",
    blame=Blame.NODE,
    explains=("rdzv.torchrun",),
)

LOOKED_UP = 7
"""Nodes whose names one node looks up: a node that knows them badly is seen by them, and a name
that is bad is seen by as many."""
HEARING = 2.5
"""Seconds in which the others say their names: they were started at the same time."""
RESERVE = 0.7
"""What the worker needs after the last look-up to hand its answer over."""
SHOWN = 4
KEPT = 16
"""Addresses of a container that are kept with their prefix."""

MASTER = "MASTER_ADDR"
ALL_NODES = "all nodes"
BY_NAME = "everything that uses hostnames (torchrun's c10d rendezvous, mpirun, ssh, Ray) "
LOOK_UP = Command("getent ahosts {name}", "{where}")

FINDINGS = {
    "master-addr-elsewhere": FindingType(
        headline="{seen}",
        cause="a stale line in /etc/hosts of that node, or a name server with a different view",
        means="its ranks look for rank 0 on the wrong machine: 'The client socket has timed out' "
        "there, '3/4 clients joined' on rank 0",
        now="export MASTER_ADDR={right}   on all nodes",
        text="correct the line of this name in /etc/hosts there, or its record in DNS",
        commands=(LOOK_UP, Command("grep -n {name} /etc/hosts", "{where}")),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NODE, Blame.NETWORK),
        explains=("rdzv.*", "world.*"),
        was=("master-astray",),
    ),
    "resolution-differs": FindingType(
        headline="{seen}",
        cause="an outdated /etc/hosts there, or a different name server",
        means=BY_NAME + "fails from there or ends up on the wrong machine",
        text="use the same line for {name} in /etc/hosts, and the same resolv.conf, on all nodes",
        commands=(LOOK_UP, Command("cat /etc/hosts /etc/resolv.conf", "{where}")),
        status=Status.WARN,
        was=("view-differs",),
    ),
    "record-wrong": FindingType(
        headline="{seen}",
        cause="a machine that is new, was renamed or got a new address",
        means=BY_NAME + "can't reach that node",
        text="correct the record of {name} in DNS, or its line in /etc/hosts on all nodes",
        commands=(LOOK_UP,),
        status=Status.WARN,
        blame=Blame.NETWORK,
    ),
}


@dataclass(frozen=True, slots=True)
class PeerName:
    """What this node finds for the name that the node of this number has said."""

    number: int
    seen: Lookup


@dataclass(frozen=True, slots=True)
class ResolvedNames:
    """name     this node's own host name
    addresses  that it has on its interfaces, without those that no other node can use
    master     MASTER_ADDR as the job has it here
    met        the very name by which this node has come to the meeting, so that it does lead there
    inside     of a container or of a network of its own: its addresses with their prefix. Its name
               may well be that of the machine around it, which publishes its ports
    """

    name: str
    addresses: tuple[str, ...]
    master: Lookup | None = None
    met: bool = True
    peers: tuple[PeerName, ...] = ()
    inside: tuple[str, ...] = ()


def observe(host: Host, ctx: Context) -> ResolvedNames:
    if not host.live:
        raise CannotObserve("names are looked up on the live machine only")
    until = time.monotonic() + max(0.1, ctx.seconds - RESERVE)
    own, master = host.hostname(), ctx.master_addr
    # --meet says where preflight meets; the job goes by its variable
    source = ctx.topology.facts.get("master_addr")
    if source and source.source == "--meet":
        master = host.environ.get(MASTER) or master
    inquiry = LookupBatch(until, ctx.mark)
    if master:
        inquiry.put(MASTER, master, lambda: c10d_order(addresses(host, master)))
    names = _exchange_names(ctx, own, min(HEARING, max(0.0, until - time.monotonic() - 1.0)))
    for number, name in names.items():
        inquiry.put(str(number), name, addresses_of(host, name))
    answers = {key: inquiry.take(key) for key in tuple(inquiry.pending)}
    return ResolvedNames(
        name=own,
        addresses=reachable_addresses(host),
        master=answers.get(MASTER),
        met=master == ctx.master_addr,
        peers=tuple(PeerName(number, answers[str(number)]) for number in names),
        inside=_networks(host),
    )


def _networks(host: Host) -> tuple[str, ...]:
    if not container.network_kind(host):
        return ()
    try:
        found = [f"{a.ip}/{a.prefix}" for i in host.interfaces for a in i.addresses]
    except CannotObserve:
        return ()
    return tuple(ip for ip in found if not is_loopback(ip.partition("/")[0]))[:KEPT]


def _exchange_names(ctx: Context, own: str, seconds: float) -> dict[int, str]:
    """number -> name of the nodes whose names this one looks up."""
    mine = dials(ctx.rank, ctx.world_size)[:LOOKED_UP]
    ctx.peers.say("name", own, to=dialled_by(ctx.rank, ctx.world_size)[:LOOKED_UP])
    ctx.mark("hear the other names")
    heard = ctx.peers.hear("name", len(mine), seconds)
    said = {number: heard[number] for number in mine if number in heard}
    return {n: name for n, name in said.items() if isinstance(name, str) and not flaw(name)}


def judge(world: World[ResolvedNames], expect: Expect) -> Iterator[Found]:
    yield from _judge_master(world)
    yield from _judge_peers(world)


# --- MASTER_ADDR ---


def _judge_master(world: World[ResolvedNames]) -> Iterator[Found]:
    seen = world.seen
    ways = {n: v.master.found for n, v in seen.items() if v.master and v.master.found}
    ways = {n: found for n, found in ways.items() if not all(is_loopback(ip) for ip in found)}
    first = next((n.name for n in world.topology.nodes if 0 in n.ranks), "")
    home = seen.get(first)
    if (
        home
        and home.master
        and any(ip in home.addresses or is_loopback(ip) for ip in home.master.found)
    ):
        astray = {n: _master_status(world, n, home) for n in ways if n != first}
        for status in (Status.FAIL, Status.WARN):
            if nodes := [n for n, weight in astray.items() if weight is status]:
                yield _master_elsewhere(world, nodes, ways, status, first)
    else:
        yield from _judge_unowned(world, ways)


def _master_status(world: World[ResolvedNames], node: str, home: ResolvedNames) -> Status:
    """How bad it is where MASTER_ADDR leads this node; `home` is that of rank 0."""
    mine = world.seen[node]
    found = mine.master.found if mine.master else ()
    right = [ip for ip in found if ip in home.addresses]
    if right:
        told = home.master.found if home.master else ()
        fine = found[0] in right or is_loopback(found[0]) or found[0] in told
        return Status.PASS if fine else Status.WARN
    # an address of nobody here may be translated on the way, and it does lead to the meeting
    return Status.PASS if mine.met and not _owner(world, found) else Status.FAIL


def _owner(world: World[ResolvedNames], found: tuple[str, ...]) -> str:
    """The node that has one of these addresses, and no other has it."""
    for ip in found:
        owners = [n for n, v in world.seen.items() if ip in v.addresses]
        if len(owners) == 1:
            return owners[0]
    return ""


def _judge_unowned(
    world: World[ResolvedNames], ways: Mapping[str, tuple[str, ...]]
) -> Iterator[Found]:
    """Nobody can say which address is right: it is none that rank 0's node has."""
    agreed = consensus({node: tuple(sorted(found)) for node, found in ways.items()})
    usual = set(agreed.value or ())
    odd = [n for n, found in ways.items() if not usual & set(found) and not world.seen[n].met]
    if agreed.value is not None and odd:
        yield _master_elsewhere(world, odd, ways, Status.FAIL, agreed.holders[0])
    elif agreed.tie and odd and not set.intersection(*(set(found) for found in ways.values())):
        told = [f"{n} has the right address: {found[0]}" for n, found in ways.items()]
        finding = _master_elsewhere(world, list(ways), ways, Status.FAIL)
        yield finding.with_(confidence=Confidence.POSSIBLE, alternatives=tuple(told[:SHOWN]))


def _master_elsewhere(
    world: World[ResolvedNames],
    nodes: list[str],
    ways: Mapping[str, tuple[str, ...]],
    status: Status,
    right: str = "",
) -> Found:
    """`right`: a node that knows better, empty when none does."""
    names = {n: v.master.name[:80] for n, v in world.seen.items() if v.master}
    owners = {n: _owner(world, ways[n]) for n in nodes}
    said = []
    for node in nodes[:SHOWN]:
        whose = f" of {owners[node]}" if owners[node] not in ("", right) else ""
        said.append(f"{node} resolves {quoted(names[node])} to {ways[node][0]}{whose}")
    # rank 0's own node may know itself by the loopback
    better = next(iter(ways.get(right, ())), "") if right else ""
    if right and (is_loopback(better) or not better):
        better = next(iter(world.seen[right].addresses), "")
    return Found(
        "master-addr-elsewhere",
        tuple(_subject(world, n, MASTER) for n in nodes),
        saw=" · ".join((*said, *([f"{right}: {better}"] if right else []))),
        expected="the same machine from every node",
        blame=None if right else Blame.NETWORK,
        confidence=Confidence.CERTAIN if right and all(owners.values()) else Confidence.LIKELY,
        explains=None if status is Status.FAIL else (),
        fields={"name": names[nodes[0]], "right": better or "", "where": nodes[0]},
        status=status,
    )


# --- the nodes' own names ---


@dataclass(slots=True)
class NameRecord:
    """The name of one node and who sees what: its own address, another one, or no such name."""

    name: str
    right: list[str]
    wrong: dict[str, str]
    unknown: list[str]


def _records(world: World[ResolvedNames]) -> dict[str, NameRecord]:
    """By the node that owns the name. A name that two machines have is nobody's."""
    nodes = world.topology.nodes
    owned = Counter(v.name for v in world.seen.values())
    made: dict[str, NameRecord] = {}
    all_of, count = world.seen, len(nodes)
    for looker, views in all_of.items():
        for peer in views.peers:
            owner = nodes[peer.number].name if 0 <= peer.number < count else ""
            target = all_of.get(owner)
            if target is None or owner == looker or owned[target.name] > 1:
                continue
            seen, away = peer.seen, [ip for ip in peer.seen.found if not is_loopback(ip)]
            if seen.name != target.name or seen.error in NO_RESOLVER or not target.addresses:
                continue
            record = made.setdefault(owner, NameRecord(target.name, [], {}, []))
            if any(ip in target.addresses for ip in away):
                record.right.append(looker)
            elif away and not (target.inside and _of_its_host(world, target, away)):
                record.wrong[looker] = away[0]
            elif seen.error:
                record.unknown.append(looker)
    return made


def _of_its_host(world: World[ResolvedNames], target: ResolvedNames, away: list[str]) -> bool:
    """Whether these may be addresses of the machine around a container: of none of its own subnets,
    and of no node."""
    return bool(why_translated(away, target.inside, "container")) and not any(
        ip in seen.addresses for seen in world.seen.values() for ip in away
    )


def _judge_peers(world: World[ResolvedNames]) -> Iterator[Found]:
    records = _records(world)
    knows = {n for r in records.values() for n in r.right}
    lookers: dict[str, list[str]] = {}
    owners = []
    for owner, record in records.items():
        right, wrong, unknown = len(record.right), len(record.wrong), len(record.unknown)
        unlisted = unknown > 1 and knows.issuperset(record.unknown)
        if wrong > max(right, 1) or (not right and (wrong or unlisted)):
            owners.append(owner)
        else:
            # a name that only a few know is no matter of those who don't
            minority = record.unknown if right > 1 and unknown < right else []
            for looker in (*record.wrong, *minority):
                lookers.setdefault(looker, []).append(owner)
    if owners:
        yield _of_records(world, [records[o] for o in owners], owners)
    if lookers:
        yield _of_lookers(world, lookers, records)


def _of_records(world: World[ResolvedNames], bad: list[NameRecord], owners: list[str]) -> Found:
    said = []
    for record, owner in zip(bad[:SHOWN], owners, strict=False):
        seen = [f"{n} resolves it to {ip}" for n, ip in record.wrong.items()][:2]
        told = ", ".join(seen) or f"does not resolve on {parties(record.unknown, SHOWN)}"
        have = ", ".join(world.seen[owner].addresses[:2])
        said.append(f"{quoted(record.name)}: {told}" + (f" · it has {have}" if seen else ""))
    # a single witness may be the one with the wrong record
    alone = [n for r in bad if len(r.wrong) == 1 for n in r.wrong]
    subjects = [_subject(world, owner) for owner in owners]
    return Found(
        "record-wrong",
        tuple(dict.fromkeys([*subjects, *(_subject(world, n) for n in alone)])),
        saw="; ".join(said),
        expected="an address of that node, from every node",
        confidence=Confidence.POSSIBLE if alone else Confidence.LIKELY,
        alternatives=(
            *(f"the name's record is wrong for all: {bad[0].name[:80]}" for _ in alone[:1]),
            *(f"{n} is the only one with a wrong record" for n in alone[:1]),
        ),
        fields={"name": bad[0].name, "where": alone[0] if alone else ALL_NODES},
    )


def _of_lookers(
    world: World[ResolvedNames],
    by_looker: Mapping[str, list[str]],
    records: Mapping[str, NameRecord],
) -> Found:
    said = []
    for looker, owners in list(by_looker.items())[:SHOWN]:
        record = records[owners[0]]
        ip = record.wrong.get(looker)
        told = (
            f"resolves {quoted(record.name)} to {ip}"
            if ip
            else f"can't resolve {quoted(record.name)}"
        )
        more = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
        said.append(f"{looker} {told}{more}; right on {parties(record.right, SHOWN)}")
    first = next(iter(by_looker))
    return Found(
        "resolution-differs",
        tuple(_subject(world, n) for n in by_looker),
        saw=" · ".join(said),
        expected="an address of the node that has the name",
        confidence=Confidence.LIKELY,
        fields={"name": records[by_looker[first][0]].name, "where": first},
    )


def _subject(world: World[ResolvedNames], node: str, name: str = "") -> Subject:
    return Subject(Kind.NODE, node, name, world.topology.ranks_of(node))


def measured(world: World[ResolvedNames]) -> Measured:
    looked = [p.seen for v in world.seen.values() for p in v.peers]
    masters = {n: v.master for n, v in world.seen.items() if v.master and v.master.found}
    if not world.seen:
        return Measured()
    found = sum(not seen.error for seen in looked)
    text = f"{found} of {plural(len(looked), 'look-up')} of other nodes' names answered"
    if masters:
        name, ways = next(iter(masters.values())).name, {m.found for m in masters.values()}
        same = f"{next(iter(ways))[0]} on {plural(len(masters), 'node')}"
        text = f"{quoted(name, 40)} is {same if len(ways) == 1 else 'not the same'} · {text}"
    return Measured(text, {"master": {n: list(m.found) for n, m in masters.items()}})
