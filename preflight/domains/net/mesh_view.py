"""What the nodes of net.mesh saw of the edges between them, put together by library. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypeVar

from preflight.domains.net import interface_rules
from preflight.domains.net.arp import Neighbour
from preflight.domains.net.dns import in_network, is_loopback, parse_ip
from preflight.domains.net.fault_localisation import (
    ALL,
    EITHER,
    NODE,
    UNLIKELY,
    Pair,
    Suspect,
    names_by_number,
    suspects,
)
from preflight.domains.net.interfaces import (
    GLOO,
    MORE,
    NCCL,
    ListenAddress,
    ListenAddresses,
    gloo_alone,
    needs_none,
    never_dialled,
)
from preflight.domains.net.mesh_probe import (
    CLOSED,
    LOOP,
    NO_SOCKET,
    OK,
    REFUSED,
    SILENT,
    TIMED_OUT,
    WRONG,
    Dialled,
    Edge,
    Flows,
    Opened,
    Retried,
    Target,
)
from preflight.domains.net.pairing import NodeNumber
from preflight.domains.net.port_owners import PeerConnection
from preflight.domains.net.reverse_path import Detour, detour_of
from preflight.domains.net.tcp import UNROUTED
from preflight.frozen import dataclass
from preflight.inference import BOTH, consensus
from preflight.model import Status, World

# what the dialler's own kernel says, before anything leaves the machine
OWN_REFUSALS = (
    *("EINVAL", "EACCES", "EPERM", "EADDRNOTAVAIL", "EAFNOSUPPORT", "ENETUNREACH"),
    UNROUTED,
)
SILENCE = (TIMED_OUT, "ETIMEDOUT")
UNHEARD = (*SILENCE, "EHOSTUNREACH")
"""Of who drops what comes in: it drops the questions of ARP as well, unless it is known yet."""
# fewer than this part of the connections that die pass after another SYN where it is their ports
# that decide; of packets that are lost by chance or for a limit most come through the second time
BY_CHANCE = 0.25
LEAST_DEAD = 2
# segments with data that are sent again, at least, and which part of all, before they count as lost
# on the way: a kernel repeats one too early now and then on a busy machine
LOST_AGAIN, LOST_PART = 2, 0.015
# connections that need more than one SYN before it is called a limit
LEAST_CROWDED = 3
# ARP knows a dead address after some 3 s, while the ICMP message of a firewall is there at once, or
# where the kernel there sends only one per second, after the first repetition
QUICK = 2.0
# what the kernel had as its default until 5.3
QUEUE_SHORT = 128


@dataclass(frozen=True, slots=True)
class Mesh:
    """One node's part.

    place     its number, by which the others call it
    ways      its addresses; `meeting` the interface that leads to MASTER_ADDR, `source` the address
              from which it goes there
    times     libraries -> number of a node -> seconds to connect, of the edges from here that work
    rough     the edges from here that don't, and those that needed a packet again
    heard     numbers of the nodes that reached this one and proved that they meant it
    burst_rough  the worst of each edge that was not good when all were opened at once
    each      connections from different source ports that were tried on each edge; `flows` are the
              edges on which not all of them passed at once
    idle      interfaces of this node that are down or have no link
    filtered  those on which its reverse path filter drops what their subnet sends; detours: the
              same of single addresses, by routes of their own
    diverted  addresses of others that this node did not reach, and to which the kernel sends by
              another interface than the library's, by a router, or which it has itself
    macs      interface -> MAC address of those of `ways`; arp: where it sends to for the addresses
              of others, where an edge from here does not work
    opens     connections of each edge when all were opened at once; `opened` are the edges on which
              not all of them passed at once
    retried   what failed or lost packets among many, tried again alone
    accepted  addresses of all whose connections this node's listeners accepted, and half: of those
              that did not get as far as that; taken: connections from the others to ports at which
              no listener of ours is. Only where somebody has not reached this node: looked
    holders   port of one that was taken -> the program that listens there
    queue     net.core.somaxconn; overflowed: connections that found a listener's queue full here
              meanwhile
    ecn       whether the first SYN of each connection that this node opens asks for ECN
    """

    place: NodeNumber
    ways: tuple[ListenAddress, ...]
    meeting: str = ""
    times: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rough: tuple[Edge, ...] = ()
    heard: tuple[int, ...] = ()
    burst_rough: tuple[Edge, ...] = ()
    ports: tuple[int, ...] = ()
    each: int = 0
    flows: tuple[Flows, ...] = ()
    source: str = ""
    queue: int = 0
    overflowed: int = 0
    ecn: bool = False
    idle: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()
    detours: tuple[Detour, ...] = ()
    diverted: tuple[Detour, ...] = ()
    macs: Mapping[str, str] = field(default_factory=dict)
    arp: tuple[Neighbour, ...] = ()
    opens: int = 0
    opened: tuple[Opened, ...] = ()
    retried: tuple[Retried, ...] = ()
    looked: bool = False
    accepted: tuple[str, ...] = ()
    half: tuple[str, ...] = ()
    taken: tuple[PeerConnection, ...] = ()
    holders: Mapping[str, str] = field(default_factory=dict)


def summarise_dials(
    place: NodeNumber,
    ways: ListenAddresses,
    met: Iterable[Dialled],
    opened: Iterable[Dialled],
    heard: Iterable[int],
    ports: Iterable[int],
    each: int = 0,
    flows: Iterable[Flows] = (),
) -> Mesh:
    """One node's part: of the edges that are simply good no more than how long they took."""
    times: dict[str, dict[str, float]] = {}
    rough: list[Edge] = []
    for edge in (d.edge for d in met):
        if edge.result == OK:
            times.setdefault(edge.libraries, {})[str(edge.to)] = edge.seconds
        if _is_rough(edge):
            rough.append(edge)
    worst: dict[tuple[int, str], Edge] = {}
    for edge in (d.edge for d in opened if _is_rough(d.edge)):
        known = worst.setdefault((edge.to, edge.libraries), edge)
        if known.result == OK:
            worst[edge.to, edge.libraries] = edge
    at_once = tuple(worst.values())
    return Mesh(
        place,
        ways.found,
        ways.meeting,
        times,
        tuple(rough),
        tuple(sorted(heard)),
        at_once,
        tuple(ports),
        each,
        tuple(flows),
        ways.source,
    )


