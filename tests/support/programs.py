"""Programs of many kinds: what they print, how they end, what they do with signals, threads, forks
and their terminal: the blocks of tests/data/programs.txt, in Python or for a shell (`sh: …`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "data/programs.txt").read_text()


def programs() -> Mapping[str, list[str]]:
    """name -> how it is started."""
    found = {}
    for block in TEXT.split("=== ")[1:]:
        name, _, code = block.partition("\n")
        start = ["sh", "-c"] if name.startswith("sh: ") else [sys.executable, "-c"]
        found[name] = [*start, code.removesuffix("\n")]
    return found
