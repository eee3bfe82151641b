"""Text for a screen: nothing in it moves the cursor, and it is broken where we want it broken.

What observations say is foreign: host names, values of variables, output of a crashing rank. It
passes `legible` before it is laid out.
"""

from __future__ import annotations

import re
import textwrap

LONGEST = 600
"""Characters of one foreign text that a screen shows; the JSON report holds all of it."""

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
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
    }
)

BLANK = re.compile(r"[\t\n\v\f]+")
# control characters, what overrides the direction of writing or has no width, lone surrogates, tags
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def legible(text: str, ascii_only: bool = False, longest: int = LONGEST) -> str:
    """`text` on one line and bounded, in ASCII where that is asked for; what a terminal would obey
    or hide is written out (`\\x1b`)."""
    if len(text) > longest:
        text = f"{text[:longest]}… ({len(text)} characters)"
    if not text.isascii() or not text.isprintable():
        text = UNSAFE.sub(_escape, BLANK.sub(" ", text))
    return plain(text) if ascii_only else text


def plain(text: str) -> str:
    """`text` in ASCII; what has no counterpart there becomes `?`."""
    if text.isascii():
        return text
    return text.translate(PLAIN).encode("ascii", "replace").decode()


def cut(text: str, room: int, more: str = "…") -> str:
    """`text` in at most `room` characters, ended between two words where one ends near."""
    if len(text) <= room:
        return text
    kept = text[: max(0, room - len(more))]
    start, blank, _ = kept.rpartition(" ")
    if blank and text[len(kept)] != " " and len(start) >= len(kept) * 2 // 3:
        kept = start
    return kept.rstrip(" ·|,;:") + more


def wrapped(text: str, room: int, hang: int = 0) -> list[str]:
    """Lines of at most `room` characters, the further ones indented by `hang`; a longer word (a
    path, a value) is left whole, so that it can be copied."""
    return textwrap.wrap(
        text,
        max(room, 16),
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def action(text: str, remark: str, room: int) -> list[str]:
    """A command that can be pasted, with its remark as a comment behind it or, where that is too
    long, above it."""
    if not remark:
        return [text]
    if len(text) + len(remark) + 5 <= room:
        return [f"{text}   # {remark}"]
    return [*(f"# {line}" for line in wrapped(remark, room - 2)), text]


def pasteable(text: str, room: int) -> list[str]:
    """A `do now`: where three blanks divide it, a command and a remark; else a sentence."""
    command, blanks, remark = text.partition("   ")
    if not blanks:
        return wrapped(text, room)
    return action(command, remark.strip(), room)
