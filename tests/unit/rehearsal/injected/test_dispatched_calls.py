"""What is recorded of calls holds little, and nothing of the program's for longer than it must."""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_dispatched_calls as recording
from preflight.rehearsal.injected.preflight_dispatched_calls import (
    ALL,
    P2P,
    RECORDED,
    DispatchedCall,
    RecordedGroup,
)


class Work:
    """Of torch's: it holds tensors as long as it is there."""

    def __init__(self, completed: bool) -> None:
        self.completed = completed

    def is_completed(self) -> bool:
        return self.completed


def call(group: RecordedGroup, completed: bool, p2p: bool = False) -> weakref.ref[Work]:
    one = DispatchedCall()
    one.done, one.work, one.p2p = False, Work(completed), p2p
    group.add(one)
    return weakref.ref(one.work)


def held(works: list[weakref.ref[Work]]) -> int:
    return sum(work() is not None for work in works)


def test_a_call_that_is_never_done_keeps_no_others() -> None:
    group = RecordedGroup(0, 60.0, (), {})
    waiting = call(group, completed=False, p2p=True)
    works = [call(group, completed=True) for _ in range(100)]
    assert held(works) <= 2
    assert waiting() is not None
    assert group.counts() == [101, 100]


def test_several_that_are_never_done_keep_few_others() -> None:
    group = RecordedGroup(0, 60.0, (), {})
    waiting = [call(group, completed=False) for _ in range(8)]
    works = [call(group, completed=True) for _ in range(1000)]
    assert held(works) <= 10
    assert held(waiting) == 8
    assert group.counts() == [1008, 1000]


def test_calls_are_numbered_in_their_order_and_the_latest_kept() -> None:
    group = RecordedGroup(0, 60.0, (), {})
    for number in range(3 * RECORDED):
        call(group, completed=number % 7 > 0)
    assert [one.seq for one in group.calls] == list(range(2 * RECORDED + 1, 3 * RECORDED + 1))
    assert len(group.open) <= RECORDED


class Bound:
    """A process group as Python has it."""

    group_name = "0"

    def broadcast(self, *args: Any, **kwargs: Any) -> Any:
        """torch's own words."""
        frame = sys._getframe(1)
        return args, kwargs, frame.f_code.co_name, frame.f_locals["self"] is self

    def gather(self, *args: Any) -> Any:
        return args


ON_CPU, ON_GPU = (SimpleNamespace(device=SimpleNamespace(type=kind)) for kind in ("cpu", "cuda"))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> RecordedGroup:
    """The group of that name, its methods followed."""
    for name in ("broadcast", "gather"):
        monkeypatch.setattr(Bound, name, vars(Bound)[name])
    monkeypatch.setattr(recording, "INSTALLED", set())
    recording.follow_roots(SimpleNamespace(ProcessGroup=Bound), lambda *_: None)
    group = RecordedGroup(0, 60.0, (), P2P)
    monkeypatch.setitem(recording.GROUPS, "0", ("0", group))
    return group


def test_the_root_of_a_call_is_noted_however_it_is_given(group: RecordedGroup) -> None:
    options = SimpleNamespace(rootRank=3)
    bound = Bound()
    assert bound.broadcast([ON_CPU], options)[0] == ([ON_CPU], options)
    bound.broadcast(ON_CPU, 2)
    bound.broadcast([ON_CPU], opts=options)
    bound.broadcast(ON_CPU, root=1)
    bound.gather([], [ON_CPU], SimpleNamespace(rootRank=5))
    noted = [(op, root) for _, op, root in group.roots]
    assert noted == [("broadcast", root) for root in (3, 2, 3, 1)] + [("gather", 5)]


def test_a_call_with_its_record_here_is_not_noted_twice(group: RecordedGroup) -> None:
    group.names, group.devices = ALL, {"cpu"}
    Bound().broadcast([ON_CPU], SimpleNamespace(rootRank=3))
    Bound().broadcast([ON_GPU], SimpleNamespace(rootRank=4))
    assert [root for _, _, root in group.roots] == [4]


def test_a_call_that_fails_fails_as_without_us(group: RecordedGroup) -> None:
    with pytest.raises(TypeError):
        Bound().gather(outputs=[])
    Bound().broadcast()
    assert len(group.roots) <= 1


def test_pybind_does_not_take_it_for_the_method_of_a_derived_class(group: RecordedGroup) -> None:
    """It looks at the name and the first argument of the function that calls it."""
    assert Bound().broadcast()[2:] == ("broadcast", True)
    assert Bound.broadcast.__doc__ == "torch's own words."
    recording.follow_roots(SimpleNamespace(ProcessGroup=Bound), lambda *_: None)
    Bound().broadcast([ON_CPU], 1)
    assert len([root for _, _, root in group.roots if root == 1]) == 1
