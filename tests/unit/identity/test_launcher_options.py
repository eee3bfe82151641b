"""The options of a torchrun that is yet to be started are read as torchrun reads them."""

from __future__ import annotations

import pytest

from preflight.identity.consistency import Env, faults
from preflight.identity.discover import (
    discover,
    torchruns_nodes,
    torchruns_number,
    with_numbers,
)
from preflight.identity.launcher_options import as_variables
from preflight.identity.launchers import OPTIONS, is_host, named
from preflight.model import UNNUMBERED, Fact, PreflightError, Topology

C10D = "--rdzv-backend=c10d --rdzv-endpoint=n1:29400"


def read(line: str, **environ: str) -> dict[str, str]:
    return environ | as_variables(line.split(), environ)


def found(line: str, environ: dict[str, str] | None = None, **flags: object) -> Topology:
    return discover(read(line, **(environ or {})), "n2", **flags)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --nnodes 2",
        "srun torchrun --nnodes 2 train.py",
        "/usr/bin/srun torchrun --nnodes 2 train.py",
        "accelerate launch --num_machines 2 train.py",
        "python train.py torchrun",
        "",
    ],
)
def test_another_command_says_nothing(line: str) -> None:
    assert as_variables(line.split(), {}) == {}


def test_what_is_typed_stands_for_its_variable() -> None:
    line = "/opt/bin/torchrun --nnodes 2 --nproc_per_node=4 --rdzv_id=7 train.py --node-rank 3"
    told = read(line)
    assert (told["PET_NNODES"], told["PET_NPROC_PER_NODE"], told["PET_RDZV_ID"]) == ("2", "4", "7")
    assert named(told, "PET_RDZV_ID") == "--rdzv_id"
    assert named(told, "MASTER_ADDR") == "MASTER_ADDR"
    assert told["PET_NODE_RANK"] == "0"  # torchrun's default: what follows the script is its own


def test_an_option_counts_before_the_variable_of_its_name() -> None:
    told = read("torchrun --nnodes=2 train.py", PET_NNODES="4", PET_NPROC_PER_NODE="8")
    assert (told["PET_NNODES"], told["PET_NPROC_PER_NODE"]) == ("2", "8")
    assert named(told, "PET_NPROC_PER_NODE") == "PET_NPROC_PER_NODE"


def test_what_is_typed_empty_stays_so() -> None:
    """Torchrun stops there, and takes no default."""
    told = read("torchrun --nnodes= --node-rank= --master-addr= train.py", PET_NPROC_PER_NODE="")
    assert (told["PET_NNODES"], told["PET_NODE_RANK"]) == ("", "")
    assert told["PET_NPROC_PER_NODE"] == ""


def test_one_node_is_at_the_port_that_is_typed_or_at_a_free_one() -> None:
    line = "python -m torch.distributed.run --nproc-per-node 4"
    top = found(f"{line} train.py", {"MASTER_PORT": "9"})
    assert (top.size, top.ranks_of("n2")) == (4, (0, 1, 2, 3))
    assert top.facts["master_port"] == Fact(str(top.master_port), "a free port")
    typed = found(f"{line} --master-port 29500 train.py", {"MASTER_PORT": "9"})
    assert typed.facts["master_port"] == Fact("29500", "torchrun --master-port")
    assert top.launcher == "torchrun's options"
    assert top.facts["nproc"].source == "torchrun --nproc-per-node"


def test_without_a_number_of_ranks_torchrun_starts_one() -> None:
    assert found("torchrun train.py", gpus=8).size == 1
    assert found("torchrun --nproc-per-node gpu train.py", gpus=8).size == 8


def test_a_static_rendezvous() -> None:
    line = "torchrun --nnodes=2 --node_rank=1 --master_addr=n1 --master_port=29511 train.py"
    top = found(line, {"MASTER_ADDR": "elsewhere"})
    assert (top.size, top.ranks_of("n2")) == (2, (1,))
    assert (top.master_addr, top.master_port) == ("n1", 29511)
    assert top.facts["node_rank"].source == "torchrun --node_rank"


def test_torchrun_does_not_read_master_addr() -> None:
    top = found("torchrun --nnodes=2 --node-rank=1 train.py", {"MASTER_ADDR": "n1"})
    assert top.master_addr == "127.0.0.1"


@pytest.mark.parametrize(
    "number",
    [
        {},
        {"SLURM_NODEID": "1"},
        {"PET_NODE_RANK": "7"},
        {"NODE_RANK": "x"},
        {"RANK": "1", "WORLD_SIZE": "2"},
    ],
)
def test_c10d_numbers_its_nodes_once_they_have_met(number: dict[str, str]) -> None:
    top = found(f"torchrun --nnodes=2 --nproc-per-node=3 {C10D} train.py", number)
    assert (top.size, top.ranks_of("n2")) == (6, (0, 1, 2))
    assert (top.master_addr, top.master_port) == ("n1", 29400)
    assert (torchruns_nodes(top), torchruns_number(top)) == (2, -1)
    assert top.facts[UNNUMBERED] == Fact("2", "torchrun --nnodes")
    assert UNNUMBERED not in with_numbers(top).facts


