"""The JSON report: it fits its schema, comes back whole, and nonsense is refused in one line."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from support import scenarios
from support.scenarios import NAMES, judged

from preflight.check import Scope, Stage
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import (
    Blame,
    Cause,
    Cell,
    Confidence,
    Curve,
    Curves,
    Device,
    Doing,
    Grid,
    Kind,
    Lanes,
    Measured,
    PreflightError,
    Seen,
    Span,
    Status,
    Swimlane,
    Verdict,
)
from preflight.render import human
from preflight.render import json as as_json

every_scenario = pytest.mark.parametrize("scenario", NAMES)


@cache
def schema() -> Any:
    return json.loads(files("preflight").joinpath("report-v1.schema.json").read_text("utf-8"))


@cache
def validator() -> Any:
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.slow
@every_scenario
def test_the_json_report_fits_its_schema(scenario: str) -> None:
    text = as_json.render(judged(scenario))
    errors = [f"{e.json_path}: {e.message}" for e in validator().iter_errors(json.loads(text))]
    assert errors == []


@pytest.mark.slow
@every_scenario
def test_a_saved_report_is_read_back_whole(scenario: str) -> None:
    report = judged(scenario)
    text = as_json.render(report)
    read = as_json.parse(text)
    assert as_json.render(read) == text
    for look in (human.Look(), human.Look(verbose=True)):
        assert human.render(read, look) == human.render(report, look)
    assert read.observations == report.observations


def test_the_schema_is_one_and_is_named_in_the_report() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$id"] == as_json.SCHEMA
    assert json.loads(as_json.render(judged("healthy")))["$schema"] == as_json.SCHEMA


@pytest.mark.parametrize(
    ("described", "words"),
    [
        (("properties", "verdict"), Verdict),
        (("$defs", "status"), Status),
        (("$defs", "finding", "properties", "confidence"), Confidence),
        (("$defs", "finding", "properties", "blame"), Blame),
        (("$defs", "subject", "properties", "kind"), Kind),
        (("$defs", "observation", "oneOf", 1, "properties", "missing"), Cause),
        (("$defs", "check", "properties", "stage"), Stage),
        (("$defs", "check", "properties", "scope"), Scope),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_the_schema_has_our_words(described: tuple[str | int, ...], words: Any) -> None:
    inner = schema()
    for key in described:
        inner = inner[key]
    assert set(inner["enum"]) == {str(word) for word in words}


# what a reader relies on: where it is, and what must not be there
REFUSED = (
    (("verdict",), "fine"),
    (("exit_code",), 1),
    (("$schema",), "https://elsewhere.example/report-v1.json"),
    (("seconds",), -1),
    (("settings", "level"), "standard"),
    (("world", "nodes", 0, "ranks"), ["0"]),
    (("checks", 0, "status"), "ok"),
    (("checks", 0, "scope"), "cluster"),
    (("checks", 0, "by_subject"), {"n1": "ok"}),
    (("findings", 0, "subjects"), []),
    (("findings", 0, "subjects", 0, "kind"), "cable"),
    (("findings", 0, "status"), "skip"),
    (("findings", 0, "confidence"), "sure"),
    (("findings", 0, "blame"), "nobody"),
    (("findings", 0, "remedy", "commands"), ["reboot"]),
    (("observations", "net.port", "gpu-b07", "seconds"), None),
    (("observations", "net.port", "gpu-b07", "marks"), [["one"]]),
    (("observations", "world.gloo", "gpu-b07/0", "missing"), "lost"),
    (("observations", "world.gloo", "gpu-b07/0", "ok"), {}),
)


@pytest.mark.parametrize(("place", "wrong"), REFUSED, ids=lambda v: str(v)[:60])
def test_the_schema_refuses(place: tuple[str | int, ...], wrong: object) -> None:
    document = json.loads(as_json.render(judged("port-held")))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    assert not validator().is_valid(document)


@pytest.mark.parametrize("name", sorted(schema()["required"]))
def test_every_field_of_the_report_is_required(name: str) -> None:
    document = json.loads(as_json.render(judged("healthy")))
    del document[name]
    assert not validator().is_valid(document)


def test_the_schema_names_every_field_that_is_written() -> None:
    """At the top, in checks, findings, subjects and remedies: additions belong into the schema.
    Only a check that has something to draw writes it, and only many nodes are alike."""
    parts = schema()["$defs"]
    document = json.loads(as_json.render(judged("nvml-hangs")))
    finding = document["findings"][0]
    for written, described in (
        (document, schema()),
        (document["world"], schema()["properties"]["world"]),
        (document["checks"][0], parts["check"]),
        (finding, parts["finding"]),
        (finding["subjects"][0], parts["subject"]),
        (finding["remedy"], parts["finding"]["properties"]["remedy"]),
    ):
        some = {"grid", "lanes", "curves", "parts", "notes", "alike", "by_status"}
        every = set(described["properties"]) - some
        assert set(written) == every == set(described["required"])


def test_a_grid_fits_the_schema() -> None:
    grid = Grid("as parts of 2", ("n1", "n2"), ("n1", "n2"), (Cell(0, 1, 2.0),), 2.0, "GB/s")
    made = judged("healthy")
    rows = (dataclasses.replace(made.rows[0], measured=Measured("", {}, grid)), *made.rows[1:])
    document = json.loads(as_json.render(dataclasses.replace(made, rows=rows)))
    validator().validate(document)
    described = schema()["$defs"]["check"]["properties"]["grid"]
    written = document["checks"][0]["grid"]
    assert set(written) == set(described["properties"])
    assert set(written) - {"rest"} == set(described["required"])  # older reports have none


def test_what_is_drawn_fits_the_schema() -> None:
    made = judged("healthy")
    measured = Measured(
        lanes=Lanes("came", "s", (Swimlane("n1", (Span(0.0, 1.0, Doing.WAIT, "waits"),)),)),
        curves=Curves("memory", "s", "bytes", (Curve("n1/0", ((0.0, 1.0), (1.0, 2.0))),)),
        parts=(Device(Kind.GPU, "n1", "GPU 0", "NUMA node 0", "H100", True),),
        notes=("forward 2 ms", "backward 3 ms"),
    )
    rows = (dataclasses.replace(made.rows[0], measured=measured), *made.rows[1:])
    text = as_json.render(dataclasses.replace(made, rows=rows))
    document = json.loads(text)
    validator().validate(document)
    assert as_json.parse(text).rows[0].measured == measured
    described = schema()["$defs"]["check"]["properties"]
    for name in ("lanes", "curves"):
        written, inner = document["checks"][0][name], described[name]
        assert set(written) == set(inner["properties"]) == set(inner["required"])
    one = described["parts"]["items"]
    assert set(document["checks"][0]["parts"][0]) == set(one["properties"]) == set(one["required"])


def test_the_nodes_of_a_world_are_whole() -> None:
    """Also how many ranks a launcher runs there: it is judged by. Older reports lack that."""
    described = schema()["properties"]["world"]["properties"]["nodes"]["items"]
    report = judged("two-nodes")
    top = report.observations.topology
    nodes = tuple(dataclasses.replace(node, size=8) for node in top.nodes)
    seen = dataclasses.replace(report.observations, topology=dataclasses.replace(top, nodes=nodes))
    text = as_json.render(dataclasses.replace(report, observations=seen))
    document = json.loads(text)
    written = document["world"]["nodes"][0]
    assert set(written) == set(described["properties"])
    assert set(written) - set(described["required"]) == {"size"}
    assert as_json.parse(text).observations == seen
    for node in document["world"]["nodes"]:
        del node["size"]
    assert validator().is_valid(document)
    assert as_json.parse(json.dumps(document)).observations == report.observations


def test_what_takes_more_room_than_a_report_is_refused() -> None:
    """A file of 58 kB that becomes 1.8 GiB."""
    text = '{"verdict":"ready","observations":[' + "[]," * 4_500_000 + "[]]}"
    with pytest.raises(PreflightError, match="says more than one of its size does"):
        as_json.parse(text)


def test_readers_ignore_what_they_do_not_know() -> None:
    document = json.loads(as_json.render(judged("port-held")))
    for place in (document, document["world"], document["findings"][0], document["checks"][0]):
        place["of a later version"] = {"more": [1]}
    document["observations"]["net.port"]["gpu-b07"]["later"] = True
    assert validator().is_valid(document)
    assert as_json.render(as_json.parse(json.dumps(document))) == as_json.render(
        judged("port-held")
    )


# --- what can't be read ---


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_can_be_saved(number: float) -> None:
    """A sum that is not a number is what world.gloo is there to find."""
    report = judged("healthy")
    seen = report.observations.checks["world.gloo"]["gpu-b07/0"]
    assert isinstance(seen, Seen)
    seen.value["reduced"][0]["got"] = number
    saved = as_json.render(report)
    read = as_json.parse(saved)
    assert as_json.render(read) == saved
    again = verdict.judge(read.observations, scenarios.catalogue(), Expect())
    assert again.verdict is Verdict.READY


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        "{}",
        '{"verdict": "ready", "observations": {}}',
        "[" * 100_000,
        '{"observations": ' + '{"a": ' * 500 + "1" + "}" * 501,
    ],
    ids=lambda v: v[:20],
)
def test_what_is_no_report_is_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(PreflightError, match=r"\Anot a report[^\n]*\Z"):
        as_json.parse(wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exit_code", 1e999),
        ("seconds", "nan"),
        ("seconds", 10**400),
        ("checks", {"a": 1}),
        ("seconds", float("nan")),
        ("checks", 5),
        ("findings", [{}]),
        ("world", {"size": 1}),
        ("observations", {"net.port": {"n1": {"ok": json.loads("[" * 70 + "]" * 70)}}}),
    ],
)
def test_a_report_with_nonsense_in_it_is_refused(field: str, value: object) -> None:
    document = json.loads(as_json.render(judged("healthy"))) | {field: value}
    with pytest.raises(PreflightError, match=r"\Anot a report[^\n]*\Z"):
        as_json.parse(json.dumps(document))
