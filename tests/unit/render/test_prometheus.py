"""Metrics for the textfile collector: read by Prometheus' own parser, linted as promtool does."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.scenarios import NAMES, hostile, judged

from preflight.humanize import epoch
from preflight.model import Report, Status, Verdict
from preflight.render import prometheus

every_scenario = pytest.mark.parametrize("scenario", NAMES)

METRICS = {
    "preflight_ready": set(),
    "preflight_check_status": {"check", "status"},
    "preflight_finding_info": {"status", "check", "code", "headline"},
    "preflight_verdict": {"verdict"},
    "preflight_finding": {"check", "code", "blame", "node", "severity"},
    "preflight_measured": {"check", "name", "unit", "node"},
    "preflight_check_duration_seconds": {"check"},
    "preflight_run_timestamp_seconds": set(),
    "preflight_build_info": {"version"},
}
"""The contract: each name with its labels."""


def read(of: Report) -> dict[str, Metric]:
    families = list(text_string_to_metric_families(prometheus.render(of)))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def value(of: Report, name: str) -> float:
    (sample,) = read(of)[name].samples
    return float(sample.value)


@pytest.mark.slow
@every_scenario
def test_the_names_of_the_contract_and_no_others(scenario: str) -> None:
    families = read(judged(scenario))
    assert set(families) == set(METRICS)
    for name, family in families.items():
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            assert sample.name == name
            assert set(sample.labels) == METRICS[name]
            assert sample.timestamp is None, "the collector refuses them"


@pytest.mark.slow
@every_scenario
def test_no_series_is_there_twice(scenario: str) -> None:
    for family in read(judged(scenario)).values():
        series = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(series)) == len(series)


@every_scenario
def test_it_says_what_the_report_says(scenario: str) -> None:
    of = judged(scenario)
    families = read(of)
    assert value(of, "preflight_ready") == (of.exit_code == 0)
    on = {
        sample.labels["check"]: sample.labels["status"]
        for sample in families["preflight_check_status"].samples
        if sample.value
    }
    assert on == {row.id: str(row.status) for row in of.rows}
    assert len(families["preflight_check_status"].samples) == len(of.rows) * len(Status)
    taken = {
        s.labels["check"]: s.value for s in families["preflight_check_duration_seconds"].samples
    }
    assert taken == pytest.approx({row.id: row.seconds for row in of.rows}, rel=1e-5)
    started = datetime.fromisoformat(of.observations.started.replace("Z", "+00:00"))
    assert value(of, "preflight_run_timestamp_seconds") == started.timestamp()
    (about,) = families["preflight_build_info"].samples
    assert about.labels == {"version": of.observations.tool["version"]}


def test_as_many_series_for_many_nodes_as_for_one() -> None:
    def series(scenario: str) -> int:
        of = judged(scenario)
        families = read(of)
        # as many as there are findings, or numbers
        for name in ("preflight_finding", "preflight_measured"):
            assert len(families.pop(name).samples) <= prometheus.SERIES
        samples = sum(len(family.samples) for family in families.values())
        return samples - 7 * len(of.rows) - len(of.findings) - len(Verdict)

    assert series("nodes-64") == series("healthy") == 3


def test_what_was_measured_of_thousands_of_ranks_leaves_room_for_all_else() -> None:
    of = judged("nodes-64")
    nodes = [node.name for node in of.observations.topology.nodes]
    ranks = {f"{name}/{8 * n + r}": 600.0 for n, name in enumerate(nodes) for r in range(8)}
    ranks[f"{nodes[7]}/58"] = 300.0
    pairs = [f"{a}->{b}" for a in nodes for b in nodes[:40] if a != b]
    links = {pair: 1e9 + number for number, pair in enumerate(pairs)}
    few = {"slowest_s": dict.fromkeys(nodes, 0.5), "ports": 512}
    values = {"bf16_tflops": ranks, "moved": {"bytes_per_s": links}, **few}
    rows = [
        dataclasses.replace(row, measured=dataclasses.replace(row.measured, values=values))
        if row is of.rows[0]
        else row
        for row in of.rows
    ]
    samples = read(dataclasses.replace(of, rows=tuple(rows)))["preflight_measured"].samples
    ours = [s for s in samples if s.labels["check"] == of.rows[0].id]
    told = {(s.labels["name"], s.labels["node"]): s.value for s in ours}
    assert told["moved.bytes_per_s.greatest", pairs[-1]] == links[pairs[-1]]
    assert told["moved.bytes_per_s.least", pairs[0]] == 1e9
    assert {name.rpartition(".")[2] for name, _ in told if name.startswith("moved")} == {
        *prometheus.SHORT
    }
    assert told[f"bf16_tflops.{nodes[7]}/58", ""] == 300.0, "there is room for these"
    assert sum(name == "slowest_s" for name, _ in told) == len(nodes)
    assert told["ports", ""] == 512
    before = read(of)["preflight_measured"].samples
    others = [s for s in before if s.labels["check"] != of.rows[0].id]
    assert [s for s in samples if s.labels["check"] != of.rows[0].id] == others


def test_help_and_type_are_the_same_in_every_file() -> None:
    """Two files that describe one metric in two ways spoil the scrape of both."""
    comments = {
        tuple(line for line in prometheus.render(judged(name)).splitlines() if line[0] == "#")
        for name in NAMES
    }
    assert len(comments) == 1


@every_scenario
def test_the_lines_are_whole(scenario: str) -> None:
    text = prometheus.render(judged(scenario))
    assert text.endswith("\n")
    assert "\n\n" not in text
    assert text.isascii()


# what promtool's linter finds fault with in names
KINDS = ("gauge", "counter", "summary", "histogram", "untyped")
ABBREVIATED = ("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "m", "h", "d")
NOT_BASE = ("milliseconds", "minutes", "hours", "days", "kilobytes", "megabytes", "percent")


@pytest.mark.parametrize("name", METRICS)
def test_the_names_pass_a_linter(name: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    words = name.split("_")
    assert words[0] == "preflight"
    assert "" not in words
    assert not set(words) & {*KINDS, *ABBREVIATED, *NOT_BASE}
    assert not name.endswith(("_total", "_count", "_sum", "_bucket")), "these are no gauges"
    if {"duration", "timestamp"} & set(words):
        assert words[-1] == "seconds"


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=30))
@example("\\")
@example("a\\nb")
@example('a"} 1')
@example('\\"')
def test_whatever_a_report_holds_it_is_read_back(foreign: str) -> None:
    of = hostile(foreign)
    families = read(of)
    assert set(families) == set(METRICS)
    checks = {sample.labels["check"] for sample in families["preflight_check_status"].samples}
    assert len(checks) == 1
    (check,) = checks
    assert check.isascii()
    assert check.isprintable()
    if foreign.isascii() and foreign.isprintable():
        assert check == foreign
        (about,) = families["preflight_build_info"].samples
        assert about.labels["version"] == foreign


def test_a_run_that_was_cut_short_is_not_ready() -> None:
    of = dataclasses.replace(judged("healthy"), exit_code=143)
    assert value(of, "preflight_ready") == 0


@pytest.mark.parametrize(
    ("started", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2024-02-29T12:00:01Z", 1709208001),
        ("2025-11-20T23:05:11Z", 1763679911),
        ("2025-02-29T12:00:00Z", None),
        ("2025-13-01T00:00:00Z", None),
        ("2025-11-20T24:00:00Z", None),
        ("1969-12-31T23:59:59Z", None),
        ("0000-00-00T00:00:00Z", None),
        ("2025-11-20T23:05:11", None),
        ("٢٠٢٥-11-20T23:05:11Z", None),
        ("", None),
    ],
)
def test_the_time_of_a_report(started: str, seconds: int | None) -> None:
    assert epoch(started) == seconds
    of = judged("healthy")
    seen = dataclasses.replace(of.observations, started=started)
    found = read(dataclasses.replace(of, observations=seen))["preflight_run_timestamp_seconds"]
    assert [sample.value for sample in found.samples] == ([] if seconds is None else [seconds])


def test_what_was_measured_has_its_unit() -> None:
    told = {
        (s.labels["check"], s.labels["name"]): (s.labels["unit"], s.value)
        for s in read(judged("two-nodes"))["preflight_measured"].samples
    }
    assert told["rdzv.store", "init_s"] == ("s", 0.02)
    assert told["world.gloo", "busbw_gbs"] == ("GB/s", 0.734)
    assert told["net.port", "port"] == ("", 29500)
    of_nodes = read(judged("slow-nic"))["preflight_measured"].samples
    links = {s.labels["node"] for s in of_nodes if s.labels["name"] == "bytes_per_s"}
    assert "n1->n2" in links


def test_a_finding_has_a_series_for_each_node() -> None:
    samples = read(judged("nodes-64"))["preflight_finding"].samples
    assert {(s.labels["node"], s.labels["code"], s.labels["blame"]) for s in samples} == {
        ("gpu-b19", "driver-hangs", "node"),
        ("gpu-b07", "unwritable", "job"),
    }


def test_one_verdict_is_1() -> None:
    samples = read(judged("port-held"))["preflight_verdict"].samples
    assert [s.labels["verdict"] for s in samples if s.value == 1] == ["not_ready"]
