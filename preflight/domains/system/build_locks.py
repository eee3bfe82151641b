"""Finds locks of extension builds: torch.utils.cpp_extension makes a file `lock` in the folder of
an extension, and all other ranks wait until it vanishes, without a time limit
(torch/utils/file_baton.py). A build that was killed leaves it behind.

folders     _get_build_directory (torch/utils/cpp_extension.py), user_cache_dir (torch/_appdirs.py)
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from preflight.domains.system.fs_probe import probe_in_children
from preflight.frozen import dataclass
from preflight.host import Host, Mount
from preflight.sanitize import escaped

VERSIONS, EXTENSIONS, FILES, LOCKS = 8, 64, 512, 8
"""What is looked at at most: folders of this Python and some CUDA, extensions of each, files of an
extension, and locks."""
PROCESSES, OPEN_FILES = 8192, 4096
"""What is looked at at most to find who has a lock open: processes, and files of each."""
PATH = 4096
"""Characters of a path that are followed (PATH_MAX)."""
BUILT = {"build.ninja", ".ninja_log", "main.cpp"}
"""What a build makes soon after its lock, one of which has to be there: whoever sets
TORCH_EXTENSIONS_DIR may have other programs' locks below it."""
SHARE = 0.6
"""Of the time, what the folders may take; the rest is for the processes."""


@dataclass(frozen=True, slots=True)
class BuildLock:
    """A lock that is there. Times in seconds, by this node's clock.

    path   printable, cut; mount: where it lies, None: not known
    age    since it was made
    idle   since anything in its folder changed; None: there is too much to look at
    held   a process of this node has it open, as a builder does; None: not all processes that it
           could be were seen
    """

    path: str
    age: float
    idle: float | None
    held: bool | None
    mount: Mount | None = None


def build_locks(host: Host, seconds: float) -> tuple[BuildLock, ...]:
    """The locks in the folder where this Python builds extensions, looked for in a child process;
    nothing where it does not answer within `seconds`. OSError where no process can be started."""
    (answer,) = probe_in_children([lambda: _look(host, seconds * SHARE, seconds)], seconds)
    found = answer.facts.get("locks", ()) if not answer.state else ()
    return tuple(
        BuildLock(escaped(path, PATH), age, idle, held, host.mount_of(real))
        for path, real, age, idle, held in found
    )


def _look(host: Host, seconds: float, more: float) -> Iterator[tuple[str, Any]]:
    began = time.monotonic()
    found: list[tuple[str, int, float, float | None]] = []
    for folder in islice(_extensions(host, began + seconds), VERSIONS * EXTENSIONS):
        if (lock := _lock(folder)) and len(found) < LOCKS:
            found.append((folder, *lock))
    holders = [_held(host, folder, uid, began + 0.9 * more) for folder, uid, _, _ in found]
    yield (
        "locks",
        [
            [f"{folder}/lock", os.path.realpath(folder), age, idle, held]
            for (folder, _, age, idle), held in zip(found, holders, strict=True)
        ],
    )


def _extensions(host: Host, until: float) -> Iterator[str]:
    """The folders of single extensions."""
    here = host.readlink("/proc/self/cwd") or "/"
    if named := host.environ.get("TORCH_EXTENSIONS_DIR"):
        tops = [os.path.join(here, named)]
    else:
        home = host.environ.get("HOME", "")
        cache = host.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
        top = os.path.join(here, cache, "torch_extensions") if cache else ""
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}_"
        mine = (name for name in _names(top, 512) if name.startswith(python))
        tops = [f"{top}/{name}" for name in islice(mine, VERSIONS)]
    for top in tops:
        for name in _names(top, EXTENSIONS):
            if time.monotonic() > until:
                return
            yield f"{top}/{name}"


def _names(folder: str, most: int) -> list[str]:
    """The first of the names in a folder; none where it is not there or not readable."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, most)] if len(folder) < PATH else []
    except (OSError, ValueError):
        return []


def _lock(folder: str) -> tuple[int, float, float | None] | None:
    """Its owner, its age and for how long nothing has changed beside it; None: there is none."""
    try:
        lock = os.lstat(f"{folder}/lock")
        changed = [lock.st_mtime, os.stat(folder).st_mtime]
        with os.scandir(folder) as entries:
            beside = [*islice(entries, FILES + 1)]
        changed += [entry.stat(follow_symlinks=False).st_mtime for entry in beside[:FILES]]
    except (OSError, ValueError):
        return None
    names = {entry.name for entry in beside}
    if not stat.S_ISREG(lock.st_mode) or not (names & BUILT or names == {"lock"}):
        return None
    now = time.time()
    idle = max(0.0, round(now - max(changed), 1)) if len(beside) <= FILES else None
    return lock.st_uid, max(0.0, round(now - lock.st_mtime, 1)), idle


def _held(host: Host, folder: str, uid: int, until: float) -> bool | None:
    """Whether a process has the lock open. What a link of /proc says is compared, and no file is
    touched: it may lie on a dead mount."""
    # in another mount namespace the path may begin differently
    ends = "/".join(("", *folder.rsplit("/", 1)[-1:], "lock"))
    sure = True
    pids = [name for name in host.listdir("/proc") if name.isdecimal()]
    for number, pid in enumerate(pids):
        if number == PROCESSES or time.monotonic() > until:
            return None
        place = host.path(f"/proc/{pid}")
        try:
            files = os.listdir(place / "fd")
        except PermissionError:
            sure = sure and _owner(str(place)) != uid
            continue
        except OSError:  # gone
            continue
        for file in files[:OPEN_FILES]:
            if host.readlink(f"/proc/{pid}/fd/{file}").endswith(ends):
                return True
    return False if sure else None


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None
