"""What is said of a check that has no words of its own for what happened to it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.headline import begun
from preflight.model import (
    NO_CPU,
    NO_PROCESS,
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
UNSTARTED = "no-process"

SAW_LIMIT = 300
"""Characters of a text that may be a stranger's."""

REPORT_IT = "report it with the JSON report (-o json=FILE), which has the traceback"
BLIND = "this check has no result"

UNKNOWN = FindingType(
    headline="preflight could not judge {check}: {seen}",
    who="the authors of preflight",
    cause="a fault of preflight itself",
    means=BLIND,
    text=REPORT_IT,
    status=Status.UNDECIDED,
    blame=Blame.TOOL,
)

GENERIC: Mapping[Cause, tuple[str, Blame, FindingType]] = {
    Cause.TIMED_OUT: (
        "no-answer",
        Blame.UNKNOWN,
        FindingType(
            headline="{check} did not finish on {at} within its time limit",
            who="whoever runs this node",
            cause="something that this check reads does not answer",
            means=BLIND,
            text="re-run with more time: --timeout {check}=60s; the last step shown is where it "
            "was stuck",
        ),
    ),
    Cause.UNKILLABLE: (
        "unkillable",
        Blame.NODE,
        FindingType(
            headline="a process of {check} hangs in the kernel of {at} and can't be killed",
            cause="a driver or a file system that never returns from the kernel",
            means="a process of the job that uses the same device or file system hangs like it",
            text="read the kernel log (dmesg -T), then reboot the node",
        ),
    ),
    Cause.CRASHED: (
        "crashed",
        Blame.TOOL,
        FindingType(
            headline="{check} crashed on {at}: {seen}",
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
            headline="{check} could not look on {at}: {seen}",
            who="whoever runs this node",
            cause="something that this check needs is missing, or a sandbox hides it",
            means=BLIND,
            text="fix what the message names, then run again; or leave the check out: --skip "
            "{check}",
        ),
    ),
    Cause.INTERRUPTED: (
        "interrupted",
        Blame.UNKNOWN,
        FindingType(
            headline="{check} was not finished on {at}: {seen}",
            who="whoever started the run",
            cause="the run was over before the check had answered: a signal, or --deadline",
            means=BLIND,
            text="re-run with more time: --deadline 5m; the last step shown is where it was stuck",
        ),
    ),
}
"""Cause -> code, blame and advice; the other causes are no findings."""

NO_ROOM = FindingType(
    headline="{check} could not start on {at}: {seen}",
    who="whoever runs this node",
    cause="a small pids.max of the cgroup or `ulimit -u`, or processes that use it up",
    means=BLIND,
    text="raise the limit that the message names, or end processes that nobody needs: ps -eLf",
)
"""Of a check whose process or thread the kernel refused."""

FITTING: Sequence[tuple[str, str, str]] = (
    (
        f"^({NO_CPU}|no CPU was left)",
        "other programs that use all CPUs of the machine, or a CPU limit that is too low",
        "re-run when the machine is less busy or with more time (--timeout {check}=60s), or leave "
        "the check out: --skip {check}",
    ),
    (
        r"(?i)permi(t|ss)|denied|readable|does not tell|not authori[sz]ed",
        "a permission, or a sandbox that hides what the check reads",
        "run it with that permission, or leave the check out: --skip {check}",
    ),
    (
        r"(?i)\b(is|are) free\b|out of memory",
        "another program uses the memory that this check needs",
        "stop that program and run again, or leave the check out: --skip {check}",
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
        if last_line[0].startswith(NO_PROCESS):
            code, advice = UNSTARTED, NO_ROOM
        advice = _fitting(advice, last_line[0])
    saw, fields = f"{last_line[0]}{mark}"[:SAW_LIMIT], {"check": check_id}
    return Finding(
        code,
        Status.UNDECIDED,
        tuple(world.subject(key) for key in keys),
        saw=saw,
        blame=blame,
        confidence=Confidence.POSSIBLE if blame is Blame.UNKNOWN else Confidence.CERTAIN,
        headline=begun(advice.headline, saw, fields),
        check=check_id,
        advice=advice.filled(fields),
    )


def _fitting(advice: FindingType, why: str) -> FindingType:
    for pattern, because, text in FITTING:
        if re.search(pattern, why):
            return replace(advice, cause=because, text=text)
    return advice


def unjudged(check_id: str, error: Exception, subjects: Sequence[Subject]) -> Finding:
    """Of a judge() that raised."""
    why = f"{type(error).__name__} while judging: {error}"
    return _ours(UNJUDGED, check_id, why, subjects, frames_of(error))


def not_loaded(
    check_id: str, why: str, subjects: Sequence[Subject], frames: tuple[str, ...] = ()
) -> Finding:
    """Of a check that could not be loaded, or that only an older or newer version has."""
    return _ours(NOT_LOADED, check_id, why, subjects, frames)


def _ours(
    code: str, check_id: str, saw: str, subjects: Sequence[Subject], frames: tuple[str, ...]
) -> Finding:
    saw = " ".join(saw.split())[:SAW_LIMIT]
    return Finding(
        code,
        Status.UNDECIDED,
        tuple(subjects) or (Subject(Kind.SOFTWARE, name=check_id),),
        saw=saw,
        blame=Blame.TOOL,
        evidence=frames,
        headline=begun(UNKNOWN.headline, saw, {"check": check_id}),
        check=check_id,
        advice=UNKNOWN,
    )
