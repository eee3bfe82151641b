"""Node lists of SLURM: which hosts, which ranks, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.identity.slurm_hosts import expected_hosts

STEP = {"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}


@pytest.mark.parametrize(
    ("environ", "own", "size", "hosts"),
    [
        (STEP, 1, 5, [("n1", (0, 1)), ("n2", (2, 3)), ("n3", (4,))]),
        (STEP | {"SLURM_DISTRIBUTION": "cyclic:block"}, 1, 5,
         [("n1", (0, 3)), ("n2", (1, 4)), ("n3", (2,))]),
        (STEP | {"SLURM_DISTRIBUTION": "plane=2"}, 1, 5, [("n1", ()), ("n2", ()), ("n3", ())]),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, 4, 12,
         [("n1", (0, 1, 2, 3)), ("n2", (4, 5, 6, 7)), ("n3", (8, 9, 10, 11))]),
        # one agent a node: srun deals its tasks, not the ranks of each
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_DISTRIBUTION": "cyclic"}, 2, 6,
         [("n1", (0, 1)), ("n2", (2, 3)), ("n3", (4, 5))]),
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}, 4, 8,
         [("n1", (0, 1, 2, 3)), ("n2", (4, 5, 6, 7))]),
        # the run uses two of the job's eight nodes: the list names innocents
        ({"SLURM_JOB_NODELIST": "n[1-8]", "SLURM_TASKS_PER_NODE": "4(x8)"}, 4, 8, []),
        ({"SLURM_STEP_NODELIST": "n[1-2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, 1, 2, []),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "9(x9999999)"}, 3, 9,
         [("n1", (0, 1, 2)), ("n2", (3, 4, 5)), ("n3", (6, 7, 8))]),
        ({}, 4, 8, []),
    ],
)  # fmt: skip
def test_expected(environ: dict[str, str], own: int, size: int, hosts: list[Any]) -> None:
    assert [(e.host, e.ranks) for e in expected_hosts(environ, own, size)] == hosts
