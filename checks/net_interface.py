"""Which network interface will NCCL and Gloo use, and does it reach the other nodes?

Looks at     the interfaces with their state and addresses; NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY
             (also from nccl.conf) and GLOO_SOCKET_IFNAME, parsed as NCCL and Gloo parse them; what
             the hostname resolves to; the route to MASTER_ADDR
Fails if     a rule matches no interface, or one that is down or has no address; GLOO_SOCKET_IFNAME
             is written in NCCL's syntax; the loopback interface is down, or a firewall drops what
             goes over it; and on several nodes: a loopback address or a bridge local to this host
             is chosen, or there is no route to MASTER_ADDR
Warns if     a value is ignored for its length, or NCCL's value is wrong but there is no GPU; and on
             several nodes: the loopback interface is down where one rank is that is not rank 0; an
             interface is chosen that is not configured and has no route to
             MASTER_ADDR, a tunnel or a link-local address; NCCL and Gloo are set to different
             interfaces; two chosen interfaces share a subnet; a name selects another network on one
             node than on the others, though it has theirs as well; nodes of one network differ in
             its prefix length
Undecided    the interfaces can't be listed, or none of them has an address
Not covered  whether it reaches the peers (net.mesh); RDMA devices (net.rdma); policy routing;
             address labels (eth0:1)
Seen as      "Bootstrap : no socket interface found", "Unable to find address for: ",
             "connectFullMesh failed", "Call to connect returned Connection refused, retrying"
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from ipaddress import IPv4Interface

from preflight.check import Check, Context, Scope, Stage
from preflight.domains.net import interface_rules as ifname
from preflight.domains.net.dns import NO_ANSWER, addresses, look_up
from preflight.domains.net.interfaces import ListenAddress, gloo_alone, needs_none
from preflight.domains.net.reverse_path import link_down
from preflight.domains.settings.nccl_conf import VALUE_KEPT, nccl_variables
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host, Interface
from preflight.humanize import parties
from preflight.inference import consensus
from preflight.model import (
    Blame,
    CannotObserve,
    Command,
    Confidence,
    Fact,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
)

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=4.0,
    drains=True,
    blame=Blame.JOB,
    explains=("net.mesh", "net.payload", "net.speed", "world.gloo"),
)

NCCL, GLOO, FAMILY = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"
LIBRARY = {NCCL: "NCCL", GLOO: "Gloo"}
BY_NCCL = ("net.mesh", "net.payload", "net.speed", "world.nccl", "world.bandwidth")
STARTS: Mapping[str, tuple[str, ...]] = {NCCL: BY_NCCL, FAMILY: BY_NCCL, GLOO: CHECK.explains}
"""The checks that show a wrong value of a variable."""

LOOPBACK_PATIENCE = 1.0
"""Seconds for a connection to 127.0.0.1, which takes no time."""
REJECTED = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.EPERM)
"""What a firewall answers."""
INTERFACES_KEPT = 256
SHOWN = 4
# seconds for a name: net.name says what a slow resolver costs, here its answer only adds detail
RESOLVER_PATIENCE = 1.5

ROUTE = Command("ip route get {master}", "the node")

FINDINGS = {
    "ifname-unmatched": FindingType(
        headline="{seen} on {where}",
        who="job author",
        cause="a name from another machine, a typo, or an address instead of a name",
        means="NCCL stops with 'Bootstrap : no socket interface found', Gloo with 'Unable to find "
        "address for: …'; the other ranks wait silently",
        now="unset {variable}",
        text="set it to an interface that every node has, or unset it and let the library choose",
        commands=(Command("ip -brief address", "the node"),),
        status=(Status.FAIL, Status.WARN),
    ),
    "ifname-ignored": FindingType(
        headline="{seen} on {where}: it is ignored",
        who="job author",
        cause="a value of a single character",
        means="NCCL and Gloo ignore such a value silently and choose an interface themselves",
        text="write the full name of the interface, or unset {variable}",
        status=Status.WARN,
        explains=BY_NCCL,
    ),
    "gloo-syntax": FindingType(
        headline="GLOO_SOCKET_IFNAME='{value}' is not the name of an interface on {where}",
        who="job author",
        cause="NCCL's syntax (^ excludes, = is exact) or spaces given to Gloo",
        means="Gloo stops with 'Unable to find address for: {value}'",
        now="export GLOO_SOCKET_IFNAME={wanted}",
        text="write full names, separated by commas without spaces: Gloo accepts nothing else",
    ),
    "interface-down": FindingType(
        headline="{seen} on {where}",
        cause="a link that is down, or an interface without an address",
        means="NCCL stops with 'Bootstrap : no socket interface found', Gloo with 'Unable to find "
        "address for: …'",
        now="unset {variable}",
        text="bring the interface up and give it an address, or set {variable} to another one",
        commands=(Command("ip -brief address", "the node"),),
        status=(Status.FAIL, Status.WARN),
        explains=BY_NCCL,
    ),
    "loopback-down": FindingType(
        headline="the loopback interface of {where} does not work: {seen}",
        cause="a network namespace or container in which lo was never brought up, or a firewall "
        "without a rule that accepts what comes in on lo",
        means="ranks on one node can't connect to each other: 'Network is unreachable' or 'Cannot "
        "assign requested address' for 127.0.0.1, or a silent hang",
        text="bring lo up in whatever creates the namespace; let the firewall accept lo "
        "(iifname lo accept), as the first of its rules",
        commands=(
            Command("ip link set lo up", "the node"),
            Command("nft list ruleset; iptables -S INPUT", "the node, as root"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
        # the name server may be a local one, as systemd-resolved is
        explains=("net.name", "rdzv.*", "world.*"),
    ),
    "interface-isolated": FindingType(
        headline="{seen} on {where}, which does not reach the other nodes",
        who="job author",
        cause="a prefix or name that selects docker0, virbr0 or the loopback",
        means="the other nodes get an address that is their own or does not exist: 'Connection "
        "refused' in connectFullMesh or ncclCommInitRank, or a hang",
        now="export NCCL_SOCKET_IFNAME={exactly} GLOO_SOCKET_IFNAME={wanted}",
        text="set it to the interface that reaches the other nodes",
        commands=(ROUTE,),
    ),
    "interface-doubtful": FindingType(
        headline="{seen} on {where}, which may be the wrong network",
        who="job author",
        cause="several networks on one machine, and no setting that selects one",
        means="if the other nodes can't reach it, ncclCommInitRank or init_process_group hangs",
        now="export NCCL_SOCKET_IFNAME={exactly} GLOO_SOCKET_IFNAME={wanted}",
        text="set it to the interface that reaches the other nodes",
        commands=(ROUTE,),
        status=Status.WARN,
        explains=BY_NCCL,
    ),
    "interfaces-differ": FindingType(
        headline="NCCL and Gloo would use different interfaces on {where}: {seen}",
        who="job author",
        cause="two variables that were set at different times",
        means="a firewall or a broken network affects one backend only, which is hard to find",
        text="set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the same interface, unless two "
        "networks are intended",
        status=Status.WARN,
        explains=(),
    ),
    "networks-differ": FindingType(
        headline="{variable} selects another network on {where} than on the other nodes: {seen}",
        who="cluster administrator",
        cause="NICs in another order on this node: cables, addresses or interface names swapped",
        means="the data of {where} takes the wrong network: slow where the two are routed, and "
        "otherwise ncclCommInitRank or init_process_group hangs",
        text="give the NICs of {where} the same names and networks as on the other nodes (udev, "
        "netplan), or set {variable} there to the interface in that network",
        commands=(Command("ip -brief address", "every node"),),
        status=Status.WARN,
        blame=Blame.NODE,
    ),
    "netmask-differs": FindingType(
        headline="the netmask of {where} is not that of the other nodes: {seen}",
        who="cluster administrator",
        cause="an address typed with the wrong prefix length, or a lease of another DHCP server",
        means="{where} sends what is for a neighbour to a gateway, or to its broadcast address: "
        "some nodes reach it and others don't",
        text="give the interface of {where} the prefix length of the other nodes",
        commands=(Command("ip -brief address", "every node"), Command("ip route", "every node")),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
    "subnet-shared": FindingType(
        headline="{seen} on {where}",
        cause="two NICs in one subnet without policy routing",
        means="all traffic leaves through one NIC; connections over the other are slow or hang",
        now="export NCCL_SOCKET_IFNAME={exactly}",
        text="give each NIC its own subnet, or its own routing table and arp_ignore=1",
        commands=(Command("ip route show", "the node"), Command("ip rule show", "the node")),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=("world.bandwidth",),
    ),
    "master-unroutable": FindingType(
        headline="{where} has no route to MASTER_ADDR",
        cause="a missing route, an interface that is switched off, or no address of that family on "
        "this machine",
        means="'Network is unreachable' (errno 101): this node never reaches the store on "
        "MASTER_ADDR",
        now="ip link set {nic} up   on {node}, as root",
        text="add a route on this node, or use an address of MASTER_ADDR that it has a route to",
        commands=(ROUTE,),
        blame=Blame.NETWORK,
        explains=("rdzv.*", "world.*"),
    ),
}


SHARED_PREFIX = 30
"""The longest of a network with neighbours in it."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The interfaces in the kernel's order (`more` were left out), the rules with their source.

    own       addresses of the node's name; None when it was not asked for or did not answer
    source    the local address from which this node would talk to MASTER_ADDR; empty: unknown
    no_route  why there is no route to MASTER_ADDR; idle: the interface in its network that has no
              link
    loopback  why 127.0.0.1 can't be used; empty when it can
    tables    there are routing tables besides main and local
    """

    interfaces: tuple[Interface, ...]
    more: int = 0
    rules: Mapping[str, Fact] = field(default_factory=dict)
    own: tuple[str, ...] | None = None
    source: str = ""
    no_route: str = ""
    idle: str = ""
    loopback: str = ""
    tables: bool = False
    gpus: bool = False
    rdma: bool = False

    def text(self, variable: str) -> str | None:
        fact = self.rules.get(variable)
        return fact.value if fact else None

    @property
    def family(self) -> int:
        return ifname.nccl_family(self.text(FAMILY))

    @property
    def nccl(self) -> tuple[Interface, ...]:
        return ifname.nccl_choice(self.interfaces, self.text(NCCL), self.family)

    @property
    def gloo(self) -> tuple[Interface, ...]:
        return ifname.gloo_choice(self.interfaces, self.text(GLOO), self.own)

    @property
    def way(self) -> Interface | None:
        """The interface that leads to MASTER_ADDR, where that is known and leads anywhere."""
        return ifname.leads_from(self.interfaces, self.source)

    @property
    def wanted(self) -> str:
        """The name to advise: the way to MASTER_ADDR, else the first real interface."""
        if self.way is not None:
            return self.way.name
        names = (i.name for i in ifname.nccl_choice(self.interfaces, "^lo"))
        real = (n for n in names if not (ifname.isolated(n) or ifname.virtual(n)))
        return next(real, "")

    @property
    def listing(self) -> str:
        return ifname.listing(self.interfaces, self.more)

    def address(self, variable: str, interface: Interface) -> str:
        """The address that the library of a variable would take of an interface, or empty."""
        if variable == NCCL:
            found = ifname.nccl_address(interface, self.family)
        else:
            found = ifname.gloo_address(interface)
        return found.ip if found else ""


def observe(host: Host, ctx: Context) -> Choices:
    loopback = _loopback_problem(host)
    interfaces = host.interfaces
    if not loopback and not any(i.addresses for i in interfaces):
        raise CannotObserve("no interface has an address")
    found = nccl_variables(host)
    rules = {
        n: replace(found[n], value=found[n].value[:VALUE_KEPT])
        for n in (NCCL, FAMILY)
        if n in found
    }
    if GLOO in host.environ:
        rules[GLOO] = Fact(host.environ[GLOO][:VALUE_KEPT], "env")
    own, source, no_route, idle = None, "", "", ""
    if host.live and not ifname.gloo_names(rules[GLOO].value if GLOO in rules else None):
        ctx.mark("resolve this node's hostname")
        own = _addresses(host, host.hostname())
    several = ctx.topology.several_nodes
    if host.live and several and ctx.master_addr:
        ctx.mark("route to MASTER_ADDR")
        masters = _addresses(host, ctx.master_addr) or ()
        source, no_route = _source_address(host, masters)
        down = (link_down(host, ip) for ip in masters)
        idle = next(filter(None, down), "") if no_route else ""
    return Choices(
        interfaces=interfaces[:INTERFACES_KEPT],
        more=max(0, len(interfaces) - INTERFACES_KEPT),
        rules=rules,
        own=own,
        source=source,
        no_route=no_route,
        idle=idle,
        loopback=loopback,
        tables="\nId " in "\n" + (host.read_or_none("/proc/net/fib_trie") or ""),
        gpus=bool(host.gpu_files()),
        rdma=bool(host.listdir("/sys/class/infiniband")),
    )


def _loopback_problem(host: Host) -> str:
    """Why 127.0.0.1 can't be used. Nothing can listen there where lo was never up; where it was up
    before, something can, but no connection arrives."""
    error = host.can_bind("127.0.0.1") if host.live else None
    if error and error.errno != errno.EADDRINUSE:  # all ports are in use: net.port says so
        return f"127.0.0.1: {error.strerror}"
    flags = host.read_int("/sys/class/net/lo/flags")
    if flags is not None and not flags & 1:  # IFF_UP
        return "lo is down"
    error = host.reaches_itself("127.0.0.1", LOOPBACK_PATIENCE) if host.live else None
    # that no port or descriptor is left is for other checks to say
    if isinstance(error, TimeoutError) or (error and error.errno in REJECTED):
        return f"no connection arrives at 127.0.0.1: {error.strerror or 'no answer'}"
    return ""


def _addresses(host: Host, name: str) -> tuple[str, ...] | None:
    """A name's addresses; None when the resolver takes too long."""
    found = look_up(name, lambda: addresses(host, name), RESOLVER_PATIENCE)
    return None if found.error == NO_ANSWER else found.found


