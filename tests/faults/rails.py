"""Faults of one node's RDMA ports that only show beside the other nodes'."""

from __future__ import annotations

from faults.accelerators import RAILS
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
DOWN = fabric("echo '1: DOWN' > tree/infiniband/mlx5_4/ports/1/state")


def odd(name: str, code: str, subject: str, setup: str, **more: str | int) -> WorldFault:
    """n2 of three nodes is not as the others."""
    return WorldFault(
        name,
        "net.rdma",
        code,
        subject,
        machines=(*machines(1, setup=GOOD), Machine("n2", setup=setup), Machine("n3", setup=GOOD)),
        innocent=("n1", "n3"),
        args=ONLY,
        **more,  # type: ignore[arg-type]
    )


FAULTS = (
    odd("a port that came up with 100 Gb/s", "rate-low", "n2 · mlx5_5", SLOW),
    odd("a port that the other nodes have up", "port-down", "n2 · mlx5_4", DOWN),
    odd(
        "an HCA with older firmware than the others",
        *("firmware-differs", "n2 · mlx5_3", OLD),
        status="warn",
        exit=0,
    ),
    odd("an HCA that fell off the bus", "hca-missing", "n2", LESS, status="warn", exit=0),
)
