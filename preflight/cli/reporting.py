"""From the end of a run to its exit code, for every command that has a report: what its flags may
be, printing and writing, and which code is left with."""

from __future__ import annotations

import os
import sys
from typing import Any

from preflight import console, redact
from preflight.config.resolve import Flags
from preflight.engine.agent import Ending
from preflight.humanize import one_of
from preflight.model import Status, Verdict
from preflight.output import files, terminal
from preflight.output.exit_codes import NOT_EXECUTABLE, NOT_FOUND, OUTPUT
from preflight.output.progress import ProgressDisplay
from preflight.process.pool import Workers
from preflight.process.signals import Interrupt
from preflight.sanitize import one_line

COLOURS = ("auto", "always", "never")
EXIT_STYLES = ("world", "node", "nagios")


def check_styles(flags: Flags, given: dict[str, Any]) -> None:
    """PreflightError for a --color or an --exit that there is not."""
    for name, words in (("color", COLOURS), ("exit_style", EXIT_STYLES)):
        one_of(given[name], words, flags.source(name))


def display(given: dict[str, Any]) -> ProgressDisplay:
    """What shows how far a run is."""
    return ProgressDisplay(
        quiet=given["quiet"],
        environ=os.environ,
        color=given["color"],
        ascii_only=given["ascii_only"],
    )


def reported(workers: Workers, ended: Ending, given: dict[str, Any]) -> tuple[str, ...]:
    """Publish the report, where this agent has it; what could not be written of it."""
    if ended.report is None:
        if ended.line:
            console.say(f"preflight: {ended.line}")
        return ()
    look = terminal.look(given["color"], given["ascii_only"], given["quiet"], given["verbose"])
    problems = files.publish(
        workers, ended.outputs, ended.report, look, ended.part, ended.hosted_part
    )
    files.write_step_summary(workers, ended.outputs, ended.report)
    return problems


def exit_code(style: str, ended: Ending, problems: tuple[str, ...], interrupt: Interrupt) -> int:
    """A function of the report; only an output that failed or a late signal can still be added.
    `--exit nagios` is the one exception from the table: OK, WARNING, CRITICAL, UNKNOWN."""
    judged = ended.own_code if style == "node" else ended.exit_code
    code = interrupt.exit_code or judged or (OUTPUT if problems else 0)
    if style != "nagios":
        return code
    if ended.verdict is Verdict.NOT_READY:
        return 2
    if ended.verdict is Verdict.READY and code in (0, OUTPUT):
        rows = ended.report.rows if ended.report is not None else ()
        return int(code == OUTPUT or any(row.status is Status.WARN for row in rows))
    return 3


def not_started(program: str, error: OSError) -> int:
    """Say why a command can't be started; the code that a shell would leave with."""
    said = f"preflight: {one_line(program)} can't be started: {error.strerror}"
    console.say(redact.without(said, redact.secrets(os.environ, sys.argv)))
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
