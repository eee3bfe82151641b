"""`preflight attach`: a job that already runs, looked at and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from preflight.config.resolve import seconds_of
from preflight.domains.job.record import Record
from preflight.engine import agent
from preflight.engine.agent import Ending, Wish
from preflight.engine.plan import Progress
from preflight.engine.setup import wait
from preflight.model import PreflightError
from preflight.process.pool import Raised, Returned, Workers
from preflight.process.signals import Interrupt
from preflight.rehearsal.run import (
    GRACE,
    RECORD_LIMIT,
    SERVER,
    _folder,
    _in_worker,
    _prepared,
    _with_record,
)
from preflight.serde import decode

ATTACHED = 6.0
"""Seconds for which a running job is looked at."""


def attached(
    wish: Wish,
    args: Mapping[str, Any],
    for_: str | None,
    workers: Workers,
    interrupt: Interrupt,
    watch: Callable[[Progress], None],
) -> Ending:
    """The same of a job that already runs; PreflightError where it can't be looked at at all."""
    seconds = ATTACHED if for_ is None else seconds_of(for_, "--for")
    wish, _ = _prepared(wish)
    workers.fork(SERVER)
    target = "preflight.attach.run:look"
    call = workers.call(
        SERVER, target, {**args, "seconds": seconds}, seconds=seconds + GRACE, limit=RECORD_LIMIT
    )
    result = wait(workers, call, seconds + GRACE + 5.0, lambda: bool(interrupt.name))
    if isinstance(result, Raised):
        raise PreflightError(result.message)
    if not isinstance(result, Returned):
        raise PreflightError(f"no look at it in {seconds + GRACE:.0f} s")
    record: Record = decode(Record, result.value)
    folder = _folder(workers)
    try:
        adjusted = _with_record(wish, workers, folder, record, {}, {})
        return agent.ending_of(adjusted, workers, interrupt, watch)
    finally:
        _in_worker(workers, "preflight.rehearsal.workdir:remove", folder)
