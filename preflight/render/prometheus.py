"""Metrics for the textfile collector of Prometheus' node exporter, the same names in every file.

A check has the status of its row: the worst of all subjects of the report. Who they are is in the
findings; a label for each node or rank would make a series of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from preflight.humanize import epoch
from preflight.model import Finding, Report, Status, Verdict
from preflight.sanitize import legible

FINDINGS = 20
"""Findings with a series each; the JSON report has all of them."""

Sample = tuple[Mapping[str, str], float]


def render(report: Report) -> str:
    """The text format, with no time of its own for a sample: the collector refuses such a file."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    seen = report.observations
    rows = {_label(row.id): row for row in report.rows}
    yield from _gauge(
        "preflight_ready",
        "Whether the last run was READY; 0 also where it could not tell.",
        [({}, report.verdict is Verdict.READY and report.exit_code == 0)],
    )
    yield from _gauge(
        "preflight_check_status",
        "1 for the status of the check on the worst of all nodes and ranks, 0 for all others.",
        (
            ({"check": check, "status": status}, row.status is status)
            for check, row in rows.items()
            for status in Status
        ),
    )
    yield from _gauge(
        "preflight_finding_info",
        "1 for each finding of the last run, the first ones.",
        [(dict(labels), 1) for labels in dict.fromkeys(map(_finding, report.findings[:FINDINGS]))],
    )
    yield from _gauge(
        "preflight_check_duration_seconds",
        "How long the check took where it took longest.",
        (({"check": check}, row.seconds) for check, row in rows.items()),
    )
    began = epoch(seen.started)
    yield from _gauge(
        "preflight_run_timestamp_seconds",
        "When the last run began, in seconds since 1970.",
        [({}, began)] if began is not None else [],
    )
    yield from _gauge(
        "preflight_build_info",
        "The version of preflight that ran.",
        [({"version": _label(seen.tool.get("version", ""))}, 1)],
    )


def _finding(finding: Finding) -> tuple[tuple[str, str], ...]:
    """Its labels; two findings that say the same are one series."""
    texts = {"check": finding.check, "code": finding.code, "headline": finding.headline}
    return (("status", str(finding.status)), *((n, _label(text)) for n, text in texts.items()))


def _gauge(name: str, said: str, samples: Iterable[Sample]) -> Iterator[str]:
    """A metric with its samples; HELP and TYPE are there without any, too."""
    yield f"# HELP {name} {said}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        yield f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _label(text: str) -> str:
    """Foreign text as the value of a label: one line of ASCII, with its escapes."""
    return legible(text, ascii_only=True).replace("\\", r"\\").replace('"', r"\"")
