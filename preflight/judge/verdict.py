"""Observations and expectations to a Report: runs the judges, folds consequences, exit code. Pure.

The same document judged twice gives the same report, today or in a year: `show --judge` and the
goldens enter here. Nothing in this file looks at the machine, the clock or the environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from preflight.check import MayFail, Scope, complete
from preflight.expect import Expect
from preflight.headline import finished
from preflight.judge import fallbacks
from preflight.judge.fold import fold, matches
from preflight.judge.join import joined
from preflight.judge.places import placed
from preflight.judge.policy import Policy, Waiver
from preflight.model import (
    WEIGHT,
    Blame,
    Cause,
    Confidence,
    Finding,
    FindingType,
    Found,
    Measured,
    Missing,
    Observation,
    Observations,
    Report,
    Row,
    Seen,
    Standing,
    Status,
    Subject,
    Topology,
    Verdict,
    World,
    each_once,
    forget_subjects,
    key_of,
    of_each,
    place_of,
)
from preflight.packed import Layout, Packed
from preflight.registry import Catalogue, Loaded, answer_type
from preflight.serde import Known, Reader, decode, encode, reader

EXIT = {
    Verdict.READY: 0,
    Verdict.NOT_READY: 3,
    Verdict.UNDECIDED: 4,
    Verdict.INCOMPLETE: 5,
}

LINE = 600
"""Characters of what a node says that has no report."""

DATA = frozenset((str, int, float, bool, type(None)))
DATA_KEYS = frozenset((str,))

BY_USER = "user"
"""`by` of a Missing(skipped) that the user asked for: it does not make the run undecided."""


@dataclass(slots=True)
class _Judged:
    """One check on its way into the report. What was observed is not kept: of a report that was
    read, each check's is made when it is judged, and goes then.

    `missing`: what was not seen, of equal ones one: of 100,000 ranks that is mostly nothing.
    """

    loaded: Loaded | None
    id: str
    seconds: float
    missing: list[Missing]
    by_subject: dict[str, Status] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    measured: Measured = field(default_factory=Measured)
    reason: str = ""

    @property
    def statuses(self) -> frozenset[Status]:
        """All that it says: a finding may be about a subject that nobody observed, such as a link
        to another node."""
        return frozenset(self.by_subject.values()) | {f.status for f in self.findings}


def judge(
    observations: Observations,
    catalogue: Catalogue,
    expect: Expect,
    policy: Policy = Policy(),
    *,
    drawn: bool = True,
) -> Report:
    """The report of a run. `drawn`: with what an HTML report alone shows, which is more of ten
    thousand nodes than all that is said of them, and with the heat maps that -v alone prints."""
    judged: list[_Judged] = []
    for check_id, seen in _in_order(observations.checks, catalogue):
        one = _judge_check(check_id, seen, catalogue, observations.topology, expect, drawn)
        if not drawn:
            one.measured = replace(one.measured, lanes=None, curves=None, parts=())
        one.by_subject = next((j.by_subject for j in judged if _same(j, one)), one.by_subject)
        judged.append(one)
    tolerated = _tolerate(judged, policy)
    found = [f for j in judged for f in j.findings]
    findings = tuple(_told(finding, observations.topology) for finding in fold(joined(found)))
    rows = tuple(_row(j) for j in judged)
    verdict = _verdict(judged, observations.topology, policy)
    code = EXIT[verdict]
    forget_subjects()
    if observations.interrupted:
        code = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}.get(observations.interrupted, code)
    return Report(
        verdict=verdict,
        exit_code=code,
        rows=rows,
        findings=findings,
        observations=observations,
        skipped=tuple(j.id for j in judged if _skipped_by_user(j)),
        tolerated=tolerated,
        exclude=exclude(findings, found),
    )


def _same(one: _Judged, other: _Judged) -> bool:
    """Whether they say the same of the same subjects, in their order: of a hundred thousand ranks
    that is kept once."""
    first, second = one.by_subject, other.by_subject
    return len(first) == len(second) and [*first] == [*second] and first == second


def _told(finding: Finding, top: Topology) -> Finding:
    """A finding with whom it is about in its headline, and on which node to act in its advice."""
    advice = finding.advice and placed(finding.advice, finding.subjects, top)
    return finding.with_(headline=finished(finding.headline, finding.subjects), advice=advice)


def passed(
    check_id: str,
    seen: Mapping[str, Observation],
    catalogue: Catalogue,
    topology: Topology,
    expect: Expect,
    policy: Policy = Policy(),
) -> Standing:
    """What one check says while the run goes on: the runner decides by it what is blocked (see
    engine/scheduler.py). The same rules as judge(), without folding."""
    judged = _judge_check(check_id, seen, catalogue, topology, expect, drawn=False)
    if _waived(check_id, policy):
        return Standing(_tolerated(judged.by_subject))
    failed = joined(f for f in judged.findings if f.status is Status.FAIL)
    headlines = (finished(finding.headline, finding.subjects) for finding in failed)
    return Standing(judged.by_subject, next(headlines, ""))


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
    drawn: bool,
) -> _Judged:
    loaded = catalogue.checks.get(check_id)
    told = each_once(seen.values())
    missing = [one for one in told if isinstance(one, Missing)]
    judged = _Judged(loaded, check_id, max((o.seconds for o in told), default=0.0), missing)
    world: World[Any] = World(check_id, seen, topology)
    if loaded is None:
        why = catalogue.broken.get(check_id, "this version has no such check")
        judged.reason = f"could not be loaded: {why}"
        judged.by_subject = dict.fromkeys(seen, Status.UNDECIDED)
        frames = catalogue.frames.get(check_id, ())
        judged.findings.append(fallbacks.not_loaded(check_id, why, _everybody(world), frames))
        return judged
    try:
        world = decoded(loaded, seen, topology)
        for finding in loaded.module.judge(world, expect):
            judged.findings.append(_complete(loaded, finding))
        if not (drawn or judged.findings or world.missing()):
            world = world.undrawn()  # a heat map is printed where something was found
        judged.measured = _sound(loaded.module.measured(world))
    except Exception as error:  # noqa: BLE001  a fault of ours must not look like the cluster's
        judged.findings.append(fallbacks.unjudged(check_id, error, _everybody(world)))
    _status_by_subject(judged, world)
    return judged


def _everybody(world: World[Any]) -> tuple[Subject, ...]:
    return tuple(world.subject(key) for key in world.observations)


def _sound(measured: Measured) -> Measured:
    """The same, if it can be printed and stored: what can't is found here, not by the renderer."""
    if not isinstance(measured, Measured):
        raise TypeError(f"measured() returned {type(measured).__name__}")
    if not _is_data(measured.values):
        json.dumps(encode(measured.values), allow_nan=False)
    return measured


