"""Faults of the network between machines: ports, firewalls, routes, cables, rates, addresses."""

from __future__ import annotations

from typing import Any

from faults.torchruns import torchrun
from faults.world import WHOLE, WorldFault, machines
from lab.faults import (
    DOCKER,
    PROHIBIT,
    REJECT,
    RESET,
    Break,
    arp_unheard,
    bridge,
    card_says,
    close_other_ports,
    damaged,
    delay,
    drop_in,
    drop_longer,
    drop_out,
    drop_port,
    few_ports,
    firewall,
    flapped,
    forget_idle,
    holds,
    hops,
    limit_connections,
    limit_syns,
    link_down,
    lose,
    lose_data,
    lose_flows,
    neighbour_is,
    prohibit_port,
    rate,
    refuse_from,
    reset_port,
    rewrites,
    route,
    ruled_tunnel,
    sidecar,
    sidecar_inbound,
    small_switch_port,
    source_table,
    take_address,
    tunnel,
    unplugged,
)
from lab.host import Machine

PORT = 29500
DATA = "meta length > 100"
# else 5 % of the senders' superpackets of 64 KiB would be lost


SWITCH_ROUTES = Break(
    "the switch routes",
    switch="sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 "
    "net.ipv4.conf.br0.send_redirects=0",
)


def loops(to: str, by: str) -> Break:
    """This machine, which has the address `by`, and the switch send to each other what n3 has for
    `to`."""
    return Break(
        f"packets of n3 for {to} go in circles",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 "
        "net.ipv4.conf.eth0.send_redirects=0\n"
        "ip route add default via 10.77.255.254 table 300; ip rule add from 10.77.0.3 lookup 300",
        switch=f"ip route add {to}/32 via {by}",
    )


NARROW = Break("a narrow range", "echo 50000 51000 > /proc/sys/net/ipv4/ip_local_port_range")
OPEN_NARROW = Break(
    "only that range is open",
    f"""nft -f - <<'END'
table inet range {{
 chain input {{
  type filter hook input priority 0; policy drop;
  iifname "lo" accept
  ct state established,related accept
  tcp dport {{ {PORT}, 50000-51000 }} accept
  meta l4proto != tcp accept
 }}
}}
END""",
)
ONE_PORT = Break(
    "of its ports the first that is dialled is open",
    f"""nft -f - <<'END'
table inet one {{
 set first {{ type inet_service; size 1; flags dynamic; }}
 chain input {{
  type filter hook input priority 0
  iifname "lo" accept
  ct state established,related accept
  tcp dport {{ {PORT} }} accept
  meta l4proto != tcp accept
  tcp dport @first accept
  add @first {{ tcp dport }} accept
  drop
 }}
}}
END""",
)
WIDE = Break("a wide range", "echo 1192 65535 > /proc/sys/net/ipv4/ip_local_port_range")


def listen_queue(most: int, resets: bool = False) -> Break:
    """The longest queue of any listener; what comes on top is reset, or simply dropped."""
    return Break(
        f"a listen queue of {most}",
        f"sysctl -qw net.core.somaxconn={most} net.ipv4.tcp_abort_on_overflow={int(resets)}",
    )


SWAPPED = (
    "ip addr flush dev eth0 scope global; ip addr flush dev eth1 scope global\n"
    "ip addr add 10.77.0.3/16 dev eth1; ip addr add 10.78.0.3/16 dev eth0\n"
)
"""Both addresses of n3, each on the other one of its NICs."""

SWAPPED6 = (
    "ip link set eth0 down; ip link set eth1 down; ip link set eth0 name eth9\n"
    "ip link set eth1 name eth0; ip link set eth9 name eth1\n"
    "ip link set eth0 up; ip link set eth1 up\n"
    "ip addr add fd77::3/64 dev eth1 nodad; ip addr add fd77:0:0:1::3/64 dev eth0 nodad\n"
)
"""Both NICs of n3, each with the other one's name, in a world of IPv6."""

LOSSY = [Break("senders cut segments", everywhere="ip link set eth0 gso_max_segs 1"), lose(5)]
NO_WAY_OUT = firewall(
    "no connection goes out but to MASTER_PORT",
    "ct state established,related accept",
    f"tcp dport != {PORT} drop",
    hook="output",
)
ASKS_FOR_ECN = Break(
    "SYNs ask for ECN",
    "echo 1 > /proc/sys/net/ipv4/tcp_ecn",
    "echo 2 > /proc/sys/net/ipv4/tcp_ecn",
)
DROPS_ECN = firewall(
    "SYNs that ask for ECN are dropped", "tcp flags & (syn|ack|ecn|cwr) == syn|ecn|cwr drop"
)
NO_SCALING = "-i eth0 -p tcp --tcp-flags SYN,ACK SYN,ACK -j TCPOPTSTRIP --strip-options wscale"
STRIPS_SCALING = Break(
    "window scaling is stripped from what answers its connections",
    f"iptables -t mangle -A PREROUTING {NO_SCALING}",
    f"iptables -t mangle -D PREROUTING {NO_SCALING}",
)
"""This machine then takes the others' scaled windows literally, which are some hundred bytes."""
SIX = firewall("at most 6 connections", f"tcp dport != {PORT} ct state new ct count over 6 drop")
CLOSED_SECOND = firewall("nothing comes in at eth1", 'iifname "eth1" drop')
GPU = ": > /dev/nvidia0\n"
IB0 = f"{GPU}ip link set eth1 down; ip link set eth1 name ib0; ip link set ib0 up\n"
"""A second network by IPoIB, which NCCL prefers."""
"""The file of a GPU, for whoever only asks whether there is one."""
USB = """
ip link add usb0 type veth peer name bmc0; ip addr add 169.254.3.1/24 dev usb0
for end in usb0 bmc0; do ip link set $end addrgenmode none; ip link set $end up; done
"""
COMPOSE = """
ip link add br-0a1b2c3d4e5f type bridge; ip addr add 172.18.0.1/16 dev br-0a1b2c3d4e5f
ip link add web1 type veth peer name web1c; ip link set web1 master br-0a1b2c3d4e5f
for end in web1 web1c br-0a1b2c3d4e5f; do
    ip link set $end addrgenmode none; ip link set $end up
done
"""


FIRST_OF_ANOTHER = Break(
    "another network's address comes first",
    "ip addr flush dev eth0 scope global; ip addr add 192.168.99.2/24 dev eth0\n"
    "ip addr add 10.77.0.2/16 dev eth0; ip addr add fd77::2/64 dev eth0 nodad",
)
OLD_MAC = "02:de:ad:00:00:01"
"""Of a card that was replaced."""


