"""The config file: where it is looked for, and its text as data. config.py knows its keys."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preflight.domains.system.fs_probe import probe_in_children
from preflight.model import PreflightError

PATIENCE = 2.0
"""Seconds within which a file system has to say whether the config file is there."""

LIMIT = 1 << 20
"""Bytes of a config file; a longer one is a mistake."""


def find(given: str | None, environ: Mapping[str, str], root: bool) -> Path | None:
    """The config file to read. Root never takes one from the working directory or a HOME."""
    if given is not None:
        if not given:
            raise PreflightError("--config names no file")
        return Path(given)
    places = []
    if not root:
        places.append(Path("preflight.toml"))
        home = environ.get("XDG_CONFIG_HOME") or (
            f"{environ['HOME']}/.config" if environ.get("HOME") else ""
        )
        if home:
            places.append(Path(home) / "preflight/config.toml")
    places = [place for place in places if _is_there(place)]
    places.append(Path("/etc/preflight/config.toml"))
    return next((place for place in places if os.path.isfile(place)), None)


def _is_there(place: Path) -> bool:
    """A home that never answers is what we are here to tell: it is asked in a child, and is taken
    for one without a config file."""
    try:
        (found,) = probe_in_children([lambda: iter([("file", os.path.isfile(place))])], PATIENCE)
    except OSError:  # a limit on processes
        return os.path.isfile(place)
    if found.state:
        print(f"preflight: config {place}: no answer, done without", file=sys.stderr)
    return bool(found.facts.get("file"))


def read(path: Path) -> dict[str, Any]:
    """The parsed file; PreflightError in one line when it can't be."""
    return parsed(str(path), text(path))


def text(path: Path) -> str:
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
    import tomllib  # most runs have no file

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise PreflightError(f"config {path}: nested too deeply") from None
    except ValueError as error:
        raise PreflightError(f"config {path}: no TOML: {error}") from None
