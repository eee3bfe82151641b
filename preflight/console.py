"""A line of our own on stderr."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A line of our own to stderr, never in the way of anything."""
    if sys.stderr is None:
        return  # print() would take stdout instead
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
