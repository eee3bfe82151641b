"""What the documents that tools write are made of, and what they print meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence


def say(*cells: object) -> None:
    print(*cells, sep=" | ", file=sys.stderr, flush=True)


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
