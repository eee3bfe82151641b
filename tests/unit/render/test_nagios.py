"""The line for Nagios: one, in ASCII, with its performance data; and the codes that go with it."""

from __future__ import annotations

import dataclasses
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reports import U, W, each, finding, of_nodes, report, row
from support.scenarios import NAMES, hostile, judged

from preflight.cli import reporting
from preflight.engine.agent import Ending
from preflight.model import Kind, Report, Subject, Verdict
from preflight.process.signals import Interrupt
from preflight.render import nagios

every_scenario = pytest.mark.parametrize("scenario", NAMES)
LINE = re.compile(
    r"PREFLIGHT (OK|WARNING|CRITICAL|UNKNOWN) - ([ -{}~]+) \| "
    r"checks=(\d+) failed=(\d+) undecided=(\d+) time=(\d+\.\d)s\n"
)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
NODES = of_nodes(2)


def parts(of: Report) -> tuple[str, ...]:
    """State, text, and the four numbers."""
    line = nagios.render(of)
    found = LINE.fullmatch(line)
    assert found, line
    assert len(line) <= 1024, "NRPE cuts it there"
    return found.groups()


def code(of: Report, *problems: str, interrupt: Interrupt | None = None) -> int:
    """What `run --exit nagios` makes of such a report."""
    ended = Ending(of.verdict, of.exit_code, of.exit_code, of, ())
    return reporting.exit_code("nagios", ended, problems, interrupt or Interrupt())


@every_scenario
def test_the_word_is_that_of_the_code(scenario: str) -> None:
    assert parts(judged(scenario))[0] == WORDS[code(judged(scenario))]


@pytest.mark.parametrize(
    ("scenario", "word"),
    [
        ("healthy", "OK"),
        ("two-nodes", "OK"),
        ("skipped-by-you", "OK"),
        ("typo-in-env", "WARNING"),
        ("tolerated", "WARNING"),
        ("port-held", "CRITICAL"),
        ("strict", "CRITICAL"),
        ("check-crashed", "UNKNOWN"),
        ("no-torch", "UNKNOWN"),
        ("absent", "UNKNOWN"),
        ("interrupted", "UNKNOWN"),
    ],
)
def test_a_verdict_and_its_word(scenario: str, word: str) -> None:
    assert parts(judged(scenario))[0] == word


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_and_its_code(verdict: Verdict) -> None:
    """Undecided is never OK, nor is what was cut short or could not be written down."""
    exits = {Verdict.READY: 0, Verdict.NOT_READY: 3, Verdict.UNDECIDED: 4, Verdict.INCOMPLETE: 5}
    of = report(NODES, row("net.port", each(NODES)), verdict=verdict)
    of = dataclasses.replace(of, exit_code=exits[verdict])
    wanted = {Verdict.READY: 0, Verdict.NOT_READY: 2}.get(verdict, 3)
    assert code(of) == wanted
    assert parts(of)[0] == WORDS[wanted]
    assert code(of, "r.json: No space left on device") == max(wanted, 1)
    interrupt = Interrupt()
    interrupt.name = "SIGTERM"
    assert code(of, interrupt=interrupt) == (2 if verdict is Verdict.NOT_READY else 3)


def test_a_run_that_was_cut_short_is_unknown() -> None:
    of = dataclasses.replace(judged("healthy"), exit_code=143)
    assert code(of) == 3
    assert parts(of)[0] == "UNKNOWN"


def test_the_worst_finding_is_told_and_the_rest_counted() -> None:
    at = Subject(Kind.NIC, "gpu-b02", "mlx5_2", (6,), port=1)
    found = [
        finding("net.rdma", at, headline="RDMA port mlx5_2:1 is down · cable?"),
        finding("net.rdma", Subject(Kind.NODE, "gpu-b01"), saw="another"),
        finding("host.cpu", Subject(Kind.NODE, "gpu-b01"), status=W),
        finding("host.limits", Subject(Kind.NODE, "gpu-b01"), status=U),
    ]
    of = report(NODES, row("net.rdma", each(NODES)), findings=found, verdict=Verdict.NOT_READY)
    text = "net.rdma:code RDMA port mlx5_2:1 is down, cable? (+1 more)"
    assert parts(of) == ("CRITICAL", text, "1", "2", "1", "4.0")


def test_why_it_is_unknown_where_there_is_no_finding() -> None:
    assert parts(judged("no-torch"))[1].startswith("torch is not installed here, ")
    assert "2 of 8 ranks did not arrive" in parts(judged("absent"))[1]


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_whatever_a_report_holds_it_is_one_line_with_one_bar(foreign: str) -> None:
    parts(hostile(foreign))


def test_a_long_text_is_cut() -> None:
    assert parts(hostile("word " * 10_000))[1].endswith("...")


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize(
    "foreign",
    [
        "$(echo owned)",
        "`echo owned`",
        "'; echo owned; '",
        '"; echo owned; "',
        "\\",
        "$HOME",
        "${x}",
    ],
)
def test_a_shell_that_is_given_the_line_runs_nothing(quote: str, foreign: str) -> None:
    """Commands that notify somebody have the line put between quotes."""
    line = nagios.render(hostile(foreign)).rstrip("\n")
    command = f"printf %s {quote}{line}{quote}"
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=20)
    assert (said.stdout, said.stderr) == (line, "")
