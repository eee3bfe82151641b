"""The checks that a record leads to."""

from __future__ import annotations

import pytest

from preflight.domains.job.record import (
    Calls,
    Collective,
    Group,
    Life,
    RehearsalRecord,
    Rehearsed,
    WatchedCommand,
)
from preflight.model import PreflightError
from preflight.process.pool import Workers
from preflight.rehearsal import job_checks, workdir


def waiting(op: str, why: str = "stuck") -> Rehearsed:
    call = Collective(3, op, "[8] Float", done=False)
    calls = Calls(why=why, at="collective", groups=(Group("0", (0, 1), 3, 2, (call,)),))
    return Rehearsed(Life(WatchedCommand(("x",), None, why, 9.0)), calls)


@pytest.mark.parametrize(
    ("ranks", "fabric"),
    [
        ((waiting("all_reduce"), waiting("all_reduce")), True),
        ((waiting("all_reduce"), waiting("broadcast")), False),
        ((waiting("all_reduce"),), False),
        ((waiting("all_reduce", "time"), waiting("all_reduce", "time")), False),
        ((waiting("all_reduce"), Rehearsed(Life(WatchedCommand((), None, "stuck", 9.0)))), False),
    ],
)
def test_the_fabric_is_looked_at_where_all_wait_in_one_call(
    ranks: tuple[Rehearsed, ...], fabric: bool
) -> None:
    assert job_checks.is_the_fabric(RehearsalRecord(ranks)) is fabric


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("os.fork is wrapped"), "os.fork is wrapped"),
    ],
)
def test_why_there_is_no_folder_is_what_was_said(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(**given: object) -> str:
        raise error

    monkeypatch.setattr(workdir.tempfile, "mkdtemp", fail)
    workers = Workers()
    try:
        with pytest.raises(PreflightError, match=words) as said, job_checks.working_folder(workers):
            pass
    finally:
        workers.close()
    assert "writable" not in str(said.value)
