"""What is recorded of calls holds little, and nothing of the program's for longer than it must."""

from __future__ import annotations

import weakref

from preflight.rehearsal.injected.preflight_dispatched_calls import (
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
