"""What `list` and `explain` print: the checks' own declarations and docstrings, as text or data."""

from __future__ import annotations

import textwrap
from typing import Any

from preflight.check import SECTIONS, Catalogue, Loaded, nearest
from preflight.model import Advice, PreflightError
from preflight.units import duration

LABEL = 14


def table(catalogue: Catalogue, width: int) -> str:
    """`preflight list`: one line a check, the last column cut at the screen's edge."""
    head = ("ID", "STAGE", "LEVEL", "NEEDS", "BUDGET", "TOUCHES", "WHAT")
    rows = [head, *(_cells(loaded) for loaded in catalogue)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    lines = []
    for row in rows:
        cells = [f"{text:<{w}}" for text, w in zip(row, widths, strict=False)]
        start = "  ".join(cells)
        room = max(0, width - len(start) - 2)
        what = row[-1] if len(row[-1]) <= room else row[-1][: max(0, room - 1)] + "…"
        lines.append(f"{start}  {what}".rstrip() if room > 8 else start.rstrip())
    lines += [f"{i}  could not be loaded: {why}" for i, why in catalogue.broken.items()]
    return "\n".join(lines) + "\n"


def _cells(loaded: Loaded) -> tuple[str, ...]:
    check = loaded.check
    return (
        loaded.id,
        str(check.stage),
        str(check.level),
        ",".join(check.needs) or "-",
        duration(check.budget),
        check.disturbs,
        loaded.question,
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
        "was": list(check.was),
        "options": dict(check.options),
        "sections": loaded.sections,
        "findings": {
            code: {
                "who": a.who,
                "cause": a.cause,
                "means": a.means,
                "now": a.now,
                "fix": a.text,
                "commands": [{"run": c.run, "disturbs": c.disturbs} for c in a.commands],
            }
            for code, a in loaded.module.ADVICE.items()
        },
    }


def find(catalogue: Catalogue, name: str) -> tuple[Loaded, str]:
    """The check that an id stands for, or the one that has a finding code (with that code)."""
    for loaded in catalogue:
        if name in loaded.module.ADVICE:
            return loaded, name
    try:
        check_id = catalogue.resolve(name)
    except PreflightError:
        words = [*catalogue.checks, *(c for x in catalogue for c in x.module.ADVICE)]
        raise PreflightError(f"no check or finding {name!r:.60}{nearest(name, words)}") from None
    if check_id in catalogue.broken:
        raise PreflightError(f"{check_id} could not be loaded: {catalogue.broken[check_id]}")
    return catalogue.checks[check_id], ""


def explain(loaded: Loaded, code: str, width: int) -> str:
    """`preflight explain`: the question, the sections of the docstring, causes with their fixes."""
    check = loaded.check
    touches = "read only" if check.disturbs == "-" else f"touches {check.disturbs}"
    lines = [
        f"{loaded.id}   {loaded.question}",
        f"{check.stage} · {check.level} · at most {duration(check.budget)} · {touches}",
    ]
    if check.needs:
        lines.append(f"needs {', '.join(check.needs)}")
    lines.append("")
    sections = loaded.sections
    for name in SECTIONS[:-2]:
        lines += _labelled(name, sections[name], width)
    advice = loaded.module.ADVICE
    shown = {code: advice[code]} if code else advice
    lines += ["", " Findings, with their typical cause and the way out"]
    for name, entry in shown.items():
        lines += _advice(name, entry, width)
    lines.append("")
    for name in SECTIONS[-2:]:
        lines += _labelled(name, sections[name], width)
    for option, meaning in check.options.items():
        lines += _labelled("Option", f'[checks."{loaded.id}"] {option}: {meaning}', width)
    return "\n".join(lines) + "\n"


def _labelled(label: str, text: str, width: int, indent: int = 1) -> list[str]:
    room = max(30, width - LABEL - indent)
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    first = " " * indent
    return [
        f"{first}{label if number == 0 else '':<{LABEL - 1}} {part}"
        for number, part in enumerate(parts)
    ]


def _advice(code: str, advice: Advice, width: int) -> list[str]:
    lines = [f"  {code}"]
    for label, text in (
        ("cause", advice.cause),
        ("means", advice.means),
        ("do now", advice.now),
        ("fix", advice.text),
    ):
        if text:
            lines += _labelled(label, text, width, indent=4)
    for command in advice.commands:
        disturbs = "" if command.disturbs == "nothing" else f"   disturbs {command.disturbs}"
        lines.append(f"{'':<{LABEL + 4}}{command.run}{disturbs}")
    lines += _labelled("who", advice.who, width, indent=4)
    return lines
