"""Faults of one node's RDMA ports that only show beside the other nodes'."""

from __future__ import annotations

from typing import Any

from faults.accelerators import BARE_METAL, RAILS
from faults.world import WorldFault, machines
from lab.host import Machine

ONLY = ("--only", "net.rdma")


def fabric(what: str) -> str:
    """The ports of a node with a GPU."""
    return f"cd $(mktemp -d)\n{RAILS % what}\n: > /dev/nvidia0\n"


GOOD = fabric("")
SLOW = fabric("echo '100 Gb/sec (4X EDR)' > tree/infiniband/mlx5_5/ports/1/rate")
LESS = fabric("rm -r tree/infiniband/mlx5_7")
OLD = fabric(
    "for n in 0 1 2 3 4 5 6 7; do echo 28.39.1002 > tree/infiniband/mlx5_$n/fw_ver; done\n"
    "echo 28.36.1010 > tree/infiniband/mlx5_3/fw_ver"
)
ALL_DOWN = fabric(
    "for n in 0 1 2 3 4 5 6 7; do echo '1: DOWN' > tree/infiniband/mlx5_$n/ports/1/state; "
    "echo '2: Polling' > tree/infiniband/mlx5_$n/ports/1/phys_state; done"
)
APART = fabric(
    "for n in 0 1 2 3 4 5 6 7; do echo 0x8012 > tree/infiniband/mlx5_$n/ports/1/pkeys/0; done"
)
"""In the partition 0x12, not in the default one."""
LIMITED = fabric(
    "for n in 0 1 2 3 4 5 6 7; do echo 0x7fff > tree/infiniband/mlx5_$n/ports/1/pkeys/0; done"
)
"""A limited member of the default partition, as opensm makes them where nobody says full."""
SECOND_KEY = fabric(
    "for n in 0 1 2 3 4 5 6 7; do here=tree/infiniband/mlx5_$n/ports/1/pkeys; "
    "echo 0x7fff > $here/0; echo 0x8012 > $here/1; done"
)
ROCE = fabric(
    "for n in 0 1 2 3 4 5 6 7; do here=tree/infiniband/mlx5_$n/ports/1; rm -r $here/pkeys; "
    "mkdir -p $here/gids $here/gid_attrs/types; echo Ethernet > $here/link_layer; "
    "echo 0000:0000:0000:0000:0000:ffff:0a4d:010$n > $here/gids/3; "
    "echo 'RoCE v2' > $here/gid_attrs/types/3; done"
)
SHIFTED = fabric(
    "here=tree/infiniband/mlx5_3/ports/1; rm -r $here/pkeys; echo Ethernet > $here/link_layer; "
    "echo '100 Gb/sec (4X EDR)' > $here/rate; mkdir -p $here/gids $here/gid_attrs/types; "
    "echo 0000:0000:0000:0000:0000:ffff:0a4d:0103 > $here/gids/3; "
    "echo 'RoCE v2' > $here/gid_attrs/types/3; port mlx5_8 '4: ACTIVE' '5: LinkUp' "
    "'400 Gb/sec (4X NDR)'"
)
"""mlx5_3 is the RoCE card for storage here, and mlx5_8 the eighth rail."""
DOWN = fabric("echo '1: DOWN' > tree/infiniband/mlx5_4/ports/1/state")


def subnet(prefix: str) -> str:
    """All ports with this prefix, where `$n` is the port's number."""
    return fabric(
        "for n in 0 1 2 3 4 5 6 7; do here=tree/infiniband/mlx5_$n/ports/1; mkdir -p $here/gids; "
        f"echo {prefix}:9c63:c003:0055:48a$n > $here/gids/0; done"
    )


VERBS = fabric(
    "for n in 0 1 2 3 4 5 6 7; do here=tree/infiniband_verbs/uverbs$n; mkdir -p $here; "
    "echo mlx5_$n > $here/ibdev; done"
)
"""The devices as libibverbs finds them."""
EXPOSED = "mkdir /dev/infiniband; for n in 0 1 2 3 4 5 6 7; do : > /dev/infiniband/uverbs$n; done\n"
"""Their files, in a container that was given them."""
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


ACS = {0x1D: r"\035", 0x11: r"\021", 0x5D: r"\135"}
"""Control words: all redirected, nothing redirected, and with Direct Translated P2P, for ATS."""
BELOW_ONE_SWITCH = r"""
mount -t tmpfs bus /sys/bus; mkdir -p /sys/bus/pci/devices /sys/bus/tree
put() {
    at=/sys/bus/tree
    for part in $1; do
        at=$at/$part; mkdir -p $at; [ -e $at/config ] || cp config $at
        [ -e /sys/bus/pci/devices/$part ] || ln -s $at /sys/bus/pci/devices/$part
    done
}
(head -c 256 /dev/zero; printf '\015\000\001\000\137\000%s\000'; head -c 3832 /dev/zero) > config
for n in 1 2; do
    put "0000:${n}5:01.0 0000:${n}6:00.0 0000:${n}7:00.0 0000:${n}8:00.0"
    put "%s 0000:${n}9:00.0"
    echo 0x030200 > $at/class; echo 0x10de > $at/vendor; ln -s ../drivers/nvidia $at/driver
    ln -s /sys/bus/pci/devices/0000:${n}8:00.0 tree/infiniband/mlx5_$n/device
done
mount -t tmpfs kernel /sys/kernel
mkdir -p /sys/kernel/mm/memory_peers/nv_mem
"""
SAME_SWITCH = "0000:${n}5:01.0 0000:${n}6:00.0 0000:${n}7:01.0"
OTHER_ROOT = "0000:${n}5:02.0"
DMA = """
mkdir -p /sys/kernel/iommu_groups/7; echo DMA-FQ > /sys/kernel/iommu_groups/7/type
for n in 1 2; do ln -s /iommu_groups/7 /sys/bus/pci/devices/0000:${n}8:00.0/iommu_group; done
"""


