"""Jobs on several machines with nothing wrong, however unusual they are: READY, without a finding.
What healthy.py is for one machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from faults.accelerators import RAILS
from faults.agreement import (
    FILES,
    HEALTH,
    NVML,
    OF_PALS,
    OF_SKYPILOT,
    OF_TASK,
    OF_TWO_STEPS,
    SEARCHES,
    TWO_GPUS,
    TWO_H100,
    by,
    gpus,
    listed,
    tasks,
    tray,
)
from faults.inject import way_for_others
from faults.naming import ENDPOINT_ALONE, KUBERNETES, SERVICE, STATIC, SUBNET, TO_N1
from faults.naming import KNOWN as KNOWN_HERE
from faults.network import (
    ASKS_FOR_ECN,
    CLOSED_SECOND,
    GPU,
    IB0,
    LOSSY,
    NARROW,
    OPEN_NARROW,
    SWAPPED,
    USB,
    WIDE,
    aside,
    listen_queue,
    of_one_subnet,
    some_flows,
)
from faults.rails import (
    DMA,
    EXPOSED,
    LIMITED,
    OTHER_ROOT,
    POD,
    SECOND_KEY,
    VERBS,
    fabric,
    subnet,
    switched,
)
from faults.torchruns import torchrun
from faults.world import LIGHT, WHOLE, Seen, WorldFault, line, machines
from lab.faults import (
    DOCKER,
    IN_CONTAINER,
    Break,
    bridge,
    card_says,
    container,
    delay,
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
    masquerade,
    name_is,
    name_unknown,
    neighbour_is,
    own_name_is,
    own_name_unknown,
    resolver,
    ruled_tunnel,
    silent_server,
    source_table,
    tunnel,
)
from lab.host import HOSTS, NOBODY, Lab, Machine

LATE = 2.5
"""Seconds: rdzv.reach warns of what comes 5 s after the others, and a busy machine adds to it."""

THREE = ("n1", "n2", "n3")
NETWORK = ("--only", "net.mesh,net.payload,net.speed")
INFINIBAND = f"(cd $(mktemp -d)\n{RAILS % ''})\n{GPU}"
PARTITIONS = fabric(
    "for n in 0 1 2 3 4 5 6 7; do echo 0x801$n > tree/infiniband/mlx5_$n/ports/1/pkeys/0; done"
)
TWO_MAKES = f"""
cd $(mktemp -d)
{RAILS % "for n in 0 1 2 3 4 5 6; do echo 28.39.1002 > tree/infiniband/mlx5_$n/fw_ver; done"}
cd tree/infiniband/mlx5_7; echo MT4125 > hca_type; echo 22.36.1010 > fw_ver
{GPU}"""
CUT = LOSSY[0]
TO_SUBNET = "ip route add 192.168.50.0/24 via 10.77.0.3\n"
RP = "sysctl -qw net.ipv4.conf.all.rp_filter={0} net.ipv4.conf.eth0.rp_filter={0}"
LOOSE, STRICT = Break("loose", RP.format(2)), Break("strict", RP.format(1))
OTHER_WAY = Break("another way", "ip route add 10.77.0.2 via 10.78.0.2 dev eth1")
FIRST = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
SECOND = {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}

# as Ubuntu and Red Hat name the first interface of two kinds of hardware
RENAMED = """
ip link set eth0 down; ip link set eth0 name ens3; ip link set ens3 up
ip addr add fd77::3/64 dev ens3 nodad; ip route add default via 10.77.255.254
"""
DEBIAN = "sed -i '/^10\\..* '$(hostname)'$/s/^[0-9.]*/127.0.1.1/' /etc/hosts\n"
FQDN = "".join(f"10.77.0.{n} n{n}.cluster.example\n" for n in (1, 2, 3))
KNOWN = tuple(f"n{n}=10.77.0.{n}" for n in (1, 2, 3))
IN_DNS = (*(name_unknown(f"n{n}") for n in (1, 2, 3)), resolver("0.01", *KNOWN))
ALLOWED = firewall(
    "rules that count and accept, and one against a stranger",
    "counter",
    "ct state established,related accept",
    "ip saddr 10.77.0.0/16 counter accept",
    "ip saddr 203.0.113.0/24 drop",
)

# what Slurm says to the one task it starts on each of three machines, and torchrun would not mind
SLURM = {
    "SLURM_JOB_ID": "48121",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_NODELIST": "n[1-3]",
    "SLURM_NNODES": "3",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_NTASKS": "3",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_JOB_PARTITION": "batch",
    "SLURM_SUBMIT_HOST": "login1",
}


def slurm(number: int) -> dict[str, str]:
    return {
        "SLURM_NODEID": str(number),
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": f"n{number + 1}",
        "SLURM_TASK_PID": str(4000 + number),
        "SLURM_TOPOLOGY_ADDR": f"n{number + 1}",
    }


def late(lab: Lab, begun: Mapping[str, Any]) -> None:
    """The last machine takes a while to get going, as where the image comes over the network."""
    begun["n3"].stop()
    time.sleep(LATE)
    begun["n3"].cont()


def host_late(lab: Lab, begun: Mapping[str, Any]) -> None:
    """Rank 0's pod has its name, and takes a while to listen."""
    begun["n1"].stop()
    time.sleep(9)
    begun["n1"].cont()


