"""Goldens: what was seen, judged by the real checks, printed, and with which code.

golden/<scenario>.<exitcode>.<format> is made of golden/observations/<scenario>.json (scenarios.py).
`pytest tests/test_golden.py --update-golden` writes them again; a further format of a scenario is
written once there is an empty file of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from support import pages, scenarios
from support.scenarios import GOLDEN, NAMES

from preflight.model import Report
from preflight.render import html, human, junit, markdown, nagios, prometheus, slurm_nodes
from preflight.render import json as as_json

FORMATS: Mapping[str, Callable[[Report], str]] = {
    "human": human.render,
    "human-80": lambda report: human.render(report, human.Look(width=80)),
    "human-40": lambda report: human.render(report, human.Look(width=40)),
    "ascii": lambda report: human.render(report, human.Look(ascii=True)),
    "colour": lambda report: human.render(report, human.Look(colour=True)),
    "quiet": lambda report: human.render(report, human.Look(quiet=True)),
    "verbose": lambda report: human.render(report, human.Look(verbose=True)),
    "json": as_json.render,
    "junit": junit.render,
    "prometheus": prometheus.render,
    "nagios": nagios.render,
    "markdown": markdown.render,
    "slurm": slurm_nodes.render,
    "html": lambda report: pages.bare(html.render(report)),
}
GOLDENS = sorted(path for path in GOLDEN.glob("*.*.*") if path.is_file())
an_observed = pytest.mark.parametrize("scenario", NAMES)


@cache
def judged(scenario: str) -> Report:
    return scenarios.judged(scenario)


def parts(path: Path) -> tuple[str, str, str]:
    """Scenario, exit code and format: what its name says."""
    scenario, code, form = path.name.split(".")
    return scenario, code, form


def update(scenario: str) -> None:
    """Write each golden of a scenario again, under the exit code that it has now."""
    report = judged(scenario)
    forms = {parts(path)[2]: path for path in GOLDENS if parts(path)[0] == scenario}
    for form in {*forms, "human"}:
        printed = FORMATS[form](report)
        if form in forms:
            forms[form].unlink()
        path = GOLDEN / f"{scenario}.{report.exit_code}.{form}"
        path.write_text(printed, encoding="utf-8")


@an_observed
def test_every_scenario_has_its_screen(scenario: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        update(scenario)
    name = f"{scenario}.{judged(scenario).exit_code}.human"
    assert (GOLDEN / name).is_file(), f"no golden/{name}: run with --update-golden, look at it"


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.name)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("is being written anew")
    scenario, code, form = parts(path)
    assert scenario in NAMES, f"no observations/{scenario}.json"
    assert FORMATS[form](judged(scenario)) == path.read_text(encoding="utf-8")
    assert str(judged(scenario).exit_code) == code


def test_all_verdicts_and_statuses_are_covered() -> None:
    reports = [judged(name) for name in NAMES]
    assert {report.exit_code for report in reports} == {0, 3, 4, 5, 130}
    statuses = {str(row.status) for report in reports for row in report.rows}
    assert statuses == {"pass", "warn", "fail", "undecided", "missing", "skip"}


@an_observed
def test_judging_twice_gives_the_same(scenario: str) -> None:
    assert scenarios.judged(scenario) == judged(scenario)


def test_what_failed_or_works_badly_was_looked_at_however_little_it_is_needed() -> None:
    report = judged("mixed-settings")
    assert not next(row for row in report.rows if row.id == "agree.clock").required
    assert "not needed to start" not in human.render(report)


def test_whoever_says_possible_says_what_else() -> None:
    printed = human.render(judged("slow-pair"))
    assert "WARN, possible" in printed
    assert " could be " in printed
