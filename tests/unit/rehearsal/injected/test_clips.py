"""What is kept of calls that clip gradients, with stand-ins for torch's functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_clips as clips

HERE = ["train.py", 12, "main", True]


class Tensor:
    def __init__(self, value: float = 0.0, numbers: int = 0) -> None:
        self.value, self.numbers, self.grad = value, numbers, self

    def __float__(self) -> float:
        return self.value

    def numel(self) -> int:
        return self.numbers


class DTensor(Tensor):
    pass


class Functions:
    """torch.nn.utils.clip_grad."""

    norm: Tensor = Tensor(2.0)

    @staticmethod
    def _clip_grads_with_norm_(
        parameters: Any, max_norm: float, total_norm: Tensor
    ) -> list[Tensor]:
        return [parameters] if isinstance(parameters, Tensor) else list(parameters)

    @staticmethod
    def clip_grad_norm_(parameters: Any, max_norm: float) -> Tensor:
        list(parameters)
        return Functions.norm


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    torch = SimpleNamespace(cuda=cuda, Tensor=Tensor)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    models = SimpleNamespace(steps=0)
    clips.begin()
    clips.follow({"Models": models, "due": lambda step: step != 3}, lambda: HERE)
    yield models
    clips.begin()


def followed(*names: str) -> Any:
    module = SimpleNamespace(**{name: getattr(Functions, name) for name in names})
    clips.follow_clipping(module, lambda ours, original: ours)
    return module


def test_norms_before_the_steps_at_which_models_are_compared(models: SimpleNamespace) -> None:
    module = followed("_clip_grads_with_norm_", "clip_grad_norm_")
    for step, done in ((0, 0), (3, None), (4, 4)):
        models.steps = step
        parameters = [Tensor(numbers=3), Tensor(numbers=5)]
        parameters[1]._fsdp_flattened = step == 4  # type: ignore[attr-defined]
        assert len(module._clip_grads_with_norm_((p for p in parameters), 0.5, Tensor(2.0))) == 2
        clips.steps(done)
    looks = [[0, [[False, 2, 8, 5, 0.5, 2.0]]], [4, [[True, 2, 8, 5, 0.5, 2.0]]]]
    assert clips.told() == {"frame": HERE, "looks": looks}


def test_an_older_torch() -> None:
    module = followed("clip_grad_norm_")
    assert module.clip_grad_norm_(iter([Tensor(numbers=3)]), 0.5) is Functions.norm
    clips.steps(None)  # another optimizer's
    clips.steps(0)
    assert clips.told()["looks"] == [[0, [[False, 1, 3, 3, 0.5, 2.0]]]]


def test_a_single_parameter_without_a_gradient_and_a_norm_of_all_ranks() -> None:
    module = followed("_clip_grads_with_norm_")
    module._clip_grads_with_norm_(Tensor(numbers=3), 0.5, Tensor(2.0))
    without = Tensor(numbers=4)
    without.grad = None  # type: ignore[assignment]
    module._clip_grads_with_norm_([without], 0.5, Tensor(0.0))
    module._clip_grads_with_norm_([Tensor(numbers=4)], 0.5, DTensor(2.0))
    clips.steps(0)
    kept = [[False, 1, 3, 3, 0.5, 2.0], [False, 0, 0, 0, 0.5, 0.0]]
    assert clips.told()["looks"] == [[0, kept]]


def test_no_more_than_some() -> None:
    module = followed("_clip_grads_with_norm_")
    for _ in range(100):
        module._clip_grads_with_norm_([Tensor(numbers=3)], 0.5, Tensor(2.0))
    clips.steps(0)
    assert len(clips.told()["looks"][0][1]) == clips.CLIPS
