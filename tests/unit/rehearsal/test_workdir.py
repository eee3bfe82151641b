"""The folder of a rehearsal, and the end of what was started."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preflight.rehearsal import workdir

REPOSITORY = Path(__file__).resolve().parents[3]


def test_all_that_was_started_is_ended_wherever_it_is(tmp_path: Path) -> None:
    """A child that has left its session and its parent; others are not touched."""
    mark = str(tmp_path)
    environ = {**os.environ, workdir.VARIABLE: mark}
    code = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(60)\n"
    subprocess.run([sys.executable, "-c", code], env=environ, timeout=20, check=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    own = f"{workdir.VARIABLE}={mark}"
    try:
        found = [pid for pid in workdir._pids() if workdir._is_of(pid, own)]
        assert len(found) == 1
        assert workdir.end_all({"folder": mark}, None, None) == []
        assert [pid for pid in workdir._pids() if workdir._is_of(pid, own)] == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_folder_is_ours_alone() -> None:
    made = workdir.make(None, None, None)
    try:
        assert os.stat(made).st_mode & 0o777 == 0o700
        assert len(made) < 60, "the path of a socket in it has 107 bytes"
        assert set(workdir.INJECTED) == set(os.listdir(made))
    finally:
        workdir.remove(made, None, None)
    assert not os.path.exists(made)


def test_a_place_that_is_full_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    other.mkdir()
    copy = shutil.copyfile

    def copied(source: Path, target: str) -> str:
        if target.startswith(str(full)) and target.endswith(workdir.INJECTED[1]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return str(copy(source, target))

    monkeypatch.setattr(workdir, "PLACES", (str(full), str(other)))
    monkeypatch.setattr(shutil, "copyfile", copied)
    made = workdir.make(None, None, None)
    assert Path(made).parent == other
    assert not list(full.iterdir())


def test_after_a_parent_that_was_killed_a_deaf_command_has_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdir, "TERM_SECONDS", 0.6)
    environ = {**os.environ, workdir.VARIABLE: str(tmp_path)}
    deaf = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"],
        env=environ,
    )
    began = time.monotonic()
    try:
        workdir.clear(str(tmp_path))
        assert time.monotonic() - began > 0.5
        assert deaf.wait(5) == -9
        assert not tmp_path.exists()
        began = time.monotonic()
        workdir.clear(str(tmp_path))  # what was cleared away costs nothing
        assert time.monotonic() - began < 0.1
    finally:
        deaf.kill()
        deaf.wait()