def aside(nic: str, subnet: str) -> str:
    """A further interface with an address, on a network that ends at this machine."""
    return (
        f"ip link add {nic} type veth peer name aside0; ip addr add {subnet}.1/24 dev {nic}\n"
        f"for end in {nic} aside0; do\n"
        "    ip link set $end addrgenmode none; ip link set $end up\n"
        "done\n"
    )


def one_subnet(number: int, strict: int, ignore: int = 1) -> str:
    """A GPU, and a second NIC in eth0's subnet, on the same switch; rp_filter and arp_ignore."""
    return (
        f"{GPU}ip link add eth1 link eth0 type macvlan mode bridge\n"
        f"ip addr add 10.77.1.{number}/16 dev eth1; ip link set eth1 up\n"
        "for nic in all eth0 eth1; do sysctl -qw "
        f"net.ipv4.conf.$nic.rp_filter={strict} net.ipv4.conf.$nic.arp_ignore={ignore}; done\n"
    )


def of_one_subnet(*strict: int, ignore: int = 1) -> tuple[Machine, ...]:
    """A machine for each rp_filter."""
    return tuple(
        Machine(f"n{n}", setup=one_subnet(n, one, ignore)) for n, one in enumerate(strict, 1)
    )


def vpn(number: int) -> str:
    """An interface of a VPN whose other nodes are not those of the job."""
    return (
        f"{USB.replace('usb0', 'tailscale0')}ip addr del 169.254.3.1/24 dev tailscale0\n"
        f"ip addr add 100.64.{number}.1/32 dev tailscale0\n"
    )


MANY_SETTINGS = {f"UCX_X{number}": "y" * 60 for number in range(40)}
N1, N2, N3 = "10.77.0.1", "10.77.0.2", "10.77.0.3"
THREE = ("n1", "n2", "n3")


def mesh(name: str, code: str, subject: str, **more: Any) -> WorldFault:
    return WorldFault(name, "net.mesh", code, subject, **more)


def reach(name: str, code: str, subject: str, **more: Any) -> WorldFault:
    """Somebody does not get in, so the others wait for a while."""
    return WorldFault(name, "rdzv.reach", code, subject, arrive=6, **more)


def speed(name: str, code: str, subject: str, **more: Any) -> WorldFault:
    return WorldFault(name, "net.speed", code, subject, status="warn", exit=0, **more)


MASTER = (
    reach(
        "MASTER_PORT dropped for all",
        "dropped",
        "n1",
        breaks={"n1": [drop_port(PORT)]},
    ),
    reach(
        "MASTER_PORT reset for all",
        "refused",
        "n1",
        breaks={"n1": [reset_port(PORT)]},
    ),
    reach(
        "MASTER_PORT prohibited for all",
        "prohibited",
        "n1",
        breaks={"n1": [prohibit_port(PORT)]},
    ),
    reach(
        "MASTER_PORT dropped for n2",
        "dropped-here",
        "n2*",
        confidence="possible",
        breaks={"n1": [drop_port(PORT, N2)]},
        innocent=("n3",),
    ),
    reach(
        "n2 drops what it sends to MASTER_PORT",
        "dropped-here",
        "n2*",
        confidence="possible",
        breaks={"n2": [drop_out(port=PORT)]},
        innocent=("n3",),
    ),
)

ON_THE_WAY = (
    reach(
        "a firewall resets n2 at MASTER_PORT, and n3 gets in",
        "refused-here",
        "n2*",
        breaks={"n1": [reset_port(PORT, N2)]},
        innocent=("n1", "n3"),
    ),
    reach(
        "a sidecar on n2 takes all its connections",
        "intercepted",
        "n2",
        says="Istio's Envoy",
        breaks={"n2": [sidecar()]},
        innocent=("n1", "n3"),
    ),
    reach(
        "n2's own firewall rejects what it sends to MASTER_PORT",
        "refused-here",
        "n2*",
        breaks={"n2": [firewall("own", f"tcp dport {PORT} {RESET}", hook="output")]},
        innocent=("n1", "n3"),
    ),
    reach(
        "a firewall prohibits MASTER_PORT to n2 alone",
        "prohibited",
        "n1",
        says="from 10.77.0.1",
        breaks={"n1": [prohibit_port(PORT, N2)]},
        innocent=("n3",),
    ),
    reach(
        "a firewall rejects MASTER_PORT as iptables does",
        "prohibited",
        "n1",
        machines=machines(2),
        says="ICMP 'port unreachable' from 10.77.0.1",
        breaks={"n1": [firewall("reject", f"tcp dport {PORT} {REJECT}")]},
    ),
    reach(
        "n2's own firewall rejects what it sends to MASTER_PORT, as iptables does",
        "prohibited",
        "n2*",
        says="ICMP 'port unreachable' from 10.77.0.2",
        breaks={"n2": [firewall("own", f"tcp dport {PORT} {REJECT}", hook="output")]},
        innocent=("n1", "n3"),
    ),
    reach(
        "a firewall resets two of four at MASTER_PORT",
        "refused-here",
        "n2->n1",
        subjects=("n3->n1",),
        machines=machines(4),
        breaks={"n1": [reset_port(PORT, N2), reset_port(PORT, N3)]},
        innocent=("n4",),
    ),
    reach(
        "a firewall drops two of four at MASTER_PORT",
        "dropped-here",
        "n2->n1",
        subjects=("n3->n1",),
        machines=machines(4),
        breaks={"n1": [drop_port(PORT, N2), drop_port(PORT, N3)]},
        innocent=("n4",),
    ),
    reach(
        "a sidecar on n2 closes all its connections",
        "intercepted",
        "n2",
        says="accepted and closed",
        breaks={"n2": [sidecar(how="closing")]},
        innocent=("n1", "n3"),
    ),
    reach(
        "an HTTP proxy takes all connections of n2",
        "intercepted",
        "n2",
        breaks={"n2": [sidecar(3128, "http")]},
        innocent=("n1", "n3"),
    ),
    reach(
        "a sidecar on rank 0's node takes what comes in",
        "intercepted",
        "n1",
        subjects=("n2->n1", "n3->n1"),
        says="a listener on n1 is Istio's Envoy (port 15006)",
        breaks={"n1": [sidecar_inbound()]},
    ),
    reach(
        "data from n2 at MASTER_PORT is reset after the handshake",
        "data-lost",
        "n2->n1",
        says="reset after",
        breaks={"n2": [firewall("no state", f"tcp dport {PORT} {DATA} {RESET}", hook="output")]},
        innocent=("n3",),
    ),
    reach(
        "what n2 says at MASTER_PORT is lost, what it is told arrives",
        "data-lost",
        "n2->n1",
        breaks={"n2": [lose_data(PORT, "output")]},
        innocent=("n3",),
    ),
    reach(
        "what n2 is told from MASTER_PORT is lost",
        "data-lost",
        "n1->n2",
        breaks={"n2": [lose_data(PORT, "input")]},
        innocent=("n3",),
    ),
    reach(
        "variables of a torchrun that is not there",
        "agent-store-missing",
        "n2",
        machines=machines(2),
        env={"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"},
    ),
)

