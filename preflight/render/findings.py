"""The findings: the headline, then what explains it in a fixed vocabulary (where, saw, expected,
explains, means, do now, fix, who)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from preflight.humanize import plural, rank_list
from preflight.model import Command, Confidence, Finding, Kind, Report, Status, Subject
from preflight.nodeset import folded
from preflight.render.layout import action, pasteable, wrapped
from preflight.render.style import STYLES, Line, Look
from preflight.sanitize import legible

IN_FULL = (Status.FAIL, Status.MISSING)
"""What nobody can start with: all is said of it."""

MOST = 20
"""Findings on a screen; the JSON report holds all of them."""

SET_LENGTH = 60
"""Characters of a set of nodes; a longer one is counted."""

DOCS, ADDRESS = "docs", re.compile(r"https?://[\w.:/~%-]+")
"""The setting, and what it may be."""

FOLDED_FROM = 5
"""As many nodes are written as a set; fewer are named one by one."""


def findings(report: Report, look: Look) -> Iterator[Line]:
    """Failures in full with air around them; warnings and what is undecided close together."""
    required = {row.id: row.required for row in report.rows}
    before: Finding | None = None
    shown = report.findings if look.verbose else report.findings[:MOST]
    for finding in shown:
        if before is not None and (look.verbose or before.status in IN_FULL):
            yield []
        yield from finding_lines(finding, look, report, required.get(finding.check, True))
        before = finding
    if len(shown) < len(report.findings):
        yield []
        more = plural(len(report.findings) - len(shown), "more finding")
        yield [(f" {more}", "bold"), (": -v shows them, the JSON report has them", "")]
    if before is not None:
        yield []


def finding_lines(finding: Finding, look: Look, report: Report, required: bool) -> Iterator[Line]:
    """One finding in the fixed vocabulary (saw, expected, explains, means, do now, fix, who)."""
    yield from _heading(finding, look)
    unjudged = finding.status is Status.UNDECIDED and not required
    saw = f"{finding.saw} · not needed to start" if unjudged else finding.saw
    if saw not in finding.headline:
        yield from _labelled("saw", look.say(saw), look)
    advice = finding.advice
    full = finding.status in IN_FULL or look.verbose
    yield from _labelled("expected", look.say(finding.expected), look)
    if full or finding.status is Status.UNDECIDED:
        yield from _labelled("explains", look.say(" · ".join(finding.folded)), look)
    # whoever says "possible" says what else is
    if full or finding.status is Status.UNDECIDED or finding.confidence is Confidence.POSSIBLE:
        yield from _labelled("could be", look.say(" · ".join(finding.alternatives)), look)
    if advice is not None:
        yield from _labelled("means", look.say(advice.means), look)
        if full or not advice.text:
            yield from _pasteable("do now", advice.now, look)
        yield from _pasteable("fix", advice.text, look)
        node = finding.subjects[0].node
        for number, command in enumerate(advice.commands):
            label = "fix" if number == 0 and not advice.text else ""
            yield from _command(command, label, look, report, node)
    if full or finding.status is Status.UNDECIDED:
        yield from _labelled("who", look.say(advice.who if advice else ""), look)
        yield from _labelled("more", f"preflight explain {look.say(finding.explained_as)}", look)
        yield from _labelled("", look.say(documentation(report, finding)), look)


def documentation(report: Report, finding: Finding) -> str:
    """The page of a finding in the documentation (`make docs`), where a setting says at which
    address that is; else empty."""
    setting = report.observations.settings.get(DOCS)
    base = setting.value if setting is not None else ""
    if not isinstance(base, str) or not ADDRESS.fullmatch(base):
        return ""
    page = f"findings/{finding.check}/{finding.code}"
    if finding.explained_as == finding.check:
        page = f"checks/{finding.check}"
    return f"{base.rstrip('/')}/{page}.html"


def _heading(finding: Finding, look: Look) -> Iterator[Line]:
    """The code and the headline; below it its subjects, what we say of them and how surely."""
    style = STYLES[finding.status]
    word = finding.status.upper()
    if finding.status in IN_FULL or finding.confidence is not Confidence.CERTAIN:
        # of what could not be looked at nothing is likely
        word += f", {finding.confidence}" if finding.status is not Status.UNDECIDED else ""
    name = look.say(finding.name)
    first: Line = [(f" {look.glyph(finding.status)} ", style), (name, "bold")]
    told = look.say(finding.headline)
    used = 3 + len(name) + 3
    if used + len(told) <= look.width:
        yield [*first, (f"   {told}", "bold")]
    else:
        yield first
        for part in wrapped(told, look.width - look.indent):
            yield [(" " * look.indent, ""), (part, "bold")]
    whom = legible(about(finding.subjects))
    room = look.width - look.indent - look.label
    gap = room - len(whom) - len(word)
    if gap >= 3:
        line, *_ = _beside("where", [whom], look)
        yield [*line, (" " * gap, ""), (word, style)]
        return
    yield from _beside("where", wrapped(whom, room), look)
    yield [(" " * (look.indent + look.label), ""), (word, style)]


def about(subjects: Sequence[Subject]) -> str:
    """All subjects, those of one node folded: `n1 · ranks 0-2,5`; many nodes that the same is said
    of as a set: `n[1-8] · eth0`."""
    between = [subject for subject in subjects if subject.kind is Kind.LINK]
    nodes = len({subject.node for subject in subjects if subject.node})
    if len(between) >= FOLDED_FROM or (between and nodes >= FOLDED_FROM):
        others = about([subject for subject in subjects if subject.kind is not Kind.LINK])
        return ", ".join(part for part in (*_links(between), others) if part)
    if nodes >= FOLDED_FROM:
        alike: dict[str, list[Subject]] = {}
        for subject in subjects:
            alike.setdefault(_what(subject), []).append(subject)
        return ", ".join(_of_many(what, same) for what, same in alike.items())
    ranks_of: dict[str, list[int]] = {}
    for subject in subjects:
        ranks_of.setdefault(_name(subject), []).extend(subject.ranks)
    return ", ".join(
        " · ".join(part for part in (name, rank_list(numbers, None)) if part)
        for name, numbers in ranks_of.items()
    )


def _links(subjects: Iterable[Subject]) -> tuple[str, ...]:
    """`a->b` each; many of them as one set a node that all go out of, or that all go in to."""
    pairs = list(dict.fromkeys((s.node, s.to) for s in subjects))
    if len(pairs) < FOLDED_FROM:
        return tuple(f"{node}->{to}" for node, to in pairs)
    out: dict[str, list[str]] = {}
    into: dict[str, list[str]] = {}
    for node, to in pairs:
        out.setdefault(node, []).append(to)
        into.setdefault(to, []).append(node)
    if len(out) <= len(into):
        return tuple(f"{node}->{folded(others)}" for node, others in out.items())
    return tuple(f"{folded(others)}->{to}" for to, others in into.items())


def _name(subject: Subject) -> str:
    """A subject without its ranks."""
    by_ranks = subject.kind is Kind.RANK and subject.ranks
    return subject.node if by_ranks else str(subject)


def _what(subject: Subject) -> str:
    """A subject without its node and ranks: `mlx5_2 · port 1`; empty for a node or its ranks."""
    bare = _name(replace(subject, node=""))
    return "" if subject.node and bare == subject.kind else bare


def _of_many(what: str, alike: Sequence[Subject]) -> str:
    """The nodes of which the same is said, as a set; where that is long, how many they are and the
    first ones. All are in the JSON report, and in `-o slurm`."""
    names = list(dict.fromkeys(subject.node for subject in alike if subject.node))
    ranks = {rank for subject in alike for rank in subject.ranks}
    nodes, numbers = folded(names), rank_list(ranks, None)
    if len(nodes) > SET_LENGTH:
        first = f"{folded(names[:FOLDED_FROM])} and {len(names) - FOLDED_FROM} more"
        nodes, numbers = f"{len(names)} nodes", plural(len(ranks), "rank") if ranks else ""
        return " · ".join(part for part in (nodes, what, numbers, first) if part)
    return " · ".join(part for part in (nodes, what, numbers) if part)


def _labelled(label: str, text: str, look: Look) -> Iterator[Line]:
    """`label   text`, continued below itself where it is longer than the screen."""
    yield from _beside(label, wrapped(text, look.width - look.indent - look.label), look)


def _beside(label: str, parts: Iterable[str], look: Look, style: str = "") -> Iterator[Line]:
    for number, part in enumerate(parts):
        head = f"{' ' * look.indent}{label if number == 0 else '':<{look.label}}"
        yield [(head, "dim"), (part, style)]


def _pasteable(label: str, text: str, look: Look) -> Iterator[Line]:
    parts = pasteable(look.paste(text), look.width - look.indent - look.label)
    yield from _beside(label, parts, look)


def _command(command: Command, label: str, look: Look, report: Report, node: str) -> Iterator[Line]:
    """A command of a remedy, with where to type it and whom it disturbs."""
    alone = len(report.observations.topology.nodes) < 2
    remark = aside(command, "" if alone else node, alone)
    room = look.width - look.indent - look.label - 2
    if not (run := look.paste(command.run)):
        return
    for part in action(run, look.say(remark), room):
        style = "dim" if part.startswith("# ") else "bold"
        text, sharp, told = part.partition("   # ")
        head = f"{' ' * look.indent}{label:<{look.label}}  "
        yield [(head, "dim"), (text, style), (sharp + told, "dim")]
        label = ""


def aside(command: Command, node: str = "", alone: bool = False) -> str:
    """Where to type a command and whom it disturbs, in words. `node` is which one "the node" is;
    empty where that need not be said."""
    where, _, how = command.where.partition(", ")
    if where == "the node":
        where = node
    elif alone and where.startswith("the node"):
        where = ""
    if where:
        where = f"in {where}" if where.startswith(("the job", "the container")) else f"on {where}"
    disturbs = command.disturbs
    if disturbs in ("", "nothing", "nobody"):
        disturbs = ""
    elif not disturbs.lower().startswith("ends "):
        disturbs = f"disturbs {disturbs}"
    return ", ".join(part for part in (where, how, disturbs) if part)
