"""The config file: where it is looked for, and its text as data. config.py knows its keys."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from preflight import console
from preflight.domains.system.fs_probe import probe_in_children
from preflight.model import PreflightError
from preflight.sanitize import escaped

PATIENCE = 2.0
"""Seconds within which a file system has to say whether the config file is there."""

LIMIT = 1 << 20
"""Bytes of a config file; a longer one is a mistake."""

HERE = "./preflight.toml"
"""The name of the one that was found in the working directory. No path that was given is written
like this: Path() takes the dot away."""

ACL = "system.posix_acl_access"
"""The extended attribute in which Linux keeps the permissions of further users."""


def find(given: str | None, environ: Mapping[str, str], root: bool) -> str | None:
    """The config file to read. Root never takes one from the working directory or a HOME, others
    none that somebody else may have written."""
    if given is not None:
        if not given:
            raise PreflightError("--config names no file")
        return str(Path(given))
    places = []
    if not root:
        places.append(HERE)
        home = environ.get("XDG_CONFIG_HOME") or (
            f"{environ['HOME']}/.config" if environ.get("HOME") else ""
        )
        if home:
            places.append(f"{home}/preflight/config.toml")
    places = [place for place in places if _is_ours(place)]
    places.append("/etc/preflight/config.toml")
    return next((place for place in places if os.path.isfile(place)), None)


def _is_ours(place: str) -> bool:
    """Whether a file is there that we can go by. A home that never answers is what we are here to
    tell: it is asked in a child, and is taken for one without a config file."""
    try:
        (found,) = probe_in_children([lambda: _look_at(place)], PATIENCE)
        facts, silent = found.facts, bool(found.state)
    except OSError:  # a limit on processes
        facts, silent = dict(_look_at(place)), False
    name = escaped(place)
    if silent:
        console.say(f"preflight: config {name}: no answer, done without")
    elif why := facts.get("why"):
        console.say(f"preflight: config {name}: not used: {why} (--config takes it all the same)")
    return bool(facts.get("file")) and not facts.get("why") and not silent


def _look_at(place: str) -> Iterator[tuple[str, Any]]:
    """("file", whether it is one), and ("why", what speaks against it)."""
    yield "file", os.path.isfile(place)
    if os.path.isfile(place):
        try:
            # whoever may write to the folder that a link leads to chooses what is there
            folders = dict.fromkeys(map(os.path.dirname, (place, os.path.realpath(place))))
            yield "why", next(filter(None, map(_untrusted, (place, *folders))), "")
        except OSError as error:
            yield "why", str(error.strerror)


def _untrusted(path: str) -> str:
    """Who else may write to a file or a folder; empty where only we and root may."""
    what = "its folder" if os.path.isdir(path) else "it"
    there = os.stat(path)
    if there.st_uid not in (os.geteuid(), 0):
        return f"{what} belongs to another user"
    if there.st_mode & stat.S_IWOTH:
        return f"every user may write to {what}"
    if there.st_mode & stat.S_IWGRP and not (_is_own_group(there.st_gid) and not _has_acl(path)):
        return f"other users may write to {what}"
    return ""


def _is_own_group(group: int) -> bool:
    """Whether a group is that of this user alone, as most distributions give everybody one, with a
    umask of 002."""
    if group == 0:
        return False
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == name and {*found.gr_mem} <= {name}


def _has_acl(path: str) -> bool:
    """Whether further users have permissions of their own, or that can't be told. With them the
    bits of the group are no longer the group's."""
    try:
        os.getxattr(path, ACL)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.EOPNOTSUPP)
    return True


def read(path: str) -> dict[str, Any]:
    """The parsed file; PreflightError in one line when it can't be."""
    return parsed(path, text(path))


def text(path: str) -> str:
    """What is in the file."""
    try:
        # a FIFO would be waited for; /dev/null is a way to say "none"
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb") as opened:
            if stat.S_ISFIFO(os.fstat(file).st_mode):
                raise PreflightError(f"config {path}: a FIFO, not a file")
            data = opened.read(LIMIT + 1) or b""
    except (OSError, ValueError) as error:
        raise PreflightError(f"config {path}: {getattr(error, 'strerror', error)}") from None
    if len(data) > LIMIT:
        raise PreflightError(f"config {path}: larger than {LIMIT >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise PreflightError(f"config {path}: no TOML: it is no UTF-8 text") from None


def parsed(path: str, text: str) -> dict[str, Any]:
    """The text of a config file as data."""
    if sys.version_info >= (3, 11):  # here: most runs have no file
        import tomllib
    else:
        import tomli as tomllib

    try:
        found: dict[str, Any] = tomllib.loads(text)
        return found
    except RecursionError:
        raise PreflightError(f"config {path}: nested too deeply") from None
    except ValueError as error:
        raise PreflightError(f"config {path}: no TOML: {error}") from None
