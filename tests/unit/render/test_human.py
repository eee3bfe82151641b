"""The screen as text: nothing is lost, nothing wider than it must be, nothing foreign obeyed."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest
from support import scenarios
from support.scenarios import NAMES, judged

from preflight import sanitize
from preflight.model import (
    Blame,
    Command,
    Confidence,
    Finding,
    FindingType,
    Kind,
    Node,
    Report,
    Status,
    Subject,
    Verdict,
)
from preflight.render import human
from preflight.render.findings import aside
from preflight.render.human import Look
from preflight.render.layout import GLUE, glued
from preflight.render.style import MARKS_LIMIT

WIDTHS = (98, 80, 40)
every_scenario = pytest.mark.parametrize("scenario", NAMES)
a_width = pytest.mark.parametrize("width", WIDTHS)


def shown(report: Report, **look: object) -> str:
    return human.render(report, Look(**look))  # type: ignore[arg-type]


def whole(report: Report) -> Iterator[str]:
    """What may make a line longer than the screen: it is there to be copied."""
    for finding in report.findings:
        assert finding.advice is not None
        yield finding.advice.now.partition("   ")[0]
        words = glued(Look().paste(finding.advice.text)).split(" ")
        yield from (word.replace(GLUE, " ") for word in words if GLUE in word)
        yield from (command.run for command in finding.advice.commands)


# --- no line is wider than the screen ---


@pytest.mark.slow
@a_width
@every_scenario
def test_lines_fit(scenario: str, width: int) -> None:
    report = judged(scenario)
    for flags in ({}, {"verbose": True}, {"ascii": True}):
        uncut = {sanitize.legible(part, "ascii" in flags) for part in whole(report)}
        for line in shown(report, width=width, **flags).splitlines():
            long_word = max(map(len, line.split()), default=0) > width // 2
            of_command = any(part and part in line for part in uncut)
            traceback = flags == {"verbose": True} and line.startswith("   ")
            assert len(line) <= width or long_word or of_command or traceback, line


@pytest.mark.slow
@a_width
@every_scenario
def test_no_blanks_at_the_end_and_no_gaps(scenario: str, width: int) -> None:
    for flags in ({}, {"verbose": True}, {"quiet": True}, {"ascii": True}):
        printed = shown(judged(scenario), width=width, **flags)
        assert printed.endswith("\n")
        assert not printed.endswith("\n\n")
        assert "\n\n\n" not in printed
        assert [line for line in printed.splitlines() if line != line.rstrip()] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 20, 30, 60, 61, 120, 1000])
def test_any_width_can_be_printed_to(width: int) -> None:
    for scenario in NAMES:
        assert shown(judged(scenario), width=width)


# --- nothing is lost ---


def flat(printed: str) -> str:
    return " ".join(printed.split())


@a_width
@pytest.mark.parametrize("scenario", [name for name in NAMES if name != "hostile"])
def test_ids_and_subjects_are_never_cut(scenario: str, width: int) -> None:
    report = judged(scenario)
    printed = flat(shown(report, width=width, quiet=True))
    for finding in report.findings:
        assert finding.check in printed
        for subject in finding.subjects:
            for part in (subject.node, subject.name if subject.kind is not Kind.RANK else ""):
                assert part in printed
        assert all(check in printed for check in finding.folded)


@every_scenario
def test_a_failure_says_all_it_knows(scenario: str) -> None:
    report = judged(scenario)
    printed = flat(shown(report))
    for finding in report.findings:
        if finding.status is Status.FAIL and len(finding.saw) < sanitize.LONGEST:
            assert finding.advice is not None
            for part in (finding.saw, finding.expected, finding.advice.means, finding.advice.text):
                assert flat(sanitize.legible(part)) in printed
            assert f"who {finding.advice.who} more preflight explain {finding.check}" in printed


@every_scenario
def test_what_was_not_run_is_in_the_verdict_with_its_reason(scenario: str) -> None:
    report = judged(scenario)
    printed = flat(shown(report, quiet=True))
    last = printed.rpartition(f" {report.verdict.name.replace('_', ' ')} ")[2]
    for row in report.rows:
        seen = report.observations.checks[row.id]
        causes = {getattr(o, "cause", None) for o in seen.values()} - {None, "not_applicable"}
        if row.status is Status.SKIP and causes:
            assert row.id in last
            reason = "by you" if row.id in report.skipped else row.reason
            assert reason.removeprefix("not started: ") in last


@a_width
def test_marks_stand_under_the_name_of_their_node(width: int) -> None:
    """The node's name, and each first mark below it, begin in the same column."""
    lines = shown(judged("healthy"), width=width).splitlines()
    heading = next(line for line in lines if line.strip() == "gpu-b07")
    column = heading.index("gpu-b07")
    rows = [line for line in lines if re.match(r"  [a-z]+\.[a-z0-9]+ ", line)]
    assert len(rows) == len(judged("healthy").rows)
    for row in rows:
        assert row[column] in "✓–"
        assert row[column - 1] == " "
        assert row[: column - 1].strip().count(" ") == 0
    # what was measured begins in one column, too
    assert len({re.match(r".*?[✓–]+ +", row).end() for row in rows}) == 1  # type: ignore[union-attr]


