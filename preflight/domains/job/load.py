"""The record of a rehearsal as the checks of the group job get it: a JSON file that
preflight/rehearsal wrote, with what is known of every rank of this node."""

from __future__ import annotations

import json

from preflight.check import Context
from preflight.domains.job.record import Record, Rehearsed
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable
from preflight.serde import decode

OPTION = "record"
OPTIONS = {OPTION: "the record of a rehearsal (preflight rehearse sets it)"}
"""For CHECK of these checks."""

LIMIT = 64 << 20
"""Bytes of a record. A rank has at most some hundred calls a group: far less than 1 MiB."""


def rehearsed(host: Host, ctx: Context) -> Rehearsed:
    """What is known of this observer's rank."""
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
        ranks = decode(Record, json.loads(text)).ranks
    except (ValueError, RecursionError) as error:
        raise CannotObserve(f"{path} is no record of a rehearsal: {error!s:.200}") from None
    if not 0 <= ctx.local_rank < len(ranks):
        raise CannotObserve(f"{path} has {len(ranks)} ranks, and not number {ctx.local_rank}")
    mine: Rehearsed = ranks[ctx.local_rank]
    return mine
