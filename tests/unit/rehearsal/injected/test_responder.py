"""What the part of preflight inside of a rehearsed process takes for the process's end."""

from __future__ import annotations

import sys

import pytest

from preflight.rehearsal.injected.preflight_responder import note_exit, uncaught_exception


@pytest.fixture(autouse=True)
def nothing_uncaught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)


def at_the_end_of_a_child(code: object) -> BaseException | None:
    """What torch.multiprocessing.spawn does, with the last things of multiprocessing around it."""
    try:
        try:
            raise LookupError("no such token")
        except LookupError:
            sys.exit(code)  # type: ignore[arg-type]
    except SystemExit:
        return uncaught_exception()


def test_an_exception_that_spawn_has_caught_ends_its_child() -> None:
    error = at_the_end_of_a_child(1)
    assert isinstance(error, LookupError)


def test_who_leaves_with_0_has_not_failed() -> None:
    assert at_the_end_of_a_child(0) is None
    assert at_the_end_of_a_child(None) is None


def test_sys_exit_alone_is_no_exception() -> None:
    try:
        sys.exit(3)
    except SystemExit:
        assert uncaught_exception() is None


class Odd:
    """An exit status of a program's own, whose == and str() raise."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("status", [None, 0, 3, "no such config", Odd()], ids=range(5))
def test_sys_exit_is_left_as_it_is_whatever_it_is_given(status: object) -> None:
    with pytest.raises(SystemExit) as left:
        note_exit(sys.exit)(status)
    assert left.value.code is status
