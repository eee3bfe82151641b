"""What can be broken on a machine of the lab, in the words of the field.

    lab["n2"].break_(drop_port(29500))
    with lab["n2"].broken(name_is("n1", "10.77.0.99"), delay(50)):
        ...

Firewalls look at TCP that comes in from outside, not at the loopback interface, unless it is said
otherwise. `source` is the one address from which; without it, from everywhere.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent
STUB = "127.0.0.53"
"""Where the resolvers of this file listen, on the machine itself as systemd-resolved does."""

IN_CONTAINER = ("sh", "-c", '[ ! -e container ] || set -- ip netns exec ct "$@"; exec "$@"', "sh")
"""What a command is wrapped in to run in the container of its machine, where it has one."""


def container(
    address: str, gateway: str, hosts: str, nat: str = "", bridge: str = "docker0"
) -> str:
    """What gives a machine a container in a network of its own behind a bridge, as the setup of a
    Machine. `hosts`: its /etc/hosts; `nat`: chains of nft."""
    rules = f"nft -f - <<'END'\ntable ip nat {{\n{nat}\n}}\nEND\n" if nat else ""
    return (
        "ip netns add ct; : > container\n"
        f"ip link add {bridge} type bridge; ip addr add {gateway} dev {bridge}\n"
        f"ip link set {bridge} up; ip link add vethct type veth peer name eth0 netns ct\n"
        f"ip link set vethct master {bridge} up; ip -n ct link set lo up\n"
        f"ip -n ct addr add {address} dev eth0; ip -n ct link set eth0 up\n"
        f"ip -n ct route add default via {gateway.partition('/')[0]}\n"
        "sysctl -qw net.ipv4.ip_forward=1; mkdir -p /etc/netns/ct\n"
        f"printf '127.0.0.1 localhost\\n{hosts}' > /etc/netns/ct/hosts\n{rules}"
    )


def masquerade(network: str, to: str = "") -> str:
    """A chain that hides a container's network behind its machine, except on its way `to`."""
    rest = f"ip daddr != {to} " if to else ""
    return (
        "chain post { type nat hook postrouting priority 100; "
        f'ip saddr {network} {rest}oifname "eth0" masquerade; }}'
    )


DOCKER = """
ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up
"""
"""No fault but setup: where Docker is installed, all machines have this one address in common."""


@dataclass(frozen=True, slots=True)
class Break:
    """Shell (`sh -eu`, root) that breaks a machine, and what undoes it. `switch` runs on the
    switch, where {port} is this machine's cable, and `everywhere` first on all machines; `beside`
    and `switch_beside` are programs that run until it is fixed."""

    what: str
    shell: str = ""
    undo: str = ""
    switch: str = ""
    switch_undo: str = ""
    everywhere: str = ""
    beside: tuple[str, ...] = ()
    switch_beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.what


# --- firewalls ---

DROP = "drop"
RESET = "reject with tcp reset"
PROHIBIT = "reject with icmpx admin-prohibited"
REJECT = "reject with icmpx port-unreachable"
"""What iptables' REJECT, ufw and kube-proxy do: connect() says of it what it says of RESET."""


def firewall(what: str, *rules: str, hook: str = "input") -> Break:
    """Rules of nft, of their own table."""
    device = "iifname" if hook == "input" else "oifname"
    return _table(what, _chain(hook, *(f'{device} != "lo" {rule}' for rule in rules)))


def _chain(hook: str, *rules: str) -> str:
    lines = "\n".join((f"type filter hook {hook} priority 0", *rules))
    return f"chain {hook} {{\n{lines}\n}}\n"


def _table(what: str, *chains: str) -> Break:
    text = "".join(chains)
    name = "lab" + sha256(text.encode()).hexdigest()[:12]
    return Break(
        what,
        f"nft -f - <<'END'\ntable inet {name} {{\n{text}}}\nEND",
        f"nft delete table inet {name}",
    )


def _source(address: str) -> str:
    return f"{'ip6' if ':' in address else 'ip'} saddr {address} " if address else ""


def _from(address: str) -> str:
    return f" from {address}" if address else ""


def drop_port(port: int, source: str = "") -> Break:
    """Nobody answers at it: connects time out."""
    rule = f"{_source(source)}tcp dport {port} {DROP}"
    return firewall(f"a firewall drops port {port}{_from(source)}", rule)


def reset_port(port: int, source: str = "") -> Break:
    """A firewall answers as if nobody listened there."""
    rule = f"{_source(source)}tcp dport {port} {RESET}"
    return firewall(f"a firewall resets port {port}{_from(source)}", rule)


