"""What the part of preflight inside of a rehearsed process takes for the process's end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from preflight.rehearsal.injected import preflight_responder
from preflight.rehearsal.injected.preflight_responder import (
    Responder,
    main_frame,
    note_exit,
    uncaught_exception,
    watch_loader,
)


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
def test_sys_exit_is_left_as_it_is_whatever_it_is_given(
    status: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Responder, "left", None)
    with pytest.raises(SystemExit) as left:
        note_exit(sys.exit)(status)
    assert left.value.code is status
    if not isinstance(status, Odd):
        assert Responder.left is not None
        assert Responder.left[0] == (status if isinstance(status, str) else "")


class Batches:
    """What the iterators of a DataLoader have in common. All have one address in this test:
    a new one often gets that of the one before, which is gone."""

    def __init__(self, count: int) -> None:
        self.left, self._num_yielded = count, 0

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        self._num_yielded += 1
        return self._num_yielded


@pytest.mark.parametrize("taken", [3, 5])
def test_a_pass_at_the_address_of_the_one_before_is_another(
    monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """An evaluation, of which all batches were taken or only some, and the epoch after it."""
    noted: list[bool] = []
    monkeypatch.setattr(Responder, "pid", os.getpid(), raising=False)
    monkeypatch.setattr(Responder, "loader", None, raising=False)
    monkeypatch.setattr(Responder, "batches", 0, raising=False)
    monkeypatch.setattr(Responder, "waits", [], raising=False)
    phases = {"leave_backward": lambda at: None, "batch": lambda b, fresh, *at: noted.append(fresh)}
    monkeypatch.setattr(Responder, "phases", phases, raising=False)
    monkeypatch.setattr(preflight_responder, "unless_compiled", lambda ours, its: ours)
    monkeypatch.setattr(preflight_responder, "id", lambda one: 1, raising=False)
    kind = type("OfALoader", (Batches,), {"__next__": Batches.__next__})
    watch_loader(kind)
    for count in (4, 2):
        one = kind(count)
        for _ in range(min(count, taken)):
            next(one)
        if taken > count:
            with pytest.raises(StopIteration):
                next(one)
    assert noted == [True, False, False, *([False] if taken > 3 else []), True, False]
    assert Responder.loader["given"] == 2


def test_a_look_at_the_main_thread_keeps_nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the garbage collector would free may be a tensor on a GPU, which a DataLoader's
    worker, forked meanwhile, must not free."""

    class Tensor:
        pass

    def train() -> weakref.ref[Tensor]:
        batch = Tensor()
        looks = threading.Thread(target=lambda: [main_frame() for _ in range(3)])
        looks.start()
        looks.join(10.0)
        return weakref.ref(batch)

    monkeypatch.setattr(Responder, "main", threading.get_ident())
    monkeypatch.setattr(Responder, "thread", threading.get_native_id())
    monkeypatch.setattr(Responder, "scripted", False)
    gc.disable()
    try:
        assert train()() is None
    finally:
        gc.enable()


def main_frame_of(code: str) -> bool:
    """Whether a program that runs this is on its way out, as it says itself; `leaving()` tells."""
    program = f"""
import _thread, atexit, sys, threading
from preflight.rehearsal.injected import preflight_responder as responder
responder.Responder.main = _thread.get_ident()
responder.Responder.thread = _thread.get_native_id()
responder.Responder.scripted = responder.is_scripted(sys._getframe())
def leaving():
    _, leaves, thread = responder.main_frame()
    print(leaves and thread == threading.get_native_id())
{code}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout in ("True\n", "False\n"), done.stderr
    return done.stdout == "True\n"


@pytest.mark.parametrize(
    ("code", "leaves"),
    [
        ("leaving()", False),
        ("def main():\n    leaving()\nmain()", False),
        ("atexit.register(leaving)", True),
        ("def destroy_process_group():\n    leaving()\ndestroy_process_group()", True),
        (
            "def work():\n    threading.Event().wait(0.5)\n    leaving()\n"
            "threading.Thread(target=work).start()",
            True,
        ),
        ("responder.Responder.scripted = False\natexit.register(leaving)", False),
        ("sys.modules['greenlet'] = sys\natexit.register(leaving)", False),
    ],
)
def test_who_is_on_its_way_out(code: str, leaves: bool) -> None:
    assert main_frame_of(code) is leaves