def summarise_flows(
    met: Iterable[Dialled], more: Iterable[tuple[Target, str, int]]
) -> Iterator[Flows]:
    """The connections of each edge, its first one among them, where not all passed at once. What
    finds no port of our own, or is refused by our own kernel, is not lost on the way."""
    counts: dict[tuple[int, str], list[int]] = {}
    tried = [(d.target, d.edge.result, d.edge.retransmits) for d in met]
    for target, result, again in (*tried, *more):
        count = counts.setdefault((target.number, target.libraries), [0, 0, 0, 0])
        count[0] += result in (OK, SILENT, *SILENCE, *REFUSED)
        count[1] += result in (*SILENCE, *REFUSED)
        count[2] += result == OK and again > 0
        count[3] += result in REFUSED
    for (to, libraries), (number, dead, again, refused) in counts.items():
        if dead or again:
            yield Flows(to, libraries, number, dead, again, refused)


def summarise_opened(opened: Iterable[Dialled]) -> Iterator[Opened]:
    """The connections of each edge when all were opened at once, where not all passed at once."""
    by_edge: dict[tuple[int, str], list[Edge]] = {}
    for edge in (d.edge for d in opened):
        if edge.result in (OK, SILENT, *SILENCE, *REFUSED):
            by_edge.setdefault((edge.to, edge.libraries), []).append(edge)
    for (to, libraries), edges in by_edge.items():
        late = [e for e in edges if e.result == OK and e.retransmits]
        dead = [e for e in edges if e.result in (*SILENCE, *REFUSED)]
        if late or dead:
            last = max((e.seconds for e in late), default=0.0)
            refused = sum(e.result in REFUSED for e in dead)
            yield Opened(to, libraries, len(edges), len(late), len(dead), refused, last)


def _is_rough(edge: Edge) -> bool:
    return edge.result != OK or edge.retransmits > 0 or bool(edge.source)


