"""What the documents that tools write are made of, and what they print meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def say(*cells: object) -> None:
    print(*cells, sep=" | ", file=sys.stderr, flush=True)


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def commit() -> str:
    """Of this program, and whether something in it has been changed since."""
    asked = ["git", "-C", str(Path(__file__).parents[1]), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()
