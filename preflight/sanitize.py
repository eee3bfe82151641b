"""Text that others wrote, made safe: host names, values of variables, logs, what a rank printed.

The rule. What an observation keeps is valid UTF-8 and bounded: clip(), or one_line() where it comes
from a log or another process. What a screen, a log or a metric shows has passed legible() besides:
one line of at most LONGEST characters, in which control characters, what overrides the direction of
writing (bidi), what has no width, and lone surrogates are written out (`\\x1b`). JSON keeps all
of a text, with the same letters in its own escapes: json_text(). Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

LIMIT = 256
"""Characters kept of a text: longer than any host name that is one."""

LINE = 300
"""Characters kept of a line that a process or a log says."""

LONGEST = 600
"""Characters of one foreign text that a screen shows; the JSON report holds all of it."""

WORD = 1024
"""Characters of a text that is pasted into a shell."""

PATH_OF = re.compile("(?:^|[: ])=")
"""What zsh takes for the path of a command, and refuses where there is none of that name."""

SUBSCRIPT = re.compile(r"\[.*[$`]")
"""What `unset 'x[$(id)]'` runs in spite of its quotes."""

PROSE = re.compile(r"[\w@%+=:,./ -]*", re.ASCII)
"""Words in which a shell finds nothing else."""

PLAIN = str.maketrans(
    {
        "·": "|",
        "–": "-",
        "—": "-",
        "…": "...",
        "→": "->",
        "≥": ">=",
        "≤": "<=",
        "×": "x",
        "±": "+-",
        "µ": "u",
        # single quotes become ?: an apostrophe would end those of a shell
        "“": '"',
        "”": '"',
    }
)

BLANK = re.compile(r"[\t\n\v\f]+")
# control characters, what overrides the direction of writing or has no width, lone surrogates, tags
_HIDDEN = (
    "\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
UNSAFE = re.compile(f"[\x00-\x1f{_HIDDEN}")
IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_HIDDEN}")
IN_JSON = re.compile(f"[{_HIDDEN}")


def encodable(text: str) -> str:
    """`text` with lone surrogates written out: os.environ and os.listdir hold them for bytes that
    are not UTF-8 (PEP 383), and no report can."""
    return text.encode("utf-8", "backslashreplace").decode()


def json_text(data: Any) -> str:
    """A JSON document of ours as text that ends with a newline, encodable in UTF-8; what a terminal
    would obey or hide is in JSON's escapes."""
    return _shown(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


class JsonText:
    """A value that is JSON text already, which takes less than the data."""

    __slots__ = ("_text",)

    def __init__(self, data: Any) -> None:
        self._text = _shown(_compact(data)).encode()

    def __str__(self) -> str:
        return self._text.decode()


def json_lines(data: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The same of a large object, whose members come one by one, in parts: what is within its
    second level is one line each, since a reader has no use for a line per number, and to lay it
    out takes a minute."""
    before = "{\n"
    for key, value in data:
        yield f"{before} {json.dumps(key)}: "
        yield from map(_shown, _laid_out(value, 2))
        before = ",\n"
    yield "\n}\n"


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _shown(text: str) -> str:
    plain = text.isascii() and "\x7f" not in text
    return text if plain else IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _laid_out(data: Any, levels: int) -> Iterator[str]:
    if type(data) is JsonText:
        yield str(data)
    elif not levels or not data or not isinstance(data, (dict, list)):
        yield _compact(data)
    elif isinstance(data, list):
        before = "[\n  "
        for one in data:
            yield before
            yield from _laid_out(one, 0)
            before = ",\n  "
        yield "\n ]"
    else:
        before = "{\n  "
        for key, one in data.items():
            yield f"{before}{json.dumps(key, ensure_ascii=False)}: "
            yield from _laid_out(one, levels - 1)
            before = ",\n  "
        yield "\n }"


def clip(text: str, limit: int = LIMIT) -> str:
    """At most `limit` characters, ending in `…` if it was longer, encodable in UTF-8."""
    made = encodable(text[: limit + 1])
    return made if len(made) <= limit else made[: limit - 1] + "…"


def quoted(value: str, limit: int = 80) -> str:
    """repr() of a value, so that blanks and line ends show; cut to `limit` characters."""
    return clip(repr(clip(value, limit * 2)), limit)


def one_line(text: object, most: int = LINE) -> str:
    """At most `most` characters in one line; blanks in place of what cannot be printed."""
    letters = (c if c.isprintable() else " " for c in str(text)[: 4 * most])
    return " ".join("".join(letters).split())[:most]


def escaped(text: str | bytes, most: int = 200) -> str:
    """The start of a path or of a stranger's bytes: as it is if printable, else with Python's
    escapes (`\\n`). What was longer ends in `…`."""
    more = "…" if len(text) > most else ""
    text = text[:most]
    if isinstance(text, bytes):
        text = text.decode("ascii", "backslashreplace")
    return (text if text.isprintable() else text.encode("unicode_escape").decode()) + more


def shell_word(text: str) -> str:
    """`text` as one word of a shell, which runs nothing that is in it. Empty where it can't be
    pasted as it is: it is none, was cut, or has letters that a screen does not show."""
    whole = text and len(text) <= WORD and not text.endswith("…")
    if not whole or not text.isprintable() or SUBSCRIPT.search(text):
        return ""
    word = shlex.quote(text)
    return f"'{word}'" if word == text and PATH_OF.search(text) else word


def shell_prose(text: str) -> str:
    """Words of a sentence, quoted only where a shell would find more in them."""
    plainly = PROSE.fullmatch(text) and not PATH_OF.search(text)
    return text if plainly else shell_word(text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def legible(text: str, ascii_only: bool = False, longest: int = LONGEST) -> str:
    """`text` on one line and bounded, in ASCII where that is requested; what a terminal would obey
    or hide is written out (`\\x1b`)."""
    if len(text) > longest:
        text = f"{text[:longest]}… ({len(text)} characters)"
    if not text.isascii() or not text.isprintable():
        text = UNSAFE.sub(_escape, BLANK.sub(" ", text))
    return plain(text) if ascii_only else text


def legible_lines(text: str) -> str:
    """The same of a text of several lines, whole."""
    return text if text.isprintable() else IN_LINES.sub(_escape, text)


def plain(text: str) -> str:
    """`text` in ASCII; what has no counterpart there becomes `?`."""
    if text.isascii():
        return text
    return text.translate(PLAIN).encode("ascii", "replace").decode()
