"""What costs time in each step without need: not what is done now and then."""

from __future__ import annotations

from dataclasses import replace

from preflight.domains.job.frame import Frame
from preflight.domains.job.needless import (
    Gathered,
    NoSync,
    Profiled,
    Table,
    gathered_each_step,
    left_running,
    mostly_zero,
    not_skipped,
)

EACH = Gathered(Frame("train.py", 46, "update", own=True), 1, 60, 60)


def test_a_profiler_of_many_steps() -> None:
    assert left_running(Profiled(40, 400))
    assert not left_running(Profiled(40, 30))
    assert not left_running(Profiled())


def test_all_parameters_in_each_step() -> None:
    assert gathered_each_step([EACH], 0) is EACH
    assert gathered_each_step([replace(EACH, numbers=60 * 100)], 100) is not None
    for one, whole in (
        (replace(EACH, steps=20), 0),  # in every third
        (replace(EACH, last=10, steps=10), 0),
        (replace(EACH, numbers=60), 100),  # a bias
        (replace(EACH, numbers=60), 0),
    ):
        assert gathered_each_step([one], whole) is None
    assert gathered_each_step([], 100) is None


def test_blocks_of_no_sync() -> None:
    assert not_skipped(NoSync(180))
    assert not not_skipped(NoSync(7))
    assert not not_skipped(NoSync(20, 20))  # a model beside it, or an epoch of another kind
    assert not not_skipped(NoSync())


def test_tables_of_which_few_rows_are_used() -> None:
    table = Table("table.weight", 150_000, 64, 38_400_000, 0.02, 39_000_000)
    small = replace(table, bytes=4_200_000, rows=16_400)
    assert mostly_zero([small, table]) is table
    for tables in (
        [],
        [replace(table, used=0.2)],
        [replace(table, whole=100_000_000)],  # the table of words of a language model
    ):
        assert mostly_zero(tables) is None
