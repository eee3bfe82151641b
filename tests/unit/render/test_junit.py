"""JUnit XML: what ReFrame's schema asks for, what junitparser reads out of it, and that something
in it is red exactly where the report does not exit 0."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped
from support.reports import F, M, P, S, U, W, each, each_rank, finding, of_nodes, report, row
from support.scenarios import NAMES, hostile, judged

from preflight.model import Cause, Finding, Kind, Missing, Report, Status, Subject, Verdict
from preflight.nodeset import folded
from preflight.render import junit

every_scenario = pytest.mark.parametrize("scenario", NAMES)
NODES = of_nodes(2)


def suites(of: Report) -> list[ET.Element]:
    return list(ET.fromstring(junit.render(of)))


def suite(of: Report, name: str) -> ET.Element:
    (found,) = (s for s in suites(of) if s.get("name") == name)
    return found


def case(of: Report, node: str, check: str) -> ET.Element:
    (found,) = (c for c in suite(of, node).iter("testcase") if c.get("name") == check)
    return found


def result(of: Report, node: str, check: str) -> ET.Element | None:
    return next(iter(case(of, node, check)), None)


def is_red(of: Report) -> bool:
    found = suites(of)
    return any(s.get("failures") != "0" or s.get("errors") != "0" for s in found)


# --- the schema ---

TOKEN = re.compile(r"\S+( \S+)*")
DECIMAL = re.compile(r"\d+\.\d+")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
WHOLE = re.compile(r"\d+")
OF_SUITE = {
    "name": TOKEN,
    "hostname": TOKEN,
    "package": TOKEN,
    "id": WHOLE,
    "timestamp": TIME,
    "time": DECIMAL,
    "tests": WHOLE,
    "failures": WHOLE,
    "errors": WHOLE,
    "skipped": WHOLE,
}
OF_CASE = {"name": TOKEN, "classname": TOKEN, "time": DECIMAL}
OF_RESULT = {"failure": {"type", "message"}, "error": {"type", "message"}, "skipped": {"message"}}


def has(element: ET.Element, attributes: dict[str, re.Pattern[str]]) -> None:
    assert set(element.attrib) == set(attributes)
    for name, pattern in attributes.items():
        assert pattern.fullmatch(element.attrib[name]), (name, element.attrib[name])


def assert_strict(text: str) -> None:
    """What the schema that ReFrame checks its own reports by demands, read in the narrowest way."""
    root = ET.fromstring(text)
    assert (root.tag, root.attrib) == ("testsuites", {})
    for number, one in enumerate(root):
        assert one.tag == "testsuite"
        has(one, OF_SUITE)
        assert one.attrib["id"] == str(number)
        first, *cases, out, err = one
        assert (first.tag, out.tag, err.tag) == ("properties", "system-out", "system-err")
        for entry in first:
            assert (entry.tag, set(entry.attrib)) == ("property", {"name", "value"})
            assert TOKEN.fullmatch(entry.attrib["name"])
        kinds = []
        for entry in cases:
            assert entry.tag == "testcase"
            has(entry, OF_CASE)
            assert len(entry) <= 1
            for inner in entry:
                assert set(inner.attrib) == OF_RESULT[inner.tag]
                kinds.append(inner.tag)
        counted = {
            "tests": len(cases),
            "failures": kinds.count("failure"),
            "errors": kinds.count("error"),
            "skipped": kinds.count("skipped"),
        }
        assert {name: int(one.attrib[name]) for name in counted} == counted


@every_scenario
def test_it_fits_the_schema_and_is_ascii(scenario: str) -> None:
    text = junit.render(judged(scenario))
    assert_strict(text)
    assert text.isascii()
    assert text.endswith("</testsuites>\n")


@every_scenario
def test_a_reader_of_such_reports_counts_the_same(scenario: str) -> None:
    read = JUnitXml.fromstring(junit.render(judged(scenario)).encode())
    for one in read:
        kinds = [type(found) for entry in one for found in entry.result]
        assert one.tests == len(list(one))
        assert one.failures == kinds.count(Failure)
        assert one.errors == kinds.count(Error)
        assert one.skipped == kinds.count(Skipped)
        assert all(entry.classname == entry.name.partition(".")[0] for entry in one)


@pytest.mark.slow
@every_scenario
def test_something_is_red_exactly_where_the_report_does_not_exit_0(scenario: str) -> None:
    assert is_red(judged(scenario)) is (judged(scenario).exit_code != 0)


@every_scenario
def test_every_node_has_a_suite_with_every_check(scenario: str) -> None:
    of = judged(scenario)
    names = [node.name for node in of.observations.topology.nodes]
    assert [s.get("name") for s in suites(of)][: len(names)] == names
    required = {r.id for r in of.rows if r.required}
    for name in names:
        assert required <= {c.get("name") for c in suite(of, name).iter("testcase")}


def test_the_time_is_that_of_the_report() -> None:
    of = judged("healthy")
    (one,) = suites(of)
    assert one.get("timestamp") == "2025-11-20T23:05:11"
    for started in ("", "yesterday", "2025-02-31T00:00:00Z", "2025-11-20T23:05:11.5Z"):
        seen = dataclasses.replace(of.observations, started=started)
        (one,) = suites(dataclasses.replace(of, observations=seen))
        assert one.get("timestamp") == junit.NO_TIME


# --- statuses ---


@pytest.mark.parametrize(
    ("status", "required", "tag"),
    [
        (P, True, None),
        (W, True, None),
        (F, True, "failure"),
        (F, False, "failure"),
        (U, True, "error"),
        (U, False, "skipped"),
        (M, True, "error"),
        (S, True, "skipped"),
    ],
)
def test_a_status_and_its_element(status: Status, required: bool, tag: str | None) -> None:
    odd = row("net.port", each(NODES, b02=status), required=required, reason="no port here")
    of = report(NODES, odd)
    found = result(of, "gpu-b02", "net.port")
    assert (found.tag if found is not None else None) == tag
    assert result(of, "gpu-b01", "net.port") is None
    if status is S and found is not None:
        assert found.get("message") == "no port here"


def test_a_node_is_as_bad_as_its_worst_rank() -> None:
    of = report(NODES, row("world.gloo", each_rank(NODES, {5: F, 6: W})))
    found = result(of, "gpu-b02", "world.gloo")
    assert found is not None
    assert found.tag == "failure"
    assert result(of, "gpu-b01", "world.gloo") is None


def failed(*subjects: Subject, **changes: object) -> Finding:
    return finding("net.port", *subjects, **changes)


def test_a_failure_says_what_the_screen_says() -> None:
    at = Subject(Kind.NODE, "gpu-b02", ranks=(4, 5, 6, 7))
    of = report(NODES, row("net.port", each(NODES, b02=F)), findings=[failed(at, code="held")])
    found = result(of, "gpu-b02", "net.port")
    assert found is not None
    assert (found.get("type"), found.get("message")) == ("held", "it is bad")
    assert found.text is not None
    for said in (
        "it is bad",
        "gpu-b02 · ranks 4-7",
        "saw        saw it",
        "do now     look there",
        "who",
    ):
        assert said in found.text


def test_a_failure_is_told_by_the_findings_of_its_own_node() -> None:
    found = [
        failed(Subject(Kind.NODE, "gpu-b01"), saw="this of 1"),
        failed(Subject(Kind.NODE, "gpu-b02"), saw="that of 2"),
    ]
    of = report(NODES, row("net.port", each(NODES, F)), findings=found)
    for node, said in (("gpu-b01", "this of 1"), ("gpu-b02", "that of 2")):
        one = result(of, node, "net.port")
        assert one is not None
        assert one.get("message") == said


def test_what_follows_from_elsewhere_says_from_where() -> None:
    cause = finding("net.name", Subject(Kind.NODE, "gpu-b02"), folded=("rdzv.store",))
    rows = [row("net.name", each(NODES, b02=F)), row("rdzv.store", each(NODES, U, b02=F))]
    of = report(NODES, *rows, findings=[cause])
    for node in ("gpu-b01", "gpu-b02"):
        one = result(of, node, "rdzv.store")
        assert one is not None
        assert one.get("message") == "follows from net.name:code: it is bad"


def test_a_skip_says_why_it_was_skipped_there() -> None:
    checks = {
        "gpu.visible": {
            "gpu-b01": Missing(Cause.NOT_APPLICABLE, "no driver"),
            "gpu-b02": Missing(Cause.BLOCKED, by="env.vars"),
        }
    }
    of = report(NODES, row("gpu.visible", each(NODES, S), reason="no driver"), checks=checks)
    for node, said in (("gpu-b01", "no driver"), ("gpu-b02", "needs env.vars")):
        one = result(of, node, "gpu.visible")
        assert one is not None
        assert one.get("message") == said


def test_numbers_and_warnings_are_in_the_output_of_the_suite() -> None:
    warned = finding("host.cpu", Subject(Kind.NODE, "gpu-b02"), status=W, saw="few of them")
    rows = [row("net.port", each(NODES)), row("host.cpu", each(NODES, b02=W))]
    of = report(NODES, *rows, findings=[warned])
    said = [suite(of, node).findtext("system-out") or "" for node in ("gpu-b01", "gpu-b02")]
    assert " ✓ net.port   8 of 8" in said[0]
    assert "few of them" not in said[0]
    assert "few of them" in said[1]


# --- what no node's case says ---


def names(of: Report) -> list[str | None]:
    return [s.get("name") for s in suites(of)]


def test_a_rank_that_nobody_knows_the_node_of() -> None:
    absent = finding("rdzv.reach", Subject(Kind.RANK, "", "9", (9,)), status=M, saw="never came")
    met = row("rdzv.reach", each(NODES), status=M)
    of = dataclasses.replace(report(NODES, met, findings=[absent]), exit_code=5)
    assert names(of) == ["gpu-b01", "gpu-b02", junit.ALL]
    found = result(of, junit.ALL, "rdzv.reach")
    assert found is not None
    assert (found.tag, found.get("message")) == ("error", "never came")
    assert suite(of, junit.ALL).get("hostname") == "gpu-b01"


def test_a_check_that_was_not_made_on_a_node_that_came() -> None:
    half = each(NODES[:1])
    found = result(report(NODES, row("host.cpu", half)), "gpu-b02", "host.cpu")
    assert found is not None
    assert found.tag == "error"
    of = report(NODES, row("agree.clock", half, required=False), row("net.port", each(NODES)))
    checks = [c.get("name") for c in suite(of, "gpu-b02").iter("testcase")]
    assert checks == ["net.port"]


@pytest.mark.parametrize(
    ("verdict", "code", "tag"),
    [
        (Verdict.NOT_READY, 3, "failure"),  # --strict: nothing but warnings
        (Verdict.UNDECIDED, 4, "error"),  # nothing was looked at
        (Verdict.READY, 143, "error"),  # a signal
        (Verdict.READY, 0, None),
    ],
)
def test_a_verdict_that_no_case_shows(verdict: Verdict, code: int, tag: str | None) -> None:
    of = report(NODES, row("net.port", each(NODES, W)), verdict=verdict)
    of = dataclasses.replace(of, exit_code=code)
    assert (junit.ALL in names(of)) is bool(tag)
    if tag:
        found = result(of, junit.ALL, "preflight.verdict")
        assert found is not None
        assert (found.tag, found.get("type")) == (tag, str(verdict))


def test_a_report_of_nothing_is_none_of_success() -> None:
    of = dataclasses.replace(report(NODES), verdict=Verdict.UNDECIDED, exit_code=4)
    of = dataclasses.replace(
        of,
        observations=dataclasses.replace(
            of.observations,
            topology=dataclasses.replace(of.observations.topology, nodes=()),
        ),
    )
    assert is_red(of)
    assert_strict(junit.render(of))


# --- hostile and large ---


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=30))
def test_whatever_a_report_holds_it_is_xml(foreign: str) -> None:
    of = hostile(foreign)
    text = junit.render(of)
    assert_strict(text)
    assert is_red(of)
    assert len(list(JUnitXml.fromstring(text.encode()))) == len(suites(of))


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\ud800", "\ufffe", "\uffff", "\x85"])
def test_characters_that_xml_forbids(letter: str) -> None:
    assert_strict(junit.render(hostile(f"a{letter}b")))


@pytest.mark.parametrize("text", ["]]>", "<!--", '"><failure/>', "&amp;", "&#0;", "\n\t", ""])
def test_markup_is_text(text: str) -> None:
    of = hostile(text)
    assert_strict(junit.render(of))
    shown = [c.get("name") for s in suites(of) for c in s.iter("testcase")]
    assert {" ".join(text.split()) or "unknown"} <= set(shown)


def bodies(of: Report) -> Iterable[str]:
    return [found.text or "" for s in suites(of) for found in s.iter("failure")]


@pytest.mark.slow
def test_a_finding_about_many_nodes_is_in_the_case_of_each() -> None:
    many = of_nodes(300, ranks=1)
    all_of_them = failed(*(Subject(Kind.NODE, n.name) for n in many))
    of = report(many, row("net.port", each(many, F)), findings=[all_of_them])
    texts = bodies(of)
    assert len(list(texts)) == 300
    assert len(set(texts)) == 1


def test_thousands_of_nodes_are_told_by_what_is_to_be_said_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(junit, "DRAWN_NODES", 8)
    many = of_nodes(40, ranks=1)
    bad = (many[3].name, many[4].name, many[30].name)
    by_node = {n.name: F if n.name in bad else P for n in many}
    found = failed(*(Subject(Kind.NODE, name) for name in bad))
    of = report(many, row("net.port", by_node), findings=[found])
    assert_strict(junit.render(of))
    sizes = {s.get("name"): s.get("failures") for s in suites(of)}
    assert sorted(sizes.values()) == ["0", "1"]
    assert [n for n, failures in sizes.items() if failures == "1"] == [folded(bad)]
    few = report(many[:8], row("net.port", each(many[:8], P)))
    assert len(suites(few)) == 8
