"""Faults that `make faults` injects as well, and the tests do not: each takes 7 to 60 s, and the
tests have another one of its kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


F = TypeVar("F", bound=Named)

AT_LENGTH = frozenset(
    {
        # one machine
        "NVML takes longer to start than a quick run lasts",
        "a firewall drops what comes to MASTER_PORT",
        "rank 2 is stopped before it meets the others",
        "import torch takes 21 s",
        "import torch does not end",
        # several machines: the network
        "MASTER_PORT dropped for all",
        "a firewall resets two of four at MASTER_PORT",
        "a firewall prohibits MASTER_PORT to n2 alone",
        "the master takes 10 new connections a second",
        "n2's own firewall rejects what it sends to MASTER_PORT",
        "what n2 is told from MASTER_PORT is lost",
        "a sidecar on n2 closes all its connections",
        "an HTTP proxy takes all connections of n2",
        "n2 lets nothing in, and n4 nothing from n3",
        "n3 drops what a connection from n2 carries after 200 kB",
        "n2 is 60 ms away",
        "n2 has 2 Mbit/s",
        "n2 has 20 Mbit/s, and n3 loses 5 % of what it gets",
        "n3's switch port has an MTU of 1400, and n2 20 Mbit/s",
        "one of two paths into n2 has an MTU of 1300",
        "blackhole route from n2 to n3",
        "1024 open files for 32 ranks that FSDP joins once more",
        "n2 drops all but MASTER_PORT, with torch",
        "n2 lets nothing in, and n4 has no route to MASTER_ADDR",
        "n2 lets nothing in, and n4 does not come",
        "MASTER_PORT dropped for n2, and n3's clock is wrong",
        "MASTER_PORT takes one connection at a time",
        "the master takes 6 data connections",
        "MASTER_PORT prohibited for all",
        "MASTER_PORT reset for all",
        "the link of n2 is down",
        "n3 is dead",
        "n3 loses what is longer than 1300 bytes",
        "two machines, one drops all but MASTER_PORT",
        "all-reduces: n4 of five has 100 Mbit/s",
        "20 Mbit/s, and rank 1 is stopped in the middle of the all-reduces",
        "two machines with 0.3 Mbit/s each",
        "two machines with 5 Mbit/s each",
        "five machines with 20 Mbit/s each",
        "one of three flows out of n3 is lost, by ports alone",
        "half of the flows of rank 0's node are lost",
        "of two nodes one of four flows is lost",
        "three of four flows into n2 of eight ranks are lost",
        "eth matches a second interface that is closed, where no GPU is visible",
        "NCCL takes a network of Compose, too, by its own choice",
        "^docker leaves a VPN's interface to NCCL that leads nowhere",
        "the second interface of one node is closed, and NCCL takes both",
        "n3 loses 1 % of what it gets",
        "of four n2 loses 2 % of what it sends",
        "the card of n3 counts wrong CRCs, and loses 3 %",
        "the card of n2 counts late collisions",
        "one of four paths into n3 has an MTU of 1300, of three nodes",
        "one of two paths into n1 loses 15 %, of three nodes",
        "what n2 cuts itself loses most of what is longer than a frame",
        "n3 drops what comes from n2, since its way back leads over another interface (rp_filter)",
        "a NetworkPolicy: of four pods three take no connections, rank 0's does",
        "ufw on n2 knows the subnet of two nodes, and n3 is in another",
        "n2's ARP table has a permanent entry with n3's old MAC address",
        "a machine that is not the job's has n2's address",
        "Gloo is sent to lo beside eth0",
        "Gloo takes two interfaces, and n2's second one is closed",
        "n2's eth0 has another network's address first, and Gloo is sent to eth0",
        "a VPN of n3 takes in the cluster's subnet",
        "a VPN of n3 has a table for the cluster's subnet",
        "a node that is cabled to another InfiniBand subnet",
        "of two pods one was not given its InfiniBand",
        "an IOMMU that translates for the HCAs of a node",
        # names
        "MASTER_ADDR is 0.0.0.0 on all nodes",
        "WORLD_SIZE of the batch script is not the number of srun's tasks",
        "one node's own name leads to IPv6, the others' to IPv4",
        "MASTER_ADDR has a carriage return on one node",
        "MASTER_ADDR is a name of digits alone",
        "MASTER_ADDR leads one node to another one by its name server",
        "one node has MASTER_ADDR at 127.0.1.1, from an /etc/hosts of another",
        "rank 0's own name comes 5 s after its start, for all",
        "a service's address that leads nowhere",
        "a pod's MASTER_ADDR is another pod's, with a subnet of its own",
        "MASTER_ADDR is $(hostname) on each node",
        "MASTER_ADDR leads one node to a web server",
        "MASTER_ADDR leads one node to an address of nobody",
        "the name server of one node refuses to serve it",
        "two at once: a name that leads elsewhere and a firewall at MASTER_PORT",
        "one node has its own address for the name of MASTER_ADDR",
        # what must agree
        "CUDA_VISIBLE_DEVICES is empty on one node",
        "a task has GPU 0 by its UUID, another one by the beginning of it",
        "the GPUs of one of three nodes have other VBIOS",
        "one node has the second one as MASTER_ADDR",
        "one node's clock is 90 s ahead",
        "the clock of the first node is 12 s behind",
        "two at once: a firewall that resets MASTER_PORT and a setting",
        "one GPU of one of three nodes has other VBIOS, as after a repair",
        "of two trays of one rack each is in a clique of its own",
        "FSDP of an earlier launch is left over on one node",
        "of two nodes one has another Python",
        "two at once: another MASTER_PORT and a silent name server",
        # who comes
        "MASTER_PORT is taken on its host by the store of another job",
        "MASTER_PORT is taken on its host by a web server",
        "an agent comes when the others have given it up",
        "the host of the meeting is stopped, and goes on when all are gone",
        "an agent is killed while its rank reduces with the others",
        "an agent of another version of preflight",
        "a node without the token",
        "two nodes that both think that they lead",
        "a node of SLURM's list that is down",
        "an agent is stopped, and goes on when it has been given up",
        "few files on one node, and another one is absent",
        "only the node of rank 0 lacks the token",
        "MASTER_PORT is taken on its host by an echo server",
        "MASTER_PORT is taken on its host by who hangs up",
        "MASTER_PORT is taken on its host by a socket that does not listen",
        "all nodes with the node rank 1",
        "the network of a guest is cut once it is in",
        # another row has their code
        "one node has TORCH_DISTRIBUTED_DEBUG",
        "PET_RDZV_ENDPOINT of c10d has another port on one node",
        "one node has another MASTER_PORT",
        "PET_RDZV_ENDPOINT has another port on one node",
        "n3's two NICs are swapped, and GLOO_SOCKET_IFNAME names one",
        "containers in the bridges of their hosts, of which MASTER_PORT alone is published",
        "all but rank 0 are containers that have one address, and publish nothing",
        "one of four flows into n2 is lost",
        "ib0 is down on one node, whose NCCL takes eth0",
        "eth matches a second interface that is closed, and NCCL has GPUs",
        "Gloo is sent to a second network that is closed",
        "NCCL takes a container's veth, too, by its own choice",
        "n3 drops connections from n2",
        "n2 learns the name of n1 3 s after its start",
        "rank 0's node loses what is longer than 1300 bytes, and all have many settings",
        "n4 is not started, and n2 twice: the node list knows it",
        "PET_RDZV_ENDPOINT is another node's on one",
        "a firewall drops two of four at MASTER_PORT",
        "a node that counts one node more than the others",
        "/dev/shm of 1 MiB, with torch",
    }
)


STANDARD_AT_LENGTH = frozenset(
    {
        # nothing in them that a rank could meet, which a quick run does not
        "10,000 variables",
        "Kubeflow's variables",
        "a cluster's 66 variables",
        "a PMIX_RANK left over in the shell",
        "a shell that was a job step of one task",
        "a run that has just ended left TIME_WAIT on the port",
        "MASTER_PORT is in the ephemeral range, and reserved",
        "a name server that knows the names",
        "no name server, all names in /etc/hosts",
        "the host's name resolves to another machine",
        "the host's name resolves to 127.0.1.1, as on Debian",
        "MASTER_ADDR is the host's own name",
        "docker0 and virbr0 are there",
        "a short listen queue",
        "the connection tracking table is half full",
        "the kernel overcommits, and has promised more than there is",
        "another user, and /proc shows him his own processes only",
        "the working directory is read-only",
        "a firewall that lets in what goes over lo, and what was asked for",
        "another user, who may not read /etc/nsswitch.conf, and names resolve without it",
        "limits that others have as well: no core files, 8 MiB of stack, a month of CPU time",
        "another libnccl.so.2 lies on LD_LIBRARY_PATH",
        "the kernel does not overcommit, and there is room",
        "a queue's 20 GiB of address space, without GPUs",
        "the host's name resolves to 127.0.1.1, and is MASTER_ADDR",
        "TMPDIR is mounted noexec, and the caches of compiled kernels are elsewhere",
    }
)
"""Healthy machines that the tests look at with a quick run alone, and `make faults` at the standard
level, too."""


HEALTHY_AT_LENGTH = frozenset(
    {
        "0.1 % is lost on one",
        "0.2 % is lost on all",
        "a firewall that allows 200 connections",
        "a firewall that allows 400 new connections a second",
        "one machine calls its interface ens3",
        "two IP versions, names lead to IPv6 first",
        "docker0 on one",
        "MASTER_ADDR is a full name, the machines' own names are short",
        "another MASTER_PORT",
        "192.168.77.0/24",
        "jumbo frames on all",
        "320 open files for two ranks",
        "four machines, a rank on each",
        "all links went down fourteen times, with their switch",
        "HCAs of two makes, each with firmware of its own",
        "MASTER_ADDR is 0.0.0.0 where rank 0 is",
        "a VPN of n3 for another network",
        "a VPN of n3 with a table for another network",
        "tasks of srun, and their number as WORLD_SIZE of the batch script",
        "one node's own name leads to IPv6, and the interface is named",
        "rank 0's node has a virtual address beside its own",
        "a permanent ARP entry that is right, and one of a stranger's",
        "Gloo takes two interfaces that both lead to the others",
        "InfiniBand with a subnet for each rail",
        "pods of which one was not given its InfiniBand, and NCCL_IB_DISABLE",
        "rank 0 listens 9 s after the others came",
        "two racks of GB200, two trays of each",
        "an asymmetric route, and a loose rp_filter",
        "a VLAN below eth0 is for something else, and ^ leaves it out",
        "the run section of SkyPilot on two nodes",
        "IPv6 only, with two interfaces each, and Gloo is told which",
        "limited members of the default partition, and NCCL_IB_PKEY names the full key",
        "listen queues of 128, as kernels had until 5.3, and 32 ranks",
        "no machine knows another's name, addresses are given",
        "few ephemeral ports, and enough",
        "the limits of open files differ, and all are high enough",
        "nodes with GPUs of two makes of board, each with a VBIOS of its own",
        "one node is a limited member of the partition, the others are full ones",
        "the hosts' names do not resolve, addresses and interfaces are given",
        "five machines",
        "a second interface that leads nowhere, nobody names it and no GPU asks for it",
        "the machines' own names are full, MASTER_ADDR is a short one",
        "1024 open files for 32 ranks in groups of two and four",
        "another range of ports on one machine",
        "n3's NICs are swapped, and nobody names one",
        "three interfaces each",
        "1024 open files",
        "one clock is 50 ms ahead",
        "a route to rank 0 by the other interface, and a loose rp_filter",
        "a card of 400 Gbit/s, full duplex",
        "HCAs and GPUs below one switch, whose ACS redirects nothing",
        "ACS between HCAs and GPUs of a virtual machine",
        "ACS between HCAs and GPUs, without GPUDirect",
    }
)
"""Healthy worlds that `make faults` looks at as well, and the tests do not: another one of the
tests is of their kind."""

TORCH_AT_LENGTH = frozenset(
    {
        "IPv6 only",
        "the second interface, MASTER_ADDR its address",
        "MASTER_ADDR is a service's address, and rank 0 reaches itself by it",
    }
)
"""Healthy worlds that the tests look at without torch alone, and `make faults` with it, too."""


def short(faults: Iterable[F]) -> list[F]:
    """Those that the tests inject."""
    return [fault for fault in faults if fault.name not in AT_LENGTH]
