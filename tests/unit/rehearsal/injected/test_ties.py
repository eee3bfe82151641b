"""Which parameters are tied, and which no longer are, with stand-ins for torch's modules."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_ties as ties

HERE = ["train.py", 12, "tie", True]


class Parameter:
    is_meta, device, shape = False, "cpu", (2,)

    def __init__(self, value: float) -> None:
        self.value, self.grad = value, self


class Module:
    def __init__(self) -> None:
        self._parameters: dict[str, Parameter] = {}

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        if param is not None:
            self._parameters[name] = param

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        else:
            super().__setattr__(name, value)


class Job:
    """A model of two layers with one weight."""

    def __init__(self) -> None:
        self.embed, self.head = Module(), Module()
        self.weight = Parameter(1.0)
        self.embed.weight = self.weight
        self.head.weight = Parameter(2.0)
        self.head.weight = self.weight

    def parameters(self) -> list[Parameter]:
        return [*self.embed._parameters.values(), *self.head._parameters.values()]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(Module, "register_parameter", Module.register_parameter)
    monkeypatch.setattr(ties.Ties, "found", [])
    monkeypatch.setattr(ties.Ties, "registered", {})
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # type: ignore[arg-type]
    ties.follow_parameters(SimpleNamespace(Module=Module), lambda ours, original: ours)
    job = Job.__new__(Job)
    wrapped = SimpleNamespace(named_modules=lambda: [("embed", job.embed), ("head", job.head)])
    entry = SimpleNamespace(module=lambda: SimpleNamespace(module=wrapped))
    model: dict[str, Any] = {
        "Models": SimpleNamespace(entries=[entry]),
        "shape_of": lambda parameter: "[2] float32",
        "compared": lambda torch, all_of: (" ".join(str(one.value) for one in all_of), ""),
    }
    known = SimpleNamespace(known=[SimpleNamespace(parameters=job.parameters)])
    ties.follow(model, {"Optimized": known}, lambda: HERE, lambda path: path == __file__)
    Job.__init__(job)
    return job


def looks() -> list[list[object]]:
    for done in (0, 1, 2, 3, 4, 8, None, 16):
        ties.steps(done)
    return ties.told()


def test_what_stays_one_is_nothing(job: Job) -> None:
    assert len(ties.Ties.found) == 1
    assert looks() == []
    job.head.weight = job.weight
    assert len(ties.Ties.found) == 1


def test_two_that_are_trained(job: Job) -> None:
    job.embed._parameters["weight"] = Parameter(1.0)
    assert looks() == [["embed.weight", "head.weight", "[2] float32", HERE, 0, 16]]


def test_they_are_tied_again(job: Job) -> None:
    job.embed.weight = Parameter(3.0)
    assert len(looks()) == 1
    job.head.weight = job.embed._parameters["weight"]
    assert looks() == []


def test_a_copy_is_untied_on_purpose(job: Job) -> None:
    job.head.weight = Parameter(1.0)
    assert looks() == []
    assert ties.Ties.found == []


def test_one_that_is_not_trained_or_gone(job: Job) -> None:
    job.embed.weight = still = Parameter(3.0)
    still.grad = None  # type: ignore[assignment]
    assert looks() == []
    still.grad = still
    del job.head._parameters["weight"]
    assert looks() == []


def test_a_child_begins_its_own_count(job: Job) -> None:
    job.embed.weight = Parameter(3.0)
    assert looks()
    ties.begin()
    assert ties.told() == []
