"""A terminal that can be read back, and a pipe: `preflight` as its users start it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyte

SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
PREFLIGHT = (sys.executable, *SAFE_PATH, "-m", "preflight")

PLAIN_ENV = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm-256color",
}
"""What a user has; nothing that says how to print."""

ASCII_ENV = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale without our glyphs."""


@dataclass(frozen=True)
class Shown:
    """What a command left on a terminal. `raw` is all that it wrote."""

    screen: pyte.Screen
    raw: str
    code: int

    @property
    def lines(self) -> list[str]:
        """The screen without trailing blanks and empty lines at its end."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def styles(self, text: str) -> set[tuple[str, bool]]:
        """The colours of all places where `text` stands, each with whether it is bold."""
        found = set()
        for number, line in enumerate(self.screen.display):
            if (column := line.find(text)) >= 0:
                cell = self.screen.buffer[number][column]
                found.add((cell.fg, cell.bold))
        return found


def on_terminal(
    command: Sequence[str],
    columns: int = 98,
    env: Mapping[str, str] | None = None,
    seconds: float = 60.0,
) -> Shown:
    """Run a command with a terminal of its own as stdin, stdout and stderr."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (200, columns))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=PLAIN_ENV | (env or {}),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        raw = _read(ours, time.monotonic() + seconds)
        code = process.wait(timeout=10)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    screen = pyte.Screen(columns, 200)
    pyte.Stream(screen).feed(raw)
    return Shown(screen, raw, code)


def _read(descriptor: int, until: float) -> str:
    """All that is written to a terminal until its last holder has closed it."""
    parts = []
    while select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def in_pipe(
    command: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose output nobody looks at while it runs."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=PLAIN_ENV | (env or {}),
        timeout=seconds,
        check=False,
    )