PORTS = (
    mesh(
        "n2 drops all but MASTER_PORT",
        "inbound-closed",
        "n2",
        breaks={"n2": [close_other_ports(PORT)]},
        innocent=("n1", "n3"),
    ),
    mesh(
        "the master prohibits all but MASTER_PORT",
        "inbound-closed",
        "n1",
        breaks={"n1": [close_other_ports(PORT, verdict=PROHIBIT)]},
        innocent=("n2", "n3"),
    ),
    mesh(
        "the first of two machines rejects all but MASTER_PORT",
        "inbound-closed",
        "n1",
        machines=machines(2),
        says="rejected by ICMP from 10.77.0.1",
        breaks={"n1": [close_other_ports(PORT, verdict=REJECT)]},
    ),
    mesh(
        "all open ports 50000-51000 alone, and n2 has the kernel's range",
        "inbound-range-closed",
        "n2",
        breaks={
            "n1": [NARROW, OPEN_NARROW],
            "n2": [OPEN_NARROW],
            "n3": [NARROW, OPEN_NARROW],
        },
        innocent=("n1", "n3"),
    ),
    mesh(
        "all drop all but MASTER_PORT",
        "ephemeral-closed",
        "job",
        breaks={n: [close_other_ports(PORT)] for n in THREE},
    ),
    mesh(
        "a sidecar on n2 takes what comes in, and rank 0 is elsewhere",
        "intercepted",
        "n2",
        says="port 15006",
        breaks={"n2": [sidecar_inbound()]},
        innocent=("n1", "n3"),
    ),
    mesh(
        "n3 drops connections from n2",
        "unused-direction-closed",
        "n2->n3",
        status="warn",
        exit=0,
        breaks={"n3": [refuse_from(N2)]},
    ),
    mesh(
        "n2 resets connections from n3",
        "link-closed",
        "n3->n2",
        breaks={"n2": [refuse_from(N3, RESET)]},
    ),
    mesh(
        "nothing passes between n2 and n3",
        "link-closed",
        "n2->n3",
        subjects=("n3->n2",),
        breaks={"n2": [drop_in(N3)]},
    ),
    mesh(
        "n2 lets nothing out but to MASTER_PORT",
        "outbound-closed",
        "n2",
        breaks={"n2": [NO_WAY_OUT]},
    ),
    mesh(
        "two machines, one drops all but MASTER_PORT",
        "link-or-end-closed",
        "n2->n1",
        confidence="possible",
        machines=machines(2),
        breaks={"n1": [close_other_ports(PORT)]},
    ),
)

BOTH_PORTS = "ip saddr . ip daddr . tcp sport . tcp dport"


def some_flows(parts: int, rest: str) -> Break:
    """One of so many members of a bond, or of equal-cost paths, does this to what comes in."""
    return firewall(
        f"one of {parts} paths: {rest}", f"meta l4proto tcp jhash {BOTH_PORTS} mod {parts} 0 {rest}"
    )


NEIGHBOURS = (
    reach(
        "ARP of n2 does not arrive at rank 0's node, which n3 reaches",
        "arp-unanswered",
        "n2*",
        breaks={
            "n1": [
                Break(
                    "arp",
                    "nft 'table arp apart { chain in { type filter hook input priority 0; "
                    f"arp saddr ip {N2} drop; }}; }}'",
                )
            ]
        },
        innocent=("n3",),
    ),
)

STRICT = "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1"
REVERSE_PATH = (
    reach(
        "n2 sends to rank 0 by its other interface, and its reverse path filter is strict",
        "reverse-path",
        "n2",
        machines=machines(3, nics=2),
        breaks={
            "n2": [Break("strict", f"{STRICT}\nip route add 10.77.0.1 dev eth1 src 10.77.0.2")]
        },
        innocent=("n1", "n3"),
    ),
    reach(
        "rank 0's node drops what n2 sends, since its way back leads over another interface",
        "return-route-host",
        "n1 · eth0",
        machines=machines(3, nics=2),
        breaks={
            "n1": [Break("strict", f"{STRICT}\nip route add 10.77.0.2 via 10.78.0.2 dev eth1")]
        },
        innocent=("n2", "n3"),
    ),
    mesh(
        "n2 drops what comes from n3, since its way back leads over another interface (rp_filter)",
        "return-route-differs",
        "n2 · eth0",
        machines=machines(3, nics=2),
        breaks={
            "n2": [
                Break(
                    "strict",
                    f"{STRICT}\nip route add 10.77.0.3 via 10.78.0.3 dev eth1",
                )
            ],
        },
        innocent=("n1",),
    ),
    mesh(
        "a VPN of n2 has a table for n3",
        "route-diverted",
        "n2 · tun0",
        machines=machines(3),
        breaks={"n2": [ruled_tunnel("10.77.0.3/32", 51820)]},
        says="of table 51820 of an ip rule",
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "a firewall of n2 blocks each connection from n3 after 3 MB",
        *("net.speed", "transfer-stops", "n3->n2"),
        breaks={
            "n2": [
                firewall(
                    "3 MB a connection",
                    "ip saddr 10.77.0.3 ct original bytes > 3000000 drop",
                    "ip saddr 10.77.0.3 ct reply bytes > 3000000 drop",
                ),
                Break("bytes are counted", "sysctl -qw net.netfilter.nf_conntrack_acct=1"),
            ]
        },
        says="then nothing more, though it is sent again",
        innocent=("n1",),
    ),
    mesh(
        "kube-ipvs0 of n2 still has the address of n3",
        "address-held-elsewhere",
        "n2 · kube-ipvs0",
        machines=machines(3),
        breaks={"n2": [holds("10.77.0.3", "kube-ipvs0")]},
        says="n2 has 10.77.0.3 of n3 itself",
        innocent=("n1", "n3"),
    ),
    mesh(
        "n3 sends what is for n2 by a router, and from there it goes in circles",
        "route-diverted",
        "n3 · eth0",
        machines=machines(3),
        breaks={
            "n1": [loops("10.77.0.2", "10.77.0.1")],
            "n3": [
                SWITCH_ROUTES,
                Break(
                    "a route by the switch",
                    "ip route replace 10.77.255.254 dev eth0\n"
                    "ip route add 10.77.0.2/32 via 10.77.255.254",
                ),
            ],
        },
        says="it goes over too many routers",
        innocent=("n1", "n2"),
    ),
    mesh(
        "a network of docker on n3 has the subnet that n2 is in",
        "route-diverted",
        "n3 · docker0",
        machines=(Machine("n1"), Machine("n2", address="10.77.17.2"), Machine("n3")),
        breaks={"n3": [bridge("docker0", "10.77.17.1/24")]},
        says="n3 sends to 10.77.17.2 of n2 by docker0",
        innocent=("n1", "n2"),
    ),
    mesh(
        "a NetworkPolicy: of four pods three take no connections, rank 0's does",
        "inbound-closed",
        "n2",
        machines=machines(4),
        env={"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        breaks={
            name: [
                firewall("policy", "ct state established,related accept", "meta l4proto tcp drop")
            ]
            for name in ("n2", "n3", "n4")
        },
        also=("net.mesh unused-direction-closed",),  # nobody connects to n4, whose address is last
        innocent=("n1",),
    ),
    mesh(
        "ufw on n2 knows the subnet of two nodes, and n3 is in another",
        "link-closed",
        "n3->n2",
        machines=(*machines(2), Machine("n3", address="10.77.9.3")),
        breaks={
            "n2": [
                firewall(
                    "ufw",
                    "ct state established,related accept",
                    "ip saddr 10.77.0.0/29 accept",
                    "meta l4proto tcp drop",
                )
            ]
        },
        innocent=("n1",),
    ),
)

