"""Which exceptions count as caught: with the interpreter's own events, and without them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_caught
from preflight.rehearsal.injected.preflight_responder import Responder, uncaught_exception

FILE = preflight_caught.__file__

PROGRAM = """
import runpy, sys
from contextlib import suppress
from types import SimpleNamespace

known = runpy.run_path(sys.argv[1])
joined = []
known["follow"](
    SimpleNamespace(is_initialized=lambda: bool(joined)),
    lambda path: path == "<own>",
    lambda code, line: [code.co_name, line],
)
own = '''
def fails():
    raise ValueError("bad sample")

def step():
    try:
        fails()
    except ValueError:
        return

def passes_on():
    try:
        step()
        fails()
    finally:
        len("")

def cleans_up():
    try:
        passes_on()
    except ValueError as error:
        raise KeyError("other") from error
'''
names = {}
exec(compile(own, "<own>", "exec"), names)
names["step"]()
joined.append(True)
[int(x) for x in "12"]
for _ in range(3):
    names["step"]()
with suppress(KeyError):
    names["cleans_up"]()
print([(e["text"], e["raised"], e["handler"], e["times"]) for e in known["told"](0)])
for _ in range(3000):
    names["step"]()
print(sys.monitoring.get_events(known["Caught"].tool))
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_what_the_interpreter_tells() -> None:
    """Not a finally, which goes on raising, and nothing before there is a process group."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, FILE], capture_output=True, text=True, check=False
    )
    step = ("ValueError: bad sample", ["fails", 3], ["step", 8], 4)
    handled = ("ValueError: bad sample", ["fails", 3], ["cleans_up", 21], 1)
    assert done.stdout == f"{[step, handled]}\n0\n", done.stderr


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The module as where the interpreter tells nothing, with a joined program in this file."""
    known = runpy.run_path(FILE)
    monkeypatch.setattr(known["Caught"], "tool", None)
    monkeypatch.setattr(known["Caught"], "is_rank", staticmethod(lambda: True))
    monkeypatch.setattr(known["Caught"], "is_own", staticmethod(lambda path: path == __file__))
    place = staticmethod(lambda code, line: [Path(code.co_filename).name, line, code.co_name, True])
    monkeypatch.setattr(known["Caught"], "frame_of", place)
    return SimpleNamespace(**known)


def fail(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("handler", "remembered"),
    [(BaseProcess._bootstrap, True), (BaseProcess.start, False), (fail, False)],
)
def test_what_ends_a_child_is_remembered(
    noted: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, handler: Any, remembered: bool
) -> None:
    """From Python 3.13 on nothing else knows it when the child's last word is written."""
    monkeypatch.setattr(noted.Caught, "own", {handler.__code__.co_filename: False})
    monkeypatch.setattr(Responder, "caught", vars(noted))
    error = fail(NameError("os"))
    noted.handled(handler.__code__, 0, error)
    assert uncaught_exception() is (error if remembered else None)
    noted.begin()
    assert uncaught_exception() is None


def test_what_comes_out_of_what_is_wrapped(noted: SimpleNamespace) -> None:
    for _ in range(2):
        noted.note(fail(OSError("truncated\nmore")))
    noted.note(KeyboardInterrupt())
    noted.note(None)
    (one,) = noted.told(0)
    assert (one["text"], one["raised"][2], one["handler"], one["times"]) == (
        "OSError: truncated",
        "fail",
        None,
        2,
    )
    noted.begin()
    assert noted.told(0) == []


def test_an_error_of_a_loaders_worker_is_told_by_its_last_line(noted: SimpleNamespace) -> None:
    text = "Caught X in DataLoader worker process 0.\nOriginal Traceback …\nValueError: empty\n"
    noted.note(fail(RuntimeError(text)))
    assert noted.told(0)[0]["text"] == "ValueError: empty"


def test_what_is_handled_now(noted: SimpleNamespace) -> None:
    import threading

    try:
        fail_with(KeyError("labels"))
    except KeyError:
        (one,) = noted.told(threading.get_ident())
    assert (one["text"], one["raised"][2], one["now"]) == ("KeyError: 'labels'", "fail_with", True)


def fail_with(error: Exception) -> None:
    raise error


def test_what_is_kept_is_bounded(noted: SimpleNamespace) -> None:
    for number in range(100):
        noted.note(fail(type(f"E{number}", (Exception,), {})("x")))
    assert len(noted.told(0)) == noted.KEPT
