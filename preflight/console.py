"""A line of our own on stderr."""

from __future__ import annotations

import sys

from preflight.sanitize import legible_lines


def say(text: str) -> None:
    """A line of our own to stderr, never in the way of anything; what others wrote into it is
    written out where a terminal would obey it."""
    if sys.stderr is None:
        return  # print() would take stdout instead
    try:
        print(legible_lines(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
