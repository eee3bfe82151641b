"""Observations and expectations to a Report: runs the judges, folds consequences, exit code. Pure.

The same document judged twice gives the same report, today or in a year: `show --judge` and the
goldens enter here. Nothing in this file looks at the machine, the clock or the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.check import Catalogue, Loaded, answer_type
from preflight.document import decode
from preflight.expect import Expect
from preflight.fold import fold, matches
from preflight.model import (
    WEIGHT,
    Advice,
    Blame,
    Cause,
    Confidence,
    Finding,
    Kind,
    Measured,
    Missing,
    Observation,
    Observations,
    Report,
    Row,
    Seen,
    Status,
    Subject,
    Topology,
    Verdict,
    World,
    place_of,
)
from preflight.units import duration

EXIT = {
    Verdict.READY: 0,
    Verdict.NOT_READY: 3,
    Verdict.UNDECIDED: 4,
    Verdict.INCOMPLETE: 5,
}

BY_USER = "user"
"""`by` of a Missing(skipped) that the user asked for: it does not make the run undecided."""

# What to say when a check has no words of its own for an observation that is missing.
GENERIC: Mapping[Cause, tuple[str, Blame, Advice]] = {
    Cause.TIMED_OUT: (
        "no-answer",
        Blame.UNKNOWN,
        Advice(
            who="whoever runs this node",
            cause="something that this check touches does not answer",
            means="nothing is known of what it would have looked at",
            text="run it alone with more time and look where it stays",
        ),
    ),
    Cause.UNKILLABLE: (
        "unkillable",
        Blame.NODE,
        Advice(
            who="cluster administrator",
            cause="a driver or a file system that never returns from the kernel",
            means="a process of the job that touches the same thing can't be killed either",
            text="look at the kernel log; a reboot ends it",
        ),
    ),
    Cause.CRASHED: (
        "crashed",
        Blame.TOOL,
        Advice(
            who="the authors of preflight",
            cause="a fault of this check itself, or of a library that it calls",
            means="nothing is known of what it would have looked at",
            text="report it with the JSON report (-o json=FILE): the traceback is inside",
        ),
    ),
    Cause.CANNOT_OBSERVE: (
        "not-observable",
        Blame.UNKNOWN,
        Advice(
            who="whoever runs this node",
            cause="a permission, or a sandbox that hides what the check reads",
            means="nothing is known of what it would have looked at",
            text="run it with the permission, or leave the check out by --skip",
        ),
    ),
}

UNJUDGED = "unjudged"
NOT_LOADED = "not-loaded"
UNKNOWN_ADVICE = Advice(
    who="the authors of preflight",
    cause="a fault of preflight itself",
    means="nothing is known of what this check would have said",
    text="report it with the JSON report (-o json=FILE): the traceback is inside",
)


@dataclass(frozen=True, slots=True)
class Waiver:
    """`tolerate`: a FAIL of these checks counts as a WARN until a date (ISO, "" for ever)."""

    pattern: str
    why: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """How strict this run is. `today` (ISO date) is what waivers are held against."""

    strict: bool = False
    waivers: tuple[Waiver, ...] = ()
    today: str = ""


@dataclass(slots=True)
class _Judged:
    """One check on its way into the report."""

    loaded: Loaded | None
    id: str
    observations: Mapping[str, Observation]
    by_subject: dict[str, Status] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    measured: Measured = field(default_factory=Measured)
    reason: str = ""


def judge(
    observations: Observations,
    catalogue: Catalogue,
    expect: Expect,
    policy: Policy = Policy(),
) -> Report:
    """The report of a run."""
    judged = [
        _judge_check(check_id, seen, catalogue, observations.topology, expect)
        for check_id, seen in _in_order(observations.checks, catalogue)
    ]
    tolerated = _tolerate(judged, policy)
    findings = fold([f for j in judged for f in j.findings])
    rows = tuple(_row(j) for j in judged)
    verdict = _verdict(rows, judged, policy)
    code = EXIT[verdict]
    if observations.interrupted:
        code = {"SIGINT": 130, "SIGTERM": 143}.get(observations.interrupted, code)
    return Report(
        verdict=verdict,
        exit_code=code,
        rows=rows,
        findings=findings,
        observations=observations,
        skipped=tuple(j.id for j in judged if _skipped_by_user(j)),
        tolerated=tolerated,
        exclude=exclude(findings),
    )


def passed(
    check_id: str,
    seen: Mapping[str, Observation],
    catalogue: Catalogue,
    topology: Topology,
    expect: Expect,
) -> dict[str, Status]:
    """The status of each subject of one check, while the run goes on: the runner decides by it what
    is blocked (see runner.py). The same rules as judge(), without tolerance and folding."""
    return _judge_check(check_id, seen, catalogue, topology, expect).by_subject


def _in_order(
    checks: Mapping[str, Mapping[str, Observation]], catalogue: Catalogue
) -> Iterable[tuple[str, Mapping[str, Observation]]]:
    """Known checks in the order in which they run, then what only the document knows."""
    known = [i for i in catalogue.checks if i in checks]
    return ((i, checks[i]) for i in [*known, *(i for i in checks if i not in known)])


def _judge_check(
    check_id: str,
    seen: Mapping[str, Observation],
    catalogue: Catalogue,
    topology: Topology,
    expect: Expect,
) -> _Judged:
    loaded = catalogue.checks.get(check_id)
    judged = _Judged(loaded, check_id, seen)
    if loaded is None:
        why = catalogue.broken.get(check_id, "this version has no such check")
        judged.reason = f"could not be loaded: {why}"
        whole = World(check_id, seen, topology)
        for key in seen:
            judged.by_subject[key] = Status.UNDECIDED
        judged.findings.append(
            Finding(
                NOT_LOADED,
                Status.UNDECIDED,
                tuple(whole.subject(k) for k in seen) or (Subject(Kind.SOFTWARE, name=check_id),),
                saw=why,
                blame=Blame.TOOL,
                check=check_id,
                advice=UNKNOWN_ADVICE,
            )
        )
        return judged
    world = decoded(loaded, seen, topology)
    try:
        for finding in loaded.module.judge(world, expect):
            judged.findings.append(_advised(loaded, finding))
        judged.measured = loaded.module.measured(world)
    except Exception as error:  # noqa: BLE001  a fault of ours must not look like the cluster's
        everybody = tuple(world.subject(key) for key in seen)
        judged.findings.append(
            Finding(
                UNJUDGED,
                Status.UNDECIDED,
                everybody,
                saw=f"its judgement stopped with {type(error).__name__}: {error}"[:300],
                blame=Blame.TOOL,
                check=check_id,
                advice=UNKNOWN_ADVICE,
            )
        )
    _status_by_subject(judged, world)
    return judged


def decoded(loaded: Loaded, seen: Mapping[str, Observation], topology: Topology) -> World[Any]:
    """The JSON values as the dataclass that the check's observe() returned; what doesn't fit (an
    older report, a hostile peer) is missing."""
    kind = answer_type(loaded.module)
    made: dict[str, Seen[Any] | Missing] = {}
    for key, observation in seen.items():
        if isinstance(observation, Missing):
            made[key] = observation
            continue
        try:
            made[key] = replace(observation, value=decode(kind, observation.value))
        except (ValueError, TypeError) as error:
            text = f"the answer does not fit this version of the check: {error}"
            made[key] = Missing(Cause.CANNOT_OBSERVE, text[:300], observation.seconds)
    return World(loaded.id, made, topology)


class _Fields(dict[str, str]):
    """Fields of a template; one that a judge forgot shows up as what it is called."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def _advised(loaded: Loaded, finding: Finding) -> Finding:
    """The finding with its check and its ADVICE, templates filled."""
    advice = loaded.module.ADVICE.get(finding.code, UNKNOWN_ADVICE)
    fields = _Fields(finding.fields)
    filled = replace(
        advice,
        means=advice.means.format_map(fields),
        now=advice.now.format_map(fields),
        text=advice.text.format_map(fields),
        commands=tuple(
            replace(c, run=c.run.format_map(fields), where=c.where.format_map(fields))
            for c in advice.commands
        ),
    )
    return finding.with_(check=loaded.id, advice=filled)


