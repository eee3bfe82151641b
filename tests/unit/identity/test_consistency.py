"""consistency: what one environment says by itself. tests/checks/test_env_identity.py has the table
of what launchers set and people get wrong."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.cases import topology

from preflight.identity.consistency import Env, faults, number
from preflight.model import Confidence, Found, Kind, Node, Status, Subject

ENV = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}
HERE = topology(nodes=(Node("n1", (0, 1)),))


def env(values: Mapping[str, str], *keys: str, owned: int = 1) -> Env:
    return Env(values, owned, False, "n1", keys or ("n1/1",), HERE)


def found(values: Mapping[str, str], owned: int = 1) -> list[Found]:
    return list(faults(env(values, owned=owned), topology()))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("4", 4),
        ("-1", -1),
        (" 4\r", 4),
        ("4.0", None),
        ("", None),
        ("$SLURM_PROCID", None),
    ],
)
def test_a_number_is_what_torch_reads(text: str, read: int | None) -> None:
    assert number(text) == read


def test_an_empty_variable_is_not_there() -> None:
    some = env(ENV | {"MASTER_ADDR": ""})
    assert "MASTER_ADDR" not in some
    assert "RANK" in some
    assert "LOCAL_RANK" not in some
    assert some.number("LOCAL_RANK") is None


def test_only_what_is_set_is_said() -> None:
    assert env(ENV).say("RANK", "SLURM_PROCID", "WORLD_SIZE") == "RANK='1' · WORLD_SIZE='4'"
    assert env(ENV).say("SLURM_PROCID") == ""


@pytest.mark.parametrize(
    ("nodes", "most"), [("2", 2), ("1:4", 4), (None, 1), ("two", 1), ("2:", 1)]
)
def test_the_most_nodes_of_an_elastic_job(nodes: str | None, most: int) -> None:
    assert env({} if nodes is None else {"PET_NNODES": nodes}).most_nodes == most


def test_who_was_started_by_torchrun() -> None:
    assert env(ENV | {"TORCHELASTIC_RUN_ID": "none"}).started_by_torchrun
    assert not env(ENV).started_by_torchrun
    assert not env({"TORCHELASTIC_RUN_ID": "none"}).started_by_torchrun, "it set no RANK"


def test_who_holds_rank_0() -> None:
    assert env(ENV, "n1/1", "n1/0").holds_first
    assert env(ENV, "n1").holds_first, "an agent of the whole node"
    assert not env(ENV).holds_first


def test_one_story_is_silent() -> None:
    assert found(ENV) == []
    assert found({}) == []


def test_a_fault_is_that_of_all_ranks_with_the_environment() -> None:
    ranks = tuple(Subject(Kind.RANK, "n1", str(r), ranks=(r,)) for r in range(4))
    port = env({"MASTER_PORT": "x"}, *(f"n1/{r}" for r in range(4)), owned=4)
    (fault,) = faults(port, topology())
    assert (fault.code, fault.subjects) == ("port-invalid", ranks)
    assert (fault.saw, fault.fields) == (
        "MASTER_PORT='x'",
        {"given": "export MASTER_PORT=", "right": "29500"},
    )


def test_what_is_missing_is_named() -> None:
    (fault,) = found({k: v for k, v in ENV.items() if k != "MASTER_PORT"})
    assert (fault.code, fault.status, fault.confidence) == ("incomplete", None, Confidence.LIKELY)
    assert fault.saw.endswith("not set: MASTER_PORT")
    assert fault.fields == {"missing": "MASTER_PORT", "present": "RANK WORLD_SIZE MASTER_ADDR"}


def test_another_launchers_rank_is_laid_beside_it() -> None:
    step = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"}
    (fault,) = found(ENV | step)
    assert (fault.code, fault.saw) == ("launcher-disagrees", "RANK='1' · SLURM_PROCID='3'")
    (fault,) = found(ENV | step | {"WORLD_SIZE": "2"}, owned=4)
    assert fault.status is Status.WARN, "torchrun will give its ranks their own"


def test_every_flaw_of_an_environment_is_told() -> None:
    codes = [f.code for f in found(ENV | {"RANK": "x", "MASTER_PORT": "0", "MASTER_ADDR": " n"})]
    assert codes == ["number-malformed", "port-invalid", "address-malformed"]
