"""Faults of a torchrun that is yet to be started, and that numbers its nodes itself (c10d): nobody
has typed which node is which, and each may start another number of ranks."""

from __future__ import annotations

from faults.agents import TWICE_ON_N2
from faults.world import PORT, WorldFault, machines
from lab.faults import DOCKER, drop_port, other_torchrun
from lab.host import Machine

from preflight.identity.launcher_options import as_variables

N3_IS_LATE = ("sh", "-c", 'test "$(hostname)" != n3 || sleep 1.5; exec "$@"', "sh")


def torchrun(nodes: int, *more: str, place: str = f"n1:{PORT}") -> dict[str, str]:
    """What `gate` makes of the options of that torchrun."""
    words = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={place}", *more]
    return as_variables(["torchrun", *words, "train.py"], {})


FAULTS = (
    WorldFault(
        "one of three torchruns does not come",
        *("rdzv.reach", "absent", "rank 2"),
        status="missing",
        exit=5,
        says="2 of 3 nodes arrived",
        nproc=0,
        env=torchrun(3),
        absent=("n3",),
    ),
    WorldFault(
        "torchrun is started twice on n2",
        *("rdzv.reach", "nodes-surplus", "n2"),
        nproc=0,
        env=torchrun(3),
        wrap=(*N3_IS_LATE, *TWICE_ON_N2),
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "MASTER_PORT dropped for n2, whose torchrun has no number",
        *("rdzv.reach", "dropped-here", "n2"),
        nproc=0,
        env=torchrun(3),
        breaks={"n1": (drop_port(PORT, "10.77.0.2"),)},
        innocent=("n3",),
        arrive=6.0,
    ),
    WorldFault(
        "torchrun starts a rank less on n3",
        *("rdzv.reach", "nproc-uneven", "n3*"),
        status="warn",
        exit=0,
        nproc=0,
        says="n3 1, n[1-2] 2 · 5 in all",
        env=torchrun(3, "--nproc-per-node=2"),
        on={"n3": {"PET_NPROC_PER_NODE": "1"}},
    ),
    WorldFault(
        "torchrun's endpoint is the address of a bridge that all nodes have",
        *("rdzv.reach", "address-own", "n1 · MASTER_ADDR"),
        exit=5,
        machines=tuple(Machine(f"n{n}", setup=DOCKER) for n in (1, 2)),
        nproc=0,
        env=torchrun(2, place=f"172.17.0.1:{PORT}"),
        arrive=6.0,
    ),
    WorldFault(
        "the store of another run is at torchrun's endpoint",
        *("net.port", "store-shared", "n1 · MASTER_PORT"),
        status="warn",
        exit=0,
        says="torchrun",
        nproc=0,
        env=torchrun(2, "--rdzv-id=43"),
        machines=machines(2),
        breaks={"n1": (other_torchrun(PORT, "42"),)},
        innocent=("n2",),
    ),
    WorldFault(
        "an old torchrun of this very run is at its endpoint",
        *("net.port", "port-leftover", "n1 · MASTER_PORT"),
        nproc=0,
        env=torchrun(2, "--rdzv-id=43"),
        machines=machines(2),
        breaks={"n1": (other_torchrun(PORT, "43"),)},
        innocent=("n2",),
    ),
    WorldFault(
        "n3 starts torchrun without --rdzv-backend",
        *("rdzv.torchrun", "rendezvous-differs", "n3 · --rdzv-backend"),
        nproc=0,
        says="'static' on n3",
        env=torchrun(3, "--node-rank=2"),
        on={"n3": {"PET_RDZV_BACKEND": None}},
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "n3 starts torchrun for two nodes",
        *("rdzv.torchrun", "rendezvous-differs", "n3 · --nnodes"),
        nproc=0,
        says="'2:2' on n3",
        env=torchrun(3),
        on={"n3": {"PET_NNODES": "2"}},
        innocent=("n1", "n2"),
    ),
)
