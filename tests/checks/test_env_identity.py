"""env.identity: one story told by all launchers is silent, a contradiction is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import env_identity
from preflight.checks.env_identity import Identity
from preflight.host import Host
from preflight.identity.consistency import NAMES
from preflight.identity.discover import discover
from preflight.identity.launcher_options import as_variables
from preflight.identity.launchers import OPTIONS
from preflight.model import Cause, Confidence, Fact, Kind, Missing, Node, Status, Subject, Topology

conforms(env_identity)

FAIL, WARN = Status.FAIL, Status.WARN


def one(environ: Mapping[str, str], *, rank: int = 0, node: str = "n1", **more: object) -> object:
    """The world of one process that owns one rank."""
    return {f"{node}/{rank}": Identity(environ, **more)}  # type: ignore[arg-type]


def shared(environ: Mapping[str, str], ranks: int = 4, **more: object) -> object:
    """An agent that owns all ranks of its node."""
    return {f"n1/{r}": Identity(environ, owned=ranks, **more) for r in range(ranks)}  # type: ignore[arg-type]


def endpoint(text: str, backend: str) -> object:
    """For a torchrun of two nodes that is yet to be started."""
    said = {"PET_NNODES": "2", "PET_RDZV_ENDPOINT": text, "PET_RDZV_BACKEND": backend}
    return shared({name: value for name, value in said.items() if value})


def at(text: str) -> dict[str, str]:
    return {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": text}


def each(*environs: Mapping[str, str], per_node: int = 4) -> object:
    """One process per rank."""
    return {f"n{r // per_node + 1}/{r}": Identity(e) for r, e in enumerate(environs)}


def several(nodes: int = 2, per_node: int = 4, **changes: object) -> Topology:
    made = tuple(
        Node(f"n{n + 1}", tuple(range(n * per_node, (n + 1) * per_node))) for n in range(nodes)
    )
    return topology(nodes=made, size=nodes * per_node, **changes)


def met(*addresses: str, **changes: object) -> Topology:
    """As the host of a meeting knows it: who came has an address."""
    made = tuple(Node(f"n{n + 1}", (n,), ip) for n, ip in enumerate(addresses))
    return topology(nodes=made, size=len(made), **changes)


ENV = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}


def torchrun(rank: int = 0, size: int = 4, per_node: int = 4, **more: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(size // per_node),
        "MASTER_ADDR": "localhost" if size == per_node else "node-0",
        "MASTER_PORT": "45093",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    } | more


def srun(rank: int = 0, tasks: int = 8, nodes: int = 2, **more: str) -> dict[str, str]:
    per_node = tasks // nodes
    return {
        "SLURM_JOB_ID": "48121",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % per_node),
        "SLURM_NODEID": str(rank // per_node),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NNODES": str(nodes),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": str(nodes),
    } | more


def mapped(rank: int, tasks: int = 8, nodes: int = 2, **more: str) -> dict[str, str]:
    """srun with the usual wrapper."""
    mine = {"RANK": str(rank), "WORLD_SIZE": str(tasks), "LOCAL_RANK": str(rank % (tasks // nodes))}
    where = {"MASTER_ADDR": "gpu-b07", "MASTER_PORT": "29500"}
    return srun(rank, tasks, nodes) | mine | where | more


def mpirun(rank: int = 0, size: int = 8, per_node: int = 4, **more: str) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % per_node),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node),
    } | more


# what the operators of Kubernetes put into a pod
PYTORCHJOB = {"WORLD_SIZE": "2", "MASTER_PORT": "23456", "PET_NNODES": "2", "PET_NODE_RANK": "0"}
FIRST_POD = PYTORCHJOB | {"RANK": "0", "MASTER_ADDR": "localhost", "PET_MASTER_ADDR": "localhost"}
SECOND_POD = PYTORCHJOB | {"RANK": "1", "PET_NODE_RANK": "1", "MASTER_ADDR": "job-master-0"}
TRAINER = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "auto",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "train-node-0-0.train",
    "PET_MASTER_PORT": "29400",
}
RANKS = {"WORLD_SIZE": "8", "PET_NPROC_PER_NODE": "4"}
INDEXED = {"JOB_COMPLETION_INDEX": "1", "RANK": "1", "MASTER_ADDR": "p-0", "MASTER_PORT": "3389"}
# torchrun is still to come: the batch script exports where to meet
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NNODES": "2", "SLURM_NTASKS": "16"}
PODS = topology(4, facts={"nodes": Fact("2", "env WORLD_SIZE, read as nodes")}, size=8)

# a pod of an Indexed Job with a process per rank, the second of two
INDEXED_RANK = ENV | {
    "JOB_COMPLETION_INDEX": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
}
ALONE = ENV | {"WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def two_by_four(size: int, second: int = 4) -> list[dict[str, str]]:
    """The variables of two nodes with four ranks each, or `second` on the second node."""
    here = [4] * 4 + [second] * 4
    return [
        ENV
        | {"RANK": str(r), "LOCAL_RANK": str(r % 4), "LOCAL_WORLD_SIZE": str(n)}
        | {"WORLD_SIZE": str(size)}
        for r, n in enumerate(here)
    ]


def typed(nodes: int, size: int, *ranks: int) -> Topology:
    """--nodes, and the number of ranks of each node that came."""
    made: list[Node] = []
    first = 0
    for number, count in enumerate(ranks, 1):
        made.append(Node(f"n{number}", tuple(range(first, first + count))))
        first += count
    return topology(nodes=tuple(made), size=size, facts={"nodes": Fact(str(nodes), "--nodes")})


SEVEN, UNEQUAL = typed(2, 8, 4, 3), typed(2, 6, 4, 2)
THREE_OF_FOUR = typed(3, 12, 4, 4)
THREE_NODES = several(3, 1, facts={"nodes": Fact("3", "--nodes")})
TO_COME = as_variables(
    ["torchrun", "--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=n1:29400", "train.py"], {}
)
ANY_NUMBER = discover(TO_COME, "n1")
COUNTED = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "gpu"}


def counted(source: str) -> Topology:
    """A node whose number of ranks comes from there."""
    return several(1, 1, facts={"nproc": Fact("1", source)})


HEALTHY = (
    Case("a plain prompt", shared({})),
    Case("one rank", one({})),
    Case("env:// by hand", one(ENV)),
    Case("exported for one machine", shared(ENV | {"MASTER_ADDR": "127.0.0.1"})),
    Case("torchrun", each(*(torchrun(r) for r in range(4)))),
    Case("torchrun on two nodes", each(*(torchrun(r, 8) for r in range(8)))),
    Case("torchrun --virtual-local-rank", one(torchrun(3, LOCAL_RANK="0"), rank=3)),
    Case("torchrun under srun", each(*(torchrun(r, 8) | srun(r // 4, 2) for r in range(8)))),
    Case("torchrun in a batch script", one(torchrun(1) | BATCH, rank=1)),
    Case("torchrun under mpirun -npernode 1", one(torchrun(5, 8) | mpirun(1, 2, 1), rank=5)),
    Case("one agent a task", one(torchrun(3, 4, 1) | srun(3, 4, 1), rank=3)),
    Case("plain srun", each(*(srun(r) for r in range(8)))),
    Case("srun with a wrapper", each(*(mapped(r) for r in range(8)))),
    Case("srun --mpi=pmi2", one(mapped(5, PMI_RANK="5", PMI_SIZE="8"), rank=5)),
    Case(
        "hydra in a step of two nodes",
        one(
            srun(1, 2, 2, PMI_RANK="5", PMI_SIZE="8", MPI_LOCALRANKID="1", MPI_LOCALNRANKS="4"),
            rank=5,
        ),
    ),
    Case("mpirun with a wrapper", one(mpirun(5) | ENV | {"RANK": "5", "WORLD_SIZE": "8"})),
    Case(
        "mpirun under SLURM", one(mpirun(5) | ENV | srun(1, 2) | {"RANK": "5", "WORLD_SIZE": "8"})
    ),
    Case("hydra", one(ENV | {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"})),
    Case("a batch script", shared(BATCH | {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"})),
    Case("WORLD_SIZE computed for torchrun", one(BATCH | {"WORLD_SIZE": "16"})),
    Case("WORLD_SIZE for the script", one(srun(0, 8, 2, WORLD_SIZE="8", MASTER_ADDR="n1"))),
    Case("--node-rank $RANK", shared(mapped(1, 2, 2, WORLD_SIZE="8"), 4)),
    Case("steps of one task each", one(srun(0, 1, 1) | ENV | {"RANK": "3"}, rank=3)),
    Case("the first pod", shared(FIRST_POD, kubernetes=True), topology=PODS),
    Case("the second pod", shared(SECOND_POD, kubernetes=True), topology=PODS),
    Case(
        "both pods",
        {"p1/0": Identity(FIRST_POD, 1, True), "p2/1": Identity(SECOND_POD, 1, True)},
        topology=several(2, 1, facts=PODS.facts),
    ),
    Case("Trainer v2", shared(TRAINER, kubernetes=True)),
    Case("its ranks", one(torchrun(0, 8, PET_NNODES="2"), kubernetes=True)),
    Case("one of one to two pods", one(torchrun(0, 4, PET_NNODES="1:2"), kubernetes=True)),
    Case("no operator says it", one(torchrun(0, 4, PET_NNODES="2"))),
    Case("a pod that says how many ranks there are", shared(FIRST_POD | RANKS, kubernetes=True)),
    Case("a pod's number as RANK for torchrun", one(INDEXED, rank=1, kubernetes=True)),
    Case(
        "a task a node, which starts four ranks",
        one(mapped(1, 2, 2) | {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}, rank=6),
    ),
    Case(
        "and its first task",
        one(mapped(0, 2, 2) | {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}, rank=2),
    ),
    Case(
        "a GPU for each task, which is its first",
        one(mapped(3, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="3"), rank=3),
    ),
    Case(
        "the same by UUID",
        one(mapped(3, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="GPU-0f3a-11"), rank=3),
    ),
    Case("one GPU a task", one(mapped(3, LOCAL_RANK="0", SLURM_GPUS_PER_TASK="1"), rank=3)),
    Case("one GPU a node", one(mapped(3, LOCAL_RANK="0", SLURM_GPUS_ON_NODE="1"), rank=3)),
    Case("no GPU at all", one(mapped(3, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=""), rank=3)),
    Case("not distributed, below srun", one(srun(3, LOCAL_RANK="-1"), rank=3)),
    Case("a pod's own number", one(INDEXED_RANK | {"RANK": "1"}, rank=1, kubernetes=True)),
    Case(
        "the first worker, where another Job has the leader",
        one(INDEXED_RANK | {"JOB_COMPLETION_INDEX": "0", "RANK": "1"}, rank=1, kubernetes=True),
    ),
    Case(
        "pods of worlds of two",
        one(INDEXED_RANK | {"JOB_COMPLETION_INDEX": "2", "RANK": "0"}, kubernetes=True),
    ),
    Case("--nodes as WORLD_SIZE says", one(ALONE), topology=THREE_NODES),
    Case("--nodes in the range of PET_NNODES", one({"PET_NNODES": "2:4"}), topology=THREE_NODES),
    Case(
        "one node of a job alone",
        one({"PET_NNODES": "4"}),
        topology=several(1, 1, facts={"nodes": Fact("1", "--nodes")}),
    ),
    Case("GPUs to be counted", one(COUNTED), topology=counted("NVML: GPUs of this node")),
    Case("GPUs to be counted, and --nproc", one(COUNTED), topology=counted("--nproc")),
    Case(
        "GPUs, or CPUs where there are none",
        one(COUNTED | {"PET_NPROC_PER_NODE": "auto"}),
        topology=counted("env PET_NPROC_PER_NODE=auto, no GPU"),
    ),
    Case("--nodes, with several ranks a node", one(torchrun(4, 8)), topology=THREE_NODES),
    Case("--nodes, and a rank that never came", each(*two_by_four(8)[:7]), topology=SEVEN),
    Case("--nodes, and a node that never came", each(*two_by_four(12)), topology=THREE_OF_FOUR),
    Case("--nodes, and unequal nodes", each(*two_by_four(6, 2)[:6]), topology=UNEQUAL),
    Case("four ranks by hand on one machine", one(ENV | {"MASTER_ADDR": "localhost"})),
    Case("not distributed", one({"LOCAL_RANK": "-1", "MASTER_ADDR": "", "RANK": ""})),
    Case("IPv6", one(ENV | {"MASTER_ADDR": "2001:db8::7"})),
    Case("c10d endpoint", shared({"PET_RDZV_ENDPOINT": "[::1]:29400", "PET_NNODES": "1:1"})),
    Case("elastic", shared({"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "node-0:29400"})),
    Case("c10d has a default port", endpoint("n1", "c10d")),
    Case("and with IPv6", endpoint("[fd77::1]", "c10d")),
    Case("etcd has one", endpoint("etcd-0", "etcd-v2")),
    Case("a static endpoint", endpoint("n1:29500", "static")),
    Case("port 0 on one node", shared({"PET_RDZV_ENDPOINT": "localhost:0"})),
    Case(
        "what torchrun was started with is past",
        one(torchrun(0) | {"PET_RDZV_ENDPOINT": "n1", "PET_RDZV_BACKEND": "static"}),
    ),
    Case("a free port for one process", one(ENV | {"WORLD_SIZE": "1", "MASTER_PORT": "0"})),
    Case("nothing was seen", {}),
    Case("timed out", {"n1/0": Missing(Cause.TIMED_OUT)}),
    Case("skipped", {"n1/0": Missing(Cause.SKIPPED), "n1/1": Identity({})}),
)

ENDPOINTS = (
    Case("one endpoint", each(*[{"PET_RDZV_ENDPOINT": "n1:29500"}] * 3, per_node=1)),
    Case(
        "c10d's default port, written on one",
        each(at("n1"), at("n1:29400"), at("[fd77::1]"), per_node=1),
    ),
    Case(
        "another port on one node",
        each(at("n1:29500"), at("n1:29500"), at("n1:29501"), per_node=1),
        "world-differs",
        FAIL,
        subject="n3 · rank 2",
    ),
    Case(
        "no port on one of two nodes",
        each(at("n1:29500"), at("n1"), per_node=1),
        "world-differs",
        FAIL,
        subject="n2 · rank 1",
    ),
    Case(
        "MASTER_ADDR is where they meet",
        each(at("n1:29500") | ENV | {"RANK": ""}, at("n1") | ENV | {"RANK": ""}, per_node=1),
    ),
)

NUMBERS = (
    Case("text", one(ENV | {"RANK": "zero"}), "number-malformed", FAIL, subject="n1 · rank 0"),
    Case("quotes", one(ENV | {"WORLD_SIZE": '"4"'}), "number-malformed", FAIL),
    Case("never expanded", one(ENV | {"RANK": "$SLURM_PROCID"}), "number-malformed", FAIL),
    Case("a float", one(ENV | {"WORLD_SIZE": "4.0"}), "number-malformed", FAIL),
    Case("NODE_RANK is the script's", one({"NODE_RANK": "a"}), "number-malformed", WARN),
    Case("PET_NNODES", shared({"PET_NNODES": "two"}), "number-malformed", FAIL),
    Case("PET_NNODES of nothing", shared({"PET_NNODES": "2:"}), "number-malformed", FAIL),
    Case("no ranks", shared({"PET_NPROC_PER_NODE": "0"}), "number-malformed", FAIL),
    Case("no word of torchrun's", shared({"PET_NPROC_PER_NODE": "x"}), "number-malformed", FAIL),
    Case("in capitals", shared({"PET_NPROC_PER_NODE": "AUTO"}), "number-malformed", FAIL),
    Case("a GPU's other name", shared({"PET_NPROC_PER_NODE": "cuda"}), "number-malformed", FAIL),
    Case(
        "a device that nobody knows",
        shared({"PET_NPROC_PER_NODE": "abacus"}),
        "number-malformed",
        FAIL,
    ),
    Case("a device that a package adds", shared({"PET_NPROC_PER_NODE": "npu"})),
    Case("Intel's GPUs", shared({"PET_NPROC_PER_NODE": "xpu"})),
    Case(
        "a shell variable that is not set, typed",
        one({OPTIONS: "PET_NNODES=--nnodes", "PET_NNODES": ""}),
        "number-malformed",
        FAIL,
    ),
    Case("empty, and nobody is known to read it", one({"PET_NNODES": ""})),
    Case("huge", one(ENV | {"RANK": "9" * 256}), "out-of-range", FAIL),
    Case("carriage return", one(ENV | {"WORLD_SIZE": "4\r"}), "number-whitespace", WARN),
    Case("blank after the port", one(ENV | {"MASTER_PORT": "29500 "}), "number-whitespace", WARN),
    Case("rank at size", one(ENV | {"RANK": "4"}, rank=4), "out-of-range", FAIL),
    Case("negative rank", one(ENV | {"RANK": "-1"}), "out-of-range", FAIL),
    Case("no world", one(ENV | {"WORLD_SIZE": "0"}), "out-of-range", FAIL),
    Case("local rank", one(torchrun(0, LOCAL_RANK="4")), "out-of-range", FAIL),
    Case(
        "RANK is the node's number, of the second of two processes there",
        one(ENV | {"RANK": "0", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}),
        "out-of-range",
        FAIL,
    ),
    Case(
        "a GPU chosen by LOCAL_RANK for one rank of a node",
        one(ENV | {"RANK": "0", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, gpus=False),
        "out-of-range",
        WARN,
    ),
    Case(
        "local rank, and no GPU that would be chosen by it",
        one(ENV | {"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "1"}, gpus=False),
        "out-of-range",
        WARN,
    ),
    Case(
        "rank at size, and no GPU",
        one(ENV | {"RANK": "4"}, rank=4, gpus=False),
        "out-of-range",
        FAIL,
    ),
    Case("negative local rank", one(ENV | {"LOCAL_RANK": "-1"}), "out-of-range", FAIL),
    Case("more here than in all", one(torchrun(0, WORLD_SIZE="2")), "out-of-range", FAIL),
    Case("overwritten RANK", one(torchrun(2, RANK="0")), "out-of-range", FAIL),
    Case("node rank", shared(TRAINER | {"PET_NODE_RANK": "2"}), "out-of-range", FAIL),
    Case("port 0", one(ENV | {"MASTER_PORT": "0"}), "port-invalid", FAIL),
    Case("port 70000", one(ENV | {"MASTER_PORT": "70000"}), "port-invalid", FAIL),
    Case("port text", shared({"MASTER_PORT": "http"}), "port-invalid", FAIL),
    Case("quoted port", one(ENV | {"MASTER_PORT": "'29500'"}), "port-invalid", FAIL),
    Case("torchrun's port", shared(TRAINER | {"PET_MASTER_PORT": "-1"}), "port-invalid", FAIL),
    Case("an endpoint's port", endpoint("n1:http", ""), "port-invalid", FAIL),
    Case("an endpoint's port, lost", endpoint("n1:", "c10d"), "port-invalid", FAIL),
    Case("an endpoint's port 99999", endpoint("n1:99999", "etcd-v2"), "port-invalid", FAIL),
    Case("an endpoint's port 0", endpoint("n1:0", "c10d"), "port-invalid", FAIL),
    Case(
        "port 0 of a static one, on one node",
        shared({"PET_RDZV_ENDPOINT": "localhost:0", "PET_RDZV_BACKEND": "static"}),
        "port-invalid",
        FAIL,
    ),
    Case("a static endpoint without port", endpoint("n1", "static"), "port-missing", FAIL),
    Case("a static IPv6 endpoint", endpoint("[fd77::1]", "static"), "port-missing", FAIL),
    Case("an endpoint without port", endpoint("10.77.0.1", ""), "port-missing", WARN),
)

EIGHT = two_by_four(8)
TWELVE = [
    ENV | {"RANK": str(r), "LOCAL_RANK": str(r % 4), "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "12"}
    for r in range(12)
]

ADDRESSES = (
    Case("host:port", one(ENV | {"MASTER_ADDR": "node-0:29500"}), "address-malformed", FAIL),
    Case("URL", one(ENV | {"MASTER_ADDR": "http://node-0"}), "address-malformed", FAIL),
    Case("CR", one(ENV | {"MASTER_ADDR": "node-0\r"}), "address-malformed", FAIL),
    Case("blank", shared({"MASTER_ADDR": " node-0"}), "address-malformed", FAIL),
    Case("brackets", one(ENV | {"MASTER_ADDR": "[::1]"}), "address-malformed", FAIL),
    Case("node list", one(ENV | {"MASTER_ADDR": "n[1-4]"}), "address-malformed", FAIL),
    Case("too long", one(ENV | {"MASTER_ADDR": "n" * 256}), "address-malformed", FAIL),
    Case("endpoint", shared({"PET_RDZV_ENDPOINT": "node 0:29400"}), "address-malformed", FAIL),
    Case(
        "localhost under torchrun on two nodes",
        one(torchrun(0, 8, MASTER_ADDR="localhost")),
        "address-loopback",
        FAIL,
    ),
    Case(
        "127.0.1.1 in a step of two nodes",
        each(*(mapped(r, MASTER_ADDR="127.0.1.1") for r in range(8))),
        "address-loopback",
        FAIL,
    ),
    Case(
        "localhost under mpirun",
        one(mpirun(0) | ENV | {"WORLD_SIZE": "8", "MASTER_ADDR": "localhost"}),
        "address-loopback",
        FAIL,
    ),
    Case(
        "localhost in a batch script of two nodes",
        shared(BATCH | {"MASTER_ADDR": "localhost"}),
        "address-loopback",
        WARN,
    ),
    Case(
        "localhost in rank 0's pod, which only a flag calls so",
        shared({"MASTER_ADDR": "localhost"}, kubernetes=True),
        topology=PODS,
    ),
    Case(
        "localhost in the second pod",
        shared(SECOND_POD | {"MASTER_ADDR": "localhost"}, kubernetes=True),
        "address-loopback",
        FAIL,
        topology=PODS,
    ),
    Case(
        "localhost for torchrun on node 1",
        shared(TRAINER | {"PET_MASTER_ADDR": "localhost"}),
        "address-loopback",
        FAIL,
    ),
    Case(
        "localhost for torchrun on node 0, without an operator",
        shared(TRAINER | {"PET_MASTER_ADDR": "localhost", "PET_NODE_RANK": "0"}),
        "address-loopback",
        WARN,
    ),
    Case(
        "0.0.0.0 where rank 0 is",
        shared({"MASTER_ADDR": "0.0.0.0", "MASTER_PORT": "29500"}),
        topology=topology(4, facts={"nodes": Fact("2", "--nodes")}, size=8),
    ),
    Case(
        "0.0.0.0 as torchrun's endpoint",
        shared({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "0.0.0.0:29400"}),
        "address-loopback",
        FAIL,
    ),
    Case(
        "localhost with --nodes 2",
        shared({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}),
        "address-loopback",
        FAIL,
        topology=topology(4, facts={"nodes": Fact("2", "--nodes")}, size=8),
    ),
    Case(
        "localhost where rank 0 is, and the others have its name",
        each(*({**e, "MASTER_ADDR": "localhost"} for e in EIGHT[:4]), *EIGHT[4:]),
        topology=several(),
    ),
    Case(
        "localhost where rank 0 is, and one of two others has a name",
        {
            f"n{r // 4 + 1}/{r}": Identity(e if r > 7 else {**e, "MASTER_ADDR": "localhost"})
            for r, e in enumerate(TWELVE)
        },
        "address-loopback",
        FAIL,
        topology=several(3),
    ),
    Case(
        "c10d endpoint on localhost",
        shared({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "localhost:29400"}),
        "address-loopback",
        FAIL,
    ),
)


def without(name: str) -> dict[str, str]:
    return {k: v for k, v in ENV.items() if k != name}


LAUNCHERS = (
    Case("no MASTER_ADDR", one(without("MASTER_ADDR")), "incomplete", FAIL),
    Case("empty MASTER_ADDR", one(ENV | {"MASTER_ADDR": ""}), "incomplete", FAIL),
    Case("no MASTER_PORT", one(without("MASTER_PORT")), "incomplete", FAIL),
    Case("no WORLD_SIZE", one(without("WORLD_SIZE")), "incomplete", FAIL),
    Case("one process", one({"RANK": "0", "WORLD_SIZE": "1"}), "incomplete", WARN),
    Case("RANK alone", one({"RANK": "2"}, rank=0), "incomplete", WARN),
    Case("RANK left over before torchrun", shared({"RANK": "0"}), "incomplete", WARN),
    Case(
        "RANK exported before srun",
        each(*(mapped(r, RANK="0") for r in range(8))),
        "launcher-disagrees",
        FAIL,
        subject="n1 · rank 1",
        topology=several(),
    ),
    Case(
        "the same, seen by one task",
        one(mapped(3, RANK="0"), rank=3),
        "launcher-disagrees",
        FAIL,
    ),
    Case(
        "LOCAL_RANK exported before srun",
        each(*(mapped(r, LOCAL_RANK="0") for r in range(8))),
        "local-rank-differs",
        WARN,
        subject="n1 · rank 1",
        topology=several(),
    ),
    Case(
        "and a container that shows all GPUs",
        one(mapped(3, LOCAL_RANK="0", NVIDIA_VISIBLE_DEVICES="all"), rank=3),
        "local-rank-differs",
        WARN,
    ),
    Case(
        "LOCAL_RANK exported before mpirun",
        one(mpirun(5) | ENV | {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, rank=5),
        "local-rank-differs",
        WARN,
    ),
    Case(
        "RANK=0 in the manifest of an Indexed Job",
        one(INDEXED_RANK | {"RANK": "0"}, kubernetes=True),
        "launcher-disagrees",
        WARN,
    ),
    Case(
        "WORLD_SIZE of an earlier job, and --nodes",
        one(ALONE | {"WORLD_SIZE": "8"}),
        "world-size-mismatch",
        FAIL,
        topology=THREE_NODES,
    ),
    Case(
        "the same, with several ranks a node",
        each(*two_by_four(16)),
        "world-size-mismatch",
        FAIL,
        topology=typed(2, 16, 4, 4),
    ),
    Case(
        "PET_NNODES of an earlier job",
        one({"PET_NNODES": "2"}),
        "node-count-differs",
        WARN,
        topology=THREE_NODES,
    ),
    Case(
        "a torchrun for two nodes, of which this one has no number",
        one(TO_COME),
        "nodes-unchecked",
        WARN,
        topology=ANY_NUMBER,
    ),
    Case(
        "GPUs to be counted where there is none",
        one(COUNTED),
        "gpus-absent",
        FAIL,
        topology=counted("env PET_NPROC_PER_NODE=gpu, no GPU"),
    ),
    Case(
        "a WORLD_SIZE of the batch script, whose ranks come from srun",
        one(srun(1, 4, 2, WORLD_SIZE="8", MASTER_ADDR="n1")),
        "world-size-mismatch",
        WARN,
    ),
    Case(
        "the same where each task starts two ranks",
        shared(srun(1, 4, 2, WORLD_SIZE="8", MASTER_ADDR="n1"), 2),
    ),
    Case("of a node's agent", shared(mapped(1, 2, 2, RANK="0")), "launcher-disagrees", WARN),
    Case(
        "WORLD_SIZE of an allocation, and a step of fewer nodes",
        one(mapped(1, 3, 3, WORLD_SIZE="4"), rank=1),
        "world-size-mismatch",
        FAIL,
    ),
    Case(
        "WORLD_SIZE of what three tasks start, two each",
        one(mapped(1, 3, 3, WORLD_SIZE="6"), rank=1),
    ),
    Case(
        "nodes that start as many ranks as they have GPUs",
        one({k: v for k, v in mapped(1, 3, 3, WORLD_SIZE="4").items() if k != "LOCAL_RANK"}),
    ),
    Case("WORLD_SIZE of nodes", one(mapped(1, WORLD_SIZE="2")), "world-size-mismatch", FAIL),
    Case("RANK under mpirun", one(mpirun(5) | ENV), "launcher-disagrees", FAIL),
    Case(
        "RANK under hydra",
        one(ENV | {"PMI_RANK": "3", "PMI_SIZE": "4"}),
        "launcher-disagrees",
        FAIL,
    ),
    Case(
        "PMI_* of an earlier launch",
        one(srun(5, PMI_RANK="0", PMI_SIZE="1"), rank=5),
        "launcher-disagrees",
        WARN,
    ),
    Case(
        "the size alone",
        one(srun(0, PMI_RANK="0", PMI_SIZE="1")),
        "launcher-disagrees",
        WARN,
    ),
    Case("node rank", one(srun(1, 2, 2, NODE_RANK="0")), "launcher-disagrees", FAIL),
    Case("torchrun's node rank", one(srun(1, 2, PET_NODE_RANK="0")), "launcher-disagrees", FAIL),
    Case(
        "a pod with two numbers",
        shared(SECOND_POD | {"RANK": "0"}, kubernetes=True),
        "launcher-disagrees",
        WARN,
    ),
    Case(
        "a pod whose WORLD_SIZE is neither of pods nor of ranks",
        shared(FIRST_POD | RANKS | {"WORLD_SIZE": "4"}, kubernetes=True),
        "launcher-disagrees",
        WARN,
    ),
    Case(
        "RANK of a manifest that is not the pod's number",
        one(INDEXED | {"RANK": "0"}, kubernetes=True),
        "incomplete",
        FAIL,
    ),
    Case(
        "torchrun in each of 4 tasks a node",
        one(torchrun(0, 8) | srun(0, 8, 2)),
        "launchers-nested",
        FAIL,
    ),
    Case(
        "a world of its own in each task",
        one(torchrun(0, 4) | srun(0, 4, 1)),
        "launchers-nested",
        WARN,
    ),
    Case(
        "a world of its own on each node",
        one(torchrun(0, 4) | srun(0, 2, 2)),
        "worlds-split",
        FAIL,
    ),
    Case(
        "one in each pod, of two",
        one(torchrun(0, 4, PET_NNODES="2"), kubernetes=True),
        "worlds-split",
        FAIL,
    ),
    Case(
        "the same by mpirun",
        one(torchrun(0, 4) | mpirun(0, 2, 1)),
        "worlds-split",
        FAIL,
    ),
    Case("under mpirun", one(torchrun(0, 8) | mpirun(0)), "launchers-nested", FAIL),
    Case(
        "torchrun is still to come",
        one(srun(0, 8, 2, PET_NPROC_PER_NODE="4", PET_NNODES="2")),
        "launchers-nested",
        WARN,
    ),
    Case(
        "left over from torchrun",
        one(ENV | {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
        "store-not-served",
        FAIL,
    ),
    Case(
        "--standalone on one node or two",
        shared({"PET_NNODES": "1:2", "PET_STANDALONE": "1"}),
        "standalone",
        WARN,
    ),
    Case(
        "--standalone on two nodes",
        shared({"PET_NNODES": "2", "PET_STANDALONE": "1"}),
        "standalone",
        FAIL,
    ),
    Case("LOCAL_WORLD_SIZE", shared({"LOCAL_WORLD_SIZE": "8"}), "local-count", WARN),
    Case("PET_NPROC_PER_NODE", shared({"PET_NPROC_PER_NODE": "8"}), "local-count", WARN),
)


def component(first: int, tasks: int, **more: str) -> list[dict[str, str]]:
    """Ranks of one component of a heterogeneous job of four, that an srun of its own has started;
    the script has added `first` to its tasks' numbers."""
    return [
        srun(task, tasks, 1)
        | {"RANK": str(first + task), "WORLD_SIZE": "4", "LOCAL_RANK": str(task)}
        | {"SLURM_HET_SIZE": "2", "MASTER_ADDR": "gpu-b07", "MASTER_PORT": "29500"}
        | more
        for task in range(tasks)
    ]