@dataclass(frozen=True, slots=True)
class LibraryMesh:
    """The edges of one library between nodes by name, and each node's way.

    failed   of those tested; together: passed one by one, failed when all were opened at once
    lost     passed after a packet had been sent again, in either phase; `moved` the listener saw
             another source
    opened   when all were opened at once; of an edge on which all passed at once only `opens`
    """

    library: str
    ways: Mapping[str, ListenAddress]
    tested: frozenset[Pair]
    failed: Mapping[Pair, Edge]
    together: Mapping[Pair, Edge]
    lost: Mapping[Pair, Edge]
    moved: Mapping[Pair, Edge]
    flows: Mapping[Pair, Flows] = field(default_factory=dict)
    each: int = 0
    opened: Mapping[Pair, Opened] = field(default_factory=dict)
    retried: Mapping[Pair, Retried] = field(default_factory=dict)
    opens: int = 0

    @property
    def shown(self) -> str:
        """The library without the number of its interface."""
        return self.library.partition("-")[0]

    def thin(self) -> dict[Pair, Flows]:
        """The edges on which some connections die and others pass, where it is the path that their
        addresses and ports choose; none where it is chance or a limit."""
        found = {e: f for e, f in self.flows.items() if 0 < f.dead < f.tried}
        dead = sum(f.dead for f in found.values())
        chance = sum(f.again for f in self.flows.values()) > BY_CHANCE * dead
        again = [r for e, r in self.retried.items() if e in found]
        tried = sum(r.dead for r in again)
        # the very same connections, when nobody else opens any
        chance = chance or (tried > 0 and sum(r.revived for r in again) > BY_CHANCE * tried)
        return {} if chance or dead < LEAST_DEAD else found

    def not_revived(self) -> frozenset[Pair]:
        """The edges on which connections failed, and failed again when they were alone."""
        return frozenset(e for e, r in self.retried.items() if r.dead and not r.revived)

    def losing(self) -> frozenset[Pair]:
        """The edges on which packets of open connections get lost, too: no limit does that."""
        again = sum(r.again for r in self.retried.values())
        sent = sum(r.sent for r in self.retried.values())
        if again < LOST_AGAIN or again < LOST_PART * sent:
            return frozenset()
        found = frozenset(e for e, r in self.retried.items() if r.again)
        common = frozenset.intersection(*(frozenset(e) for e in found))
        # where all have one node in common that is where they get lost, in either direction
        return frozenset(e for e in self.retried if common & {*e}) if len(common) == 1 else found

    def crowded(self, other: Collection[Pair]) -> frozenset[Pair]:
        """The edges, but for these, on which connections are dropped or refused when many are
        opened, and pass alone, without a packet being lost on those that are open."""
        found = {
            e
            for e, r in self.retried.items()
            if e not in other and r.sent and r.passed and not r.again
        }
        if not found:
            return frozenset()
        into = frozenset.intersection(*(frozenset(e[1:]) for e in found))
        # what never got through there from another node is the same
        also = {e for e in (*self.failed, *self.together) if e[1:] and into & {e[1]}}
        also = {e for e in also if self._dead(e)}
        hit = sum(self._late_or_dead(e) for e in found)
        tried = sum(max(self.opens if e in self.opened else 0, self.each, 1) for e in found)
        # were it chance, as large a part of what was sent over open connections would be lost
        luck = max(0.0, 1 - hit / tried) ** sum(self.retried[e].sent for e in found)
        clear = hit >= LEAST_CROWDED and luck < UNLIKELY
        return frozenset(found | (also - {*other})) if clear else frozenset()

    def always_late(self, edge: Pair) -> bool:
        """Whether each connection got in, and none by its first SYN."""
        opened, flows = self.opened.get(edge), self.flows.get(edge)
        late = (
            *([(opened.late, opened.tried)] if opened else []),
            *([(flows.again, flows.tried)] if flows else []),
        )
        refused = (opened.refused if opened else 0) + (flows.refused if flows else 0)
        return bool(late) and not refused and all(some == tried for some, tried in late)

    def _dead(self, edge: Pair) -> bool:
        results = [x.result for x in (self.failed.get(edge), self.together.get(edge)) if x]
        return all(result in (*SILENCE, *REFUSED) for result in results)

    def _late_or_dead(self, edge: Pair) -> int:
        opened, flows = self.opened.get(edge), self.flows.get(edge)
        return max(
            opened.late + opened.dead if opened else 0, flows.again + flows.dead if flows else 0
        )

    def without_edges(self, edges: Collection[Pair]) -> LibraryMesh:
        """The same as if these edges had nothing wrong."""

        def kept(found: Mapping[Pair, Edge]) -> Mapping[Pair, Edge]:
            return {e: f for e, f in found.items() if e not in edges}

        return replace(
            self,
            failed=kept(self.failed),
            together=kept(self.together),
            lost=kept(self.lost),
            flows={e: f for e, f in self.flows.items() if e not in edges},
            opened={e: f for e, f in self.opened.items() if e not in edges},
            retried={e: f for e, f in self.retried.items() if e not in edges},
        )

    def without(self, nodes: Iterable[str]) -> LibraryMesh:
        """The same as if these nodes were not there."""
        out = set(nodes)
        if not out:
            return self
        tested = frozenset(e for e in self.tested if not out & set(e))

        def kept(edges: Mapping[Pair, Edge]) -> Mapping[Pair, Edge]:
            return {e: f for e, f in edges.items() if not out & set(e)}

        return replace(
            self,
            tested=tested,
            failed=kept(self.failed),
            together=kept(self.together),
            lost=kept(self.lost),
            moved=kept(self.moved),
            flows={e: f for e, f in self.flows.items() if not out & set(e)},
            opened={e: f for e, f in self.opened.items() if not out & set(e)},
            retried={e: f for e, f in self.retried.items() if not out & set(e)},
        )

    def limited(self) -> Suspect | None:
        """The one node that loses some of the first packets and lets some pass: what failed there
        is not closed. None where that is not so."""
        dropped = {e for e, f in self.failed.items() if f.result == TIMED_OUT}
        found = list(suspects({*dropped, *self.together, *self.lost}, self.tested))
        one = found[0] if len(found) == 1 and found[0].what == NODE else None
        return one if dropped and dropped != set(one.edges if one else ()) and self.lost else None


