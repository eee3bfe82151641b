"""The rows that read torch's recorders, with a torch that has CUDA in it, as most people's has:
there are two recorders then, and Gloo's calls are in one of them. No GPU is needed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from rehearse.catalogue import FAULTS, HEALTHY
from rehearse.judged import wrong
from rehearse.running import rehearse
from support import command
from support.allocator import REFUSED, TAKEN

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

FOLDER = command.REPOSITORY / ".venv-cuda"
BY_NAME = {row.name: row for row in (*FAULTS, *HEALTHY)}


@pytest.fixture(scope="module")
def python() -> Path:
    found = FOLDER / "bin/python"
    if not found.exists():
        why = FOLDER / "why"
        # not a failure in CI either: whether an index has this wheel is not ours
        said = why.read_text() if why.exists() else "make cuda"
        pytest.skip(f"no CUDA wheel: {said}")
    return found


@pytest.mark.parametrize("name", ["op_differs", "order_swapped"])
def test_the_culprit_is_named(name: str, python: Path) -> None:
    row = BY_NAME[name]
    told = rehearse(row, python)
    assert not list(wrong(row, told)), told.shown()


@pytest.mark.parametrize("name", ["ddp", pytest.param("groups", marks=pytest.mark.at_length)])
def test_nothing_is_found_where_nothing_is_wrong(name: str, python: Path) -> None:
    told = rehearse(BY_NAME[name], python)
    assert told.code == 0, told.shown()
    assert not told.findings("fail", "warn", "undecided"), told.shown()
    (row,) = (row for row in told.report["checks"] if row["id"] == "job.collectives")
    assert row["measured"]["collectives"] > 0, row


ASKS = """
import json, sys, torch
def refused(value):
    try:
        torch._C._accelerator_setAllocatorSettings(value)
    except (RuntimeError, ValueError):
        return True
    return False
print(json.dumps({value: refused(value) for value in json.loads(sys.argv[1])}))
"""


def test_its_allocator_takes_and_refuses_what_preflight_says(python: Path) -> None:
    values = json.dumps([*TAKEN, *REFUSED])
    ran = subprocess.run(
        [python, "-c", ASKS, values], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(ran.stdout) == dict.fromkeys(TAKEN, False) | dict.fromkeys(REFUSED, True)


def test_a_key_that_this_torch_does_not_know_is_named(python: Path) -> None:
    ran = subprocess.run(
        [python.with_name("preflight"), "run", "--only", "host.software", "--nproc", "1"],
        env={"PATH": "/usr/bin:/bin", "PYTORCH_ALLOC_CONF": "max_split_size_gb:1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "host.software:allocator-refused" in ran.stdout, ran.stdout + ran.stderr
    assert "Unrecognized key 'max_split_size_gb'" in " ".join(ran.stdout.split())
