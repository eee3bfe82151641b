"""Where the output goes and how: colours, glyphs, width, the progress line. Decided once.

NO_COLOR > FORCE_COLOR / CLICOLOR_FORCE > CLICOLOR > is it a terminal; --color beats them all.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from preflight.render.human import WIDTH, Look
from preflight.runner import Progress
from preflight.units import duration

HEARTBEAT = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def colours(choice: str, environ: Mapping[str, str], terminal: bool) -> bool:
    """Whether to print colours."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return terminal


def encodes_glyphs(stream: TextIO) -> bool:
    try:
        "✓✗…–·".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def width(stream: TextIO) -> int:
    """The terminal's columns; WIDTH in a pipe or a file, whoever reads it later."""
    if not is_terminal(stream):
        return WIDTH
    return max(20, shutil.get_terminal_size((WIDTH, 24)).columns)


def look(color: str, ascii_only: bool, quiet: bool, verbose: bool) -> Look:
    """How this run's stdout is printed to."""
    return Look(
        width=width(sys.stdout),
        ascii=ascii_only or not encodes_glyphs(sys.stdout),
        colour=colours(color, os.environ, is_terminal(sys.stdout)),
        quiet=quiet,
        verbose=verbose,
    )


def write(text: str) -> str:
    """Print to stdout; why it could not be done, empty when it could. A reader that went away
    (`| head`) is no failure."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _abandon_stdout()
        return "" if error.errno == errno.EPIPE else f"stdout: {error.strerror}"
    except ValueError:
        return "stdout is closed"
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.flush()
    return ""


def _abandon_stdout() -> None:
    """Python would try to flush the rest at exit, fail again and change the exit code."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


def say(text: str) -> None:
    """A line of our own to stderr, never in the way of anything."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


class ProgressLine:
    """The line on stderr that shows what is awaited: rewritten on a terminal, a heartbeat else."""

    def __init__(self, *, quiet: bool, environ: Mapping[str, str]) -> None:
        self._live = is_terminal(sys.stderr) and not environ.get("CI") and not quiet
        self._quiet = quiet
        self._shown = False
        self._beat = time.monotonic() + HEARTBEAT

    def __call__(self, progress: Progress) -> None:
        if self._live:
            self._rewrite(progress)
        elif not self._quiet and time.monotonic() >= self._beat:
            self._beat += HEARTBEAT
            waiting = f", waiting for {progress.waiting_for}" if progress.waiting_for else ""
            where = f" in {progress.check}" if progress.check else ""
            done = f"{progress.done}/{progress.total} done"
            say(f" preflight: {progress.seconds:.0f} s, {done}{waiting}{where}")

    def _rewrite(self, progress: Progress) -> None:
        text = f" {progress.done}/{progress.total}"
        if progress.check:
            of = f"{duration(progress.running_for)} of {duration(progress.limit)}"
            text += f" {progress.check}  {of}  {progress.waiting_for}"
        elif progress.waiting_for:
            text += f" {progress.waiting_for}"
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        try:
            sys.stderr.write("\r\x1b[K" + text[: columns - 1])
            sys.stderr.flush()
        except (OSError, ValueError):
            self._live = False
        self._shown = True

    def clear(self) -> None:
        if self._shown and self._live:
            try:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            except (OSError, ValueError):
                pass
