"""job.cost: what a step is made of, and what would be saved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import Case, assert_case, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import job_cost
from preflight.checks.job_cost import Cost
from preflight.domains.job.step_parts import Backward, Sent, StepParts
from preflight.model import Cause, Missing, Node, Status, Topology

conforms(job_cost)

WARN = Status.WARN
TWO = Topology(size=2, nodes=(Node("n1", (0,)), Node("n2", (1,))))
MIB = 1 << 20


def cost(rank: int, wait: float = 0.06, *, count: int = 20, small: bool = False) -> Cost:
    """A step of 60 ms of work and so much waiting; 8 MiB, or ten messages of 400 bytes."""
    sent = (Sent(0.01, 4 * MIB, True), Sent(0.03, 4 * MIB, True))
    if small:
        sent = tuple(Sent(0.003 * n, 400) for n in range(11))
    passes = (Backward(0.03 + wait, sent),) * count
    parts = StepParts(
        *(0.02 * count, (0.03 + wait) * count, 0.01 * count, count), forwards=count, passes=passes
    )
    return Cost(rank, parts, step=0.06 + wait, steps=count, world=2)


def nodes(one: Cost, other: Cost) -> dict[str, Cost]:
    return {"n1": one, "n2": other}


CASES = (
    Case("half of a step", nodes(cost(0), cost(1)), "communication-bound", WARN, topology=TWO),
    Case("hidden behind the backward pass", nodes(cost(0, 0.01), cost(1, 0.01)), topology=TWO),
    Case("one comes late, and the other waits", nodes(cost(0, 0.01), cost(1)), topology=TWO),
    Case("on one node", {"n1/0": cost(0), "n1/1": cost(1)}),
    Case("too few passes", nodes(cost(0, count=5), cost(1, count=5)), topology=TWO),
    Case("one rank alone", {"n1": replace(cost(0), world=1)}),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    Case("a record that can't be read", Missing(Cause.TIMED_OUT)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_cost, case)


def test_what_is_advised_has_its_seconds() -> None:
    (found,) = judged(job_cost, Case("", nodes(cost(0, 0.6), cost(1, 0.6)), topology=TWO))
    assert found.fields["advice"] == (
        "a step would take 284 ms to 510 ms with 16-bit gradients, "
        "136 ms to 268 ms per batch with no_sync over 4 batches"
    )


def test_what_a_busy_cpu_may_take_back_is_not_promised() -> None:
    """At 9 ns a byte to make 16 bits of 32 and to add them up in software may take as long as is
    saved on the way."""
    (found,) = judged(job_cost, CASES[0])
    assert found.fields["advice"] == (
        "a step would take 56 ms to 80 ms per batch with no_sync over 4 batches"
    )
    seen = job_cost.measured(world("job.cost", CASES[0].saw, TWO))
    assert seen.notes[2] == ("too short or too unsteady to know what is saved by 16-bit gradients")
    assert seen.values["predicted_range_s"]["16-bit gradients"][1] > 0.12
    assert found.saw == "60 ms of 120 ms per step, with 8 MiB in collectives"


def test_a_step_of_several_batches_is_compared_with_such_a_step() -> None:
    """Its optimizer steps once already, so that only three of four waits are saved."""
    one = cost(0)
    parts = replace(one.parts, steps=5)
    ranks = {
        "n1/0": replace(one, parts=parts, step=4 * 0.12),
        "n1/1": replace(cost(1), step=4 * 0.12, parts=parts),
    }
    seen = job_cost.measured(world("job.cost", ranks))
    assert seen.values["predicted_step_s"]["no_sync over 4 batches"] == pytest.approx(0.3)
    assert seen.notes[1] == "a step would take 252 ms to 348 ms with no_sync over 4 batches"


def test_measured() -> None:
    seen = job_cost.measured(world("job.cost", nodes(cost(0), cost(1)), TWO))
    assert seen.text == "120 ms per step · 50 % waiting for 8 MiB of collectives"
    assert seen.notes[0] == "forward 20 ms · backward 30 ms · optimizer 10 ms · collectives 60 ms"
    assert seen.notes[3].startswith("scaling efficiency to expect: 2 ranks 50 % · 4 ranks 38 %")
    assert seen.values["efficiency_by_ranks"]["2"] == [0.5, 0.5, 0.5]
    assert "max_j" in seen.values["formula"]


def test_small_messages_are_joined() -> None:
    ranks = {"n1/0": cost(0, 0.3, small=True), "n1/1": cost(1, 0.3, small=True)}
    seen = job_cost.measured(world("job.cost", ranks))
    assert set(seen.values["predicted_step_s"]) == {"no_sync over 4 batches", "one message"}
    assert seen.values["efficiency_by_ranks"] == {}
    assert seen.values["predicted_step_s"]["one message"] < 0.15


def test_observations_survive_json() -> None:
    round_trips(cost(0))
