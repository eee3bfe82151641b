"""Which resets of gradients lose a batch, with stand-ins for torch's optimizers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from preflight.rehearsal.injected import preflight_resets as resets

HERE = ["train.py", 12, "main", True]


class Gradient:
    _version = 0


class Parameter:
    requires_grad = True

    def __init__(self, value: float = 0.0) -> None:
        self.grad: Gradient | None = None
        self.value = value


class Optimizer:
    def __init__(self) -> None:
        self.parameter = Parameter()
        self.param_groups = [{"params": [self.parameter]}]

    def zero_grad(self) -> None:
        self.parameter.grad = None

    def backward(self) -> None:
        self.parameter.grad = self.parameter.grad or Gradient()
        self.parameter.grad._version += 1

    def step(self) -> None:
        resets.stepping(self)
        resets.stepped(self)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    monkeypatch.setattr(Optimizer, "zero_grad", Optimizer.zero_grad)
    resets.begin()
    resets.follow({"compared": lambda torch, all_of: ([p.value for p in all_of], "")}, lambda: HERE)
    resets.follow_resets(Optimizer, lambda ours, original: ours)
    yield
    resets.begin()


def told(each: Callable[[Optimizer], None], times: int = 10) -> list[list[object]]:
    optimizer = Optimizer()
    optimizer.step()
    for _ in range(times):
        each(optimizer)
    return resets.told()


def test_every_batch_but_the_last_one_is_lost() -> None:
    def first(optimizer: Optimizer) -> None:
        for _ in range(4):
            resets.batch(fresh=False)
            optimizer.zero_grad()
            optimizer.backward()
        optimizer.step()

    assert told(first) == [["Optimizer", HERE, 10, 10, 30, 40]]


def test_later_steps_are_looked_at_now_and_then() -> None:
    """What they lose is counted by the steps that are looked at: the first ones, then each 7th."""

    def first(optimizer: Optimizer) -> None:
        for _ in range(2):
            resets.batch(fresh=False)
            optimizer.zero_grad()
            optimizer.backward()
        optimizer.step()

    assert told(first, 64) == [["Optimizer", HERE, 64, 64, 64, 128]]
    resets.begin()
    assert told(first, 64 + 70) == [["Optimizer", HERE, 74, 74, 74, 148]]


def test_after_each_backward() -> None:
    def after(optimizer: Optimizer) -> None:
        for number in range(4):
            resets.batch(fresh=False)
            optimizer.backward()
            if number < 3:
                optimizer.zero_grad()
        optimizer.step()

    assert told(after) == [["Optimizer", HERE, 10, 10, 30, 40]]


def test_once_before_the_last_batch() -> None:
    def once(optimizer: Optimizer) -> None:
        for number in range(4):
            resets.batch(fresh=False)
            if number == 3:
                optimizer.zero_grad()
            optimizer.backward()
        optimizer.step()

    assert told(once) == [["Optimizer", HERE, 10, 10, 10, 40]]


def test_what_is_reset_after_the_step_is_not_lost() -> None:
    def right(optimizer: Optimizer) -> None:
        for _ in range(4):
            resets.batch(fresh=False)
            optimizer.backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.zero_grad()

    assert told(right) == []


def test_two_passes_over_one_batch() -> None:
    def adversarial(optimizer: Optimizer) -> None:
        for _ in range(2):
            resets.batch(fresh=False)
        optimizer.backward()
        optimizer.zero_grad()
        optimizer.backward()
        optimizer.step()
        optimizer.zero_grad()

    assert told(adversarial) == []


def test_weights_that_are_moved_between_two_passes() -> None:
    def perturbs(optimizer: Optimizer) -> None:
        for _ in range(2):
            resets.batch(fresh=False)
            optimizer.backward()
        optimizer.parameter.value += 1
        optimizer.zero_grad()
        optimizer.backward()
        optimizer.parameter.value -= 1
        optimizer.step()
        optimizer.zero_grad()

    assert told(perturbs) == []


def test_a_closure_resets_within_the_step() -> None:
    def closes(optimizer: Optimizer) -> None:
        resets.batch(fresh=False)
        resets.batch(fresh=False)
        resets.stepping(optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            optimizer.backward()
        resets.stepped(optimizer)

    assert told(closes) == []


def test_gradients_that_another_optimizer_has_used() -> None:
    other = Optimizer()
    other.step()

    def competes(optimizer: Optimizer) -> None:
        for _ in range(4):
            resets.batch(fresh=False)
            optimizer.backward()  # of the other's loss
            other.backward()
            other.step()
        optimizer.zero_grad()
        optimizer.backward()
        optimizer.step()

    assert told(competes) == []


def forward(sums: bool, asks: bool = False) -> None:
    resets.forwarded(SimpleNamespace(require_backward_grad_sync=sums), lambda: asks)


def in_turn(*sums: bool, asks: bool = False) -> list[list[object]]:
    """Each step has a reset before each of its backward passes."""

    def each(optimizer: Optimizer) -> None:
        for one in sums:
            optimizer.zero_grad()
            forward(one, asks)
            optimizer.backward()
        optimizer.step()

    return told(each)


def test_gradients_that_are_not_summed_are_part_of_a_sum() -> None:
    assert in_turn(False, False, True) == [["Optimizer", HERE, 10, 10, 20, 30]]
    assert in_turn(False, False, False) == []  # averaged by hand, whatever for
    assert in_turn(True, True) == []
    assert in_turn(False, True, asks=True) == []


def test_batches_of_several_loaders_say_nothing() -> None:
    def mixes(optimizer: Optimizer) -> None:
        for _ in range(2):
            resets.batch(fresh=True)
            optimizer.zero_grad()
            optimizer.backward()
        optimizer.step()

    assert told(mixes) == []
