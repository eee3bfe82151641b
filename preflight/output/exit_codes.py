"""The exit codes that are no verdict, and printing that knows the one of them that it may need."""

from __future__ import annotations

USAGE, OUTPUT, INTERNAL, NOT_FOUND, NOT_EXECUTABLE = 2, 74, 70, 127, 126
UNKNOWN = 3
"""Of a Nagios plugin."""
