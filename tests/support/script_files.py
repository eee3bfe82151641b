"""Training scripts as text, for the rules that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from preflight.domains.script import linter, source
from preflight.domains.script.source import Hit
from preflight.host import Host

STARTED = "# started by: "
"""In the first line of a script: the command that starts it."""


def looked_at(
    path: Path | str,
    environ: Mapping[str, str] | None = None,
    gpu: bool = False,
    argv: Sequence[str] = (),
) -> tuple[Hit, ...]:
    """What the rules say of a script, in the order of its lines."""
    program = source.read_program(Host(), str(path), "/")
    return linter.hits(program, environ or {}, gpu, argv or started_by(Path(path)))


def started_by(path: Path) -> list[str]:
    """The command that a script of the tests says it is started by."""
    first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return first.removeprefix(STARTED).split() if first.startswith(STARTED) else []


def write_script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
