"""What `plan` prints: the detected identity, what `run` would do here, what it touches.

Nothing of it is a report: nothing was looked at. The JSON document has a shape of its own, with
the fields of the report where both have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from preflight import __version__
from preflight.engine.preview import Planned, Step
from preflight.humanize import plural
from preflight.render.human import PIPED, name_and_text, printed, setting_lines
from preflight.render.layout import wrapped
from preflight.render.style import ID_WIDTH, Line, Look, flow
from preflight.serde import encode

VERSION = 1
"""Of the JSON document: fields may be added to it, none is ever taken away."""

LABEL = 15
"""Columns for the name of a number or of a setting."""
BUDGET = 6

NAMES = {
    "nproc": "ranks here",
    "size": "ranks in all",
    "nodes": "nodes",
    "node_rank": "node rank",
    "rank": "rank",
    "local_rank": "local rank",
    "job": "job",
    "job_nodes": "nodes of job",
    "gpus": "GPUs here",
}
"""What of the facts is told of the identity, and how it is called there."""


def document(planned: Planned) -> dict[str, Any]:
    """The plan as JSON data."""
    top = planned.topology
    return {
        "document": "plan",
        "version": VERSION,
        "tool": {"name": "preflight", "version": __version__},
        "world": {
            "source": top.launcher,
            "job": top.job,
            "size": top.size,
            "node": top.nodes[0].name,
            "ranks": list(top.nodes[0].ranks),
            "facts": {name: {"value": f.value, "from": f.source} for name, f in top.facts.items()},
        },
        "meeting": {
            "addr": top.master_addr,
            "port": top.master_port,
            "meets": planned.meets,
            "leads": has_rank_0(planned),
        },
        "settings": {
            name: {"value": encode(s.value), "from": s.source}
            for name, s in planned.settings.items()
        },
        "checks": [encode(step) for step in planned.steps],
        "effects": [encode(effect) for effect in planned.effects],
        "asked": planned.asked,
    }


def has_rank_0(planned: Planned) -> bool:
    """Whether the report would be this agent's: it has rank 0, or is the only one."""
    return not planned.meets or 0 in planned.topology.nodes[0].ranks


def render(planned: Planned, look: Look = PIPED) -> str:
    """The plan as text that ends with a newline."""
    return printed(lines(planned, look), look)


def lines(planned: Planned, look: Look) -> Iterator[Line]:
    """The whole screen."""
    yield from _header(planned, look)
    for title, part in (
        ("identity", _identity(planned)),
        ("meeting", _meeting(planned)),
        ("settings", setting_lines(planned.settings)),
    ):
        yield []
        yield [(f" {title}", "bold")]
        yield from name_and_text(part, look)
    yield []
    yield from _checks(planned.steps, look)
    yield []
    yield [(" side effects", "bold")]
    yield from _effects(planned, look)


def _header(planned: Planned, look: Look) -> Iterator[Line]:
    top = planned.topology
    here = top.nodes[0]
    parts = [f"preflight {__version__}", "plan: nothing is run"]
    if planned.asked:
        parts[1] = f"plan: nothing is run, but a worker was asked {planned.asked}"
    yield from flow([look.say(part) for part in parts], look, [], 2)
    first, last = here.ranks[0], here.ranks[-1]
    ranks = f"rank {first}" if first == last else f"ranks {first}-{last}"
    source = "no launcher" if top.launcher == "local" else f"identity from {top.launcher}"
    told = [here.name, f"{ranks} of {top.size}", source]
    yield from flow([look.say(part) for part in told], look, [], 2)


def _identity(planned: Planned) -> list[tuple[str, str]]:
    facts = planned.topology.facts
    launcher = planned.topology.launcher
    told = [("launcher", "none" if launcher == "local" else launcher)]
    for name, label in NAMES.items():
        if name in facts:
            told.append((label, f"{facts[name].value} · {facts[name].source}"))
    if "gpus" in facts:
        label, text = told[-1]
        told[-1] = (label, f"{text} · --nproc {facts['gpus'].value} would be one rank for each")
    return told


def _meeting(planned: Planned) -> list[tuple[str, str]]:
    top = planned.topology
    facts = top.facts
    sources = dict.fromkeys(facts[name].source for name in ("master_addr", "master_port"))
    if job_nodes := facts.get("job_nodes"):
        who = f"nobody: this machine alone, of a job of {job_nodes.value} nodes"
        who += " · srun preflight run   would look at all of them"
    elif not planned.meets:
        others = plural(top.size - top.met, "rank")
        whom = f"nobody: level quick, {others} elsewhere" if top.size > top.met else "nobody else"
        who = f"{whom}; the job would meet there"
    elif has_rank_0(planned):
        who = "this agent listens: it has rank 0"
    else:
        who = "this agent goes there; the one of rank 0 listens and has the report"
    return [("at", f"{top.meets_at} · {' · '.join(sources)}"), ("who", who)]


def _checks(steps: Sequence[Step], look: Look) -> Iterator[Line]:
    running = [step for step in steps if step.runs]
    told = f"{len(running)} of {len(steps)} would run here, in this order, each killed at its time"
    yield from flow([told], look, [(" checks", "bold"), ("   ", "")], 3)
    stage = ""
    for step in running:
        if step.stage != stage:
            stage = step.stage
            yield [(f"  {stage}", "bold")]
        yield from _step(step, look)
    left: dict[str, list[str]] = {}
    for step in steps:
        if not step.runs:
            left.setdefault(step.why, []).append(step.id)
    if left:
        yield []
        yield [(" left out", "bold")]
    for why, ids in left.items():
        yield from flow([f"{look.say(why)}: {look.say(', '.join(ids))}"], look, [("   ", "")], 5)


def _step(step: Step, look: Look) -> Iterator[Line]:
    """Its id and its time; what it touches and depends on beside them, or below on a narrow
    screen."""
    more = [part for part in (step.touches, step.why) if part and part != "-"]
    head = f"   {step.id:<{ID_WIDTH}}{f'{step.budget:g} s':>{BUDGET}}"
    if look.narrow:
        yield [(head, "")]
        for part in more:
            yield from ([("     " + piece, "dim")] for piece in wrapped(part, look.width - 5))
    else:
        yield from flow(
            [look.say(part) for part in more], look, [(head + "   ", "")], len(head) + 3
        )


def _effects(planned: Planned, look: Look) -> Iterator[Line]:
    grouped: dict[str, list[str]] = {}
    for effect in planned.effects:
        grouped.setdefault(effect.what, []).append(effect.by)
    for what, by in grouped.items():
        yield from flow([look.say(what), look.say(", ".join(by))], look, [("   ", "")], 5)
