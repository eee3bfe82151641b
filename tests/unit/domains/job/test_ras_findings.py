"""What is concluded from the answer of NCCL's RAS service; its worlds are judged in
tests/checks/test_job_collectives.py as well."""

from __future__ import annotations

from dataclasses import replace

from support.cases import world
from support.ras_cases import FAR, GONE, LATE, STUCK, USUAL, said, told
from support.rehearsed_worlds import WAITS, job

from preflight.domains.job.hang import Hang
from preflight.domains.job.ras_findings import NAMED, from_ras
from preflight.domains.job.record import Calls


def hang(saw: dict[str, Calls]) -> Hang:
    return Hang.of(world("job.collectives", saw))


def test_without_an_answer_or_after_a_failure_it_says_nothing() -> None:
    assert from_ras(hang(job(*STUCK))) is None
    failed = (*STUCK[:3], replace(STUCK[3], at="gone", ended="raised"))
    assert from_ras(hang(said(told(LATE), *failed))) is None


def test_processes_that_are_lost_come_first() -> None:
    found = from_ras(hang(said(told(LATE, GONE), *STUCK, why="stuck")))
    assert found is not None
    assert found.code == "rank-unreachable"
    assert found.saw == "NCCL's RAS does not reach rank 5 (pid 8001 on 10.0.0.2), dead"


def test_only_some_are_named() -> None:
    many = [replace(GONE, pid=9000 + n, of=None) for n in range(NAMED + 2)]
    found = from_ras(hang(said(told(*many), WAITS, WAITS, why="stuck")))
    assert found is not None
    assert found.saw.endswith("; and 2 more")


def test_counts_are_told_with_those_of_the_others() -> None:
    found = from_ras(hang(said(told(LATE, FAR), *STUCK, why="stuck")))
    assert found is not None
    assert found.code == "rank-stuck"
    assert "have launched 41 AllReduce, the others 42 AllReduce" in found.saw
    assert dict(USUAL)["AllReduce"] == 42
