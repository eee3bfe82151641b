"""Names, addresses, resolvers: faults of who is where, on several machines.

What leads a node to the wrong machine is told by who it is that goes wrong, so most of these break
one of three machines; what all have wrong is the job's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faults.agents import all_in, once
from faults.world import PORT, WorldFault, machines
from lab.faults import (
    DOCKER,
    IN_CONTAINER,
    Break,
    container,
    firewall,
    http_server,
    masquerade,
    name_is,
    name_unknown,
    own_name_is,
    own_name_unknown,
    resolver,
    service,
    take_address,
)
from lab.host import Lab, Machine

N1 = "10.77.0.1"
NOBODY = "10.77.0.99"
PRIVATE = "192.168.0.0/16"
"""Here Gloo lets the node dial that calls itself by the loopback; in 10/8 it does not have to."""
NO_IPV6 = firewall(
    f"a firewall drops port {PORT} over IPv6 alone", f"meta nfproto ipv6 tcp dport {PORT} drop"
)


C10D = {
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": f"{N1}:{PORT}",
    "PET_RDZV_ID": "1792840",
}
SERVICE = "10.96.0.10"
TO_N1 = service(SERVICE, PORT, N1)
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
STATIC = {"PET_RDZV_BACKEND": "static", "PET_RDZV_ENDPOINT": f"{N1}:{PORT}", "PET_NNODES": "3"}
NO_MASTER: Mapping[str, str | None] = {"MASTER_ADDR": None, "MASTER_PORT": None}
ENDPOINT_ALONE = dict.fromkeys(("n1", "n2", "n3"), NO_MASTER)
NO_SUCH_NAME = resolver("0")


def by_dns(how: str) -> tuple[Break, ...]:
    """The first machine's name is in DNS alone."""
    return (name_unknown("n1"), resolver(how, f"n1={N1}"))


GONE = Break(
    "a name server before it that is down", f"sed -i '1i nameserver {NOBODY}' /etc/resolv.conf"
)


def learn_n1(lab: Lab, _: Mapping[str, Any]) -> None:
    """From now on all know the first machine's name."""
    for host in lab:
        host.sh(f"echo {N1} n1 >> /etc/hosts")


SUBNET = ("192.168.50.2/24", "192.168.50.1/24")
KNOWN = "10.77.0.1 n1\\n10.77.0.2 n2\\n192.168.50.2 n3\\n"
BEHIND_NAT = Machine("n3", setup=container(*SUBNET, KNOWN, masquerade("192.168.50.0/24")))


PUBLISHED = (
    "chain pre { type nat hook prerouting priority -100; "
    f"fib daddr type local tcp dport {PORT} dnat to 172.17.0.2; }}\n"
)


CLONED = (
    "ip link set eth0 down; ip link set eth0 address 02:77:00:00:00:02; ip link set eth0 up\n"
    "ip addr add fd77::3/64 dev eth0 nodad; ip route add default via 10.77.255.254\n"
)
"""What takes the link down takes these with it."""
FLOODED = Break(
    "the switch does not learn where its MAC address is",
    switch="ip link set {port} type bridge_slave learning off fdb_flush",
)
"""So that frames for it reach both, and everything passes: what is seen is the address alone."""
TAKEN_OVER = Break(
    "the switch sends frames for its MAC address to it alone",
    switch="bridge fdb replace 02:77:00:00:00:02 dev {port} master static",
)

