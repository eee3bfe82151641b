"""The folder of a rehearsal, and the end of what was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from preflight.rehearsal import workdir


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
