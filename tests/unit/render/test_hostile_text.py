"""What a report holds is foreign: no letter of it moves a cursor, hides, or is lost in the JSON."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.scenarios import NAMES, hostile, judged

from preflight.model import Report, Status
from preflight.render import human
from preflight.render import json as as_json
from preflight.render.human import Look
from preflight.render.style import ASCII, GLYPHS

every_scenario = pytest.mark.parametrize("scenario", NAMES)
a_width = pytest.mark.parametrize("width", [98, 80, 40])


def shown(report: Report, **look: object) -> str:
    return human.render(report, Look(**look))  # type: ignore[arg-type]


def flat(printed: str) -> str:
    return " ".join(printed.split())


@every_scenario
def test_colours_change_nothing_but_colours(scenario: str) -> None:
    coloured = shown(judged(scenario), colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(judged(scenario))
    assert coloured.endswith("\n")
    for line in coloured.splitlines():  # a line that is cut out leaves the terminal as it was
        assert line.rpartition("\x1b[")[2].startswith("0m") or "\x1b" not in line


def test_ascii_has_a_mark_for_every_status() -> None:
    assert set(ASCII) == set(GLYPHS) == set(Status)
    assert all(mark.isascii() for mark in ASCII.values())
    assert len(set(ASCII.values())) == len(set(GLYPHS.values())) == len(Status)


@pytest.mark.slow
@every_scenario
def test_ascii_is_ascii(scenario: str) -> None:
    for flags in ({}, {"verbose": True}, {"width": 40}, {"colour": True}):
        assert shown(judged(scenario), ascii=True, **flags).isascii()


def unprintable(printed: str) -> set[str]:
    """Categories of what a terminal may obey or hide; a line's end is ours."""
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {letter for letter in printed if unicodedata.category(letter) in hidden} - {"\n"}


@pytest.mark.slow
@a_width
@every_scenario
def test_nothing_foreign_reaches_the_terminal(scenario: str, width: int) -> None:
    for flags in ({}, {"verbose": True}, {"quiet": True}):
        assert unprintable(shown(judged(scenario), width=width, **flags)) == set()


@settings(deadline=None)  # of one example; the first one imports rich
@given(st.text(alphabet=st.characters(), max_size=30))
@example("000000\ud800")
def test_whatever_a_report_holds_can_be_shown_and_saved(foreign: str) -> None:
    report = hostile(foreign)
    for flags in ({}, {"verbose": True, "ascii": True}, {"colour": True, "width": 40}):
        printed = shown(report, saved_as=foreign, **flags)
        assert unprintable(re.sub(r"\x1b\[[0-9;]*m", "", printed)) == set()
    saved = as_json.render(report)
    saved.encode()
    assert json.loads(saved)["findings"][0]["saw"] == foreign
    assert shown(as_json.parse(saved), verbose=True) == shown(report, verbose=True)


def test_a_long_text_does_not_flood_the_screen() -> None:
    report = hostile("word " * 40_000)
    assert len(shown(report, verbose=True)) < 60_000
    assert "… (200000 characters)" in flat(shown(report))
    assert json.loads(as_json.render(report))["findings"][0]["saw"] == "word " * 40_000