def _is_data(value: object) -> bool:
    """Whether it is made of nothing but what JSON has, which is told sooner than it is written."""
    kind = type(value)
    if kind is dict:
        inner: Iterable[Any] = value.values()  # type: ignore[attr-defined]
        if not DATA_KEYS.issuperset(map(type, value)):  # type: ignore[call-overload]
            return False
    elif kind is list:
        inner = value  # type: ignore[assignment]
    else:
        return kind in DATA
    return DATA.issuperset(map(type, inner)) or all(map(_is_data, inner))


def decoded(loaded: Loaded, seen: Mapping[str, Observation], topology: Topology) -> World[Any]:
    """The JSON values as the dataclass that the check's observe() returned; what doesn't fit (an
    older report, a hostile peer) is missing."""
    answers = _Answers(answer_type(loaded.module))
    return World(loaded.id, of_each(seen, answers.as_observed), topology)


class _Answers:
    """Values as the dataclass of their check; of what many have in common there is one."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._made: dict[int, Any] = {}
        self._known: Known = {}
        self._met: set[Layout] = set()
        self._readers: dict[Layout, Reader | None] = {}

    def as_observed(self, observation: Observation) -> Seen[Any] | Missing:
        if isinstance(observation, Missing):
            return observation
        try:
            value = self.of(observation.value)
            return Seen(value, observation.seconds, observation.marks)
        except Exception as error:  # noqa: BLE001  it costs whoever said it, and nobody else
            text = f"the answer does not fit this version of the check: {error}"
            return Missing(Cause.CRASHED, text[:300], observation.seconds)

    def of(self, value: Any) -> Any:
        """ValueError for what does not fit. The value is to be kept as long as this is."""
        number = id(value)
        if number in self._made:
            return self._made[number]
        made = self._of_packed(value) if type(value) is Packed else self._of_plain(value)
        self._made[number] = made
        return made

    def _of_plain(self, value: Any) -> Any:
        return decode(self._kind, value, lax=True, known=self._known)

    def _of_packed(self, value: Packed) -> Any:
        """What it has in common with others of its layout is read once, from the second one on:
        each may be the only one."""
        layout = value.layout
        if layout not in self._met:
            self._met.add(layout)
        else:
            if layout not in self._readers:
                self._readers[layout] = self._reader(layout)
            if (read := self._readers[layout]) is not None:
                try:
                    return read(value.own)
                except Exception:  # noqa: BLE001  decode() says what does not fit
                    pass
        return decode(self._kind, value.plain(), lax=True, known=self._known, adds=False)

    def _reader(self, layout: Layout) -> Reader | None:
        try:
            return reader(self._kind, layout, self._known)
        except Exception:  # noqa: BLE001  it may not fit, where values of this layout do
            return None


def _complete(loaded: Loaded, found: Found) -> Finding:
    """What a judge found, with what its code declares."""
    if not found.subjects:
        raise ValueError(f"{found.code} has no subject")
    declared = loaded.module.FINDINGS.get(found.code, fallbacks.UNKNOWN)
    return complete(loaded.id, loaded.check, declared, found)


class _Touched:
    """Which statuses the findings of a check have for the node or rank of an observation's key.
    Ranks whose node nobody knows are on none that was observed without them."""

    def __init__(self, findings: Sequence[Finding], topology: Topology) -> None:
        self._topology = topology
        self.by_all: set[Status] = set()
        """Those of whoever no finding names."""
        self._by_rank: dict[int, set[Status]] = {}
        self._of_node: dict[str, set[Status]] = {}
        self._of_ranks: dict[tuple[str, int | None], set[Status]] = {}
        for finding in findings:
            for subject in finding.subjects:
                self._note(subject, finding.status)

    def _note(self, subject: Subject, status: Status) -> None:
        for node in {subject.node, subject.to} if subject.node else ():
            self._of_node.setdefault(node, set()).add(status)
            for rank in subject.ranks or (None,):
                self._of_ranks.setdefault((node, rank), set()).add(status)
        if not subject.node and subject.ranks:
            for rank in subject.ranks:
                self._by_rank.setdefault(rank, set()).add(status)
        elif not subject.node:
            self.by_all.add(status)

    def of(self, key: str) -> set[Status]:
        if not (self._of_node or self._by_rank):
            return self.by_all
        node, rank = place_of(key)
        if not self._by_rank and node not in self._of_node:
            return self.by_all
        here = self._topology.ranks_of(node) if rank is None else (rank,)
        found = self.by_all.union(*(self._by_rank.get(r, ()) for r in here))
        if node in self._of_node:
            if rank is None:
                return found | self._of_node[node]
            for place in ((node, None), (node, rank)):
                found |= self._of_ranks.get(place, set())
        return found


@cache
def _may_fail(kind: type) -> bool:
    """Whether a type is a MayFail: to ask each of 100,000 answers takes seconds."""
    return all(hasattr(kind, name) for name in vars(MayFail)["__annotations__"])


def _is_stuck(answer: Any) -> bool:
    """Whether an answer says itself that it did not get through: that is no evidence of health."""
    return _may_fail(answer.__class__) and answer.trouble is not None


def _status_by_subject(judged: _Judged, world: World[Any]) -> None:
    """The heaviest finding of each subject; what is missing without one that says at least as much
    as "can't tell" gets the generic one, unless it waited for a rank that has failed."""
    unexplained: dict[Cause, list[str]] = {}
    together = judged.loaded is not None and judged.loaded.check.scope is Scope.WORLD
    through = not together or not any(map(_is_stuck, world.distinct))
    if through and not judged.findings and not world.missing():
        judged.by_subject = dict.fromkeys(world.observations, Status.PASS)
        return
    waited = together and any(f.status is Status.FAIL for f in judged.findings)
    touched = _Touched(judged.findings, world.topology)
    usual: dict[int, Status] = {}
    for key, observation in world.observations.items():
        statuses = touched.of(key)
        untouched = statuses is touched.by_all
        if untouched and (known := usual.get(id(observation))) is not None:
            judged.by_subject[key] = known
            continue
        if isinstance(observation, Seen):
            stuck = together and _is_stuck(observation.value)
            own = Status.UNDECIDED if stuck else Status.PASS
        elif observation.cause in (Cause.NOT_APPLICABLE, Cause.BLOCKED, Cause.SKIPPED):
            own = Status.SKIP
            judged.reason = judged.reason or reason(observation)
        elif observation.cause is Cause.NOT_ARRIVED:
            own = Status.MISSING
        elif all(WEIGHT[s] < WEIGHT[Status.UNDECIDED] for s in statuses):
            if not (waited and observation.cause is Cause.TIMED_OUT):
                unexplained.setdefault(observation.cause, []).append(key)
                untouched = False  # each of them is to be named
            own = Status.UNDECIDED
        else:
            own = max(statuses, key=WEIGHT.__getitem__)
        one = max((*statuses, own), key=WEIGHT.__getitem__) if statuses else own
        judged.by_subject[key] = one
        if untouched:
            usual[id(observation)] = one
    for cause, keys in unexplained.items():
        judged.findings.append(fallbacks.missing(judged.id, cause, keys, world))


def reason(missing: Missing) -> str:
    """Why something was not run, for its row."""
    if missing.cause is Cause.BLOCKED:
        return f"needs {missing.by}" + (f": {missing.detail}" if missing.detail else "")
    return missing.detail or str(missing.cause)


def _waived(check_id: str, policy: Policy) -> bool:
    """Whether a waiver that has not ended is for this check."""
    return _waiver(check_id, policy) is not None


def _waiver(check_id: str, policy: Policy) -> Waiver | None:
    waivers = (w for w in policy.waivers if matches(check_id, w.pattern))
    return next((w for w in waivers if not w.until or policy.today <= w.until), None)


def _tolerated(by_subject: Mapping[str, Status]) -> dict[str, Status]:
    return {k: Status.WARN if s is Status.FAIL else s for k, s in by_subject.items()}


def _tolerate(judged: list[_Judged], policy: Policy) -> tuple[str, ...]:
    """Turn FAILs of waived checks into WARNs; an expired waiver is noted and does nothing."""
    tolerated = []
    for one in judged:
        if all(f.status is not Status.FAIL for f in one.findings):
            continue
        waiver = _waiver(one.id, policy)
        if waiver is not None:
            tolerated.append(one.id)
            one.by_subject = _tolerated(one.by_subject)
            note = f" · tolerated{': ' + waiver.why if waiver.why else ''}"
        elif ended := [w.until for w in policy.waivers if matches(one.id, w.pattern)]:
            note = f" · its waiver ended on {max(ended)}"
        else:
            continue
        status = Status.FAIL if waiver is None else Status.WARN
        one.findings = [
            f.with_(status=status, saw=f.saw + note) if f.status is Status.FAIL else f
            for f in one.findings
        ]
    return tuple(tolerated)


def _row(judged: _Judged) -> Row:
    status = max(judged.statuses, default=Status.SKIP, key=lambda s: WEIGHT[s])
    check = judged.loaded.check if judged.loaded else None
    return Row(
        id=judged.id,
        stage=str(check.stage) if check else "machine",
        scope=str(check.scope) if check else "node",
        status=status,
        seconds=judged.seconds,
        by_subject=judged.by_subject,
        measured=judged.measured,
        reason=judged.reason,
        required=check.required if check else True,
    )


def _skipped_by_user(judged: _Judged) -> bool:
    return any(o.cause is Cause.SKIPPED and o.by == BY_USER for o in judged.missing)


def _blind(judged: _Judged, topology: Topology, whole: tuple[Set[str], Set[str]]) -> bool:
    """Whether a check was not made, or left out somewhere by nobody's wish: no torch, no time, or
    an agent that never answered for its node. `whole`: see _whole()."""
    keys = judged.by_subject.keys()
    if keys not in whole:
        seen = {place_of(key) for key in keys}
        nodes = {node for node, _ in seen}
        if any(node.name not in nodes for node in topology.nodes):
            return True
        ranks = {rank for _, rank in seen} - {None}
        if ranks and not {r for node in topology.nodes for r in node.ranks} <= ranks:
            return True
    return not keys or any(
        o.cause in (Cause.SKIPPED, Cause.BLOCKED) and o.by != BY_USER for o in judged.missing
    )


def _whole(topology: Topology) -> tuple[Set[str], Set[str]]:
    """The keys of a check that has looked on every node, and of one that has on every rank; none
    where a key would be taken for another one's."""
    nodes = topology.nodes
    of_nodes = {node.name: (node.name, None) for node in nodes}
    of_ranks = {key_of(node.name, rank): (node.name, rank) for node in nodes for rank in node.ranks}
    empty = any(not node.ranks for node in nodes)
    sets = [
        keys.keys() if all(place_of(key) == place for key, place in keys.items()) else set[str]()
        for keys in (of_nodes, of_ranks)
    ]
    return sets[0], set[str]() if empty else sets[1]