def _source_address(host: Host, ips: tuple[str, ...]) -> tuple[str, str]:
    """The address from which the first of `ips` that has a route is reached, or why none has."""
    problem = ""
    for ip in ips:
        try:
            return host.source_of(ip), ""
        except OSError as error:
            if error.errno != errno.EAGAIN:  # no port is left to ask from: net.port says so
                problem = f"{ip}: {error.strerror}"
    return "", problem


def judge(world: World[Choices], expect: Expect) -> Iterator[Found]:
    several = world.topology.several_nodes
    for here, seen in world.each():
        if seen.loopback:
            yield Found(
                "loopback-down",
                (_nic_subject(here, "lo"),),
                saw=seen.loopback,
                expected="lo is up and has 127.0.0.1",
                # one rank that is not the store's connects to other nodes only
                status=Status.WARN
                if several and 0 < min(here.ranks, default=0) == max(here.ranks)
                else Status.FAIL,
            )
        nccl = seen.nccl
        yield from _judge_nccl(here, seen, nccl)
        yield from _judge_gloo(here, seen)
        if several:
            found = _judge_between_nodes(here, seen, nccl, world.topology.master_addr[:80])
            yield from (_by_luck(world, here, one) for one in found)
    if several:
        yield from _judge_masks(world)
    told: set[tuple[Subject, ...]] = set()  # of NCCL and Gloo once, where they take the same
    for finding in (f for variable in (NCCL, GLOO) for f in _judge_networks(world, variable)):
        if finding.subjects not in told:
            told.add(finding.subjects)
            yield finding


