"""The heat map of a grid: dark where a cell is less than usual, no name cut, no line too long."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import catalogue

from preflight.domains.collectives.pair_bandwidth import Exchange, plan
from preflight.domains.net.pairing import NodeNumber
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import (
    Cell,
    Grid,
    Measured,
    Node,
    Observations,
    PreflightError,
    Report,
    Row,
    Seen,
    Status,
    Topology,
)
from preflight.nodeset import folded
from preflight.render import human
from preflight.render import json as report_json
from preflight.render.heatmap import MOST, heatmaps
from preflight.render.style import Look
from preflight.serde import encode

CHECK = "world.bandwidth"
WIDTHS = (98, 80, 40)
VERBOSE = Look(verbose=True)


def names(count: int, form: str = "n{}") -> list[str]:
    return [form.format(i + 1) for i in range(count)]


def report(
    nodes: Sequence[str], rate: Callable[[int, int], float] = lambda a, b: 46.0, **more: Any
) -> Report:
    """What `plan` of these nodes came to: real observations, judged by the real check."""
    count = len(nodes)
    seen: dict[str, Any] = {}
    for i, node in enumerate(nodes):
        met = [(a + b - i) for made in plan(count) for a, b in made if i in (a, b)]
        exchanges = [Exchange(peer, rate(min(i, peer), max(i, peer))) for peer in sorted(set(met))]
        seen[f"{node}/{i}"] = Seen(
            {
                "backend": "nccl",
                "ranks": count,
                "each": 1,
                "curve": [{"bytes": 1 << 30, "seconds": 0.01}],
                "place": encode(NodeNumber(i, count)),
                "pairs": encode(exchanges),
                **more,
            }
        )
    top = Topology(size=count, nodes=tuple(Node(n, (i,)) for i, n in enumerate(nodes)))
    observed = Observations({"version": "0"}, "2026-11-22T00:00:00Z", 1.0, {}, top, {CHECK: seen})
    return verdict.judge(observed, catalogue(), Expect())


def slow(*bad: int, share: float = 0.5) -> Callable[[int, int], float]:
    return lambda a, b: 46.0 * (share if {a, b} & set(bad) else 1)


def text(made: Report, look: Look = VERBOSE) -> list[str]:
    return human.printed(heatmaps(made, look), look).splitlines()


LEGEND = "90% or more · ░ 75% or more · ▒ 50% or more · ▓ 25% or more · █ less"


def test_a_slow_node_is_a_cross() -> None:
    assert text(report(names(5), slow(2)), Look()) == [
        " world.bandwidth · pairs as parts of their median, 46 GB/s",
        "    1 2 3 4 5",
        " n1 \\ · ▒ · ·",
        " n2 · \\ ▒ · ·",
        " n3 ▒ ▒ \\ ▒ ▒",
        " n4 · · ▒ \\ ·",
        " n5 · · ▒ · \\",
        f"   · {LEGEND} · blank: not measured",
        "",
    ]
    assert text(report(names(4), slow(2)), Look())[4] == " n3 ▒ ▒ \\ ▒", "in half of the pairs"


def test_in_ascii_they_are_digits() -> None:
    shown = text(report(names(5), slow(2)), dataclasses.replace(VERBOSE, ascii=True))
    assert shown[4] == " n3 5 5 \\ 5 5"
    assert all(line.isascii() for line in shown)
    assert "tenths of the median; 9: 90% or more" in shown[7]


@pytest.mark.parametrize(
    ("share", "glyph", "digit"),
    [(0.95, "·", "9"), (0.8, "░", "8"), (0.6, "▒", "6"), (0.3, "▓", "3"), (0.01, "█", "0")],
)
def test_the_less_the_darker(share: float, glyph: str, digit: str) -> None:
    made = report(names(7), lambda a, b: 46.0 * (share if (a, b) == (0, 1) else 1))
    assert text(made)[2].split()[2] == glyph
    assert text(made, dataclasses.replace(VERBOSE, ascii=True))[2].split()[2] == digit


def test_when_it_is_shown() -> None:
    fine, odd = report(names(5)), report(names(5), slow(2))
    assert text(fine, Look()) == []
    assert text(fine) != []
    assert text(odd, Look()) != []
    assert text(odd, Look(quiet=True)) == []
    assert text(report(names(2))) == [], "one pair is in the row"
    assert "\n".join(text(odd, Look())) in human.render(odd)
    assert CHECK in human.render(fine)
    assert "pairs as parts" not in human.render(fine)


FORMS = ("n{}", "gpu-b{:02}", "gpu-{:02}.rack.example.com", "ip-10-0-{}-17.ec2.internal")
ODD = ["alpha", "beta-gpu", "a-very-long-name-that-somebody-gave-to-a-machine-of-his", "b", "n#2"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [3, 4, 9, 17, 32])
@pytest.mark.parametrize("form", FORMS)
def test_it_fits_and_no_name_is_cut(width: int, count: int, form: str) -> None:
    nodes = names(count, form)
    shown = text(report(nodes, slow(1)), dataclasses.replace(VERBOSE, width=width))
    assert max(map(len, shown)) <= width, "\n".join(shown)
    cells = [line for line in shown if "\\" in line]
    assert len(cells) == count
    whole = "\n".join(shown)
    assert all(name in whole for name in nodes) or folded(nodes) in whole


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_all_kinds(width: int) -> None:
    shown = text(report(ODD, slow(1)), dataclasses.replace(VERBOSE, width=width))
    longest = max(map(len, ODD))
    assert max(map(len, shown)) <= max(width, longest + 5)
    assert all(name in "\n".join(shown) for name in ODD)


@pytest.mark.parametrize("width", WIDTHS)
def test_of_many_nodes_the_slowest_pairs_are_listed(width: int) -> None:
    shown = text(report(names(MOST + 1), slow(4)), dataclasses.replace(VERBOSE, width=width))
    assert "n5 with n6 50%" in "\n".join(shown)
    assert " more, up to 100%" in " ".join(" ".join(shown).split())
    drawn = [line for line in shown if line.startswith(" ") and "n[" in line]
    assert ("blocks of 2 x 2" in " ".join(shown)) == (width >= 60)
    assert len(shown) < (48 if width >= 60 else 15)
    assert bool(drawn) == (width >= 60)
    assert max(map(len, shown)) <= width


def test_pairs_that_did_not_meet_are_blank() -> None:
    shown = text(report(names(12)))
    row = shown[3]  # two digits above the columns
    assert row.startswith("  n1 \\ ")
    assert len(row[5:].split()) < 12


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["number", "count", "peer", "gbs", "place", "pairs"]), inner
        )
    ),
    max_leaves=9,
)


@settings(max_examples=80, deadline=None)
@given(JSON, JSON, JSON)
def test_what_others_say_draws_a_map_or_none(place: Any, pairs: Any, value: Any) -> None:
    made = report(names(5), slow(2))
    checks = dict(made.observations.checks[CHECK])
    checks["n4/3"] = Seen({"place": place, "pairs": pairs})
    checks["n5/4"] = Seen(value)
    observed = dataclasses.replace(made.observations, checks={CHECK: checks})
    told = verdict.judge(observed, catalogue(), Expect())
    grid = told.rows[0].measured.grid
    assert grid is None or set(grid.rows) <= set(names(5))
    assert all(line.isprintable() for line in text(told))


def test_a_name_moves_no_cursor() -> None:
    shown = text(report(["n1", "n2\x1b[2J", "n3", "n4\n", "n5"], slow(2)))
    assert all(line.isprintable() for line in shown)


def test_in_colour_the_cells_have_some() -> None:
    made = report(names(5), slow(2, share=0.1))
    shown = human.printed(heatmaps(made, VERBOSE), dataclasses.replace(VERBOSE, colour=True))
    assert "\x1b[1;31m█" in shown


def drawn(grid: Grid) -> Report:
    row = Row("a.b", "fabric", "world", Status.PASS, 1.0, {}, Measured("", {}, grid))
    return dataclasses.replace(report(names(3)), rows=(row,), findings=())


def test_any_grid_of_any_check() -> None:
    """GPUs beside NICs, say: two kinds of things, one way."""
    cells = (Cell(0, 0, 10.0), Cell(0, 1, 5.0), Cell(1, 1, 1.0))
    grid = Grid("GB/s as parts of 10 GB/s", ("GPU 0", "GPU 1"), ("ib0", "ib1"), cells, 10.0, "GB/s")
    assert text(drawn(grid)) == [
        " a.b · GB/s as parts of 10 GB/s",
        "       0 1",
        " GPU 0 · ▒",
        " GPU 1   █",
        f"   · {LEGEND} · blank: not measured",
        "",
    ]


def test_a_grid_comes_back_from_a_saved_report() -> None:
    made = report(names(5), slow(2))
    grid = made.rows[0].measured.grid
    assert grid is not None
    again = report_json.parse(report_json.render(made))
    assert again.rows[0].measured.grid == grid
    assert text(again) == text(made)


@pytest.mark.parametrize(
    "cell",
    [{"row": 5}, {"column": -1}, {"row": "0"}, {"value": -1.0}, {"value": "x"}, {"row": None}],
)
def test_a_grid_that_is_none_is_refused(cell: dict[str, Any]) -> None:
    made = json.loads(report_json.render(report(names(5), slow(2))))
    made["checks"][0]["grid"]["cells"][0] |= cell
    with pytest.raises(PreflightError):
        report_json.parse(json.dumps(made))
