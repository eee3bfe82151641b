"""The formats that a report can be had in, by the names of `-o`. A renderer is imported when it is
used: most runs want the screen only."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model import Report
from preflight.render import human


def parts(name: str, report: Report, look: human.Look) -> Iterator[str]:
    """The report in one of config.FORMATS, in parts, each made on request; `look` is the
    screen's alone."""
    if name == "json":
        from preflight.render import json as as_json

        yield from as_json.parts(report)
    else:
        yield _whole(name, report, look)


def _whole(name: str, report: Report, look: human.Look) -> str:
    match name:
        case "junit":
            from preflight.render import junit

            return junit.render(report)
        case "prometheus":
            from preflight.render import prometheus

            return prometheus.render(report)
        case "nagios":
            from preflight.render import nagios

            return nagios.render(report)
        case "markdown":
            from preflight.render import markdown

            return markdown.render(report)
        case "slurm":
            from preflight.render import slurm_nodes

            return slurm_nodes.render(report)
        case "html":
            from preflight.render import html

            return html.render(report)
        case "github":
            from preflight.render import markdown

            return "".join(f"{line}\n" for line in markdown.workflow_commands(report))
    return human.render(report, look)