def healthy(name: str, **how: object) -> WorldFault:
    return WorldFault(name, exit=0, **how)  # type: ignore[arg-type]


PLAIN = healthy("three machines")
WORLDS = (
    PLAIN,
    healthy("two machines", machines=machines(2)),
    healthy("four machines, a rank on each", machines=machines(4)),
    healthy(
        "a table of its own, a bridge and an address that nobody needs, and one hop",
        breaks={
            "n1": [hops(1), bridge("docker0", "10.77.17.1/24")],
            "n2": [
                source_table(
                    "10.77.0.2", "10.77.0.0/16 dev eth0", "default via 10.77.255.250 dev eth0"
                ),
                holds("10.77.0.9", "kube-ipvs0"),
            ],
        },
    ),
    healthy("five machines", machines=machines(5)),
    healthy("two machines with four ranks each", machines=machines(2), nproc=4),
    healthy(
        "tasks of srun with a GPU's mask each",
        machines=machines(2, setup=TWO_GPUS),
        wrap=tasks("$SLURM_LOCALID"),
    ),
    healthy(
        "tasks of srun with masks that are turned for whoever takes the first GPU",
        machines=machines(2, setup=TWO_GPUS),
        wrap=tasks("$((SLURM_LOCALID)),$((1 - SLURM_LOCALID))"),
    ),
    healthy(
        "tasks of srun with a GPU's mask each, which all call it 0",
        machines=machines(2, setup=TWO_GPUS),
        env={"LOCAL_RANK": "0"},
        wrap=tasks("$SLURM_LOCALID"),
    ),
    healthy(
        "tasks of srun, one with a GPU by its UUID, the other one by its number",
        machines=machines(2, setup=TWO_H100),
        wrap=tasks(OF_TASK % "GPU-2d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77 0"),
    ),
    healthy(
        "a number and the UUID of another GPU, of which CUDA counts the faster one first",
        machines=machines(2, setup=listed("NVIDIA L4", "NVIDIA H100")),
        wrap=tasks(OF_TASK % "GPU-2d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77 1"),
    ),
    healthy(
        "ranks of PALS with a GPU's mask each",
        machines=machines(2, setup=TWO_GPUS),
        wrap=by(OF_PALS % "$n"),
    ),
    healthy(
        "two sruns, one for each component of a heterogeneous job, whose ranks make one world",
        machines=machines(2),
        wrap=by(OF_TWO_STEPS % "$(($node * 2 + $n))"),
    ),
    healthy(
        "the run section of SkyPilot on two nodes",
        machines=machines(2),
        wrap=("sh", "-c", OF_SKYPILOT, "sh"),
    ),
    healthy(
        "tasks of srun, and their number as WORLD_SIZE of the batch script",
        machines=machines(2, setup=TWO_GPUS),
        env={"WORLD_SIZE": "4"},
        wrap=tasks("$SLURM_LOCALID"),
    ),
    healthy(
        "tasks of srun that all see both GPUs of their node",
        machines=machines(2, setup=TWO_GPUS),
        wrap=tasks("0,1"),
    ),
    healthy(
        "one node is a limited member of the partition, the others are full ones",
        machines=(Machine("n1", setup=LIMITED), *machines(3, setup=fabric(""))[1:]),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "limited members of the default partition, and NCCL_IB_PKEY names the full key",
        machines=machines(2, setup=SECOND_KEY),
        env={"NCCL_IB_PKEY": "1"},
        args=("--only", "net.rdma"),
    ),
    healthy(
        "HCAs and GPUs below one switch, whose ACS redirects nothing",
        machines=machines(2, setup=switched(0x11)),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "HCAs and GPUs below one switch, whose ACS is set up for ATS",
        machines=machines(2, setup=switched(0x5D, then=DMA)),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "ACS between HCAs and GPUs of a virtual machine",
        machines=machines(2, setup=switched(where="")),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "ACS and an IOMMU, and each GPU has a root port of its own",
        machines=machines(2, setup=switched(gpu=OTHER_ROOT, then=DMA)),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "ACS between HCAs and GPUs, without GPUDirect",
        machines=machines(2, setup=switched(then="rm -r /sys/kernel/mm/memory_peers\n")),
        args=("--only", "net.rdma"),
    ),
    healthy("IPv6 only", machines=machines(3, versions=(6,)), named=(6,)),
    healthy(
        "IPv6 only, with two interfaces each, and Gloo is told which",
        machines=machines(3, nics=2, versions=(6,)),
        named=(6,),
        env=FIRST,
    ),
    healthy("two IP versions, names lead to IPv4 first", named=(4, 6)),
    healthy("two IP versions, names lead to IPv6 first", named=(6, 4)),
    healthy("three interfaces each", machines=machines(3, nics=3)),
    healthy(
        "n3's NICs have each other's names, and each library is told the right one",
        machines=(*machines(2, nics=2), Machine("n3", nics=2, setup=SWAPPED)),
        env=FIRST,
        on={"n3": SECOND},
    ),
    healthy(
        "n3's NICs are swapped, and nobody names one",
        machines=(*machines(2, nics=2), Machine("n3", nics=2, setup=SWAPPED)),
    ),
    healthy(
        "listen queues of 128, as kernels had until 5.3, and 32 ranks",
        machines=machines(4),
        nproc=8,
        breaks={f"n{n}": [listen_queue(128)] for n in (1, 2, 3, 4)},
    ),
    healthy("another range of ports on one machine", breaks={"n2": [WIDE]}, machines=machines(4)),
    healthy(
        "two NICs in one subnet with a loose rp_filter",
        machines=of_one_subnet(2, 2, 2),
        env={"NCCL_SOCKET_IFNAME": "=eth1"},
    ),
    healthy(
        "two NICs in one subnet, of which the first answers for both",
        machines=of_one_subnet(1, 1, 1, ignore=0),
        env={"NCCL_SOCKET_IFNAME": "=eth1"},
    ),
    healthy("IPoIB beside Ethernet", machines=machines(3, nics=2, setup=IB0)),
    healthy(
        "a third network that is down on one node, and that nobody uses",
        machines=machines(3, nics=3, setup=IB0),
        breaks={"n3": [link_down("eth2")]},
        args=("--only", "net.interface,net.mesh,rdzv.reach"),
    ),
    healthy("docker0 on all, with the same address", machines=machines(3, setup=DOCKER)),
    healthy(
        "a container whose network is routed, and whose name is its host's",
        machines=(
            *machines(2, setup=TO_SUBNET),
            Machine("n3", setup=container(*SUBNET, KNOWN_HERE)),
        ),
        wrap=IN_CONTAINER,
    ),
    healthy(
        "such a container that is masqueraded on its way to the world alone",
        machines=(
            *machines(2, setup=TO_SUBNET),
            Machine(
                "n3",
                setup=container(
                    *(*SUBNET, KNOWN_HERE), masquerade("192.168.50.0/24", "10.77.0.0/16")
                ),
            ),
        ),
        wrap=IN_CONTAINER,
    ),
    healthy("docker0 on one", machines=(*machines(2), Machine("n3", setup=DOCKER))),
    healthy("one agent starts later than the others", act=late, after=0.0),
    healthy("rank 0 listens 9 s after the others came", act=host_late, after=0.0),
    healthy(
        "another user than root",
        machines=machines(3, setup=way_for_others()),
        user=NOBODY,
    ),
    healthy("MASTER_ADDR is an IPv4 address", master="10.77.0.1"),
    healthy("torchrun's static rendezvous, with an endpoint", env=STATIC, on=ENDPOINT_ALONE),
    healthy(
        "torchrun's c10d rendezvous, at its default port",
        env={"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1", "PET_NNODES": "3"}
        | {"PET_RDZV_ID": "4711"},
        on=ENDPOINT_ALONE,
    ),
    healthy(
        "torchrun's c10d rendezvous, at a name",
        env={"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1:29500", "PET_NNODES": "3"}
        | {"PET_RDZV_ID": "4711"},
        on={name: {"MASTER_ADDR": None, "MASTER_PORT": None} for name in ("n1", "n2", "n3")},
    ),
    healthy(
        "a torchrun of c10d that no node has a number for",
        nproc=0,
        env=torchrun(3, "--nproc-per-node=2"),
    ),
    healthy(
        "torchruns of c10d with one --node-rank, which none reads, at n2: the port is held on n1",
        nproc=0,
        env=torchrun(3, "--node-rank=7", place="n2:29500"),
        breaks={"n1": (silent_server(29500),)},
    ),
    healthy(
        "the variables of a torchrun that is not there, where rank 0 is not",
        on={"n2": {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}},
    ),
    healthy(
        "a torchrun of c10d in a job of SLURM, at the second node",
        nproc=0,
        env=SLURM | torchrun(3, place="n2:29500"),
        on={f"n{number + 1}": slurm(number) for number in range(3)},
    ),
    healthy("a number of MASTER_ADDR begins with a 0 that changes nothing", master="10.77.0.01"),
    healthy("MASTER_ADDR is an IPv6 address", master="fd77::1", named=(6, 4)),
    healthy(
        "MASTER_ADDR is a full name, the machines' own names are short",
        machines=machines(3, hosts=HOSTS + FQDN),
        master="n1.cluster.example",
    ),
    healthy(
        "the machines' own names are full, MASTER_ADDR is a short one",
        machines=tuple(
            Machine(f"n{n}", hostname=f"n{n}.cluster.example", hosts=HOSTS + "10.77.0.1 n1\n")
            for n in (1, 2, 3)
        ),
    ),
    healthy(
        "one node is given another address of rank 0's",
        machines=(Machine("n1", setup="ip addr add 10.77.0.101/16 dev eth0\n"), *machines(3)[1:]),
        breaks={"n2": (name_is("n1", "10.77.0.101"),)},
    ),
    healthy(
        "a sidecar listens, and leaves the job's connections alone",
        breaks={"n1": (silent_server(15006),), "n2": (silent_server(15001),)},
    ),
    healthy("names are in DNS only", breaks=dict.fromkeys(THREE, IN_DNS)),
    healthy(
        "the second interface, MASTER_ADDR its address",
        machines=machines(3, nics=2),
        master="10.78.0.1",
        env=SECOND,
    ),
    healthy(
        "the second interface, MASTER_ADDR the name on the first",
        machines=machines(3, nics=2),
        env=SECOND,
    ),
    healthy(
        "an operator of Kubernetes calls rank 0's pod localhost there",
        machines=machines(2),
        env={"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        on={"n1": {"MASTER_ADDR": "localhost"}},
    ),
    healthy(
        "MASTER_ADDR is localhost where rank 0 is, without an operator",
        on={"n1": {"MASTER_ADDR": "localhost"}},
    ),
    healthy("MASTER_ADDR is 0.0.0.0 where rank 0 is", on={"n1": {"MASTER_ADDR": "0.0.0.0"}}),
    healthy(
        "one node's own name leads to IPv6, and the interface is named",
        env={"GLOO_SOCKET_IFNAME": "eth0"},
        breaks={"n2": (own_name_is("fd77::2"),)},
    ),
    healthy(
        "rank 0's node has a virtual address beside its own",
        env={"GLOO_SOCKET_IFNAME": "eth0"},
        breaks={"n1": (Break("a VIP", "ip addr add 192.168.9.9/32 dev eth0"),)},
    ),
    healthy(
        "all have a service's address beside their own, as in Docker Swarm",
        breaks={n: (Break("a VIP", "ip addr add 10.77.0.100/32 dev eth0"),) for n in THREE},
    ),
    healthy(
        "all open ports 50000-51000 alone, and have this range",
        breaks=dict.fromkeys(THREE, (NARROW, OPEN_NARROW)),
    ),
    healthy("a VPN of n3 for another network", breaks={"n3": (tunnel("10.200.0.0/16"),)}),
    healthy(
        "a VPN of n3 with a table for another network",
        breaks={"n3": (ruled_tunnel("10.200.0.0/16", 51820),)},
    ),
    healthy(
        "a permanent ARP entry that is right, and one of a stranger's",
        breaks={
            "n2": (
                neighbour_is("10.77.0.3", "02:77:00:00:00:03"),
                neighbour_is("10.77.0.77", "02:de:ad:00:00:01"),
            )
        },
    ),
    healthy(
        "Gloo takes two interfaces that both lead to the others",
        machines=machines(3, nics=2),
        env={"GLOO_SOCKET_IFNAME": "eth0,eth1"},
    ),
    healthy(
        "InfiniBand with a subnet for each rail",
        machines=machines(2, setup=subnet("fec0:0000:0000:000$n")),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "pods of which one was not given its InfiniBand, and NCCL_IB_DISABLE",
        machines=(
            Machine("n1", setup=EXPOSED + VERBS),
            Machine("n2", setup=VERBS),
        ),
        env=POD | {"NCCL_IB_DISABLE": "1"},
        args=("--only", "net.rdma,host.limits"),
    ),
    healthy(
        "MASTER_ADDR is a service's address, and rank 0 reaches itself by it",
        env=KUBERNETES,
        master=SERVICE,
        breaks=dict.fromkeys(THREE, (TO_N1,)),
    ),
    healthy("jumbo frames on all", machines=machines(3, mtu=9000)),
    healthy(
        "one machine calls its interface ens3",
        machines=(*machines(2), Machine("n3", setup=RENAMED)),
    ),
    healthy(
        "one machine calls its interface ens3, and each names its own",
        machines=(*machines(2), Machine("n3", setup=RENAMED)),
        on={
            name: {"GLOO_SOCKET_IFNAME": nic, "NCCL_SOCKET_IFNAME": nic}
            for name, nic in (("n1", "eth0"), ("n2", "eth0"), ("n3", "ens3"))
        },
    ),
    healthy(
        "variables that may differ do",
        on={
            "n1": {"NCCL_DEBUG": "INFO", "HOSTNAME": "n1", "TMPDIR": "/tmp", "SHLVL": "2"},
            "n2": {"HOME": "/tmp", "LANG": "en_US.UTF-8", "HOSTNAME": "n2", "LC_ALL": "C"},
            "n3": {"HOSTNAME": "n3", "USER": "ada", "SSH_CONNECTION": "10.77.0.1 51 10.77.0.3 22"},
        },
    ),
    healthy(
        "a proxy for the web on one of them",
        on={"n2": {"http_proxy": "http://proxy.example:3128", "no_proxy": "localhost"}},
    ),
    healthy("Slurm's variables", env=SLURM, on={f"n{n + 1}": slurm(n) for n in range(3)}),
    healthy("192.168.77.0/24", subnet="192.168.77.0/24"),
    healthy("one clock is 50 ms ahead", machines=(*machines(2), Machine("n3", clock=0.05))),
    healthy("a firewall that lets the job through on one", breaks={"n2": (ALLOWED,)}),
    healthy(
        "docker0 has one MAC address on all",
        machines=machines(
            3,
            setup="ip link add docker0 address 02:42:ac:11:00:01 type bridge\n"
            "ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up\n",
        ),
    ),
    healthy(
        "connections are forgotten after a day, as kube-proxy sets it",
        breaks=dict.fromkeys(THREE, (forget_idle(86400),)),
    ),
    healthy("20 ms from anyone to anyone", breaks=dict.fromkeys(THREE, (delay(5),))),
    healthy("50 ms from anyone to anyone", breaks=dict.fromkeys(THREE, (delay(12.5),))),
    healthy("a token of the job on all", env={"PREFLIGHT_TOKEN": "only-for-this-job"}),
    healthy("another MASTER_PORT", env={"MASTER_PORT": "12345"}),
    healthy(
        "the hosts' names resolve to 127.0.1.1, as on Debian, and the interface is named",
        machines=machines(3, setup=DEBIAN),
        env=FIRST,
    ),
    healthy(
        "no machine knows another's name, addresses are given",
        breaks={name: [name_unknown(n) for n in THREE if n != name] for name in THREE},
        master="10.77.0.1",
    ),
    healthy(
        "the hosts' names do not resolve, addresses and interfaces are given",
        breaks={name: (own_name_unknown(),) for name in THREE},
        master="10.77.0.1",
        env=FIRST,
    ),
    # look-alikes of what depends on the flow, on interfaces and on counters
    healthy(
        "two interfaces that both lead to the others, NCCL takes both",
        machines=machines(3, nics=2, setup=GPU),
        env={"NCCL_SOCKET_IFNAME": "eth"},
        args=NETWORK,
    ),
    healthy(
        "a VLAN below eth0 is for something else, and ^ leaves it out",
        machines=tuple(
            Machine(n, setup=GPU + aside("eth0.2093", f"172.30.{i}"))
            for i, n in enumerate(THREE, 1)
        ),
        env={"NCCL_SOCKET_IFNAME": "^eth0.2093,lo"},
        args=NETWORK,
    ),
    healthy(
        "the second interface leads nowhere, and =eth0 is exact",
        machines=machines(3, nics=2, setup=GPU),
        env={"NCCL_SOCKET_IFNAME": "=eth0"},
        breaks=dict.fromkeys(THREE, (CLOSED_SECOND,)),
        args=NETWORK,
    ),
    healthy(
        "a second interface that leads nowhere, nobody names it and no GPU asks for it",
        machines=machines(3, nics=2),
        breaks=dict.fromkeys(THREE, (CLOSED_SECOND,)),
    ),
    healthy(
        "docker0 on all nodes with GPUs, which NCCL leaves out",
        machines=machines(2, setup=GPU + DOCKER),
        args=NETWORK,
    ),
    healthy(
        "NCCL has InfiniBand for its data, and a USB network beside it",
        machines=machines(2, setup=INFINIBAND + USB),
        args=NETWORK,
    ),
    healthy(
        "a card that counted damaged frames last year",
        breaks={"n2": (card_says("statistics/rx_crc_errors", "4711"),)},
    ),
    healthy("a card of 400 Gbit/s, full duplex", breaks={"n2": (card_says("duplex", "full"),)}),
    healthy(
        "all links went down fourteen times, with their switch",
        breaks=dict.fromkeys(THREE, (flapped(14),)),
    ),
    healthy("a link that was unplugged twice", breaks={"n3": (flapped(2),)}),
    healthy(
        "a firewall that allows 300 connections, of four machines with eight ranks each",
        machines=machines(4),
        nproc=8,
        breaks={"n2": (firewall("enough", "ct state new ct count over 300 drop"),)},
    ),
    healthy(
        "two paths of one MTU, which is less than the interfaces', and the kernel is told",
        machines=machines(3, setup="ip route change 10.77.0.0/16 dev eth0 mtu 1300\n"),
        breaks={"n2": (CUT, some_flows(2, "meta length > 1320 drop"))},
    ),
    healthy(
        "two racks of GB200, two trays of each",
        machines=(
            Machine("n1", setup=tray(1)),
            Machine("n2", setup=tray(1)),
            Machine("n3", setup=tray(1, "rack-8")),
            Machine("n4", setup=tray(1, "rack-8")),
        ),
        env=NVML,
        args=HEALTH,
    ),
    healthy(
        "two trays of GB200 without IMEX channels, and NCCL told to go over the network",
        machines=(
            Machine("n1", setup=tray(1, channel="")),
            Machine("n2", setup=tray(1, channel="")),
        ),
        env={**NVML, "NCCL_MNNVL_ENABLE": "0"},
        args=HEALTH,
    ),
    healthy(
        "nodes with GPUs of two makes of board, each with a VBIOS of its own",
        machines=(
            Machine("n1", setup=gpus(2, "vbios = 96.00.A5.00.01", "board = 369885406")),
            Machine("n2", setup=gpus(2, "vbios = 96.00.A5.00.01", "board = 369885406")),
            Machine("n3", setup=gpus(2, "vbios = 96.10.74.00.1A", "board = 354554078")),
        ),
        env=NVML,
        args=HEALTH,
    ),
    healthy(
        "what accelerate launch says where nothing is chosen, on one node alone",
        on={"n2": {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "False"}},
    ),
    healthy("0.1 % is lost on one", breaks={"n2": (CUT, lose(0.1))}),
    healthy("0.2 % is lost on all", breaks=dict.fromkeys(THREE, (CUT, lose(0.2)))),
    healthy(
        "a firewall that allows 400 new connections a second",
        breaks=dict.fromkeys(THREE, (limit_syns(400),)),
    ),
    healthy(
        "a firewall that allows 200 connections",
        machines=machines(4),
        nproc=4,
        breaks=dict.fromkeys(THREE, (firewall("many", "ct state new ct count over 200 drop"),)),
    ),
    healthy("0.3 % is lost on one", breaks={"n3": (CUT, lose(0.3))}),
    healthy(
        "a prefix that matches one interface",
        machines=machines(2, setup=GPU),
        env={"NCCL_SOCKET_IFNAME": "eth"},
        args=NETWORK,
    ),
    healthy(
        "HCAs of two makes, each with firmware of its own",
        machines=machines(2, setup=TWO_MAKES),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "a partition of InfiniBand for each rail, on both nodes the same",
        machines=machines(2, setup=PARTITIONS),
        args=("--only", "net.rdma"),
    ),
    healthy(
        "1024 open files for 32 ranks in groups of two and four",
        machines=machines(4, setup=GPU, limits={"nofile": "1024:8192"}),
        nproc=8,
        env={"PARALLELISM_CONFIG_TP_SIZE": "2", "PARALLELISM_CONFIG_CP_SIZE": "4"},
        args=FILES,
    ),
    healthy(
        "CUDA_VISIBLE_DEVICES is empty on all nodes: a try on the CPU",
        machines=machines(3, setup=gpus(2)),
        env={**NVML, "CUDA_VISIBLE_DEVICES": ""},
        nproc=2,
        args=("--only", "env.identity,rdzv.reach,agree.*"),
    ),
    healthy(
        "an asymmetric route, and a loose rp_filter",
        machines=machines(3, nics=2),
        breaks={"n3": (LOOSE, OTHER_WAY), "n2": (LOOSE,)},
    ),
    healthy(
        "a route to rank 0 by the other interface, and a loose rp_filter",
        machines=machines(3, nics=2),
        breaks={"n2": (LOOSE, Break("other", "ip route add 10.77.0.1 dev eth1 src 10.77.0.2"))},
    ),
    healthy(
        "a strict rp_filter, and routes that agree",
        machines=machines(3, nics=2),
        breaks=dict.fromkeys(THREE, (STRICT,)),
    ),
    healthy(
        "an operator of Kubernetes counts pods in RANK and WORLD_SIZE",
        env={"WORLD_SIZE": "3", "PET_NNODES": "3", "PET_NPROC_PER_NODE": "2", **KUBERNETES},
        on={n: {"RANK": str(i), "PET_NODE_RANK": str(i)} for i, n in enumerate(THREE)},
        nproc=2,
    ),
    healthy(
        "320 open files for two ranks",
        machines=machines(2, limits={"nofile": "320"}),
        args=(*LIGHT[:1], LIGHT[1] + ",host.limits", *LIGHT[2:]),
    ),
    healthy(
        "a search domain of n3 has the name of rank 0's node",
        breaks={"n3": (name_unknown("n1"), resolver("0", "n1.corp.example=10.77.0.1"), SEARCHES)},
    ),
    healthy("n3 asks for ECN, and all lets it pass", breaks={"n3": (ASKS_FOR_ECN,)}),
    healthy(
        "rules that count connections to MASTER_PORT, and let 64 pass",
        nproc=2,
        breaks={
            "n1": (limit_connections(64, 29500), limit_connections(64, 29500, each=True)),
        },
    ),
    healthy(
        "no machine scales windows",
        breaks=dict.fromkeys(THREE, (Break("off", "sysctl -qw net.ipv4.tcp_window_scaling=0"),)),
    ),
    healthy("few ephemeral ports, and enough", breaks={"n2": (few_ports(50000, 50600),)}),
    healthy(
        "1024 open files",
        machines=machines(3, limits={"nofile": "1024"}),
        args=(*LIGHT[:1], LIGHT[1] + ",host.limits", *LIGHT[2:]),
    ),
    healthy(
        "the limits of open files differ, and all are high enough",
        machines=(*machines(2), Machine("n3", limits={"nofile": "8192"})),
    ),
)

TORCH = (
    "MASTER_ADDR is a service's address, and rank 0 reaches itself by it",
    "an operator of Kubernetes calls rank 0's pod localhost there",
    "three machines",
    "IPv6 only",
    "the second interface, MASTER_ADDR its address",
)
WITH_TORCH = tuple(replace(world, args=WHOLE) for world in WORLDS if world.name in TORCH)


def alarms(seen: Seen) -> list[str]:
    """All that is not as it should be where nothing is wrong."""
    found = [line(finding) for finding in seen.findings]
    found += [f"{name}: exit code {e.code}" for name, e in seen.ended.items() if e.code != 0]
    found += [f"left behind: {text}" for text in seen.left]
    verdict = seen.report.get("verdict", f"no report: {seen.trouble}")
    return found + ([] if verdict == "ready" else [f"the verdict: {verdict}"])