def library_mesh(world: World[Mesh], library: str) -> LibraryMesh:
    """A silent edge whose other end says that it was reached was answered too late: that is no
    evidence, it counts as not tested. Nor is what the listener of a node did that has no
    observation: it died or was killed."""
    names = names_by_number(world)
    ways: dict[str, ListenAddress] = {}
    tested: set[Pair] = set()
    failed: dict[Pair, Edge] = {}
    together: dict[Pair, Edge] = {}
    lost: dict[Pair, Edge] = {}
    moved: dict[Pair, Edge] = {}
    flows: dict[Pair, Flows] = {}
    opened: dict[Pair, Opened] = {}
    retried: dict[Pair, Retried] = {}
    each = opens = 0
    for here, seen in world.each():
        way = next((w for w in seen.ways if w.library == library), None)
        if way is None or names.get(seen.place.number) != here.node:
            continue
        ways[here.node] = way
        each, opens = max(each, seen.each), max(opens, seen.opens)
        _of_library(library, here.node, names, seen.flows, flows)
        _of_library(library, here.node, names, seen.opened, opened)
        _of_library(library, here.node, names, seen.retried, retried)
        for label, times in seen.times.items():
            if library in label.split("+"):
                node = here.node
                others = (_name(names, number) for number in times)
                tested.update([(node, n) for n in others if n and n != node])
        for edge, at_once in _rough(seen):
            to = names.get(edge.to, "")
            if library not in edge.libraries.split("+") or to in ("", here.node):
                continue
            late = edge.result == SILENT and seen.place.number in world.seen[to].heard
            if edge.result not in (OK, NO_SOCKET) and not late:
                (together if at_once else failed)[here.node, to] = edge
            elif edge.result == OK and edge.retransmits:
                lost[here.node, to] = edge
            if edge.source and not at_once:
                moved[here.node, to] = edge
    dead_on_its_way = (*SILENCE, *REFUSED)
    for pair in [p for p, edge in failed.items() if edge.result in dead_on_its_way and p in flows]:
        # other connections than the first one passed: it is not closed
        if flows[pair].dead < flows[pair].tried:
            lost[pair] = failed.pop(pair)
            tested.add(pair)
    if library == GLOO:
        for pair in [(a, b) for a, b in failed if never_dialled(ways.get(a), ways.get(b))]:
            del failed[pair]
            tested.add(pair)  # as far as anybody will use it
    tested.update(failed)
    return LibraryMesh(
        library,
        *(ways, frozenset(tested), failed, together, lost, moved),
        *(flows, each, opened, retried, opens),
    )


C = TypeVar("C", Flows, Opened, Retried)


def _of_library(
    library: str,
    node: str,
    names: Mapping[int, str],
    counted: Iterable[C],
    found: dict[Pair, C],
) -> None:
    """Put what a node counted of a library's edges to `found`, by names."""
    for some in counted:
        to = names.get(some.to, "")
        if library in some.libraries.split("+") and to not in ("", node):
            found[node, to] = some


def _rough(seen: Mesh) -> Iterator[tuple[Edge, bool]]:
    """The edges that were not simply good, and whether it was when all were opened at once."""
    yield from ((edge, False) for edge in seen.rough)
    yield from ((edge, True) for edge in seen.burst_rough)