PATHS = (
    WorldFault(
        "one of two paths into n2 has an MTU of 1300",
        *("net.payload", "paths-blackhole", "n2"),
        machines=machines(4),
        breaks={"n2": [LOSSY[0], some_flows(2, "meta length > 1300 drop")]},
        innocent=("n1", "n3", "n4"),
    ),
    WorldFault(
        "one of four paths into n3 has an MTU of 1300, of three nodes",
        *("net.payload", "paths-blackhole", "n3"),
        breaks={"n3": [LOSSY[0], some_flows(4, "meta length > 1300 drop")]},
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "one of four paths into n2 loses 8 %",
        *("net.payload", "paths-lossy", "n2"),
        status="warn",
        exit=0,
        machines=machines(4),
        breaks={"n2": [LOSSY[0], some_flows(4, "numgen random mod 1000 < 80 drop")]},
        also=("net.speed packets-lost",),
        innocent=("n1", "n3", "n4"),
    ),
    WorldFault(
        "one of two paths into n1 loses 15 %, of three nodes",
        *("net.payload", "paths-lossy", "n1"),
        status="warn",
        exit=0,
        breaks={"n1": [LOSSY[0], some_flows(2, "numgen random mod 1000 < 150 drop")]},
        also=("net.speed packets-lost",),
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "n3 drops what a connection from n2 carries after 200 kB",
        *("net.payload", "packets-lost", "n3->n2"),
        says="stopped for seconds after 64 KiB or more had passed",
        breaks={"n3": [firewall("cut", f"ip saddr {N2} ct original bytes > 200000 drop")]},
        also=("net.speed",),
        innocent=("n1",),
    ),
    mesh(
        "one of three paths into n2 has other rules, and resets",
        "flows-lost",
        "n2",
        machines=machines(4),
        says="are refused",
        breaks={"n2": [some_flows(3, f"tcp dport != {PORT} ct state new reject with tcp reset")]},
        innocent=("n1", "n3", "n4"),
    ),
    mesh(
        "one of four paths into n3 has other rules, and says so by ICMP",
        "flows-lost",
        "n3",
        says="are refused",
        breaks={
            "n3": [
                some_flows(
                    4, f"tcp dport != {PORT} ct state new reject with icmpx admin-prohibited"
                )
            ]
        },
        innocent=("n1", "n2"),
    ),
    mesh(
        "a node takes 40 connections in all, and resets more",
        "connections-limited",
        "n2",
        machines=machines(4),
        nproc=8,
        slower=16,
        breaks={
            "n2": [
                firewall(
                    "at most 40 connections",
                    f"tcp dport != {PORT} ct state new ct count over 40 reject with tcp reset",
                )
            ]
        },
        innocent=("n1", "n3", "n4"),
    ),
    speed(
        "what n2 cuts itself loses most of what is longer than a frame",
        "node-slow",
        "n2",
        machines=machines(4),
        slower=14,
        breaks={
            "n2": [
                firewall(
                    "an offload drops segments",
                    "meta length > 1500 numgen random mod 100 < 60 drop",
                    hook="output",
                )
            ]
        },
        innocent=("n1", "n3", "n4"),
    ),
    WorldFault(
        "n3's link came up with 100 Mbit/s",
        *("agree.hardware", "link-slower", "n3 · eth0"),
        status="warn",
        exit=0,
        breaks={
            "n1": [card_says("speed", "10000")],
            "n2": [card_says("speed", "10000")],
            "n3": [rate(100), card_says("speed", "100")],
        },
        innocent=("n1", "n2"),
    ),
)

FLOWS = (
    mesh(
        "one of four flows into n2 is lost",
        "flows-lost",
        "n2",
        breaks={"n2": [lose_flows(4)]},
        innocent=("n1", "n3"),
    ),
    mesh(
        "one of three flows out of n3 is lost, by ports alone",
        "flows-lost",
        "n3",
        breaks={"n3": [lose_flows(3, "output", key="tcp sport . tcp dport")]},
        slower=20,
        innocent=("n1", "n2"),
    ),
    mesh(
        "half of the flows of rank 0's node are lost",
        "flows-lost",
        "n1",
        machines=machines(4),
        breaks={"n1": [lose_flows(2)]},
        slower=20,
        innocent=("n2", "n3", "n4"),
    ),
    mesh(
        "one of four flows between n2 and n4 is lost",
        "flows-lost",
        "n2->n4",
        subjects=("n4->n2",),
        machines=machines(4),
        breaks={"n4": [lose_flows(4, peer=N2)]},
        innocent=("n1", "n3"),
    ),
    mesh(
        "of two nodes one of four flows is lost",
        "flows-lost",
        "n1->n2",
        confidence="possible",
        machines=machines(2),
        breaks={"n2": [lose_flows(4)]},
    ),
    mesh(
        "three of four flows into n2 of eight ranks are lost",
        "flows-lost",
        "n2",
        nproc=8,
        breaks={"n2": [lose_flows(4, key="ip saddr . tcp sport . tcp dport"), lose_flows(2)]},
        innocent=("n1", "n3"),
    ),
)

