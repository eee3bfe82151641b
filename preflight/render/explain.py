"""What `list` and `explain` print: the checks' own declarations and docstrings, as text or data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from preflight.humanize import nearest
from preflight.model import PreflightError
from preflight.registry import SECTIONS, Catalogue, Loaded
from preflight.render.findings import aside
from preflight.render.json import remedy
from preflight.render.layout import action, cut, pasteable, wrapped
from preflight.render.style import NARROW

LABEL = 14
HEAD = ("ID", "STAGE", "LEVEL", "BUDGET", "NEEDS", "TOUCHES")
BROKEN = 4
"""The first column of HEAD that goes on below where the screen is too narrow for it."""
NEEDS, TOUCHES = 25, 20
"""What these take at least: two ids a line, and a few words."""

NAME = re.compile(r"[a-z0-9]+([.:/-][a-z0-9]+)+")
"""What looks like an id or a code: two words at least."""

WHAT = "WHAT"
MARGIN = 2


def table(catalogue: Catalogue, width: int | None) -> str:
    """`preflight list`: a line a check with its question at the end, as `grep` wants it (width
    None); where a screen has no room for the question it goes below, and what is least needed is
    left out."""
    between = "," if width is None else ", "
    rows = [_cells(loaded, between) for loaded in catalogue]
    questions = [loaded.question for loaded in catalogue]
    widths = [max(len(row[column]) for row in [HEAD, *rows]) for column in range(len(HEAD))]
    start = sum(widths) + 2 * len(widths)
    beside = width is None or start + max(map(len, [WHAT, *questions])) <= width
    if width is not None and not beside:
        widths = _fitted(widths, width)
    lines = [_columns(HEAD, widths) + (f"  {WHAT}" if beside else "")]
    for row, question in zip(rows, questions, strict=True):
        if beside:
            lines.append(f"{_columns(row, widths)}  {question}")
        else:
            lines += [_columns(part, widths) for part in _below(row, widths)]
            lines += [f"{'':<{MARGIN}}{part}" for part in wrapped(question, (width or 0) - MARGIN)]
    lines += [f"{i}  could not be loaded: {why}" for i, why in catalogue.broken.items()]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _fitted(widths: list[int], width: int) -> list[int]:
    """The widths of as many columns as there is room for, the last ones narrower."""
    fitted: list[int] = []
    left = width + 2
    for wanted in widths[:BROKEN]:
        if wanted + 2 > left:
            return fitted or widths[:1]
        fitted.append(wanted)
        left -= wanted + 2
    needs, touches = widths[BROKEN:]
    if needs + touches + 4 <= left:
        return widths
    if left >= NEEDS + TOUCHES + 4:
        return [*fitted, NEEDS, left - NEEDS - 4]
    return [*fitted, min(needs, left - 2)] if left >= NEEDS + 2 else fitted


def _below(row: tuple[str, ...], widths: list[int]) -> Iterator[tuple[str, ...]]:
    """A row, and what of its last cells goes on below it."""
    broken = [wrapped(cell, w) for cell, w in zip(row[BROKEN:], widths[BROKEN:], strict=False)]
    first = row[:BROKEN]
    for cells in zip_longest(*broken, fillvalue="") if broken else [()]:
        yield (*first, *cells)
        first = ("",) * BROKEN


def _columns(cells: tuple[str, ...], widths: list[int]) -> str:
    parts = (f"{cut(text, w):<{w}}" for text, w in zip(cells, widths, strict=False))
    return "  ".join(parts)


def _cells(loaded: Loaded, between: str) -> tuple[str, ...]:
    check = loaded.check
    return (
        loaded.id,
        str(check.stage),
        check.when,
        f"{check.budget:g} s",
        between.join([*check.needs, *sorted(str(r) for r in check.requires)]) or "-",
        check.disturbs,
    )


def data(loaded: Loaded) -> dict[str, Any]:
    """One check as JSON data, for `list --json` and `explain -o json`."""
    check = loaded.check
    return {
        "id": loaded.id,
        "question": loaded.question,
        "stage": str(check.stage),
        "scope": str(check.scope),
        "level": str(check.level),
        "needs": list(check.needs),
        "budget": check.budget,
        "required": check.required,
        "requires": sorted(str(r) for r in check.requires),
        "touches": check.disturbs,
        "drains": check.drains,
        "was": list(check.was),
        "options": dict(check.options),
        "sections": loaded.sections,
        "findings": {
            code: {
                "status": [str(status) for status in a.statuses],
                "blame": [str(blame) for blame in loaded.blames(code)],
                "drains": loaded.drains(code),
                "was": list(a.was),
                **remedy(a),
            }
            for code, a in loaded.module.FINDINGS.items()
        },
    }


def find(catalogue: Catalogue, name: str) -> tuple[Loaded, str]:
    """The check that an id stands for, or the one that has a finding code (with that code);
    `world.nccl:shm-full` (or with a slash), as reports name it, where several checks have it. Old
    ids and codes stand for today's."""
    check_id, slash, given = name.replace(":", "/", 1).partition("/")
    if not slash:
        codes = [(loaded, loaded.code(name)) for loaded in catalogue if loaded.code(name)]
        if codes:  # a code of today goes before what was called so once
            return next((pair for pair in codes if pair[1] == name), codes[0])
    try:
        check_id = catalogue.resolve(check_id)
    except PreflightError:
        words = [*catalogue.checks, *(c for x in catalogue for c in x.module.FINDINGS)]
        raise PreflightError(f"no check or finding {name!r:.60}{nearest(name, words)}") from None
    if check_id in catalogue.broken:
        raise PreflightError(f"{check_id} could not be loaded: {catalogue.broken[check_id]}")
    loaded = catalogue.checks[check_id]
    code = loaded.code(given)
    if slash and not code:
        hint = nearest(given, loaded.module.FINDINGS)
        raise PreflightError(f"{check_id} has no finding {given!r:.60}{hint}")
    return loaded, code