def _verdict(judged: list[_Judged], topology: Topology, policy: Policy) -> Verdict:
    """Precedence NOT READY > INCOMPLETE > UNDECIDED > READY; READY needs positive evidence."""
    statuses = frozenset[Status]().union(*(one.statuses for one in judged))
    warned = any(_warns_strictly(one) and not _waived(one.id, policy) for one in judged)
    if Status.FAIL in statuses or (policy.strict and warned):
        return Verdict.NOT_READY
    if Status.MISSING in statuses:
        return Verdict.INCOMPLETE
    required = (one for one in judged if one.loaded is None or one.loaded.check.required)
    whole = _whole(topology)
    if any(Status.UNDECIDED in one.statuses or _blind(one, topology, whole) for one in required):
        return Verdict.UNDECIDED
    # of somebody, not of a finding beside heavier ones
    if not any({Status.PASS, Status.WARN} & set(one.by_subject.values()) for one in judged):
        return Verdict.UNDECIDED
    return Verdict.READY


def _warns_strictly(one: _Judged) -> bool:
    """Whether --strict takes a warning of this check for a failure."""
    kinds: Mapping[str, FindingType] = one.loaded.module.FINDINGS if one.loaded else {}
    return any(
        f.status is Status.WARN and (f.code not in kinds or kinds[f.code].strict)
        for f in one.findings
    )