def _by_luck(world: World[Choices], here: Subject, found: Found) -> Found:
    """An address of Gloo's that nobody reaches, and that nobody connects to today: this node has
    the greatest one. So the job starts, until it has other nodes."""
    if found.code != "interface-isolated" or found.confidence is Confidence.CERTAIN:
        return found
    ways = {
        node.node: [ListenAddress("Gloo", nic.name, seen.address(GLOO, nic)) for nic in seen.gloo]
        for node, seen in world.each()
        if not seen.gpus and NCCL not in seen.rules
    }
    gloo = gloo_alone(ways)
    nodes = [node.name for node in world.topology.nodes]
    if not needs_none(gloo, [(n, here.node) for n in nodes if n != here.node], nodes):
        return found
    return found.with_(
        status=Status.WARN,
        explains=("net.mesh:unused-direction-closed",),
        saw=f"{found.saw} · Gloo connects from the greater address to the smaller one, and this is "
        "the greatest: today no node connects to it",
    )


def _judge_masks(world: World[Choices]) -> Iterator[Found]:
    """Nodes with addresses in one network that know it by different sizes. Not so where each has
    its address alone, as in a cloud, or the wider one is another node's way to several networks."""
    mine: dict[str, tuple[str, IPv4Interface]] = {}
    for here, seen in world.each():
        for nic in seen.interfaces:
            own = next((a for a in nic.addresses if a.ip == seen.source and a.family == 4), None)
            if own is not None and own.prefix <= SHARED_PREFIX:
                mine[here.node] = nic.name, IPv4Interface(f"{own.ip}/{own.prefix}")
    sizes = {node: address.network.prefixlen for node, (_, address) in mine.items()}
    if len(set(sizes.values())) < 2:
        return
    widest = mine[min(sizes, key=lambda node: sizes[node])][1].network
    # the networks of several racks, and one node that has a route to all of them
    racks = {address.network for _, address in mine.values()} - {widest}
    if len(racks) > 1 or not all(address.ip in widest for _, address in mine.values()):
        return
    agreed = consensus(sizes)
    odd = sorted(mine) if agreed.tie else sorted(n for of in agreed.odd.values() for n in of)
    usual = f" · /{agreed.value} on {parties(agreed.holders, SHOWN)}" if agreed.value else ""
    yield Found(
        "netmask-differs",
        tuple(Subject(Kind.NIC, n, mine[n][0], ranks=world.topology.ranks_of(n)) for n in odd),
        saw=", ".join(f"{n} has {mine[n][1]}" for n in odd[:SHOWN]) + usual,
        expected="one prefix length in one network",
        confidence=Confidence.POSSIBLE if agreed.tie else Confidence.LIKELY,
        alternatives=tuple(f"{n} has the intended one" for n in odd[:SHOWN]) if agreed.tie else (),
        fields={"where": parties(odd, SHOWN)},
    )


