"""A program does what it does without `rehearse`, byte for byte: its output, exit status, signals,
stdin, sys.path, threads at exit, forks.

All of them run as the rehearsed command does, with what is set for it; some of them also under the
whole of `preflight rehearse`, or all where ALL is set."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import command
from support.programs import programs

from preflight.rehearsal import workdir
from preflight.rehearsal.command import variables

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}
STDIN = b"one\ntwo\nthree"
PROGRAMS = programs()
WHOLE = (
    "prints bytes",
    "exit 3",
    "os._exit",
    "SIGKILL",
    "stdin",
    "a fork that goes on",
    "sh: reads",
)
"""Those that are also rehearsed in the suite."""

Outcome = tuple[int | None, bytes, bytes]


def test_there_are_sixty() -> None:
    assert len(PROGRAMS) >= 60


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    made = workdir.make(None, None, None)
    yield made
    workdir.remove(made, None, None)


def alone(argv: list[str], cwd: Path) -> Outcome:
    done = subprocess.run(argv, env=ENVIRON, input=STDIN, capture_output=True, cwd=cwd, timeout=60)
    return done.returncode, done.stdout, addressless(done.stderr)


def addressless(text: bytes) -> bytes:
    return re.sub(rb"0x[0-9a-f]+", b"0x", text)


def as_rehearsed(argv: list[str], folder: str, cwd: Path) -> Outcome:
    """By the class that starts the command, in a process whose standard streams it gets."""
    code = (
        "import json, sys; from preflight.rehearsal.command import Running; "
        "r = Running(json.loads(sys.argv[1]), json.loads(sys.argv[2])); "
        "r._process.wait(); print(r.exit, file=open(sys.argv[3], 'w'))"
    )
    environ = ENVIRON | variables(ENVIRON, folder, workdir.VARIABLE)
    exit_file = cwd.parent / f"{cwd.name}.exit"
    words = [sys.executable, "-c", code, json.dumps(argv), json.dumps(environ), str(exit_file)]
    path = {"PYTHONPATH": str(command.REPOSITORY)}
    done = subprocess.run(
        words, env=ENVIRON | path, input=STDIN, capture_output=True, cwd=cwd, timeout=60
    )
    return int(exit_file.read_text()), done.stdout, addressless(done.stderr)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, folder: str, tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    plain, rehearsed = alone(PROGRAMS[name], cwd), as_rehearsed(PROGRAMS[name], folder, cwd)
    assert rehearsed == plain


@pytest.mark.parametrize("name", PROGRAMS if os.environ.get("ALL") else WHOLE)
def test_a_whole_rehearsal(name: str, tmp_path: Path) -> None:
    """Its report goes to a file; what it says on stderr begins with its name."""
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    code, out, err = alone(PROGRAMS[name], cwd)
    words = ("rehearse", "-q", "-o", "json=../report.json", "--", *PROGRAMS[name])
    pipe = subprocess.PIPE
    streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
    running = command.start(*words, env=ENVIRON, unset=("PYTHONPATH",), cwd=cwd, **streams)
    told, said = running.process.communicate(STDIN, timeout=60)
    assert command.left(running.tag) == []
    report = json.loads((tmp_path / "report.json").read_text())
    (ranks,) = report["observations"]["job.ranks"].values()
    assert ranks["ok"]["command"]["exit"] == code
    assert told.startswith(out)
    theirs = b"".join(
        line
        for line in said.splitlines(keepends=True)
        if not line.lstrip().startswith(b"preflight:")
    )
    assert addressless(theirs) == err


TERMINAL = """\
import os
print(os.isatty(0), os.isatty(1), os.get_terminal_size(), os.ttyname(0))
print(repr(input()))
"""


def test_its_terminal_is_the_users(tmp_path: Path) -> None:
    """It reads from it, knows its size, and gets Ctrl-C of it."""
    import termios

    main, side = pty.openpty()
    termios.tcsetwinsize(side, (33, 77))
    words = ("rehearse", "-q", "--", sys.executable, "-c", TERMINAL)
    running = command.start(*words, stdin=side, stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    os.write(main, b"typed\n")
    text = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        text += chunk
    os.close(main)
    assert running.end().code == 0
    assert re.search(rb"True True os.terminal_size\(columns=77, lines=33\) /dev/pts/\d+", text)
    assert b"'typed'" in text
