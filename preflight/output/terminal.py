"""Where the output goes and how: colours, glyphs, width. Decided once.

NO_COLOR > FORCE_COLOR / CLICOLOR_FORCE > CLICOLOR > is it a terminal; --color beats them all.
"""

from __future__ import annotations

import errno
import io
import json
import os
import select
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from preflight.render.human import WIDTH, Look
from preflight.sanitize import plain

NARROWEST, WIDEST = 20, 120
"""Columns that we lay out for, whatever a terminal says: nobody reads longer lines."""

HEIGHT = 24
"""Lines where nothing says how many there are."""

OFF = ("", "0", "false")
"""Values of a variable such as CI or FORCE_COLOR that mean the same as leaving it out."""


def colours(choice: str, environ: Mapping[str, str], terminal: bool) -> bool:
    """Whether to print colours."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "").lower() not in OFF for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return terminal


def encodes_glyphs(stream: TextIO | None) -> bool:
    try:
        "✓✗…–·".encode((stream and stream.encoding) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def width(stream: TextIO | None) -> int:
    """The columns of this stream's terminal; WIDTH in a pipe or a file, whoever reads it later."""
    return max(NARROWEST, min(size(stream)[0], WIDEST))


def size(stream: TextIO | None) -> tuple[int, int]:
    """Columns and lines of this stream's terminal; WIDTH and HEIGHT where it is none."""
    if stream is None or not is_terminal(stream):
        return WIDTH, HEIGHT
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = rows = 0
    # a pseudo-terminal that nobody has told its size says 0
    return columns or WIDTH, rows or HEIGHT


def look(color: str, ascii_only: bool, quiet: bool, verbose: bool) -> Look:
    """How this run's stdout is printed to."""
    return Look(
        width=width(sys.stdout),
        ascii=ascii_only or not encodes_glyphs(sys.stdout),
        colour=colours(color, os.environ, is_terminal(sys.stdout)),
        quiet=quiet,
        verbose=verbose,
    )


def spelled(text: str) -> str:
    """Prose of ours in the letters that stdout has."""
    return text if encodes_glyphs(sys.stdout) else plain(text)


def write(text: str) -> str:
    """Print to stdout; why it could not be done, empty when it could. A reader that went away
    (`| head`) is no failure. Letters that stdout lacks are written as JSON would."""
    return write_parts([text])


def write_parts(parts: Iterable[str]) -> str:
    """The same of a text in parts."""
    for part in parts:
        problem = _write(part)
        if problem is not None:
            return problem
    return ""


def _write(text: str) -> str | None:
    """Why nothing more can be printed, empty where nobody reads it; None where it can."""
    if sys.stdout is None:  # it was closed before we started
        return "stdout is closed"
    try:
        sys.stdout.flush()
        _send(sys.stdout, text)
    except OSError as error:
        _abandon_stdout()
        return "" if error.errno == errno.EPIPE else f"stdout: {error.strerror}"
    except ValueError:
        return "stdout is closed"
    return None


def write_to(descriptor: int, parts: Iterable[str]) -> str:
    """The same to a descriptor that we were started with, such as that of `3>report.json`."""
    try:
        # ours are all closed on exec: nothing is written into one of them
        if not os.get_inheritable(descriptor):
            return os.strerror(errno.EBADF)
        for part in parts:
            _send_bytes(descriptor, part.encode())
    except OSError as error:
        return "" if error.errno == errno.EPIPE else error.strerror or str(error)
    return ""


def _send(stream: TextIO, text: str) -> None:
    """All of it, or an OSError. A text stream under PYTHONUNBUFFERED drops silently what a
    full disk has not taken, and a pipe that was made non-blocking by its other users."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        stream.write(text)
        return
    encoding = stream.encoding or "ascii"
    try:
        data = text.encode(encoding, stream.errors or "strict")
    except UnicodeEncodeError:
        data = _escaped(text, encoding)
    _send_bytes(descriptor, data)


def _send_bytes(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _escaped(text: str, encoding: str) -> bytes:
    """`text` in an encoding that lacks some of its letters: those become \\uXXXX, so that a JSON
    document stays one."""

    def spelt(letter: str) -> str:
        try:
            letter.encode(encoding)
        except UnicodeEncodeError:
            return json.dumps(letter)[1:-1]
        return letter

    return "".join(map(spelt, text)).encode(encoding)


def _abandon_stdout() -> None:
    """Python would try to flush the rest at exit, fail again and change the exit code."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
