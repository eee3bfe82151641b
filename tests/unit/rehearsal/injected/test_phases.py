"""Where the time of a step goes, and what the batches are, as the hooks count it."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from preflight.rehearsal.injected import preflight_model as model
from preflight.rehearsal.injected import preflight_phases as phases

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _begun() -> Iterator[None]:
    phases.begin()
    phases.follow(lambda: None, model.due)
    yield
    phases.begin()


def step(*batches: object) -> None:
    for batch in batches:
        phases.batch(batch, False, 1.0, 2.0)
    phases.before_step()
    phases.after_step()


def test_batches_of_the_first_steps_are_all_measured_then_of_every_seventh() -> None:
    for _ in range(phases.ALL + 2 * phases.EACH):
        step(torch.zeros(4, 3))
    told = phases.told()
    assert told["steps"] == phases.ALL + 2 * phases.EACH
    assert told["batches"] == phases.ALL + 2
    assert told["sums"][:2] == [4 * told["batches"], 12 * told["batches"]]


def test_all_micro_batches_of_a_step_are_measured() -> None:
    step(torch.zeros(4, 3), torch.zeros(4, 3))
    assert phases.told()["batches"] == 2


def test_what_a_rank_trains_before_ddp_wraps_the_model_is_its_own() -> None:
    for _ in range(80):
        step(torch.zeros(64, 3))
    phases.restart()
    for _ in range(3):
        step(torch.zeros(4, 3), torch.full((2, 3), -100))
    told = phases.told()
    assert (told["steps"], told["batches"], told["sums"][0]) == (83, 6, 18)
    assert [look[0] for look in told["labels"]] == [0, 1, 2]


def test_what_comes_after_backward_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU backward() returns before it is done: there all until the optimizer counts."""
    at = iter([10.0, 12.0, 10.0, 12.0])
    clock = SimpleNamespace(monotonic=lambda: next(at), process_time=lambda: 0.0)
    for initialized, backward, after in ((False, 1.5, 3.0), (True, 4.5, 0.0)):
        phases.begin()
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda now=initialized: now)
        phases.Phases.ended, phases.Phases.passed = 5.5, 7.0
        assert phases.is_past_backward() is not initialized
        with monkeypatch.context() as patched:
            patched.setattr(phases, "time", clock)
            phases.before_step()
            phases.after_step()
        told = phases.told()
        assert (told["backward"], told["after"], told["optimizer"]) == (backward, after, 2.0)
        assert [part[0] for part in told["latest"]] == ["backward", "optimizer"]
        assert not phases.is_past_backward()


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_a_closure_does_is_none_of_the_optimizers_work(
    monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    """Lightning passes forward and backward of each step in one; L-BFGS calls it several times, and
    works on its own after each."""
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0], process_time=lambda: 0.0)
    ddp = type("DistributedDataParallel", (), {"forward": lambda self: passing(3.0)})
    autograd = SimpleNamespace(backward=lambda: passing(4.0))

    def passing(seconds: float) -> None:
        now[0] += seconds

    def closure() -> None:
        passing(0.5)  # zero_grad(), and whatever else
        ddp().forward()
        passing(0.25)  # the loss
        autograd.backward()

    def unchanged(ours: object, _original: object) -> object:
        return ours

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: on_gpu)
    monkeypatch.setattr(phases, "time", clock)
    phases.follow_ddp(
        SimpleNamespace(DistributedDataParallel=ddp), unchanged, lambda: None, lambda *_: None
    )
    phases.follow_backward(autograd, unchanged)
    for times in (1, 1, 2):
        passing(20.0)
        phases.batch(None, False, now[0] - 20.0, now[0])
        phases.before_step()
        for _ in range(times):
            closure()
            assert not phases.is_past_backward()
            passing(1.0)
        phases.after_step()
    told = phases.told()
    assert (told["steps"], told["forward"], told["backward"]) == (3, 12.0, 17.0)
    assert told["after"] == 0.0  # neither the wait for the next batch nor the optimizer's work
    assert told["optimizer"] == 4.0 + 0.5  # between two closures it is not known whose work it is
    assert told["between"] == 0.5
    assert [part for part, *_ in told["latest"]][:8] == 2 * [
        *("data", "forward", "backward", "optimizer")
    ]


def test_the_end_of_backward_is_noted() -> None:
    seen = []
    module = type("autograd", (), {"backward": staticmethod(seen.append)})
    phases.follow_backward(module, lambda ours, original: ours)
    module.backward("loss")
    assert seen == ["loss"]
    assert phases.Phases.passed > 0


def test_what_tokenizers_make_is_a_batch() -> None:
    step(UserDict({"input_ids": torch.zeros(4, 3), "labels": torch.zeros(4, 3)}))
    assert phases.told()["sums"][:2] == [4, 24]


def test_labels_that_count() -> None:
    labels = torch.tensor([[-100, -100, 5], [-100, 4, 3]])
    step([torch.zeros(2, 3), labels], {"labels": labels})
    step([torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.int64)])
    assert phases.told()["labels"] == [[0, 6, 12]]


def test_batches_with_the_same_labels_and_other_numbers() -> None:
    labels = torch.tensor([4, 7])
    step([torch.zeros(2, 3), labels])
    step([torch.ones(2, 3), labels], [torch.ones(2, 3), labels])
    step([torch.ones(2, 3), labels + 1])
    step(torch.ones(2, 3))  # no label
    (one, whole, rest), (_, again, other), (_, new, same) = phases.told()["contents"]
    assert one == 0
    assert (whole == again, rest == other) == (True, False)
    assert (whole == new, other == same) == (False, True)
    phases.restart()
    assert phases.told()["contents"] == []


def test_numbers_that_cant_be_read_in_a_row() -> None:
    columns = torch.zeros(4, 3).t()
    step([columns, torch.tensor([4, 7])], [torch.zeros(0), torch.tensor([4, 7])])
    assert phases.told()["contents"] == []


def test_the_number_of_threads() -> None:
    step(torch.zeros(4, 3))
    assert phases.told()["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.bool, torch.complex64])
def test_equal_inputs_have_one_mark(kind: torch.dtype) -> None:
    one, other = torch.zeros(8, dtype=kind), torch.zeros(8, dtype=kind)
    assert phases.mark_of([one]) == phases.mark_of([other])
    other[3] = 1
    assert phases.mark_of([one]) != phases.mark_of([other])


@pytest.mark.parametrize(
    ("known", "compiles"),
    [
        ({"frames": {"ok": 2, "total": 2}}, True),
        ({"frames": {}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_whether_a_forward_may_be_in_a_graph(
    known: object, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Dynamo as it is loaded; None: it is not."""
    utils = SimpleNamespace(counters=known) if known is not None else None
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    assert model.compiles() is compiles
