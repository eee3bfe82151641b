"""What holds for every test: one that can't run here says so by name, and in CI it fails; one that
starts processes or waits is marked `slow`, and `make check` leaves it out."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import os
import re
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import hypothesis
import pytest

CI = os.environ.get("CI") == "true"
NOT_FROM_CI = ("/dev/fuse", "no CUDA wheel")
"""What a skip may name even there."""

# no deadline for one example: a busy machine would break it, and pytest-timeout bounds the test
hypothesis.settings.register_profile("preflight", deadline=None)
hypothesis.settings.load_profile("preflight")

FAST_FOLDERS = ("unit", "checks")
"""Below tests/, beside the files at its top; elsewhere everything is slow."""
SLOW_NAMES = frozenset(
    {"Popen", "Workers", "fork", "sleep", "subprocess", "terminate", "threading"}
)
"""A test that has one of these, or a helper of it that has, starts processes or waits."""
MANY = 32
"""Nodes of a golden's scenario, as its name says, that take seconds to judge and print."""
HELPERS = ("support", "lab", "faults")
"""The packages that tests share."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if slow(item):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """What is collected stays until the end: the garbage collector need not look through 15,000
    tests again and again, which took a tenth of `make check`."""
    gc.collect()
    gc.freeze()


def slow(item: pytest.Item) -> bool:
    """Whether a test takes more than a moment, by where it is, its markers and what it calls."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder not in FAST_FOLDERS and not item.path.samefile(Path(__file__).parent / folder):
        return True
    if any(item.get_closest_marker(name) for name in ("torch", "root", "gpu")):
        return True
    if any(int(nodes) >= MANY for nodes in re.findall(r"\bnodes-(\d+)", item.name)):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [getattr(item, "function", None), *(f.func for defs in fixtures for f in defs)]
    return any(waits(function) for function in functions if function is not None)


@cache
def waits(thing: Any) -> bool:
    """Whether a function or class of the tests tries random examples, has a slow name in it, or
    calls one that has."""
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, type):
            waiting += [member for member in vars(one).values() if callable(member)]
            continue
        one = inspect.unwrap(getattr(one, "__func__", one))
        if hasattr(one, "hypothesis"):
            return True  # some hundred examples
        if not isinstance(one, FunctionType):
            continue
        named = set(names(one.__code__))
        if named & SLOW_NAMES:
            return True
        for name in named:
            known = one.__globals__.get(name)
            if isinstance(known, ModuleType) and known.__name__.startswith(HELPERS):
                waiting += [vars(known)[n] for n in named if n in vars(known)]
            home = getattr(known, "__module__", None) or ""
            if home == one.__module__ or home.startswith(HELPERS):
                waiting.append(known)
    return False


def names(code: CodeType) -> Iterator[str]:
    """Every global and attribute that a function's code names, with those inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """CI can provide root, namespaces, gcc and torch: there a test that misses one has failed."""
    report = yield
    provided = any(item.get_closest_marker(name) for name in ("torch", "root"))
    if CI and provided and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(thing in why for thing in NOT_FROM_CI):
            report.outcome = "failed"
            report.longrepr = f"CI can provide what this test needs. {why}"
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew; look at the diff"
    )
