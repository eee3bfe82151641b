"""One line for Nagios, Icinga and what else runs their plugins: the state, the worst finding, and
how many there are as performance data. The exit code of that convention is `--exit nagios`.
"""

from __future__ import annotations

from preflight.model import Finding, Report, Status, Verdict
from preflight.render.human import summary
from preflight.render.layout import cut
from preflight.render.matrix import left_out, looked_at
from preflight.sanitize import legible, plain

LONGEST = 480
"""Characters of the text: with the performance data well within the 1 KiB that NRPE passes on."""

REPLACED = str.maketrans(
    {
        "|": "/",  # begins the performance data
        # what ends a quoted word of a shell, or is replaced inside of one: a command that notifies
        # somebody may have the line put into it
        "`": "",
        "$": "",
        "'": "",
        '"': "",
        "\\": "/",
    }
)


def render(report: Report) -> str:
    """The line. Undecided is UNKNOWN, never OK."""
    state, statuses = _state(report)
    text = _worst_finding([f for f in report.findings if f.status in statuses]) or _summary(report)
    checks = sum(looked_at(row) or left_out(report, row) for row in report.rows)
    failed, undecided = (
        sum(finding.status is status for finding in report.findings)
        for status in (Status.FAIL, Status.UNDECIDED)
    )
    counts = f"checks={checks} failed={failed} undecided={undecided}"
    return f"PREFLIGHT {state} - {text} | {counts} time={report.observations.seconds:.1f}s\n"


def _state(report: Report) -> tuple[str, tuple[Status, ...]]:
    """Nagios' word for the verdict, and the statuses of the findings that make it so."""
    if report.verdict is Verdict.NOT_READY:
        failed = any(finding.status is Status.FAIL for finding in report.findings)
        return "CRITICAL", (Status.FAIL,) if failed else (Status.WARN,)
    if report.verdict is not Verdict.READY or report.exit_code:
        return "UNKNOWN", (Status.MISSING, Status.UNDECIDED)
    if any(row.status is Status.WARN for row in report.rows):
        return "WARNING", (Status.WARN,)
    return "OK", ()


def _worst_finding(findings: list[Finding]) -> str:
    """The first finding, and how many more there are."""
    if not findings:
        return ""
    first = findings[0]
    more = f" (+{len(findings) - 1} more)" if len(findings) > 1 else ""
    return cut(_safe_text(f"{first.name} {first.headline}"), LONGEST, "...") + more


def _summary(report: Report) -> str:
    """How much was looked at, and why not more."""
    left = [r.reason for r in report.rows if left_out(report, r) and r.id not in report.skipped]
    why = [] if report.verdict is Verdict.READY else left[:1]
    return cut(_safe_text(", ".join([*filter(None, why), *summary(report)])), LONGEST, "...")


def _safe_text(text: str) -> str:
    """Foreign text in letters that neither Nagios nor a shell takes for more."""
    return plain(legible(text).replace(" · ", ", ")).translate(REPLACED)
