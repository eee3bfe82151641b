"""That preflight speaks as those who search for it do: what a reader of the program or of its code
meets has none of the words of support/language.py. The texts of findings are read in
test_contract.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from support.language import IN_CODE, explained, strange_word

from preflight.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / name for name in ("README.md", "docs/usage.md", "docs/glossary.md")]

CODE = [
    path
    for folder in ("preflight", "checks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.parent.is_symlink()
]


def helps(command: typer.core.Any, name: str = "preflight") -> list[tuple[str, str]]:
    """Each command and flag with what --help says of it."""
    said = [(name, command.help or ""), (name, command.short_help or "")]
    said += [(f"{name} {p.opts[0]}", getattr(p, "help", "") or "") for p in command.params]
    for word, of in getattr(command, "commands", {}).items():
        said += helps(of, f"{name} {word}")
    return said


def test_help() -> None:
    assert [
        (n, word) for n, text in helps(typer.main.get_command(app)) if (word := strange_word(text))
    ] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents(path: Path) -> None:
    prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [line for line in prose.splitlines() if strange_word(line)] == []


def test_what_explains_the_code() -> None:
    found = []
    for path in CODE:
        source = path.read_text(encoding="utf-8")
        # most files need not be parsed: none of the words is anywhere in them
        for line, text in explained(source) if strange_word(IN_CODE.sub("", source)) else ():
            if word := strange_word(IN_CODE.sub("", text)):
                found.append(f"{path.relative_to(ROOT)}:{line}: {word}")
    assert found == []
