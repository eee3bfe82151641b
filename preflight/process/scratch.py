"""Folders of ours that are gone when a run is, however that ends: a fork server removes them when
it leaves, and it leaves when its parent does (Workers.afterwards). What was killed together with
its server a later run sweeps. Touched by servers and workers only."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection

PREFIX = "preflight-"
LOCK = "lock"
"""The file of a folder that is locked as long as somebody needs it."""
OLD_SECONDS = 3600.0
"""What nobody holds after that time was left by a run that was killed."""
SWEPT = 100
"""Folders that are looked at in one place."""

VARIABLE = "PREFLIGHT_SCRATCH"
"""Tells a server of torch's where TORCHS is to be."""
TORCHS = "/dev/shm"
"""Where torch's own temporary files go: it is no network's file system, that may hang."""
MARK = "of-preflight"
"""The file by which a folder there is known."""


def name() -> str:
    """A name that nobody can guess, in TORCHS."""
    return os.path.join(TORCHS, PREFIX + os.urandom(8).hex())


def redirect(folder: str) -> None:
    """Have what this process and its forks leave in the folder for temporary files be in `folder`,
    which must not be there yet: torch._inductor's cache, and the sockets over which DataLoader
    workers pass on their files. Where it can't be made all is as it would be without."""
    sweep(TORCHS, {MARK})
    try:
        os.mkdir(folder, 0o700)
        open(os.path.join(folder, MARK), "x").close()
        hold(folder)
    except OSError:
        return
    import tempfile

    tempfile.tempdir = folder
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder


def remove(folder: str) -> None:
    """It is ours by its name; what is not there any more needs no removal."""
    if os.path.isdir(folder) and not os.path.islink(folder):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        if os.path.isdir(folder):  # it holds several files open at a time, which may be too many
            try:
                _remove_slowly(folder)
            except OSError:
                return


def _remove_slowly(folder: str) -> None:
    """With one file open at a time."""
    for entry in os.listdir(folder):
        path = os.path.join(folder, entry)
        if os.path.isdir(path) and not os.path.islink(path):
            _remove_slowly(path)
        else:
            os.unlink(path)
    os.rmdir(folder)


def hold(folder: str) -> None:
    """Lock the folder for as long as this process or a fork of it lives: whoever sweeps leaves it
    alone. A lock is the file system's, so it holds between containers, too, where a process id says
    nothing."""
    import fcntl

    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    fcntl.flock(os.open(os.path.join(folder, LOCK), flags, 0o600), fcntl.LOCK_SH)


def sweep(place: str, marks: Collection[str]) -> None:
    """Remove the folders of runs that were killed: of this user, for nobody else to enter, with
    these files in them, old, and held by nobody. Never by the name alone."""
    try:
        names = [name for name in os.listdir(place) if name.startswith(PREFIX)]
    except OSError:
        return
    for one in names[:SWEPT]:
        folder = os.path.join(place, one)
        try:
            if _is_left(folder, marks):
                remove(folder)
        except OSError:
            continue  # somebody else's, or gone


def _is_left(folder: str, marks: Collection[str]) -> bool:
    found = os.lstat(folder)
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not private or found.st_uid != os.geteuid():
        return False
    if time.time() - found.st_mtime < OLD_SECONDS or not {*marks} <= {*os.listdir(folder)}:
        return False
    lock = os.path.join(folder, LOCK)
    if not os.path.lexists(lock):
        return True  # killed before anybody held it
    import fcntl

    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    return True