def _name(names: Mapping[int, str], number: str) -> str:
    """The node of a number that a peer sent as a key; empty when there is no such node."""
    return names.get(int(number), "") if number.isdecimal() and len(number) < 8 else ""


WORDS = {
    "ECONNREFUSED": "refused though something listens: a firewall rejects the connection",
    "ETIMEDOUT": "no answer: a firewall drops the packets, or there is no route",
    "timed out": "no answer: a firewall drops the packets, or there is no route",
    "ENETUNREACH": "no route",
    UNROUTED: "the sender has no route (EHOSTUNREACH)",
    LOOP: "it goes over too many routers, in circles or with a small net.ipv4.ip_default_ttl",
    "EINVAL": "a black-hole route, or an address that can't be a source there (EINVAL)",
    "EACCES": "prohibited by the sender's own routes or firewall (EACCES)",
    "EPERM": "rejected by the sender's own firewall or IPsec policy (EPERM)",
    "EADDRNOTAVAIL": "the sender has no free port or address (EADDRNOTAVAIL)",
    "EAFNOSUPPORT": "one end has IPv4, the other IPv6",
    "ECONNRESET": "accepted, then reset",
    "closed": "accepted, then closed without an answer: a proxy, not the node",
    "silent": "accepted, then no answer: a proxy, or packets that get lost",
}


def describe_results(edges: Iterable[Edge], why: bool = True) -> str:
    """What the dials came to, the most frequent first, and `why` that may be."""
    said: Counter[str] = Counter()
    for edge in edges:
        words = WORDS.get(edge.result, edge.result[:40])
        if edge.rejected_by:
            words = f"rejected by ICMP from {edge.rejected_by[:45]}: a firewall there"
        elif edge.result == "EHOSTUNREACH":
            dead = "no machine there answers ARP (EHOSTUNREACH)"
            closed = "rejected by ICMP, as firewalls do (EHOSTUNREACH)"
            words = closed if edge.seconds < QUICK else dead
        elif edge.result == WRONG:
            words = "another machine or program answered"
        said[words if why else words.partition(":")[0]] += 1
    parts = [f"{n} x {w}" if len(said) > 1 else w for w, n in said.most_common(3)]
    return " · ".join(parts)


def bad_addresses(one: LibraryMesh) -> Iterator[tuple[str, list[str]]]:
    """Nodes whose address can't be the way to them: another one has it as well and they do not
    reach each other, or it leads back to whoever dials it."""
    owners: dict[str, set[str]] = {}
    for (a, b), edge in one.failed.items():
        mine, theirs = one.ways.get(a), one.ways.get(b)
        # dialling an own address never leaves the machine, so no firewall outside is silent there
        if mine is None or theirs is None or edge.result not in ("ECONNREFUSED", WRONG):
            continue
        if is_loopback(theirs.ip):
            owners.setdefault("", set()).add(b)
        elif mine.ip == theirs.ip:
            owners.setdefault(mine.ip, set()).update((a, b))
    for ip, nodes in sorted(owners.items()):
        bridges = all(interface_rules.isolated(one.ways[n].interface) for n in nodes)
        # networks that each node has of its own have the same addresses everywhere
        twice = bool(ip) and not bridges and one.library not in MORE
        yield ("address-duplicate" if twice else "interface-wrong"), sorted(nodes)


def translated(world: World[Mesh], one: LibraryMesh) -> dict[str, str]:
    """The nodes whose address is translated (NAT) on their way to others, and the one that is seen
    in its place: by a listener of this check, or by the host of the meeting."""
    found = {**world.once(_translated_on_the_way_to_the_host)}
    found |= {a: edge.source[:45] for (a, _), edge in one.moved.items()}
    # the proxy of a service mesh is on the node itself
    return {node: ip for node, ip in found.items() if not is_loopback(ip)}


def _translated_on_the_way_to_the_host(world: World[Mesh]) -> Mapping[str, str]:
    found = {}
    for node in world.topology.nodes:
        seen = world.seen.get(node.name)
        mine, theirs = parse_ip(seen.source if seen else ""), parse_ip(node.addr)
        if mine and theirs and mine.version == theirs.version and mine != theirs:
            found[node.name] = node.addr
    return found


@dataclass(frozen=True, slots=True)
class OtherRange:
    """A node's ephemeral ports, `32768-60999`, and those of most nodes."""

    mine: str
    usual: str

    def __str__(self) -> str:
        return f"its net.ipv4.ip_local_port_range is {self.mine}, the others have {self.usual}"


