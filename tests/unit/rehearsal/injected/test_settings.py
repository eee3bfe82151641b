"""What a rank keeps of the settings of its optimizers, with stand-ins for torch's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_settings as settings


class Tensor:
    def __init__(self, *shape: int, value: float = 0.0) -> None:
        self.shape, self.grad, self.value = shape, None, value

    def item(self) -> float:
        return self.value


class Optimizer:
    def __init__(self, *groups: dict[str, Any]) -> None:
        self.param_groups = list(groups)
        self.state: dict[Any, Any] = {}


CUDA = SimpleNamespace(is_initialized=lambda: False)


@pytest.fixture
def weight(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tensor]:
    """A parameter with a gradient, in a model that DDP has wrapped."""
    weight = Tensor(4, 2)
    weight.grad = weight  # type: ignore[assignment]
    ddp = SimpleNamespace(module=SimpleNamespace(parameters=lambda: [weight]))
    models = SimpleNamespace(steps=1, entries=[SimpleNamespace(module=lambda: ddp)])
    known = SimpleNamespace(known=[], schedulers=[])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, cuda=CUDA))  # type: ignore[arg-type]
    settings.begin()
    phases = {"Phases": SimpleNamespace(forwards=7)}
    settings.follow({"Models": models}, {"Optimized": known}, phases)
    yield weight
    settings.begin()


def test_all_of_them_at_looks_and_rates_in_between(weight: Tensor) -> None:
    group = {"params": [weight], "lr": 0.1, "betas": (0.9, 0.99), "foreach": None, "eps": 1}
    optimizer = Optimizer(group, {"params": [Tensor(3)], "lr": Tensor(value=0.5)})
    for step in range(8):
        if step == 5:
            group["lr"] = 0.05
        settings.steps(optimizer)
    (told,) = settings.told()
    assert [step for step, *_ in told["looks"]] == [0, 1, 2, 4]
    counts = {"state": [0.0], "passes": [7.0]}
    first = [True, {"lr": [0.1], "betas": [0.9, 0.99], "eps": [1.0], **counts}]
    assert told["looks"][0] == [0, 0, [first, [False, {"lr": [0.5], **counts}]]]
    assert told["changes"] == [[5, 0, 0, 0.05]]
    assert (told["kind"], told["full"], told["frame"]) == ("Optimizer", None, None)


def test_what_an_optimizer_counts_in_its_state(weight: Tensor) -> None:
    optimizer = Optimizer({"params": [weight], "lr": 0.1}, {"params": []})
    optimizer.state[weight] = {"step": 64}
    settings.steps(optimizer)
    optimizer.state[weight] = {"step": SimpleNamespace(is_cuda=True)}
    settings.steps(optimizer)
    (told,) = settings.told()
    found = [[values for _, values in groups] for _, _, groups in told["looks"]]
    assert found[0] == [
        {"lr": [0.1], "state": [64.0], "passes": [7.0]},
        {"state": [0.0], "passes": [7.0]},
    ]
    assert found[1][0] == {"lr": [0.1], "passes": [7.0]}, "to read it would wait for the GPU"


def test_a_schedule_of_every_step_is_bounded(weight: Tensor) -> None:
    group = {"params": [weight], "lr": 0.1}
    optimizer = Optimizer(group)
    for step in range(2 * settings.CHANGES):
        group["lr"] = 0.1 / (step + 1)
        settings.steps(optimizer)
    (told,) = settings.told()
    assert len(told["changes"]) == settings.CHANGES
    assert told["full"] > told["changes"][-1][0]


def test_optimizers_are_known_by_their_shapes(weight: Tensor) -> None:
    first, other = (Optimizer({"params": [weight, Tensor(3)]}) for _ in range(2))
    third = Optimizer({"params": [weight, Tensor(4)]})
    for one in (first, other, third):
        settings.steps(one)
    signatures = [one["signature"] for one in settings.told()]
    assert signatures[0] == signatures[1] != signatures[2]
    more = [Optimizer({"params": []}) for _ in range(9)]
    for one in more:
        settings.steps(one)
    assert len(settings.told()) == settings.OPTIMIZERS
