"""Markdown as GitHub's own parser reads it: foreign text stays text, commands can be copied."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

import cmarkgfm
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.reports import F, each, finding, of_nodes, report, row
from support.scenarios import NAMES, hostile, judged

from preflight.model import Kind, Subject
from preflight.render import human, markdown
from preflight.sanitize import legible

every_scenario = pytest.mark.parametrize("scenario", NAMES)
OURS = {"h3", "p", "table", "thead", "tbody", "tr", "th", "td", "pre", "code"}
UNSEEN = "\u200b"


@dataclass
class Page(HTMLParser):
    """What a browser would show: the tags, the cells of the table, the code, the rest."""

    tags: set[str] = field(default_factory=set)
    rows: list[list[str]] = field(default_factory=list)
    code: str = ""
    text: str = ""
    within: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.within.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.within.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.within[-1] if self.within else ""
        if inside == "code":
            self.code += data
        elif inside in ("td", "th"):
            self.rows[-1][-1] += data
        else:
            self.text += data


def page(text: str) -> Page:
    made = Page()
    made.feed(cmarkgfm.github_flavored_markdown_to_html(text))
    made.close()
    return made


def shown(text: str) -> str:
    """As it is seen: blanks are one, and what has no width is not there."""
    return " ".join(text.replace(UNSEEN, "").split())


@every_scenario
def test_the_findings_are_a_table_and_the_rest_is_the_screen(scenario: str) -> None:
    of = judged(scenario)
    made = page(markdown.render(of))
    assert made.tags <= OURS
    head, *rows = made.rows
    if of.findings:
        assert head == ["Result", "Finding", "Where", "What is wrong"]
        told = [[f.name, shown(legible(f.headline))] for f in of.findings]
        assert [[cells[1], shown(cells[3])] for cells in rows] == told
        assert made.code == human.render(of, human.Look(quiet=True))
    else:
        assert head == ["Result", "Check", "Time", "Measured"]
        assert {cells[1] for cells in rows} <= {r.id for r in of.rows}
    assert made.text.strip().startswith("preflight: ")


def test_green_is_a_table_of_numbers_and_one_line() -> None:
    text = markdown.render(judged("two-nodes"))
    assert "```" not in text
    assert text.endswith("\n13 checks on 8/8 ranks · 4.0 s\n")
    assert "| ✓ PASS | host.limits | 100 ms | memlock unlimited · " in text


def test_what_was_left_out_is_said_where_all_is_well() -> None:
    assert (
        "skipped     host.storage, world.loader: by you"
        in page(markdown.render(judged("skipped-by-you"))).code
    )


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=40))
@example("__a_")
@example("a_b_ _c_d")
@example("\\|")
@example("a\\")
@example("![x](http://a.example)")
@example("<b onclick=x>&lt;")
@example("https://a.example www.a.example ftp://a.example a@b.example")
@example("mailto:a@b.example xmpp:a@b.example")
@example("$a$ ~~b~~ :-- | --- |")
@example("[^1] [x] <!-- -->")
def test_foreign_text_in_a_cell_is_what_it_was(foreign: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {markdown.escaped(foreign)} | end |\n"
    made = page(table)
    assert made.tags == OURS - {"h3", "p", "pre", "code"}
    assert [shown(cell) for cell in made.rows[1]] == [shown(legible(foreign)), "end"]


@pytest.mark.parametrize("foreign", ["@everyone", "a @org/team b", "@@x", "x@y"])
def test_nobody_is_called(foreign: str) -> None:
    seen = html.unescape(markdown.escaped(foreign))
    assert not [a for a, b in pairwise(seen) if a == "@" and b.isalnum()]


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=30))
@example("```")
@example("````\n# x")
@example("``` " * 60)
@example("x " * 44 + "```")
@example("~~~")
def test_whatever_a_report_holds_it_stays_in_its_place(foreign: str) -> None:
    of = hostile(foreign)
    for text in (markdown.render(of), markdown.brief(of)):
        assert page(text).tags <= OURS
        text.encode()
    made = page(markdown.render(of))
    assert made.code == human.render(of, human.Look(quiet=True))
    assert len(made.rows) == 2


def test_it_is_bounded() -> None:
    nodes = of_nodes(1)
    found = [
        finding(f"net.a{n}", Subject(Kind.NODE, "gpu-b01"), saw=f"{n} " + "@" * 2000)
        for n in range(3000)
    ]
    of = report(nodes, row("net.port", each(nodes, F)), findings=found)
    text = markdown.render(of)
    assert len(text.encode()) < 1 << 20
    made = page(text)
    assert made.rows[-1] == ["…", "2900 more", "", ""]
    assert " 2980 more findings: -v shows them, the JSON report has them" in made.code
    assert len(made.code.splitlines()) < markdown.LINES
    assert "### preflight: NOT READY" in text


def test_the_short_one_is_the_verdict() -> None:
    text = markdown.brief(judged("nodes-64"))
    assert text.splitlines()[0] == "### preflight: NOT READY"
    assert text.splitlines()[-1] == "2 findings · 12 of 14 checks passed · 512/512 ranks · 9.0 s"
    assert len(text) < 300


def test_the_line_to_act_on_can_be_copied() -> None:
    code = page(markdown.render(judged("nodes-64"))).code
    assert "do now      sbatch --exclude=gpu-b19   # and your job script" in code


def test_annotations_are_one_line_each_whatever_a_finding_says() -> None:
    """A workflow command of GitHub ends at the line's end, and its title at the next colon."""
    nodes = of_nodes(1)
    hostile = "50%\n::error::x\r, y: z"
    found = [finding("net.port", Subject(Kind.NODE, "gpu-b01"), headline=hostile, code="a:b")] * 99
    of = report(nodes, row("net.port", each(nodes, F)), findings=found)
    lines = list(markdown.workflow_commands(of))
    assert len(lines) == markdown.ANNOTATIONS
    assert set(lines) == {"::error title=preflight net.port%3Aa%3Ab::50%25 ::error::x\\x0d, y: z"}