def other_range(ranges: Mapping[str, tuple[int, ...]], node: str) -> OtherRange | None:
    """None where most nodes have this node's range, or none is that of most."""
    usual = consensus({n: ports for n, ports in ranges.items() if len(ports) == 2}).value
    if usual is None or ranges.get(node, ()) in ((), usual):
        return None
    return OtherRange(*("-".join(map(str, ports)) for ports in (ranges[node], usual)))


def overflowed(world: World[Mesh], one: LibraryMesh) -> dict[str, frozenset[Pair]]:
    """The nodes whose listen queue was full meanwhile, with the edges into them that lost a packet
    or failed when all were opened at once: nothing was lost on their way. One without such an edge
    counts where the queue is short: then the dialler took what the kernel dropped for accepted."""
    into: dict[str, set[Pair]] = {}
    for edge in (*one.together, *one.lost):
        into.setdefault(edge[1], set()).add(edge)
    return {
        node: frozenset(into.get(node, ()))
        for node in one.ways
        if (seen := world.seen[node]).overflowed and (node in into or seen.queue < QUEUE_SHORT)
    }


def behind_nat(
    world: World[Mesh], seen_as: Mapping[str, str], nodes: Collection[str]
) -> tuple[str, ...]:
    """Those of these nodes, which can't be reached, that are known to be behind NAT; none where it
    does not explain all of them. From where the node of rank 0 comes nobody has seen."""
    leaders = {n.name for n in world.topology.nodes if 0 in n.ranks}
    return tuple(sorted({*nodes} & {*seen_as})) if {*nodes} - leaders <= {*seen_as} else ()


def on_wrong_interface(world: World[Mesh], one: LibraryMesh, node: str, alone: bool) -> bool:
    """Whether a node's interface is by its kind, or by where MASTER_ADDR lies, the wrong one. When
    the node is `alone` with its trouble, an interface that serves the others is right."""
    way, seen = one.ways.get(node), world.seen.get(node)
    if way is None or seen is None:
        return False
    others = {w.interface for n, w in one.ways.items() if n != node}
    if alone and way.interface in others:
        return False
    return interface_rules.isolated(way.interface) or bool(
        seen.meeting and seen.meeting != way.interface
    )


def drops_its_subnet(world: World[Mesh], one: LibraryMesh, suspect: Suspect) -> list[str]:
    """The nodes to which all failed edges of a suspect lead, where each drops what comes in on that
    interface by its reverse path filter."""
    ends = sorted({b for _, b in suspect.edges})
    ways = {n: one.ways[n].interface for n in ends if n in one.ways}
    drops = all(n in world.seen and ways.get(n) in world.seen[n].filtered for n in ends)
    return ends if drops and all(one.failed[e].result in UNHEARD for e in suspect.edges) else []


def sent_back_elsewhere(
    world: World[Mesh], one: LibraryMesh, suspect: Suspect
) -> dict[str, tuple[str, Detour]]:
    """Nodes that drop what another one sends, since their route back to it leaves by a different
    interface -> that node, and the route; none where that does not explain all edges of a
    suspect."""
    found: dict[str, tuple[str, Detour]] = {}
    for a, b in suspect.edges:
        here, way, there = world.seen.get(b), one.ways.get(b), one.ways.get(a)
        if here is None or way is None or there is None or ":" in there.ip:
            return {}
        way_back = detour_of(here.detours, way.interface, there.ip)
        if way_back is None or one.failed[a, b].result not in UNHEARD:
            return {}
        found.setdefault(b, (a, way_back))
    return found


def sent_by_another_interface(
    world: World[Mesh], one: LibraryMesh, suspect: Suspect
) -> dict[str, tuple[str, Detour]]:
    """Nodes whose kernel sends to another one in a network of theirs, and answers it, by another
    interface than that network's, by a router, or not at all since it has that address itself ->
    that node, and the route; none where that does not explain all edges of a suspect."""
    found: dict[str, tuple[str, Detour]] = {}
    for a, b in suspect.edges:
        ways = {node: _diversion(world, one, node, to) for node, to in ((a, b), (b, a))}
        if not any(ways.values()):
            return {}
        for node, to in ((a, b), (b, a)):
            if (way := ways[node]) is not None:
                found.setdefault(node, (to, way))
    return found