ROUTES = (
    mesh(
        "blackhole route from n2 to n3",
        "outbound-closed",
        "n2",
        subjects=("n2->n3",),
        breaks={"n2": [route("blackhole", N3)]},
    ),
    mesh(
        "unreachable route from n3 to n2",
        "outbound-closed",
        "n3",
        subjects=("n3->n2",),
        breaks={"n3": [route("unreachable", N2)]},
    ),
    WorldFault(
        "prohibit route from n2 to MASTER_ADDR",
        "net.interface",
        "master-unroutable",
        "n2",
        breaks={"n2": [route("prohibit", N1)]},
        arrive=6,
    ),
    WorldFault(
        "the link of n2 is down",
        "net.interface",
        "master-unroutable",
        "n2",
        says="eth0 is in its network, and has no link",
        breaks={"n2": [link_down()]},
        arrive=6,
    ),
    reach(
        "the cable of n2 is unplugged",
        "link-down",
        "n2 · eth0",
        breaks={"n2": [unplugged()]},
    ),
    reach(
        "the machine of MASTER_ADDR is dead",
        "host-dead",
        "n1",
        breaks={"n1": [unplugged()]},
        absent=("n1",),
    ),
    reach(
        "n3 is dead",
        "absent-host-silent",
        "n3",
        status="missing",
        exit=5,
        env={"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"},
        breaks={"n3": [unplugged()]},
        absent=("n3",),
    ),
)

WIRES = (
    WorldFault(
        "the switch port of n2 has an MTU of 1400",
        "net.payload",
        "blackhole-node",
        "n2",
        breaks={"n2": [small_switch_port()]},
    ),
    WorldFault(
        "n3 loses what is longer than 1300 bytes",
        "net.payload",
        "blackhole-node",
        "n3",
        breaks={"n3": [drop_longer(1300)]},
    ),
    # what an agent says of an environment like a user's is longer than a packet
    WorldFault(
        "rank 0's node loses what is longer than 1300 bytes, and all have many settings",
        "net.payload",
        "blackhole-node",
        "n1",
        breaks={"n1": [drop_longer(1300)]},
        env=MANY_SETTINGS,
    ),
    WorldFault(
        "n3 loses what it sends above 1270 bytes, and all have many settings",
        "net.payload",
        "blackhole-node",
        "n3",
        breaks={"n3": [firewall("long segments", "meta length > 1270 drop", hook="output")]},
        env=MANY_SETTINGS,
    ),
    speed(
        "n2 has 2 Mbit/s",
        "node-slow",
        "n2",
        breaks={"n2": [rate(2)]},
    ),
    speed(
        "n2 has 20 Mbit/s",
        "node-slow",
        "n2",
        breaks={"n2": [rate(20)]},
    ),
    speed(
        "20 ms and 20 Mbit/s from anyone to anyone",
        "speed-low",
        "n1->n2",
        breaks=dict.fromkeys(THREE, (delay(5), rate(20))),
    ),
    speed(
        "n2 is 60 ms away",
        "latency-high",
        "n2",
        breaks={"n2": [delay(60)]},
        innocent=("n1", "n3"),
    ),
    speed(
        "n3 loses 5 % of what it gets",
        "packets-lost",
        "n3",
        breaks={"n3": LOSSY},
        innocent=("n1", "n2"),
    ),
)

CABLES = (
    speed(
        "n3 loses 1 % of what it gets",
        "packets-lost",
        "n3",
        breaks={"n3": [*LOSSY[:1], lose(1)]},
        innocent=("n1", "n2"),
    ),
    speed(
        "of four n2 loses 2 % of what it sends",
        "packets-lost",
        "n2",
        machines=machines(4),
        breaks={n: [*LOSSY[:1], lose(2, N2)] for n in ("n1", "n3", "n4")},
        innocent=("n1", "n3", "n4"),
    ),
    speed(
        "of two nodes one loses 4 % of what it gets",
        "packets-lost",
        "n1->n2",
        alike=("speed-low",),  # which it then is, too
        confidence="possible",
        machines=machines(2),
        breaks={"n2": [*LOSSY[:1], lose(4)]},
    ),
    speed(
        "the card of n2 counts wrong CRCs",
        "nic-errors",
        "n2 · eth0",
        says="received frames with a wrong CRC",
        breaks={"n2": [damaged(1000)]},
        innocent=("n1", "n3"),
    ),
    speed(
        "the card of n3 counts wrong CRCs, and loses 3 %",
        "nic-errors",
        "n3 · eth0",
        breaks={"n3": [*LOSSY[:1], lose(3), damaged(33)]},
        innocent=("n1", "n2"),
    ),
    speed(
        "the card of n2 counts late collisions",
        "nic-errors",
        "n2 · eth0",
        says="late collisions",
        breaks={"n2": [damaged(400, "tx_window_errors")]},
        innocent=("n1", "n3"),
    ),
    speed(
        "the link of n3 went down fourteen times",
        "link-flapped",
        "n3 · eth0",
        says="since its driver was loaded",
        breaks={"n3": [flapped(14)]},
        innocent=("n1", "n2"),
    ),
    speed(
        "the card of n2 is half duplex",
        "duplex-half",
        "n2 · eth0",
        breaks={"n2": [card_says("duplex", "half")]},
        innocent=("n1", "n3"),
    ),
)

