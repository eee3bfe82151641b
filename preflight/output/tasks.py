"""What workers do with report files, which may lie on a dead file system."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.output import compressed
from preflight.process.worker import Channel

PART = 1 << 18
"""Bytes of a report that are read at a time."""
BEGINNING = 1 << 20
"""Bytes in which it has to say of how many ranks it is."""
LINKS = 40
"""Symbolic links in a row that are followed, as the kernel does."""


def find_program(args: Mapping[str, Any], channel: Channel, preloaded: object) -> int:
    """The errno with which a command can't be started, ENOENT or EACCES, as a shell would look for
    it; 0 where it can. `name`: its first word."""
    name, found = args["name"], errno.ENOENT
    folders = [""] if os.sep in name else os.get_exec_path()
    for path in (os.path.join(folder, name) for folder in folders):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return 0
        if os.path.exists(path) and (os.sep in name or not os.path.isdir(path)):
            found = errno.EACCES
    return found


def write_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Write a report: a temporary file beside it, then a rename, so that nobody reads half of it.
    What is no regular file (a FIFO, /dev/stderr) is written to directly; one that is there keeps
    its mode and owner. `text`: what to write; without one it follows in parts. `mode`: of a new
    file; None: as the umask has it; `new`: a file that is there stays as it is; `below`: the folder
    that it has to be in. Why not, or empty."""
    path = args["path"]
    try:
        if args.get("new") and os.path.isfile(path):
            return f"{path}: is there already"
        parts = [args["text"].encode()] if "text" in args else channel.parts()
        parts = compressed.packed(path, parts)
        target, there = _followed(path)
        folder = os.path.dirname(target) or "."
        if (below := args.get("below")) and not _is_below(folder, below):
            return f"{path}: outside of the working directory"
        if there is not None and not os.path.isfile(path):
            with open(path, "wb") as file:
                file.writelines(parts)
            return ""
        import tempfile

        handle, temporary = tempfile.mkstemp(prefix=".preflight-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(handle)  # a full disk or quota is told here, if not before
                os.fchmod(handle, _mode_of_new(args.get("mode")))
                if there is not None:
                    _make_like(handle, there)
            os.replace(temporary, target)
        except (OSError, EOFError):
            os.unlink(temporary)
            raise
    except compressed.NoLibrary as why:
        return f"{path}: {why}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _followed(path: str) -> tuple[str, os.stat_result | None]:
    """What a path leads to, and what is there. A rename is none of the accesses in which the kernel
    takes care of links (fs.protected_symlinks): where others may write, whoever puts a link there
    would choose which of our files is replaced."""
    target = path
    for _ in range(LINKS):
        _refuse_foreign_link(os.path.dirname(target))
        try:
            there = os.lstat(target)
        except FileNotFoundError:
            return target, None
        if not stat.S_ISLNK(there.st_mode):
            if _is_foreign(there) and _writable_by_all(os.path.dirname(target)) & stat.S_ISVTX:
                raise PermissionError(errno.EPERM, "belongs to another user")
            return target, there
        if _is_foreign(there):
            raise PermissionError(errno.EPERM, "is a link of another user")
        if not os.path.isfile(target) and os.path.exists(target):
            return target, there  # /dev/stderr, which leads to what has no name
        target = os.path.join(os.path.dirname(target), os.readlink(target))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _refuse_foreign_link(folder: str) -> None:
    """PermissionError where a folder of this path is a link that another user has put among
    everybody's files."""
    while folder not in ("", "/"):
        above = os.path.dirname(folder)
        if os.path.islink(folder) and _is_foreign(os.lstat(folder)) and _writable_by_all(above):
            raise PermissionError(errno.EPERM, f"{folder} is a link of another user")
        folder = above


def _is_foreign(there: os.stat_result) -> bool:
    return there.st_uid not in (os.geteuid(), 0)


def _writable_by_all(folder: str) -> int:
    """The mode of a folder in which every user may write, else 0."""
    mode = os.stat(folder or ".").st_mode
    return mode if mode & stat.S_IWOTH else 0


def _is_below(folder: str, top: str) -> bool:
    tops = os.path.realpath(top)
    return os.path.commonpath((os.path.realpath(folder), tops)) == tops


def _mode_of_new(given: int | None) -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask if given is None else given


def _make_like(handle: int, there: os.stat_result) -> None:
    """Give an open file the owner and mode of the one that it replaces; where the group can't be
    kept, its permissions go to nobody else. By its name it could be another one meanwhile: where
    others may write, they can put a link in its place, to a file that is not theirs yet."""
    mode = stat.S_IMODE(there.st_mode) & 0o777
    made = os.fstat(handle)
    if (there.st_uid, there.st_gid) != (made.st_uid, made.st_gid):
        try:
            os.fchown(handle, there.st_uid, there.st_gid)
        except PermissionError:
            mode &= ~stat.S_IRWXG
    os.fchmod(handle, mode)


def append_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Append to a file that others write to as well: the first of `texts` with which it has no more
    than `limit` bytes. Why not, or empty."""
    path = args["path"]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        # a FIFO would be waited for
        with open(os.open(path, flags | os.O_NONBLOCK, 0o666), "ab") as file:
            there = os.fstat(file.fileno())
            if not stat.S_ISREG(there.st_mode):
                return f"{path}: not a regular file"
            for text in args["texts"]:
                data = text.encode()
                if there.st_size + len(data) <= args["limit"]:
                    file.write(data)
                    return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path}: full, {there.st_size} of {args['limit']} bytes"


def read_end(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, str]:
    """The last `limit` bytes of a text in any encoding; {"error": why} when it can't be had."""
    try:
        with open(args["path"], "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.seek(max(0, file.seek(0, os.SEEK_END) - args["limit"]))
            return {"text": file.read(args["limit"]).decode("utf-8", "replace")}
    except OSError as error:
        return {"error": f"{args['path']}: {error.strerror}"}


def file_size(args: Mapping[str, Any], channel: Channel, preloaded: object) -> int:
    """Bytes of a regular file; 0 of anything else, and where there is none."""
    try:
        there = os.stat(args["path"])
    except OSError:
        return 0
    return there.st_size if stat.S_ISREG(there.st_mode) else 0


def read_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, str]:
    """A report's text, also of a compressed one, at most `limit` bytes, and `more` for each rank
    that it says in that part to be of, up to `most`; {"error": why} when it can't be had."""
    try:
        return {"text": "".join(_text_of(args))}
    except _Unreadable as why:
        return {"error": str(why)}


def say_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, str]:
    """The same text in parts, each of which is said; what is returned has none."""
    try:
        for part in _text_of(args):
            channel.say("text", part)
    except _Unreadable as why:
        return {"error": str(why)}
    return {}