def _touches(finding: Finding, key: str) -> bool:
    """Whether a finding is about the node or rank of an observation's key."""
    node, rank = place_of(key)
    for subject in finding.subjects:
        if subject.node and node not in (subject.node, subject.to):
            continue
        if rank is None or not subject.ranks or rank in subject.ranks:
            return True
    return False


def _status_by_subject(judged: _Judged, world: World[Any]) -> None:
    """The heaviest finding of each subject; what is missing without one gets the generic one."""
    unexplained: dict[Cause, list[str]] = {}
    for key, observation in world.observations.items():
        statuses = [f.status for f in judged.findings if _touches(f, key)]
        if isinstance(observation, Seen):
            statuses.append(Status.PASS)
        elif observation.cause in (Cause.NOT_APPLICABLE, Cause.BLOCKED, Cause.SKIPPED):
            statuses.append(Status.SKIP)
            judged.reason = judged.reason or reason(observation)
        elif observation.cause is Cause.NOT_ARRIVED:
            statuses.append(Status.MISSING)
        elif not statuses:
            unexplained.setdefault(observation.cause, []).append(key)
            statuses.append(Status.UNDECIDED)
        judged.by_subject[key] = max(statuses, key=lambda s: WEIGHT[s])
    for cause, keys in unexplained.items():
        judged.findings.append(_generic(judged.id, cause, keys, world))


