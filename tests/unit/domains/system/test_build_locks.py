"""Locks of extension builds: how old, whether anything moves beside them, and who has them open."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from preflight.domains.system import build_locks as module
from preflight.domains.system.build_locks import FILES, LOCKS, BuildLock, build_locks
from preflight.host import Host

PYTHON = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
HOUR = 3600.0


def aged(path: Path, age: float) -> None:
    at = time.time() - age
    os.utime(path, (at, at))


def extension(
    top: Path, name: str = "fused_adam", age: float = HOUR, beside: str = "build.ninja"
) -> Path:
    """An extension's folder with a lock; all of it is `age` seconds old."""
    folder = top / name
    folder.mkdir(parents=True)
    for file in ("lock", beside) if beside else ("lock",):
        (folder / file).touch()
        aged(folder / file, age)
    aged(folder, age)
    return folder


def locks(seconds: float = 4.0, **environ: str) -> tuple[BuildLock, ...]:
    return build_locks(Host("/", environ), seconds)


def test_a_lock_in_the_folder_of_this_python(tmp_path: Path) -> None:
    top = tmp_path / ".cache/torch_extensions"
    folder = extension(top / f"{PYTHON}_cu128")
    extension(top / "py27_cu92")
    extension(tmp_path / "elsewhere")
    (lock,) = locks(HOME=str(tmp_path))
    assert lock.path == f"{folder}/lock"
    assert HOUR <= lock.age < HOUR + 60
    assert lock.idle is not None
    assert HOUR <= lock.idle <= lock.age
    assert lock.held is False
    assert lock.mount is not None
    assert locks(HOME="/nonexistent", XDG_CACHE_HOME=str(tmp_path / ".cache"))[0].path == lock.path


def test_a_folder_that_is_named(tmp_path: Path) -> None:
    extension(tmp_path / f"home/.cache/torch_extensions/{PYTHON}_cpu")
    folder = extension(tmp_path / "named", beside="")
    (lock,) = locks(HOME=str(tmp_path / "home"), TORCH_EXTENSIONS_DIR=str(tmp_path / "named"))
    assert lock.path == f"{folder}/lock"


def test_a_builder_has_it_open(tmp_path: Path) -> None:
    folder = extension(tmp_path)
    with open(folder / "lock"):
        assert [lock.held for lock in locks(TORCH_EXTENSIONS_DIR=str(tmp_path))] == [True]


def test_a_file_that_was_written_a_moment_ago(tmp_path: Path) -> None:
    folder = extension(tmp_path)
    (folder / "adam.o").touch()
    (lock,) = locks(TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert lock.age >= HOUR
    assert lock.idle is not None
    assert lock.idle < 60


def test_a_clock_of_the_file_server_that_is_ahead(tmp_path: Path) -> None:
    extension(tmp_path, age=-HOUR)
    (lock,) = locks(TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert (lock.age, lock.idle) == (0.0, 0.0)


def test_other_programs_locks_are_none(tmp_path: Path) -> None:
    extension(tmp_path, beside="config.toml")
    (tmp_path / "folder/lock").mkdir(parents=True)
    (tmp_path / "link").mkdir()
    (tmp_path / "link/lock").symlink_to("/dev/null")
    (tmp_path / "plain").touch()
    assert locks(TORCH_EXTENSIONS_DIR=str(tmp_path)) == ()


@pytest.mark.parametrize("environ", [{}, {"HOME": "/nonexistent"}, {"TORCH_EXTENSIONS_DIR": "/x"}])
def test_nothing_is_there(environ: dict[str, str]) -> None:
    assert locks(**environ) == ()


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2 * LOCKS):
        extension(tmp_path / "many", str(number))
    assert len(locks(TORCH_EXTENSIONS_DIR=str(tmp_path / "many"))) == LOCKS
    folder = extension(tmp_path / "full")
    for number in range(FILES):
        (folder / str(number)).touch()
    (lock,) = locks(TORCH_EXTENSIONS_DIR=str(tmp_path / "full"))
    assert lock.idle is None
    monkeypatch.setattr(module, "PROCESSES", 0)
    (lock,) = locks(TORCH_EXTENSIONS_DIR=str(tmp_path / "full"))
    assert lock.held is None
    assert locks(TORCH_EXTENSIONS_DIR="/" + "x" * 9999) == ()


def test_a_hostile_name(tmp_path: Path) -> None:
    extension(tmp_path, "a\x1b[31m\n\udcff")
    (lock,) = locks(TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert lock.path.isprintable()
    assert lock.path.isascii()


def test_processes_that_can_not_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other users hold no lock that is not theirs."""
    extension(tmp_path)
    listdir = os.listdir

    def closed(path: os.PathLike[str] | str) -> list[str]:
        if str(path).endswith("/1/fd"):
            raise PermissionError
        return listdir(path)

    monkeypatch.setattr(os, "listdir", closed)
    for owner, held in ((os.getuid(), None), (os.getuid() + 1, False)):
        monkeypatch.setattr(module, "_owner", lambda _, owner=owner: owner)
        assert [one.held for one in locks(TORCH_EXTENSIONS_DIR=str(tmp_path))] == [held]
