"""A JSON text that is read piece by piece: neither all of it nor all that it says is ever there.

The way to a piece is that of the document: of what is on it the members are read one by one, and
what becomes of each is kept in its place, such as something that takes less room. Any JSON is read,
however it is laid out, and what is none is refused as serde.parsed() does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from preflight.serde import parsed_piece

AHEAD = 1 << 20
"""Letters of the text that are there at a time; where a piece is longer, twice as many."""
GOES_ON = 2
"""Letters behind a number with which it may go on, if they are the last ones: `1` and `e+`."""
BLANKS = re.compile(r"[ \t\n\r]*")
ANY = "*"

Ways = Mapping[str, Any]
"""By the name of a member, or ANY of the others: the ways within it, or what makes of the piece
what is kept. A piece to which none leads is kept as it is."""


def read(parts: Iterable[str], ways: Ways | Callable[[Any], Any]) -> Any:
    """What a text says that comes in parts; ValueError where it is not JSON, or none that
    can be written again."""
    text = _Text(parts)
    data = _value(text, ways, 0)
    if text.next_letter():
        _refuse("more than one value")
    return data


def _value(text: _Text, ways: Ways | Callable[[Any], Any], depth: int) -> Any:
    if not isinstance(ways, Mapping):
        return ways(text.value(depth))
    match text.next_letter():
        case "{":
            return _object(text, ways, depth + 1)
        case "[":
            return _list(text, ways, depth + 1)
    return text.value(depth)


def _object(text: _Text, ways: Ways, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    text.skip("{")
    while text.next_letter() != "}":
        if made:
            text.skip(",")
        if text.next_letter() != '"':
            _refuse("no name of a member")
        name = text.value(depth)
        text.skip(":")
        made[name] = _value(text, ways.get(name, ways.get(ANY, _as_it_is)), depth)
    text.skip("}")
    return made


def _list(text: _Text, ways: Ways, depth: int) -> list[Any]:
    made: list[Any] = []
    text.skip("[")
    while text.next_letter() != "]":
        if made:
            text.skip(",")
        made.append(_value(text, ways.get(ANY, _as_it_is), depth))
    text.skip("]")
    return made


def _as_it_is(data: Any) -> Any:
    return data


def _refuse(why: str) -> NoReturn:
    raise json.JSONDecodeError(why, "", 0)


class _Text:
    """As much of the text as is being read, and where in it we are."""

    def __init__(self, parts: Iterable[str]) -> None:
        self._parts = iter(parts)
        self._held = ""
        self._at = 0

    def next_letter(self) -> str:
        """That of the next token; empty at the end."""
        while True:
            self._at = BLANKS.match(self._held, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                return ""

    def skip(self, letter: str) -> None:
        if self.next_letter() != letter:
            _refuse(f"no {letter}")
        self._at += 1

    def value(self, depth: int) -> Any:
        """The next one, with all that is within it."""
        self.next_letter()
        if len(self._held) - self._at < AHEAD // 4:
            self._more()
        while True:
            try:
                data, end = parsed_piece(self._held, self._at, depth)
                if end + GOES_ON < len(self._held) or not self._more():
                    self._at = end
                    return data
            except ValueError:
                if not self._more():
                    raise

    def _more(self) -> bool:
        """Hold twice as much as is still to be decoded; False at the end of the text."""
        wanted = max(AHEAD, len(self._held) - self._at)
        parts = []
        while wanted > 0 and (part := next(self._parts, None)) is not None:
            parts.append(part)
            wanted -= len(part)
        if not parts:
            return False
        self._held = "".join([self._held[self._at :], *parts])
        self._at = 0
        return True
