"""Can every node reach every other node on the ports and addresses that NCCL and Gloo use?

Level        standard
Looks at     the addresses that Gloo uses on each node, and NCCL's where there are GPUs; a listener
             there on a port that the kernel chooses; a connection from every node to every other
             one (above 64 nodes: to seven, four of them random), in which both ends authenticate;
             16 more from other source ports; then all connections at once, as NCCL and Gloo open
             them; what failed, again alone from the same source ports; the ARP table
Fails if     a connection is refused, dropped, unanswered or reaches the wrong machine, in either
             direction (Gloo uses one of the two; which one depends on the addresses), also where
             the ARP table of a node has another MAC address for it; a node is behind NAT, so that
             nobody reaches the address that it advertises; two machines have the same address; an
             interface or its first address does not reach the others; Gloo takes addresses of both
             IP versions; a library takes another one on a node than elsewhere, since that has no
             link there; a reverse path filter drops what comes in on the second of two NICs in one
             subnet, or from a node to which another route leads back; a node sends what is for
             another one by a route of a VPN, a bridge of containers or a router that a table of its
             own names, or has that address itself; connections that work one by one fail all at
             once: a limit of connections, or of new ones per second, lets only some of them in;
             some connections between two nodes pass, and others, from other source ports, get no
             answer or are refused each time
Warns if     no node has GPUs, and only connections fail that Gloo does not open: the node with the
             greater address connects; connections succeed only after a lost SYN was
             retransmitted, among them those that a limit of new connections per second lets in
             late, and those of a node whose first SYNs ask for ECN and are dropped, or because a
             node's listen queue was full for a moment; the listener sees a different source
             address; Gloo's connection fails on a node with GPUs; an interface that
             NCCL_SOCKET_IFNAME matches does not reach the others, on nodes without GPUs
Undecided    a connection was not tested, or answered too late
Not covered  large packets (net.payload), speed (net.speed), RDMA (net.rdma); more than four
             interfaces of NCCL; ports that are open for single programs only
Seen as      "Gloo connectFullMesh failed", "Connect timeout [none]", "timed out connecting:
             SO_ERROR: Connection refused", "Call to connect returned Connection refused, retrying",
             "No route to host", "connect: Invalid argument", "socketStartConnect: Connect to …
             failed"; or no message until a timeout
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.net import pairing
from preflight.domains.net.arp import mac_address, neighbours
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
from preflight.domains.net.icmp import STANDS_IN
from preflight.domains.net.interfaces import LIBRARIES, MORE, MORE_OF_GLOO, ListenAddress
from preflight.domains.net.mesh_probe import (
    OK,
    REFUSED,
    TIMED_OUT,
    Dialled,
    Flows,
    MeshPeer,
    flows_of_an_edge,
    joined,
)
from preflight.domains.net.mesh_view import (
    Interception,
    LibraryMesh,
    Mesh,
    Misdirection,
    advice_fields,
    bad_addresses,
    behind_first_address,
    behind_nat,
    data_lost,
    describe_results,
    drops_its_subnet,
    edge_status,
    fallen_back,
    intercepted,
    library_mesh,
    misdirected,
    of_other_family,
    on_wrong_interface,
    other_range,
    overflowed,
    refusing_dialler,
    rejecting_node,
    sent_back_elsewhere,
    sent_by_another_interface,
    summarise_dials,
    summarise_flows,
    summarise_opened,
    translated,
    unused,
)
from preflight.domains.net.port_owners import PeerConnection, connections_from, holders, sockets_at
from preflight.domains.net.reverse_path import Detour, detours, diversions, filtered
from preflight.domains.net.tcp import first_asks_for_ecn, listen_overflows
from preflight.domains.rendezvous.on_the_way import SIDECARS
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, plural
from preflight.inference import BOTH, INBOUND, OUTBOUND
from preflight.model import (
    Blame,
    Cell,
    Command,
    Confidence,
    FindingType,
    Found,
    Grid,
    Kind,
    Measured,
    Status,
    Subject,
    World,
)
from preflight.nodeset import folded

CHECK = Check(
    scope=Scope.PAIR,
    stage=Stage.FABRIC,
    budget=15.0,
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    disturbs="opens up to 256 connections a node at once, for a moment",
    blame=Blame.NETWORK,
    explains=("net.payload", "net.speed", "rdzv.store", "world.*"),
)

OWN_ADDRESS = "a different address for each machine"
# ranks of a node whose connections the burst stands for: each of them is connected to each of
# another node's, and of two nodes half are dialled by the one
RANKS_OF_BURST = 8
IDLE_KEPT = 32
# seconds for those that dial this node to reach it, before it looks where their connections are
UNHEARD = 1.0
TAKEN, PROGRAMS = 64, 4
NAMED_LINKS = 4
# a single lost packet among many happens in healthy networks
LOST_SYNS, LOST_SHARE = 2, 0.02

RULES = Command("nft list ruleset; iptables-save", "{node}, as root")
WAY = Command("ip route get {to_ip}", "{node}")
RANGE = Command("sysctl net.ipv4.ip_local_port_range", "every node")
SILENCE = (
    "init_process_group or ncclCommInitRank hangs without a message, or 'connectFullMesh failed'; "
    "the ranks that complain are not those at fault"
)
OPEN = "allow all TCP between the nodes of a job: NCCL and Gloo listen on ports {range!s}"

CLOSED_PATH = FindingType(
    who="cluster administrator", cause="", means=SILENCE, text=OPEN, commands=(RULES,)
)
CLOSED_NODE = replace(CLOSED_PATH, blame=Blame.NODE)

FINDINGS = {
    "ephemeral-closed": replace(
        CLOSED_PATH,
        headline="a firewall blocks connections between the nodes on ports {range}, on which NCCL "
        "and Gloo listen",
        cause="a firewall or security group that opens MASTER_PORT only",
        text=OPEN + "; or narrow net.ipv4.ip_local_port_range on every node and open that range",
        commands=(RULES, RANGE),
    ),
    "network-split": replace(
        CLOSED_PATH,
        headline="{seen}",
        cause="two VLANs, subnets or partitions without a route between them",
        text="use nodes of one group only, or " + OPEN,
        commands=(WAY,),
    ),
    "inbound-closed": replace(
        CLOSED_NODE,
        headline="{node} can't be reached by the other nodes on ports {range}",
        text="exclude {node!s}; allow all TCP between the nodes of a job: NCCL and Gloo listen "
        "on ports {range!s}",
        cause="a firewall on this node or its switch port that blocks incoming connections",
    ),
    "inbound-range-closed": replace(
        CLOSED_NODE,
        headline="{node} listens on other ports than the other nodes, {range}, which are closed",
        who="cluster administrator",
        cause="a firewall that opens the ephemeral range of the other nodes, and a "
        "net.ipv4.ip_local_port_range that was not set on this one",
        text="set the range of {node} to that of the others, {usual!s}; or allow all TCP between "
        "the nodes of a job",
        commands=(Command("sysctl net.ipv4.ip_local_port_range", "every node"), RULES),
    ),
    "outbound-closed": replace(
        CLOSED_NODE,
        headline="{node} can't open connections to the other nodes on ports {range}",
        cause="a firewall or route on this node that blocks outgoing connections",
        text="exclude {node!s}; let {node} open connections to the ports {range!s} of the "
        "other nodes",
        commands=(RULES, WAY),
    ),
    "node-cut-off": replace(
        CLOSED_NODE,
        headline="{node} and the other nodes can't connect to each other on ports {range}",
        text="exclude {node!s}; allow all TCP between the nodes of a job: NCCL and Gloo listen "
        "on ports {range!s}",
        cause="a firewall, a wrong VLAN or a wrong subnet of this node",
        commands=(RULES, WAY),
    ),
    "link-closed": FindingType(
        headline="{node} can't connect to {to} on ports {range}",
        cause="a firewall rule, a route or a permanent ARP entry between these two nodes only",
        means="the other ranks report that they are ready, then the first all-reduce hangs; these "
        "two print nothing. It may pass by chance with a different rank order",
        text="exclude {node!s} or {to!s}; check the routes, firewall rules and ARP entries for "
        "each other's address on both nodes: one that is PERMANENT outlives a replaced card",
        commands=(WAY, Command("ip neigh show {to_ip}", "{node}")),
    ),
    "intercepted": FindingType(
        headline="connections to {node} are accepted by {by}, not by the program that listens",
        who="platform team",
        cause="a service-mesh sidecar or a transparent proxy that takes all incoming connections "
        "(an nft or iptables redirect), and passes only protocols that it knows",
        means=SILENCE,
        text="exclude the job's pods from it: Istio: sidecar.istio.io/inject: 'false'; Linkerd: "
        "linkerd.io/inject: disabled; or exclude all of their ports, "
        "traffic.sidecar.istio.io/excludeInboundPorts: NCCL and Gloo listen on {range!s}",
        commands=(
            Command(
                "nft list ruleset | grep -nE 'redirect|tproxy|dnat'; iptables-save -t nat",
                "{node}, as root",
            ),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NODE, Blame.NETWORK),
    ),
    "unused-direction-closed": FindingType(
        headline="connections from {starts} to {ends} fail, and Gloo opens none in that direction",
        who="cluster administrator",
        cause="a firewall that lets only answers in; the node with the greater address of the two "
        "opens the connections of Gloo",
        means="this job starts; with other addresses or nodes, with GPUs (NCCL connects in both "
        "directions) or torch.distributed.rpc it hangs without a message",
        text=OPEN,
        commands=(RULES,),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.NETWORK),
        explains=("net.payload",),
    ),
    "link-or-end-closed": replace(
        CLOSED_PATH,
        headline="{node} can't connect to {to} on ports {range}",
        cause="a firewall at either end or between the two nodes",
        text=OPEN + ". A run with a third node shows which end it is",
    ),
    "interface-wrong": FindingType(
        headline="NCCL or Gloo would use {interface}, which does not reach the other nodes",
        who="job author",
        cause="a bridge, the loopback or a second network that the library selects by its own "
        "rules",
        means="'Connection refused' in connectFullMesh or ncclCommInitRank, or a hang",
        now="export NCCL_SOCKET_IFNAME={exactly} GLOO_SOCKET_IFNAME={wanted}",
        text="name the interface that reaches the other nodes, or correct the hostname's address",
        commands=(Command("ip -brief address", "{node}"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.JOB,
    ),
    "interface-down": FindingType(
        headline="{library} uses {interface} on {where}, {usual} on the other nodes: {usual} {why} "
        "on {where}",
        cause="a cable, a switch port or an HCA that is down, or an interface that was never "
        "configured on this node: the library silently takes the next one",
        means="ncclCommInitRank hangs or ends with 'Connect to … failed', 'No route to host' or "
        "'Connection timed out': the addresses of the other nodes are in a network that this node "
        "has no way to",
        now="ip link set {link} up   on {node}, as root",
        text="exclude {node!s} until {usual} has a link and an address there as on the other nodes",
        commands=(
            Command("ip -brief link; ip -brief address", "{node}"),
            Command("ibstat; dmesg -T | grep -i -e link -e mlx", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
        explains=(*CHECK.explains, "agree.hardware:nic-missing", "net.rdma:port-down"),
    ),
    "reverse-path": FindingType(
        headline="{at} can't be reached: {where} has another interface in that subnet, and "
        "rp_filter drops what comes in on this one",
        cause="two NICs in one subnet with net.ipv4.conf.*.rp_filter=1: the route back to the "
        "subnet leaves by the first NIC only, and with arp_ignore that one does not answer for "
        "the other's address",
        means="'No route to host' or 'Connection timed out' in ncclCommInitRank or "
        "connectFullMesh, or a hang; with another order of the NICs after a reboot it may pass",
        now="sysctl -w net.ipv4.conf.{interface}.rp_filter=2   on {node}, as root",
        text="give each NIC a subnet of its own, or a routing table of its own (ip rule from its "
        "address); rp_filter=2 (loose) lets packets in, but they are answered by the first NIC",
        commands=(
            Command("ip route show; ip rule show", "{node}"),
            Command("sysctl -a -r 'rp_filter|arp_ignore'", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
        explains=(*CHECK.explains, "net.interface:subnet-shared"),
    ),
    "return-route-differs": FindingType(
        headline="{at} drops what {to} sends: the route back to it leaves by {leaves}",
        cause="a static route to single nodes (of a VPN, a storage network, a test) on a machine "
        "with net.ipv4.conf.*.rp_filter=1, which drops what comes in on another interface than the "
        "answer would leave by",
        means="'Connection timed out' or 'connectFullMesh failed' between these two nodes only, or "
        "a hang",
        now="ip route del {network} dev {leaves}   on {node}, as root",
        text="let the route to {network} leave by {interface}, or set rp_filter to 2 (loose) there",
        commands=(
            Command("ip route get {to_ip}; ip route show", "{node}"),
            Command("sysctl -a -r rp_filter", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "route-diverted": FindingType(
        headline="{node} sends what is for {to} by {leaves}, not {rather}",
        cause="a VPN, a container network or a static route whose route is more specific than that "
        "of the interface in the same network, or in a table that an ip rule puts before it",
        means="'Connection timed out', 'No route to host' or 'connectFullMesh failed' between "
        "these two nodes only, or a hang",
        text="remove that route (of a VPN: the cluster's network from its accepted or allowed "
        "subnets), or stop what set it while the job runs",
        commands=(
            Command("ip route get {to_ip}; ip rule show", "{node}"),
            Command("ip route show match {to_ip} table all", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "address-held-elsewhere": FindingType(
        headline="{node} has {to}'s address {to_ip} itself, on {leaves}",
        cause="a virtual address that kube-proxy (IPVS), keepalived or LVS left behind, or an "
        "address given to two machines",
        means="what {node} sends to {to} never leaves it, and it drops what comes from there: "
        "'Connection refused' or 'connectFullMesh failed' between these two nodes only, or a hang",
        now="ip address del {to_ip} dev {leaves}   on {node}, as root",
        text="remove the address from {node!s}, or stop what sets it",
        commands=(Command("ip route get {to_ip}; ip address show to {to_ip}", "{node}"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "address-duplicate": FindingType(
        headline="{where} have the same IP address {to_ip}",
        cause="a cloned image, or an address that was assigned twice",
        means="connections reach one of the machines by chance: hangs, or 'Connection refused'",
        text="exclude {node!s}; give each machine its own address",
        commands=(Command("arping -D -c 3 -I {interface} {to_ip}", "a third machine"),),
    ),
    "ip-versions-mixed": FindingType(
        headline="Gloo takes an {version} address on {where}, and the other version elsewhere",
        who="job author",
        cause="a hostname that leads to an IPv6 address on some nodes and to IPv4 on others, or an "
        "interface without the other nodes' IP version",
        means="'enforce fail at … ss1.ss_family == ss2.ss_family' or 'address family mismatch' in "
        "init_process_group, on all nodes",
        now="export GLOO_SOCKET_IFNAME={wanted}   on every node",
        text="set GLOO_SOCKET_IFNAME, with which Gloo takes IPv4 first, or give all hostnames an "
        "address of the same IP version",
        commands=(Command("getent ahosts $(hostname); ip -brief address", "all nodes"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "first-address-unreachable": FindingType(
        headline="the first address of {interface} on {where}, {first}, is not reached by the "
        "other nodes",
        who="cluster administrator",
        cause="a second network on one NIC, or an address that a script has put first: NCCL and "
        "Gloo take the first address of an interface",
        means="'Connection timed out' or 'No route to host' in connectFullMesh or "
        "ncclCommInitRank, or a hang: the other nodes get that address",
        text="give {interface} the address {source} first (delete the others and add them again "
        "after it), or put them on an interface of their own",
        commands=(Command("ip address show dev {interface}", "{node}"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "arp-differs": FindingType(
        headline="{node} sends what is for {to} ({to_ip}) to the MAC address {mac}, which is not "
        "{to!s}'s",
        cause="another machine or container with the same IP address, or a permanent ARP entry "
        "that has outlived a replaced card",
        means="connections reach another machine or nobody: 'Connection refused' or 'Connection "
        "timed out' in connectFullMesh or ncclCommInitRank, or a hang; from other nodes they may "
        "pass",
        now="ip neigh del {entry} dev {device}   on {node}, as root",
        text="find the other machine by its MAC address in the switch's table and give it another "
        "address; delete an entry that is PERMANENT, and the file that makes it",
        commands=(
            Command("ip neigh show {to_ip}", "{node}"),
            Command("arping -D -c 3 -I {interface} {to_ip}", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    "burst-failed": FindingType(
        headline="connections fail when all are opened at once: {at}",
        cause="a limit on connections or their rate: conntrack, the firewall, somaxconn",
        means="small jobs run; with all ranks, init_process_group or ncclCommInitRank hangs",
        text="raise the limit on connections (and new ones per second) between the nodes",
        commands=(Command("nstat -az | grep -e ListenOverflows -e ListenDrops", "{node}"),),
    ),
    "ecn-dropped": FindingType(
        headline="the first SYN of each connection from {nodes} is dropped, since it asks for ECN",
        who="network administrator",
        cause="a firewall that drops SYNs with the ECE and CWR bits, and net.ipv4.tcp_ecn=1 on the "
        "node, which the kernel's default (2) is not",
        means="each connection takes a second longer: init_process_group and ncclCommInitRank take "
        "seconds, and time out where timeouts are short",
        now="sysctl -w net.ipv4.tcp_ecn=2   on {nodes}, as root",
        text="set net.ipv4.tcp_ecn=2 on {nodes!s}, or let firewalls between the nodes pass SYNs "
        "with ECE and CWR",
        commands=(Command("sysctl net.ipv4.tcp_ecn net.ipv4.tcp_ecn_fallback", "{node}"),),
        status=Status.WARN,
        explains=(),
    ),
    "connections-limited": FindingType(
        headline="a limit of {limit} lets only some connections {way} pass at once",
        who="cluster administrator",
        cause="a rule of a firewall that counts (nft limit rate, meter or ct count; iptables "
        "limit, hashlimit, connlimit or recent), a full connection tracking table, or a queue for "
        "half-open connections without SYN cookies",
        means="small jobs start; with more ranks init_process_group or ncclCommInitRank takes "
        "seconds longer, hangs or ends with 'Connection timed out': each pair of ranks opens "
        "connections of its own, all of them at once",
        text="raise that limit well above ranks x ranks per node, on {node!s} and on what is "
        "between the nodes, or accept the addresses of the job's nodes before the rule that counts",
        commands=(
            Command(
                "nft list ruleset | grep -nE 'limit|ct count|meter'; iptables-save | grep -nE "
                "'limit|recent'",
                "{node}, as root",
            ),
            Command(
                "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max; nstat -az "
                "TcpExtTCPReqQFullDrop TcpExtListenDrops",
                "{node}",
            ),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NODE, Blame.NETWORK),
    ),
    "listen-queue-full": FindingType(
        headline="connections to {at} find its listen queue full when all are opened at once",
        who="cluster administrator",
        cause="net.core.somaxconn lowered by a hardening profile or a container's runtime, or a "
        "node too busy to accept connections",
        means="init_process_group and ncclCommInitRank take 1, 3, 7 s longer, or fail with "
        "'Connection reset by peer' where tcp_abort_on_overflow is 1; it gets worse with more "
        "ranks",
        now="sysctl -w net.core.somaxconn=4096   on {node}, as root",
        text="set net.core.somaxconn to 4096, the kernel's default, on every node",
        commands=(Command("nstat -az TcpExtListenOverflows TcpExtListenDrops", "{node}"),),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.NODE,
        explains=(*CHECK.explains, "net.port:listen-queue-short"),
    ),
    "flows-lost": FindingType(
        headline="some connections of {at} fail, others pass at once: {seen}",
        who="cluster administrator",
        cause="a broken member of a bond or link aggregation, or one of several equal-cost paths "
        "(ECMP), which may have other firewall rules: the addresses and ports of a connection "
        "decide which one it takes",
        means="init_process_group or ncclCommInitRank hangs in one start and passes in the next: "
        "each pair of ranks has connections of its own, and some of them never get through",
        text="run without {node!s}; look for errors at each member of the bond and each uplink of "
        "the switch, and take the broken one out",
        commands=(Command("cat /proc/net/bonding/*; ip -s link", "{node}"),),
        blame=(Blame.NETWORK, Blame.NODE),
        explains=("net.payload", "net.speed", "rdzv.*", "world.*"),
    ),
    "syn-lost": FindingType(
        headline="packets to or from {at} are lost while connecting: {seen}",
        cause="packet loss, or a limit on new connections per second",
        means="the start takes seconds longer, more with more ranks; with packet loss data "
        "transfers are slow too",
        text="check the cable and switch port for errors, and the firewall for rate limits",
        commands=(Command("ip -s link show dev {interface}", "{node}"),),
        status=(Status.WARN, Status.FAIL),
    ),
    "behind-nat": replace(
        CLOSED_PATH,
        headline="{at} can't be reached: NAT hides {address}, the others see {seen_as}",
        cause="a container or virtual machine in a network of its own (docker run without "
        "--network=host, -p for MASTER_PORT only): NCCL and Gloo advertise the private address",
        text="start the job in the host's network (--network=host, hostNetwork: true), or route "
        "the private subnet between the nodes, without masquerading",
        commands=(
            Command("ip -brief address", "{node}"),
            Command("nft list ruleset; iptables-save -t nat", "the host of {node}, as root"),
        ),
        explains=(*CHECK.explains, "agree.names:record-wrong"),
    ),
    "source-translated": FindingType(
        headline="the address of {at} is translated (NAT) on the way: {seen}",
        cause="NAT or a proxy between the nodes (masquerading, a service mesh, a container bridge)",
        means="it works as long as the NAT table holds the connection; idle connections may be cut",
        text="let the nodes of a job reach each other without NAT: --network=host",
        status=Status.WARN,
        explains=(),
    ),
    "edges-untested": FindingType(
        headline="{seen}",
        who="whoever runs this job",
        cause="a node that was too busy to answer in time, or has no file descriptors left",
        means="whether these connections work is unknown",
        now="preflight run --only net.mesh",
        text="re-run when the nodes are less busy",
        status=Status.UNDECIDED,
    ),
}


def observe(host: Host, ctx: Context) -> Mesh:
    ways, peer = joined(host, ctx)
    before = listen_overflows(host)
    with peer:
        each = flows_of_an_edge(ctx.world_size)
        met = peer.meet(flows=each)
        others = {d.target.ip for d in met}
        # now: a proxy that closes with the dialler leaves nothing behind
        alive = connections_from(host, others) if peer.unheard(UNHEARD) else ()
        # what loses some connections for good has no use for more of them
        again = {target for target, _, more in peer.flows if more}
        lost = (TIMED_OUT, *REFUSED)
        thin = {target for target, result, _ in peer.flows if result in lost} - again
        fine = [d.target for d in met if d.edge.result == OK and d.target not in thin]
        ranks = min(RANKS_OF_BURST, len(ctx.topology.ranks_of(ctx.node)))
        opens = max(1, ranks, ranks * ranks // 2)
        opened = peer.burst(fine, opens)
        # what is closed or absent is known by now; what is not has let some pass
        some = {d.target for d in met if d.edge.result == OK}
        some |= {target for target, result, _ in peer.flows if result == OK}
        retried = tuple(peer.retry(some))
        looked = bool(peer.unheard(0.0))
    alive = (*alive, *connections_from(host, others)) if looked else ()
    ports = (host.read_or_none("/proc/sys/net/ipv4/ip_local_port_range") or "").split()[:2]
    place, numbers = (
        pairing.NodeNumber(ctx.rank, ctx.world_size),
        [int(p) for p in ports if p.isdecimal()],
    )
    flows = summarise_flows(met, peer.flows)
    seen = summarise_dials(place, ways, met, opened, peer.heard, numbers, each, flows)
    queue = host.read_int("/proc/sys/net/core/somaxconn") or 0
    idle = [i.name for i in host.interfaces if not (i.running or i.loopback)][:IDLE_KEPT]
    overflows = max(0, listen_overflows(host) - before)
    macs = {name: mac_address(host, name) for name in {way.interface for way in ways.found}}
    failed = any(d.edge.result != OK for d in met)
    arp = tuple(neighbours(host, {d.target.ip for d in met})) if failed else ()
    own = replace(seen, idle=tuple(idle), filtered=filtered(host), macs=macs, arp=arp)
    own = replace(own, queue=queue, overflowed=overflows, detours=detours(host))
    own = replace(own, diverted=_diversions(host, met) if failed else ())
    own = replace(own, ecn=first_asks_for_ecn(host))
    together = tuple(summarise_opened(opened))
    own = replace(own, opens=opens, opened=together, retried=retried)
    return replace(own, **_reached_others(host, peer, alive)) if looked else own


def _diversions(host: Host, met: Iterable[Dialled]) -> tuple[Detour, ...]:
    """Routes to those that were not reached, by interfaces which lead to nobody who was."""
    missed = [(d.target.ip, d.target.interface) for d in met if d.edge.result != OK]
    reached = [(d.target.ip, d.target.interface) for d in met if d.edge.result == OK]
    usual = {(way.leaves, way.comes, way.gateway) for way in diversions(host, reached)}
    ways = diversions(host, missed)
    return tuple(w for w in ways if w.own or (w.leaves, w.comes, w.gateway) not in usual)


def _reached_others(
    host: Host, peer: MeshPeer, alive: tuple[PeerConnection, ...]
) -> dict[str, Any]:
    """What became of connections to this node that its listeners do not know, where somebody has
    not reached it."""
    taken = tuple(c for c in dict.fromkeys(alive) if c.port not in peer.ports)[:TAKEN]
    programs = {}
    for port, _ in Counter(c.port for c in taken).most_common(PROGRAMS):
        held = holders(host, (sockets_at(host, port) or ())[:1])
        programs[str(port)] = held[0].name if held else ""
    return {
        "looked": True,
        "accepted": tuple(sorted(peer.accepted)),
        "half": tuple(sorted({c.ip for c in alive if c.port in peer.ports})),
        "taken": taken,
        "holders": programs,
    }


def judge(world: World[Mesh], expect: Expect) -> Iterator[Found]:
    told: set[tuple[str, tuple[Subject, ...]]] = set()
    views = [world.once(library_mesh, library) for library in LIBRARIES]
    for finding in (f for one in views for f in _judge_library(world, one)):
        # both libraries on one address: said once
        if (finding.code, finding.subjects) not in told:
            told.add((finding.code, finding.subjects))
            yield finding
    yield from _judge_untested(world, views)


def _judge_library(world: World[Mesh], view: LibraryMesh) -> Iterator[Found]:
    """First what its addresses explain, then the network, then what is only slow."""
    named: set[str] = set()
    seen_as = translated(world, view)
    for code, nodes in bad_addresses(view):
        named |= set(nodes)
        if code == "address-duplicate" and (hidden := behind_nat(world, seen_as, nodes)):
            yield _behind_nat(world, view, hidden, seen_as)
        else:
            yield _wrong_addresses(world, view, code, nodes)
    if mixed := of_other_family(view):
        named |= {*mixed}
        yield _families_mixed(world, view, mixed)
    rest = view.without(named)
    losing = rest.losing()
    if thin := rest.thin():
        yield _lost_flows(world, rest, thin)
        rest = rest.without_edges({*thin} | rest.not_revived())
    full = overflowed(world, rest)
    if crowded := rest.crowded(losing | {e for e in rest.retried if e[1] in full}):
        ecn = {e for e in crowded if world.seen[e[0]].ecn and rest.always_late(e)}
        if ecn:
            yield _first_syns_lost(world, rest, ecn)
        if crowded - ecn:
            yield _limited(world, rest, crowded - ecn)
        rest = rest.without_edges(crowded)
    limited = rest.limited()
    if limited is not None:
        yield _lost_packets(world, rest, Status.FAIL)
        rest = rest.without(limited.names)
    unreached: set[str] = set()
    for suspect in suspects(rest.failed, rest.tested):
        if hidden := behind_nat(world, seen_as, {b for _, b in suspect.edges}):
            unreached |= set(hidden)
            continue
        wrong = [
            n for n in suspect.names if on_wrong_interface(world, view, n, suspect.what == NODE)
        ]
        named |= set(suspect.names) if suspect.what == NODE else set()
        if fallen := fallen_back(world, view, suspect):
            named |= {*fallen}
            yield _fallen_back(world, rest, suspect, fallen)
            continue
        if filtering := drops_its_subnet(world, view, suspect):
            named |= {*filtering}
            yield _filtered(world, rest, suspect, filtering)
            continue
        if elsewhere := sent_back_elsewhere(world, view, suspect):
            named |= {*elsewhere} if suspect.what == NODE else set()
            yield _return_route(world, rest, suspect, elsewhere)
            continue
        if diverted := sent_by_another_interface(world, view, suspect):
            named |= {*diverted} if suspect.what == NODE else set()
            held = all(way.own for _, way in diverted.values())
            about = _held_elsewhere if held else _diverted
            yield about(world, rest, suspect, diverted)
            continue
        if first := behind_first_address(world, view, suspect):
            named |= {*first}
            yield _first_address(world, rest, suspect, first)
            continue
        if wrong_way := misdirected(world, view, suspect):
            yield _misdirected(world, rest, suspect, wrong_way)
            continue
        if interception := intercepted(world, view, suspect):
            yield _intercepted(world, rest, suspect, interception)
            continue
        if unused(world, view, suspect):
            yield _unused(world, rest, suspect)
            continue
        further = view.library in (*MORE, *MORE_OF_GLOO) and suspect.what in (ALL, NODE, EITHER)
        if further or (suspect.what != LINK and len(wrong) == len(suspect.names)):
            wrong = wrong or list(suspect.names)
            yield _wrong_addresses(world, view, "interface-wrong", wrong)
        else:
            yield _closed_path(world, rest, suspect)
    if unreached:
        yield _behind_nat(world, rest, tuple(sorted(unreached)), seen_as)
    rest = rest.without(named | unreached)
    if queues := overflowed(world, rest):
        yield _full_queues(world, rest, queues)
        rest = rest.without_edges(frozenset[Pair]().union(*queues.values()))
    if rest.together and losing & {*rest.together}:
        yield _lost_packets(world, rest, Status.FAIL)
    elif rest.together:
        yield _failed_burst(world, rest)
    elif len(rest.lost) >= max(LOST_SYNS, LOST_SHARE * len(rest.tested)):
        yield _lost_packets(world, rest, Status.WARN)
    yield from _judge_sources(world, rest)


def _wrong_addresses(world: World[Mesh], view: LibraryMesh, code: str, nodes: list[str]) -> Found:
    """The finding about addresses that don't lead to these nodes."""
    parts = [f"{n} {view.ways[n].interface} {view.ways[n].ip}" for n in nodes[:4]]
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    failed = [f for e, f in view.failed.items() if set(nodes) & set(e)]
    results = describe_results(failed, why=False)
    meeting = next((s.meeting for n in nodes if (s := world.seen.get(n)) and s.meeting), "")
    leads = f" · {meeting} reaches MASTER_ADDR" if meeting else ""
    duplicate = code == "address-duplicate"
    nics = [(n, view.ways[n].interface, world.topology.ranks_of(n)) for n in nodes]
    return Found(
        code,
        tuple(Subject(Kind.NIC, *nic) for nic in nics),
        saw=f"{view.shown} uses {', '.join(parts)}{more} · {results}{leads}",
        expected=OWN_ADDRESS if duplicate else "the interface that reaches the other nodes",
        confidence=Confidence.LIKELY,
        fields=advice_fields(world, view, nodes[0], nodes[-1])
        | {"wanted": meeting or "", "exactly": f"={meeting}"},
        status=edge_status(world, view, nodes),
    )


