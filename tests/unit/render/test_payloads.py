"""No text of a report is anything but text to whoever reads it, in any format. A format that is
added is tried like the others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from support.payloads import PAYLOADS
from support.scenarios import hostile

from preflight.config.resolve import FORMATS
from preflight.render import formats, markdown
from preflight.render.human import Look
from preflight.sanitize import IN_LINES

PLAIN = "word"
"""What stands in the place of a payload in the report that a payload's is compared with."""


def rendered(name: str, text: str) -> str:
    shown = "".join(formats.parts(name, hostile(text), Look()))
    shown.encode()
    return shown


def skeleton(shown: str) -> Any:
    """What a reader takes for structure: all but the texts."""
    head = shown.lstrip()[:200].lower()
    if head.startswith("<?xml"):
        return [(e.tag, sorted(e.attrib)) for e in ElementTree.fromstring(shown.encode()).iter()]
    if head.startswith(("<!doctype html", "<html")):
        tags = Tags()
        tags.feed(shown)
        tags.close()
        return tags.found
    return None


class Tags(HTMLParser):
    """Tags with the names of their attributes, and what scripts and styles say."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, sorted(name for name, _ in attrs)))
        for name, value in attrs:
            link = name in ("href", "src", "action", "srcdoc", "style", "data", "formaction")
            assert not (link and PLAIN not in (value or "") and _active(value or "")), value
            assert not name.startswith("on"), name

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")


def _active(value: str) -> bool:
    return bool(re.match(r"\s*(?:javascript|data|vbscript):|.*evil\.example", value, re.IGNORECASE))


def marks(shown: str) -> list[str]:
    """What Markdown makes of it."""
    tokens = (
        MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(shown)
    )
    return list(_types(tokens))


def _types(tokens: Any) -> Iterator[str]:
    for token in tokens:
        if token.type in ("html_block", "html_inline"):
            # its words are ours where they are those of a known tag
            yield from re.findall(r"</?\w+", token.content)
        elif token.type not in ("text", "softbreak", "inline"):
            yield token.type
        yield from _types(token.children or ())


every_payload = pytest.mark.parametrize(
    "payload", PAYLOADS, ids=lambda payload: ascii(payload)[1:-1]
)


@pytest.mark.slow
@every_payload
def test_nothing_is_active_in_any_format(payload: str) -> None:
    for name in FORMATS:
        shown = rendered(name, payload)
        assert not IN_LINES.search(shown.replace("\t", " ")), name
        if (mine := skeleton(shown)) is not None:
            assert mine == skeleton(rendered(name, PLAIN)), name


@every_payload
def test_json_holds_it_as_it_is(payload: str) -> None:
    saw = json.loads(rendered("json", payload))["findings"][0]["saw"]
    assert saw == payload


@pytest.mark.slow
@every_payload
def test_markdown(payload: str) -> None:
    assert marks(rendered("markdown", payload)) == marks(rendered("markdown", PLAIN))
    brief = markdown.brief(hostile(payload))
    assert marks(brief) == marks(markdown.brief(hostile(PLAIN)))


@every_payload
def test_commands_of_github(payload: str) -> None:
    """One line for each finding, which is one command."""
    for line in markdown.workflow_commands(hostile(payload)):
        assert re.fullmatch(r"::(error|warning|notice)( [^:\n]*)?::[^\n\r]*", line), line


METRIC = re.compile(r'(\w+)(\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? [-+.\deE]+(NaN|Inf)?')


@every_payload
def test_prometheus(payload: str) -> None:
    lines = rendered("prometheus", payload).splitlines()
    names = [METRIC.fullmatch(line) for line in lines if not line.startswith("#")]
    assert None not in names, lines
    plain = rendered("prometheus", PLAIN).splitlines()
    assert len(lines) == len(plain)


@every_payload
def test_nagios(payload: str) -> None:
    shown = rendered("nagios", payload)
    assert shown.count("|") == rendered("nagios", PLAIN).count("|")
    assert len(shown.splitlines()) == len(rendered("nagios", PLAIN).splitlines())
    assert shown.startswith("PREFLIGHT CRITICAL")


@every_payload
def test_slurm(payload: str) -> None:
    """A list of hosts, to stand behind --exclude unquoted."""
    assert re.fullmatch(r"[A-Za-z0-9_.,\[\]-]*\n?", rendered("slurm", payload)), payload
    assert not rendered("slurm", payload).startswith("-")
