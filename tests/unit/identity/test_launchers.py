"""Every launcher's environment, as recorded from it: who we are there, each number with its
source, and env.identity silent. And the launchers themselves, where they can run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from faults.world import machines
from lab.host import ENVIRONMENT, Command, Lab
from lab.machine import SWITCH
from lab.probe import possible
from support.cases import world
from support.launcher_environments import comment, names, processes

from preflight.checks import env_identity
from preflight.checks.env_identity import Identity
from preflight.expect import Expect
from preflight.identity.consistency import NAMES
from preflight.identity.discover import discover
from preflight.identity.launchers import LAUNCHERS, detect
from preflight.model import Node, Topology


@dataclass(frozen=True)
class Launch:
    """What a recording must be read as.

    ranks    of every process, in the order of the recording
    master   address and port; an address alone where the port is a free one
    sources  what -> where it came from, in the last process
    flags    given to all of them
    """

    launcher: str
    size: int
    ranks: Sequence[Sequence[int]]
    master: str
    sources: Mapping[str, str]
    flags: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""


def each(count: int) -> list[list[int]]:
    return [[rank] for rank in range(count)]


def node(count: int, nproc: int) -> list[list[int]]:
    return [list(range(n * nproc, (n + 1) * nproc)) for n in range(count)]


ENV = {"rank": "env RANK", "size": "env WORLD_SIZE", "nproc": "env RANK (one process per rank)"}
MASTER = {"master_addr": "env MASTER_ADDR", "master_port": "env MASTER_PORT"}
STEP = {
    "rank": "env SLURM_PROCID",
    "size": "env SLURM_STEP_NUM_TASKS",
    "local_rank": "env SLURM_LOCALID",
    "nproc": "env SLURM_PROCID (one process per rank)",
    "master_addr": "first of SLURM_STEP_NODELIST",
    "master_port": "torch's default",
    "job": "env SLURM_JOB_ID",
}
OMPI = {
    "rank": "env OMPI_COMM_WORLD_RANK",
    "size": "env OMPI_COMM_WORLD_SIZE",
    "local_rank": "env OMPI_COMM_WORLD_LOCAL_RANK",
    "nproc": "env OMPI_COMM_WORLD_RANK (one process per rank)",
}
PMI = {"rank": "env PMI_RANK", "size": "env PMI_SIZE", "local_rank": "env MPI_LOCALRANKID"}
PET = {"nodes": "env PET_NNODES", "node_rank": "env PET_NODE_RANK"}
PET_MASTER = {"master_addr": "env PET_MASTER_ADDR", "master_port": "env PET_MASTER_PORT"}
GPUS = {"gpus": 4, "gpus_source": "NVML"}
AT = {"meet": "n1:29500"}

LAUNCHES = {
    "torchrun-standalone": Launch("torchrun", 2, each(2), "n1", ENV | MASTER),
    "torchrun-c10d": Launch("torchrun", 4, each(4), "n1", ENV | MASTER, job="lab"),
    "torchrun-static": Launch("torchrun", 4, each(4), "n1:29500", ENV | MASTER),
    "accelerate": Launch("torchrun", 4, each(4), "n1:29500", ENV | MASTER),
    "accelerate-slurm": Launch("torchrun", 4, each(4), "n1:29500", ENV | MASTER),
    "lightning": Launch(
        "Lightning",
        4,
        each(4),
        "n1:29500",
        MASTER | {"rank": "env NODE_RANK and LOCAL_RANK", "size": "env WORLD_SIZE"},
        {"nodes": 2},
    ),
    "lightning-slurm": Launch("SLURM", 4, each(4), "n1:15001", STEP | MASTER, job="1"),
    "ray-train": Launch("Ray Train", 2, each(2), "192.0.2.2:49757", ENV | MASTER, job="01000000"),
    "srun-task-a-node": Launch("SLURM", 2, each(2), "n1:29500", STEP, job="1"),
    "srun-task-a-rank": Launch("SLURM", 8, each(8), "n1:29500", STEP, job="2"),
    "srun-uneven": Launch("SLURM", 7, each(7), "n1:29500", STEP, job="3"),
    "srun-pmi2": Launch("SLURM", 4, each(4), "n1:29500", STEP, job="4"),
    # one step of both components, and one of the second alone
    "srun-het": Launch("SLURM", 4, each(4), "n1:29500", STEP, job="3"),
    "srun-het-second": Launch("SLURM", 2, each(2), "n2:29500", STEP, job="1"),
    "srun-cray": Launch("SLURM", 4, each(4), "x1:29500", STEP, job="7"),
    "pals": Launch(
        "PALS",
        4,
        each(4),
        "x1:29500",
        MASTER
        | {
            "rank": "env PALS_RANKID",
            "size": "env PMI_SIZE",
            "local_rank": "env PALS_LOCAL_RANKID",
        },
    ),
    "pals-pmix": Launch(
        "PALS",
        4,
        each(4),
        "x1:29500",
        MASTER | {"rank": "env PALS_RANKID", "size": "env WORLD_SIZE"},
    ),
    "jsrun": Launch(
        "jsrun",
        4,
        each(4),
        "a1:29500",
        {"rank": "env JSM_NAMESPACE_RANK", "size": "env JSM_NAMESPACE_SIZE"},
        job="815",
    ),
    "sagemaker": Launch(
        "SageMaker",
        8,
        node(2, 4),
        "algo-1:7777",
        {
            "nodes": "env SM_HOST_COUNT",
            "node_rank": "env SM_CURRENT_HOST_RANK",
            "nproc": "env SM_NUM_GPUS",
            "master_addr": "env SM_MASTER_ADDR",
        },
        job="train",
    ),
    "sagemaker-toolkit": Launch(
        "SageMaker",
        8,
        node(2, 4),
        "algo-1:29500",
        {
            "nodes": "hosts in SM_HOSTS",
            "node_rank": "SM_CURRENT_HOST in SM_HOSTS",
            "master_addr": "first of SM_HOSTS",
        },
        job="train",
    ),
    "sbatch-srun": Launch("SLURM", 2, each(2), "n1:29500", STEP, job="7"),
    "sbatch-script": Launch(
        "local",
        4,
        [[0, 1, 2, 3]],
        "127.0.0.1",
        {"nproc": "NVML", "job_nodes": "env SLURM_JOB_NUM_NODES", "master_port": "a free port"},
        GPUS,
        job="6",
    ),
    "salloc": Launch(
        "local", 1, [[0]], "127.0.0.1", {"job_nodes": "env SLURM_JOB_NUM_NODES"}, job="10"
    ),
    "salloc-interactive": Launch(
        "local", 4, [[0, 1, 2, 3]], "127.0.0.1", {"nproc": "NVML"}, GPUS, job="11"
    ),
    "openmpi": Launch("Open MPI", 4, each(4), "n1:29500", OMPI | {"master_addr": "--meet"}, AT),
    "openmpi-slurm": Launch(
        "Open MPI",
        4,
        each(4),
        "n1:29500",
        OMPI | {"master_addr": "first of SLURM_JOB_NODELIST"},
        job="8",
    ),
    "mpich": Launch("MPI (PMI)", 4, each(4), "127.0.0.1", PMI),
    "mpich-slurm": Launch(
        "MPI (PMI)",
        4,
        each(4),
        "n1:29500",
        PMI | {"master_addr": "first of SLURM_JOB_NODELIST"},
        job="9",
    ),
    "pytorchjob-v1": Launch(
        "Kubernetes pod",
        8,
        node(2, 4),
        "job-master-0:23456",
        MASTER
        | {
            "nodes": "env WORLD_SIZE, read as nodes: LOCAL_WORLD_SIZE is not there",
            "node_rank": "env RANK, read as the node's",
            "nproc": "--nproc",
            "size": "2 nodes x 4",
        },
        {"nproc": 4},
    ),
    "pytorchjob": Launch(
        "PyTorchJob",
        8,
        node(2, 4),
        "job-master-0:23456",
        PET | PET_MASTER | {"nproc": "env PET_NPROC_PER_NODE"},
    ),
    "pytorchjob-auto": Launch(
        "PyTorchJob",
        8,
        node(2, 4),
        "job-master-0:23456",
        PET | PET_MASTER | {"nproc": "env PET_NPROC_PER_NODE=auto, NVML"},
        GPUS,
    ),
    "trainer-v2": Launch(
        "Kubeflow Trainer",
        8,
        node(2, 4),
        "train-node-0-0.train:29500",
        PET | PET_MASTER | {"nproc": "env PET_NPROC_PER_NODE"},
    ),
    "trainer-v2-auto": Launch(
        "Kubeflow Trainer",
        2,
        each(2),
        "train-node-0-0.train:29500",
        PET | PET_MASTER | {"nproc": "env PET_NPROC_PER_NODE=auto, no GPU"},
    ),
    "trainer-v2-cpu": Launch(
        "Kubeflow Trainer",
        6,
        node(2, 3),
        "train-node-0-0.train:29500",
        PET | PET_MASTER | {"nproc": "env PET_NPROC_PER_NODE=cpu, CPUs of this node"},
        {"cpus": 3},
    ),
    "indexed-job": Launch(
        "Indexed Job",
        8,
        node(2, 4),
        "train-0.train:29500",
        MASTER | {"nodes": "--nodes", "node_rank": "env JOB_COMPLETION_INDEX"},
        {"nodes": 2, "nproc": 4},
    ),
    "jobset": Launch(
        "Indexed Job",
        4,
        each(4),
        "pytorch-workers-0-0.pytorch:3389",
        MASTER | {"nodes": "--nodes", "node_rank": "env JOB_COMPLETION_INDEX"},
        {"nodes": 4, "nproc": 1},
    ),
}


def read(name: str, launch: Launch) -> list[Topology]:
    return [discover(p.environ, p.host, **launch.flags) for p in processes(name)]


def test_every_recording_is_in_the_table_and_says_how_it_was_made() -> None:
    assert set(LAUNCHES) == set(names())
    for name in names():
        said = comment(name)
        assert said.startswith("# Recorded ") or "not recorded" in said, name


def test_every_launcher_has_a_recording() -> None:
    shown = {detect(p.environ).name for name in names() for p in processes(name)}
    # of these the tests make up what they need
    made_up = {"environment", "environment of a node", "MPI (PMIx)", "Flux", "ALPS", "SkyPilot"}
    made_up.add("torchrun's options")  # of preflight's own making
    assert {launcher.name for launcher in LAUNCHERS} - shown == made_up


def test_recordings_hold_nothing_of_the_machine_they_were_made_on() -> None:
    for name in names():
        for process in processes(name):
            for variable, value in process.environ.items():
                assert "/" not in value, (name, variable)
                assert not any(w in variable for w in ("KEY", "TOKEN", "SECRET", "USER"))


@pytest.mark.parametrize("name", LAUNCHES)
def test_who_we_are(name: str) -> None:
    launch = LAUNCHES[name]
    read_as = read(name, launch)
    assert {top.launcher for top in read_as} == {launch.launcher}
    assert {top.size for top in read_as} == {launch.size}
    assert [list(top.nodes[0].ranks) for top in read_as] == [list(r) for r in launch.ranks]
    owned = [rank for top in read_as for rank in top.nodes[0].ranks]
    assert sorted(owned) == list(range(launch.size)), "each rank has one owner"
    addr, _, port = launch.master.partition(":")
    last = read_as[-1]
    assert last.master_addr == addr
    assert not launch.job or last.job == launch.job
    assert not port or last.master_port == int(port)
    for what, source in launch.sources.items():
        assert last.facts[what].source == source, what


@pytest.mark.parametrize("name", LAUNCHES)
def test_env_identity_has_nothing_to_say_of_what_launchers_say(name: str) -> None:
    launch = LAUNCHES[name]
    found = processes(name)
    tops = read(name, launch)
    seen = {
        f"{top.nodes[0].name}/{rank}": Identity(
            {n: process.environ[n] for n in NAMES if n in process.environ},
            owned=top.met,
            kubernetes="KUBERNETES_SERVICE_HOST" in process.environ,
        )
        for process, top in zip(found, tops, strict=True)
        for rank in top.nodes[0].ranks
    }
    hosts = dict.fromkeys(process.host for process in found)
    nodes = tuple(
        Node(h, tuple(r for t in tops if t.nodes[0].name == h for r in t.nodes[0].ranks))
        for h in hosts
    )
    top = Topology(launch.launcher, launch.job, launch.size, nodes, facts=tops[0].facts)
    findings = list(env_identity.judge(world("env.identity", seen, top), Expect()))
    assert [(f.code, f.saw) for f in findings] == []


def test_ranks_of_one_node_know_how_many_they_are() -> None:
    """Else each would take itself for the only agent of its node."""
    here = [top.nodes[0].size for top in read("srun-uneven", LAUNCHES["srun-uneven"])]
    assert here == [4, 4, 4, 4, 2, 2, 1]
    assert [t.nodes[0].size for t in read("openmpi-slurm", LAUNCHES["openmpi-slurm"])] == [2] * 4


# --- the launchers themselves ---

ENDS_SECONDS = 100.0
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
# sums over Gloo, and all that they need before; one core may have eight imports of torch to do
RUN = ("-m", "preflight", "run", "--only", "env.*,world.gloo", "--arrive", "60s", "-o", "json")
STATIC = ("--master-addr", "n1", "--master-port", "29500")
C10D = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "n1:29500", "--rdzv-id", "lab")
NEEDED = {"env.identity", "rdzv.reach", "net.mesh", "rdzv.store", "world.gloo"}


def assert_ready(report: Any, launcher: str) -> None:
    """Four ranks on two nodes, all of which have summed up."""
    assert report["verdict"] == "ready", report["findings"]
    world = report["world"]
    assert (world["source"], world["size"], world["met"]) == (launcher, 4, 4)
    assert [node["ranks"] for node in world["nodes"]] == [[0, 1], [2, 3]]
    passed = {row["id"] for row in report["checks"] if row["status"] == "pass"}
    assert passed >= NEEDED
    (sums,) = (row for row in report["checks"] if row["id"] == "world.gloo")
    assert sums["by_subject"] == dict.fromkeys(("n1/0", "n1/1", "n2/2", "n2/3"), "pass")


@pytest.mark.torch
@pytest.mark.root
@pytest.mark.parametrize(
    "how",
    # a world with the static one is among the healthy ones
    [pytest.param(STATIC, id="static", marks=pytest.mark.at_length), pytest.param(C10D, id="c10d")],
)
def test_below_torchrun_on_two_machines(how: Sequence[str]) -> None:
    possible()
    flags = ("--nnodes", "2", "--nproc-per-node", "2", *how)
    commands = {}
    for number, name in enumerate(("n1", "n2")):
        own = ("--node-rank", str(number)) if how is STATIC else ()
        commands[name] = Command([TORCHRUN, *flags, *own, *RUN], ENVIRONMENT)
    with Lab(*machines(2)) as lab:
        ended = lab.run_all(commands, timeout=ENDS_SECONDS)
    assert [e.code for e in ended.values()] == [0, 0], [e.err[-2000:] for e in ended.values()]
    (said,) = (e.out for e in ended.values() if e.out.strip())
    assert_ready(json.loads(said), "torchrun")


@pytest.mark.torch
@pytest.mark.root
def test_below_mpirun_on_two_machines(tmp_path: Path) -> None:
    """Open MPI's daemons are started with nsenter in place of ssh."""
    possible("mpirun.openmpi")
    remote = tmp_path / "remote"
    # it gives no environment but what it is asked to
    given = ("-x", "MASTER_ADDR=n1", "-x", "MASTER_PORT=29500", "-x", "PATH")
    with Lab(*machines(2)) as lab:
        # the network of the switch reaches all machines, and from our processes theirs are seen
        switch = lab[SWITCH]
        cases = [
            f'{h.machine.name}) exec {shlex.join(h.command(["sh", "-c"], ENVIRONMENT))} "$*" ;;'
            for h in lab
        ]
        script = ["#!/bin/sh", "host=$1", "shift", 'case "$host" in', *cases, "esac", ""]
        remote.write_text("\n".join(script))
        remote.chmod(0o755)
        mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none"]
        mpirun += ["--mca", "plm_rsh_agent", str(remote), "-H", "n1:2,n2:2"]
        mpirun += ["--mca", "oob_tcp_if_include", "10.77.0.0/16", *given]
        enter = ["nsenter", f"--target={switch.process.pid}", "--net", "--uts", "--"]
        done = subprocess.run(
            [*enter, *mpirun, sys.executable, *RUN],
            env=ENVIRONMENT,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=ENDS_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert_ready(json.loads(done.stdout), "Open MPI")
