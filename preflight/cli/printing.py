"""Printing to stdout that knows the exit code of a failure."""

from __future__ import annotations

import typer

from preflight import console
from preflight.output import terminal
from preflight.output.exit_codes import OUTPUT


def printed(text: str) -> None:
    """Write to stdout; where that can't be done, say why and leave with OUTPUT."""
    if problem := terminal.write(text):
        console.say(f"preflight: {problem}")
        raise typer.Exit(OUTPUT)
