"""What a report says as the `[expect]` part of a config file, each value with where it is from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from preflight import __version__
from preflight.baseline.learn import NOT_MEASURED, Learnt
from preflight.model import Report
from preflight.nodeset import folded
from preflight.render.human import title
from preflight.render.layout import wrapped
from preflight.sanitize import legible

WIDTH = 98
NODES_SHOWN = 300


def render(name: str, report: Report, found: Sequence[Learnt]) -> str:
    """The text of a file. `name`: of the report's file. Names and texts of a report are foreign:
    none of them gets out of its comment or its quotes."""
    return "".join(f"{line}\n" for line in _lines(name, report, found))


def _lines(name: str, report: Report, found: Sequence[Learnt]) -> Iterator[str]:
    seen = report.observations
    yield f"# written by: preflight baseline record (preflight {__version__})"
    yield from _comment(f"report: {name} of {seen.started or 'no date'}, READY")
    yield from _comment(f"made by: {', '.join(title(report))}")
    nodes = folded(node.name for node in seen.topology.nodes)
    yield from _comment(f"nodes: {legible(nodes, longest=NODES_SHOWN)}")
    yield "# Versions and limits are floors: newer and higher is fine."
    yield "# Use it by --config FILE, or copy it into a config file that you have."
    yield ""
    yield "[expect]"
    told = [(f"{one.key} = {_value(one.value)}", one) for one in found if one.value is not None]
    widest = max((len(text) for text, _ in told), default=0)
    for text, one in told:
        why = f", {one.why}" if one.why else ""
        yield f"{text:<{widest}}  # {one.check}{why}"
    left = {one.key: one.why for one in found if one.value is None}
    yield ""
    yield "# left out:"
    for key, why in {**left, **NOT_MEASURED}.items():
        yield from _comment(f"{key}: {why}")


def _comment(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in wrapped(legible(text), WIDTH - 2, hang=2))


def _value(value: object) -> str:
    """As TOML writes it: a text that has nothing but letters that can be printed is one of JSON."""
    return json.dumps(value, ensure_ascii=False)
