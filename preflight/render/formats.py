"""The formats that a report can be had in, by the names of `-o`. A renderer is imported when it is
used: most runs want the screen only."""

from __future__ import annotations

from preflight.model import Report
from preflight.render import human


def render(name: str, report: Report, look: human.Look) -> str:
    """The report in one of config.FORMATS; `look` is the screen's alone."""
    match name:
        case "json":
            from preflight.render import json as as_json

            return as_json.render(report)
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
