"""What holds for every test: one that can't run here says so by name, and in CI it fails."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator

import pytest

CI = os.environ.get("CI") == "true"
NOT_FROM_CI = ("/dev/fuse",)
"""What a skip may name even there."""


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
