"""Says when a planted fault happens; the test measures from then on."""

import os
from pathlib import Path


def now() -> None:
    """The next thing that this rank does is what went wrong."""
    if path := os.environ.get("PLANTED"):
        Path(path).touch()
