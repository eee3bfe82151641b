"""Foreign text made safe to keep and to show: nothing moves a cursor, hides, or is unbounded."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflight import console
from preflight.sanitize import (
    LONGEST,
    UNSAFE,
    clip,
    encodable,
    escaped,
    json_text,
    legible,
    one_line,
    plain,
    quoted,
)

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of what a terminal may obey or hide."""


def hidden(text: str) -> set[str]:
    return {letter for letter in text if unicodedata.category(letter) in HIDDEN}


@settings(deadline=None)
@given(st.text(max_size=80), st.booleans())
def test_legible_text_is_legible(foreign: str, ascii_only: bool) -> None:
    made = legible(foreign, ascii_only)
    assert hidden(made) == set()
    assert legible(made, ascii_only) == made
    assert made.isascii() or not ascii_only
    made.encode()  # no lone surrogates
    if not hidden(foreign) and not ascii_only:
        assert made == foreign


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\r\nb\tc", "a\\x0d b c"),
        ("abc\u202edef", "abc\\u202edef"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("caf\udce9", "caf\\udce9"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(foreign: str, shown: str) -> None:
    assert legible(foreign) == shown


def test_legible_is_bounded_and_says_how_long_it_was() -> None:
    assert legible("x" * 10_000) == "x" * LONGEST + "… (10000 characters)"


@given(st.text(max_size=80), st.integers(4, 40))
def test_one_line_can_be_printed(foreign: str, most: int) -> None:
    made = one_line(foreign, most)
    assert made.isprintable()
    assert len(made) <= most
    assert "  " not in made


@given(st.text(alphabet=st.characters(), max_size=80), st.integers(4, 40))
def test_clipped_text_can_be_encoded(foreign: str, limit: int) -> None:
    made = clip(foreign, limit)
    made.encode()
    assert len(made) <= limit
    encodable(foreign).encode()


def test_clip() -> None:
    assert clip("abcdef", 4) == "abc…"
    assert clip("abcd", 4) == "abcd"
    assert clip("a\udcff") == "a\\udcff"


def test_quoted() -> None:
    assert quoted("node-0\r") == r"'node-0\r'"
    assert quoted("x" * (1 << 20)) == "'" + "x" * 78 + "…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/caf\u00e9", "/data/caf\u00e9"),
        ("/data/a\nb", "/data/a\\nb"),
        ("/data/\udce9", "/data/\\udce9"),
        (b"GET / HTTP/1.1\r\n", "GET / HTTP/1.1\\r\\n"),
        (b"\x16\x03\x01", "\\x16\\x03\\x01"),
    ],
)
def test_escaped(text: str | bytes, shown: str) -> None:
    assert escaped(text) == shown


@settings(deadline=None)
@given(st.text(max_size=80))
@example("\x9b2J\u202e\u200b\U000e0041\ud800\n\x1b")
def test_json_has_all_of_a_text_and_nothing_that_a_terminal_obeys(foreign: str) -> None:
    made = json_text({foreign: [foreign]})
    assert UNSAFE.search(made.replace("\n", "")) is None
    made.encode()
    assert json.loads(made) == {foreign: [foreign]}


def test_what_we_say_is_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("a\x1b[2J\x9b\u202e\r\n\tb é")
    assert capsys.readouterr().err == "a\\x1b[2J\\x9b\\u202e\\x0d\n\tb é\n"


def test_plain() -> None:
    assert plain("a → b … ≥ é") == "a -> b ... >= ?"