class _Unreadable(Exception):
    """Why the text of a report can't be had."""


def _text_of(args: Mapping[str, Any]) -> Iterator[str]:
    path, limit = args["path"], args["limit"]
    decoder = codecs.getincrementaldecoder("utf-8")()
    beginning, size, ranks, is_text = b"", 0, 0, True
    try:
        with open(path, "rb") as file, compressed.unpacked(file) as stream:
            while data := stream.read(min(PART, limit + 1 - size)):
                size += len(data)
                beginning = beginning if len(beginning) > BEGINNING else beginning + data
                if size > limit and limit == args["limit"]:
                    ranks = compressed.ranks_claimed(beginning)
                    limit = min(limit + args.get("more", 0) * ranks, args.get("most", limit))
                if size > limit:
                    of = f", the most that is read of a report of {ranks} ranks" if ranks else ""
                    raise _Unreadable(f"{path}: larger than {limit >> 20} MiB{of}")
                try:
                    yield decoder.decode(data) if is_text else ""
                except UnicodeDecodeError:
                    is_text = False  # one that is too large is told so
    except compressed.NoLibrary as why:
        raise _Unreadable(f"{path}: {why}") from None
    except compressed.DAMAGED as error:
        told = getattr(error, "strerror", None) or f"damaged: {error}"
        raise _Unreadable(f"{path}: {told}") from None
    if not is_text or decoder.getstate()[0]:  # the first bytes of a letter
        raise _Unreadable(f"{path}: not a report: it is no UTF-8 text")
