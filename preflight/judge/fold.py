"""Consequences under their cause: one root, the rest folded. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from preflight.model import WEIGHT, Blame, Confidence, Finding, Kind, Status


def matches(check_id: str, pattern: str) -> bool:
    """Whether an id, a prefix (`net`) or a glob (`net.*`) selects a check."""
    return fnmatch.fnmatchcase(check_id, pattern) or check_id.startswith(pattern + ".")


def explains(cause: Finding, effect: Finding) -> bool:
    """Whether `effect` is a consequence of `cause`: named by it, on a subject that meets one of
    its own, or a symptom, which shows anywhere. Nothing is folded under what is only possible,
    unless it is named with its code (`world.gloo:slow`): then it is the same thing, seen from
    farther away. And no FAIL is folded under a mere warning."""
    if cause is effect or cause.check == effect.check:
        return False
    if WEIGHT[cause.status] < WEIGHT[effect.status]:
        return False
    if cause.confidence is Confidence.POSSIBLE and not _codes(effect) & {*cause.explains}:
        return False
    if cause.status is Status.UNDECIDED:  # why another check could not look, if it says so
        same = _codes(effect) & {*cause.explains} and _meet(cause, effect)
        return effect.status is Status.UNDECIDED and bool(same)
    if cause.status not in (Status.FAIL, Status.WARN):
        return False
    anywhere = cause.status is Status.FAIL and _symptom(effect)
    return _named(cause, effect) and (anywhere or _meet(cause, effect))


def _symptom(effect: Finding) -> bool:
    """Whether it may show on other ranks than those at fault. Ranks that work together wait for
    each other: of a fault that stops one of them, any other one complains or falls silent. Not so
    what is certain (a rank that died by a signal has a fault of its own), nor what is known to be a
    node's or the job's fault."""
    return (
        effect.status is not Status.MISSING  # who never came is no symptom of anything
        and effect.confidence is not Confidence.CERTAIN
        and effect.blame in (Blame.UNKNOWN, Blame.NETWORK)
        and all(subject.kind in (Kind.RANK, Kind.LINK) for subject in effect.subjects)
    )


def _named(cause: Finding, effect: Finding) -> bool:
    codes = _codes(effect)
    return any(
        matches(effect.check, p) or any(fnmatch.fnmatchcase(c, p) for c in codes)
        for p in cause.explains
    )


def _codes(effect: Finding) -> frozenset[str]:
    """`id:code` of a finding, also with the codes that it had before: a site's own check may still
    name those."""
    was = effect.advice.was if effect.advice else ()
    return frozenset(f"{effect.check}:{code}" for code in (effect.code, *was))


def _meet(one: Finding, other: Finding) -> bool:
    return any(a.meets(b) for a in one.subjects for b in other.subjects)


def fold(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Consequences go under the first finding that explains them (of two that explain each other
    the earlier check is the cause); a WARN that might explain a FAIL becomes one of its
    alternatives. Heaviest first, otherwise in the order of the checks."""
    cause_of: dict[int, int] = {}
    for number, effect in enumerate(findings):
        for candidate, cause in enumerate(findings):
            mutual = candidate > number and explains(effect, cause)
            circle = _root(cause_of, candidate) == number
            if explains(cause, effect) and not mutual and not circle:
                cause_of[number] = candidate
                break
    kept = []
    for number, finding in enumerate(findings):
        if number in cause_of:
            continue
        under = [
            f for n, f in enumerate(findings) if n in cause_of and _root(cause_of, n) == number
        ]
        hints = tuple(
            f"{w.check}: {w.saw}" for w in findings if w not in under and _hints(w, finding)
        )
        changed = finding.with_(
            folded=tuple(dict.fromkeys(f.check for f in under)),
            alternatives=(*finding.alternatives, *hints),
        )
        kept.append(changed)
    return tuple(sorted(kept, key=lambda f: -WEIGHT[f.status]))


def _hints(warning: Finding, failure: Finding) -> bool:
    return (
        warning.status is Status.WARN
        and failure.status is Status.FAIL
        and warning.check != failure.check
        and _named(warning, failure)
        and _meet(warning, failure)
    )


def _root(cause_of: Mapping[int, int], number: int) -> int:
    """The end of a chain of causes; fold() makes no circles."""
    while number in cause_of:
        number = cause_of[number]
    return number
