"""Every launcher's numbers, each with its source; contradictions are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from support.launcher_environments import processes

from preflight.identity.discover import discover, never_meets, split_address
from preflight.identity.launchers import wants_gpus
from preflight.identity.slurm_hosts import first_host
from preflight.model import PreflightError, Topology


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
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "0"}, "MPI (PMI)"),
        (
            {"PMI_RANK": "2", "PMI_SIZE": "4", "PALS_RANKID": "2", "PALS_LOCAL_RANKID": "0"},
            "PALS",
        ),
        # Hydra, started in a shell that is itself a process of PALS
        (
            {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "PALS_RANKID": "0"},
            "MPI (PMI)",
        ),
        ({"ALPS_APP_PE": "2", "WORLD_SIZE": "4"}, "ALPS"),
        # the plugin cray-pals of Flux
        (
            {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4", "PALS_RANKID": "2", "PALS_NODEID": "1"},
            "Flux",
        ),
        # Spectrum MPI: jsrun's ranks have both
        (
            {
                **{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
                **{"JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "4", "PMIX_RANK": "2"},
            },
            "Open MPI",
        ),
    ],
)
def test_mpi(environ: dict[str, str], launcher: str) -> None:
    top = found(environ | {"MASTER_ADDR": "h1", "MASTER_PORT": "29500"})
    assert (top.launcher, top.size, top.ranks_of("n1")) == (launcher, 4, (2,))
    for local in (name for name in environ if "LOCAL" in name):
        assert top.facts["local_rank"].source == f"env {local}"


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


BY_HAND = {"WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
TASKS = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "4",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "2",
}


@pytest.mark.parametrize(
    "more",
    [
        {"RANK": "2", "LOCAL_RANK": "2"},
        {"RANK": "0", "LOCAL_RANK": "0"},
        TASKS | {"RANK": "2"},
        TASKS | {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"},
    ],
    ids=["a loop", "its first", "srun", "srun, with one RANK for all"],
)
def test_processes_that_share_a_machine_are_no_nodes(more: dict[str, str]) -> None:
    top = found(BY_HAND | more)
    assert (top.ranks_on("n1"), top.several_nodes) == (4, False)


@pytest.mark.parametrize(
    "more",
    [
        {"RANK": "1", "LOCAL_RANK": "0"},
        {"RANK": "1"},
        {"RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"},
        {"RANK": "0", "LOCAL_RANK": "0", "KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        # a step of its own for each rank
        TASKS | {"RANK": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"},
        TASKS | {"RANK": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "1"},
    ],
)
def test_processes_that_may_be_elsewhere(more: dict[str, str]) -> None:
    assert found(BY_HAND | more).several_nodes


@pytest.mark.parametrize(
    ("more", "never"),
    [
        ({"RANK": "3"}, False),
        ({"RANK": "4"}, True),
        ({"RANK": "1", "MASTER_PORT": "0"}, True),
        ({"RANK": "1", "MASTER_PORT": "29500x"}, True),
        ({"RANK": "1", "MASTER_PORT": ""}, False),
    ],
)
def test_numbers_with_which_nobody_meets(more: dict[str, str], never: bool) -> None:
    assert never_meets(found(BY_HAND | more)) is never


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


# --- one process per node, and --nproc: what the launcher counts are nodes ---

TORCHRUN_A_NODE = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "n1",
}
OMPI_A_NODE = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "MASTER_ADDR": "n1",
}
PMI_A_NODE = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "1",
    "MASTER_ADDR": "n1",
}


def test_a_rank_that_is_a_name_is_said_where_nothing_else_numbers_the_nodes() -> None:
    environ = {"RANK": "trainer-1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"}
    with pytest.raises(PreflightError, match="but RANK='trainer-1' is no number: give --node-rank"):
        discover(environ, "n1")


def test_tasks_of_flux() -> None:
    task = {"FLUX_TASK_RANK": "5", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "8"}
    task |= {"FLUX_JOB_NNODES": "2", "FLUX_JOB_ID": "f2X", "MASTER_ADDR": "n1"}
    for pmi in ({}, {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_FD": "12"}):
        top = discover(task | pmi, "n2")
        assert (top.launcher, top.size, top.job, top.ranks_of("n2")) == ("Flux", 8, "f2X", (5,))
        assert top.nodes[0].size == 4
    below = discover(task | {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, "n2")
    assert (below.launcher, below.size) == ("MPI (PMI)", 2)
    with pytest.raises(PreflightError, match="leave --nproc out"):
        discover(task, "n2", nproc=4)


def test_all_tasks_of_flux_on_one_node_meet_there() -> None:
    task = {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "1"}
    top = discover(task, "n1")
    assert (top.size, top.ranks_of("n1"), top.master_addr) == (2, (1,), "127.0.0.1")


@pytest.mark.parametrize("environ", [TORCHRUN_A_NODE, OMPI_A_NODE, PMI_A_NODE])
def test_one_process_a_node_may_own_several_ranks(environ: dict[str, str]) -> None:
    top = discover(environ, "n2", nproc=4)
    assert (top.size, top.ranks_of("n2")) == (8, (4, 5, 6, 7))
    assert top.facts["nodes"].value == "2"
    assert "one process a node" in top.facts["nodes"].source
    assert "read as the node's" in top.facts["node_rank"].source


@pytest.mark.parametrize("name", ["srun-task-a-node", "sbatch-srun"])
def test_srun_with_one_task_a_node(name: str) -> None:
    tops = [discover(p.environ, p.host, nproc=4) for p in processes(name)]
    assert [top.nodes[0].ranks for top in tops] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert tops[1].facts["nodes"].source == "env SLURM_STEP_NUM_NODES"
    assert tops[1].facts["node_rank"].source == "env SLURM_NODEID"


@pytest.mark.parametrize("name", ["srun-task-a-rank", "srun-uneven", "openmpi", "mpich"])
def test_several_processes_a_node_and_nproc_are_refused(name: str) -> None:
    for process in processes(name):
        with pytest.raises(PreflightError, match="has already started one process per rank"):
            discover(process.environ, process.host, nproc=4)


# --- what nothing says is requested, not made up ---


@pytest.mark.parametrize("name", ["indexed-job", "jobset"])
def test_an_index_alone_does_not_say_how_many(name: str) -> None:
    for process in processes(name):
        with pytest.raises(PreflightError, match="--nodes"):
            discover(process.environ, process.host, nproc=4)


def test_pods_that_do_not_meet_are_each_alone() -> None:
    top = discover({"JOB_COMPLETION_INDEX": "3"}, "p3", nproc=2)
    assert (top.launcher, top.size, top.ranks_of("p3")) == ("Indexed Job", 2, (0, 1))
    assert "node_rank" not in top.facts


def test_which_node_this_is_must_be_said() -> None:
    with pytest.raises(PreflightError, match="--node-rank"):
        discover({}, "n1", nproc=2, nodes=2, meet="n1:29500")
    with pytest.raises(PreflightError, match="--node-rank"):
        discover({"PET_NNODES": "2", "PET_MASTER_ADDR": "n1"}, "n1", nproc=2)


def test_an_elastic_job_says_how_many_nodes_are_to_meet() -> None:
    elastic = {"PET_NNODES": "1:4", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "n1"}
    with pytest.raises(PreflightError, match="PET_NNODES='1:4' is a range"):
        discover(elastic, "n1", nproc=2)
    assert discover(elastic, "n1", nproc=2, nodes=3).size == 6
    assert discover(elastic | {"PET_NNODES": "3:3"}, "n1", nproc=2).size == 6


def test_lightning_says_no_rank() -> None:
    first, _, third, _ = processes("lightning")
    assert discover(first.environ, "n1").ranks_of("n1") == (0,)
    with pytest.raises(PreflightError, match="--nodes"):
        discover(third.environ, "n2")
    with pytest.raises(PreflightError, match="leave --nproc out"):
        discover(third.environ, "n2", nodes=2, nproc=2)


def test_what_lightning_wants_on_every_node() -> None:
    given = {"NODE_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    top = discover(given | {"WORLD_SIZE": "8"}, "n2", nproc=4)
    assert (top.size, top.ranks_of("n2")) == (8, (4, 5, 6, 7))
    assert top.facts["nodes"].source == "env WORLD_SIZE=8, 4 on each"
    with pytest.raises(PreflightError, match="no multiple of 3"):
        discover(given | {"WORLD_SIZE": "8"}, "n2", nproc=3)
    with pytest.raises(PreflightError, match="--nodes"):
        discover(given, "n2", nproc=4)
    assert discover({"NODE_RANK": "0", "MASTER_ADDR": "localhost"}, "n1", nproc=4).size == 4


def test_pmix_alone_does_not_say_how_many() -> None:
    given = {"PMIX_RANK": "3", "PMIX_NAMESPACE": "prterun-n1-77@1", "MASTER_ADDR": "n1"}
    with pytest.raises(PreflightError, match="set WORLD_SIZE, or unset PMIX_RANK"):
        discover(given, "n1")
    with pytest.raises(PreflightError, match="leave --nproc out, or unset PMIX_RANK"):
        discover(given, "n1", nproc=2)
    top = discover(given | {"WORLD_SIZE": "4"}, "n1")
    assert (top.launcher, top.size, top.ranks_of("n1")) == ("MPI (PMIx)", 4, (3,))


def test_a_pmix_rank_without_its_namespace_was_left_over() -> None:
    """Nobody can start PMIx with it, and torch does not read it: the command is what counts."""
    alone = {"PMIX_RANK": "3"}
    assert (discover(alone, "n1", nproc=2).launcher, discover(alone, "n1").size) == ("local", 1)
    top = discover(alone | {"MASTER_ADDR": "n1"}, "n2", nproc=2, nodes=2, node_rank=1)
    assert (top.launcher, top.size, top.ranks_of("n2")) == ("local", 4, (2, 3))
    inside = alone | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"}
    assert discover(inside, "n1").ranks_of("n1") == (1,)
    task = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "n[1-2]"}
    assert discover(alone | task, "n2").launcher == "SLURM"


# --- SLURM's pitfalls ---


def test_the_master_is_never_where_srun_was_typed() -> None:
    for name in ("srun-task-a-rank", "srun-uneven", "sbatch-srun"):
        for process in processes(name):
            assert process.environ["SLURM_LAUNCH_NODE_IPADDR"]
            assert discover(process.environ, process.host).master_addr == "n1"


def test_a_step_of_part_of_the_job_meets_on_its_own_first_node() -> None:
    step = processes("srun-task-a-rank")[4].environ | {"SLURM_STEP_NODELIST": "n[3-4]"}
    assert discover(step, "n4").master_addr == "n3"


@pytest.mark.parametrize("variable", ["SLURM_JOB_NODELIST", "SLURM_NODELIST"])
def test_older_and_newer_names_of_the_node_list(variable: str) -> None:
    lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    step = {k: v for k, v in processes("srun-task-a-rank")[4].environ.items() if k not in lists}
    top = discover(step | {variable: "gpu-[007-009]"}, "gpu-008")
    assert top.master_addr == "gpu-007"
    assert top.facts["master_addr"].source == f"first of {variable}"


def test_the_number_of_gpus_that_slurm_spells_with_a_type_is_not_read() -> None:
    step = processes("srun-task-a-node")[0].environ | {"SLURM_GPUS_PER_NODE": "a100:4"}
    assert discover(step, "n1") == discover(processes("srun-task-a-node")[0].environ, "n1")


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, True),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto"}, True),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "gpu"}, True),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "cpu"}, False),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4"}, False),
        ({"JOB_COMPLETION_INDEX": "0"}, True),
        ({"RANK": "0", "WORLD_SIZE": "2"}, False),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False),
    ],
)
def test_gpus_are_counted_only_where_nothing_says_how_many_ranks(
    environ: dict[str, str], wanted: bool
) -> None:
    assert wants_gpus(environ) is wanted


def test_a_shell_that_was_a_step_of_one_task_may_start_a_nodes_ranks() -> None:
    """`srun --mpi=pmi2 --pty bash` leaves its variables to all that is started from it."""
    top = found({"PMI_RANK": "0", "PMI_SIZE": "1"}, nproc=4)
    assert (top.size, top.ranks_of("n1")) == (4, (0, 1, 2, 3))


STALE = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "9"}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}


@pytest.mark.parametrize(
    ("more", "launcher", "size"),
    [
        ({}, "SLURM", 2),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "SLURM", 2),  # srun --mpi=pmi2
        (STALE, "SLURM", 2),
        ({"PMI_RANK": "0"}, "SLURM", 2),
        (HYDRA, "MPI (PMI)", 8),
    ],
)
def test_pmi_in_a_task_of_slurm(more: dict[str, str], launcher: str, size: int) -> None:
    """Of an earlier launch, where it is neither SLURM's own nor that of an mpirun below it."""
    task = {
        "SLURM_PROCID": "1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    top = found(task | more)
    assert (top.launcher, top.size) == (launcher, size)


@pytest.mark.parametrize(
    ("flags", "launcher", "size"),
    [
        ({"typed": True}, "local", 1),
        ({"typed": True, "nproc": 2}, "local", 2),
        ({"typed": True, "nproc": 2, "nodes": 4}, "SLURM", 8),
        ({"nproc": 2}, "SLURM", 8),
    ],
)
def test_typed_in_a_shell_that_is_a_task(flags: dict[str, Any], launcher: str, size: int) -> None:
    task = {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NUM_NODES": "4",
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
        "SLURM_JOB_NUM_NODES": "4",
        "SLURM_STEP_NODELIST": "n[1-4]",
    }
    top = found(task, **flags)
    assert (top.launcher, top.size) == (launcher, size)
    assert ("job_nodes" in top.facts) == (launcher == "local")


@pytest.mark.parametrize(
    ("endpoint", "addr", "port"),
    [
        ("n1:29500", "n1", 29500),
        ("n1", "n1", 0),
        ("[fd77::1]:29500", "fd77::1", 29500),
        ("[fd77::1]", "fd77::1", 0),
    ],
)
def test_the_endpoint_of_a_torchrun_that_is_yet_to_be_started(
    endpoint: str, addr: str, port: int
) -> None:
    environ = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": endpoint}
    for backend in ("", "c10d", "static"):
        top = discover(environ | {"PET_RDZV_BACKEND": backend}, "n2", nproc=2)
        default = 29400 if backend == "c10d" else 29500  # torchrun's static one has none
        assert (top.master_addr, top.master_port) == (addr, port or default)
        assert top.facts["master_addr"].source == "env PET_RDZV_ENDPOINT"
    said = discover(environ | {"MASTER_ADDR": "n9", "MASTER_PORT": "1234"}, "n2", nproc=2)
    assert (said.master_addr, said.master_port) == ("n9", 1234)
    flags = discover({"PET_RDZV_ENDPOINT": endpoint}, "n2", nproc=2, nodes=2, node_rank=1)
    assert flags.master_addr == addr


@pytest.mark.parametrize(
    "more",
    [
        {"PET_RDZV_BACKEND": "etcd-v2", "PET_RDZV_ENDPOINT": "etcd:2379"},
        {"PET_RDZV_ENDPOINT": "n1:99999"},
        {"PET_RDZV_ENDPOINT": "n1:0"},
        {"PET_RDZV_ENDPOINT": "a b"},
        {"PET_RDZV_ENDPOINT": "http://n1:29500/"},
    ],
)
def test_an_endpoint_that_is_no_meeting_point_of_nodes(more: dict[str, str]) -> None:
    with pytest.raises(PreflightError, match="--meet"):
        discover({"PET_NNODES": "2", "PET_NODE_RANK": "1"} | more, "n2", nproc=2)


SKY = {"SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5\n", "SKYPILOT_NUM_NODES": "2"}


@pytest.mark.parametrize(("rank", "ranks"), [("0", (0, 1, 2, 3)), ("1", (4, 5, 6, 7))])
def test_skypilot_numbers_its_nodes(rank: str, ranks: tuple[int, ...]) -> None:
    task = SKY | {"SKYPILOT_NODE_RANK": rank, "SKYPILOT_NUM_GPUS_PER_NODE": "4"}
    top = found(task | {"SKYPILOT_TASK_ID": "sky-1"})
    assert (top.launcher, top.size, top.ranks_of("n1"), top.job) == ("SkyPilot", 8, ranks, "sky-1")
    assert (top.master_addr, top.master_port) == ("10.0.0.4", 29500)
    assert top.facts["master_addr"].source == "first of SKYPILOT_NODE_IPS"
    # its run section may say where to meet, as for torchrun; --nodes 1 looks at this one alone
    at = found(task | {"MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "8008"})
    assert (at.master_addr, at.master_port) == ("10.0.0.4", 8008)
    assert found(task | {"SKYPILOT_NODE_RANK": "0"}, nodes=1).size == 4


def test_skypilot_without_gpus_and_with_torchrun() -> None:
    task = SKY | {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_GPUS_PER_NODE": "0"}
    assert found(task).ranks_of("n1") == (1,)
    ranks = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    top = found(task | ranks | {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.4"})
    assert (top.launcher, top.ranks_of("n1")) == ("torchrun", (3,))


def test_rank_of_a_node_in_skypilots_run_section() -> None:
    """As NeMo-Run's tasks export it: with four GPUs a node these are not ranks."""
    task = SKY | {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_GPUS_PER_NODE": "4"}
    top = found(task | {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.4"})
    assert (top.size, top.ranks_of("n1")) == (8, (4, 5, 6, 7))
    own = found(task | {"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.4"})
    assert (own.launcher, own.size, own.ranks_of("n1")) == ("environment", 8, (5,))


def test_one_node_of_skypilot_or_sagemaker_is_alone() -> None:
    sky = {"SKYPILOT_NODE_IPS": "10.0.0.4", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "1"}
    maker = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1", "SM_NUM_GPUS": "1"}
    for environ in (sky, maker):
        top = found(environ)
        assert (top.size, top.master_addr) == (1, "127.0.0.1")


def test_a_host_that_is_not_in_sagemakers_list_must_say_which_it_is() -> None:
    environ = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-9"}
    with pytest.raises(PreflightError, match="give --node-rank"):
        found(environ)
    assert found(environ, node_rank=1).ranks_of("n1") == (1,)


@pytest.mark.parametrize("name", ["PALS_RANKID", "ALPS_APP_PE", "PMIX_RANK"])
def test_a_rank_without_a_size_is_refused_by_name(name: str) -> None:
    environ = {name: "3", "PMIX_NAMESPACE": "x", "PALS_LOCAL_SIZE": "2", "MASTER_ADDR": "h1"}
    with pytest.raises(PreflightError, match=f"{name}=3 .* set WORLD_SIZE, or unset {name}"):
        found(environ)


def test_azure_says_where_the_first_node_is() -> None:
    """Azure ML's jobs of MPI; the port is Azure Batch's own."""
    task = {
        **{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
        **{"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"},
    }
    top = found(task)
    assert (top.master_addr, top.master_port) == ("10.0.0.4", 29500)
    assert found(task | {"MASTER_ADDR": "h1"}).master_addr == "h1"


def test_vertex_counts_machines() -> None:
    """RANK and WORLD_SIZE of Vertex AI are a machine's; so are Volcano's plugin for PyTorch's."""
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "2222"}
    environ |= {"MASTER_ADDR": "cmle-training-workerpool0-0", "CLUSTER_SPEC": "{}"}
    assert found(environ, nproc=4).ranks_of("n1") == (4, 5, 6, 7)


def test_tasks_of_slurm_in_pods_are_tasks() -> None:
    """Slinky runs slurmd in pods."""
    task = {
        **{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NODEID": "1"},
        **{"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_NODES": "2"},
        **{"SLURM_STEP_NODELIST": "slinky-[0-1]", "KUBERNETES_SERVICE_HOST": "10.96.0.1"},
    }
    top = found(task)
    assert (top.launcher, top.size, top.ranks_of("n1")) == ("SLURM", 4, (3,))


COMPONENTS = {
    **{"SLURM_HET_SIZE": "2", "SLURM_JOB_ID": "3", "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1"},
    "SLURM_JOB_NUM_NODES_HET_GROUP_1": "2",
}


def test_a_batch_script_of_a_heterogeneous_job_sees_all_its_nodes() -> None:
    """SLURM_JOB_NUM_NODES is of the first component there, and missing below salloc."""
    for environ in (COMPONENTS, COMPONENTS | {"SLURM_JOB_NUM_NODES": "1"}):
        assert found(environ).facts["job_nodes"].value == "3"
    assert "job_nodes" not in found({"SLURM_HET_SIZE": "2", "SLURM_JOB_NUM_NODES": "1"}).facts
    assert "job_nodes" not in found({"SLURM_HET_SIZE": "9" * 9}).facts


LEFT_OVER = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "16"}


def test_a_typed_world_beside_the_variables_of_another_launch_is_refused() -> None:
    with pytest.raises(PreflightError, match="OMPI_COMM_WORLD_SIZE=16 says that Open MPI has"):
        found(LEFT_OVER, nproc=1, nodes=2, node_rank=1, meet="h1:29500")
    # as many ranks as nodes, or no number of the node that was typed
    one_each = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    assert found(one_each, nproc=1, nodes=2, node_rank=1, meet="h1:29500").size == 2
    assert found(LEFT_OVER, nodes=2, meet="h1:29500").size == 16
    # a WORLD_SIZE of its own is judged, with all that the other nodes say
    torchs = {"RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "h1", "MASTER_PORT": "29500"}
    assert found(torchs, nproc=1, nodes=2, node_rank=1).size == 8


def test_the_only_rank_of_a_node_speaks_for_it_whatever_its_local_rank_says() -> None:
    alone = TORCHRUN | {"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "1"}
    assert "local_rank" not in found(alone).facts
    assert found(alone | {"LOCAL_RANK": "0"}).facts["local_rank"].value == "0"
    assert found(TORCHRUN).facts["local_rank"].value == TORCHRUN["LOCAL_RANK"]
    # the same where SLURM alone says that the rank is by itself
    task = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"}
    step = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1"}
    beside = {"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert "local_rank" not in found(task | step | beside).facts
    both = {"SLURM_STEP_TASKS_PER_NODE": "2"}
    assert found(task | step | both).facts["local_rank"].value == "1"