def launched_apart(first: int) -> list[dict[str, str]]:
    """Ranks of one of two mpiexec of PALS, as found in scripts for Aurora."""
    return [
        {"PMI_RANK": str(task), "PMI_SIZE": "2", "PMI_LOCAL_RANK": str(task)}
        | {"PMI_LOCAL_SIZE": "2", "PALS_RANKID": str(task), "PALS_LOCAL_RANKID": str(task)}
        | {"RANK": str(first + task), "WORLD_SIZE": "4", "LOCAL_RANK": str(task)}
        | {"MASTER_ADDR": "x1", "MASTER_PORT": "29500"}
        for task in range(2)
    ]


# a pod of Volcano's with its plugin for PyTorch, beside one that shows TensorBoard (volcano#4166)
VOLCANO = {
    **{"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "test-master-0.test", "MASTER_PORT": "23456"},
    **{"VC_MASTER_NUM": "1", "VC_WORKER_NUM": "1", "VC_TENSORBOARD_NUM": "1"},
}
HALF = topology(2, size=4)
SEVERAL_LAUNCHES = (
    Case(
        "Volcano's WORLD_SIZE counts a pod without a rank",
        one(VOLCANO, kubernetes=True),
        "world-size-mismatch",
        FAIL,
    ),
    Case("the same once it is fixed", one(VOLCANO | {"WORLD_SIZE": "2"}, kubernetes=True)),
    Case(
        "all pods of Volcano's job train",
        one(VOLCANO | {"WORLD_SIZE": "2", "VC_TENSORBOARD_NUM": ""}, kubernetes=True),
    ),
    Case(
        "Volcano's tasks by other names",
        one(
            {k: v for k, v in VOLCANO.items() if k not in ("VC_MASTER_NUM", "VC_WORKER_NUM")}
            | {"VC_TRAINER_NUM": "2"},
            kubernetes=True,
        ),
    ),
    Case(
        "ranks of their own in Volcano's pods",
        one(VOLCANO | {"LOCAL_RANK": "0"}, kubernetes=True),
    ),
    Case("two sruns make one world", each(*component(0, 2), *component(2, 2))),
    Case(
        "LOCAL_RANK=0 and a tile of Intel's for each, as in scripts for Aurora",
        each(
            *(
                env | {"LOCAL_RANK": "0", "ZE_AFFINITY_MASK": f"0.{env['RANK']}"}
                for env in component(0, 4)
            )
        ),
    ),
    Case("two mpiexec make one world", each(*launched_apart(0), *launched_apart(2))),
    Case("the second of them alone", each(*component(2, 2)), topology=HALF),
    Case(
        "the first component alone, with the job's WORLD_SIZE",
        each(*component(0, 2)),
        "world-size-mismatch",
        FAIL,
        topology=HALF,
    ),
    Case(
        "both components count from 0",
        each(*component(0, 2), *component(0, 2), per_node=2),
        "rank-duplicate",
        FAIL,
        topology=HALF,
    ),
    Case(
        "one RANK for all tasks of each component",
        each(*component(0, 2, RANK="0"), *component(0, 2, RANK="0")),
        "launcher-disagrees",
        FAIL,
        topology=HALF,
    ),
)

ACROSS = (
    Case(
        "one RANK twice",
        each(ENV, ENV | {"RANK": "1"}, ENV | {"RANK": "1", "LOCAL_RANK": "0"}),
        "rank-duplicate",
        FAIL,
        subject="n1 · rank 1",
    ),
    Case(
        "another WORLD_SIZE",
        each(*(torchrun(r, 4, WORLD_SIZE="5" if r == 2 else "4") for r in range(4))),
        "world-differs",
        FAIL,
        subject="n1 · rank 2",
    ),
    Case(
        "no majority for WORLD_SIZE",
        each(torchrun(0, 2, 2), torchrun(1, 2, 2, WORLD_SIZE="3")),
        "world-differs",
        FAIL,
        subject="n1 · rank 0",
    ),
    Case(
        "rank 0's port counts",
        each(mapped(0, 2, 1), mapped(1, 2, 1, MASTER_PORT="29501")),
        "world-differs",
        FAIL,
        subject="n1 · rank 1",
    ),
    Case(
        "every node names itself",
        each(mapped(0, 2, 2, MASTER_ADDR="n1"), mapped(1, 2, 2, MASTER_ADDR="n2"), per_node=1),
        "master-differs",
        FAIL,
        subject="n2 · rank 1",
        topology=several(2, 1),
    ),
    Case(
        "two names, perhaps of one host",
        each(mapped(0, 2, 2), mapped(1, 2, 2, MASTER_ADDR="10.0.0.7"), per_node=1),
        "master-differs",
        WARN,
        topology=several(2, 1),
    ),
    Case(
        "two names of one host: all have met",
        each(mapped(0, 2, 2), mapped(1, 2, 2, MASTER_ADDR="10.0.0.7"), per_node=1),
        topology=met("10.0.0.7", "10.0.0.8"),
    ),
    Case(
        "two names, and --meet says where they met",
        each(mapped(0, 2, 2), mapped(1, 2, 2, MASTER_ADDR="10.0.0.7"), per_node=1),
        "master-differs",
        WARN,
        topology=met("10.0.0.8", "10.0.0.9", facts={"master_addr": Fact("head", "--meet")}),
    ),
    Case(
        "the name of a node without rank 0, on the one that did not come",
        each(
            *(mapped(r, 3, 3, MASTER_ADDR=a) for r, a in enumerate(("n1", "n1", "n2"))), per_node=1
        ),
        "master-differs",
        FAIL,
        subject="n3 · rank 2",
        topology=met("10.0.0.1", "10.0.0.2", ""),
    ),
    Case(
        "the address of a node without rank 0",
        each(
            *(mapped(r, 3, 3, MASTER_ADDR=a) for r, a in enumerate(("n1", "n1", "10.0.0.2"))),
            per_node=1,
        ),
        "master-differs",
        FAIL,
        subject="n3 · rank 2",
        topology=met("10.0.0.1", "10.0.0.2", ""),
    ),
    Case(
        "LOCAL_WORLD_SIZE of nodes with more GPUs",
        each(*(mapped(r, 4, 2, LOCAL_WORLD_SIZE="8") for r in range(4)), per_node=2),
        "local-size-differs",
        WARN,
        subject="n1 · rank 0",
        topology=several(2, 2),
    ),
    Case(
        "LOCAL_WORLD_SIZE of this job",
        each(*(mapped(r, 4, 2, LOCAL_WORLD_SIZE="2") for r in range(4)), per_node=2),
        topology=several(2, 2),
    ),
    Case(
        "who did not come has another name of the right node",
        each(
            *(mapped(r, 3, 3, MASTER_ADDR=a) for r, a in enumerate(("n1", "n1", "10.0.0.1"))),
            per_node=1,
        ),
        topology=met("10.0.0.1", "10.0.0.2", ""),
    ),
)

CASES = HEALTHY + ENDPOINTS + NUMBERS + ADDRESSES + LAUNCHERS + SEVERAL_LAUNCHES + ACROSS


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(env_identity, case)


def test_every_code_has_a_case() -> None:
    assert {c.code for c in CASES} - {None} == set(env_identity.FINDINGS)


@pytest.mark.parametrize(
    ("listed", "left_over"),
    [("n[2-5]", True), ("n[1-4]", False), ("n1.cluster,n2", False), ("", False), ("%%", False)],
)
def test_variables_of_an_allocation_without_this_node_may_be_left_over(
    listed: str, left_over: bool
) -> None:
    environ = srun(0, 2, 2, SLURM_STEP_NODELIST=listed, SLURM_JOB_NODELIST="") | ENV | {"RANK": "1"}
    (found,) = judged(env_identity, Case("", one(environ), topology=HALF))
    assert found.code == "launcher-disagrees"
    assert bool(found.alternatives) is left_over


def test_the_tasks_of_volcanos_job_are_observed(tmp_path: Path) -> None:
    seen = env_identity.observe(Host(str(tmp_path), VOLCANO | {"VC_WORKER_HOSTS": "a"}), context())
    assert seen.values == VOLCANO


def test_the_other_component_may_bring_the_ranks_that_are_missing() -> None:
    (found,) = judged(env_identity, Case("", each(*component(0, 2)), topology=HALF))
    assert "SLURM_HET_SIZE='2'" in found.saw
    assert found.alternatives == ("another srun of this job's 2 components starts the other ranks",)


def test_a_number_for_all_tasks_is_right_on_one_of_them_by_chance() -> None:
    saw = each(*(mapped(r, LOCAL_RANK="0") for r in range(8)))
    (finding,) = judged(env_identity, Case("", saw, topology=several()))
    assert {rank for s in finding.subjects for rank in s.ranks} == set(range(8))
    own = each(*(mapped(r, LOCAL_RANK="0" if r < 4 else str(r % 4)) for r in range(8)))
    (finding,) = judged(env_identity, Case("", own, topology=several()))
    assert {s.node for s in finding.subjects} == {"n1"}  # n2 sets its own, from 0 on


def test_equal_findings_of_many_ranks_are_one() -> None:
    saw = each(*(mapped(r, 1024, 256, RANK="0") for r in range(1024)))
    (finding,) = judged(env_identity, Case("", saw, topology=several(256)))
    assert len(finding.subjects) == 1024
    assert finding.saw.startswith("RANK='0' · SLURM_PROCID='1'; ")
    assert finding.saw.endswith("and 1020 more")
    assert finding.confidence is Confidence.LIKELY


def test_the_fix_names_what_differs() -> None:
    envs = each(*({"MASTER_PORT": port} for port in ("29500", "29500", "29600")), per_node=1)
    (finding,) = judged(env_identity, Case("", envs, topology=several(3, 1)))
    text = env_identity.FINDINGS[finding.code].filled(finding.fields).text
    assert text.startswith("set the same MASTER_PORT on every node")


def test_shared_environment_names_all_its_ranks() -> None:
    (finding,) = judged(env_identity, Case("", shared({"MASTER_PORT": "x"})))
    assert [s.ranks for s in finding.subjects] == [(0,), (1,), (2,), (3,)]


def test_values_are_shown_as_repr() -> None:
    (finding,) = judged(env_identity, Case("", one(ENV | {"MASTER_ADDR": "node-0\r"})))
    assert r"MASTER_ADDR='node-0\r': it contains a carriage return" in finding.saw
    assert "net.name" in finding.explains


def test_measured_names_the_reading() -> None:
    from support.cases import world

    seen = world("env.identity", shared(SECOND_POD, kubernetes=True), PODS)
    assert "read as nodes" in env_identity.measured(seen).text


def test_measured_tells_a_batch_script_what_it_leaves_out() -> None:
    from support.cases import world

    top = topology(4, facts={"job_nodes": Fact("2", "env SLURM_JOB_NUM_NODES")})
    text = env_identity.measured(world("env.identity", shared(BATCH), top)).text
    assert text.endswith("this machine alone, of a job of 2 nodes")


def test_the_node_list_is_read_so_that_a_command_can_be_given(tmp_path: Path) -> None:
    environ = srun(0, 8, 2, MASTER_ADDR="localhost", SLURM_STEP_NODELIST="n[1-2]")
    seen = env_identity.observe(Host(str(tmp_path), environ), context())
    found = judged(env_identity, Case("", {"n1/0": seen}))
    assert [f.fields["first"] for f in found if f.code == "address-loopback"] == ["n1"]


def test_observe_this_machine() -> None:
    seen = env_identity.observe(Host(), context())
    round_trips(seen)
    assert set(seen.values) <= set(NAMES)


def test_observe_takes_only_known_names(tmp_path: Path) -> None:
    environ = tmp_path / "proc/self/environ"
    environ.parent.mkdir(parents=True)
    environ.write_bytes(
        b"RANK=3\0HF_TOKEN=abc\0MASTER_ADDR=u:pw@node\xff-0\0WORLD_SIZE=" + b"4" * (1 << 19) + b"\0"
        b"KUBERNETES_SERVICE_HOST=10.0.0.1\0" + b"".join(b"X%d=1\0" % n for n in range(10_000))
    )
    seen = env_identity.observe(Host(str(tmp_path)), context(local_world_size=2))
    assert set(seen.values) == {"RANK", "MASTER_ADDR", "WORLD_SIZE"}
    assert seen.values["RANK"] == "3"
    assert "pw" not in seen.values["MASTER_ADDR"]
    assert len(seen.values["WORLD_SIZE"]) == 256
    assert (seen.owned, seen.kubernetes) == (2, True)
    round_trips(seen)


def test_world_size_of_another_job_is_about_the_ranks_that_nobody_starts_too() -> None:
    case = next(c for c in LAUNCHERS if c.name == "the same, with several ranks a node")
    (found,) = judged(env_identity, case)
    assert found.subjects[-1] == Subject(Kind.RANK, ranks=tuple(range(8, 16)))
    assert (found.fields["said"], found.fields["right"]) == ("16", "8")


def test_of_a_smaller_world_size_nobody_is_missing() -> None:
    case = next(c for c in LAUNCHERS if c.name == "WORLD_SIZE of nodes")
    (found,) = judged(env_identity, case)
    assert all(subject.node for subject in found.subjects)