def switched(
    acs: int = 0x1D, *, gpu: str = SAME_SWITCH, then: str = "", where: str = BARE_METAL
) -> str:
    """Two of eight HCAs, each with a GPU near it, GPUDirect RDMA, and this ACS control word of all
    bridges."""
    return fabric(BELOW_ONE_SWITCH % (ACS[acs], gpu) + then) + where


def odd(name: str, code: str, subject: str, setup: str, **more: Any) -> WorldFault:
    """n2 of three nodes is not as the others."""
    return WorldFault(
        name,
        "net.rdma",
        code,
        subject,
        machines=(*machines(1, setup=GOOD), Machine("n2", setup=setup), Machine("n3", setup=GOOD)),
        innocent=("n1", "n3"),
        args=ONLY,
        **more,
    )


def two(name: str, code: str, subject: str, setup: str) -> WorldFault:
    """n2 of two nodes is not as n1."""
    pair = (Machine("n1", setup=GOOD), Machine("n2", setup=setup))
    return WorldFault(name, "net.rdma", code, subject, machines=pair, args=ONLY)


FAULTS = (
    odd("a port that came up with 100 Gb/s", "rate-low", "n2 · mlx5_5", SLOW),
    odd("a port that the other nodes have up", "port-down", "n2 · mlx5_4", DOWN),
    odd(
        "an HCA with older firmware than the others",
        *("firmware-differs", "n2 · mlx5_3", OLD),
        status="warn",
        exit=0,
    ),
    two("of two nodes one has all ports down", "port-down", "n2 · mlx5_0", ALL_DOWN),
    odd("a node in another partition", "partitions-differ", "n2", APART),
    two("of two nodes one is in another partition", "partitions-differ", "n1", APART),
    WorldFault(
        "all nodes are limited members of their partition",
        *("net.rdma", "pkey-unusable", "n1 · mlx5_0"),
        machines=machines(3, setup=LIMITED),
        says="has partition key 0x7fff at 0 (limited)",
        args=ONLY,
    ),
    # as in nccl#1323: the full key is at index 1
    WorldFault(
        "limited members of the default partition, whose full key is the second one",
        *("net.rdma", "pkey-unusable", "n1 · mlx5_0"),
        machines=machines(2, setup=SECOND_KEY),
        says="0x8012 at 1 (full)",
        args=ONLY,
    ),
    odd("a node whose HCAs came up as Ethernet", "layers-differ", "n2", ROCE),
    odd(
        "a node that numbers its storage card among the HCAs of the job",
        *("layers-mixed", "n2 · mlx5_3", SHIFTED),
        says="mlx5_3:1 InfiniBand on other nodes",
        env={"NCCL_IB_HCA": "=" + ",".join(f"mlx5_{n}" for n in range(8))},
        also=("net.rdma slow-port-selected",),
    ),
    two("of two nodes one has RoCE, one InfiniBand", "layers-differ", "n1", ROCE),
    WorldFault(
        "a node that is cabled to another InfiniBand subnet",
        *("net.rdma", "subnets-differ", "n2"),
        machines=(
            Machine("n1", setup=subnet("fe80:0000:0000:0000")),
            Machine("n2", setup=subnet("fec0:0000:0000:0001")),
            Machine("n3", setup=subnet("fe80:0000:0000:0000")),
        ),
        innocent=("n1", "n3"),
        args=ONLY,
    ),
    # as in nccl#234 and nccl#952
    WorldFault(
        "of two pods one was not given its InfiniBand",
        *("host.limits", "rdma-not-exposed", "n2"),
        says="n1 can open theirs",
        machines=(
            Machine("n1", setup=EXPOSED + VERBS),
            Machine("n2", setup=VERBS),
        ),
        env=POD,
        args=("--only", "net.rdma,host.limits"),
        innocent=("n1",),
    ),
    odd("an HCA that fell off the bus", "hca-missing", "n2", LESS, status="warn", exit=0),
    # as in nccl-tests#112 and nccl-tests#252
    odd(
        "ACS between the HCAs and the GPUs of a node",
        *("gpudirect-acs", "n2 · mlx5_1", switched()),
        says="ACS redirects at 0000:17:00.0, 0000:17:01.0",
        status="warn",
        exit=0,
    ),
    # as in nccl#1737
    odd(
        "an IOMMU that translates for the HCAs of a node",
        *("gpudirect-iommu", "n2 · mlx5_1", switched(0x11, then=DMA)),
        says="0000:19:00.0 below one switch, and 1 more through an IOMMU in mode DMA-FQ",
        status="warn",
        exit=0,
    ),
)
