"""What stands between an agent that is not in and the meeting that others are in. Pure.

The error alone says the same of all of these as of a rank 0 that does not run. What tells them
apart is what else is known: that others got in at the same address, which ports answer, what the
host saw of the connection, and what its kernel acknowledged.
"""

from __future__ import annotations

from preflight.domains.net.reverse_path import Detour, detour_of
from preflight.domains.rendezvous.arrivals import MeetingView
from preflight.domains.rendezvous.attempts import EXPLAINS, AttemptOutcome, Reach
from preflight.model import Blame, Command, FindingType, Status
from preflight.roster import Attempt, StoreStage

INTERCEPTED, DATA_LOST = "intercepted", "data-lost"
REFUSED_HERE, DROPPED_HERE = "refused-here", "dropped-here"
REVERSE_PATH, FILTERED_THERE, LINK_DOWN = "reverse-path", "reverse-path-host", "link-down"
ANSWERS_FILTERED = "answers-filtered"
NOT_NEIGHBOURS = "arp-unanswered"
DIVERTED, RETURN_ROUTE = "route-diverted", "return-route-host"
STORE_NOT_SERVED = "agent-store-missing"
UNANNOUNCED = "meeting-unannounced"
SEARCH_DOMAIN, TRANSLATED = "search-domain", "address-translated"

SIDECARS = {15001: "Istio's Envoy", 4140: "Linkerd's proxy", 15006: "Istio's Envoy"}
"""Ports of the loopback interface to which a service mesh redirects the connections of a pod."""

DISCARD = 9
"""A port at which hardly any machine listens."""

TIMED_OUT = "'The client socket has timed out after … while trying to connect to ({name}, {port})'"

UNREACHED = (
    *(AttemptOutcome.DROPPED, AttemptOutcome.DEAD),
    *(AttemptOutcome.NO_ROUTE, AttemptOutcome.PROHIBITED),
)

LED_AWAY = (*UNREACHED, AttemptOutcome.REFUSED, AttemptOutcome.NOT_OURS)
"""What is found at an address that is not the meeting's."""

