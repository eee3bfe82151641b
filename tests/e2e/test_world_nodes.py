"""Ranks of several nodes, each node with workers of its own: who stops, dies or stays away is named
with its node, and the healthy ones are not."""

from __future__ import annotations

import signal

import pytest
from support.ranks import run_ranks

from preflight.expect import Expect
from preflight.model import Finding, World
from preflight.registry import imported

pytestmark = pytest.mark.torch

NODES = ("n1", "n1", "n2", "n2")
CHECKS = ("rdzv.store", "world.gloo")


def judged(seen: World[object]) -> list[Finding]:
    return list(imported(seen.check).judge(seen, Expect()))


def only(seen: World[object]) -> Finding:
    (finding,) = judged(seen)
    return finding


@pytest.mark.parametrize("check", CHECKS)
def test_healthy_nodes(check: str) -> None:
    seen = run_ranks(check, 4, nodes=NODES)
    assert sorted(seen.observations) == ["n1/0", "n1/1", "n2/2", "n2/3"]
    assert judged(seen) == []
    assert all(v.trouble is None for v in seen.seen.values())


STOP, KILL = signal.SIGSTOP, signal.SIGKILL
INIT, SUM = "init_process_group", "all_reduce 4 B"


@pytest.mark.parametrize(
    ("check", "mark", "number", "code"),
    [
        # not stopped: while ranks connect, an innocent one is as silent
        ("rdzv.store", INIT, KILL, "rank-died"),
        ("world.gloo", SUM, STOP, "rank-silent"),
    ],
)
def test_a_rank_that_stops_or_dies(
    check: str, mark: str, number: signal.Signals, code: str
) -> None:
    seen = run_ranks(check, 4, nodes=NODES, seconds=6.0, send={3: (mark, number)})
    finding = only(seen)
    assert (finding.code, [str(s) for s in finding.subjects]) == (code, ["n2 · rank 3"])
    assert finding.saw.startswith("rank 3 on n2 ")


@pytest.mark.parametrize(("check", "absent"), [("rdzv.store", 0), ("world.gloo", 2)])
def test_a_rank_that_never_starts(check: str, absent: int) -> None:
    finding = only(run_ranks(check, 4, nodes=NODES, seconds=6.0, absent={absent}))
    node = NODES[absent]
    assert finding.code == "rank-silent"
    assert [str(s) for s in finding.subjects] == [f"{node} · rank {absent}"]
    assert finding.saw.startswith(f"rank {absent} on {node} ")


def test_a_node_that_never_starts() -> None:
    finding = only(run_ranks("rdzv.store", 4, nodes=NODES, seconds=6.0, absent={2, 3}))
    assert finding.code == "rank-silent"
    assert [str(s) for s in finding.subjects] == ["n2 · rank 2", "n2 · rank 3"]
    assert finding.saw.startswith("all 2 ranks of n2 ")