def _diversion(world: World[Mesh], one: LibraryMesh, node: str, to: str) -> Detour | None:
    here, way, there = world.seen.get(node), one.ways.get(node), one.ways.get(to)
    if here is None or way is None or there is None:
        return None
    found = detour_of(here.diverted, way.interface, there.ip)
    beside = way.prefix and in_network(f"{way.ip}/{way.prefix}", there.ip)
    # to another network the default route leads, where none by this interface does
    return found if found is not None and (beside or found.table or found.own) else None


def of_other_family(one: LibraryMesh) -> dict[str, int]:
    """Nodes where Gloo takes an address of another IP version than on most -> that version; all
    where neither is usual. It refuses such a pair before it connects (device.cc: ss_family)."""
    if one.library != GLOO:
        return {}
    told = {n: w.ip for n, w in one.ways.items() if not is_loopback(w.ip) and parse_ip(w.ip)}
    versions = {n: 6 if ":" in ip else 4 for n, ip in told.items()}
    usual = consensus(versions).value
    return {n: v for n, v in versions.items() if v != usual}


def behind_first_address(
    world: World[Mesh], one: LibraryMesh, suspect: Suspect
) -> dict[str, ListenAddress]:
    """Nodes of a suspect whose interface is the right one, and whose first address there is in
    another network than the one by which the node comes to MASTER_ADDR -> that way."""
    found = {}
    for node in suspect.names if suspect.what in (NODE, EITHER) and one.library not in MORE else ():
        seen, way = world.seen.get(node), one.ways.get(node)
        if seen is None or way is None or seen.meeting != way.interface or not seen.source:
            continue
        apart = way.prefix and not in_network(f"{way.ip}/{way.prefix}", seen.source)
        if apart and (":" in way.ip) == (":" in seen.source):
            found[node] = way
    return found


@dataclass(frozen=True, slots=True)
class Misdirection:
    """What `node` sends to `to` goes to a MAC address that is not `to`'s. `proven`: it sends to
    others by their own, so that nobody answers for all addresses there."""

    node: str
    to: str
    entry: Neighbour
    own: str
    proven: bool


def misdirected(world: World[Mesh], one: LibraryMesh, suspect: Suspect) -> tuple[Misdirection, ...]:
    """Why the edges of a suspect fail, where all of them do for this: also the answers of a node
    whose own connections fail go there."""
    found = tuple(m for m in (_misdirection(world, one, *e) for e in suspect.edges) if m)
    ends = {frozenset((m.node, m.to)) for m in found}
    return found if all(frozenset(edge) in ends for edge in suspect.edges) else ()


def _misdirection(world: World[Mesh], one: LibraryMesh, node: str, to: str) -> Misdirection | None:
    here, there, way = world.seen.get(node), world.seen.get(to), one.ways.get(to)
    if here is None or there is None or way is None:
        return None
    table, own = {entry.ip: entry for entry in here.arp}, there.macs.get(way.interface, "")
    entry = table.get(way.ip)
    if entry is None or not own or entry.mac == own:
        return None
    macs = {ip: entry.mac for ip, entry in table.items()}
    proven = False
    for name, other in one.ways.items():
        if name != to and (mac := macs.get(other.ip)) is not None:
            if mac == entry.mac and mac != world.seen[name].macs.get(other.interface):
                return None  # a router or a host of virtual machines answers for several
            proven = proven or mac == world.seen[name].macs.get(other.interface)
    return Misdirection(node, to, entry, own, proven)


def fallen_back(world: World[Mesh], one: LibraryMesh, suspect: Suspect) -> dict[str, str]:
    """Nodes of a suspect on which the library takes another interface than on all other nodes,
    since theirs has no link there -> the name of theirs. NCCL prefers names that begin with ib: a
    node where it takes another one has none that works."""
    found = {}
    for node in suspect.names if suspect.what in (NODE, EITHER) and one.library not in MORE else ():
        usual = {way.interface for n, way in one.ways.items() if n != node}
        seen, mine = world.seen.get(node), one.ways.get(node)
        if seen is None or mine is None or len(usual) != 1 or mine.interface in usual:
            continue
        others = [way.ip for n, way in one.ways.items() if n != node]
        if mine.prefix and any(in_network(f"{mine.ip}/{mine.prefix}", ip) for ip in others):
            continue  # it is where they are, under another name
        name = usual.pop()
        preferred = one.library == NCCL and name.startswith("ib") > mine.interface.startswith("ib")
        if name in seen.idle or preferred:
            found[node] = name
    return found


@dataclass(frozen=True, slots=True)
class Interception:
    """Connections to `node` that TCP accepts and its listener never sees; `port` there to which
    they were led, and the program at it; 0: they did not get to the node."""

    node: str
    port: int = 0
    program: str = ""


