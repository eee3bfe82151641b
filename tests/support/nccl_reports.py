"""What NCCL logged of its networks and connections, and the fabrics of the machines beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preflight.domains.collectives.nccl_log import Link, NcclLog, parse
from preflight.domains.collectives.nccl_transport import RdmaPorts

CAPTURES = Path(__file__).parents[1] / "data/nccl_logs"

IB = RdmaPorts(infiniband=("mlx5_0:1", "mlx5_1:1"))
EFA = RdmaPorts(efa=("rdmap16s27:1",))
ROCE = RdmaPorts(ethernet=("mlx5_bond_0:1",), gbits=400)
CARD = RdmaPorts(ethernet=("mlx5_0:1",), gbits=50)
NONE = RdmaPorts()

REFUSED = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401"
MEMLOCK = "Call to ibv_reg_mr failed with error Cannot allocate memory"


def capture(name: str, rank: int = 0) -> NcclLog:
    return parse((CAPTURES / f"{name}.log").read_text().split("\n"), rank)


def over(network: str, *links: Link, **more: Any) -> NcclLog:
    return NcclLog(version="2.28.9+cuda12.9", network=network, links=links, **more)


def ring(rank: int, size: int, way: str, gdr: bool = False) -> Link:
    """The connection of a rank, alone on its node, with the next one."""
    return Link((rank + 1) % size, way, 4, gdr)


def nodes(*saw: Any, each: int = 1) -> dict[str, Any]:
    """`each` ranks per node."""
    return {f"n{rank // each + 1}/{rank}": value for rank, value in enumerate(saw)}


JOINED = over("Socket", Link(1, "SHM", 2), nvlink=(1,))
