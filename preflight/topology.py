"""Who is in this world: from flags and the launcher's environment, each number with its source.

Nothing is guessed silently: what a reading rests on is a Fact, what contradicts it is left for
env.identity to judge. Pure but for free_port().
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.model import Fact, Node, PreflightError, Topology

DEFAULT_PORT = 29500
"""Where torch's launchers meet when nobody says a port (torch.distributed.run)."""

RANKS_LIMIT = 1 << 20
"""More ranks than any job has: a number beyond it is a typing error."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How one launcher names its numbers. A rank's process has `rank`; where a launcher starts one
    process a node instead, `per_node` is set and `local_size` says how many ranks that stands for.
    """

    name: str
    sign: tuple[str, ...]
    rank: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    node_rank: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    addr: tuple[str, ...] = ("MASTER_ADDR",)
    port: tuple[str, ...] = ("MASTER_PORT",)
    per_node: bool = False


# The first whose sign is there wins: the innermost launcher is the one that started us.
LAUNCHERS = (
    Launcher(
        "torchrun",
        sign=("TORCHELASTIC_RUN_ID", "RANK"),
        rank=("RANK",),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        job=("TORCHELASTIC_RUN_ID",),
    ),
    Launcher(
        "Kubeflow Trainer",
        sign=("PET_NNODES",),
        node_rank=("PET_NODE_RANK", "JOB_COMPLETION_INDEX"),
        nodes=("PET_NNODES",),
        local_size=("PET_NPROC_PER_NODE",),
        addr=("PET_MASTER_ADDR", "MASTER_ADDR"),
        port=("PET_MASTER_PORT", "MASTER_PORT"),
        per_node=True,
    ),
    Launcher(
        "environment",
        sign=("RANK", "WORLD_SIZE"),
        rank=("RANK",),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        job=("SLURM_JOB_ID",),
    ),
    Launcher(
        "Open MPI",
        sign=("OMPI_COMM_WORLD_RANK",),
        rank=("OMPI_COMM_WORLD_RANK",),
        size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("SLURM_JOB_ID",),
    ),
    Launcher(
        "MPI (PMI)",
        sign=("PMI_RANK", "PMI_SIZE"),
        rank=("PMI_RANK",),
        size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID",),
        local_size=("MPI_LOCALNRANKS",),
        job=("SLURM_JOB_ID",),
    ),
    # SLURM_STEP_NUM_TASKS is there in tasks that srun started, not in the batch script itself
    Launcher(
        "SLURM",
        sign=("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        rank=("SLURM_PROCID",),
        size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local_rank=("SLURM_LOCALID",),
        local_size=("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
        node_rank=("SLURM_NODEID",),
        nodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        job=("SLURM_JOB_ID",),
    ),
)
LOCAL = Launcher("local", sign=(), job=("SLURM_JOB_ID",))


@dataclass(slots=True)
class _Reading:
    """The environment of one launcher, read with care."""

    environ: Mapping[str, str]
    facts: dict[str, Fact] = field(default_factory=dict)

    def number(self, what: str, names: tuple[str, ...], least: int = 0) -> int | None:
        """The first of `names` that holds a sane number; noted as a fact."""
        for name in names:
            # "4(x2)" is SLURM's way of saying 4 tasks on each of 2 nodes
            found = re.match(r"(\d{1,7})(\(x\d+\))?(,|$)", self.environ.get(name, "").strip())
            if found and least <= int(found[1]) <= RANKS_LIMIT:
                self.facts[what] = Fact(found[1], f"env {name}")
                return int(found[1])
        return None

    def text(self, what: str, names: tuple[str, ...]) -> str:
        for name in names:
            if value := self.environ.get(name, ""):
                self.facts[what] = Fact(value[:256], f"env {name}")
                return value[:256]
        return ""


def detect(environ: Mapping[str, str]) -> Launcher:
    """The launcher that started this process, LOCAL when none did. The PET_ variables are what
    torchrun is to go by; a process that has a LOCAL_RANK is behind that already."""
    for launcher in LAUNCHERS:
        behind = launcher.per_node and environ.get("LOCAL_RANK")
        if all(environ.get(variable) for variable in launcher.sign) and not behind:
            return launcher
    return LOCAL


def discover(
    environ: Mapping[str, str],
    hostname: str,
    *,
    nproc: int | None = None,
    nproc_source: str = "--nproc",
    nodes: int | None = None,
    node_rank: int | None = None,
    meet: str | None = None,
    gpus: int = 0,
    gpus_source: str = "",
) -> Topology:
    """The world as this agent sees it: its own node with the ranks that it owns, and how many
    ranks there are in all. `nproc`, `nodes`, `node_rank`, `meet` are the flags; `gpus` stands in
    for nproc where neither a flag nor a launcher says it.

    PreflightError for what contradicts itself so that no run makes sense.
    """
    launcher = detect(environ)
    reading = _Reading(environ)
    job = reading.text("job", launcher.job)
    local_size = reading.number("nproc", launcher.local_size, least=1)
    rank = reading.number("rank", launcher.rank)
    reading.number("local_rank", launcher.local_rank)
    size = reading.number("size", launcher.size, least=1)
    by_rank = launcher.rank and not _counts_nodes(launcher, environ, nproc, local_size)
    if by_rank and rank is not None:
        if nproc not in (None, 1) and (local_size or 2) > 1:
            raise PreflightError(
                f"{nproc_source} {nproc} would start {nproc} ranks in each process, but "
                f"{launcher.rank[0]}={rank} says that {launcher.name} has already started one "
                f"process a rank; leave {nproc_source} out"
            )
        if nproc in (None, 1):
            ranks: tuple[int, ...] = (rank,)
            size = size or rank + 1  # a rank beyond the size is env.identity's to judge
            reading.facts["nproc"] = Fact("1", f"env {launcher.rank[0]} (one process a rank)")
            return _placed(reading, launcher, hostname, job, ranks, size, meet, local_size or 1)
    if nproc is not None:
        reading.facts["nproc"] = Fact(str(nproc), nproc_source)
    elif local_size is not None and launcher.per_node:
        nproc = local_size
    elif gpus:
        nproc = gpus
        reading.facts["nproc"] = Fact(str(gpus), gpus_source)
    else:
        nproc = 1
        reading.facts["nproc"] = Fact("1", "default: no launcher, no GPU")
    nodes = _flag(reading, "nodes", nodes, "--nodes") or reading.number(
        "nodes", launcher.nodes, least=1
    )
    node_rank = _flag(reading, "node_rank", node_rank, "--node-rank")
    if node_rank is None:
        node_rank = reading.number("node_rank", launcher.node_rank)
    if launcher.name == "environment" and nodes is None and _pods(environ, nproc):
        nodes, node_rank = size, rank
        source = "env WORLD_SIZE, read as nodes: LOCAL_WORLD_SIZE is not there"
        reading.facts["nodes"] = Fact(str(size), source)
    nodes, node_rank = nodes or 1, node_rank or 0
    if node_rank >= nodes:
        raise PreflightError(
            f"node rank {node_rank} ({reading.facts['node_rank'].source}) of {nodes} "
            f"node{'s'[: nodes != 1]}: ranks of nodes begin at 0"
        )
    size = nproc * nodes
    reading.facts["size"] = Fact(str(size), f"{nodes} nodes x {nproc}" if nodes > 1 else "nproc")
    ranks = tuple(range(node_rank * nproc, (node_rank + 1) * nproc))
    return _placed(reading, launcher, hostname, job, ranks, size, meet)


def _flag(reading: _Reading, what: str, value: int | None, flag: str) -> int | None:
    if value is not None:
        reading.facts[what] = Fact(str(value), flag)
    return value


def _counts_nodes(
    launcher: Launcher, environ: Mapping[str, str], nproc: int | None, local_size: int | None
) -> bool:
    """RANK and WORLD_SIZE mean two things: torchrun sets them for each process, PyTorchJob v1 for
    each pod. Without LOCAL_RANK and with an explicit --nproc it is the latter."""
    if launcher.name != "environment":
        return False
    return nproc is not None and "LOCAL_RANK" not in environ and local_size is None


def _pods(environ: Mapping[str, str], nproc: int) -> bool:
    """Whether WORLD_SIZE counts pods rather than the very ranks that --nproc starts here: it
    doesn't when it equals --nproc and the master is this machine itself."""
    if "LOCAL_RANK" in environ or "LOCAL_WORLD_SIZE" in environ:
        return False
    here = environ.get("MASTER_ADDR", "").strip() in ("", "localhost", "127.0.0.1", "::1")
    return not (here and environ.get("WORLD_SIZE", "").strip() == str(nproc))


def _placed(
    reading: _Reading,
    launcher: Launcher,
    hostname: str,
    job: str,
    ranks: tuple[int, ...],
    size: int,
    meet: str | None,
    here: int = 0,
) -> Topology:
    """The topology with its meeting point. `here`: ranks that the launcher runs on this node."""
    if meet is not None:
        addr, port = split_address(meet)
        reading.facts["master_addr"] = reading.facts["master_port"] = Fact(meet, "--meet")
    else:
        addr = reading.text("master_addr", launcher.addr)
        port = reading.number("master_port", launcher.port) or 0
        raw_port = next((reading.environ[n] for n in launcher.port if reading.environ.get(n)), "")
        if port > 65535 or (raw_port and not port):
            reading.facts["master_port"] = Fact(raw_port[:80], "not a port")
            port = 0
    several = size > max(len(ranks), here)
    if not addr and launcher.name == "SLURM" and several:
        nodelist = reading.environ.get("SLURM_STEP_NODELIST") or reading.environ.get(
            "SLURM_JOB_NODELIST", ""
        )
        addr = first_host(nodelist)
        reading.facts["master_addr"] = Fact(addr, "first of SLURM_STEP_NODELIST")
    if not addr and several:
        raise PreflightError(
            f"{size} ranks on several nodes, but nothing says where they meet: "
            "set MASTER_ADDR and MASTER_PORT, or give --meet HOST:PORT"
        )
    if not addr:
        addr = "127.0.0.1"
        reading.facts["master_addr"] = Fact(addr, "default: one node")
    if not port and "master_port" not in reading.facts:
        port = DEFAULT_PORT if several else free_port()
        source = "torch's default" if several else "a free port"
        reading.facts["master_port"] = Fact(str(port), source)
    return Topology(
        launcher=launcher.name,
        job=job,
        size=size,
        nodes=(Node(hostname, ranks, size=here),),
        master_addr=addr,
        master_port=port,
        facts=reading.facts,
    )


def split_address(text: str) -> tuple[str, int]:
    """HOST:PORT or [V6]:PORT; PreflightError when it is neither."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^:\s]+)):(\d{1,5})", text.strip())
    if not found or not 0 < int(found[3]) < 65536:
        raise PreflightError(f"--meet wants HOST:PORT, got {text!r:.80}")
    return found[1] or found[2], int(found[3])


def first_host(nodelist: str) -> str:
    """The first host of a SLURM node list: `gpu-[007-009,012]` begins with gpu-007."""
    found = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodelist)
    return "".join(part or "" for part in found.groups()) if found else ""


def free_port() -> int:
    """A port of the loopback that nobody holds at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
