"""`preflight attach`: a job that already runs, looked at and judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.attach.snapshot import take_snapshot
from preflight.config.resolve import seconds_of
from preflight.domains.job.record import RehearsalRecord
from preflight.engine import agent
from preflight.engine.agent import Ending, Wish
from preflight.engine.plan import Watch
from preflight.engine.setup import wait
from preflight.model import PreflightError
from preflight.process.pool import Raised, Returned, Workers
from preflight.process.signals import Interrupt
from preflight.rehearsal.job_checks import (
    GRACE,
    RECORD_LIMIT,
    SERVER,
    configured,
    with_record,
    working_folder,
)
from preflight.serde import decode

ATTACHED = 6.0
"""Seconds for which a running job is looked at."""


def ending_of(
    wish: Wish,
    args: Mapping[str, Any],
    for_: str | None,
    workers: Workers,
    interrupt: Interrupt,
    watch: Watch,
) -> Ending:
    """The same of a job that already runs; PreflightError where it can't be looked at at all."""
    seconds = ATTACHED if for_ is None else seconds_of(for_, "--for")
    wish, _ = configured(wish)
    workers.fork(SERVER)
    call = workers.call(
        SERVER,
        take_snapshot,
        {**args, "seconds": seconds},
        seconds=seconds + GRACE,
        limit=RECORD_LIMIT,
    )
    result = wait(workers, call, seconds + GRACE + 5.0, lambda: bool(interrupt.name))
    if isinstance(result, Raised):
        raise PreflightError(result.message)
    if not isinstance(result, Returned):
        if interrupt.name:
            raise PreflightError(f"{interrupt.name} before the job was looked at")
        raise PreflightError(f"no look at it in {seconds + GRACE:.0f} s")
    record: RehearsalRecord = decode(RehearsalRecord, result.value, lax=True)
    with working_folder(workers) as folder:
        adjusted = with_record(wish, workers, folder, record, {}, {})
        return agent.ending_of(adjusted, workers, interrupt, watch)
