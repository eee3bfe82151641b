"""world.gloo: right sums are silent, wrong ones and ranks that hang are named."""

from __future__ import annotations

import dataclasses
import signal

import pytest
from support.cases import Case, assert_case
from support.ranks import run_ranks, slowed

from preflight.check import conforms
from preflight.checks import world_gloo
from preflight.checks.world_gloo import SIZES, Sums
from preflight.domains.collectives.allreduce import (
    LeftOut,
    Reduced,
)
from preflight.domains.torch.steps import Trouble
from preflight.expect import Expect
from preflight.humanize import MIB
from preflight.model import (
    Blame,
    Cause,
    Confidence,
    Mark,
    Missing,
    Node,
    Seen,
    Status,
    Topology,
    World,
)

conforms(world_gloo)

FINE = Sums(tuple(Reduced(count, 0.001) for count in SIZES))
WRONG = Sums(
    tuple(dataclasses.replace(r, wrong=3, index=17, got=62.0, wanted=61.0) for r in FINE.reduced)
)
SLOW = Sums(
    tuple(Reduced(count, count / 1.25e6) for count in list(SIZES)[:-1]),
    left_out=LeftOut(16 * MIB, 13.4, 8.2),
)
HURRIED = dataclasses.replace(FINE, left_out=LeftOut(16 * MIB, 0.2, 0.1))
STEPS = ("TCPStore", "init_process_group", "all_reduce 4 B", "all_reduce 1 MiB")
RECV = "Timed out waiting 14000ms for recv operation to complete"
CLOSED = "Connection closed by peer [10.1.1.1]:4567. This is typically caused by a remote worker"


def marks(count: int) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in STEPS[:count])


def failed(step: int, text: str) -> Seen[Sums]:
    return Seen(Sums((), Trouble(STEPS[step - 1], "RuntimeError", text)), 15.0, marks(step))


def silent(step: int) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 20.0 s, killed", 20.0, marks(step))


def died(step: int, how: str) -> Missing:
    return Missing(Cause.CRASHED, f"Fatal Python error\n{how}", 1.0, marks(step))


def world(*observations: object) -> dict[str, object]:
    return {f"n1/{rank}": o for rank, o in enumerate(observations)}


def on_nodes(*observations: object) -> dict[str, object]:
    """The same of ranks of which each two share a node."""
    return {f"n{rank // 2 + 1}/{rank}": o for rank, o in enumerate(observations)}


MESH = (
    "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, "
    "remote=[10.0.0.2]:37302$0"
)
THREE = Topology(
    size=6,
    nodes=tuple(Node(f"n{n}", (2 * n - 2, 2 * n - 1), addr=f"10.0.0.{n}") for n in (1, 2, 3)),
    master_addr="10.0.0.1",
    master_port=29500,
)

