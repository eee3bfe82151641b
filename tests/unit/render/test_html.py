from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.util
import re
import zlib
from html.parser import HTMLParser

import pytest
from support import scenarios
from support.reports import F, P, each, of_nodes, report, row

from preflight.baseline.diff import difference
from preflight.config import resolve
from preflight.model import (
    Cell,
    Doing,
    Grid,
    Kind,
    Lanes,
    PreflightError,
    Report,
    Span,
    Subject,
    Swimlane,
)
from preflight.nodeset import folded
from preflight.render import html
from preflight.render import json as as_json
from preflight.render.html import drawings, embedded, page

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "<!--<script>alert(1)//-->",
    "</title><iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "{{ 7*7 }}{% raw %}",
    "<a href=javascript:alert(1)>x</a>",
    "\x00<b>\u202egnp.exe\x1b[31m",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
)


class Seen(HTMLParser):
    """Every element of a page, and every attribute with what begins like a script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.bad: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            active = name.startswith("on") or name in ("style", "src", "srcdoc", "action")
            if active or (name in ("href", "d") and (value or "").lower().startswith("java")):
                self.bad.append(f"{tag} {name}={value}")


OURS = frozenset(
    re.findall(
        r"\w+",
        """
        html head meta title style body a header p h1 h2 h3 span time b div code button small
        nav main section article dl dt dd details summary figure figcaption svg rect path
        circle table thead tbody tr th td form label input select option output script footer
        text g br polyline
        """,
    )
)
"""All elements that the templates have."""


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_of_others_becomes_part_of_the_page(payload: str) -> None:
    report = scenarios.hostile(payload)
    page = html.render(report)
    calm = html.render(scenarios.hostile("word"))
    seen = Seen(page)
    assert seen.tags <= OURS
    assert seen.bad == []
    assert page.count("<script") == calm.count("<script")
    assert page.count("<style") == 1
    assert "\x00" not in page
    assert "\u202e" not in page
    assert as_json.parse(embedded.unpacked(page)).observations == report.observations


def test_what_is_drawn_is_escaped_too() -> None:
    bad = '"><script>alert(1)</script>'
    report = scenarios.judged("healthy")
    names = (bad, bad + "2", "n3")
    drawn = dataclasses.replace(
        report.rows[0].measured,
        grid=Grid(bad, names, names, (Cell(0, 1, 0.1), Cell(1, 2, 1.0)), 1.0, bad),
        lanes=Lanes(bad, bad, (Swimlane(bad, (Span(0, 1, Doing.STUCK, bad),)),)),
    )
    row = dataclasses.replace(report.rows[0], measured=drawn)
    page = html.render(dataclasses.replace(report, rows=(row, *report.rows[1:])))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert Seen(page).tags <= OURS


def test_the_policy_lets_only_our_own_script_and_style_run() -> None:
    page = html.render(scenarios.judged("port-held"))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    told = policy[1].replace("&#39;", "'")
    assert told.startswith("default-src 'none'; ")
    assert "unsafe" not in told
    for tag in ("style", "script"):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in told


def test_nothing_is_fetched() -> None:
    page = html.render(scenarios.judged("nodes-64"))
    assert not re.search(r"\b(?:src|href)=(?!\"#)", page)
    assert not re.search(r"url\(|@import|https?://", page.partition("<script type")[0])


@pytest.mark.parametrize("scenario", ["port-held", "rehearsed", "sick-gpus", "hostile"])
def test_the_report_can_be_taken_out_again(scenario: str) -> None:
    report = scenarios.judged(scenario)
    again = as_json.parse(embedded.unpacked(html.render(report)))
    assert as_json.render(again) == as_json.render(report)


def block(text: bytes) -> str:
    packed = base64.b64encode(zlib.compress(text)).decode()
    return f'<!DOCTYPE html><script type="{embedded.TYPE}" data-check="">{packed}</script>'


@pytest.mark.parametrize(
    "page",
    [
        "<!DOCTYPE html><p>a page",
        block(b"[]"),
        block(b"no json"),
        block(b"\xff\xfe"),
        block(b'{"a": NaN}'),
        block(b"[" * 5000),
        f'<!DOCTYPE html><script type="{embedded.TYPE}">AAAA</script>',
        f'<!DOCTYPE html><script type="{embedded.TYPE}">A</script>',
    ],
)
def test_a_page_without_a_report_is_refused_in_one_line(page: str) -> None:
    with pytest.raises(PreflightError) as error:
        as_json.parse(embedded.unpacked(page))
    assert "\n" not in str(error.value)


def test_what_is_packed_too_well_is_not_unpacked() -> None:
    bomb = block(b'{"a":"' + b"x" * (as_json.LIMIT + 1) + b'"}')
    assert len(bomb) < 1 << 20
    with pytest.raises(PreflightError, match="longer than 64 MiB"):
        embedded.unpacked(bomb)


def test_a_difference_has_the_later_report() -> None:
    before, after = scenarios.judged("two-nodes"), scenarios.judged("slow-nic")
    page = html.render_diff(("a.json", "<b>"), (before, after), difference(before, after))
    assert Seen(page).tags <= OURS
    assert "&lt;b&gt;" in page
    again = as_json.parse(embedded.unpacked(page))
    assert again.verdict is after.verdict
    assert again.findings == as_json.parse(as_json.render(after)).findings


def test_without_jinja_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PreflightError, match=r"pip install 'cluster-preflight\[html\]'"):
        resolve.known_format("html", "-o")
    assert resolve.known_format("json", "-o") == "json"


# --- drawings ---


def mesh(count: int, *closed: tuple[int, int], rest: float | None = 1.0) -> Grid:
    names = tuple(f"n{i}" for i in range(count))
    return Grid("mesh", names, names, tuple(Cell(a, b, 0.0) for a, b in closed), 1.0, rest=rest)


def test_a_map_of_what_reaches_each_other_says_what_does_not() -> None:
    drawn = drawings.map_of(mesh(8, (2, 5)))
    assert drawn is not None
    assert drawn.low == ["n2 to n5"]
    assert not drawn.rates
    assert set(drawn.paths) == {0, 4}
    assert drawn.step == 1


def test_a_healthy_map_is_short() -> None:
    drawn = drawings.map_of(mesh(128))
    assert drawn is not None
    # at most two rectangles a row: left and right of the node itself
    assert drawn.paths[0].count("M") <= 2 * 128
    assert drawn.low == []


def test_what_was_not_measured_is_drawn_as_nothing() -> None:
    drawn = drawings.map_of(mesh(8, (2, 5), rest=None))
    assert drawn is not None
    assert set(drawn.paths) == {4}
    assert drawings.map_of(mesh(8, rest=None)) is None


def test_many_nodes_are_drawn_by_blocks_that_open() -> None:
    drawn = drawings.map_of(mesh(512, (100, 300)))
    assert drawn is not None
    assert drawn.step == 8
    assert drawn.low == ["n100 to n300", "n300 to n100"]
    names = [name for name, _ in drawn.opened]
    assert names == ["n[96-103] to n[296-303]", "n[296-303] to n[96-103]"]
    inside = drawn.opened[0][1]
    assert inside.low == ["n100 to n300: 0%"]
    assert inside.count == (8, 8)


def lanes(count: int, late: int) -> Lanes:
    return Lanes(
        "came",
        "s",
        tuple(
            Swimlane(
                f"n{i}",
                (Span(0, at := 9.0 if i == late else 1.0, Doing.ABSENT, "came"), Span(at, 9.0)),
            )
            for i in range(count)
        ),
    )


def test_of_many_lanes_the_late_one_is_drawn_in_its_place() -> None:
    drawn = drawings.lanes_of(lanes(512, 400), [])
    assert drawn is not None
    names = [lane.name for lane in drawn.lanes]
    assert len(names) == drawings.LANES
    assert "n400" in names
    assert drawn.left == 512 - drawings.LANES
    assert [lane.name for lane in drawn.lanes if lane.odd] == []


def test_whom_a_finding_is_about_is_marked() -> None:
    drawn = drawings.lanes_of(lanes(512, 400), [Subject(Kind.NODE, "n7")])
    assert drawn is not None
    assert [lane.name for lane in drawn.lanes if lane.odd] == ["n7"]


def test_no_time_is_no_picture() -> None:
    assert drawings.lanes_of(Lanes("", "s", ()), []) is None
    assert drawings.lanes_of(Lanes("", "s", (Swimlane("n1", (Span(0, 0),)),)), []) is None


def test_how_ranks_came_up_is_one_axis() -> None:
    report: Report = scenarios.judged("three-nodes")
    made = drawings.bring_up(report)
    assert made is not None
    keys = [f"{n.name}/{r}" for n in report.observations.topology.nodes for r in n.ranks]
    assert [lane.key for lane in made.lanes] == keys
    for lane in made.lanes:
        ends = [span.end for span in lane.spans]
        assert ends == sorted(ends)


def test_what_is_broken_is_drawn_first_and_marked() -> None:
    machines, left = drawings.machines(scenarios.judged("sick-gpus"))
    assert machines[0].broken
    broken = {(m.name, box.name) for m in machines for box in m.boxes if box.broken}
    assert ("gpu-b08", "GPU 1") in broken or ("gpu-b09", "GPU 1") in broken
    assert left == 0


def test_the_json_report_keeps_what_is_drawn() -> None:
    report = scenarios.judged("three-nodes")
    measured = dataclasses.replace(
        report.rows[0].measured, grid=mesh(3, (0, 1)), lanes=lanes(3, 1), parts=()
    )
    report = dataclasses.replace(
        report, rows=(dataclasses.replace(report.rows[0], measured=measured), *report.rows[1:])
    )
    again = as_json.parse(as_json.render(report))
    assert again.rows[0].measured == measured


def test_thousands_of_nodes_are_lines_of_those_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "DRAWN_NODES", 8)
    many = of_nodes(40, ranks=1)
    bad = (many[3].name, many[4].name)
    of = report(many, row("net.port", {n.name: F if n.name in bad else P for n in many}))
    (worst, _), (others, _) = page.of_report(of)["matrix"]
    assert worst == folded(bad)
    assert others == folded(n.name for n in many if n.name not in bad)
    few = report(many[:8], row("net.port", each(many[:8], P)))
    assert len(page.of_report(few)["matrix"]) == 8