FAULTS = (
    # --- MASTER_ADDR does not resolve ---
    WorldFault(
        "n2 learns the name of n1 3 s after its start",
        *("net.name", "master-late", "n2"),
        status="warn",
        breaks={"n2": [name_unknown("n1"), NO_SUCH_NAME]},
        act=lambda lab, _: lab["n2"].sh(f"echo {N1} n1 >> /etc/hosts"),
        after=3.0,
        exit=0,
    ),
    WorldFault(
        "a name server can't answer for n2 for 4 s",
        *("net.name", "master-late", "n2"),
        status="warn",
        breaks={"n2": [name_unknown("n1"), resolver("failing")]},
        act=lambda lab, _: lab["n2"].sh(f"echo {N1} n1 >> /etc/hosts"),
        after=4.0,
        exit=0,
    ),
    WorldFault(
        "n3 learns the name of n1 8 s after its start, and comes as late",
        *("net.name", "master-late", "n3"),
        status="warn",
        breaks={"n3": [name_unknown("n1"), NO_SUCH_NAME]},
        act=lambda lab, _: lab["n3"].sh(f"echo {N1} n1 >> /etc/hosts"),
        after=8.0,
        exit=0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "rank 0's own name comes 5 s after its start, for all",
        *("net.name", "master-late", "n[1-3]"),
        status="warn",
        breaks={name: [name_unknown("n1"), NO_SUCH_NAME] for name in ("n1", "n2", "n3")},
        act=learn_n1,
        after=5.0,
        exit=0,
    ),
    WorldFault(
        "one node does not know MASTER_ADDR",
        *("net.name", "master-unresolved", "n3"),
        breaks={"n3": [name_unknown("n1"), NO_SUCH_NAME]},
        arrive=6,
    ),
    WorldFault(
        "no node knows MASTER_ADDR",
        *("net.name", "master-unresolved", "n1 · MASTER_ADDR"),
        subjects=("n2 · MASTER_ADDR", "n3 · MASTER_ADDR"),
        master="gpu-node-1",
        breaks={name: [NO_SUCH_NAME] for name in ("n1", "n2", "n3")},
        arrive=6,
    ),
    WorldFault(
        "the name server of one node is silent",
        *("net.name", "resolver-silent", "n3"),
        breaks={"n3": by_dns("silent")},
        arrive=6,
    ),
    WorldFault(
        "the name server of one node refuses to serve it",
        *("net.name", "resolver-silent", "n3"),
        breaks={"n3": by_dns("refusing")},
        arrive=6,
    ),
    WorldFault(
        "the name server of one node takes its time",
        *("net.name", "resolver-slow", "n3"),
        status="warn",
        breaks={"n3": by_dns("0.8")},
        exit=0,
    ),
    WorldFault(
        "the first of n3's two name servers is down, the second one knows n1",
        *("net.name", "resolver-slow", "n3"),
        status="warn",
        breaks={"n3": (*by_dns("0"), GONE)},
        exit=0,
        slower=30.0,
        innocent=("n1", "n2"),
    ),
    # --- MASTER_ADDR leads elsewhere ---
    WorldFault(
        "MASTER_ADDR leads one node to another one",
        *("rdzv.reach", "address-elsewhere", "n3"),
        breaks={"n3": [name_is("n1", "10.77.0.2")]},
        says="10.77.0.1",
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR leads one node to an address of nobody",
        *("rdzv.reach", "address-elsewhere", "n3"),
        breaks={"n3": [name_is("n1", NOBODY)]},
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR leads one node to a web server",
        *("rdzv.reach", "address-elsewhere", "n3"),
        breaks={"n3": [name_is("n1", "10.77.0.2")], "n2": [http_server(PORT)]},
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR leads one node to another one by its name server",
        *("rdzv.reach", "address-elsewhere", "n2"),
        breaks={"n2": [name_unknown("n1"), resolver("0", "n1=10.77.0.3")]},
        says="10.77.0.1",
        arrive=6,
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "one node has MASTER_ADDR at 127.0.1.1, from an /etc/hosts of another",
        *("net.name", "master-loopback", "n2*"),
        breaks={"n2": [name_is("n1", "127.0.1.1")]},
        arrive=6,
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "one node takes MASTER_ADDR for a bridge of its own",
        *("rdzv.reach", "address-elsewhere", "n3"),
        breaks={"n3": [Break("Docker is installed", DOCKER), name_is("n1", "172.17.0.1")]},
        says="an address of its own",
        exit=5,
        arrive=6,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "MASTER_ADDR is the address of docker0, which is alike on all",
        *("rdzv.reach", "address-own", "n1 · MASTER_ADDR"),
        subjects=("n2 · MASTER_ADDR", "n3 · MASTER_ADDR"),
        machines=machines(3, setup=DOCKER),
        master="172.17.0.1",
        says="each met only itself",
        exit=5,
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR is $(hostname) on each node",
        *("rdzv.reach", "address-own", "n2 · MASTER_ADDR"),
        subjects=("n3 · MASTER_ADDR",),
        on={name: {"MASTER_ADDR": name} for name in ("n1", "n2", "n3")},
        says="rank 0 is elsewhere",
        exit=5,
        arrive=6,
        innocent=("n1",),
    ),
    WorldFault(
        "one node has its own address for the name of MASTER_ADDR",
        *("rdzv.reach", "address-elsewhere", "n2"),
        breaks={"n2": [name_is("n1", "10.77.0.2")]},
        says="/etc/hosts line",
        exit=5,
        arrive=6,
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "MASTER_ADDR is the second node",
        *("net.name", "master-elsewhere", "n1 · MASTER_ADDR"),
        master="n2",
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR is an address of nobody",
        *("net.name", "master-elsewhere", "n1 · MASTER_ADDR"),
        master=NOBODY,
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR is localhost on all nodes",
        *("env.identity", "address-loopback", "n2*"),
        subjects=("n3*",),
        master="localhost",
        arrive=6,
    ),
    WorldFault(
        "WORLD_SIZE of an earlier job, of three ranks",
        *("env.identity", "world-size-mismatch", "n1 · rank 0"),
        env={"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        on={f"n{n + 1}": {"RANK": str(n)} for n in range(3)},
        says="--nodes 3",
        arrive=6,
    ),
    WorldFault(
        "WORLD_SIZE of an earlier job, and a node that starts nothing",
        *("env.identity", "world-size-mismatch", "n1 · rank 0"),
        env={"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        on={f"n{n + 1}": {"RANK": str(n)} for n in range(3)},
        also=("rdzv.reach absent",),
        absent=("n3",),
    ),
    WorldFault(
        "MASTER_ADDR has a carriage return on one node",
        *("env.identity", "address-malformed", "n3*"),
        on={"n3": {"MASTER_ADDR": "n1\r"}},
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR is a name of digits alone",
        *("env.identity", "address-malformed", "4711 · rank 0"),
        subjects=("n2 · rank 1", "n3 · rank 2"),
        machines=(Machine("n1", hostname="4711"), *machines(3)[1:]),
        master="4711",
        arrive=6,
    ),
    WorldFault(
        "MASTER_ADDR has an IPv6 address first, and IPv6 is dropped",
        *("rdzv.reach", "address-silent", "n1 · MASTER_ADDR"),
        named=(6, 4),
        breaks={"n1": [NO_IPV6]},
    ),
    # --- the nodes' own names ---
    WorldFault(
        "one node's own name is 127.0.1.1, in 192.168",
        *("net.name", "hostname-loopback", "n2"),
        subnet=PRIVATE,
        breaks={"n2": [own_name_is()]},
    ),
    WorldFault(
        "one node's own name is 127.0.1.1, in 10",
        *("net.name", "hostname-loopback", "n2"),
        status="warn",
        breaks={"n2": [own_name_is()]},
        exit=0,
    ),
    WorldFault(
        "one node does not know its own name",
        *("net.name", "hostname-unusable", "n2"),
        subnet=PRIVATE,
        breaks={"n2": [own_name_unknown(), NO_SUCH_NAME]},
    ),
    WorldFault(
        "n2 and n3 are clones of n1, with its hostname",
        *("net.name", "hostname-of-another", "n1#2"),
        subjects=("n1#3",),
        subnet=PRIVATE,
        machines=tuple(Machine(n, hostname="n1") for n in ("n1", "n2", "n3")),
        breaks=dict.fromkeys(("n1", "n2", "n3"), (name_is("n1", "192.168.0.1"),)),
    ),
    WorldFault(
        "one node takes another one's name for an address of nobody",
        *("agree.names", "resolution-differs", "n2"),
        status="warn",
        breaks={"n2": [name_is("n3", NOBODY)]},
        exit=0,
    ),
    # --- an address that is translated on the way ---
    WorldFault(
        "a service's address without hairpin: rank 0 does not reach itself",
        *("rdzv.reach", "self-unreachable", "n1 · MASTER_ADDR"),
        env=KUBERNETES,
        master=SERVICE,
        breaks={"n1": [service(SERVICE, PORT)]} | dict.fromkeys(("n2", "n3"), (TO_N1,)),
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "a service's address that leads nowhere",
        *("rdzv.reach", "leader-elsewhere", "n1 · MASTER_ADDR"),
        env=KUBERNETES,
        master=SERVICE,
        breaks={name: [service(SERVICE, PORT)] for name in ("n1", "n2", "n3")},
        innocent=("n2", "n3"),
        arrive=6,
    ),
    WorldFault(
        "a pod's MASTER_ADDR is another pod's, with a subnet of its own",
        *("rdzv.reach", "leader-elsewhere", "n1 · MASTER_ADDR"),
        says="an address of n2",
        env=KUBERNETES,
        master=SERVICE,
        breaks={"n2": [Break("another address", f"ip addr add {SERVICE}/32 dev eth0")]}
        | {n: [Break("a way", f"ip route add {SERVICE} via 10.77.0.2")] for n in ("n1", "n3")},
        arrive=6,
    ),
    # --- a node behind NAT ---
    WorldFault(
        "n3 is a container behind a bridge, and masqueraded",
        *("net.mesh", "behind-nat", "n3"),
        machines=(*machines(2), BEHIND_NAT),
        wrap=IN_CONTAINER,
        says="n3 is 192.168.50.2, the others see 10.77.0.3",
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "n2 of two is a virtual machine behind NAT",
        *("net.mesh", "behind-nat", "n2"),
        machines=(
            Machine("n1"),
            Machine(
                "n2",
                setup=container(
                    *(
                        "192.168.122.77/24",
                        "192.168.122.1/24",
                        "10.77.0.1 n1\\n192.168.122.77 n2\\n",
                    ),
                    masquerade("192.168.122.0/24"),
                    "virbr0",
                ),
            ),
        ),
        wrap=IN_CONTAINER,
        innocent=("n1",),
    ),
    WorldFault(
        "all but rank 0 are containers that have one address, and publish nothing",
        *("net.mesh", "behind-nat", "n2"),
        subjects=("n3",),
        machines=(
            Machine("n1"),
            *(
                Machine(
                    f"n{n}",
                    setup=container(
                        *("172.17.0.2/16", "172.17.0.1/16", f"10.77.0.1 n1\\n172.17.0.2 n{n}\\n"),
                        masquerade("172.17.0.0/16"),
                    ),
                )
                for n in (2, 3)
            ),
        ),
        wrap=IN_CONTAINER,
        innocent=("n1",),
    ),
    WorldFault(
        "containers in the bridges of their hosts, of which MASTER_PORT alone is published",
        *("net.mesh", "behind-nat", "n2"),
        subjects=("n3",),
        machines=tuple(
            Machine(
                f"n{n}",
                setup=container(
                    *("172.17.0.2/16", "172.17.0.1/16", f"172.17.0.2 n{n}\\n"),
                    (PUBLISHED if n == 1 else "") + masquerade("172.17.0.0/16"),
                ),
            )
            for n in (1, 2, 3)
        ),
        master=N1,
        wrap=IN_CONTAINER,
        also=("rdzv.reach self-unreachable",),
    ),
    # --- torchrun's rendezvous ---
    WorldFault(
        "one node has a wrong address for the name that torchrun hands out",
        *("rdzv.torchrun", "advertised-name-unusable", "n3"),
        breaks={"n3": [name_is("n1", NOBODY)]},
        env=C10D,
        master=N1,
        also=("agree.names resolution-differs",),
    ),
    WorldFault(
        "rank 0's own name, which torchrun hands out, is known to itself alone",
        *("rdzv.torchrun", "advertised-name-unusable", "n1"),
        status="warn",
        breaks={"n2": [name_unknown("n1")], "n3": [name_unknown("n1")]},
        env=C10D,
        master=N1,
        says="temporary failure in name resolution",
        exit=0,
    ),
    WorldFault(
        "no node takes torchrun's endpoint for itself",
        *("rdzv.torchrun", "store-host-missing", "n1 · PET_RDZV_ENDPOINT"),
        breaks={"n1": [own_name_is()]},
        env=C10D,
        master=N1,
        also=("net.name hostname-loopback",),
    ),
    WorldFault(
        "one node has another id of the rendezvous",
        *("rdzv.torchrun", "rendezvous-differs", "n3 · PET_RDZV_ID"),
        env=C10D,
        on={"n3": {"PET_RDZV_ID": "1792841"}},
    ),
    # --- an endpoint of torchrun's, and no MASTER_ADDR ---
    WorldFault(
        "PET_RDZV_ENDPOINT has no port, and the backend is static",
        *("env.identity", "port-missing", "n1*"),
        subjects=("n2*", "n3*"),
        env=STATIC | {"PET_RDZV_ENDPOINT": N1},
        on=ENDPOINT_ALONE,
    ),
    WorldFault(
        "PET_RDZV_ENDPOINT has no port, and nothing names a backend",
        *("env.identity", "port-missing", "n1*"),
        status="warn",
        subjects=("n2*", "n3*"),
        env={"PET_NNODES": "3", "PET_RDZV_ENDPOINT": "n1"},
        on=ENDPOINT_ALONE,
        exit=0,
    ),
    WorldFault(
        "PET_RDZV_ENDPOINT is another node's on one",
        *("rdzv.reach", "address-elsewhere", "n3*"),
        env=STATIC,
        on=ENDPOINT_ALONE | {"n3": {**NO_MASTER, "PET_RDZV_ENDPOINT": f"10.77.0.2:{PORT}"}},
        arrive=6,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "PET_RDZV_ENDPOINT has another port on one node",
        *("env.identity", "world-differs", "n3*"),
        env=STATIC,
        on=ENDPOINT_ALONE | {"n3": {**NO_MASTER, "PET_RDZV_ENDPOINT": f"{N1}:29501"}},
        arrive=6,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "PET_RDZV_ENDPOINT of c10d has another port on one node",
        *("env.identity", "world-differs", "n2*"),
        env=C10D | {"PET_NNODES": "3"},
        on=ENDPOINT_ALONE | {"n2": {**NO_MASTER, "PET_RDZV_ENDPOINT": N1}},
        arrive=6,
        innocent=("n1", "n3"),
    ),
    # --- two of a kind ---
    WorldFault(
        "one node's own name leads to IPv6, the others' to IPv4",
        *("net.mesh", "ip-versions-mixed", "n2 · eth0"),
        confidence="certain",
        breaks={"n2": [own_name_is("fd77::2")]},
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "MASTER_ADDR is 0.0.0.0 on all nodes",
        *("env.identity", "address-loopback", "n2 · rank 1"),
        subjects=("n3 · rank 2",),
        master="0.0.0.0",
        arrive=6,
    ),
    WorldFault(
        "two machines have one host name",
        *("agree.hardware", "host-duplicate", "n2*"),
        status="warn",
        machines=(*machines(2), Machine("n3", hostname="n2")),
        exit=0,
    ),
    WorldFault(
        "n3 has n2's MAC address, as a cloned virtual machine",
        *("agree.hardware", "mac-duplicate", "n2 · eth0"),
        subjects=("n3 · eth0",),
        machines=(*machines(2), Machine("n3", setup=CLONED), Machine("n4")),
        breaks={"n2": [FLOODED], "n3": [FLOODED]},
        innocent=("n1", "n4"),
    ),
    WorldFault(
        "n3 has n2's MAC address, and the switch sends all frames for it to n3",
        *("rdzv.reach", "mac-shared", "n2*"),
        subjects=("n3*",),
        says="02:77:00:00:00:02 for 10.77.0",
        confidence="possible",
        machines=(*machines(2), Machine("n3", setup=CLONED), Machine("n4")),
        breaks={"n2": [FLOODED], "n3": [FLOODED]},
        act=once(all_in, "n1", lambda lab, _: lab["n3"].break_(TAKEN_OVER)),
        after=0.0,
        innocent=("n1", "n4"),
        slower=20.0,
    ),
    WorldFault(
        "two machines have one address",
        *("agree.hardware", "address-duplicate", "n3*"),
        subjects=("n2*",),
        breaks={"n3": [take_address("10.77.0.2")]},
    ),
)
