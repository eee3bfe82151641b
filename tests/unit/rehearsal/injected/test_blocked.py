"""By which call a thread waits for its GPU: seen from another thread, as the rehearsal does."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from preflight.rehearsal.injected.preflight_blocked import method_called

PAUSE = 0.06


def native(result: type) -> object:
    """What waits in native code, without a frame, as torch does for its GPU."""
    sleep = ctypes.CDLL(None)["usleep"]
    sleep.restype = result
    return staticmethod(functools.partial(sleep, int(PAUSE * 1e6)))


TAKEN = threading.Lock()
TAKEN.acquire()


class Tensor:
    item = tolist = cuda = native(ctypes.c_int)
    __float__ = native(ctypes.c_double)
    __int__ = native(ctypes.c_int)
    __bool__ = native(ctypes.c_bool)

    to = staticmethod(TAKEN.acquire)

    def __gt__(self, other: object) -> Tensor:  # also of a number below it
        return self

    def mean(self) -> Tensor:
        return self


LOSS = Tensor()
MODEL = SimpleNamespace(loss=LOSS)
LOSSES = [LOSS]
NAMED = [("input", LOSS)]


def compared() -> object:
    best = 3
    return 1 if best < LOSS else None


def in_a_loop() -> object:
    while LOSS.mean() > 2:
        return 1
    return None


def looked_at(work: Callable[[], object], seconds: float = 0.4) -> Counter[str]:
    """What another thread says of one that does this all the time."""
    main, number, said = threading.get_ident(), threading.get_native_id(), Counter[str]()
    over, begun = threading.Event(), False

    def look() -> None:
        while not over.wait(0.007):
            if begun:  # not while the main thread waits for this one to start
                said[method_called(sys._current_frames()[main], number)] += 1

    looks = threading.Thread(target=look)
    looks.start()
    begun = True
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        work()
    over.set()
    looks.join()
    return said


@pytest.mark.parametrize(
    ("work", "name"),
    [
        pytest.param(lambda: LOSS.item(), "item", id="item"),
        pytest.param(lambda: MODEL.loss.tolist(), "tolist", id="of an attribute"),
        pytest.param(lambda: LOSS.cuda(), "cuda", id="cuda"),
        pytest.param(lambda: MODEL.loss.to(True, PAUSE), "to", id="to"),
        pytest.param(lambda: LOSS.to(True, timeout=PAUSE), "to", id="to with a name"),
        pytest.param(lambda: [LOSS.to(timeout=PAUSE, blocking=True)], "to", id="with names only"),
        pytest.param(lambda: {k: v.to(True, PAUSE) for k, v in NAMED}, "to", id="in a dict"),
        pytest.param(lambda: float(LOSS), "float", id="float"),
        pytest.param(lambda: round(1.0 + float(MODEL.loss.mean()), 3), "float", id="in a sum"),
        pytest.param(lambda: f"{float(LOSS):.3f}", "float", id="in a text"),
        pytest.param(lambda: int(LOSSES[0]), "int", id="int"),
        pytest.param(lambda: bool(LOSS), "bool", id="bool"),
        pytest.param(lambda: not LOSS, "test", id="not"),
        pytest.param(lambda: LOSS and 3, "test", id="and"),
        pytest.param(lambda: 1 if MODEL.loss else 2, "test", id="if else"),
        pytest.param(compared, "test", id="if of a comparison"),
        pytest.param(in_a_loop, "test", id="while"),
    ],
)
def test_what_waits_is_named(work: Callable[[], object], name: str) -> None:
    said = looked_at(work)
    # nothing where the machine is so busy that another look comes after the wait
    assert set(said) - {""} == {name}, said


def numbers() -> None:
    for text in ("1", "2.5", "3e4") * 200:
        float(text)


def counts() -> None:
    found = 0
    for number in range(2000):
        if number > 3 and not found:
            found += int("3")


@pytest.mark.parametrize("work", [numbers, counts])
def test_a_cpu_that_computes_waits_for_nothing(work: Callable[[], object]) -> None:
    said = looked_at(work)
    waits = sum(said[name] for name in ("float", "int", "bool", "test"))
    assert waits <= 0.3 * said.total(), said


def test_without_a_frame() -> None:
    assert method_called(None, 0) == ""
    assert method_called(sys._getframe(), threading.get_native_id()) == ""
