"""The checks of the group job on the record of a command that was rehearsed or looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from preflight.config.resolve import Config
from preflight.domains.job.record import RehearsalRecord
from preflight.engine import agent
from preflight.engine.agent import Wish
from preflight.engine.setup import wait
from preflight.humanize import duration
from preflight.model import PreflightError, Setting
from preflight.output import files
from preflight.process.pool import Died, Raised, Result, Returned, Target, Workers
from preflight.rehearsal import workdir
from preflight.sanitize import one_line
from preflight.serde import encode

GROUP = "job"
"""The checks of a rehearsal."""
JOB = (
    "job.ranks",
    "job.collectives",
    "job.pace",
    "job.memory",
    "job.backend",
    "job.model",
    "job.optimizer",
    "job.balance",
    "job.cost",
    "job.warnings",
)
SCRIPT = "job.script"
FABRIC_GROUPS = ("gpu", "net", "rdzv", "world")
"""What is looked at, then and there, where all ranks wait in the same collective."""
SERVER = "watch"
"""The worker that looks at the command."""
SPARE = "spare"
"""In place of a server that was killed."""
FOLDER_SECONDS = 10.0
GRACE = 25.0
"""Seconds beyond the watch for its last questions; a watcher that takes longer is killed."""
RECORD_LIMIT = 64 << 20
TYPED = 200
"""Letters of a command line that the report shows."""


def configured(wish: Wish) -> tuple[Wish, Config]:
    """With the checks that are asked for. Whatever is wrong with the flags is said before anything
    is started."""
    wish = replace(wish, flags=replace(wish.flags, only=wish.flags.only or (GROUP,)))
    chosen, _ = agent.configured(wish)
    return wish, chosen


def with_record(
    wish: Wish,
    workers: Workers,
    folder: str,
    record: RehearsalRecord,
    script: Mapping[str, Any],
    added: Mapping[str, str],
    patience: float = 0.0,
) -> Wish:
    """A run that has the record for its checks of the group job, and its ranks for its own."""
    path = os.path.join(folder, "record.json")
    files.write_json(workers, path, encode(record))
    ranks = max(1, len(record.ranks))
    command = record.ranks[0].life.command
    verb = "rehearsed for" if added else "looked at for"
    program, *rest = command.argv
    typed = one_line(" ".join([os.path.basename(program), *rest]), TYPED)
    fabric = is_the_fabric(record) and not wish.interrupted

    def adjust(chosen: Config) -> Config:
        own = {i: {**chosen.options.get(i, {}), "record": path} for i in JOB}
        own[SCRIPT] = {**chosen.options.get(SCRIPT, {}), **script}
        settings = {f"set.{name}": Setting(v, "rehearse") for name, v in added.items()}
        source = "rehearse" if added else "attach"
        settings["rehearsed"] = Setting(f"{verb} {duration(command.seconds)}", source)
        settings["command"] = Setting(typed, source)
        return replace(
            chosen,
            only=(*chosen.only, *FABRIC_GROUPS) if fabric else chosen.only,
            nproc=chosen.nproc or (ranks if ranks > 1 else None),
            nproc_source=chosen.nproc_source or "ranks of the command",
            options={**chosen.options, **own},
            arrive=chosen.arrive + patience,
            deadline=chosen.deadline + patience,
            shown={**chosen.shown, **settings},
        )

    return replace(wish, adjust=adjust, before=command.seconds)


def is_the_fabric(record: RehearsalRecord) -> bool:
    """Whether every rank here waits in the same collective, so that nobody is late."""
    calls = [r.calls for r in record.ranks]
    opened = [{g.name: (g.open.seq, g.open.op) for g in c.groups if g.open} for c in calls]
    same = all(found and found == opened[0] for found in opened)
    return len(calls) > 1 and same and all(c.why == "stuck" for c in calls)


@contextmanager
def working_folder(workers: Workers) -> Iterator[str]:
    """A folder for the record, removed at the end; PreflightError where there can be none."""
    result = _result(workers, workdir.make, None)
    if not isinstance(result, Returned):
        raise PreflightError(f"there is no place for the folder of a rehearsal: {_why_not(result)}")
    folder = str(result.value)
    workers.afterwards(SERVER, workdir.clear, folder)
    try:
        yield folder
    finally:
        call_worker(workers, workdir.remove, folder)


def call_worker(workers: Workers, target: Target, args: Any) -> Any:
    """What a function of rehearsal/workdir.py returns; None where it fails."""
    result = _result(workers, target, args)
    return result.value if isinstance(result, Returned) else None


def _result(workers: Workers, target: Target, args: Any) -> Result | None:
    """What comes of it. That somebody has killed the watch is no reason to leave anything."""
    result = None
    for server in (SERVER, SPARE):
        if not workers.opened(server):
            workers.fork(server)
        call = workers.call(server, target, args, seconds=FOLDER_SECONDS)
        result = wait(workers, call, FOLDER_SECONDS + 3.0)
        if not isinstance(result, Died):
            break
    return result


def _why_not(result: Result | None) -> str:
    """The file system's own word, or that ours did not come to ask it."""
    match result:
        case Raised(message=message):
            return message
        case Died(stderr=said):
            return f"the process that was to make it ended: {one_line(said, TYPED)}".rstrip(": ")
        case _:
            return f"no answer within {FOLDER_SECONDS:g} s"
