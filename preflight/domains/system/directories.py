"""Probes the directories that a job writes to: looks them up, measures, writes and locks.

Everything here that touches a place does so in a child (fs_probe.py): the caller always gets its
answer in time, however dead a mount is.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.domains.system.fs_probe import ProbeResult, probe_in_children
from preflight.frozen import dataclass
from preflight.host import Host, Mount, Space
from preflight.model import NO_PROCESS, CannotObserve
from preflight.sanitize import escaped
from preflight.strenum import StrEnum

WRITTEN = bytes(64 * 1024)
PATH_TRIED = 8192
"""Characters of a path that are tried: enough for the kernel to say that it is too long."""


class Role(StrEnum):
    """What the job uses a place for."""

    TMPDIR = "TMPDIR"
    CHECKPOINT = "checkpoint directory"
    INIT = "init file"
    WORK = "working directory"
    HOME = "HOME"
    CACHE = "cache of compiled kernels"


TRITON_CACHE = ("/.triton/cache", "/.triton")
"""Below HOME, the longest first (triton/knobs.py)."""

CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that is there already, where a new one is wanted."""

    size: int
    uid: int
    written: str


@dataclass(frozen=True, slots=True)
class ProbedPath:
    """One path that the job uses, and how far the child got that probed it.

    path       as the job names it, made absolute and cut; for an init file the file itself
    bytes      how long the path really is
    tested     the folder that was tried: another one when `path` does not exist (for TMPDIR what
               Python takes instead, for checkpoints and caches the nearest folder above)
    gone       how many levels of the path don't exist
    doing      the last step that it began
    state      of a child that had not answered after `waited` seconds, else empty: see Touched
    problem    why no file could be made or written (of HOME: in Triton's folder there, which is
               then what was tested); errno is the name of the error
    sync_s     seconds that 64 KiB took to be on the disk
    locks      why a file can't be locked; None when that was not tried
    """

    role: Role
    path: str
    bytes: int
    source: str
    tested: str
    gone: int = 0
    mount: Mount | None = None
    doing: str = ""
    state: str = ""
    wchan: str = ""
    waited: float = 0.0
    problem: str = ""
    errno: str = ""
    space: Space | None = None
    sync_s: float | None = None
    locks: str | None = None
    leftover: Leftover | None = None


@dataclass(frozen=True, slots=True)
class InitFileUrl:
    """The address of an init file as torch reads it: `path` is used, `netloc` is dropped."""

    text: str
    source: str
    netloc: str
    path: str


def init_file_url(host: Host, given: str) -> InitFileUrl | None:
    """`given` (a path or an address), else the first variable that holds a file:// address."""
    from urllib.parse import urlsplit

    if given and "://" not in given:
        return InitFileUrl(escaped(given), "init_file", "", given)
    variables = ((f"env {n}", host.environ.get(n, "")) for n in ("INIT_METHOD", "DIST_URL"))
    for source, text in (("init_file", given), *variables):
        if text.startswith("file://"):
            try:
                parts = urlsplit(text)
            except ValueError:  # file://[
                return InitFileUrl(escaped(text), source, "", "")
            return InitFileUrl(escaped(text), source, escaped(parts.netloc), parts.path)
    return None


def probe_paths(host: Host, options: Mapping[str, Any], seconds: float) -> tuple[ProbedPath, ...]:
    """TMPDIR and every other place, each once, all tried at the same time within `seconds`."""
    wanted = tuple(_wanted(host, options))
    work = [functools.partial(_try, host, role, path) for role, path, _ in wanted]
    try:
        answers = probe_in_children(work, seconds)
    except OSError as error:
        raise CannotObserve(f"{NO_PROCESS}: {error.strerror}") from None
    return tuple(_result(host, *w, a, seconds) for w, a in zip(wanted, answers, strict=True))


def _wanted(host: Host, options: Mapping[str, Any]) -> Iterator[tuple[Role, str, str]]:
    """(role, absolute path, where it was named)."""
    # the order of tempfile.gettempdir()
    named = next((n for n in ("TMPDIR", "TEMP", "TMP") if host.environ.get(n)), "")
    found = [(Role.TMPDIR, host.environ.get(named, "/tmp"), f"env {named}" if named else "default")]
    if checkpoints := str(options.get("checkpoint_dir") or ""):
        found.append((Role.CHECKPOINT, checkpoints, "checkpoint_dir"))
    init = init_file_url(host, str(options.get("init_file") or ""))
    if init is not None and init.path:
        found.append((Role.INIT, init.path, init.source))
    cwd = host.readlink("/proc/self/cwd") or "/"
    taken = set()
    found.append((Role.WORK, cwd, "/proc/self/cwd"))
    if home := host.environ.get("HOME"):
        found.append((Role.HOME, home, "env HOME"))
    named_caches = ((name, host.environ.get(name)) for name in CACHES)
    found += [(Role.CACHE, path, f"env {name}") for name, path in named_caches if path]
    for role, path, source in found:
        path = os.path.normpath(os.path.join(cwd, path[:PATH_TRIED].partition("\0")[0]))
        if role not in (Role.WORK, Role.CACHE) or path not in taken:
            taken.add(path)
            yield role, path, source