def test_a_static_rendezvous_goes_by_numbers() -> None:
    line = "torchrun --nnodes=2 --nproc-per-node=3 --node-rank=1 --master-addr=n1 a.py"
    top = found(line)
    assert (torchruns_nodes(top), torchruns_number(top)) == (2, 1)
    assert torchruns_nodes(found("torchrun --nproc-per-node=3 a.py")) == 0
    env = {"MASTER_ADDR": "n1", "RANK": "0", "WORLD_SIZE": "2"}
    assert torchruns_nodes(discover(env, "n1", nproc=2)) == 0


def test_a_number_beyond_the_nodes_is_no_fault_where_nobody_reads_it() -> None:
    line = f"torchrun --nnodes=2 --node-rank=7 {C10D} train.py"
    top = found(line)
    assert [*faults(Env(read(line), 1, False, "n2", ("n2/0",), top), top)] == []


def test_c10d_reads_neither_master_addr_nor_node_rank() -> None:
    typed = "--node-rank=0 --master-addr=old-head --master-port=12355"
    top = found(f"torchrun --nnodes=2 {typed} {C10D} train.py")
    assert (top.master_addr, top.master_port) == ("n1", 29400)


@pytest.mark.parametrize("typed", ["--master-addr=localhost", "--master-addr=a/b --master-port=0"])
def test_nothing_is_said_of_what_is_not_read(typed: str) -> None:
    line = f"torchrun --nnodes=2 --node-rank=0 {typed} {{}} train.py"
    for backend, codes in ((C10D, False), ("", True)):
        env = Env(read(line.format(backend)), 1, False, "n2", ("n2/0",), found(line.format(C10D)))
        assert bool([fault.code for fault in faults(env, env.top)]) == codes


def test_flags_say_it_as_well() -> None:
    top = found(f"torchrun --nnodes=1:4 {C10D} train.py", nodes=2, node_rank=1)
    assert (top.size, top.ranks_of("n2"), top.master_addr) == (2, (1,), "n1")
    top = found(f"torchrun --nnodes=1:4 {C10D} train.py", nodes=2)
    assert (top.size, torchruns_nodes(top), torchruns_number(top)) == (2, 2, -1)
    etcd = "torchrun --nnodes=2 --rdzv-backend=etcd-v2 --rdzv-endpoint=etcd:2379 train.py"
    top = found(etcd, meet="n1:29400")
    assert (top.size, torchruns_nodes(top), torchruns_number(top)) == (2, 2, -1)


@pytest.mark.parametrize(
    "line",
    [
        f"torchrun --nnodes=1:4 {C10D} train.py",
        "torchrun --nnodes=2 --rdzv-backend=c10d train.py",
        "torchrun --nnodes=2 --rdzv-backend=etcd-v2 --rdzv-endpoint=etcd:2379 train.py",
    ],
)
def test_a_node_without_a_number_is_looked_at_alone_and_says_so(line: str) -> None:
    top = found(line, {"RANK": "1", "WORLD_SIZE": "16"})
    assert (top.size, top.ranks_of("n2"), top.master_addr) == (1, (0,), "127.0.0.1")
    assert top.master_port != 29400
    env = Env(read(line), 1, False, "n2", ("n2/0",), top)
    assert [fault.code for fault in faults(env, top)] == ["nodes-unchecked"]


def test_ranks_of_an_outer_launcher_are_not_those_to_come() -> None:
    task = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"}
    assert found("torchrun --nproc-per-node 4 train.py", task).launcher == "environment"


def test_the_only_task_of_a_node_has_its_ranks_from_torchrun() -> None:
    task = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    line = "torchrun --nnodes 2 --node-rank 1 --nproc-per-node 4 --master-addr n1 train.py"
    top = found(line, task)
    assert (top.launcher, top.ranks_of("n2"), top.size) == ("torchrun's options", (4, 5, 6, 7), 8)


def test_a_node_beyond_their_number_is_refused_by_its_option() -> None:
    line = "torchrun --nnodes=2 --node-rank=2 --master-addr=n1 train.py"
    with pytest.raises(PreflightError, match=r"node rank 2 .torchrun --node-rank. of 2 nodes"):
        found(line)


def test_findings_speak_of_options() -> None:
    told = read("torchrun --standalone --nnodes=2 train.py")
    env = Env(told, 1, False, "n2", ("n2/0",), discover({}, "n2"))
    (fault,) = (f for f in faults(env, env.top) if f.code == "standalone")
    assert (fault.saw, fault.fields["act"]) == (
        "--standalone='1' · --nnodes='2'",
        "torchrun without --standalone",
    )


def test_hostile_words_are_bounded() -> None:
    told = as_variables(["torchrun", "--rdzv-id", "x" * 100_000, *["--a"] * 10_000, "t.py"], {})
    assert len(told["PET_RDZV_ID"]) <= 4096
    assert named({OPTIONS: "=" * 50 + " PET_NNODES"}, "PET_NNODES") == ""


def test_is_host_of_the_options() -> None:
    options = ("timeout=3, is_host=1", "is_host=false", "timeout=3")
    assert [is_host(text) for text in options] == [True, False, None]