def _judge_networks(world: World[Choices], variable: str) -> Iterator[Found]:
    """A name that means another network on one node than on the others, though that node has
    theirs, too, on an interface that is not chosen: where each has a network of its own, or the
    names differ and the networks don't, all is well."""
    chosen: dict[str, tuple[Choices, tuple[Interface, ...]]] = {}
    first: dict[str, str] = {}
    for here, seen in world.each():
        if variable not in seen.rules:
            continue
        used = seen.nccl if variable == NCCL else seen.gloo[:1]
        family = ifname.family_of(seen.address(variable, used[0])) if used else ifname.IPV4
        if used and (found := ifname.networks(used[0], family)):
            chosen[here.node], first[here.node] = (seen, used), found[0]
    agreed = consensus(first)
    wanted = [agreed.value] if agreed.value else list(agreed.odd)
    odd: dict[str, tuple[str, str]] = {}
    for node in (n for nodes in agreed.odd.values() for n in nodes):
        seen, used = chosen[node]
        for network in wanted:
            family = ifname.family_of(network)
            has = [i for i in seen.interfaces if network in ifname.networks(i, family)]
            has = [i for i in has if i.running]
            if has and not any(i in used for i in has):
                odd[node] = network, has[0].name
    if not odd or (agreed.tie and len(odd) < len(first)):
        return
    told = [
        f"{chosen[n][1][0].name} is in {first[n]} on {n}, whose {other} is in {network}"
        for n, (network, other) in list(odd.items())[:SHOWN]
    ]
    usual = f" · {agreed.value} on {parties(agreed.holders, SHOWN)}" if agreed.value else ""
    yield Found(
        "networks-differ",
        tuple(
            Subject(Kind.NIC, n, chosen[n][1][0].name, ranks=world.topology.ranks_of(n))
            for n in odd
        ),
        saw="; ".join(told) + usual,
        expected=f"the same network behind {variable} on all nodes",
        confidence=Confidence.POSSIBLE if agreed.tie else Confidence.LIKELY,
        alternatives=tuple(f"{n} has the intended one" for n in list(odd)[:SHOWN])
        if agreed.tie
        else (),
        explains=STARTS[variable],
        fields={"variable": variable, "where": parties(list(odd), SHOWN)},
    )


