"""Where the output goes: a terminal or a pipe, colours, letters, width."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from support import scenarios
from support.terminal import ASCII_ENV, PLAIN_ENV, PREFLIGHT, in_pipe, on_terminal

from preflight import __version__
from preflight.output import terminal as screen
from preflight.render import human
from preflight.render import json as as_json

ESCAPE = "\x1b"


def saved(folder: Path, scenario: str) -> str:
    """A report of that scenario, in a file."""
    path = folder / f"{scenario}.json"
    path.write_text(as_json.render(scenarios.judged(scenario)), encoding="utf-8")
    return str(path)


def show(folder: Path, scenario: str, *flags: str) -> tuple[str, ...]:
    return (*PREFLIGHT, "show", saved(folder, scenario), *flags)


def expected(scenario: str, look: human.Look) -> list[str]:
    return human.render(scenarios.judged(scenario), look).splitlines()


# --- a terminal ---


@pytest.mark.parametrize("columns", [98, 80, 40])
@pytest.mark.parametrize("scenario", ["healthy", "port-held"])
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colour", "plain"])
def test_a_terminal_shows_what_was_laid_out(
    scenario: str, columns: int, env: dict[str, str], tmp_path: Path
) -> None:
    shown = on_terminal(show(tmp_path, scenario), columns, env)
    assert shown.lines == expected(scenario, human.Look(width=columns))
    assert (ESCAPE in shown.raw) is (not env)
    assert shown.code == 0


def test_the_colours_of_a_red_report(tmp_path: Path) -> None:
    shown = on_terminal(show(tmp_path, "port-held"))
    assert shown.styles("✗") == {("red", True)}
    assert shown.styles("NOT READY") == {("red", True)}
    assert shown.styles("FAIL, certain") == {("red", True)}
    assert shown.styles("of alice listens on") == {("default", True), ("default", False)}


def test_the_colours_of_a_green_report(tmp_path: Path) -> None:
    shown = on_terminal(show(tmp_path, "healthy"))
    assert shown.styles("✓") == {("green", False)}
    assert shown.styles(" READY") == {("green", True)}
    assert "\x1b[31m" not in shown.raw


def test_no_color_leaves_every_cell_as_it_is(tmp_path: Path) -> None:
    shown = on_terminal(show(tmp_path, "port-held"), env={"NO_COLOR": "1"})
    assert shown.styles("✗") == {("default", False)}


def test_a_dumb_terminal_gets_no_escapes(tmp_path: Path) -> None:
    shown = on_terminal(show(tmp_path, "port-held"), env={"TERM": "dumb"})
    assert ESCAPE not in shown.raw
    assert shown.lines == expected("port-held", human.Look())


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (("--ascii",), {"ascii": True}),
        (("-q",), {"quiet": True}),
        (("-v",), {"verbose": True}),
        (("-q", "-v"), {"quiet": True, "verbose": True}),
    ],
    ids=lambda v: " ".join(v),
)
def test_flags_of_the_screen(
    flags: tuple[str, ...], changes: dict[str, bool], tmp_path: Path
) -> None:
    shown = on_terminal(show(tmp_path, "ranks-24", *flags, "--color", "never"))
    assert shown.lines == expected("ranks-24", human.Look(**changes))


# --- a pipe ---


def test_a_pipe_gets_text_of_98_columns(tmp_path: Path) -> None:
    ended = in_pipe(show(tmp_path, "port-held"), {"COLUMNS": "40"})
    assert ended.stdout.decode().splitlines() == expected("port-held", human.Look())
    assert ended.stderr == b""


@pytest.mark.parametrize(
    ("flag", "env", "coloured"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("never", {"FORCE_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
    ],
)
def test_colours_in_a_pipe(flag: str, env: dict[str, str], coloured: bool, tmp_path: Path) -> None:
    ended = in_pipe(show(tmp_path, "port-held", "--color", flag), env)
    text = ended.stdout.decode()
    assert (ESCAPE in text) is coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() == expected("port-held", human.Look())
    assert ended.stderr == b""  # no control sequence of a progress line


@pytest.mark.parametrize("env", [ASCII_ENV, {"PYTHONIOENCODING": "latin-1"}], ids=["C", "latin-1"])
def test_an_encoding_without_our_glyphs(env: dict[str, str], tmp_path: Path) -> None:
    ended = in_pipe(show(tmp_path, "hostile"), env)
    assert ended.stdout.isascii()
    assert ended.stdout.decode().splitlines() == expected("hostile", human.Look(ascii=True))
    assert ended.stderr == b""


@pytest.mark.parametrize("scenario", ["port-held", "hostile"])
@pytest.mark.parametrize("env", [{}, ASCII_ENV], ids=["UTF-8", "C"])
def test_json_on_stdout_is_json_in_any_encoding(
    env: dict[str, str], scenario: str, tmp_path: Path
) -> None:
    ended = in_pipe(show(tmp_path, scenario, "-o", "json"), env)
    wanted = json.loads(as_json.render(scenarios.judged(scenario)))
    assert json.loads(ended.stdout.decode("ascii" if env else "utf-8")) == wanted
    assert ended.returncode == 0


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "--json"), ("explain", "net.port"), ("schema",)], ids=" ".join
)
def test_what_we_say_of_ourselves_in_ascii(arguments: tuple[str, ...]) -> None:
    ended = in_pipe((*PREFLIGHT, *arguments), ASCII_ENV)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.isascii()
    assert len(ended.stdout.splitlines()) >= 10


def shell(line: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", line, "sh", *arguments],
        env=PLAIN_ENV,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    ended = shell('{ "$@"; echo "code $?" >&2; } | head -n 1', *show(tmp_path, "ranks-24", "-v"))
    assert ended.stdout.decode().startswith("preflight 0.1.0")
    assert ended.stderr == b"code 0\n"


@pytest.mark.parametrize(
    ("redirection", "why"),
    [(">/dev/full", "stdout: No space left on device"), (">&-", "stdout is closed")],
)
def test_a_stdout_that_cannot_be_written_to(redirection: str, why: str, tmp_path: Path) -> None:
    ended = shell(f'"$@" {redirection}', *show(tmp_path, "healthy"))
    assert ended.returncode == 74
    assert ended.stderr.decode() == f"preflight: could not write the report: {why}\n"


def test_a_closed_stderr_keeps_our_remarks_off_stdout(tmp_path: Path) -> None:
    ended = shell('"$@" 2>&-', *PREFLIGHT, "show", str(tmp_path / "missing.json"))
    assert (ended.returncode, ended.stdout) == (2, b"")


# --- decisions ---


@pytest.mark.parametrize(
    ("choice", "environ", "terminal", "wanted"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"FORCE_COLOR": ""}, False, False),
        ("auto", {"FORCE_COLOR": "1", "CLICOLOR": "0"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "1", "CLICOLOR": "0"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False, False),
        ("auto", {"CLICOLOR_FORCE": ""}, False, False),
        ("auto", {"CLICOLOR": "0"}, True, False),
        ("auto", {"CLICOLOR": "1"}, True, True),
        ("auto", {"CLICOLOR": "1"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"CI": "true"}, True, True),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}, True, False),
    ],
)
def test_who_decides_on_colours(
    choice: str, environ: dict[str, str], terminal: bool, wanted: bool
) -> None:
    assert screen.colours(choice, environ, terminal) is wanted


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[TextIO]:
    """A text stream to a terminal of as many columns as the test asks for."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, request.param))
    with os.fdopen(theirs, "w") as made:
        yield made
    os.close(ours)


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [(40, 40), (80, 80), (0, human.WIDTH), (5, screen.NARROWEST), (300, screen.WIDEST)],
    indirect=["stream"],
)
def test_the_width_is_that_of_the_stream_itself(stream: TextIO, wanted: int) -> None:
    assert screen.width(stream) == wanted


def test_the_width_where_there_is_no_terminal(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert screen.width(file) == human.WIDTH
    assert screen.width(file) == human.WIDTH  # closed by now
    assert screen.width(None) == human.WIDTH


# --- a whole run ---


def test_a_run_on_a_terminal_leaves_only_the_report() -> None:
    shown = on_terminal((*PREFLIGHT, "run", "--level", "quick", "--nproc", "2"))
    assert "\x1b[J" in shown.raw  # of the rows that have filled in, nothing is left
    assert shown.lines[0].startswith(f"preflight {__version__} · 1 node, 2 ranks · level quick")
    assert any(line.startswith((" READY ", " NOT READY ", " UNDECIDED ")) for line in shown.lines)
    assert not any(re.match(r" \d+/\d+ ", line) for line in shown.lines)


def test_a_run_in_ci_is_plain_and_silent() -> None:
    ended = in_pipe((*PREFLIGHT, "run", "--level", "quick", "--nproc", "1"), {"CI": "true"})
    assert ended.stderr == b""
    assert ESCAPE.encode() not in ended.stdout