CASES = (
    Case("right", world(FINE, FINE, FINE, FINE)),
    Case("alone", world(FINE)),
    Case("blocked", world(*[Missing(Cause.BLOCKED, by="rdzv.store")] * 2)),
    Case("our bug", world(Missing(Cause.CRASHED, "Traceback\nTypeError: ours"), failed(4, CLOSED))),
    Case("one is wrong", world(FINE, FINE, WRONG, FINE), "wrong-sum", subject="n1 · rank 2"),
    Case("all are wrong", world(*[WRONG] * 4), "wrong-sum", Status.FAIL, subject="job"),
    Case("segfault", world(failed(4, CLOSED), died(4, "killed by SIGSEGV")), "rank-died"),
    Case(
        "one is stopped",
        world(failed(4, RECV), failed(4, RECV), silent(3), failed(4, RECV)),
        "rank-silent",
        subject="n1 · rank 2",
    ),
    Case("own error", world(failed(4, RECV), failed(4, "no memory")), "rank-failed"),
    Case("large packets are dropped", world(*[failed(4, RECV)] * 4), "stuck", subject="job"),
    Case("a slow network", on_nodes(*[SLOW] * 6), "slow", Status.WARN, topology=THREE),
    Case("a slow machine", world(*[SLOW] * 4), "slow", Status.WARN, subject="job"),
    Case("a short time limit", world(*[HURRIED] * 4)),
    Case("right on several nodes", on_nodes(*[FINE] * 6), topology=THREE),
    Case(
        "an edge that Gloo names",
        on_nodes(*[silent(2)] * 4, failed(2, MESH), silent(2)),
        "gloo-unreachable",
        Status.FAIL,
        topology=THREE,
        subject="n3->n2",
    ),
    Case(
        "a node is stopped",
        on_nodes(*[failed(4, RECV)] * 4, silent(3), silent(3)),
        "rank-silent",
        topology=THREE,
        subject="n3 · rank 4",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(world_gloo, case)


def wrong(*observations: object) -> tuple[str, Blame, str]:
    seen = {k: Seen(o) for k, o in on_nodes(*observations).items()}
    (finding,) = world_gloo.judge(World("world.gloo", seen, THREE), Expect())  # type: ignore[arg-type]
    return str(finding.subjects[0]), finding.blame, finding.saw


def test_wrong_sums_are_a_nodes_unless_there_are_only_two() -> None:
    node, blame, saw = wrong(FINE, FINE, WRONG, WRONG, FINE, FINE)
    assert (node, blame) == ("n2 · rank 2", Blame.NODE)
    assert saw.startswith("rank 2 on n2: 3 of 1 sums")
    assert saw.endswith("wrong on 2 ranks of 6: all 2 ranks of n2")
    assert wrong(FINE, FINE, WRONG, FINE)[:2] == ("n2 · rank 2", Blame.NODE)
    assert wrong(FINE, FINE, WRONG, WRONG)[:2] == ("job", Blame.UNKNOWN), "or of who sends to n2"


def test_a_slow_network_is_named_so_and_shown() -> None:
    seen: World[Sums] = World("world.gloo", {k: Seen(SLOW) for k in on_nodes(*range(6))}, THREE)
    (finding,) = world_gloo.judge(seen, Expect())
    assert (finding.blame, finding.confidence) == (Blame.NETWORK, Confidence.POSSIBLE)
    assert finding.saw.startswith("an all-reduce of 16 MiB would take 13.4 s, and was left out")
    assert finding.expected == "less than 8.2 s"
    shown = world_gloo.measured(seen).text
    assert shown.startswith("sums right · 4 B 3 µs · 1 MiB 839 ms · 16 MiB left out: would take ")


@pytest.mark.torch
@pytest.mark.parametrize("n", [1, 3])
def test_ranks_add_up(n: int) -> None:
    seen = run_ranks("world.gloo", n)
    assert list(world_gloo.judge(seen, Expect())) == []
    for sums in seen.seen.values():
        assert [r.bytes for r in sums.reduced] == list(SIZES)
        assert not any(r.wrong for r in sums.reduced)
    said = "4 B " if n > 1 else "one rank: nothing was sent"
    assert world_gloo.measured(seen).text.startswith(f"sums right · {said}")


@pytest.mark.torch
def test_all_ranks_leave_out_what_would_take_too_long() -> None:
    seen = run_ranks("world.gloo", 3, seconds=8.0, target=slowed)
    (finding,) = world_gloo.judge(seen, Expect())
    assert (finding.code, finding.blame) == ("slow", Blame.UNKNOWN)
    for sums in seen.seen.values():
        assert sums.trouble is None
        assert [r.bytes for r in sums.reduced] == list(SIZES)[:-1]
        assert sums.left_out is not None
        assert sums.left_out.bytes == 16 * MIB
    assert max(s.left_out.seconds / s.left_out.within for s in seen.seen.values() if s.left_out) > 1


@pytest.mark.torch
def test_what_there_is_time_for_once_is_looked_at_and_timed_at_once() -> None:
    seen = run_ranks("world.gloo", 3, seconds=14.0, target=slowed)
    assert list(world_gloo.judge(seen, Expect())) == []
    for sums in seen.seen.values():
        assert [r.bytes for r in sums.reduced] == list(SIZES)
        assert sums.reduced[-1].seconds > 4.0


@pytest.mark.torch
def test_a_bit_that_flips_is_seen() -> None:
    (finding,) = world_gloo.judge(run_ranks("world.gloo", 3, flip={1}), Expect())
    assert (finding.code, str(finding.subjects[0])) == ("wrong-sum", "n1 · rank 1")
    assert (finding.blame, finding.confidence) == (Blame.NODE, Confidence.LIKELY)
    assert "1 of 1024 sums of 4 KiB are wrong; number 512 is " in finding.saw


@pytest.mark.torch
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGSTOP, "rank-silent"), (signal.SIGKILL, "rank-died")]
)
def test_the_rank_that_hangs_or_dies_is_named(number: signal.Signals, code: str) -> None:
    seen = run_ranks("world.gloo", 3, seconds=4.0, send={2: ("all_reduce 4 B", number)})
    (finding,) = world_gloo.judge(seen, Expect())
    assert (finding.code, str(finding.subjects[0])) == (code, "n1 · rank 2")
