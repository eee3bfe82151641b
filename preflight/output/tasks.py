"""What workers do with report files, which may lie on a dead file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

from preflight.process.worker import Channel


def write_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Write a report: a temporary file beside it, then a rename, so that nobody reads half of it.
    What is no regular file (a FIFO, /dev/stderr) is written to directly. `mode`: of the file; None:
    as the umask has it; `new`: a file that is there stays as it is. Why not, or empty."""
    path = args["path"]
    try:
        if args.get("new") and os.path.isfile(path):
            return f"{path}: is there already"
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(args["text"])
            return ""
        target = os.path.realpath(path)
        import tempfile

        handle, temporary = tempfile.mkstemp(
            prefix=".preflight-", dir=os.path.dirname(target) or "."
        )
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(args["text"])
                file.flush()
                os.fsync(file.fileno())  # a full disk or quota is told here, if not before
            umask = os.umask(0)
            os.umask(umask)
            mode = args.get("mode")
            os.chmod(temporary, 0o666 & ~umask if mode is None else mode)
            os.replace(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


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


def read_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, str]:
    """A report's text, at most `limit` bytes; {"error": why} when it can't be had."""
    try:
        with open(args["path"], "rb") as file:
            data = file.read(args["limit"] + 1)
    except OSError as error:
        return {"error": f"{args['path']}: {error.strerror}"}
    if len(data) > args["limit"]:
        return {"error": f"{args['path']}: larger than {args['limit'] >> 20} MiB"}
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"error": f"{args['path']}: not a report: it is no UTF-8 text"}
