"""topology: every launcher's numbers, each with its source; contradictions are refused by name."""

from __future__ import annotations

import pytest

from preflight.model import PreflightError, Topology
from preflight.topology import discover, first_host, split_address


def found(environ: dict[str, str] | None = None, **flags: object) -> Topology:
    return discover(environ or {}, "n1", **flags)  # type: ignore[arg-type]


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "gpu-1",
    "MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_JOB_ID": "48121",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu-b[07-08]",
    "SLURM_NODEID": "1",
}


def test_alone() -> None:
    top = found()
    assert (top.size, top.ranks_of("n1"), top.launcher) == (1, (0,), "local")
    assert top.master_addr == "127.0.0.1"
    assert top.master_port > 0
    assert top.facts["master_port"].source == "a free port"


def test_nproc() -> None:
    top = found(nproc=4)
    assert (top.size, top.ranks_of("n1")) == (4, (0, 1, 2, 3))
    assert top.facts["nproc"].source == "--nproc"


def test_visible_gpus_stand_in() -> None:
    top = found(gpus=8, gpus_source="CUDA_VISIBLE_DEVICES")
    assert top.size == 8
    assert top.facts["nproc"].source == "CUDA_VISIBLE_DEVICES"


def test_torchrun_owns_one_rank() -> None:
    top = found(TORCHRUN)
    assert (top.launcher, top.size, top.ranks_of("n1")) == ("torchrun", 8, (5,))
    assert (top.master_addr, top.master_port) == ("gpu-1", 29400)
    assert top.facts["size"].source == "env WORLD_SIZE"


def test_torchrun_and_nproc_is_refused_by_name() -> None:
    with pytest.raises(PreflightError, match="RANK=5 says that torchrun"):
        found(TORCHRUN, nproc=4)


def test_one_task_a_node_may_own_several_ranks() -> None:
    environ = SLURM | {
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_PROCID": "1",
    }
    top = found(environ, nproc=4)
    assert (top.size, top.ranks_of("n1")) == (8, (4, 5, 6, 7))
    assert top.master_addr == "gpu-b07"


def test_srun_with_a_task_a_rank() -> None:
    top = found(SLURM)
    assert (top.launcher, top.job, top.size, top.ranks_of("n1")) == ("SLURM", "48121", 4, (3,))
    assert (top.master_addr, top.master_port) == ("gpu-b07", 29500)


def test_a_batch_script_is_no_task() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    top = found(environ, nproc=2)
    assert (top.launcher, top.job, top.size) == ("local", "7", 2)


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            },
            "Open MPI",
        ),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}, "MPI (PMI)"),
    ],
)
def test_mpi(environ: dict[str, str], launcher: str) -> None:
    top = found(environ | {"MASTER_ADDR": "h1", "MASTER_PORT": "29500"})
    assert (top.launcher, top.size, top.ranks_of("n1")) == (launcher, 4, (2,))


def test_trainer_v2() -> None:
    environ = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29400",
    }
    top = found(environ)
    assert (top.size, top.ranks_of("n1")) == (8, (4, 5, 6, 7))
    assert (top.master_addr, top.master_port) == ("train-node-0-0.train", 29400)


def test_pytorchjob_that_says_both() -> None:
    """Newer operators set RANK to the pod's number and WORLD_SIZE to all ranks, beside PET_*."""
    environ = {
        "RANK": "1",
        "WORLD_SIZE": "8",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "MASTER_ADDR": "m-0",
        "MASTER_PORT": "23456",
    }
    top = found(environ, nproc=4)
    assert (top.size, top.ranks_of("n1")) == (8, (4, 5, 6, 7))


def test_pet_variables_left_in_an_image_do_not_count_for_ranks() -> None:
    environ = {"PET_NNODES": "2", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    top = found(environ | {"MASTER_ADDR": "h", "MASTER_PORT": "1"})
    assert (top.launcher, top.size, top.ranks_of("n1")) == ("environment", 2, (1,))


def test_trainer_v2_with_auto_takes_the_gpus() -> None:
    environ = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "0"}
    assert found(environ, gpus=2, gpus_source="NVML").size == 2


def test_pytorchjob_counts_pods() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "m-0", "MASTER_PORT": "23456"}
    top = found(environ, nproc=4)
    assert (top.size, top.ranks_of("n1")) == (8, (4, 5, 6, 7))
    assert "read as nodes" in top.facts["nodes"].source


def test_exported_variables_of_one_machine_are_not_pods() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    top = found(environ, nproc=4)
    assert (top.size, top.master_port) == (4, 29500)


def test_several_nodes_without_a_meeting_point() -> None:
    with pytest.raises(PreflightError, match="--meet"):
        found(nproc=4, nodes=2, node_rank=0)


def test_meet() -> None:
    top = found(nproc=4, nodes=2, node_rank=1, meet="10.0.0.1:29501")
    assert (top.master_addr, top.master_port, top.size) == ("10.0.0.1", 29501, 8)


def test_node_rank_out_of_range() -> None:
    with pytest.raises(PreflightError, match="node rank 2"):
        found(nproc=1, nodes=2, node_rank=2, meet="h:1")


@pytest.mark.parametrize("port", ["abc", "70000", "0", "'29500'"])
def test_a_port_that_is_none_is_left_to_the_checks(port: str) -> None:
    top = found({"MASTER_PORT": port}, nproc=2)
    assert top.master_port == 0
    assert top.facts["master_port"].value == port


@pytest.mark.parametrize("value", ["", "x", "-1", "99999999999", "\x00", "1" * 100_000])
def test_hostile_numbers_are_not_believed(value: str) -> None:
    top = found({"RANK": value, "WORLD_SIZE": value, "MASTER_ADDR": "127.0.0.1"}, nproc=2)
    assert top.met == 2


def test_split_address() -> None:
    assert split_address("[fd00::1]:29500") == ("fd00::1", 29500)
    for bad in ("h", "h:0", "h:70000", ":1", "http://h:1"):
        with pytest.raises(PreflightError):
            split_address(bad)


def test_first_host() -> None:
    assert first_host("gpu-[007-009,012]") == "gpu-007"
    assert first_host("a,b[1-2]") == "a"
    assert first_host("n[1-2]-ib") == "n1-ib"