def _filtered(world: World[Mesh], view: LibraryMesh, suspect: Suspect, nodes: list[str]) -> Found:
    """The finding about nodes whose reverse path filter drops what the others send."""
    ways = [f"{view.ways[n].interface} {view.ways[n].ip} of {n}" for n in nodes[:4]]
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    return Found(
        "reverse-path",
        tuple(
            Subject(Kind.NIC, n, view.ways[n].interface, world.topology.ranks_of(n)) for n in nodes
        ),
        saw=f"{suspect.where(view.tested)}: {results} · {view.shown} uses {', '.join(ways)}{more}, "
        "with rp_filter=1 and the route to its own subnet on another interface",
        expected="the route to a subnet on the interface that is used there, or rp_filter=2",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields=advice_fields(world, view, nodes[0], nodes[0]),
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _return_route(
    world: World[Mesh],
    view: LibraryMesh,
    suspect: Suspect,
    found: Mapping[str, tuple[str, Detour]],
) -> Found:
    """The finding about nodes whose answers to others would leave by another interface."""
    told = [
        f"{node} sends to {way.network} by {way.leaves}, and {way.comes} has rp_filter=1"
        for node, (_, way) in list(found.items())[:4]
    ]
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    node, (to, way) = next(iter(found.items()))
    ranks = world.topology.ranks_of
    return Found(
        "return-route-differs",
        tuple(Subject(Kind.NIC, n, w.comes, ranks(n)) for n, (_, w) in found.items()),
        saw=f"{suspect.where(view.tested)}: {results} · {', '.join(told)}",
        expected="one interface for both directions, or rp_filter=2",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields=advice_fields(world, view, node, to)
        | {"leaves": way.leaves, "network": way.network, "interface": way.comes},
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _diverted(
    world: World[Mesh],
    view: LibraryMesh,
    suspect: Suspect,
    found: Mapping[str, tuple[str, Detour]],
) -> Found:
    """The finding about nodes that send what is for others by another interface."""
    told = [
        f"{node} sends to {view.ways[to].ip} of {to} by {_hop(way)}"
        + (f", of table {way.table} of an ip rule" if way.table else "")
        for node, (to, way) in list(found.items())[:4]
    ]
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    node, (to, way) = next(iter(found.items()))
    ranks = world.topology.ranks_of
    return Found(
        "route-diverted",
        tuple(Subject(Kind.NIC, n, w.leaves, ranks(n)) for n, (_, w) in found.items()),
        saw=f"{suspect.where(view.tested)}: {results} · {', '.join(told)}",
        expected=f"the interface that has {node}'s address there, {way.comes}",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall on the way",),
        fields=advice_fields(world, view, node, to)
        | {"leaves": _hop(way), "rather": f"{'straight ' * bool(way.gateway)}by {way.comes}"},
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _held_elsewhere(
    world: World[Mesh],
    view: LibraryMesh,
    suspect: Suspect,
    found: Mapping[str, tuple[str, Detour]],
) -> Found:
    """The finding about nodes that have another one's address themselves."""
    told = [
        f"{node} has {view.ways[to].ip} of {to} itself, on {way.leaves}"
        for node, (to, way) in list(found.items())[:4]
    ]
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    node, (to, way) = next(iter(found.items()))
    ranks = world.topology.ranks_of
    return Found(
        "address-held-elsewhere",
        tuple(Subject(Kind.NIC, n, w.leaves, ranks(n)) for n, (_, w) in found.items()),
        saw=f"{suspect.where(view.tested)}: {results} · {', '.join(told)}",
        expected=f"{view.ways[to].ip} on {to} alone",
        confidence=Confidence.CERTAIN,
        fields=advice_fields(world, view, node, to) | {"leaves": way.leaves},
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _hop(way: Detour) -> str:
    return f"the router {way.gateway}" if way.gateway else way.leaves


def _families_mixed(world: World[Mesh], view: LibraryMesh, odd: Mapping[str, int]) -> Found:
    """The finding about nodes with which Gloo shares no IP version."""
    rest = [n for n in view.ways if n not in odd]
    told = [f"{n} {view.ways[n].interface} {view.ways[n].ip}" for n in [*odd][:4] + rest[:2]]
    shared = {way.interface for way in view.ways.values()}
    nodes = list(odd)
    wanted = view.ways[nodes[0]].interface if len(shared) == 1 else ""
    return Found(
        "ip-versions-mixed",
        tuple(
            Subject(Kind.NIC, n, view.ways[n].interface, world.topology.ranks_of(n)) for n in odd
        ),
        saw=f"Gloo uses {', '.join(told)}",
        expected="addresses of one IP version on all nodes",
        confidence=Confidence.CERTAIN if rest else Confidence.POSSIBLE,
        alternatives=() if rest else ("the others are to have what it has",),
        fields=advice_fields(world, view, nodes[0], nodes[0])
        | {"wanted": wanted, "version": f"IPv{odd[nodes[0]]}"},
        status=edge_status(world, view, view.ways),
    )


def _first_address(
    world: World[Mesh], view: LibraryMesh, suspect: Suspect, found: Mapping[str, ListenAddress]
) -> Found:
    """The finding about addresses that come first on the right interface, and that nobody
    reaches."""
    node, way = next(iter(found.items()))
    told = [
        f"{n} {w.interface} {w.ip}, and comes to MASTER_ADDR from {world.seen[n].source}"
        for n, w in found.items()
    ]
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    return Found(
        "first-address-unreachable",
        tuple(
            Subject(Kind.NIC, n, w.interface, world.topology.ranks_of(n)) for n, w in found.items()
        ),
        saw=f"{view.shown} uses {', '.join(told)} · {suspect.where(view.tested)}: {results}",
        expected="the address of the job's network as the interface's first one",
        confidence=Confidence.LIKELY,
        alternatives=("a firewall or a missing route to that network",),
        fields=advice_fields(world, view, node, node)
        | {"first": way.ip, "source": world.seen[node].source},
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _misdirected(
    world: World[Mesh], view: LibraryMesh, suspect: Suspect, found: tuple[Misdirection, ...]
) -> Found:
    """The finding about frames that go to a MAC address of somebody else."""
    first = found[0]
    told = [
        f"{m.node} sends to {m.entry.mac} for {m.entry.ip}"
        + " (a permanent entry)" * m.entry.permanent
        + f", {m.to} has {m.own}"
        for m in found[:3]
    ]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    if first.entry.permanent:
        nodes = dict.fromkeys(m.node for m in found)
        subjects = [Subject(Kind.NODE, n, ranks=world.topology.ranks_of(n)) for n in nodes]
    else:
        ends = {m.to: view.ways[m.to].interface for m in found}
        subjects = [Subject(Kind.NIC, n, i, world.topology.ranks_of(n)) for n, i in ends.items()]
    # what was learned comes back
    entry = first.entry.ip if first.entry.permanent else ""
    return Found(
        "arp-differs",
        tuple(subjects),
        saw=f"{', '.join(told)}{more} · {suspect.where(view.tested)}: {results}",
        expected="the MAC address of the node that has the address",
        confidence=Confidence.LIKELY if first.proven else Confidence.POSSIBLE,
        alternatives=()
        if first.proven
        else ("the network answers for all its addresses (proxy ARP), and a firewall drops them",),
        blame=Blame.NODE if first.entry.permanent else Blame.NETWORK,
        fields=advice_fields(world, view, first.node, first.to)
        | {"mac": first.entry.mac, "entry": entry, "device": first.entry.interface},
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _fallen_back(
    world: World[Mesh], view: LibraryMesh, suspect: Suspect, fallen: Mapping[str, str]
) -> Found:
    """The finding about nodes that don't have the interface that all others use."""
    node, usual = next(iter(fallen.items()))
    way = view.ways[node]
    idle = usual in world.seen[node].idle
    why = "has no link" if idle else "can't be used"
    others = [f"{n} {w.interface} {w.ip}" for n, w in view.ways.items() if n not in fallen][:2]
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    return Found(
        "interface-down",
        tuple(Subject(Kind.NIC, n, fallen[n], world.topology.ranks_of(n)) for n in fallen),
        saw=f"{view.shown} uses {node} {way.interface} {way.ip}, {', '.join(others)} · {usual} "
        f"{why} on {node} · {suspect.where(view.tested)}: {results}",
        expected=f"{usual} with a link and an address, as on the other nodes",
        confidence=Confidence.LIKELY,
        fields=advice_fields(world, view, node, node)
        | {"library": view.shown, "usual": usual, "why": why, "link": usual if idle else ""},
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _behind_nat(
    world: World[Mesh], view: LibraryMesh, nodes: tuple[str, ...], seen_as: Mapping[str, str]
) -> Found:
    """The finding about nodes that get out through NAT, and whom nobody reaches."""
    edges = [e for e in view.failed if e[1] in nodes]
    told = [f"{n} is {view.ways[n].ip}, the others see {seen_as[n]}" for n in nodes[:4]]
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    results = describe_results([view.failed[e] for e in edges], why=False)
    fields = advice_fields(world, view, nodes[0], nodes[0])
    return Found(
        "behind-nat",
        tuple(Subject(Kind.NODE, n, ranks=world.topology.ranks_of(n)) for n in nodes),
        saw=f"{', '.join(told)}{more} · {len(edges)} connections to them: {results}",
        expected="connections to each node's own address",
        confidence=Confidence.LIKELY,
        fields=fields | {"address": view.ways[nodes[0]].ip, "seen_as": seen_as[nodes[0]]},
        status=edge_status(world, view, [n for e in edges for n in e]),
    )


CLOSED = {
    (ALL, ""): "ephemeral-closed",
    (SPLIT, ""): "network-split",
    (NODE, INBOUND): "inbound-closed",
    (NODE, OUTBOUND): "outbound-closed",
    (NODE, BOTH): "node-cut-off",
    (LINK, ""): "link-closed",
    (EITHER, ""): "link-or-end-closed",
}


def _closed_path(world: World[Mesh], view: LibraryMesh, suspect: Suspect) -> Found:
    """The finding about a network that does not let something pass."""
    subjects = suspect.subjects(world.topology)
    code, confidence, blame = CLOSED[suspect.what, suspect.at], suspect.confidence, suspect.blame
    node, to = suspect.ends
    own = rejects = ""
    if suspect.what in (LINK, EITHER):
        own, rejects = refusing_dialler(view, suspect), rejecting_node(view, suspect)
    if own:
        code, confidence, blame = "outbound-closed", Confidence.LIKELY, Blame.NODE
        node, to = next(e for e in suspect.edges if e[0] == own)
    elif rejects:
        code, confidence, blame = _rejected_at(rejects, suspect), Confidence.LIKELY, Blame.NODE
        node, to = sorted(suspect.edges[0], key=lambda name: name != rejects)
    elif suspect.what == EITHER and set(suspect.edges) == view.tested:
        code = "ephemeral-closed"
    if own or rejects:
        subjects = (Subject(Kind.NODE, node, ranks=world.topology.ranks_of(node)), *subjects)
    fields = advice_fields(world, view, node, to)
    results = describe_results(view.failed[e] for e in suspect.edges)
    alternatives = () if own else suspect.alternatives("a firewall or a route")
    if rejects:
        alternatives = () if code == "outbound-closed" else (STANDS_IN,)
    ranges = {n: seen.ports for n, seen in world.seen.items()}
    differs = other_range(ranges, node) if code == "inbound-closed" else None
    if differs is not None:
        code, confidence = "inbound-range-closed", Confidence.LIKELY
        fields |= {"range": differs.mine, "usual": differs.usual}
        alternatives = (f"a firewall of {node} blocks all ports but MASTER_PORT",)
    return Found(
        code,
        subjects,
        saw=f"{suspect.where(view.tested)}: {results} · {view.shown} uses {fields['interface']}"
        + (f" · {differs}" if differs is not None else "")
        + (f" · {node} accepted them, and got no data" if data_lost(world, view, suspect) else ""),
        expected=f"connections to all ports of {fields['range']} pass",
        blame=blame,
        confidence=confidence,
        alternatives=alternatives,
        fields=fields,
        status=edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _rejected_at(node: str, suspect: Suspect) -> str:
    """Which of its directions a node's own firewall rejects."""
    ways = {OUTBOUND if edge[0] == node else INBOUND for edge in suspect.edges}
    return CLOSED[NODE, ways.pop() if len(ways) == 1 else BOTH]


def _intercepted(
    world: World[Mesh], view: LibraryMesh, suspect: Suspect, found: Interception
) -> Found:
    """The finding about connections that somebody else accepts."""
    node, port = found.node, found.port
    program = found.program or SIDECARS.get(port, "an unknown program")
    by = f"port {port} of {node} ({program})" if port else "something else"
    dialler = next(a for a, b in suspect.edges if b == node)
    led = f" · on {node} they are at port {port} ({program})" if port else ""
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    return Found(
        "intercepted",
        suspect.subjects(world.topology),
        saw=f"{suspect.where(view.tested)}: {results} · the listener on {node} never saw "
        f"them{led} · {view.shown} uses {view.ways[node].interface}",
        expected="connections reach the program that listens",
        blame=Blame.NODE if port else Blame.NETWORK,
        confidence=Confidence.LIKELY if port else Confidence.POSSIBLE,
        alternatives=() if port else ("a proxy on the node", "a load balancer between the nodes"),
        fields=advice_fields(world, view, node, dialler) | {"by": by},
        status=Status.WARN
        if unused(world, view, suspect)
        else edge_status(world, view, [n for e in suspect.edges for n in e]),
    )


def _unused(world: World[Mesh], view: LibraryMesh, suspect: Suspect) -> Found:
    """The finding about connections that fail and that Gloo does not open between these nodes."""
    node, to = suspect.ends
    inward = suspect.at == INBOUND
    others = "the other nodes"
    from_to = (others, node) if inward else (node, others) if suspect.what == NODE else (node, to)
    results = describe_results((view.failed[e] for e in suspect.edges), why=False)
    first, last = suspect.edges[0]
    shown = f"{first} has {view.ways[first].ip}, {last} {view.ways[last].ip}"
    return Found(
        "unused-direction-closed",
        suspect.subjects(world.topology),
        saw=f"{suspect.where(view.tested)}: {results} · Gloo connects from the greater address to "
        f"the smaller one, and {shown}",
        expected="connections pass in both directions",
        blame=suspect.blame,
        confidence=Confidence.LIKELY,
        fields=advice_fields(world, view, node if suspect.what == NODE else to, to)
        | {"starts": from_to[0], "ends": from_to[1]},
    )


def _failed_burst(world: World[Mesh], view: LibraryMesh) -> Found:
    found = list(suspects(view.together, view.tested))
    return Found(
        "burst-failed",
        _only_suspect(world, found),
        saw=f"{len(view.together)} of {len(view.tested)} connections failed when all were "
        f"opened at once, after each had passed alone: {describe_results(view.together.values())}",
        expected="as many connections at once as the ranks of the job open",
        confidence=Confidence.LIKELY,
        fields=advice_fields(world, view, *found[0].ends),
        status=edge_status(world, view, [n for e in view.together for n in e]),
    )


def _first_syns_lost(world: World[Mesh], view: LibraryMesh, edges: Set[Pair]) -> Found:
    """The finding about nodes whose first SYNs ask for ECN and never get an answer."""
    nodes = sorted({a for a, _ in edges})
    shown = describe_edges(sorted(edges))
    seconds = max((view.lost[e].seconds for e in edges if e in view.lost), default=1.0)
    return Found(
        "ecn-dropped",
        tuple(Subject(Kind.NODE, n, ranks=world.topology.ranks_of(n)) for n in nodes),
        saw=f"{shown}: no connection gets an answer to its first SYN, which asks for ECN "
        f"(net.ipv4.tcp_ecn), and all pass by the next one, which does not · {duration(seconds)} "
        "at most",
        expected="an answer to the first SYN",
        confidence=Confidence.LIKELY,
        alternatives=("a limit of new connections per second lets none of them pass at once",),
        fields=advice_fields(world, view, nodes[0], sorted(edges)[0][1]) | {"nodes": folded(nodes)},
    )


def _limited(world: World[Mesh], view: LibraryMesh, crowded: Set[Pair]) -> Found:
    """The finding about connections that fail or wait where many are opened, and pass alone."""
    edges = sorted(crowded)
    ends, starts = {b for _, b in edges}, {a for a, _ in edges}
    at = next(iter(ends)) if len(ends) == 1 else ""
    source = next(iter(starts)) if len(starts) == 1 and not at else ""
    node = at or source
    alike = [e for e in view.tested if (e[1] == at if at else e[0] == source if source else True)]
    where = f"into {at}" if at else f"out of {source}" if source else "between the nodes"
    opened = [view.opened[e] for e in edges if e in view.opened]
    flows = [view.flows[e] for e in edges if e in view.flows]
    late, dead = sum(o.late for o in opened), sum(o.dead for o in opened)
    usual = view.opens * sum(e not in view.opened for e in alike)
    tried = usual + sum(o.tried for o in opened)
    seconds = max((o.seconds for o in opened), default=0.0)
    refused = sum(o.refused for o in opened)
    how = "when all are opened at once"
    # those stay open: who gets in later does not take the place of one that was closed
    per_second = late > 0
    if not dead and late < sum(f.again + f.dead for f in flows):
        # of those that were opened a few at a time, one after the other
        late, dead = sum(f.again for f in flows), sum(f.dead for f in flows)
        refused = sum(f.refused for f in flows)
        tried = sum(f.tried for f in flows) + view.each * sum(e not in view.flows for e in alike)
        seconds = max((view.lost[e].seconds for e in edges if e in view.lost), default=0.0)
        how = "when they are opened one after the other without a pause"
    parts = [f"{tried - late - dead} of {tried} connections {where} get in at once {how}"]
    if late:
        rate = f" (about {late / seconds:.2g} per second)" if seconds >= 1.0 else ""
        tries = "they were tried again" if refused else "their SYN was sent again"
        parts.append(f"{late} only when {tries}{rate}")
    if dead:
        parts.append(f"{dead} {'are refused' if 2 * refused > dead else 'get no answer'}")
    retried = [view.retried[e] for e in edges if e in view.retried]
    passed, alone = sum(r.passed for r in retried), sum(r.tried for r in retried)
    parts.append(
        f"later, one by one from the same ports, {passed} of {alone} pass, and none of "
        f"{sum(r.sent for r in retried)} packets on open connections is lost"
    )
    counted = dead and not late
    # else all of them get in after a while
    fatal = counted or refused or dead > late
    single = len(edges) == 1
    subjects = (
        (Subject(Kind.NODE, node, ranks=world.topology.ranks_of(node)),)
        if node and not single
        else link_subjects(edges, world.topology)
        if len(edges) <= NAMED_LINKS
        else (Subject(Kind.JOB),)
    )
    here = node or edges[0][1]
    limit = "connections at a time, or of new ones per second,"
    if counted or per_second:
        limit = "connections at a time" if counted else "new connections per second"
    saw = " · ".join(parts)
    return Found(
        "connections-limited",
        subjects,
        saw=saw,
        expected="as many connections at once as the ranks of the job open",
        confidence=Confidence.LIKELY,
        blame=Blame.NODE if node and not single else Blame.NETWORK,
        explains=None if fatal else (),
        alternatives=(f"something between the nodes limits them, not {here}",)
        if len(alike) < len(view.tested)
        else (),
        fields=advice_fields(world, view, here, edges[0][0]) | {"limit": limit, "way": where},
        status=edge_status(world, view, [n for e in edges for n in e]) if fatal else Status.WARN,
    )


def _full_queues(world: World[Mesh], view: LibraryMesh, full: Mapping[str, Set[Pair]]) -> Found:
    """The finding about listeners that did not accept connections as fast as they came."""
    nodes, edges = sorted(full), {edge for into in full.values() for edge in into}
    dead = len(edges & {*view.together})
    told = [
        f"{n} (net.core.somaxconn {world.seen[n].queue}, {world.seen[n].overflowed} times)"
        for n in nodes[:4]
    ]
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    slowest = max((view.lost[e].seconds for e in edges if e in view.lost), default=0.0)
    waited = f" · the slowest took {duration(slowest)}" if slowest else ""
    ends = f" · {dead} never got through" if dead else ""
    status = edge_status(world, view, nodes) if dead else Status.WARN
    return Found(
        "listen-queue-full",
        tuple(Subject(Kind.NODE, n, ranks=world.topology.ranks_of(n)) for n in nodes),
        saw=f"a full listen queue on {', '.join(told)}{more}{waited}{ends}",
        expected="room for all connections of the job at once",
        confidence=Confidence.LIKELY,
        fields=advice_fields(world, view, nodes[0], nodes[0]),
        status=status,
    )


def _lost_packets(world: World[Mesh], view: LibraryMesh, status: Status) -> Found:
    """Connections of which the first packet is lost, now and then (WARN) or for good (FAIL)."""
    edges = {**view.lost, **view.together, **view.failed} if status is Status.FAIL else view.lost
    found = list(suspects(edges, view.tested))
    node, to = found[0].ends if len(found) == 1 else next(iter(edges))
    slowest = max((e.seconds for e in (*view.lost.values(), *view.together.values())), default=0.0)
    never = len(edges) - len({*edges} & {*view.lost})
    again = sum(r.again for r in view.retried.values())
    sent = sum(r.sent for r in view.retried.values())
    return Found(
        "syn-lost",
        _only_suspect(world, found),
        saw=f"{len(edges)} of {len(view.tested)} connections needed a retransmission · the "
        f"slowest took {duration(slowest)}"
        + (f" · {never} never got through" if never else "")
        + (f" · {again} of {sent} packets on open connections were lost, too" if again else ""),
        expected="no lost packets",
        confidence=Confidence.LIKELY,
        # of what is lost on open connections, too, net.payload has more to say
        explains=None if status is Status.FAIL and not again else (),
        fields=advice_fields(world, view, node, to),
        status=status,
    )


def _lost_flows(world: World[Mesh], view: LibraryMesh, thin: Mapping[Pair, Flows]) -> Found:
    """Connections that die by the path that their ports choose: who shares those edges."""
    dead, tried = sum(f.dead for f in thin.values()), sum(f.tried for f in thin.values())
    found = shared_by(thin, view.tested, (1 - dead / tried) ** view.each)
    one = found[0] if len(found) == 1 else None
    node, to = one.ends if one is not None else next(iter(thin))
    # an edge of the suspect without a loss was tried as often
    alike = [e for e in view.tested if one is not None and one.what == NODE and one.has(e)]
    tried += sum(view.each for e in alike if e not in thin)
    where = {NODE: f"into and out of {node}", LINK: f"between {node} and {to}"}
    refused = 2 * sum(f.refused for f in thin.values()) > dead
    does, tries = ("are refused", "three tries") if refused else ("get no answer", "three SYNs")
    at = where.get(one.what, describe_edges(list(thin))) if one is not None else "between the nodes"
    return Found(
        "flows-lost",
        _only_suspect(world, found),
        saw=f"{dead} of {tried} connections {at} {does} ({dead / tried:.0%}), {tries} "
        "each; the others, from other source ports, pass at once",
        expected="an answer to every connection, whatever its source port",
        confidence=Confidence.LIKELY
        if one is not None and one.what != EITHER
        else Confidence.POSSIBLE,
        blame=Blame.NODE if one is not None and one.what == NODE else Blame.NETWORK,
        alternatives=one.alternatives("a member of the bond") if one is not None else (),
        fields=advice_fields(world, view, node, to),
        status=edge_status(world, view, [n for e in thin for n in e]),
    )


def _only_suspect(world: World[Mesh], found: list[Suspect]) -> tuple[Subject, ...]:
    """The one suspect; the job where there are several."""
    return found[0].subjects(world.topology) if len(found) == 1 else (Subject(Kind.JOB),)


def _judge_sources(world: World[Mesh], view: LibraryMesh) -> Iterator[Found]:
    for node in sorted({a for a, _ in view.moved}):
        mine = [(b, edge) for (a, b), edge in view.moved.items() if a == node]
        to, edge = mine[0]
        way = view.ways[node]
        yield Found(
            "source-translated",
            (Subject(Kind.NODE, node, ranks=world.topology.ranks_of(node)),),
            saw=f"{to} sees {edge.source[:45]} where {node} dials from {way.interface} {way.ip}"
            + (f" · so do {len(mine) - 1} others" if len(mine) > 1 else ""),
            expected="the address that the node itself has",
            fields=advice_fields(world, view, node, to),
        )


def _judge_untested(world: World[Mesh], views: list[LibraryMesh]) -> Iterator[Found]:
    """Report edges of the plan that were not tried between two nodes that both answered."""
    left = untested_edges(world, {edge for one in views for edge in one.tested})
    if left:
        yield Found(
            "edges-untested",
            link_subjects(left, world.topology),
            saw=f"{plural(len(left), 'connection')} not tested: {describe_edges(left)}",
            expected="every connection of the plan tested",
        )


def measured(world: World[Mesh]) -> Measured:
    nodes = max((seen.place.count for seen in world.seen.values()), default=0)
    views = [world.once(library_mesh, library) for library in LIBRARIES]
    tested = frozenset[Pair]().union(*(one.tested for one in views))
    failed = {edge for one in views for edge in one.failed}
    seconds = sorted(
        t for seen in world.seen.values() for times in seen.times.values() for t in times.values()
    )
    every, plan = nodes * (nodes - 1), pairing.edges(nodes)
    of = f"{len(tested) - len(failed)}/{plan}" if plan == every else f"{len(tested)} of {every}"
    p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))] if seconds else 0.0
    words = [f"{of} connections on ephemeral ports"] if world.seen else []
    words += [f"{len(failed)} fail"] if plan != every and failed else []
    words += [f"p99 {duration(p99)}"] if seconds else []
    return Measured(
        " · ".join(words),
        {"edges": every, "tested": len(tested), "failed": len(failed), "p99_ms": p99 * 1000},
        _grid(tuple(names_by_number(world).values()), tested, failed) if world.drawn else None,
    )


def _grid(nodes: tuple[str, ...], tested: Set[Pair], failed: Set[Pair]) -> Grid | None:
    """Who reaches whom, from its row to its column. Where all was tested only what failed is
    listed: of 512 nodes that is short."""
    number = {node: index for index, node in enumerate(nodes)}
    if len(number) < 3 or not tested:
        return None
    whole = len(tested) == len(number) * (len(number) - 1)
    return Grid(
        title="who reaches whom: from the row to the column",
        rows=tuple(number),
        columns=tuple(number),
        cells=tuple(
            Cell(number[a], number[b], 0.0 if (a, b) in failed else 1.0)
            for a, b in sorted(failed if whole else tested)
            if a in number and b in number
        ),
        usual=1.0,
        rest=1.0 if whole else None,
    )