def prohibit_port(port: int, source: str = "") -> Break:
    """A firewall says so."""
    rule = f"{_source(source)}tcp dport {port} {PROHIBIT}"
    return firewall(f"a firewall prohibits port {port}{_from(source)}", rule)


def close_other_ports(*ports: int, verdict: str = DROP, source: str = "") -> Break:
    """Only these are open: the rendezvous meets, the data connections on ephemeral ports don't."""
    some = ", ".join(str(port) for port in ports)
    return firewall(
        f"a firewall has only {some} open{_from(source)}",
        "ct state established,related accept",
        f"{_source(source)}tcp dport != {{ {some} }} {verdict}",
    )


def drop_in(source: str = "") -> Break:
    """Nothing comes in, whatever it is, answers included."""
    return firewall(f"nothing comes in{_from(source)}", f"{_source(source)}{DROP}")


def refuse_from(source: str, verdict: str = DROP) -> Break:
    """The one direction: it reaches the other, but the other does not reach it."""
    return firewall(
        f"no connection comes in from {source}",
        "ct state established,related accept",
        f"{_source(source)}meta l4proto tcp {verdict}",
    )


def drop_out(to: str = "", port: int = 0) -> Break:
    """What it sends does not leave it, to this address or to this port of others."""
    rule = _source(to).replace("saddr", "daddr") + (f"tcp dport {port} " if port else "") + DROP
    where = (f" to {to}" if to else "") + (f" to port {port}" if port else "")
    return firewall(f"nothing goes out{where}", rule, hook="output")


def limit_connections(count: int, port: int, *, each: bool = False) -> Break:
    """A limit on connections at a time; `each`: of an address."""
    counted = f"ct count over {count}"
    if each:
        counted = f"meter each_{port} {{ ip saddr {counted} }}"
    what = f"at most {count} connections{' of an address' * each} to port {port}"
    return firewall(what, f"tcp dport {port} ct state new {counted} drop")


def forget_idle(seconds: int) -> Break:
    """A stateful firewall, in whose table a connection stays for so long without a packet."""
    rule = "ct state established,related accept"
    timeout = f"sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established={seconds}"
    made = firewall("tracks connections", rule)
    what = f"forgets connections that are idle for {seconds} s"
    return Break(what, f"{made.shell}\n{timeout}", made.undo)


def limit_syns(per_second: int) -> Break:
    """No more than so many new connections a second, as against floods."""
    rule = f"tcp flags & (syn|ack) == syn limit rate over {per_second}/second"
    return firewall(
        f"at most {per_second} new connections a second",
        f"{rule} burst {per_second} packets drop",
    )


def lose(percent: float, source: str = "") -> Break:
    """A bad cable: this part of what comes in is lost."""
    rule = f"{_source(source)}numgen random mod 10000 < {round(percent * 100)} drop"
    return firewall(f"{percent:g} % of what comes in is lost{_from(source)}", rule)


def lose_flows(parts: int, hook: str = "input", peer: str = "", key: str = "") -> Break:
    """A broken member of a bond: the hash of addresses and ports sends one flow of so many there,
    `input` of what comes in, `output` of what goes out; to and from `peer` only. `key` is what is
    hashed."""
    key = key or "ip saddr . ip daddr . tcp sport . tcp dport"
    other = _source(peer) if hook == "input" else _source(peer).replace("saddr", "daddr")
    rule = f"{other}meta l4proto tcp jhash {key} mod {parts} 0 drop"
    return firewall(f"one of {parts} flows is lost, {hook}{_from(peer)}", rule, hook=hook)


def lose_data(port: int, hook: str) -> Break:
    """A connection to this port opens, and what is then said at one end is lost: `output` is what
    this machine says, `input` what it is told."""
    side = "dport" if hook == "output" else "sport"
    rule = f"tcp {side} {port} meta length > 100 drop"
    return firewall(f"segments with data are lost, {hook} of port {port}", rule, hook=hook)


def sidecar(port: int = 15001, how: str = "silent") -> Break:
    """Every connection that leaves this machine ends at a program on it, which accepts and says
    nothing (`silent`), hangs up (`closing`) or answers like a web server (`http`): what a service
    mesh or a proxy does with a protocol that it does not know."""
    chain = f"""chain o {{
        type nat hook output priority -100
        oifname != "lo" meta l4proto tcp dnat to 127.0.0.1:{port}
    }}"""
    return Break(
        f"a sidecar at port {port} takes all connections: {how}",
        f"sysctl -qw net.ipv4.conf.all.route_localnet=1\n"
        f"nft -f - <<'END'\ntable ip sidecar {{\n{chain}\n}}\nEND",
        "nft delete table ip sidecar",
        beside=_program("strangers.py", how, str(port)),
    )


