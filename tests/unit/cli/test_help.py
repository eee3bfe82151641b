"""--help: every command and every flag says what it does, in whole sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from preflight.cli.main import app


def commands(of: typer.core.TyperGroup, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that is shown, by its whole name."""
    for word, command in of.commands.items():
        if not command.hidden:
            yield f"{name} {word}".strip(), command
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command, f"{name} {word}".strip())


TOP = typer.main.get_command(app)
assert isinstance(TOP, typer.core.TyperGroup)
ALL = dict(commands(TOP))


@pytest.mark.parametrize("name", ALL)
def test_a_summary_is_a_whole_sentence(name: str) -> None:
    summary = ALL[name].get_short_help_str(65)
    assert summary.endswith(".")
    assert not summary.endswith("...")


@pytest.mark.parametrize("name", ALL)
def test_every_flag_says_what_it_does(name: str) -> None:
    told = {p.opts[0]: getattr(p, "help", "") for p in ALL[name].params}
    silent = {opts for opts, text in told.items() if not text}
    hidden = {p.opts[0] for p in ALL[name].params if getattr(p, "hidden", False)}
    assert silent <= hidden
