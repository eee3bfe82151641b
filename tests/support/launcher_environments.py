"""What launchers gave to the processes that they started: the files of tests/data/launchers/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data/launchers"


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a launch: the machine that it ran on, and what it found."""

    host: str
    environ: Mapping[str, str]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.env"))


def comment(name: str) -> str:
    """How a recording was made."""
    lines = (FOLDER / f"{name}.env").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("#"))


def processes(name: str) -> list[Process]:
    """All processes of a launch in the order of their ranks. The first is written down whole, of
    the others what differs from it; `-NAME` is a variable that they lack."""
    found: list[Process] = []
    for block in (FOLDER / f"{name}.env").read_text().split("\n[")[1:]:
        head, *lines = block.splitlines()
        environ = dict(found[0].environ) if found else {}
        for line in filter(None, lines):
            variable, sign, value = line.partition("=")
            if sign:
                environ[variable] = value
            else:
                del environ[variable.removeprefix("-")]
        found.append(Process(head.rstrip("]"), environ))
    return found
