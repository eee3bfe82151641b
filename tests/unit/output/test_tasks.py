"""Report files: one that is there keeps its mode, and no link of somebody else is followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from preflight.output.tasks import write_file

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of another user")
STRANGER = 54321


def written(path: Path, **more: Any) -> str:
    """Why it could not be written."""
    return write_file({"path": str(path), "text": "report", **more}, None, None)  # type: ignore[arg-type]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder such as /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "authorized_keys"
    file.write_text("keys")
    file.chmod(0o600)
    return file


@ROOT
def test_a_link_of_another_user_is_not_followed(shared: Path, precious: Path) -> None:
    link = shared / "report.json"
    link.symlink_to(precious)
    os.lchown(link, STRANGER, STRANGER)
    assert written(link) == f"{link}: is a link of another user"
    ours = shared / "ours"
    ours.symlink_to("report.json")
    assert written(ours) == f"{ours}: is a link of another user"
    dangling = shared / "dangling"
    dangling.symlink_to(precious.parent / "new")
    os.lchown(dangling, STRANGER, STRANGER)
    assert written(dangling, new=True) == f"{dangling}: is a link of another user"
    assert precious.read_text() == "keys"
    assert not (precious.parent / "new").exists()


@ROOT
def test_nor_one_to_a_folder_among_everybodys_files(shared: Path, precious: Path) -> None:
    link = shared / "out"
    link.symlink_to(precious.parent)
    os.lchown(link, STRANGER, STRANGER)
    path = link / precious.name
    assert written(path) == f"{path}: {link} is a link of another user"
    assert precious.read_text() == "keys"


@ROOT
def test_nor_is_a_file_of_another_user_there(shared: Path) -> None:
    for path in (shared / "file", shared / "fifo"):
        os.mkfifo(path) if path.name == "fifo" else path.write_text("theirs")
        os.chown(path, STRANGER, STRANGER)
        assert written(path) == f"{path}: belongs to another user"


def test_a_link_of_ours_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("latest", "chained"):
        (tmp_path / name).symlink_to({"latest": "runs/1.json", "chained": "latest"}[name])
        assert written(tmp_path / name) == ""
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "runs" / "1.json").read_text() == "report"
    (tmp_path / "loop").symlink_to("loop")
    assert written(tmp_path / "loop") == f"{tmp_path}/loop: Too many levels of symbolic links"
    (tmp_path / "nothing").symlink_to("/dev/null")
    assert written(tmp_path / "nothing") == ""
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    file.chmod(mode)
    assert written(file) == ""
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("report", mode)


@ROOT
def test_and_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    os.chown(file, STRANGER, STRANGER)
    assert written(file) == ""
    there = file.stat()
    assert (file.read_text(), there.st_uid, there.st_gid) == ("report", STRANGER, STRANGER)


def test_what_is_put_in_its_place_meanwhile_is_left_as_it_is(
    tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others may write, they can put a link to any file in the place of the temporary one:
    by its name, mode and owner would be those of that."""
    file = tmp_path / "report.json"
    file.write_text("old")
    file.chmod(0o666)
    if not os.geteuid():
        os.chown(file, STRANGER, STRANGER)
    sync = os.fsync

    def swap(handle: int) -> None:
        sync(handle)
        (temporary,) = tmp_path.glob(".preflight-*")
        temporary.unlink()
        temporary.symlink_to(precious)

    monkeypatch.setattr(os, "fsync", swap)
    written(file)
    there = precious.stat()
    assert (there.st_uid, stat.S_IMODE(there.st_mode)) == (os.geteuid(), 0o600)
    assert precious.read_text() == "keys"


def test_below_the_working_directory_is_below_it(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "home"
    for folder in (work, work / "reports", out):
        folder.mkdir()
    (work / "away").symlink_to(out)
    (work / "bashrc").symlink_to(out / ".bashrc")
    assert written(work / "reports" / "x", below=str(work)) == ""
    for path in (work / "away" / "x", work / "bashrc"):
        assert written(path, below=str(work)) == f"{path}: outside of the working directory"
    assert list(out.iterdir()) == []