def owners(catalogue: Catalogue, code: str) -> tuple[str, ...]:
    """The checks that have a finding of this code."""
    return tuple(loaded.id for loaded in catalogue if code in loaded.module.FINDINGS)


def explain(loaded: Loaded, code: str, width: int, also: Sequence[str] = ()) -> str:
    """`preflight explain`: the question, the sections of the docstring, causes with their fixes;
    with a code that finding alone (`also` names all checks that have it)."""
    lines = [*_heading(loaded, width), ""]
    if code:
        lines += [*_finding(loaded, code, width), ""]
        others = [check_id for check_id in also if check_id != loaded.id]
        if others:
            lines += _labelled("Also in", ", ".join(others), width)
        lines += _labelled("More", f"preflight explain {loaded.id}", width)
        return "".join(f"{line.rstrip()}\n" for line in lines)
    sections = loaded.sections
    for name in SECTIONS[:-2]:
        lines += _labelled(name, sections[name], width)
    lines += ["", *wrapped(" Findings, with their typical cause and the way out", width, 1)]
    for name in loaded.module.FINDINGS:
        lines += [*_finding(loaded, name, width), ""]
    for name in SECTIONS[-2:]:
        lines += _labelled(name, sections[name], width)
    for option, meaning in loaded.check.options.items():
        lines += _labelled("Option", f'[checks."{loaded.id}"] {option}: {meaning}', width)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _heading(loaded: Loaded, width: int) -> Iterator[str]:
    check = loaded.check
    hang = len(loaded.id) + 3 if width >= NARROW else 2
    yield from wrapped(f"{loaded.id}   {loaded.question}", width, hang)
    facts = [str(check.stage), check.when, f"at most {check.budget:g} s"]
    facts.append("read only" if check.disturbs == "-" else f"touches {check.disturbs}")
    needs = [*check.needs, *sorted(str(requirement) for requirement in check.requires)]
    facts += [f"needs {', '.join(needs)}"] if needs else []
    yield from wrapped(" · ".join(facts), width, 2)


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    """A section: its name, its text beside it."""
    room = LABEL if width >= NARROW else len(max(SECTIONS, key=len)) + 1
    yield from _beside(label, wrapped(text, width - room - 1), " ", room)


def _beside(label: str, parts: Iterable[str], indent: str, room: int) -> Iterator[str]:
    for number, part in enumerate(parts):
        yield f"{indent}{label if number == 0 else '':<{room}}{part}"


def _finding(loaded: Loaded, code: str, width: int) -> Iterator[str]:
    yield f"  {code}"
    advice = loaded.module.FINDINGS[code].filled({})
    facts = [" or ".join(str(status).upper() for status in advice.statuses)]
    facts.append(f"blames {' or '.join(map(str, loaded.blames(code)))}")
    facts += ["drains the node in SLURM hooks"] if loaded.drains(code) else []
    indent, room = ("    ", LABEL - 3) if width >= NARROW else ("  ", 8)
    left = width - len(indent) - room
    commands = (
        f"  {line}"
        for command in advice.commands
        for line in action(command.run, aside(command), left - 2)
    )
    texts = {
        "status": wrapped(" · ".join(facts), left),
        "cause": wrapped(advice.cause, left),
        "means": wrapped(advice.means, left),
        "do now": pasteable(advice.now, left),
        "fix": [*pasteable(advice.text, left), *commands],
        "who": wrapped(advice.who, left),
    }
    for label, parts in texts.items():
        yield from _beside(label, parts, indent, room)