def sidecar_inbound(port: int = 15006) -> Break:
    """The same with every connection that comes to this machine."""
    chain = f"""chain i {{
        type nat hook prerouting priority -100
        iifname != "lo" meta l4proto tcp redirect to :{port}
    }}"""
    return Break(
        f"a sidecar at port {port} takes what comes in",
        f"nft -f - <<'END'\ntable ip inbound {{\n{chain}\n}}\nEND",
        "nft delete table ip inbound",
        beside=_program("strangers.py", "silent", str(port)),
    )


def service(address: str, port: int, *backend: str) -> Break:
    """An address that no interface has, as kube-proxy makes a service's on each node: MASTER_PORT
    alone leads on to the backend; without one nobody answers there."""
    to = f"dnat to {backend[0]}" if backend else "drop"
    kind = "nat hook output priority -100" if backend else "filter hook output priority 0"
    rule = f"ip daddr {address} tcp dport {port} {to}"
    return Break(
        f"{address} is a service",
        f"ip route add {address} dev eth0\n"
        f"nft -f - <<'END'\ntable ip service {{\nchain o {{\ntype {kind}\n{rule}\n}}\n}}\nEND",
        f"nft delete table ip service; ip route del {address} dev eth0",
    )


def drop_longer(size: int) -> Break:
    """What is longer than this is lost in both directions, and nobody is told."""
    rule = f'!= "lo" meta length > {size} drop'
    return _table(
        f"packets above {size} bytes are lost",
        _chain("input", f"iifname {rule}"),
        _chain("output", f"oifname {rule}"),
    )


# --- links and routes ---


def link_down(nic: str = "eth0") -> Break:
    """As when the interface was switched off: its routes and IPv6 addresses go, too."""
    return Break(f"{nic} is down", f"ip link set {nic} down", f"ip link set {nic} up")


def unplugged() -> Break:
    """The cable of eth0 at the switch's end: the interface has no carrier."""
    return Break(
        "eth0's cable is unplugged",
        undo="until [ $(cat /sys/class/net/eth0/operstate) = up ]; do sleep 0.02; done",
        switch="ip link set {port} down",
        switch_undo="ip link set {port} up",
    )


def route(kind: str, to: str) -> Break:
    """A route that leads nowhere: `blackhole`, `unreachable` or `prohibit`."""
    ip = "ip -6" if ":" in to else "ip"
    return Break(f"{kind} route to {to}", f"{ip} route add {kind} {to}", f"{ip} route del {to}")


def flapped(times: int) -> Break:
    """The link of eth0 went away and came back so often, before anybody looked."""
    return Break(
        f"the link went down {times} times",
        "until [ $(cat /sys/class/net/eth0/operstate) = up ]; do sleep 0.02; done; sleep 0.2",
        switch=f"for n in $(seq {times}); do ip link set {{port}} down; sleep 0.03\n"
        "ip link set {port} up; sleep 0.03; done",
    )


def damaged(parts: int, counter: str = "rx_crc_errors", nic: str = "eth0") -> Break:
    """A bad cable: the card counts one of so many packets as damaged."""
    return Break(
        f"one of {parts} frames is damaged",
        beside=_program("counters.py", nic, counter, str(parts)),
    )


def card_says(file: str, text: str, nic: str = "eth0") -> Break:
    """What the kernel says of a card: `duplex`, `speed`, …"""
    kept = ".lab-" + file.replace("/", "-")
    return Break(
        f"{file} of {nic} is {text}",
        f"echo {text} > {kept}; mount --bind {kept} /sys/class/net/{nic}/{file}",
        f"umount /sys/class/net/{nic}/{file}",
    )


def small_switch_port(mtu: int = 1400) -> Break:
    """The switch's port lets less through than the interfaces at both ends believe; nobody is told.
    Segments are cut by the senders, as a kernel with virtual cables would do it too late."""
    return Break(
        f"the switch's port has an MTU of {mtu}",
        everywhere="ip link set eth0 gso_max_segs 1",
        switch=f"ip link set {{port}} mtu {mtu}",
        switch_undo="ip link set {port} mtu 1500",
    )