LIMITS = (
    WorldFault(
        "n3 forgets connections that are idle for a minute",
        *("net.port", "conntrack-idle", "n3"),
        status="warn",
        exit=0,
        breaks={"n3": [forget_idle(60)]},
        innocent=("n1", "n2"),
    ),
    reach(
        "MASTER_PORT takes two connections at a time",
        "connections-limited",
        "n1",
        subjects=("n?->n1",),
        machines=machines(4),
        breaks={"n1": [limit_connections(2, PORT)]},
        says="2 connections passed",
    ),
    WorldFault(
        "MASTER_PORT takes one connection of each node at a time",
        *("rdzv.reach", "connections-limited", "n1"),
        machines=machines(2),
        nproc=2,
        breaks={"n1": [limit_connections(1, PORT, each=True)]},
        says="1 connection of a node passed",
        status="warn",
        exit=0,
        innocent=("n2",),
    ),
    mesh(
        "the master takes 10 new connections a second",
        "connections-limited",
        "n1",
        status="warn",
        exit=0,
        nproc=4,
        slower=16,  # which all further connections take, too
        breaks={"n1": [limit_syns(10)]},
        innocent=("n2", "n3"),
    ),
    mesh(
        "the master takes 6 data connections",
        "connections-limited",
        "n1",
        machines=machines(4),
        nproc=4,
        slower=16,
        breaks={"n1": [SIX]},
        innocent=("n2", "n3", "n4"),
    ),
    WorldFault(
        "n2 has two ephemeral ports",
        "net.port",
        "ports-few",
        "n2*",
        nproc=4,
        breaks={"n2": [few_ports(50000, 50001)]},
    ),
)

