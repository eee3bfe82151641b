"""Metrics for the textfile collector of Prometheus' node exporter, the same names in every file.

A check has the status of its row: the worst of all subjects of the report. Who they are is in the
findings, a series for each node that one is about; a label for each rank would make too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from preflight.baseline.diff import leaves, of_places
from preflight.humanize import epoch
from preflight.model import Finding, Report, Status, Verdict
from preflight.sanitize import legible

FINDINGS = 20
"""Findings with a series each; the JSON report has all of them."""

SERIES = 2000
"""Of what was measured, and of nodes that findings are about, at most."""

NUMBERS = 1 << 24
"""Numbers of a check that are looked at: more than ten for each rank of any job."""

SHORT = ("least", "median", "greatest")
"""How the names of numbers end that stand for those of too many nodes, ranks or links; the least
and the greatest have the `node` that they are of."""

UNITS = {
    "bytes_per_s": "bytes/s",
    "gb_per_s": "GB/s",
    "_gbs": "GB/s",
    "gbit_s": "Gbit/s",
    "_per_second": "1/s",
    "_per_s": "1/s",
    "tflops": "TFLOP/s",
    "_ms": "ms",
    "_s": "s",
    "seconds": "s",
    "bytes": "bytes",
}
"""How the name of a number ends -> its unit; of any other it is a count, or a part of 1."""

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
        "preflight_verdict",
        "1 for the verdict of the last run, 0 for all others.",
        (({"verdict": str(verdict)}, report.verdict is verdict) for verdict in Verdict),
    )
    yield from _gauge(
        "preflight_finding",
        "1 for each finding of the last run and each node that it is about.",
        [(dict(labels), 1) for labels in dict.fromkeys(islice(_blamed(report), SERIES))],
    )
    yield from _gauge(
        "preflight_measured",
        "What the last run measured, by its name, unit and, where it is of one, node or link.",
        ((labels, number) for labels, number in islice(_measured(report), SERIES)),
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


def _blamed(report: Report) -> Iterator[tuple[tuple[str, str], ...]]:
    for finding in report.findings:
        for node in dict.fromkeys(subject.node for subject in finding.subjects):
            texts = {"check": finding.check, "code": finding.code, "blame": str(finding.blame)}
            texts |= {"node": node, "severity": str(finding.status)}
            yield tuple((name, _label(text)) for name, text in texts.items())


def _measured(report: Report) -> Iterator[Sample]:
    places = {node.name for node in report.observations.topology.nodes}
    families: dict[tuple[str, ...], list[tuple[str, Mapping[str, str], float]]] = {}
    for row in {_label(row.id): row for row in report.rows}.values():
        for path, number in leaves(row.measured.values, NUMBERS).items():
            one, node = of_places(path[-1], places), path[-1].partition("/")[0]
            of_rank = node in places and not one
            name = ".".join(path[:-1] if one and len(path) > 1 else path)
            labels = {"check": row.id, "name": name, "unit": _unit(path)}
            labels["node"] = path[-1] if one else ""
            family = ".".join(path[:-1]) if one or of_rank else name
            place = node if of_rank else path[-1]
            families.setdefault((row.id, family), []).append((place, labels, number))
    seen = set()
    for named, number in _fitting(families):
        told = {key: _label(text) for key, text in named.items()}
        if tuple(told.values()) not in seen:
            seen.add(tuple(told.values()))
            yield told, number


def _fitting(
    families: Mapping[tuple[str, ...], list[tuple[str, Mapping[str, str], float]]],
) -> Iterator[Sample]:
    """All numbers, or of those of which there are most, at first, only the least, the median and
    the greatest: what is measured of each rank of thousands leaves room for all else."""
    count = sum(map(len, families.values()))
    short = set()
    for key, family in sorted(families.items(), key=lambda item: -len(item[1])):
        if count <= SERIES or len(family) <= len(SHORT):
            break
        short.add(key)
        count -= len(family) - len(SHORT)
    for key, family in families.items():
        if key not in short:
            yield from ((labels, number) for _, labels, number in family)
            continue
        ordered = sorted(family, key=lambda one: one[2])
        for which, at in zip(SHORT, (0, (len(ordered) - 1) // 2, -1), strict=True):
            place, of_one, number = ordered[at]
            node = "" if which == "median" else place
            yield {**of_one, "name": f"{key[1]}.{which}", "node": node}, number


def _unit(path: Sequence[str]) -> str:
    """By the name of the number, or of what it stands in."""
    ends = ((name, end) for name in reversed(path) for end in UNITS)
    return next((UNITS[end] for name, end in ends if name.endswith(end)), "")


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