def mtu(size: int) -> Break:
    """Its own interface says another MTU than the others'."""
    return Break(
        f"eth0 has an MTU of {size}", f"ip link set eth0 mtu {size}", "ip link set eth0 mtu 1500"
    )


def rate(megabits: float) -> Break:
    """A slow network card: in both directions."""
    limit = f"root tbf rate {round(megabits * 1000)}kbit burst 32kb latency 400ms"
    return Break(
        f"{megabits:g} Mbit/s",
        f"tc qdisc replace dev eth0 {limit}",
        "tc qdisc del dev eth0 root",
        f"tc qdisc replace dev {{port}} {limit}",
        "tc qdisc del dev {port} root",
    )


def delay(milliseconds: float) -> Break:
    """Each packet comes and goes so much later: a round trip takes twice that."""
    return Break(
        f"{milliseconds:g} ms of delay",
        switch="""
            ip link set {port} nomaster
            ip link add {port}-d type veth peer name {port}-b
            ip link set {port}-d up; ip link set {port}-b master br0 up
        """,
        switch_undo="ip link del {port}-d; ip link set {port} master br0",
        switch_beside=_program("delay.py", "{port}", "{port}-d", str(milliseconds)),
    )


def few_ports(first: int, last: int) -> Break:
    """The range of ephemeral ports."""
    file = "/proc/sys/net/ipv4/ip_local_port_range"
    return Break(
        f"ephemeral ports {first}-{last}",
        f"echo {first} {last} > {file}",
        f"echo 32768 60999 > {file}",
    )


def take_address(address: str, bits: int = 16) -> Break:
    """It has an address of another machine, too. Who gets the packets is a matter of luck, and may
    change; in labs of many (net.MANY) it is always the owner."""
    return Break(
        f"{address} is on two machines",
        f"ip addr add {address}/{bits} dev eth0",
        f"ip addr del {address}/{bits} dev eth0",
        everywhere="ip neigh flush dev eth0",
    )


def neighbour_is(ip: str, mac: str) -> Break:
    """Somebody has written down to which MAC address it sends for an IPv4 address."""
    return Break(
        f"{ip} is at {mac} there",
        f"ip neigh replace {ip} lladdr {mac} dev eth0 nud permanent",
        f"ip neigh del {ip} dev eth0",
    )


def arp_unheard(mac: str) -> Break:
    """Of two machines with one address it hears the other one alone, not that of `mac`."""
    return Break(
        f"ARP of {mac} is not heard",
        "nft -f - <<'END'\ntable arp unheard {\nchain i {\ntype filter hook input priority 0\n"
        f"arp saddr ether {mac} drop\n}}\n}}\nEND\nip neigh flush dev eth0",
        "nft delete table arp unheard",
    )


def tunnel(subnet: str) -> Break:
    """An interface of its own that leads to another network, and has a route for `subnet`."""
    return Break(
        f"a VPN for {subnet}",
        "ip link add tun0 type veth peer name tun0far; ip addr add 10.200.0.2/24 dev tun0\n"
        "for end in tun0 tun0far; do ip link set $end addrgenmode none; ip link set $end up; done\n"
        f"ip route add {subnet} dev tun0",
        "ip link del tun0",
    )


def ruled_tunnel(subnet: str, table: int) -> Break:
    """The same, with the route in a table of its own that an `ip rule` puts before all others."""
    made = tunnel(subnet)
    return Break(
        f"a VPN for {subnet} in table {table}",
        f"{made.shell} table {table}\nip rule add lookup {table}",
        f"ip rule del lookup {table}; {made.undo}",
    )


def source_table(ip: str, *routes: str) -> Break:
    """What this machine sends from `ip` is looked up in a table of its own first."""
    added = "".join(f"ip route add {one} table 200\n" for one in routes)
    return Break(
        f"a table for what is sent from {ip}",
        f"{added}ip rule add from {ip} lookup 200",
        f"ip rule del from {ip} lookup 200; ip route flush table 200",
    )


def bridge(name: str, address: str) -> Break:
    """A bridge of containers that has no container now."""
    return Break(
        f"{name} with {address}",
        f"ip link add {name} type bridge; ip addr add {address} dev {name}; ip link set {name} up",
        f"ip link del {name}",
    )


def holds(ip: str, interface: str) -> Break:
    """An address of others on an interface of its own, of which ARP says nothing."""
    return Break(
        f"{ip} on {interface}",
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2\n"
        f"ip link add {interface} type bridge; ip addr add {ip}/32 dev {interface}; "
        f"ip link set {interface} up",
        f"ip link del {interface}",
    )