ADDRESSES = (
    mesh(
        "Gloo is sent to a second network that is closed",
        "interface-wrong",
        "n1 · eth1",
        subjects=("n2 · eth1", "n3 · eth1"),
        machines=machines(3, nics=2),
        env={"GLOO_SOCKET_IFNAME": "eth1"},
        breaks={n: [CLOSED_SECOND] for n in THREE},
    ),
    WorldFault(
        "n2's range of ports is wider than what the firewall opens",
        *("net.payload", "ports-closed", "n2"),
        confidence="likely",
        says="ip_local_port_range is 1192-65535, the others have 32768-60999",
        machines=machines(4),
        breaks={"n2": [ONE_PORT, WIDE]},
        innocent=("n1", "n3", "n4"),
    ),
    WorldFault(
        "n2 lets one of its ports in, and all have the same range",
        *("net.payload", "ports-closed", "n2"),
        confidence="possible",
        breaks={"n2": [ONE_PORT]},
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "net.core.somaxconn is 4 on rank 0's node, and what is more is reset",
        *("net.port", "listen-queue-short", "n1"),
        status="warn",
        nproc=8,
        args=("--only", "net.port,rdzv.reach"),
        breaks={"n1": [listen_queue(4, resets=True)]},
        exit=0,
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "net.core.somaxconn is 16 on rank 0's node, and there are 24 ranks",
        *("net.mesh", "listen-queue-full", "n1"),
        status="warn",
        subjects=("n2", "n3"),
        nproc=8,
        breaks={name: [listen_queue(16)] for name in ("n1", "n2", "n3")},
        exit=0,
    ),
    WorldFault(
        "net.core.somaxconn is 2 on n3 alone",
        *("net.mesh", "listen-queue-full", "n3"),
        status="warn",
        nproc=8,
        breaks={"n3": [listen_queue(2)]},
        exit=0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "n3's two NICs are swapped, and GLOO_SOCKET_IFNAME names one",
        *("net.interface", "networks-differ", "n3 · eth0"),
        status="warn",
        machines=(*machines(2, nics=2), Machine("n3", nics=2, setup=SWAPPED)),
        env={"GLOO_SOCKET_IFNAME": "eth0"},
        exit=0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "n3's two NICs are swapped in a world of IPv6, and Gloo takes eth0",
        *("net.interface", "networks-differ", "n3 · eth0"),
        status="warn",
        machines=(
            *machines(2, nics=2, versions=(6,)),
            Machine("n3", nics=2, versions=(6,), setup=SWAPPED6),
        ),
        named=(6,),
        env={"GLOO_SOCKET_IFNAME": "eth0"},
        exit=0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "n2's two NICs are swapped, and NCCL_SOCKET_IFNAME names the second",
        *("net.interface", "networks-differ", "n2 · eth1"),
        status="warn",
        machines=(
            *(Machine("n1", nics=2), Machine("n2", nics=2, setup=SWAPPED.replace("0.3/", "0.2/"))),
            *(Machine("n3", nics=2), Machine("n4", nics=2)),
        ),
        env={"NCCL_SOCKET_IFNAME": "=eth1"},
        exit=0,
        innocent=("n1", "n3", "n4"),
    ),
    WorldFault(
        "the two NICs of one of two are swapped, and NCCL and Gloo take eth0",
        *("net.interface", "networks-differ", "n1 · eth0"),
        status="warn",
        subjects=("n2 · eth0",),
        confidence="possible",
        machines=(
            Machine("n1", nics=2),
            Machine("n2", nics=2, setup=SWAPPED.replace("0.3/", "0.2/")),
        ),
        env={"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"},
        exit=0,
    ),
    WorldFault(
        "Gloo is sent to docker0",
        "net.interface",
        "interface-isolated",
        "n1 · docker0",
        subjects=("n2 · docker0", "n3 · docker0"),
        env={"GLOO_SOCKET_IFNAME": "docker0"},
        breaks={n: [Break("Docker is installed", DOCKER)] for n in THREE},
    ),
    mesh(
        "eth matches a second interface that is closed, and NCCL has GPUs",
        "interface-wrong",
        "n1 · eth1",
        subjects=("n2 · eth1", "n3 · eth1"),
        machines=machines(3, nics=2, setup=GPU),
        env={"NCCL_SOCKET_IFNAME": "eth"},
        breaks={n: [CLOSED_SECOND] for n in THREE},
    ),
    mesh(
        "eth matches a second interface that is closed, where no GPU is visible",
        "interface-wrong",
        "n1 · eth1",
        subjects=("n2 · eth1", "n3 · eth1"),
        status="warn",
        exit=0,
        slower=16,
        machines=machines(3, nics=2),
        env={"NCCL_SOCKET_IFNAME": "eth"},
        breaks={n: [CLOSED_SECOND] for n in THREE},
    ),
    mesh(
        "NCCL takes a BMC's USB network, too, by its own choice",
        "interface-wrong",
        "n1 · usb0",
        subjects=("n2 · usb0",),
        machines=machines(2, setup=GPU + USB),
    ),
    mesh(
        "NCCL takes a network of Compose, too, by its own choice",
        "interface-wrong",
        "n1 · br-0a1b2c3d4e5f",
        subjects=("n2 · br-0a1b2c3d4e5f", "n3 · br-0a1b2c3d4e5f"),
        machines=machines(3, setup=GPU + COMPOSE),
    ),
    mesh(
        "^docker leaves a VPN's interface to NCCL that leads nowhere",
        "interface-wrong",
        "n1 · tailscale0",
        subjects=("n2 · tailscale0", "n3 · tailscale0"),
        slower=16,
        machines=tuple(Machine(n, setup=GPU + vpn(i)) for i, n in enumerate(THREE, 1)),
        env={"NCCL_SOCKET_IFNAME": "^docker,lo"},
    ),
    # as they were reported (nccl-tests#9, nccl#913), and built without a look at what finds them
    mesh(
        "eth0 takes the VLAN below it, too, which is for something else",
        "interface-wrong",
        "n1 · eth0.2093",
        subjects=("n2 · eth0.2093",),
        slower=16,
        machines=tuple(
            Machine(f"n{i}", setup=GPU + aside("eth0.2093", f"172.30.{i}")) for i in (1, 2)
        ),
        env={"NCCL_SOCKET_IFNAME": "eth0"},
    ),
    mesh(
        "NCCL takes a container's veth, too, by its own choice",
        "interface-wrong",
        "n1 · veth9a1",
        subjects=("n2 · veth9a1",),
        slower=16,
        machines=tuple(
            Machine(f"n{i}", setup=GPU + aside("veth9a1", f"172.17.{i}")) for i in (1, 2)
        ),
    ),
    mesh(
        "the second interface of one node is closed, and NCCL takes both",
        "interface-wrong",
        "n2 · eth1",
        slower=16,
        machines=machines(3, nics=2, setup=GPU),
        env={"NCCL_SOCKET_IFNAME": "eth0,eth1"},
        breaks={"n2": [CLOSED_SECOND]},
        innocent=("n1", "n3"),
    ),
    # as in nccl#1291 and nccl#733: the others' addresses are on ib0
    mesh(
        "ib0 is down on one node, whose NCCL takes eth0",
        *("interface-down", "n3 · ib0"),
        machines=(*machines(2, nics=2, setup=IB0), Machine("n3", nics=2, setup=IB0)),
        breaks={"n3": [link_down("ib0")]},
        says="ib0 has no link on n3",
        innocent=("n1", "n2"),
    ),
    # as in nccl#1581 and nccl#1269: two NICs in one subnet
    mesh(
        "a node's second NIC of one subnet drops what comes in there",
        *("reverse-path", "n3 · eth1"),
        machines=of_one_subnet(0, 0, 1),
        env={"NCCL_SOCKET_IFNAME": "=eth1"},
        innocent=("n1", "n2"),
    ),
    mesh(
        "all nodes have two NICs in one subnet and a strict rp_filter",
        *("reverse-path", "n1 · eth1"),
        subjects=("n2 · eth1", "n3 · eth1"),
        machines=of_one_subnet(1, 1, 1),
        env={"NCCL_SOCKET_IFNAME": "=eth1"},
    ),
    reach(
        "rank 0's second NIC of one subnet has MASTER_ADDR and drops what comes in there",
        *("reverse-path-host", "n1 · eth1"),
        machines=of_one_subnet(1, 0, 0),
        master="10.77.1.1",
        innocent=("n2", "n3"),
    ),
    reach(
        "ib0 is down on one node, and MASTER_ADDR is rank 0's address there",
        *("link-down", "n3 · ib0"),
        machines=(*machines(2, nics=2, setup=IB0), Machine("n3", nics=2, setup=IB0)),
        breaks={"n3": [link_down("ib0")]},
        master="10.78.0.1",
        innocent=("n1", "n2"),
    ),
    mesh(
        "ib0 is down on one of two nodes",
        *("interface-down", "n2 · ib0"),
        machines=machines(2, nics=2, setup=IB0),
        breaks={"n2": [link_down("ib0")]},
        innocent=("n1",),
    ),
    mesh(
        "one node has no ib0 at all",
        *("interface-down", "n3 · ib0"),
        machines=(*machines(2, nics=2, setup=IB0), Machine("n3", setup=GPU)),
        innocent=("n1", "n2"),
    ),
    mesh(
        "n2's ARP table has a permanent entry with n3's old MAC address",
        *("arp-differs", "n2"),
        says="for 10.77.0.3 (a permanent entry)",
        breaks={"n2": [neighbour_is(N3, OLD_MAC)]},
        innocent=("n1", "n3"),
    ),
    mesh(
        "a machine that is not the job's has n2's address",
        *("arp-differs", "n2 · eth0"),
        machines=machines(4),
        nodes={"n1": 3, "n2": 3, "n3": 3},
        absent=("n4",),
        breaks={"n4": [take_address(N2)], "n3": [arp_unheard("02:77:00:00:00:02")]},
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "Gloo is sent to lo beside eth0",
        *("net.interface", "interface-isolated", "n1 · lo"),
        subjects=("n2 · lo", "n3 · lo"),
        env={"GLOO_SOCKET_IFNAME": "eth0,lo"},
    ),
    WorldFault(
        "a VPN of n3 takes in the cluster's subnet",
        *("rdzv.reach", "route-diverted", "n3 · tun0"),
        breaks={"n3": [tunnel("10.77.0.0/24")]},
        also=("rdzv.reach absent",),
        innocent=("n1", "n2"),
        arrive=6,
    ),
    WorldFault(
        "a VPN of n3 has a table for the cluster's subnet",
        *("rdzv.reach", "route-diverted", "n3 · tun0"),
        breaks={"n3": [ruled_tunnel("10.77.0.0/16", 51820)]},
        also=("rdzv.reach absent",),
        says="an ip rule leads to table 51820",
        innocent=("n1", "n2"),
        arrive=6,
    ),
    WorldFault(
        "a table for what n3 sends has a router alone, which is gone",
        *("rdzv.reach", "route-diverted", "n3 · eth0"),
        breaks={"n3": [source_table("10.77.0.3", "default via 10.77.255.250 dev eth0 onlink")]},
        also=("rdzv.reach absent",),
        says="by the router 10.77.255.250 (an ip rule leads to table 200)",
        innocent=("n1", "n2"),
        arrive=6,
    ),
    WorldFault(
        "n2 sends by a router, and its packets live for one hop",
        *("rdzv.reach", "ttl-exceeded", "n2"),
        breaks={"n2": [SWITCH_ROUTES, hops(1, "10.77.255.254")]},
        also=("rdzv.reach absent",),
        says="net.ipv4.ip_default_ttl=1 on n2",
        innocent=("n1", "n3"),
        arrive=6,
    ),
    WorldFault(
        "two routers send what n3 has for rank 0 to each other",
        *("rdzv.reach", "ttl-exceeded", "n3->n1"),
        breaks={
            "n2": [loops("10.77.0.1", "10.77.0.2")],
            "n3": [SWITCH_ROUTES, hops(64, "10.77.255.254")],
        },
        also=("rdzv.reach absent",),
        says="by ICMP 'time to live exceeded'",
        innocent=("n1",),
        arrive=6,
    ),
    WorldFault(
        "a NAT rule of n3 leads from rank 0's address to one that nobody has",
        *("rdzv.reach", "address-translated", "n3"),
        breaks={"n3": [rewrites("10.77.0.1", "10.77.0.99")]},
        also=("rdzv.reach absent",),
        says="sends it to 10.77.0.99",
        innocent=("n1", "n2"),
        arrive=6,
    ),
    WorldFault(
        "a NAT rule of n3 leads from rank 0's address to a machine that refuses",
        *("rdzv.reach", "address-translated", "n3"),
        breaks={"n3": [rewrites("10.77.0.1", "10.77.0.2")]},
        also=("rdzv.reach absent",),
        says="sends it to 10.77.0.2",
        innocent=("n1", "n2"),
        arrive=6,
    ),
    WorldFault(
        "window scaling is stripped from what n3 is answered",
        *("rdzv.reach", "sending-slow", "n3->n1*"),
        breaks={"n3": [STRIPS_SCALING]},
        args=WHOLE,
        slower=30,
        innocent=("n2",),
        needs=("iptables",),
    ),
    mesh(
        "n3 asks for ECN, and a firewall drops SYNs that do",
        *("ecn-dropped", "n3"),
        status="warn",
        exit=0,
        slower=16,
        breaks={"n3": [ASKS_FOR_ECN], "n1": [DROPS_ECN], "n2": [DROPS_ECN]},
        innocent=("n1", "n2"),
    ),
    mesh(
        "Gloo takes two interfaces, and n2's second one is closed",
        *("interface-wrong", "n2 · eth1"),
        machines=machines(3, nics=2),
        env={"GLOO_SOCKET_IFNAME": "eth0,eth1"},
        breaks={"n2": [CLOSED_SECOND]},
        innocent=("n1", "n3"),
    ),
    mesh(
        "n2's eth0 has another network's address first, and Gloo is sent to eth0",
        *("first-address-unreachable", "n2 · eth0"),
        env={"GLOO_SOCKET_IFNAME": "eth0"},
        breaks={"n2": [FIRST_OF_ANOTHER]},
        innocent=("n1", "n3"),
    ),
    # as in nccl#550
    WorldFault(
        "320 files where NCCL is to open 64 sockets for each connection",
        "host.limits",
        "nofile-low",
        "n1",
        subjects=("n2", "n3"),
        status="warn",
        exit=0,
        says="NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD = 64",
        machines=machines(3, setup=GPU, limits={"nofile": "320"}),
        env={"NCCL_SOCKET_NTHREADS": "8", "NCCL_NSOCKS_PERTHREAD": "8"},
    ),
    WorldFault(
        "n3 has n2's address as well",
        "agree.hardware",
        "address-duplicate",
        "n2 · eth0",
        subjects=("n3 · eth0",),
        breaks={"n3": [take_address(N2)]},
    ),
    WorldFault(
        "lo of n2 is down",
        "net.interface",
        "loopback-down",
        "n2 · lo",
        status="warn",
        exit=0,
        breaks={"n2": [link_down("lo")]},
    ),
)

