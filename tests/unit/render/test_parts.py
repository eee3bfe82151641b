"""A report in parts: the whole one to the letter, and in less memory than that takes."""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from support.command import REPOSITORY
from support.scenarios import catalogue, judged

from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import (
    Cause,
    Missing,
    Node,
    Observation,
    Observations,
    Report,
    Seen,
    Topology,
    key_of,
)
from preflight.packed import Packing
from preflight.render import alike, human
from preflight.render import json as as_json
from preflight.render.style import Look
from preflight.sanitize import IN_JSON

sys.path[:0] = [str(REPOSITORY / "bench")]

import simulated  # noqa: E402  it lies in another folder

RANKS = 4
RATIO = 12
"""Times of its text that writing a report may take: here it is 8, and was 34 leaf by leaf."""

READ_RATIO = 8
"""The same of reading it: 5, and was 16 as a whole."""


def said(place: int, rank: int) -> dict[str, Any]:
    """Of a GPU each: most is the same for all, and some is a node's own."""
    told = {f"field {n}": {"limit": n * 1000, "unit": "bytes"} for n in range(30)}
    own = {"uuid": f"GPU-{place * 7919 % 104729:08x}-{rank}", "host": f"n{place:05}"}
    return {**told, **own, "odd": "\x7f\u202e" if place == 3 else "é", "took": place % 97 / 7}


def report(nodes: int) -> Report:
    """As the host of a meeting has it."""
    packing = Packing()
    of = [
        Node(f"n{p:05}", tuple(range(p * RANKS, (p + 1) * RANKS)), size=RANKS) for p in range(nodes)
    ]
    same = Seen({"memlock": 1 << 33}, 0.1)
    by_node: dict[str, Observation] = {
        n.name: Seen(packing.of({"gpus": [said(p, r) for r in range(RANKS)]}), 0.5 + p % 5)
        for p, n in enumerate(of)
    }
    by_rank: dict[str, Observation] = {
        key_of(n.name, r): Seen(packing.of(said(p, r % RANKS)), 0.1)
        for p, n in enumerate(of)
        for r in n.ranks
    }
    base: Observations = judged("healthy").observations
    seen = dataclasses.replace(
        base,
        topology=Topology("slurm", "1", nodes * RANKS, tuple(of)),
        checks={
            "site.node": by_node,
            "site.rank": by_rank,
            "site.same": {n.name: same for n in of},
        },
    )
    return verdict.judge(seen, catalogue(), Expect())


def whole(data: dict[str, Any]) -> str:
    """The text of a report, laid out in one piece."""
    if "alike" not in data:
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    else:
        inner = ",\n".join(f" {json.dumps(k)}: {laid_out(v, 2)}" for k, v in data.items())
        text = f"{{\n{inner}\n}}\n"
    return IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def laid_out(data: Any, levels: int) -> str:
    if not levels or not data or not isinstance(data, (dict, list)):
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if isinstance(data, list):
        return "[\n  " + ",\n  ".join(laid_out(one, 0) for one in data) + "\n ]"
    members = (
        f"{json.dumps(key, ensure_ascii=False)}: {laid_out(one, levels - 1)}"
        for key, one in data.items()
    )
    return "{\n  " + ",\n  ".join(members) + "\n }"


@pytest.mark.parametrize("nodes", [1, 2, 31, 32, 33, 127, 128, 129, 500, alike.FROM * 9])
def test_the_parts_are_the_whole_one(nodes: int) -> None:
    made = report(nodes)
    parts = list(as_json.parts(made))
    text = "".join(parts)
    assert text == whole(as_json.document(made))
    assert len(parts) == 1 if nodes * RANKS < alike.FROM else len(parts) > 50
    assert as_json.render(as_json.parse(text)) == text


@pytest.mark.parametrize("name", ["healthy", "nodes-64"])
def test_the_same_of_what_was_judged(name: str) -> None:
    made = judged(name)
    assert as_json.render(made) == whole(as_json.document(made))


def peak_of(run: Callable[[], int]) -> tuple[int, int]:
    """Bytes that were taken at most while it ran, and what it returned."""
    gc.collect()
    tracemalloc.start()
    try:
        told = run()
        return tracemalloc.get_traced_memory()[1], told
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_to_read_it_takes_so_many_times_of_its_text() -> None:
    seen = simulated.observed(simulated.Simulated(512))
    text = as_json.render(verdict.judge(seen, catalogue(), Expect(), drawn=False))
    del seen
    size, parts = len(text), deque(text[at : at + 4096] for at in range(0, len(text), 4096))
    del text

    def read() -> int:
        return len(as_json.parse_parts(parts).rows)

    peak, _ = peak_of(read)
    assert peak < READ_RATIO * size, f"{peak / size:.1f} times of its {size} letters"
    assert not parts


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [500, 1500])
def test_to_write_it_takes_so_many_times_of_its_text(nodes: int) -> None:
    made = dataclasses.replace(report(nodes), findings=())
    peak, size = peak_of(lambda: sum(map(len, as_json.parts(made))))
    assert peak < RATIO * size, f"{peak / size:.1f} times of its {size} letters"


@pytest.mark.parametrize("name", ["address-twice", "healthy-8-gpus", "nodes-64"])
def test_of_very_many_only_what_a_page_shows_is_left_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_json, "DRAWN_NODES", 0)
    seen = judged(name).observations
    drawn = verdict.judge(seen, catalogue(), Expect())
    less = verdict.judge(seen, catalogue(), Expect(), drawn=False)
    assert as_json.render(less) == as_json.render(drawn)
    of_page = [(r.measured.lanes, r.measured.curves, r.measured.parts) for r in drawn.rows]
    assert any(map(any, of_page)) == (name != "nodes-64")
    assert not any(r.measured.lanes or r.measured.curves or r.measured.parts for r in less.rows)
    # of heat maps those are kept that are printed without -v
    assert [*human.lines(less, Look())] == [*human.lines(drawn, Look())]


def test_a_heat_map_is_made_where_something_was_found() -> None:
    of = simulated.Simulated(4)
    sound = simulated.observed(of)
    late = {**sound.checks["net.speed"], of.name(2): Missing(Cause.TIMED_OUT)}
    odd = dataclasses.replace(sound, checks={**sound.checks, "net.speed": late})
    grids = [
        {row.id for row in judged.rows if row.measured.grid}
        for seen in (sound, odd)
        for judged in [verdict.judge(seen, catalogue(), Expect(), drawn=False)]
    ]
    assert "net.speed" not in grids[0]
    assert "net.speed" in grids[1]