def last_words(report: Report) -> dict[str, tuple[int, str]]:
    """What each node is told at the end: its exit code under `--exit node`, and the line that it
    ends with where it has no report of its own."""
    about: dict[str, list[Finding]] = {}
    for finding in report.findings:
        for node in dict.fromkeys(n for s in finding.subjects for n in (s.node, s.to) if n):
            about.setdefault(node, []).append(finding)
    nodes = (node.name for node in report.observations.topology.nodes)
    named = {n for n, found in about.items() if any(f.status is Status.FAIL for f in found)}
    return {
        n: (_code_of(report, n, named), _line_of(report, n, about.get(n, ())))
        for n in dict.fromkeys(nodes)
    }


def code_of_node(report: Report, node: str) -> int:
    """The exit code of one node under `--exit node`: of those that did not pass only the nodes that
    a FAIL is about return 3, and all where no FAIL is about any node."""
    failed = [f for f in report.findings if f.status is Status.FAIL]
    named = {name for f in failed for s in f.subjects for name in (s.node, s.to) if name}
    return _code_of(report, node, named)


def _code_of(report: Report, node: str, named: Set[str]) -> int:
    if report.verdict is not Verdict.NOT_READY or report.exit_code != EXIT[Verdict.NOT_READY]:
        return report.exit_code
    return EXIT[Verdict.NOT_READY] if node in named or not named else 0


