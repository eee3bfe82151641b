"""What is said of a check that has no words of its own for what happened to it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.model import (
    Blame,
    Cause,
    Confidence,
    Finding,
    FindingType,
    Kind,
    Missing,
    Status,
    Subject,
    World,
    frames_of,
)

UNJUDGED = "unjudged"
NOT_LOADED = "not-loaded"

SAW_LIMIT = 300
"""Characters of a text that may be a stranger's."""

REPORT_IT = "report it with the JSON report (-o json=FILE): the traceback is inside"
BLIND = "nothing is known of what it would have looked at"

UNKNOWN = FindingType(
    who="the authors of preflight",
    cause="a fault of preflight itself",
    means="nothing is known of what this check would have said",
    text=REPORT_IT,
    status=Status.UNDECIDED,
    blame=Blame.TOOL,
)

GENERIC: Mapping[Cause, tuple[str, Blame, FindingType]] = {
    Cause.TIMED_OUT: (
        "no-answer",
        Blame.UNKNOWN,
        FindingType(
            who="whoever runs this node",
            cause="something that this check touches does not answer",
            means=BLIND,
            text="run it alone with more time and look where it stays",
        ),
    ),
    Cause.UNKILLABLE: (
        "unkillable",
        Blame.NODE,
        FindingType(
            cause="a driver or a file system that never returns from the kernel",
            means="a process of the job that touches the same thing can't be killed either",
            text="look at the kernel log; a reboot ends it",
        ),
    ),
    Cause.CRASHED: (
        "crashed",
        Blame.TOOL,
        FindingType(
            who="the authors of preflight",
            cause="a fault of this check itself, or of a library that it calls",
            means=BLIND,
            text=REPORT_IT,
        ),
    ),
    Cause.CANNOT_OBSERVE: (
        "not-observable",
        Blame.UNKNOWN,
        FindingType(
            who="whoever runs this node",
            cause="something that this check needs is not there, or a sandbox hides it",
            means=BLIND,
            text="see to what it names and run it again, or leave the check out by --skip",
        ),
    ),
    Cause.INTERRUPTED: (
        "interrupted",
        Blame.UNKNOWN,
        FindingType(
            who="whoever started the run",
            cause="the run was over before the check had answered: a signal, or --deadline",
            means=BLIND,
            text="run it again and give it the time; what it was at then is what it waits for",
        ),
    ),
}
"""Cause -> code, blame and advice; the other causes are no findings."""

FITTING: Sequence[tuple[str, str, str]] = (
    (
        r"(?i)permi(t|ss)|denied|readable|does not tell|not authori[sz]ed",
        "a permission, or a sandbox that hides what the check reads",
        "run it with the permission, or leave the check out by --skip",
    ),
    (
        r"(?i)\b(is|are) free\b|out of memory",
        "another program has the memory that this check needs",
        "end what has it and run it again, or leave the check out by --skip",
    ),
)
"""What a check says that could not look -> the cause and what to do, where it is one of these."""


def missing(check_id: str, cause: Cause, keys: Sequence[str], world: World[Any]) -> Finding:
    """Of the subjects `keys`, whose observations are missing for the same cause."""
    code, blame, advice = GENERIC[cause]
    first = world.observations[keys[0]]
    assert isinstance(first, Missing)
    mark = f' · last mark "{first.last_mark}"' if first.last_mark else ""
    last_line = first.detail.strip().splitlines()[-1:] or [str(cause)]
    if cause is Cause.CANNOT_OBSERVE:
        advice = _fitting(advice, last_line[0])
    return Finding(
        code,
        Status.UNDECIDED,
        tuple(world.subject(key) for key in keys),
        saw=f"{last_line[0]}{mark}"[:SAW_LIMIT],
        blame=blame,
        confidence=Confidence.POSSIBLE if blame is Blame.UNKNOWN else Confidence.CERTAIN,
        check=check_id,
        advice=advice,
    )


def _fitting(advice: FindingType, why: str) -> FindingType:
    for pattern, because, text in FITTING:
        if re.search(pattern, why):
            return replace(advice, cause=because, text=text)
    return advice


def unjudged(check_id: str, error: Exception, subjects: Sequence[Subject]) -> Finding:
    """Of a judge() that raised."""
    why = f"its judgement stopped with {type(error).__name__}: {error}"
    return _ours(UNJUDGED, check_id, why, subjects, frames_of(error))


def not_loaded(
    check_id: str, why: str, subjects: Sequence[Subject], frames: tuple[str, ...] = ()
) -> Finding:
    """Of a check that could not be loaded, or that only an older or newer version has."""
    return _ours(NOT_LOADED, check_id, why, subjects, frames)


def _ours(
    code: str, check_id: str, saw: str, subjects: Sequence[Subject], frames: tuple[str, ...]
) -> Finding:
    return Finding(
        code,
        Status.UNDECIDED,
        tuple(subjects) or (Subject(Kind.SOFTWARE, name=check_id),),
        saw=" ".join(saw.split())[:SAW_LIMIT],
        blame=Blame.TOOL,
        evidence=frames,
        check=check_id,
        advice=UNKNOWN,
    )
