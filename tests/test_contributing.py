"""CONTRIBUTING.md: its worked example is a check, as it is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import REPOSITORY

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
PRINTED = dict(re.findall(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```$", TEXT, re.M | re.S))
CHECK, TEST = "checks/host_thp.py", "tests/checks/test_host_thp.py"

NEEDED = ("checks", "preflight", "tests/checks", "tests/support", "tools")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with the two files in it, and nothing else done."""
    root = tmp_path_factory.mktemp("copy")
    for name in NEEDED:
        no_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, root / name, symlinks=True, ignore=no_caches)
    for name in ("README.md", "pyproject.toml", "tests/conftest.py", "tests/test_contract.py"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / "docs").mkdir()
    for name in ("architecture.md", "usage.md"):
        shutil.copy(REPOSITORY / "docs" / name, root / "docs")
    for name in (CHECK, TEST):
        (root / name).write_text(PRINTED[name], encoding="utf-8")
    return root


def run(root: Path, *words: str) -> str:
    """What a command prints, with the copy's preflight."""
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_it_is_two_files() -> None:
    assert set(PRINTED) == {CHECK, TEST}


def test_it_passes_its_own_tests_and_those_of_every_check(copy: Path) -> None:
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST)
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_contract.py", "-k", "thp")


def test_it_is_style_and_format(copy: Path) -> None:
    run(copy, "-m", "ruff", "check", CHECK, TEST)
    run(copy, "-m", "ruff", "format", "--check", CHECK, TEST)


def test_it_is_listed_explained_and_run(copy: Path) -> None:
    assert "host.thp" in run(copy, "-m", "preflight", "list")
    assert "thp-compaction" in run(copy, "-m", "preflight", "explain", "host.thp")
    assert "host.thp" in run(copy, "-m", "preflight", "run", "--nproc", "1", "--only", "host.thp")