def _line_of(report: Report, node: str, own: Sequence[Finding]) -> str:
    """The verdict, and the first finding about this node, else the first of all; empty where the
    verdict is READY."""
    if report.verdict is Verdict.READY or not report.findings:
        return ""
    blamed = [f for f in own if f.status in (Status.FAIL, Status.MISSING)]
    first = (blamed or report.findings)[0]
    here = f", this node ({node})" if blamed else ""
    word = report.verdict.upper().replace("_", " ")
    return f"{word}: {first.name}{here}: {first.headline}"[:LINE]


def exclude(findings: Iterable[Finding], apart: Iterable[Finding]) -> tuple[str, ...]:
    """The nodes to leave out: those of FAILs that blame this node's own hardware or system. `apart`
    are the findings before those that say the same of several nodes were joined: of each of them
    the primary subject counts."""

    def blaming(finding: Finding) -> bool:
        sure = finding.confidence is not Confidence.POSSIBLE
        return sure and finding.status is Status.FAIL and finding.blame is Blame.NODE

    failed = {(f.name, subject) for f in findings if blaming(f) for subject in f.subjects}
    nodes = {f.subjects[0].node for f in apart if blaming(f) and (f.name, f.subjects[0]) in failed}
    return tuple(sorted(nodes - {""}))
