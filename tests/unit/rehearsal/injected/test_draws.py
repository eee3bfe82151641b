"""What is drawn between a batch and a forward, with torch's own generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from preflight.rehearsal.injected import preflight_draws as draws

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _begun() -> Iterator[None]:
    draws.begin()
    draws.follow({"Phases": SimpleNamespace(steps=5, since=2, is_due=True)})
    torch.manual_seed(5)
    torch.rand(3)
    yield
    draws.begin()


def look(draw: Callable[[], object]) -> list[int]:
    draws.batch()
    draw()
    draws.forwards()
    (found,) = draws.told()
    draws.begin()
    return list(found)


@pytest.mark.parametrize("count", [0, 1, 16, 600])
def test_numbers_are_counted(count: int) -> None:
    step, _, drawn, on_gpu, counted = look(lambda: torch.rand(count))
    assert (step, drawn, on_gpu, counted) == (3, count, None, 0)


def test_of_many_some_are() -> None:
    assert look(lambda: torch.randn(5000))[2] >= 600


def test_the_first_after_a_seed() -> None:
    torch.manual_seed(1)
    assert look(lambda: torch.rand(2))[2] == 2


def test_equal_states_have_one_number() -> None:
    torch.manual_seed(1)
    first = look(lambda: torch.rand(2))
    torch.manual_seed(1)
    assert look(lambda: torch.rand(2)) == first
    assert look(lambda: torch.rand(2))[1] != first[1]


def test_nothing_is_drawn_by_the_look_itself() -> None:
    torch.manual_seed(1)
    look(lambda: None)
    after = torch.rand(4)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(4))


def test_a_forward_without_a_batch_is_no_look() -> None:
    draws.forwards()
    draws.batch()
    draws.forwards()
    draws.forwards()
    assert len(draws.told()) == 1


def test_in_other_steps_it_is_not_looked_at() -> None:
    draws.Draws.phases["Phases"].is_due = False
    draws.batch()
    draws.forwards()
    assert draws.told() == []


def test_a_gpu_counts_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([([1] * 632, [7, 0]), ([1] * 632, [7, 8])])
    monkeypatch.setattr(draws, "states", lambda: next(states))
    _, _, drawn, on_gpu, counted = look(lambda: None)
    assert (drawn, counted) == (0, 8)
    assert on_gpu is not None


def test_a_gpu_that_was_seeded_meanwhile_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([([1] * 632, [7, 4]), ([1] * 632, [8, 8])])
    monkeypatch.setattr(draws, "states", lambda: next(states))
    assert look(lambda: None)[3:] == [None, 0]