def test_measurements_give_way_first() -> None:
    report = judged("healthy")
    narrow = shown(report, width=40)
    for row in report.rows:
        line = next(line for line in narrow.splitlines() if line.startswith(f"  {row.id} "))
        told = line.split("  ")[-1].strip()
        assert told == row.measured.text or told.endswith("…") or row.status is Status.SKIP
        assert told.removesuffix("…") in (row.measured.text or row.reason)


def two_nodes(names: Sequence[str]) -> Report:
    """The healthy report as if two nodes had been there."""
    report = judged("healthy")
    seen = report.observations
    nodes = tuple(Node(name, (2 * n, 2 * n + 1)) for n, name in enumerate(names))
    rows = tuple(
        dataclasses.replace(
            row,
            by_subject={f"{node.name}/{rank}": Status.PASS for node in nodes for rank in node.ranks}
            if len(row.by_subject) > 1
            else {node.name: Status.PASS for node in nodes},
        )
        for row in report.rows
    )
    topology = dataclasses.replace(seen.topology, nodes=nodes)
    return dataclasses.replace(
        report, rows=rows, observations=dataclasses.replace(seen, topology=topology)
    )


@pytest.mark.parametrize("names", [("a", "b"), ("gpu-b07", "gpu-b08.cluster.local")], ids=str)
def test_two_nodes_have_a_column_each(names: tuple[str, str]) -> None:
    lines = shown(two_nodes(names)).splitlines()
    heading = next(line for line in lines if line.split() == list(names))
    columns = [heading.index(name) for name in names]
    row = next(line for line in lines if line.startswith("  rdzv.store"))
    assert [row[column : column + 2] for column in columns] == ["✓✓", "✓✓"]


def test_more_ranks_than_marks_are_counted() -> None:
    printed = shown(judged("ranks-24"))
    assert "?23 ✗1" in printed  # the 23 did not get through: no green for them
    assert "✓" * (MARKS_LIMIT + 1) not in printed
    assert "✓" * 8 in shown(judged("healthy-8-ranks"))


# --- what it says ---


def test_a_green_report_shows_every_check_and_a_red_one_what_is_odd() -> None:
    green, red = shown(judged("healthy")), shown(judged("port-held"))
    assert all(row.id in green for row in judged("healthy").rows)
    assert "  host.limits" not in red
    assert " machine   8 of 9 passed" in red
    assert " training  1 of 4 passed" in red
    assert "rdzv.store       ––––  needs net.port" in red
    assert all(row.id in shown(judged("port-held"), verbose=True) for row in judged("healthy").rows)


def test_consequences_are_under_their_cause() -> None:
    report = judged("folded")
    printed = shown(report)
    assert "   explains   rdzv.store · world.gloo · world.ddp\n" in printed
    assert "1 finding (explains 3 more)" in printed
    for check in ("rdzv.store", "world.gloo", "world.ddp"):
        assert f"✗ {check} " not in printed
        assert re.search(rf"^  {check} +✗✗✗✗  follows from net\.name", printed, re.MULTILINE)


@every_scenario
def test_do_now_is_last(scenario: str) -> None:
    report = judged(scenario)
    printed = shown(report, saved_as="preflight.json")
    label, told = "do now", human.do_now(report)
    if not told:
        assert "\n do now" not in printed
        label, told = "fix", human.repair(report)
    if told:
        last = printed.rpartition(f"\n {label:<12}")[2]
        assert flat(last).replace("# ", "") == flat(sanitize.legible(told))
    assert bool(told) is (report.verdict is not Verdict.READY and scenario not in UNADVISED)


UNADVISED = {"interrupted", "no-torch", "absent"}
"""Nothing is wrong there: it was stopped by hand, it is missing by intention; or nobody looked who
is absent (rdzv.reach)."""


