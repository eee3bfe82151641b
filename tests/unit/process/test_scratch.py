"""What a killed run has left is removed by a later one, and nothing else is; what a server was to
clear away it clears, however its parent ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from preflight.process import scratch

REPOSITORY = Path(__file__).resolve().parents[3]
MARKS = ("sitecustomize.py", "another.py")


def left(
    place: Path, name: str = "preflight-abc", seconds: float = 2 * scratch.OLD_SECONDS
) -> Path:
    folder = place / name
    folder.mkdir(mode=0o700)
    for one in MARKS:
        (folder / one).touch()
    then = time.time() - seconds
    os.utime(folder, (then, then))
    return folder


def test_an_old_folder_of_ours_is_removed(tmp_path: Path) -> None:
    folder = left(tmp_path)
    scratch.sweep(str(tmp_path), MARKS)
    assert not folder.exists()


def test_a_folder_goes_where_hardly_any_file_may_be_opened(tmp_path: Path) -> None:
    folder = left(tmp_path)
    (folder / "below/it").mkdir(parents=True)
    (folder / "below/it/file").touch()
    (folder / "link").symlink_to(tmp_path)
    code = (
        "import os, resource, shutil, sys; from preflight.process import scratch, worker; "
        "worker.close_from(3); resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)); "
        "scratch.remove(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=30)
    assert os.listdir(tmp_path) == []


def test_what_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    folder = left(tmp_path)
    code = (
        "import sys, time; from preflight.process import scratch; scratch.hold(sys.argv[1]); "
        "print(flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=REPOSITORY) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            old = time.time() - 2 * scratch.OLD_SECONDS
            os.utime(folder, (old, old))
            scratch.sweep(str(tmp_path), MARKS)
            assert folder.exists()
        finally:
            holder.kill()
    scratch.sweep(str(tmp_path), MARKS)
    assert not folder.exists()


@pytest.mark.parametrize("change", ["young", "open", "other files", "a file", "a link", "name"])
def test_nothing_is_removed_by_its_name_alone(tmp_path: Path, change: str) -> None:
    folder = left(
        tmp_path,
        "preflight-abc" if change != "name" else "other-abc",
        60.0 if change == "young" else 2 * scratch.OLD_SECONDS,
    )
    then = folder.stat().st_mtime
    match change:
        case "open":
            folder.chmod(0o755)
        case "other files":
            (folder / MARKS[0]).unlink()
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
    scratch.sweep(str(tmp_path), MARKS)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert kept.exists()


def test_a_place_that_is_not_there_is_no_problem(tmp_path: Path) -> None:
    scratch.sweep(str(tmp_path / "gone"), MARKS)


# --- what torch leaves ---


def test_temporary_files_go_where_they_are_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "TORCHS", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = scratch.name()
    scratch.redirect(folder)
    assert tempfile.gettempdir() == folder
    assert os.stat(folder).st_mode & 0o777 == 0o700
    with tempfile.NamedTemporaryFile(delete=False) as file:
        assert file.name.startswith(f"{folder}/")
    scratch.remove(folder)
    assert list(tmp_path.iterdir()) == []
    scratch.remove(folder)


def test_a_name_that_another_has_taken_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "TORCHS", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "theirs").mkdir()
    folder = scratch.name()
    os.symlink(tmp_path / "theirs", folder)
    scratch.redirect(folder)
    assert tempfile.tempdir is None
    scratch.remove(folder)
    assert (tmp_path / "theirs").exists()


PARENT = """
import os, signal, sys, time
from pathlib import Path
from preflight.process import scratch
from preflight.process.pool import Workers
from support import misbehave

workers = Workers()
workers.afterwards("light", scratch.remove, sys.argv[1])
workers.fork("light")
workers.afterwards("light", scratch.remove, sys.argv[2])
call = workers.call("light", misbehave.ignore_term, None, seconds=60.0)
while not call.marks:
    next(workers.run(time.monotonic() + 1.0), None)
if sys.argv[3] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "ended":
    os.kill(os.getpid(), signal.SIGTERM)
workers.close()
"""


@pytest.mark.parametrize("how", ["closed", "killed", "ended"])
def test_a_server_clears_away_however_its_parent_ends(tmp_path: Path, how: str) -> None:
    folders = [tmp_path / name for name in ("before", "after")]
    for folder in folders:
        (folder / "inner").mkdir(parents=True)
    words = [sys.executable, "-c", PARENT, *map(str, folders), how]
    path = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "tests")))
    subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, timeout=60)
    until = time.monotonic() + (0.0 if how == "closed" else 10.0)
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
