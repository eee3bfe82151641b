"""The pages of the documentation: one for each check and finding, every link leads somewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest
import yaml

from preflight import registry

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!`)\[[^\]]+\]\(([^)#\s]+)(#[^)\s]*)?\)")


@cache
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "tools_documentation", ROOT / "tools/documentation.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def pages() -> dict[str, str]:
    return dict(site().pages())


@pytest.mark.slow
def test_every_check_and_finding_has_a_page() -> None:
    for loaded in registry.load():
        assert loaded.question.rstrip("?") in pages()[f"checks/{loaded.id}.md"].replace("\\", "")
        for code in loaded.module.FINDINGS:
            text = pages()[f"findings/{loaded.id}/{code}.md"]
            for heading in ("## What you see", "## Cause", "## Check", "## Fix"):
                assert heading in text, (loaded.id, code)
    shown = sum("## Example" in text for text in pages().values())
    assert shown > 50


@pytest.mark.slow
def test_every_link_leads_to_a_page() -> None:
    pictures = {f"docs/images/{path.name}" for path in (ROOT / "docs/images").glob("*")}
    known = {*pages(), *pictures, "index.md"}
    for name, text in pages().items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for to, _ in LINK.findall(prose):
            if "://" in to:
                continue
            parts: list[str] = []
            for part in (PurePosixPath(name).parent / to).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            assert "/".join(parts) in known, (name, to)


@pytest.mark.slow
def test_the_menu_leads_to_pages() -> None:
    config = yaml.safe_load((ROOT / "docs/mkdocs.yml").read_text(encoding="utf-8"))
    assert config["use_directory_urls"] is False  # as the address behind `more` has it
    assert "offline" in config["plugins"]
    flat = re.findall(r"[\w./]+\.md", yaml.safe_dump(config["nav"]))
    assert set(flat) - {"index.md"} <= set(pages())


@pytest.mark.slow
def test_the_man_page_has_every_command_and_flag() -> None:
    text = site().man().replace("\\-", "-")
    for word in (".SS run", ".SS baseline diff", ".SS demo", "--nproc", "--output", "EXIT STATUS"):
        assert word in text, word
