"""The folder of one rehearsal and what is left of its processes, touched by workers only."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from preflight.rehearsal import procfs

PLACES = ("/tmp", "/dev/shm", "/var/tmp")
"""Short names: the path of a Unix socket has 107 bytes at most."""
INJECTED = (
    "sitecustomize.py",
    "preflight_responder.py",
    "preflight_flight_recorder.py",
    "preflight_dispatched_calls.py",
    "preflight_rendezvous.py",
    "preflight_caught.py",
    "preflight_model.py",
    "preflight_phases.py",
)
"""What the command's interpreters load, from rehearsal/injected/."""
VARIABLE = "PREFLIGHT_WATCHED"
"""Names the folder to the command's processes; whoever has it in its environment is one of them."""
LOCK = "lock"
"""The file of a folder that is locked as long as the watch lives."""
OLD_SECONDS = 3600.0
"""What nobody holds after that time was left by a run that was killed."""
SWEPT = 100
"""Folders that are looked at in one place."""
OVER = "over"
"""The topic under which the watch learns that a signal has ended the command, and when (on the
monotonic clock)."""
KILL_SECONDS = 1.0


def make(args: object, channel: object, preloaded: object) -> str:
    """A new folder that only this user may enter, with what the command's interpreters load. What
    killed runs have left is removed before."""
    ours = Path(__file__).parent / "injected"
    for place in PLACES:
        sweep(place)
    problem = "no place for the folder of a rehearsal"
    for place in PLACES:
        try:
            folder = tempfile.mkdtemp(prefix="preflight-", dir=place)
            for name in INJECTED:
                shutil.copyfile(ours / name, os.path.join(folder, name))
        except OSError as error:
            problem = f"{place}: {error.strerror}"
        else:
            return folder
    raise OSError(problem)


def hold(folder: str) -> None:
    """Lock the folder for as long as this process lives: whoever sweeps leaves it alone. A lock is
    the file system's, so it holds between containers, too, where a process id says nothing."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    fcntl.flock(os.open(os.path.join(folder, LOCK), flags, 0o600), fcntl.LOCK_SH)


def sweep(place: str) -> None:
    """Remove the folders of rehearsals that were killed: of this user, for nobody else to enter,
    with our files in them, old, and held by nobody. Never by the name alone."""
    try:
        names = [name for name in os.listdir(place) if name.startswith("preflight-")]
    except OSError:
        return
    for name in names[:SWEPT]:
        folder = os.path.join(place, name)
        try:
            if _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # somebody else's, or gone


def _is_left(folder: str) -> bool:
    found = os.lstat(folder)
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not private or found.st_uid != os.geteuid():
        return False
    if time.time() - found.st_mtime < OLD_SECONDS or not set(INJECTED) <= set(os.listdir(folder)):
        return False
    lock = os.path.join(folder, LOCK)
    if not os.path.lexists(lock):
        return True  # killed before it was watched
    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    return True


def remove(folder: str, channel: object, preloaded: object) -> str:
    """It is ours by its name; what is not there any more needs no removal."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def end_all(args: Mapping[str, object], channel: object, preloaded: object) -> list[str]:
    """SIGKILL to every process that was started with the variable for this folder, wherever it was
    reparented to; those that are still there afterwards are told, one line each."""
    own = f"{VARIABLE}={args['folder']}"
    until = time.monotonic() + KILL_SECONDS
    while left := [pid for pid in _pids() if _is_of(pid, own)]:
        if time.monotonic() > until:
            return [_described(pid) for pid in left]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)
    return []


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _is_of(pid: int, own: str) -> bool:
    if pid in (os.getpid(), os.getppid()):
        return False
    found = procfs.stat(pid)
    if found is None or found.ended:
        return False
    return own in procfs.read(f"/proc/{pid}/environ", 1 << 20).split("\0")


def _described(pid: int) -> str:
    found = procfs.stat(pid)
    where = procfs.wchan(pid)
    return f"pid {pid}, state {found.state if found else '?'}{where and f', in {where}'}"
