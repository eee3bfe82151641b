"""What a rank keeps of its optimizers and schedulers, with stand-ins for torch's."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_optimized as optimized

HERE = ["train.py", 12, "main", True]


class Parameter:
    requires_grad = True


class Module:
    def __init__(self, training: bool = True) -> None:
        self.training, self.weight = training, Parameter()

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield "weight", self.weight


TORCH = SimpleNamespace(nn=SimpleNamespace(Module=Module, Parameter=Parameter))


class Optimizer:
    def __init__(self, *parameters: object, lr: float = 0.1) -> None:
        self.param_groups = [{"params": list(parameters), "lr": lr}]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    model: dict[str, Any] = {
        "rate_of": lambda group: group["lr"],
        "shape_of": lambda parameter: "[2] float32",
        "compared": lambda torch, parameters: (" ".join(map(str, parameters)), ""),
    }
    optimized.begin()
    optimized.follow(model, lambda code, line: [code.co_filename, line, "", True], lambda _: True)
    yield
    optimized.begin()


def test_parameters_in_lists_and_dicts_of_lists() -> None:
    frozen = Parameter()
    frozen.requires_grad = False
    value = {"a": [Module(), 3], 2: Parameter(), "b": [frozen, [[Module()]]], "c": Module(False)}
    found = list(optimized.within(TORCH, value, "heads", 2))
    assert [(name, trains) for name, _, trains in found] == [
        ("heads['a'][0].weight", True),
        ("heads[2]", True),
        ("heads['c'].weight", False),
    ]


def test_what_a_model_gets_after_ddp_has_wrapped_it() -> None:
    first, adapter, left_out = Parameter(), Parameter(), Parameter()
    pairs = [("weight", first), ("lora_a", adapter), ("own", left_out)]
    module = SimpleNamespace(named_parameters=lambda: pairs)
    ddp = SimpleNamespace(module=module, _module_parameters=[first], parameters_to_ignore={"own"})
    assert optimized.added_later([ddp]) == {id(adapter): "lora_a"}
    del ddp._module_parameters
    assert optimized.added_later([ddp]) == {}


def test_what_changes_or_comes_anew_begins_again() -> None:
    before = optimized.lasting(TORCH, {}, {"a": ("1", HERE), "b": ("2", None)}, 4)
    now = {"a": ("1", HERE), "b": ("3", None), "c": ("-", None)}
    found = optimized.lasting(TORCH, before, now, 8)
    assert {name: known[2:4] for name, known in found.items()} == {
        "a": [4, 8],
        "b": [8, 8],
        "c": [8, 8],
    }
    found = optimized.lasting(TORCH, found, now, 16)
    assert (found["c"][2], found["b"][2]) == (16, 8)
    assert optimized.lasting(TORCH, found, {}, 32) == {}


class Scheduler:
    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.last_epoch = optimizer, 0


class Scheduling:
    """A scheduler whose optimizer may be left for another one with the same parameters."""

    def __init__(self) -> None:
        weight = Parameter()
        self.own, self.other = Optimizer(weight), Optimizer(weight, lr=0.2)
        self.scheduler = Scheduler(self.own)
        self.followed = optimized.Followed(self.scheduler, self.own, HERE)
        for one in (self.own, self.other):
            optimized.note(one, HERE)

    def steps(self, optimizer: Optimizer, count: int = 1) -> None:
        for _ in range(count):
            known = next(k for k in optimized.Optimized.known if k.optimizer() is optimizer)
            known.steps += 1
            self.followed.stepped(optimizer)
            self.scheduler.last_epoch += 1
            self.followed.look()


def test_counts_of_a_scheduler_after_the_last_step_of_its_optimizer() -> None:
    job = Scheduling()
    job.steps(job.own, 3)
    job.steps(job.other, 5)
    assert (job.followed.idle, job.followed.varied, job.followed.drives) == (4, False, False)
    assert job.followed.advanced >= 4
    job.steps(job.own)
    assert (job.followed.idle, job.followed.advanced) == (0, 1)


def test_numbers_that_a_scheduler_gets_between_two_steps_of_its_optimizer() -> None:
    job = Scheduling()
    module = SimpleNamespace(
        LRScheduler=type("LRScheduler", (), {}), ReduceLROnPlateau=type("Plateau", (Scheduler,), {})
    )
    module.LRScheduler.__init__ = lambda self, optimizer: None
    module.ReduceLROnPlateau.step = lambda self, number: number
    optimized.follow_schedulers(module, lambda: HERE)
    scheduler = module.ReduceLROnPlateau(job.own)
    job.followed = next(
        one for one in optimized.Optimized.schedulers if one.scheduler() is scheduler
    )
    assert "plateaus" in optimized.told()
    for times in (2, 0, 3):
        assert [scheduler.step(number) for number in range(times)] == list(range(times))
        job.steps(job.other)
        job.steps(job.own)
    scheduler.step(0.5)  # no step follows
    assert optimized.told()["plateaus"] == [[HERE, 2, 2, 3]]


def test_a_rate_that_is_set_by_hand_or_by_shared_groups() -> None:
    job = Scheduling()
    job.steps(job.other, 3)
    job.other.param_groups[0]["lr"] = 0.05
    job.steps(job.other)
    assert job.followed.varied
    shares = Scheduling()
    shares.other.param_groups = shares.own.param_groups
    shares.steps(shares.other, 3)
    assert shares.followed.drives


def test_more_optimizers_than_are_followed() -> None:
    kept = [Optimizer() for _ in range(optimized.OPTIMIZERS)]
    assert all(optimized.note(one, None) for one in kept)
    assert not optimized.Optimized.many
    del kept[0]
    assert optimized.note(kept[0], None) is optimized.note(kept[0], HERE)
    more = Optimizer(), Optimizer()
    assert [optimized.note(one, None) is None for one in more] == [False, True]
    assert optimized.Optimized.many


def test_where_a_hook_begins() -> None:
    def hook() -> None: ...

    line = hook.__code__.co_firstlineno
    assert optimized.line_of(hook) == [__file__, line, "", True]
    assert optimized.line_of(print) is None