def _judge_nccl(here: Subject, seen: Choices, nccl: tuple[Interface, ...]) -> Iterator[Found]:
    text = seen.text(NCCL)
    rule = ifname.nccl_rule(text)
    if text is not None and len(text) == 1:
        yield _unusable_setting(here, seen, "ifname-ignored", NCCL, "is one character long")
    if nccl:
        return
    if rule is None:
        if seen.family:
            yield _unusable_setting(
                here, seen, "interface-down", FAMILY, "no interface can serve it"
            )
        return
    matched = [i for i in seen.interfaces if rule.admits(i.name)]
    if matched:
        what = ", ".join(f"{i.name} {ifname.state(i)}" for i in matched[:4])
        yield _unusable_setting(here, seen, "interface-down", NCCL, what, matched[0].name)
    else:
        yield _unusable_setting(here, seen, "ifname-unmatched", NCCL, "matches no interface")


def _judge_gloo(here: Subject, seen: Choices) -> Iterator[Found]:
    text = seen.text(GLOO)
    if text is not None and len(text) == 1:
        yield _unusable_setting(here, seen, "ifname-ignored", GLOO, "is one character long")
    known = {i.name: i for i in seen.interfaces}
    for name in ifname.gloo_names(text):
        interface = known.get(name)
        if interface is None and name.partition(":")[0] in known:
            continue  # eth0:1 may be the label of an address, and labels are not listed here
        if interface is None:
            syntax = name[0] in "^=" or name.strip() in known
            code = "gloo-syntax" if syntax else "ifname-unmatched"
            yield _unusable_setting(
                here, seen, code, GLOO, f"{name[:40]!r} is not the name of an interface", value=name
            )
            return
        # one without a carrier still serves the ranks of one node
        if not interface.up or not interface.addresses:
            yield _unusable_setting(
                here, seen, "interface-down", GLOO, f"{name} {ifname.state(interface)}", name
            )
            return