def _try(host: Host, role: Role, path: str) -> Iterator[tuple[str, Any]]:
    """What the child does: every line of it may hang forever."""
    try:
        yield "doing", "looking it up"
        tested, gone = os.path.dirname(path) if role is Role.INIT else path, 0
        while role in (Role.TMPDIR, Role.CHECKPOINT, Role.CACHE) and not _is_there(host, tested):
            gone += 1
            if tested == "/" or (role is Role.TMPDIR and gone > 1):
                break
            tested = "/tmp" if role is Role.TMPDIR else os.path.dirname(tested)
        yield "tested", tested
        yield "gone", gone
        yield "real", os.path.realpath(tested) if host.live else tested
        if role is Role.HOME:  # the job need not write there, but everything looks for its files
            there = _is_there(host, path)
            yield "gone", 0 if there else 1
            yield from _triton_home(host, path) if there else ()
            return
        if role is Role.INIT:
            yield from _leftover(host, path)
        yield "doing", "measuring its free space"
        try:
            space = host.space(tested)
            yield "space", [space.size, space.free, space.inodes_free, space.inodes]
        except CannotObserve:
            pass  # what is wrong, the next step says
        yield "doing", "creating a file"
        with host.scratch(tested) as file:
            yield "doing", "writing"
            began = time.monotonic()
            os.write(file, WRITTEN)
            os.fsync(file)
            yield "sync_s", time.monotonic() - began
            if role is Role.INIT:
                yield "doing", "locking a file"
                yield "locks", _locks(file)
    except OSError as error:
        yield "problem", [error.strerror or str(error), errno.errorcode.get(error.errno or 0, "")]
    except UnicodeEncodeError as error:  # a locale that can't write the path
        yield "problem", [str(error), ""]


def _triton_home(host: Host, home: str) -> Iterator[tuple[str, Any]]:
    """Whether Triton can make its cache below HOME: asked of the kernel, nothing is written."""
    cache = next((c for c in TRITON_CACHE if _is_there(host, home + c)), "")
    folder = host.path(home + cache)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        error = errno.EROFS if read_only else errno.EACCES
        yield "tested", home + cache
        yield "problem", [os.strerror(error), errno.errorcode[error]]


def _is_there(host: Host, path: str) -> bool:
    try:
        host.path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _leftover(host: Host, path: str) -> Iterator[tuple[str, Any]]:
    file = host.path(path)
    try:
        found = file.stat()
    except FileNotFoundError:
        return
    if not file.is_file():
        raise IsADirectoryError(errno.EISDIR, "the path is no regular file")
    try:
        written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.st_mtime))
    except (OverflowError, ValueError):
        written = "at an impossible time"
    yield "leftover", [found.st_size, found.st_uid, written]
    # as torch opens it, without opening it
    if not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, "the file is there, but may not be written")


def _locks(file: int) -> str:
    """torch's FileStore locks with flock; NFS turns that into the locks of fcntl, others don't."""
    for name, take in (("flock", fcntl.flock), ("fcntl", fcntl.lockf)):
        try:
            take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"{name}: {error.strerror}"
    return ""


def _result(
    host: Host, role: Role, path: str, source: str, answer: ProbeResult, waited: float
) -> ProbedPath:
    facts = answer.facts
    tested = facts.get("tested", os.path.dirname(path) if role is Role.INIT else path)
    try:
        mount = host.mount_of(facts.get("real", tested))
    except CannotObserve:
        mount = None
    problem, name = facts.get("problem", ("", ""))
    return ProbedPath(
        role=role,
        path=escaped(path),
        bytes=len(path.encode(errors="replace")),  # an undecodable byte counts as one
        source=source,
        tested=escaped(tested),
        gone=facts.get("gone", 0),
        mount=mount,
        doing=facts.get("doing", "starting"),
        state=answer.state,
        wchan=answer.wchan,
        waited=waited,
        problem=problem,
        errno=name,
        space=Space(*facts["space"]) if "space" in facts else None,
        sync_s=facts.get("sync_s"),
        locks=facts.get("locks"),
        leftover=Leftover(*facts["leftover"]) if "leftover" in facts else None,
    )
