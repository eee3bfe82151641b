"""Commands on GPUs that are rehearsed: with nothing wrong, and hanging."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from gpu.machine import Machine
from gpu.running import Ran, run, torchrun

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

FOR, STUCK = "120s", "8s"


def rehearsed(then: Iterable[str], env: Mapping[str, str] | None = None) -> Ran:
    words = ("rehearse", "--for", FOR, "--stuck", STUCK)
    return run(*words, env=env, within=200.0, then=tuple(then))


def ranks_of(finding: dict[str, object]) -> set[int]:
    subjects = finding["subjects"]
    assert isinstance(subjects, list)
    return {rank for subject in subjects for rank in subject["ranks"]}


def test_training_over_nccl_ends_ready(machine: Machine) -> None:
    ran = rehearsed(torchrun(len(machine.gpus), "train", "100"))
    assert ran.code == 0, ran.shown()
    assert "seconds " in ran.out, ran.shown("the command's own output")
    assert not ran.findings("fail", "undecided"), ran.shown()
    assert "nccl-on-cpu" not in {f["code"] for f in ran.findings()}, ran.shown()
    row = ran.row("job.collectives")
    assert row["status"] == "pass", ran.shown(str(row))
    assert not ran.left, ran.left


FAULTS = {
    "waits": ("job.collectives", "rank-stuck"),
    "calls-another": ("job.collectives", "collective-mismatch"),
    "gives-a-cpu-tensor": ("job.backend", "device-uncarried"),
    "diverges": ("job.model", "replicas-diverged"),
    "spins": ("job.collectives", "gpu-stuck"),
    "spins-before-a-copy": ("job.collectives", "gpu-stuck"),
    "takes-another-tree": ("job.backend", "setting-differs"),
    "takes-all-memory": ("job.ranks", "rank-gpu-oom"),
    "index-out-of-range": ("job.ranks", "rank-cuda-error"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_rank_1_does_to_the_others_over_nccl_is_named(fault: str, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    # what a GPU has started is only recorded so
    env = {"TORCH_NCCL_ENABLE_TIMING": "1"} if fault == "spins" else {}
    ran = rehearsed(torchrun(2, "two_hosts", fault, str(lock)), env=env)
    assert ran.code == 3, ran.shown()
    # where all are in one call the fabric is looked at, too, and these share a GPU by a trick
    (found,) = (f for f in ran.findings("fail") if f["code"] != "too-few-gpus")
    assert (found["check"], found["code"]) == FAULTS[fault], ran.shown()
    assert 1 in ranks_of(found), ran.shown()
    assert not ran.left, ran.left


def test_a_host_that_others_wait_for_in_every_step_over_nccl_is_named() -> None:
    ran = rehearsed(torchrun(2, "two_hosts", "is-late", "-"))
    assert ran.code == 0, ran.shown()
    (found,) = ran.findings()
    assert (found["check"], found["code"]) == ("job.pace", "rank-slow"), ran.shown()
    assert ranks_of(found) == {1}, ran.shown()
    assert "two_hosts.py" in found["saw"], ran.shown()


def test_two_ranks_over_nccl_with_nothing_wrong_end_without_a_finding() -> None:
    ran = rehearsed(torchrun(2, "two_hosts", "none", "-"))
    assert ran.code == 0, ran.shown()
    assert not ran.findings(), ran.shown()
    assert "NET/Socket" in ran.row("job.backend")["text"], ran.shown()


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_rank_that_others_wait_for_is_named(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Over Gloo both ranks may have the same GPU; over NCCL the wait is the GPU's."""
    if backend == "nccl":
        request.getfixturevalue("several")
    lock = tmp_path / "lock"
    lock.touch()
    ran = rehearsed(torchrun(2, "waits", backend, str(lock)))
    assert ran.code == 3, ran.shown()
    (hang,) = ran.findings("fail")
    assert hang["check"] == "job.collectives", ran.shown()
    assert ranks_of(hang) == {1}, ran.shown()
    assert "waits.py" in str(hang), ran.shown("no line is named")
    assert not ran.left, ran.left


def test_two_ranks_on_one_gpu_that_nccl_refuses(machine: Machine) -> None:
    ran = rehearsed(torchrun(2, "crowds"))
    assert ran.code == 3, ran.shown()
    (raised,) = ran.findings("fail")
    assert raised["check"] == "job.ranks", ran.shown()
    assert ranks_of(raised) <= {0, 1}, ran.shown()
    assert "uplicate GPU" in f"{ran.out}{ran.err}{raised}", ran.shown()
    assert not ran.left, ran.left