PAIRS = (
    mesh(
        "n2 lets nothing in, and n3 nothing from n4",
        "inbound-closed",
        "n2",
        second=("net.mesh", "link-closed", "n4->n3"),
        machines=machines(4),
        breaks={"n2": [close_other_ports(PORT)], "n3": [refuse_from("10.77.0.4")]},
        innocent=("n1",),
    ),
    speed(
        "n2 has 20 Mbit/s, and n3 loses 5 % of what it gets",
        "node-slow",
        "n2",
        second=("net.speed", "packets-lost", "n3"),
        machines=machines(4),
        breaks={"n2": [rate(20)], "n3": LOSSY},
        slower=14,
    ),
    mesh(
        "n2 lets nothing in, and n4 has no route to MASTER_ADDR",
        "inbound-closed",
        "n2",
        second=("net.interface", "master-unroutable", "n4"),
        machines=machines(4),
        breaks={"n2": [close_other_ports(PORT)], "n4": [route("blackhole", N1)]},
        arrive=6,
    ),
    reach(
        "MASTER_PORT dropped for n2, and n3's clock is wrong",
        "dropped-here",
        "n2*",
        second=("agree.clock", "clock-skew-large", "n3*"),
        nproc=0,
        env=torchrun(4),
        machines=(Machine("n1"), Machine("n2"), Machine("n3", clock=90), Machine("n4")),
        breaks={"n1": [drop_port(PORT, N2)]},
        innocent=("n4",),
    ),
    WorldFault(
        "n3's switch port has an MTU of 1400, and n2 20 Mbit/s",
        "net.payload",
        "blackhole-node",
        "n3",
        also=("net.speed node-slow",),
        machines=machines(4),
        breaks={"n3": [small_switch_port()], "n2": [rate(20)]},
        slower=14,
        innocent=("n1", "n4"),
    ),
    mesh(
        "n2 lets nothing in, and n4 does not come",
        "inbound-closed",
        "n2",
        also=("rdzv.reach absent",),
        machines=machines(4),
        breaks={"n2": [close_other_ports(PORT)]},
        absent=("n4",),
    ),
)

TRAINED = (
    mesh(
        "n2 drops all but MASTER_PORT, with torch",
        "inbound-closed",
        "n2",
        breaks={"n2": [close_other_ports(PORT)]},
        args=WHOLE,
        innocent=("n1", "n3"),
    ),
)

FAULTS = (
    *MASTER,
    *ON_THE_WAY,
    *PORTS,
    *FLOWS,
    *NEIGHBOURS,
    *REVERSE_PATH,
    *PATHS,
    *ROUTES,
    *WIRES,
    *CABLES,
    *LIMITS,
    *ADDRESSES,
    *PAIRS,
    *TRAINED,
)