def _generic(check_id: str, cause: Cause, keys: list[str], world: World[Any]) -> Finding:
    code, blame, advice = GENERIC[cause]
    first = world.observations[keys[0]]
    assert isinstance(first, Missing)
    mark = f' · last mark "{first.last_mark}"' if first.last_mark else ""
    last_line = first.detail.strip().splitlines()[-1:] or [str(cause)]
    return Finding(
        code,
        Status.UNDECIDED,
        tuple(world.subject(key) for key in keys),
        saw=f"{last_line[0]}{mark}"[:300],
        expected=f"an answer in {duration(first.seconds)}" if cause is Cause.TIMED_OUT else "",
        blame=blame,
        confidence=Confidence.POSSIBLE if blame is Blame.UNKNOWN else Confidence.CERTAIN,
        check=check_id,
        advice=advice,
    )


def reason(missing: Missing) -> str:
    """Why something was not run, for its row."""
    if missing.cause is Cause.BLOCKED:
        return f"needs {missing.by}" + (f": {missing.detail}" if missing.detail else "")
    return missing.detail or str(missing.cause)


def _tolerate(judged: list[_Judged], policy: Policy) -> tuple[str, ...]:
    """Turn FAILs of waived checks into WARNs; an expired waiver is noted and does nothing."""
    tolerated = []
    for one in judged:
        waivers = [w for w in policy.waivers if matches(one.id, w.pattern)]
        if not waivers or Status.FAIL not in one.by_subject.values():
            continue
        valid = next((w for w in waivers if not w.until or policy.today <= w.until), None)
        if valid is None:
            one.findings = [
                f.with_(saw=f"{f.saw} · its waiver ended on {waivers[0].until}")
                if f.status is Status.FAIL
                else f
                for f in one.findings
            ]
            continue
        tolerated.append(one.id)
        why = f" · tolerated{': ' + valid.why if valid.why else ''}"
        one.findings = [
            f.with_(status=Status.WARN, saw=f.saw + why) if f.status is Status.FAIL else f
            for f in one.findings
        ]
        one.by_subject = {
            key: Status.WARN if status is Status.FAIL else status
            for key, status in one.by_subject.items()
        }
    return tuple(tolerated)


def _row(judged: _Judged) -> Row:
    status = max(judged.by_subject.values(), default=Status.SKIP, key=lambda s: WEIGHT[s])
    check = judged.loaded.check if judged.loaded else None
    return Row(
        id=judged.id,
        stage=str(check.stage) if check else "machine",
        scope=str(check.scope) if check else "node",
        status=status,
        seconds=max((o.seconds for o in judged.observations.values()), default=0.0),
        by_subject=judged.by_subject,
        measured=judged.measured,
        reason=judged.reason,
        required=check.required if check else True,
    )


def _skipped_by_user(judged: _Judged) -> bool:
    return any(
        isinstance(o, Missing) and o.cause is Cause.SKIPPED and o.by == BY_USER
        for o in judged.observations.values()
    )


def _blind(judged: _Judged) -> bool:
    """Whether a required check was left out by nobody's wish: no torch, no time."""
    return any(
        isinstance(o, Missing) and o.cause in (Cause.SKIPPED, Cause.BLOCKED) and o.by != BY_USER
        for o in judged.observations.values()
    )


def _verdict(rows: tuple[Row, ...], judged: list[_Judged], policy: Policy) -> Verdict:
    """Precedence NOT READY > INCOMPLETE > UNDECIDED > READY; READY needs positive evidence."""
    statuses = {row.status for row in rows}
    if Status.FAIL in statuses or (policy.strict and Status.WARN in statuses):
        return Verdict.NOT_READY
    if Status.MISSING in statuses:
        return Verdict.INCOMPLETE
    required = [(r, j) for r, j in zip(rows, judged, strict=True) if r.required]
    if any(
        Status.UNDECIDED in r.by_subject.values() or (r.status is Status.SKIP and _blind(j))
        for r, j in required
    ):
        return Verdict.UNDECIDED
    if not {Status.PASS, Status.WARN} & statuses:
        return Verdict.UNDECIDED
    return Verdict.READY


def exclude(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The nodes to leave out: those of FAILs that blame this node's own hardware or system."""
    nodes = {
        subject.node
        for f in findings
        if f.status is Status.FAIL
        and f.blame is Blame.NODE
        and f.confidence is not Confidence.POSSIBLE
        for subject in f.subjects[:1]
        if subject.node
    }
    return tuple(sorted(nodes))