def intercepted(world: World[Mesh], one: LibraryMesh, suspect: Suspect) -> Interception | None:
    """Who accepts the connections of a suspect's edges in place of the one node that they all lead
    to. None where its listener saw one of them, or half of one: then it is the data that is lost,
    not the connection that another one has."""
    ends = {b for _, b in suspect.edges}
    there = world.seen.get(next(iter(ends), "")) if len(ends) == 1 else None
    if there is None or not there.looked:
        return None
    ports = set()
    for edge in suspect.edges:
        here, failed = world.seen.get(edge[0]), one.failed[edge]
        if here is None or failed.result not in (SILENT, CLOSED, "ECONNRESET") or not failed.port:
            return None
        ips = {way.ip for way in here.ways}
        if ips & {*there.accepted, *there.half}:
            return None
        ports |= {t.port for t in there.taken if t.source == failed.port and t.ip in ips}
    port = min(ports, default=0)
    return Interception(next(iter(ends)), port, there.holders.get(str(port), "")[:60])


def data_lost(world: World[Mesh], one: LibraryMesh, suspect: Suspect) -> bool:
    """Whether the listener of the one node to which the edges of a suspect lead has accepted all
    these connections, and nothing came over them."""
    ends = {b for _, b in suspect.edges}
    there = world.seen.get(next(iter(ends))) if len(ends) == 1 else None
    return there is not None and all(
        one.failed[edge].result == SILENT
        and edge[0] in one.ways
        and one.ways[edge[0]].ip in there.accepted
        for edge in suspect.edges
    )


def unused(world: World[Mesh], one: LibraryMesh, suspect: Suspect) -> bool:
    """Whether only Gloo would use the failed edges of a suspect, and opens none of them."""
    if one.library != GLOO or suspect.what == ALL or suspect.at == BOTH:
        return False
    gloo = gloo_alone({node: seen.ways for node, seen in world.seen.items()})
    return needs_none(gloo, suspect.edges, [node.name for node in world.topology.nodes])


def edge_status(world: World[Mesh], one: LibraryMesh, nodes: Iterable[str]) -> Status:
    """Without NCCL's way an edge of Gloo's is the job's; with GPUs it is the side road. NCCL's
    further interfaces are used where there are GPUs."""
    if one.library in MORE:
        some = [seen for node in nodes if (seen := world.seen.get(node)) is not None]
        used = any(w.library == NCCL for seen in some for w in seen.ways)
        # of one that has a link-local address only NCCL may find a way around it
        far = any(not way.ip.startswith("fe80:") for way in one.ways.values())
        return Status.FAIL if used and far else Status.WARN
    for node in nodes:
        seen = world.seen.get(node)
        if one.library == NCCL or seen is None or all(w.library != NCCL for w in seen.ways):
            return Status.FAIL
    return Status.WARN


def advice_fields(world: World[Mesh], one: LibraryMesh, node: str, to: str) -> dict[str, str]:
    there = one.ways.get(to)
    here = one.ways.get(node)
    ports = next((s.ports for s in world.seen.values() if len(s.ports) == 2), ())
    return {
        "node": node,
        "to": to,
        "to_ip": there.ip if there else "ADDRESS",
        "interface": here.interface if here else "",
        "wanted": "",
        "range": f"{ports[0]}-{ports[1]}" if ports else "of net.ipv4.ip_local_port_range",
    }


def refusing_dialler(one: LibraryMesh, suspect: Suspect) -> str:
    """The one node whose own kernel refuses to dial, where nothing else is wrong; empty: there is
    none. It can't answer those that it can't send to, either."""
    refused = {e for e in suspect.edges if one.failed[e].result in OWN_REFUSALS}
    diallers = {a for a, _ in refused}
    if len(diallers) == 1 and all({(a, b), (b, a)} & refused for a, b in suspect.edges):
        return diallers.pop()
    return ""


def rejecting_node(one: LibraryMesh, suspect: Suspect) -> str:
    """The one node whose own firewall has rejected all of these connections, as its ICMP messages
    say; empty: there is none, or nobody said so."""
    nodes = set()
    for a, b in suspect.edges:
        by = one.failed[a, b].rejected_by
        ends = [n for n in (a, b) if by and n in one.ways and one.ways[n].ip == by]
        nodes.add(ends[0] if len(ends) == 1 else "")
    return nodes.pop() if len(nodes) == 1 else ""
