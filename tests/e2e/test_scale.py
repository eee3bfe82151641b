"""`make scale` with few agents: it names what it has planted, and leaves nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from support.command import ENVIRONMENT, REPOSITORY, TAG, left

SCRIPT = REPOSITORY / "bench" / "scale.py"

pytestmark = pytest.mark.root


def scale(tag: str, folder: Path, agents: int) -> subprocess.Popen[str]:
    more = {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder), TAG: tag}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(agents)],
        env={**ENVIRONMENT, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(tag: str) -> int:
    mark, found = f"{TAG}={tag}".encode(), 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    found += mark in file.read()
            except OSError:
                continue
    return found


def test_it_measures_and_names_what_it_has_planted(tmp_path: Path) -> None:
    tag = uuid.uuid4().hex
    process = scale(tag, tmp_path, 24)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, f"{out}\n{err}"
    for told in (
        "odd     named  n0008: ",
        "twin    named  n0012/12, n0012b/12: ",
        "absent  named  /16: ",
        "leader's CPU        ",
        "leader received     ",
    ):
        assert told in out, out
    assert not left(tag)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_it_outlives_it(number: signal.Signals, tmp_path: Path) -> None:
    tag = uuid.uuid4().hex
    process = scale(tag, tmp_path, 24)
    try:
        until = time.monotonic() + 30
        while running(tag) < 20:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert not left(tag, within=5.0)