EXPECTED = {
    "ifname-unmatched": "the name of an interface of this node",
    "ifname-ignored": "the full name of an interface, or nothing",
    "gloo-syntax": "full names, separated by commas: no ^, =, prefixes or spaces",
    "interface-down": "an interface that is up and has an address",
}


def _unusable_setting(
    here: Subject,
    seen: Choices,
    code: str,
    variable: str,
    what: str,
    interface: str = "",
    value: str = "",
) -> Found:
    """The finding about a setting that leads to no usable interface."""
    shown = [_describe_rule(variable, seen.rules[variable])]
    if variable == NCCL and seen.family:
        shown.append(_describe_rule(FAMILY, seen.rules[FAMILY]))
    subject = Subject(Kind.SOFTWARE, here.node, variable, ranks=here.ranks)
    # NCCL is there for GPUs only: without one nobody will read what is set for it
    harmless = code == "ifname-ignored" or (variable in (NCCL, FAMILY) and not seen.gpus)
    return Found(
        code,
        (_nic_subject(here, interface), subject) if interface else (subject,),
        saw=f"{' '.join(shown)}: {what} · interfaces here: {seen.listing}",
        expected=EXPECTED[code],
        explains=STARTS[variable],
        fields={"variable": variable, "value": value[:40], "wanted": seen.wanted},
        status=Status.WARN if harmless else Status.FAIL,
    )


