"""Reads the record of a rehearsal for the checks of the group job: a JSON file that
preflight/rehearsal wrote, with what is known of every rank of this node."""

from __future__ import annotations

import json
from functools import partial

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.job.joining import LAUNCHER
from preflight.domains.job.record import RehearsalRecord, Rehearsed
from preflight.host import Host
from preflight.model import Blame, CannotObserve, FindingType, Kind, NotApplicable, Subject
from preflight.serde import decode

OPTION = "record"
REHEARSAL = Check(
    scope=Scope.RANK,
    stage=Stage.REHEARSAL,
    budget=5.0,
    level=Level.DEEP,
    requires=frozenset({Requirement.REHEARSAL}),
    options={OPTION: "the record of a rehearsal (preflight rehearse sets it)"},
    blame=Blame.JOB,
)
"""What the declarations of these checks have in common."""
for_author = partial(FindingType, who="job author")
"""The declaration of a finding that the author of the job can repair: most of theirs."""

FROM_OUTSIDE = "only seen from outside, by its stack and /proc"
"""Why nothing else is known of a rank that no hook of ours is in."""

LIMIT = 64 << 20
"""Bytes of a record. A rank has at most some hundred calls a group: far less than 1 MiB."""


def load_rank(host: Host, ctx: Context, *, launchers: bool = False) -> Rehearsed:
    """What is known of this observer's rank; of a launcher without ranks, and of a process whose
    stack can't be read, only where `launchers` are asked for."""
    path = str(ctx.options.get(OPTION, ""))
    if not path:
        raise NotApplicable("only of a command that is rehearsed: preflight rehearse -- CMD")
    try:
        with open(host.path(path), "rb") as file:
            text = file.read(LIMIT + 1)
    except OSError as error:
        raise CannotObserve(f"{path}: {error.strerror}") from None
    if len(text) > LIMIT:
        raise CannotObserve(f"{path}: longer than {LIMIT >> 20} MiB")
    try:
        ranks = decode(RehearsalRecord, json.loads(text), lax=True).ranks
    except (ValueError, RecursionError) as error:
        raise CannotObserve(f"{path} is no record of a rehearsal: {error!s:.200}") from None
    if not 0 <= ctx.local_rank < len(ranks):
        raise CannotObserve(f"{path} has {len(ranks)} ranks, and not number {ctx.local_rank}")
    mine: Rehearsed = ranks[ctx.local_rank]
    if not launchers and mine.life.joining is not None and mine.life.joining.who == LAUNCHER:
        raise NotApplicable("the launcher has started no rank")
    if not launchers and mine.life.pid and not mine.life.watched:
        raise NotApplicable("its stack can't be read")
    return mine


def nothing_seen(seen: Rehearsed, why: str) -> NotApplicable:
    """That there is nothing to judge: `why`, unless the rank could not be watched from inside."""
    return NotApplicable(FROM_OUTSIDE if seen.life.watched != "inside" else why)


def rank_subject(here: Subject, rank: int | None) -> Subject:
    """The rank by its number in the job; the observer where that is not known."""
    if rank is None:
        return here
    return Subject(Kind.RANK, here.node, str(rank), ranks=(rank,))


def name_of(subject: Subject) -> str:
    """`rank 3`, or what the observer is called."""
    return f"rank {subject.name}" if subject.kind is Kind.RANK else str(subject)
