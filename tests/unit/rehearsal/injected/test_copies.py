"""Which copies of a model are kept, and when they are used, with stand-ins for torch's classes."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_copies as copies

HERE = ["train.py", 12, "main", True]


class Tensor:
    def __init__(self, value: float) -> None:
        self.value = value

    def data_ptr(self) -> int:
        return id(self)


class Parameter(Tensor):
    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = Parameter(self.value)
        found: Parameter = memo[id(self)]
        return found


class Module:
    def __init__(self, *values: float) -> None:
        self.held = [Parameter(value) for value in values]

    def parameters(self) -> Iterator[Parameter]:
        return iter(self.held)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        return ((f"p{number}", one) for number, one in enumerate(self.held))

    def state_dict(self) -> dict[str, Parameter]:
        return dict(self.named_parameters())

    def load_state_dict(self, state_dict: dict[str, Parameter]) -> None:
        for mine, given in zip(self.held, state_dict.values(), strict=True):
            mine.value = given.value


class Averaged(Module):
    def __init__(self, model: Module) -> None:
        self.module = copy.deepcopy(model)

    def forward(self, given: float) -> float:
        return given


class Job:
    def __init__(self) -> None:
        self.model = Module(1.0, 2.0)
        self.held: list[Parameter] = []
        self.counts = SimpleNamespace(steps=0)
        self.counts.entries = [SimpleNamespace(module=lambda: SimpleNamespace(module=self.model))]

    def looks(self) -> list[dict[str, Any]]:
        for done in (0, 1, 2, 3, 4, None, 8):
            copies.steps(done)
        return copies.told()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    torch = SimpleNamespace(cuda=cuda, Tensor=Tensor)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    for kind, name in (
        (Parameter, "__deepcopy__"),
        (Module, "load_state_dict"),
        (Averaged, "forward"),
    ):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    monkeypatch.setattr(copies.Copies, "groups", [])
    monkeypatch.setattr(copies.Copies, "memo", None)
    monkeypatch.setattr(copies.Copies, "loads", [])
    job = Job()
    model: dict[str, Any] = {
        "Models": job.counts,
        "shape_of": lambda parameter: "[2] float32",
        "compared": lambda torch, all_of: (" ".join(str(one.value) for one in all_of), ""),
    }
    known = SimpleNamespace(known=[SimpleNamespace(parameters=lambda: job.held)])
    copies.follow(model, {"Optimized": known}, lambda: HERE)
    copies.follow_parameters(Parameter)
    copies.follow_loads(Module)
    copies.follow_averaged(Averaged, lambda ours, original: ours)
    return job


def test_a_copy_of_the_model_is_looked_at(job: Job) -> None:
    copied = copy.deepcopy(job.model)
    (told,) = job.looks()
    assert (told["frame"], told["names"], told["shapes"]) == (
        HERE,
        ["p0", "p1"],
        ["[2] float32"] * 2,
    )
    assert told["looks"] == [[step, "1.0 2.0", ""] for step in (0, 1, 2, 4, 8)]
    assert (told["uses"], told["replaced"]) == ([], False)
    del copied


def test_copies_of_other_things_are_not(job: Job) -> None:
    other, trained = copy.deepcopy(Module(3.0)), copy.deepcopy(job.model)
    job.held = trained.held
    gone = copy.deepcopy(job.model)
    del gone
    assert job.looks() == []
    copies.begin()
    del other


def test_a_model_that_was_given_its_tensors_is_a_copy(job: Job) -> None:
    loaded, other = Module(0.0, 0.0), Module(0.0, 0.0)
    other.load_state_dict(Module(8.0, 9.0).state_dict())  # of a file, or of another model
    loaded.load_state_dict(job.model.state_dict())
    (told,) = job.looks()
    assert (told["frame"], told["names"], told["replaced"]) == (HERE, ["p0", "p1"], False)
    assert told["looks"][0] == [0, "1.0 2.0", ""]
    loaded.load_state_dict(job.model.state_dict())  # a target network that follows it
    assert [one["replaced"] for one in copies.told()] == [True]
    del other


def test_a_model_that_is_gone_by_then_is_none(job: Job) -> None:
    Module(0.0, 0.0).load_state_dict(job.model.state_dict())
    assert job.looks() == []
    assert copies.Copies.loads == []


def test_it_is_loaded_into_the_model(job: Job) -> None:
    kept, other = copy.deepcopy(job.model), copy.deepcopy(job.model)
    kept.held[0].value = 5.0
    job.counts.steps = 20
    job.model.load_state_dict(kept.state_dict())
    other.load_state_dict(job.model.state_dict())
    first, second = job.looks()
    assert first["uses"] == [["load", 0, 20, HERE, "5.0 2.0", ""]]
    assert (first["replaced"], second["replaced"]) == (False, True)
    assert second["uses"] == []


def test_it_is_called(job: Job) -> None:
    averaged = Averaged(job.model)
    for _ in range(9):
        assert averaged.forward(3.0) == 3.0
    (told,) = job.looks()
    assert [use[:2] for use in told["uses"]] == [["forward", n] for n in (0, 1, 2, 4, 8)]
    copies.begin()
    assert copies.told() == []


def test_no_more_than_some_are_kept(job: Job) -> None:
    kept = [copy.deepcopy(job.model) for _ in range(50)]
    assert len(copies.Copies.groups) == copies.GROUPS
    assert len(job.looks()) == copies.COPIES
    del kept