def _judge_between_nodes(
    here: Subject, seen: Choices, nccl: tuple[Interface, ...], master: str
) -> Iterator[Found]:
    """Judge what matters between nodes only."""
    if seen.no_route:
        yield Found(
            "master-unroutable",
            (here,),
            saw=f"no route to MASTER_ADDR {master!r}: {seen.no_route}"
            + (f" · {seen.idle} is in its network, and has no link" if seen.idle else ""),
            expected="a route to every node of the job",
            fields={**_advice_fields(seen, master), "nic": seen.idle, "node": here.node},
        )
    gloo = seen.gloo
    # NCCL is there for GPUs only: without one, what it would choose by itself is nobody's worry
    if nccl and (seen.gpus or NCCL in seen.rules):
        rule = ifname.nccl_rule(seen.text(NCCL))
        meant = rule.means(nccl[0].name) if rule else nccl[0].name.startswith("ib")
        yield from _judge_choice(here, seen, NCCL, nccl[0], meant, master)
    # where the hostname resolves to the loopback, net.name says so
    named = bool(ifname.gloo_names(seen.text(GLOO)))
    # each rank connects to all others by each interface of the list
    for interface in gloo if named else gloo[:1]:
        if named or not interface.loopback:
            yield from _judge_choice(here, seen, GLOO, interface, True, master)
    if NCCL in seen.rules and named and nccl and gloo and not set(nccl) & set(gloo):
        yield Found(
            "interfaces-differ",
            (Subject(Kind.SOFTWARE, here.node, GLOO, ranks=here.ranks),),
            saw=f"NCCL uses {nccl[0].name}, Gloo uses {gloo[0].name}",
            expected="one interface for both",
            confidence=Confidence.POSSIBLE,
            alternatives=("two networks are intended",),
        )
    # over RDMA no data goes this way; with more tables somebody has thought of it
    shared = ifname.shared_subnet(nccl) if seen.gpus and not seen.rdma and not seen.tables else None
    if shared:
        first, second, subnet = shared
        yield Found(
            "subnet-shared",
            (_nic_subject(here, second.name), _nic_subject(here, first.name)),
            saw=f"{first.name} and {second.name} are both in {subnet}, with one routing table",
            expected="one interface in each subnet",
            confidence=Confidence.LIKELY,
            fields={"exactly": f"={first.name}"},
        )


def _judge_choice(
    here: Subject,
    seen: Choices,
    variable: str,
    interface: Interface,
    meant: bool,
    master: str,
) -> Iterator[Found]:
    """Judge one library's choice on one of several nodes. `meant`: a setting has this very name, or
    it is the library's own first preference."""
    ip = seen.address(variable, interface)
    loops = ip.startswith("127.") or ip == "::1"
    way = seen.way
    if not ip or (way is not None and way.name == interface.name and not loops):
        return
    saw = f"{LIBRARY[variable]} uses {interface.name} {ip}"
    if variable in seen.rules:
        saw = f"{_describe_rule(variable, seen.rules[variable])}: {saw}"
    # without what each node has of its own several of them are one finding
    other = f"MASTER_ADDR is reached by {way.name}" if way is not None else ""
    finding = Found(
        "interface-isolated",
        (_nic_subject(here, interface.name),),
        saw=f"{saw} · {other or f'interfaces here: {seen.listing}'}",
        expected="the interface that reaches the other nodes",
        confidence=Confidence.CERTAIN if loops else Confidence.LIKELY,
        explains=STARTS[variable],
        fields=_advice_fields(seen, master),
    )
    # of two in one subnet: whoever reaches the one may well reach the other
    shared = way is not None and set(ifname.networks(way)) & set(ifname.networks(interface))
    local = ip.startswith(("169.254.", "fe80:"))
    if loops or ifname.isolated(interface.name):
        yield finding
    elif local or ifname.virtual(interface.name) or not (way is None or meant or shared):
        yield finding.with_(
            code="interface-doubtful",
            confidence=Confidence.POSSIBLE,
            alternatives=("the other nodes do reach it",),
        )


def _advice_fields(seen: Choices, master: str) -> dict[str, str]:
    return {"wanted": seen.wanted, "exactly": f"={seen.wanted}", "master": master}


def _describe_rule(variable: str, fact: Fact) -> str:
    """A rule as its author will recognise it, with its file where it does not come from the
    environment."""
    source = "" if fact.source == "env" else f" in {fact.source[:80]}"
    return f"{variable}={fact.value[:60]!r}{source}"


def _nic_subject(here: Subject, name: str) -> Subject:
    return Subject(Kind.NIC, here.node, name, ranks=here.ranks)


def measured(world: World[Choices]) -> Measured:
    seen = next(iter(world.seen.values()), None)
    if seen is None:
        return Measured()
    words = [
        f"{LIBRARY[variable]} uses {i.name} {seen.address(variable, i) or '-'}"
        for variable, chosen in ((NCCL, seen.nccl), (GLOO, seen.gloo))
        for i in chosen[:1]
    ]
    return Measured(
        " · ".join(words) or f"{len(seen.interfaces)} interfaces",
        {"nccl": [i.name for i in seen.nccl], "gloo": [i.name for i in seen.gloo]},
    )
