"""The exit codes that are no verdict, and printing that knows the one of them that it may need."""

from __future__ import annotations

import typer

from preflight import screen

USAGE, OUTPUT, INTERNAL, NOT_FOUND, NOT_EXECUTABLE = 2, 74, 70, 127, 126
UNKNOWN = 3
"""Of a Nagios plugin."""


def printed(text: str) -> None:
    """Write to stdout; where that can't be done, say why and leave with OUTPUT."""
    if problem := screen.write(text):
        screen.say(f"preflight: {problem}")
        raise typer.Exit(OUTPUT)
