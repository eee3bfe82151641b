"""world.ddp: a step that leaves one model everywhere is silent; else the odd rank is named."""

from __future__ import annotations

import dataclasses

import pytest
from support.cases import Case, assert_case, judged, topology
from support.ranks import run_ranks

from preflight.check import conforms
from preflight.checks import world_ddp
from preflight.checks.world_ddp import Trained
from preflight.domains.torch.steps import Trouble
from preflight.expect import Expect
from preflight.model import Blame, Cause, Mark, Missing, Seen, Status

conforms(world_ddp)

FINE = Trained(
    "cpu",
    "gloo",
    gradient_gap=3e-8,
    parameters="00ff",
    seconds=0.01,
    autocast="bfloat16",
    finite=True,
)
STEPS = ("CUDA", "TCPStore", "init_process_group", "DDP", "backward")


def but(**changes: object) -> Trained:
    return dataclasses.replace(FINE, **changes)  # type: ignore[arg-type]


def marks(count: int) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in STEPS[:count])


def failed(step: int, text: str) -> Seen[Trained]:
    trouble = Trouble(STEPS[step - 1], "RuntimeError", text)
    return Seen(Trained("cpu", "gloo", trouble=trouble), 1.0, marks(step))


def silent(step: int) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 30.0 s, killed", 30.0, marks(step))


def world(*observations: object) -> dict[str, object]:
    return {f"n1/{rank}": o for rank, o in enumerate(observations)}


RECV = "Timed out waiting 21000ms for recv operation to complete"
NO_GPU = "No backend type associated with device type cpu"

CASES = (
    Case("equal", world(*[FINE] * 4)),
    Case("two", world(FINE, FINE)),
    Case("nccl and GPUs", world(*[but(device="cuda", backend="nccl", asked="nccl")] * 2)),
    Case("gloo without GPUs", world(*[but(asked="gloo")] * 2)),
    Case("blocked", world(*[Missing(Cause.BLOCKED, by="world.gloo")] * 2)),
    Case(
        "nccl without GPUs",
        world(*[Trained("cpu", "nccl", "nccl")] * 2),
        "backend-mismatch",
        Status.FAIL,
        subject="backend",
    ),
    Case("torch says so", world(*[failed(4, NO_GPU)] * 2), "backend-mismatch", subject="job"),
    Case(
        "gloo with GPUs",
        world(*[but(device="cuda", asked="gloo")] * 2),
        "gloo-on-gpu",
        Status.WARN,
    ),
    Case(
        "one gradient is wrong, and with it all parameters",
        world(FINE, FINE, but(gradient_gap=0.5, parameters="00aa"), FINE),
        "wrong-gradient",
        Status.FAIL,
        subject="n1 · rank 2",
    ),
    Case("NaN everywhere", world(*[but(gradient_gap=1e38)] * 4), "wrong-gradient", subject="job"),
    Case(
        "the odd one",
        world(FINE, FINE, FINE, but(parameters="0001")),
        "parameters-differ",
        Status.FAIL,
        subject="n1 · rank 3",
    ),
    Case("two, no majority", world(FINE, but(parameters="01")), "parameters-differ", subject="job"),
    Case("autocast", world(FINE, but(finite=False)), "not-finite", subject="n1 · rank 1"),
    Case("died", world(Missing(Cause.CRASHED, "killed by SIGSEGV"), silent(5)), "rank-died"),
    Case("silent", world(silent(4), silent(5), silent(5)), "rank-silent", subject="n1 · rank 0"),
    Case("own error", world(silent(5), failed(5, "no such kernel")), "rank-failed"),
    Case("stuck", world(*[failed(5, RECV)] * 2), "stuck", Status.FAIL, subject="job"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(world_ddp, case)


def test_of_two_nodes_neither_is_the_odd_one() -> None:
    """Three ranks to one are no majority when the three share a node."""
    odd = but(parameters="00fe")

    def blame(*homes: str) -> tuple[str, Blame]:
        seen = {f"{n}/{r}": odd if r == 3 else FINE for r, n in enumerate(homes)}
        (finding,) = judged(world_ddp, Case("", seen, topology=topology(4)))
        assert f"rank 3 on {homes[3]}: " in finding.saw
        return str(finding.subjects[0]), finding.blame

    assert blame("n1", "n1", "n1", "n2") == ("job", Blame.UNKNOWN)
    assert blame("n1", "n1", "n2", "n2") == ("n2 · rank 3", Blame.NODE)
    assert blame("n1", "n2", "n3", "n4") == ("n4 · rank 3", Blame.NODE)


@pytest.mark.torch
@pytest.mark.parametrize("n", [1, 3])
def test_one_step(n: int) -> None:
    seen = run_ranks("world.ddp", n)
    assert list(world_ddp.judge(seen, Expect())) == []
    assert len({v.parameters for v in seen.seen.values()}) == 1
    assert all(v.finite and v.gradient_gap is not None for v in seen.seen.values())
    assert "gloo on cpu" in world_ddp.measured(seen).text


@pytest.mark.torch
def test_a_gradient_that_is_not_the_average_is_seen() -> None:
    # the average by hand is what is wrong here: the two ways to it do not agree on that rank
    (finding,) = world_ddp.judge(run_ranks("world.ddp", 3, flip={2}), Expect())
    assert (finding.code, str(finding.subjects[0])) == ("wrong-gradient", "n1 · rank 2")


@pytest.mark.torch
def test_nccl_that_is_asked_for_without_gpus_is_not_tried() -> None:
    seen = run_ranks("world.ddp", 2, options={"backend": "nccl"})
    assert [f.code for f in world_ddp.judge(seen, Expect())] == ["backend-mismatch"]


@pytest.mark.torch
def test_detail_would_crash_and_is_left_out() -> None:
    seen = run_ranks("world.ddp", 2, server_env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert [v.detail for v in seen.seen.values()] == [True, True]
    assert list(world_ddp.judge(seen, Expect())) == []
    assert "DETAIL left out" in world_ddp.measured(seen).text