def test_a_command_can_be_pasted_with_its_remark() -> None:
    printed = shown(judged("port-held"))
    assert "\n do now      export MASTER_PORT=29600\n" in printed, "there is one node"
    fabric = judged("tcp-for-infiniband")
    assert "\n do now      unset NCCL_IB_DISABLE   # on every node\n" in shown(fabric)
    narrow = shown(fabric, width=40).splitlines()
    at = narrow.index(" do now      # on every node")
    assert narrow[at + 1 :] == ["             unset NCCL_IB_DISABLE"]


@pytest.mark.parametrize(
    ("command", "alone", "wanted"),
    [
        (Command("x"), True, ""),
        (Command("x", "the node"), True, ""),
        (Command("x", "the node"), False, "on gpu-b08"),
        (Command("x", "the node, as root"), True, "as root"),
        (Command("x", "the node, as root"), False, "on gpu-b08, as root"),
        (Command("x", "the node of rank 0"), True, ""),
        (Command("x", "the node of rank 0"), False, "on the node of rank 0"),
        (Command("x", "the job script"), True, "in the job script"),
        (Command("x", "the node", "ENDS ALL JOBS THERE"), True, "ENDS ALL JOBS THERE"),
        (Command("x", "the node", "the fabric"), False, "on gpu-b08, disturbs the fabric"),
    ],
)
def test_where_to_type_it_and_whom_it_disturbs(command: Command, alone: bool, wanted: str) -> None:
    assert aside(command, "" if alone else "gpu-b08", alone) == wanted


def test_warnings_are_short_and_undecided_says_why() -> None:
    warning = shown(judged("typo-in-env")).partition("\n ! env.vars")[2].partition("\n ! ")[0]
    assert [line.split()[0] for line in warning.splitlines()[1:]] == [
        "where",
        "saw",
        "expected",
        "means",
        "fix",
    ]
    undecided = shown(judged("cannot-look"))
    assert "could not look on gpu-b07: /proc/self/mountinfo: Permission denied\n" in undecided
    assert "UNDECIDED, " not in undecided  # of what nobody saw nothing is likely


def test_strict_says_why_a_warning_is_enough() -> None:
    report = judged("strict")
    verdict = flat(shown(report)).partition(" NOT READY")[2]
    assert verdict.startswith(f" {report.findings[0].headline} ")
    assert " 2 warnings (strict) · " in verdict


def test_what_is_waived_is_in_the_verdict() -> None:
    printed = shown(judged("tolerated"))
    assert "\n tolerated   host.storage\n" in printed
    assert "tolerated: scratch is mounted at night, INC-1234" in flat(printed)
    assert "its waiver ended on 2025-10-31" in flat(shown(judged("waiver-expired")))


def test_a_check_that_is_not_needed_says_so() -> None:
    report = judged("cannot-look")
    rows = tuple(dataclasses.replace(row, required=False) for row in report.rows)
    assert "Permission denied · not needed to start" in shown(
        dataclasses.replace(report, rows=rows)
    )


def test_the_saved_report_is_named() -> None:
    assert "\n report      a.json   (preflight show a.json)\n" in shown(
        judged("healthy"), saved_as="a.json"
    )
    quoted = shown(judged("healthy"), saved_as="a b.json")
    assert "\n report      'a b.json'   (preflight show 'a b.json')\n" in quoted


def finding(*subjects: Subject, **changes: object) -> Finding:
    made = Finding(
        "code", Status.FAIL, subjects, "saw it", blame=Blame.NODE, check="net.rdma", advice=None
    )
    return made.with_(**{"headline": "it is bad", **changes})


def test_a_command_is_the_fix_where_there_is_no_text() -> None:
    """It goes under the text where there is one."""
    command = (Command("ls /dev/shm", "the node"), Command("reboot", "", "ENDS ALL JOBS THERE"))
    for sentence, first in (
        ("", "   fix          ls /dev/shm"),
        ("grow it", "   fix        grow it"),
    ):
        advice = FindingType(
            who="who", cause="cause", means="means", text=sentence, commands=command
        )
        report = dataclasses.replace(
            judged("healthy"), findings=(finding(of_rank(0), advice=advice),)
        )
        lines = shown(report).splitlines()
        at = lines.index(first)
        more = lines[at + 1 : at + (2 if not sentence else 3)]
        assert more[-1] == "                reboot   # ENDS ALL JOBS THERE"
        assert len(more) == 1 or more[0] == "                ls /dev/shm"


