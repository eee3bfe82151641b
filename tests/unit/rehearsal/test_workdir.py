"""The folder of a rehearsal, and the end of what was started."""

from __future__ import annotations

import os
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


# --- what a killed run leaves ---


def left(
    place: Path, name: str = "preflight-abc", seconds: float = 2 * workdir.OLD_SECONDS
) -> Path:
    folder = place / name
    folder.mkdir(mode=0o700)
    for one in workdir.INJECTED:
        (folder / one).touch()
    then = time.time() - seconds
    os.utime(folder, (then, then))
    return folder


def test_an_old_folder_of_ours_is_removed(tmp_path: Path) -> None:
    folder = left(tmp_path)
    workdir.sweep(str(tmp_path))
    assert not folder.exists()


def test_what_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    folder = left(tmp_path)
    code = (
        "import sys, time; from preflight.rehearsal import workdir; workdir.hold(sys.argv[1]); "
        "print(flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=REPOSITORY) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            old = time.time() - 2 * workdir.OLD_SECONDS
            os.utime(folder, (old, old))
            workdir.sweep(str(tmp_path))
            assert folder.exists()
        finally:
            holder.kill()
    workdir.sweep(str(tmp_path))
    assert not folder.exists()


@pytest.mark.parametrize("change", ["young", "open", "other files", "a file", "a link", "name"])
def test_nothing_is_removed_by_its_name_alone(tmp_path: Path, change: str) -> None:
    folder = left(
        tmp_path,
        "preflight-abc" if change != "name" else "other-abc",
        60.0 if change == "young" else 2 * workdir.OLD_SECONDS,
    )
    then = folder.stat().st_mtime
    match change:
        case "open":
            folder.chmod(0o755)
        case "other files":
            (folder / workdir.INJECTED[0]).unlink()
        case "a file":
            folder.rename(tmp_path / "kept")
            (tmp_path / "preflight-file").write_text("x")
        case "a link":
            folder.rename(tmp_path / "kept")
            (tmp_path / "preflight-link").symlink_to(tmp_path / "kept")
        case _:
            pass
    kept = tmp_path / "kept" if (tmp_path / "kept").exists() else folder
    os.utime(kept, (then, then))
    before = sorted(p.name for p in tmp_path.iterdir())
    workdir.sweep(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert kept.exists()


def test_a_place_that_is_not_there_is_no_problem(tmp_path: Path) -> None:
    workdir.sweep(str(tmp_path / "gone"))