def hops(number: int, router: str = "") -> Break:
    """Its packets live for `number` hops; `router`: by which it sends to all others."""
    by = f"ip route replace {router} dev eth0; ip route replace 10.77.0.0/16 via {router}\n"
    return Break(
        f"packets live for {number} hops",
        f"{by if router else ''}sysctl -qw net.ipv4.ip_default_ttl={number}",
        "sysctl -qw net.ipv4.ip_default_ttl=64",
    )


def rewrites(ip: str, to: str) -> Break:
    """A NAT rule by which what this machine sends to one address goes to another."""
    chain = _chain("output", f"ip daddr {ip} dnat ip to {to}").replace("filter", "nat")
    return _table(f"NAT leads from {ip} to {to}", chain)


# --- names ---


def _hosts(what: str, edit: str) -> Break:
    """A change of /etc/hosts; `$own` is the machine's name."""
    kept = ".lab/hosts-" + sha256(edit.encode()).hexdigest()[:12]
    return Break(what, f"cp /etc/hosts {kept}; own=$(hostname)\n{edit}", f"cat {kept} > /etc/hosts")


def _forget(name: str) -> str:
    return f'sed -i "/[[:space:]]{name}\\$/d" /etc/hosts\n'


def own_name_is(address: str = "127.0.1.1") -> Break:
    """As Debian's installer writes it."""
    edit = _forget("$own") + f'echo "{address} $own" >> /etc/hosts'
    return _hosts(f"its own name is {address}", edit)


def own_name_unknown() -> Break:
    return _hosts("it does not know its own name", _forget("$own"))


def name_is(name: str, address: str) -> Break:
    edit = _forget(name) + f"echo {address} {name} >> /etc/hosts"
    return _hosts(f"{name} is {address} there", edit)


def name_unknown(name: str) -> Break:
    return _hosts(f"{name} is not known there", _forget(name))


def resolver(how: str, *known: str) -> Break:
    """A name server of its own that knows `NAME=IP`, for what /etc/hosts has not: `0` answers at
    once, `2.5` after so many seconds, `silent` never, `refusing` that it does not serve us,
    `failing` that it can't, `absent` is nobody there."""
    program = _program("strangers.py", "dns", STUB, how, *known)
    return Break(
        f"its name server is {how}",
        f"cp /etc/resolv.conf .lab/resolv.conf; echo nameserver {STUB} > /etc/resolv.conf",
        "cat .lab/resolv.conf > /etc/resolv.conf",
        beside=() if how == "absent" else program,
    )


# --- strangers ---


def taken(port: int) -> Break:
    """Somebody has it, and does not even listen."""
    return _stranger(f"port {port} is taken", "taken", port)


def silent_server(port: int) -> Break:
    """Accepts and says nothing."""
    return _stranger(f"a silent server on port {port}", "silent", port)


def http_server(port: int) -> Break:
    return _stranger(f"a web server on port {port}", "http", port)


def echo_server(port: int) -> Break:
    """Says what it hears."""
    return _stranger(f"an echo server on port {port}", "echo", port)


def hanging_up(port: int) -> Break:
    """Accepts and closes, as a proxy without a back end does."""
    return _stranger(f"who hangs up on port {port}", "closing", port)


def torch_store(port: int) -> Break:
    """The store of another job, or of a run that did not end."""
    return _stranger(f"a TCPStore on port {port}", "store", port)


def other_torchrun(port: int, run: str) -> Break:
    """A torchrun of another run, by its command line, that holds the port and is busy."""
    options = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=n1:{port}")
    quick = (sys.executable, "-I", "-S")
    command = f"{shlex.join(quick)} $here/torchrun {shlex.join(options)} --rdzv-id={run}"
    script = f'here=$(mktemp -d); cp "$0" "$here/torchrun"; exec {command} silent {port}'
    program = str(FOLDER / "strangers.py")
    return Break(f"a torchrun at port {port}", beside=("sh", "-c", script, program))


def _stranger(what: str, kind: str, port: int) -> Break:
    return Break(what, beside=_program("strangers.py", kind, str(port)))


def _program(file: str, *arguments: str) -> tuple[str, ...]:
    # only torch needs the installed packages, which take a while to be found
    quick = () if "store" in arguments else ("-I", "-S")
    return (sys.executable, *quick, str(FOLDER / file), *arguments)