def of_rank(rank: int, node: str = "n1") -> Subject:
    return Subject(Kind.RANK, node, str(rank), (rank,))


@pytest.mark.parametrize(
    ("subjects", "wanted"),
    [
        ((of_rank(3),), "n1 · rank 3"),
        ((of_rank(0), of_rank(2), of_rank(1), of_rank(5)), "n1 · ranks 0-2,5"),
        ((of_rank(0), of_rank(4, "n2")), "n1 · rank 0, n2 · rank 4"),
        ((Subject(Kind.NODE, "n1", ranks=(0, 1)),), "n1 · ranks 0-1"),
        ((Subject(Kind.NODE, "n1"), Subject(Kind.NODE, "n2")), "n1, n2"),
        ((Subject(Kind.NIC, "n1", "mlx5_2", (6,), port=1),), "n1 · mlx5_2 · port 1 · rank 6"),
        ((Subject(Kind.LINK, "n1", to="n2"),), "n1->n2"),
        ((Subject(Kind.JOB),), "job"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_subjects_are_named_and_folded(subjects: tuple[Subject, ...], wanted: str) -> None:
    report = dataclasses.replace(judged("healthy"), findings=(finding(*subjects),))
    printed = shown(report).splitlines()
    at = printed.index(" ✗ net.rdma:code   it is bad")
    line = printed[at + 1]
    assert re.fullmatch(rf"   where      {re.escape(wanted)} {{3,}}FAIL, certain", line)
    assert len(line) == human.WIDTH


@pytest.mark.parametrize("confidence", Confidence)
def test_how_sure_we_are_is_a_word(confidence: Confidence) -> None:
    """And so is the status: never a colour or a glyph alone."""
    for status, word in ((Status.FAIL, "FAIL"), (Status.WARN, "WARN")):
        found = finding(of_rank(0), status=status, confidence=confidence, alternatives=("b",))
        printed = shown(dataclasses.replace(judged("healthy"), findings=(found,)))
        sure = status is Status.WARN and confidence is Confidence.CERTAIN
        assert f"{word}\n" in printed if sure else f"{word}, {confidence}\n" in printed
        told = status is Status.FAIL or confidence is Confidence.POSSIBLE
        assert ("could be   b\n" in printed) is told


# --- what it costs ---


def test_rich_is_there_for_colours_only() -> None:
    script = """
import sys
from support import scenarios
from preflight.render import human
report = scenarios.judged("port-held")
human.render(report, human.Look(verbose=True))
assert "rich" not in sys.modules, "imported for plain text"
human.render(report, human.Look(colour=True))
assert "rich" in sys.modules
assert "rich.table" not in sys.modules
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(scenarios.GOLDEN.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_screen_takes_a_few_milliseconds() -> None:
    report = judged("ranks-24")
    taken = []
    for _ in range(7):
        began = time.process_time()
        shown(report, verbose=True)
        taken.append(time.process_time() - began)
    assert min(taken) < 0.03


def test_the_verdict_and_the_last_line_are_about_the_same() -> None:
    """A node is left out for what the first line says of it, not for a setting found before."""
    report = judged("closed-node")
    assert report.exclude == ("gpu-b08",)
    assert human.do_now(report).startswith("sbatch --exclude=gpu-b08 ")
    assert human.first_headline(report)[0].startswith("gpu-b08 can't be reached")


def test_an_undecided_run_without_a_finding_says_what_was_in_the_way() -> None:
    assert human.first_headline(judged("no-torch")) == ["torch is not installed here"]


# --- what a check says below its row ---


def with_notes(*notes: str) -> Report:
    report = judged("healthy")
    measured = dataclasses.replace(report.rows[0].measured, notes=notes)
    rows = (dataclasses.replace(report.rows[0], measured=measured), *report.rows[1:])
    return dataclasses.replace(report, rows=rows)


def test_notes_are_below_their_row() -> None:
    report = with_notes("rank  samples", "   0       32")
    shown_lines = shown(report, width=80).splitlines()
    at = next(n for n, line in enumerate(shown_lines) if report.rows[0].id in line)
    assert shown_lines[at + 1 : at + 3] == ["    rank  samples", "       0       32"]


def test_notes_fit_and_are_not_obeyed() -> None:
    report = with_notes("word " * 60, "\x1b[31mred", *map(str, range(1000, 1100)))
    text = shown(report, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "1013" in text
    assert "1014" not in text
    assert "1013" not in shown(report, width=40)