FINDINGS = {
    SEARCH_DOMAIN: FindingType(
        headline="{outside} resolves MASTER_ADDR '{name}' to {ip}, by the search domain {domain}",
        who="cluster administrator",
        cause="a short name that neither /etc/hosts nor DNS of this node has, and a search domain "
        "in /etc/resolv.conf with a wildcard record or another machine of that name",
        means=TIMED_OUT + " on this node; the others wait for it",
        text="set MASTER_ADDR to the IP address of the node of rank 0, or name it in /etc/hosts "
        "here; remove {domain} from the search line of /etc/resolv.conf",
        commands=(
            Command("getent ahosts {name}; getent ahosts {name}.{domain}", "this node"),
            Command("grep -nE 'search|ndots' /etc/resolv.conf", "this node"),
        ),
        blame=Blame.NODE,
        explains=(*EXPLAINS, "agree.names"),
    ),
    TRANSLATED: FindingType(
        headline="{outside} sends what is for {name}:{port} to {target}, by a NAT rule of its own",
        who="cluster administrator",
        cause="a stale rule of kube-proxy, a CNI plugin or a script in nftables, iptables or IPVS",
        means=TIMED_OUT + " or 'No route to host' on this node; all others wait for it",
        text="correct that rule, or restart what sets it (kube-proxy, the CNI plugin); set "
        "MASTER_ADDR to an address of rank 0's node that no rule rewrites",
        commands=(
            Command("nft list ruleset | grep -n -e {ip} -e dnat", "this node, as root"),
            Command("iptables-save -t nat | grep -n -e {ip} -e DNAT", "this node, as root"),
        ),
        blame=Blame.NODE,
    ),
    INTERCEPTED: FindingType(
        headline="a proxy between {name} and {outside} accepts the connections",
        who="platform team",
        cause="a service-mesh sidecar or transparent proxy that accepts every connection but "
        "forwards only protocols that it knows",
        means="a rank that connects waits there forever, or says 'Ping failed, invalid value "
        "returned from server'",
        text="exclude the job's pods from it: Istio: sidecar.istio.io/inject: 'false'; Linkerd: "
        "linkerd.io/inject: disabled; or exclude all of their ports: NCCL and Gloo use ephemeral "
        "ones",
        commands=(
            Command("nft list ruleset; iptables -t nat -S", "the node that does not get in"),
            Command("nc -vz -w 3 {name} 9", "the node that does not get in"),
        ),
        blame=Blame.NETWORK,
    ),
    DATA_LOST: FindingType(
        headline="packets with data from {sender} to {receiver} are lost, port {port}",
        who="network administrator",
        cause="a firewall or middlebox that passes the TCP handshake and drops what follows, an "
        "MTU too large for the path, or an asymmetric route",
        means="connections open and then stay silent, or are reset: " + TIMED_OUT,
        text="compare what {sender} sends with what {receiver} receives; allow all TCP between "
        "the nodes of the job, and compare the MTUs on the path",
        commands=(
            Command("tcpdump -ni any tcp port {port}", "{sender} and {receiver}, as root"),
            Command("ss -tino dport = :{port} or sport = :{port}", "{sender}"),
        ),
        blame=Blame.NETWORK,
    ),
    REFUSED_HERE: FindingType(
        headline="{name}:{port} refuses connections from {outside}, while other nodes get in",
        who="network administrator",
        cause="a firewall that rejects this node: on rank 0's host, on the node itself, or "
        "between them; rank 0 runs and listens",
        means=TIMED_OUT + " on this node; all others wait for it",
        text="compare the rules for this node with those for the others: nft and security groups "
        "on rank 0's host, rules for outgoing connections here, network policies between them",
        commands=(
            Command("nft list ruleset", "both nodes, as root"),
            Command("nc -vz -w 3 {name} {port}", "this node, and one that gets in"),
        ),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    DROPPED_HERE: FindingType(
        headline="{name}:{port} does not answer {outside}, while other nodes get in",
        who="network administrator",
        cause="a firewall that drops this node's packets or limits the number of connections: on "
        "rank 0's host, on the node itself, or between them; or a bad link. Rank 0 listens",
        means=TIMED_OUT + " on this node, after waiting silently for the whole timeout",
        text="compare the rules for this node with those for the others: nft and security groups "
        "on rank 0's host, rules for outgoing connections here, network policies between them",
        commands=(
            Command("nft list ruleset", "both nodes, as root"),
            Command("nc -vz -w 3 {name} {port}", "this node, and one that gets in"),
        ),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    NOT_NEIGHBOURS: FindingType(
        headline="{outside} gets no ARP answer from {name}, which runs: {ip} is not reached",
        who="network administrator",
        cause="a switch or bridge that keeps the two apart (client isolation, a VLAN, multicast "
        "snooping that IPv6 needs), a macvlan interface and the machine that it is on, a netmask "
        "that takes in another network, a permanent ARP entry",
        means="'The client socket has failed to connect to any network address … errno: 113 - No "
        "route to host' on this node; all others wait for it",
        text="compare the switch port and the VLAN of {outside} with those of a node that gets in; "
        "give a container on rank 0's own machine a bridge, or its network",
        commands=(
            Command("ip neigh; ip -d link", "this node"),
            Command("tcpdump -eni any arp or icmp6", "both nodes, as root"),
        ),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    REVERSE_PATH: FindingType(
        headline="{outside} drops {name}'s answers: its route leaves by another interface",
        who="cluster administrator",
        cause="two interfaces, and a route by which this node sends to that address on another one "
        "than its answers come in on, with net.ipv4.conf.*.rp_filter=1",
        means=TIMED_OUT + " on this node, after waiting silently for the whole timeout",
        text="let the route to {ip} leave by the interface on which the answers come in, or set "
        "rp_filter to 2 (loose) for both interfaces",
        commands=(
            Command("ip route get {ip}", "this node"),
            Command("sysctl -a -r rp_filter", "this node"),
        ),
        blame=Blame.NODE,
    ),
    ANSWERS_FILTERED: FindingType(
        headline="{outside} drops {name}'s answers: they come in on another interface than its "
        "route to {ip} leaves by",
        who="cluster administrator",
        cause="a route on rank 0's node that answers this node by another network, and "
        "net.ipv4.conf.*.rp_filter=1 here",
        means=TIMED_OUT + " on this node, after waiting silently for the whole timeout",
        text="let both nodes reach each other by one network: compare their routes; or set "
        "rp_filter to 2 (loose) on this node",
        commands=(
            Command("ip route get {ip}", "this node; on rank 0's node with this node's address"),
            Command("nstat -az TcpExtIPReversePathFilter", "this node"),
            Command("sysctl -a -r rp_filter", "this node"),
        ),
        blame=Blame.NODE,
    ),
    FILTERED_THERE: FindingType(
        headline="{host} drops what comes in on {nic}, which has MASTER_ADDR: the route to that "
        "subnet is on another interface",
        who="cluster administrator",
        cause="two NICs of rank 0's node in one subnet, with net.ipv4.conf.*.rp_filter=1",
        means=TIMED_OUT + " or 'No route to host' on all other nodes",
        now="sysctl -w net.ipv4.conf.{nic}.rp_filter=2   on {host}, as root",
        text="set MASTER_ADDR to the address of the first NIC, or give each NIC a subnet or a "
        "routing table of its own",
        commands=(
            Command("ip route show; ip rule show", "{host}"),
            Command("sysctl -a -r 'rp_filter|arp_ignore'", "{host}"),
        ),
        blame=Blame.NODE,
        explains=(*EXPLAINS, "net.interface:subnet-shared"),
    ),
    RETURN_ROUTE: FindingType(
        headline="{host} drops what {outside} sends to MASTER_ADDR: its route back leaves by "
        "{leaves}",
        who="cluster administrator",
        cause="a static route to single nodes (of a VPN, a storage network, a test) on rank 0's "
        "node, with net.ipv4.conf.*.rp_filter=1 there",
        means=TIMED_OUT + " on this node, after waiting silently for the whole timeout",
        now="ip route del {network} dev {leaves}   on {host}, as root",
        text="let the route to {network} leave by {nic}, or set rp_filter to 2 (loose) there",
        commands=(
            Command("ip route show; ip rule show", "{host}"),
            Command("sysctl -a -r rp_filter", "{host}"),
        ),
        blame=Blame.NODE,
    ),
    LINK_DOWN: FindingType(
        headline="{outside} can't reach {name}: {nic}, its interface in that network, has no link",
        who="cluster administrator",
        cause="a cable, a switch port or an HCA that is down, or an interface that is switched off",
        means=TIMED_OUT + " or 'No route to host' on this node; all others wait for it",
        now="ip link set {nic} up   on {outside}, as root",
        text="exclude {outside!s} until {nic} has a link; check its cable and its switch port, of "
        "InfiniBand the state of the port",
        commands=(
            Command("ip -brief link; ip route get {ip}", "this node"),
            Command("ibstat; dmesg -T | grep -i -e link -e mlx", "this node"),
        ),
        blame=Blame.NODE,
        explains=(*EXPLAINS, "agree.hardware:nic-missing", "net.rdma:port-down"),
    ),
    DIVERTED: FindingType(
        headline="{outside} sends what is for {name} by {leaves}, though {nic} is in its network",
        who="cluster administrator",
        cause="a VPN, a container network or a static route whose route is more specific than that "
        "of the interface in the same network, or in a table that an ip rule puts before it",
        means=TIMED_OUT + " or 'No route to host' on this node; all others wait for it",
        text="remove that route (of a VPN: the cluster's network from its accepted or allowed "
        "subnets), or stop what set it while the job runs",
        commands=(
            Command(
                "ip route get {ip}; ip rule show; ip route show match {ip} table all", "this node"
            ),
            Command("ip -brief address", "this node"),
        ),
        blame=Blame.NODE,
        explains=(*EXPLAINS, "net.interface:interface-doubtful"),
    ),
    STORE_NOT_SERVED: FindingType(
        headline="torchrun's variables are set, but no torchrun holds the store at {name}:{port}",
        who="job author",
        cause="TORCHELASTIC_USE_AGENT_STORE and a run ID left over from another job, in the "
        "environment of ranks not started by torchrun",
        means="no rank listens, not even rank 0: " + TIMED_OUT + " on all of them",
        now="unset TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RUN_ID",
        text="start the ranks with torchrun, or clear its TORCHELASTIC_ variables before another "
        "launcher starts them",
        blame=Blame.JOB,
    ),
    UNANNOUNCED: FindingType(
        headline="{at} has not learned from torchrun's store at {name}:{port} where the agents "
        "meet",
        who="job author",
        cause="an import of torch from a slow or cold file system or on a busy machine; a rank 0 "
        "whose preflight was not started or has ended",
        means="whether the job's ranks can meet is unknown; they import torch before they connect, "
        "too",
        text="wait longer, as with --arrive 60s; check that rank 0's preflight has started, and "
        "how long the import of torch takes",
        commands=(Command("time python -c 'import torch'", "this node"),),
        status=(Status.UNDECIDED, Status.MISSING),
        blame=Blame.UNKNOWN,
    ),
}


def seen_on_the_way(
    way: AttemptOutcome, attempt: Attempt | None, reach: Reach, view: MeetingView | None
) -> str:
    """The code of what else is known of an agent that did not get in; empty: nothing more."""
    if attempt is None and reach.agent and nobody_serves(reach):
        return STORE_NOT_SERVED
    if attempt is None:
        unasked = (StoreStage.IMPORT, StoreStage.ANNOUNCEMENT)
        return UNANNOUNCED if reach.roll.store in unasked else ""
    if way is AttemptOutcome.UNCLEAR and attempt.answer == "ours" and attempt.unacked:
        return DATA_LOST
    if way is AttemptOutcome.NOT_OURS and _listens_everywhere(reach, attempt.ip):
        return INTERCEPTED
    if way in LED_AWAY and _is_completed(way, reach, attempt.ip):
        return SEARCH_DOMAIN
    if way in LED_AWAY and _is_rewritten(way, reach, attempt.ip, view):
        return TRANSLATED
    if way in UNREACHED and attempt.ip in reach.idle:
        return LINK_DOWN
    silent = way in (AttemptOutcome.DROPPED, AttemptOutcome.DEAD)
    if silent and view is not None and view.reach.filtered:
        return FILTERED_THERE
    if silent and view is not None and dropped_there(reach, view):
        return RETURN_ROUTE
    if way is AttemptOutcome.DROPPED and _drops_answers(reach, attempt.ip):
        return REVERSE_PATH
    if way is AttemptOutcome.DROPPED and _filters_answers(reach, attempt.ip):
        return ANSWERS_FILTERED
    if way in UNREACHED and _is_diverted(reach, attempt.ip):
        return DIVERTED
    if way is AttemptOutcome.DEAD and view is not None and attempt.ip in view.reach.addresses:
        return NOT_NEIGHBOURS
    said_nothing = attempt.answer in ("silent", "closed")
    if view is None or (said_nothing and any(s.kind == "crowd" for s in view.roll.strangers)):
        return ""  # a host that has to close connections unheard closes those of its own, too
    if said_nothing and came_to_host(reach, view):
        return DATA_LOST
    if said_nothing and view.guests:
        return INTERCEPTED
    here = {AttemptOutcome.REFUSED: REFUSED_HERE, AttemptOutcome.DROPPED: DROPPED_HERE}
    return here.get(way, "") if view.guests else ""


def dropped_there(reach: Reach, view: MeetingView) -> Detour | None:
    """Why rank 0's node drops what comes from this one: its route back is another."""
    host = view.reach
    fits = (detour_of(host.detours, host.interface, ip) for ip in reach.addresses if ":" not in ip)
    return next(filter(None, fits), None)


def clearly_intercepted(reach: Reach, attempt: Attempt | None) -> bool:
    """Whether more speaks for it than that others got in: a host that had no time would be as
    silent."""
    return bool(reach.sidecar) or (attempt is not None and _listens_everywhere(reach, attempt.ip))


def _listens_everywhere(reach: Reach, ip: str) -> bool:
    """Whether a host seems to listen everywhere, also at ports where hardly anybody does."""
    tried = {p.port: p.error for p in reach.elsewhere if p.ip == ip}
    return {DISCARD, reach.roll.port + 1} <= tried.keys() and not any(tried.values())


def _drops_answers(reach: Reach, ip: str) -> bool:
    """Whether this machine's own reverse path filter explains that nothing came back, from any
    port."""
    nothing = not any(p.answered for p in reach.elsewhere if p.ip == ip)
    return nothing and ip in reach.ways and reach.ways[ip].answers_are_dropped


def _filters_answers(reach: Reach, ip: str) -> bool:
    """Whether nothing came back, and the kernel has counted that it dropped an answer of each."""
    tried = [p for p in reach.elsewhere if p.ip == ip]
    nothing = not any(p.answered for p in tried)
    return nothing and reach.discarded >= len(tried) > 1


def _is_diverted(reach: Reach, ip: str) -> bool:
    """Whether nothing at all came back by a route that leaves past the network of that address, or
    by a router though it is in that network."""
    way = reach.ways.get(ip)
    nothing = not any(p.answered for p in reach.elsewhere if p.ip == ip)
    past = way is not None and bool(way.beside or way.gateway)
    return way is not None and past and (nothing or way.by_port)


def _is_completed(way: AttemptOutcome, reach: Reach, ip: str) -> bool:
    """Whether a search domain has made another machine's name of MASTER_ADDR: names that nobody
    made lead there, too, or nobody is there, outside of all networks of this node, by a domain that
    is not its own. Kubernetes completes every name of a service so."""
    if not reach.searched or reach.hosts_line:
        return False
    if reach.wildcard:
        return True
    known = reach.domain_own or reach.kubernetes or ip in reach.near
    return way in UNREACHED and not known


def _is_rewritten(way: AttemptOutcome, reach: Reach, ip: str, view: MeetingView | None) -> bool:
    """Whether a NAT rule of this machine leads away from the meeting. Who refuses is there: alone,
    this agent can't know that it is not rank 0's node."""
    target = reach.rewritten.get(ip, "").rpartition(":")[0].strip("[]")
    if not target:
        return False
    return way in UNREACHED if view is None else target not in view.reach.addresses


def came_to_host(reach: Reach, view: MeetingView) -> bool:
    """Whether the meeting's host saw a connection of this agent's that never said anything."""
    silent = {s.addr for s in view.roll.strangers if s.kind in ("silent", "half-open")}
    return bool(silent & {*reach.addresses})


def nobody_serves(reach: Reach) -> bool:
    """Whether the one try at torchrun's own store was refused or stayed without an answer."""
    tried = [p for p in reach.elsewhere if p.port == reach.roll.port]
    return bool(tried) and all(p.error for p in tried)
