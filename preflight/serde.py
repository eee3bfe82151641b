"""Frozen dataclasses to JSON data and back, bounded and strict: what comes back is hostile input.

Only what our own types need: dataclasses, enums, tuples, mappings with string keys, optional
values and JSON's own scalars. Unknown fields of a newer writer are ignored, missing ones take the
dataclass's default, anything else that does not fit is a ValueError that names the place.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, NoReturn, TypeVar

from preflight.packed import Layout, Leaves, Packed, changed
from preflight.sanitize import encodable

T = TypeVar("T")

DEPTH = 24
"""Nesting that our own documents never reach; deeper input is refused, not recursed into."""
TEXT_DEPTH = 60
"""The same of a text, whatever a check observes."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON escapes one half of a letter; the other half may follow."""
VALUE_WEIGHT = 64
"""Bytes that Python takes for a value beside those of its text: `[],[],` is small only as text."""
WIDE, WIDTH = re.compile(rb"[\xc4-\xff]|\\u(?!00)"), 4
"""Letters that make Python store their whole string with 2 or 4 bytes a letter."""
LETTER = 6
"""Bytes of a letter that is escaped."""
NO_NUMBERS = ("nan", "inf", "-inf")
"""How encode() spells what JSON has no number for."""
PLAIN = frozenset((str, int, bool, type(None)))
INTEGERS = 1 << 128
"""What a whole number is below: an IPv6 address is one, and float() takes it."""


def parsed(text: str | bytes) -> Any:
    """JSON that somebody else has written, so that whatever is done with it can also be written,
    compared and printed again; ValueError for a number that is none (NaN, 1e999) or too large, for
    what is nested too deeply and for bytes that are not UTF-8. Lone surrogates are written out."""
    if isinstance(text, bytes):
        text = text.decode()
    try:
        data = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _fit(data, text, 0, len(text), TEXT_DEPTH)


def parsed_piece(text: str, start: int, depth: int) -> tuple[Any, int]:
    """The same of the one value that begins at `start`, `depth` levels deep in its document, and
    where it ends. At the end of the text it may be cut off."""
    try:
        data, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _fit(data, text, start, end, TEXT_DEPTH - depth), end


def _fit(data: Any, text: str, start: int, end: int, levels: int) -> Any:
    """What a part of a text says, so that it can be written again."""
    if text.count("[", start, end) + text.count("{", start, end) > levels:
        _look_through(data, levels)
    return _encodable(data) if SURROGATE.search(text, start, end) else data


def weight(text: bytes) -> int:
    """Bytes that Python takes to hold a JSON text and what it says, about and at most."""
    return _weighed(len(text), WIDE.search(text) is not None, _values(text))


def weight_of(parts: Iterable[bytes]) -> int:
    """The same of a text that comes in parts."""
    letters = values = 0
    wide, before = False, b""
    for part in parts:
        letters += len(part)
        values += _values(part)
        before += part
        wide = wide or _is_wide(before)
        before = before[-LETTER:]
    return _weighed(letters, wide or WIDE.search(before) is not None, values)


def _weighed(letters: int, wide: bool, values: int) -> int:
    return letters * (WIDTH if wide else 1) + VALUE_WEIGHT * values


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + 3 * text.count(b"{")


def _is_wide(text: bytes) -> bool:
    """Whether a letter is, but for one at the end of which the rest may follow."""
    found = WIDE.search(text)
    return found is not None and found.start() <= len(text) - LETTER


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def _integer(text: str) -> int:
    number = int(text)
    if not -INTEGERS < number < INTEGERS:
        raise ValueError("a number that is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite, parse_int=_integer)


def _look_through(data: object, levels: int) -> None:
    """ValueError for what is nested too deeply."""
    level: list[Any] = [data]
    for _ in range(levels):
        deeper: list[Any] = []
        for one in level:
            kind = type(one)
            if kind is dict:
                deeper += one.values()
            elif kind is list:
                deeper += one
        if not deeper:
            return
        level = deeper
    raise ValueError("nested too deeply")


def _encodable(data: Any) -> Any:
    if isinstance(data, str):
        return encodable(data)
    if isinstance(data, list):
        return [_encodable(one) for one in data]
    if isinstance(data, dict):
        return {encodable(key): _encodable(one) for key, one in data.items()}
    return data


def finite(data: Any, place: str = "$") -> float:
    """A number that is one: no text, no NaN, none that float() can't hold; else ValueError."""
    if isinstance(data, float) and math.isfinite(data):
        return data
    if isinstance(data, int) and not isinstance(data, bool) and -INTEGERS < data < INTEGERS:
        return float(data)
    raise ValueError(f"{place}: expected float, got {type(data).__name__}")


def encode(value: Any) -> Any:
    """`value` as JSON data. Fields that hold their default stay: readers need no defaults."""
    # what most of a report is, observations as they came in
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return {k if type(k) is str else str(k): encode(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [encode(v) for v in value]
    if kind is float:
        return value if math.isfinite(value) else str(value)  # JSON has no number for it
    if kind is Packed:
        return value.plain()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (tuple, frozenset)):
        return [encode(v) for v in value]
    return value


def as_it_is(value: Any) -> Any:
    """The same as encode(), of what is mostly JSON data already: whatever is stays the same object,
    so that nobody may change it."""
    kind = type(value)
    if kind is dict:
        plain = all(type(k) is str and as_it_is(v) is v for k, v in value.items())
    elif kind is list:
        plain = all(as_it_is(v) is v for v in value)
    else:
        return encode(value)
    return value if plain else encode(value)


class _Misfit(ValueError):
    """What does not fit, and where: the way to it is put together while the stack unwinds, since to
    say it beforehand would cost more than all the rest."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.place = ""

    def within(self, step: str) -> _Misfit:
        self.place = step + self.place
        return self


Known = dict[tuple[int, int], Any]
"""What has become of data, by the number of what reads it and its own id(). Whoever keeps it keeps
the data as well, and does not change it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _How:
    lax: bool
    known: Known | None
    adds: bool


_Decoder = Callable[[Any, int, _How], Any]
"""(data, depth, how) -> value; _Misfit."""


def decode(
    cls: Any,
    data: Any,
    place: str = "$",
    *,
    lax: bool = False,
    known: Known | None = None,
    adds: bool = True,
) -> Any:
    """`data` as a `cls`; ValueError with the JSON path where it doesn't fit. `lax`: a float may be
    none, as a check may have measured it. `known`: of parts that are one object, one is made.
    `adds`: what is made of these data becomes known; not where nobody keeps them."""
    try:
        return _decoder(cls)(data, 0, _How(lax, known, adds))
    except _Misfit as misfit:
        raise ValueError(f"{place}{misfit.place}: {misfit.why}") from None


_Put = Callable[[Any, Any], None]
Reader = Callable[[Leaves], Any]
"""(leaves of a value's own) -> value; an exception where they do not fit, which says not where."""


def reader(cls: Any, layout: Layout, known: Known) -> Reader:
    """What makes a `cls` of values with this layout, as a lax decode() of each would: what they
    have in common is read now, once. An exception where that does not fit."""
    data, changes = layout.form.data, layout.changes
    return _reader(cls, data, changes, 0, _How(True, known, True), _How(True, known, False))


def _reader(cls: Any, data: Any, changes: Any, depth: int, all_of: _How, own: _How) -> Reader:
    """`changes`: as in Layout, of these data; `all_of`, `own`: how to read what is for all of them,
    and what is a value's own."""
    if type(changes) is int:
        kind = _decoder(cls)
        return lambda leaves: kind(leaves[changes], depth, own)
    options = [one for one in typing.get_args(cls) if one is not type(None)]
    if isinstance(cls, types.UnionType) and len(options) == 1:
        cls, depth = options[0], depth + 1  # what has leaves within it is not None
    origin, kind = typing.get_origin(cls), _decoder(cls)
    if type(data) is dict and _is_slotted(cls):
        return _reader_of_dataclass(cls, data, changes, depth, all_of, own)
    if type(data) is list and origin in (tuple, list):
        args = typing.get_args(cls)
        fixed = origin is tuple and args[1:] != (Ellipsis,)
        items = list(kind(data, depth, all_of))
        inner = [
            (place, _reader(args[place if fixed else 0], data[place], one, depth + 1, all_of, own))
            for place, one in changes.items()
        ]

        def read(leaves: Leaves) -> Any:
            made = items.copy()
            for place, of in inner:
                made[place] = of(leaves)
            return made if origin is list else tuple(made)

        return read
    return lambda leaves: kind(changed(data, changes, leaves.__getitem__), depth, own)


def _reader_of_dataclass(
    cls: Any, data: dict[str, Any], changes: Any, depth: int, all_of: _How, own: _How
) -> Reader:
    """Into the slots of each instance goes what its __init__ would put there: that costs half."""
    first = _decoder(cls)(data, depth, all_of)
    hints = typing.get_type_hints(cls)
    common: list[tuple[_Put, Any]] = []
    leaf: list[tuple[_Put, int, frozenset[type], _Decoder]] = []
    inner: list[tuple[_Put, Reader]] = []
    for one in dataclasses.fields(cls):
        put, change, hint = getattr(cls, one.name).__set__, changes.get(one.name), hints[one.name]
        if change is None:
            common.append((put, getattr(first, one.name)))
        elif type(change) is int:
            leaf.append((put, change, _as_they_are(hint), _decoder(hint)))
        else:
            of = _reader(hint, data[one.name], change, depth + 1, all_of, own)
            inner.append((put, of))
    new = object.__new__

    def read(leaves: Leaves) -> Any:
        made = new(cls)
        for put, value in common:
            put(made, value)
        for put, number, plain, kind in leaf:
            value = leaves[number]
            put(made, value if type(value) in plain else kind(value, depth + 1, own))
        for put, of in inner:
            put(made, of(leaves))
        return made

    return read


def _is_slotted(cls: Any) -> bool:
    """Whether it is a dataclass that only keeps what it is given, in slots."""
    return (
        type(cls) is type
        and dataclasses.is_dataclass(cls)
        and not hasattr(cls, "__post_init__")
        and all(
            one.init and type(getattr(cls, one.name, None)) is types.MemberDescriptorType
            for one in dataclasses.fields(cls)
        )
    )


def _decoder(cls: Any) -> _Decoder:
    """What reads a type."""
    if type(cls) is type and cls is not object:
        return _of_class(cls)  # what a check's answer is, asked for each of them
    origin = typing.get_origin(cls)
    if cls is Any or cls is object:
        return lambda data, depth, how: data
    if origin in (typing.Union, types.UnionType):
        return _of_union(cls)
    if origin in (tuple, list):
        return _of_sequence(origin, typing.get_args(cls))
    if origin is not None and issubclass(origin, Mapping):
        return _of_mapping(typing.get_args(cls)[1])
    return _of_class(cls)


@cache
def _of_class(cls: Any) -> _Decoder:
    """The same of a class. Not of a union: `int | float` equals `float | int`, but is not read as
    it is. A dataclass finds those of its fields when it is first read, as it may hold itself."""
    if isinstance(cls, type) and issubclass(cls, Enum):
        return _of_enum(cls)
    if dataclasses.is_dataclass(cls):
        return _of_dataclass(cls)
    return _of_scalar(cls)


def _bound(depth: int) -> None:
    if depth > DEPTH:
        raise _Misfit("nested too deeply")


def _of_scalar(cls: Any) -> _Decoder:
    name = getattr(cls, "__name__", cls)

    def number(data: Any, depth: int, how: _How) -> float:
        if type(data) is float and math.isfinite(data):
            return data
        if how.lax and data in NO_NUMBERS:
            return float(data)
        try:
            return finite(data)
        except ValueError:
            raise _Misfit(f"expected float, got {type(data).__name__}") from None

    def scalar(data: Any, depth: int, how: _How) -> Any:
        if type(data) is cls:
            return data
        # no bool is an int here
        plain = cls in (str, int, bool) and isinstance(data, cls)
        if plain and (cls is not int or not isinstance(data, bool)):
            return data
        raise _Misfit(f"expected {name}, got {type(data).__name__}")

    return number if cls is float else scalar


def _of_enum(cls: type[Enum]) -> _Decoder:
    def read(data: Any, depth: int, how: _How) -> Any:
        try:
            return cls(data)
        except ValueError:
            raise _Misfit(f"{data!r:.60} is no {cls.__name__}") from None

    return read


def _of_union(cls: Any) -> _Decoder:
    options = [_decoder(option) for option in typing.get_args(cls)]
    optional = type(None) in typing.get_args(cls)

    def read(data: Any, depth: int, how: _How) -> Any:
        _bound(depth)
        if data is None and optional:
            return None
        problem: _Misfit | None = None
        for option in options:
            try:
                return option(data, depth + 1, how)
            except _Misfit as misfit:
                problem = misfit
        raise problem or _Misfit(f"fits none of {cls}")

    return read


def _once(read: _Decoder) -> _Decoder:
    """The same for a part that several have in common: it is decoded once."""

    def remembered(data: Any, depth: int, how: _How) -> Any:
        if how.known is None:
            return read(data, depth, how)
        key = id(read), id(data)
        made = how.known.get(key)
        if made is None:
            made = read(data, depth, how)
            if how.adds:
                how.known[key] = made
        return made

    return remembered


def _of_sequence(origin: Any, args: Sequence[Any]) -> _Decoder:
    fixed = origin is tuple and not (len(args) == 2 and args[1] is Ellipsis)
    inner = [_decoder(one) for one in (args if fixed else args[:1])]

    def read(data: Any, depth: int, how: _How) -> Any:
        _bound(depth)
        if not isinstance(data, (list, tuple)):
            raise _Misfit("expected a list")
        if fixed and len(args) != len(data):
            raise _Misfit(f"expected {len(args)} items, got {len(data)}")
        kinds = inner if fixed else itertools.repeat(inner[0], len(data))
        made = []
        try:
            for kind, one in zip(kinds, data, strict=True):
                made.append(kind(one, depth + 1, how))
        except _Misfit as misfit:
            raise misfit.within(f"[{len(made)}]") from None
        return origin(made)

    return _once(read)


def _of_mapping(inner: Any) -> _Decoder:
    kind = _decoder(inner)

    def read(data: Any, depth: int, how: _How) -> dict[str, Any]:
        _bound(depth)
        if not isinstance(data, dict):
            raise _Misfit("expected an object")
        key = ""
        made = {}
        try:
            for key, value in data.items():
                made[str(key)] = kind(value, depth + 1, how)
        except _Misfit as misfit:
            raise misfit.within(f".{key}") from None
        return made

    return read


def _of_dataclass(cls: Any) -> _Decoder:
    fields: list[tuple[str, frozenset[type], _Decoder, bool]] = []

    def read(data: Any, depth: int, how: _How) -> Any:
        _bound(depth)
        if not isinstance(data, dict):
            raise _Misfit(f"expected an object for {cls.__name__}")
        if not fields:
            hints = typing.get_type_hints(cls)
            for one in dataclasses.fields(cls):
                hint = hints[one.name]
                fields.append((one.name, _as_they_are(hint), _decoder(hint), _needed(one)))
        values = {}
        for name, plain, kind, needed in fields:
            if name in data:
                value = data[name]
                if type(value) in plain:
                    values[name] = value
                    continue
                try:
                    values[name] = kind(value, depth + 1, how)
                except _Misfit as misfit:
                    raise misfit.within(f".{name}") from None
            elif needed:
                raise _Misfit("missing").within(f".{name}")
        return cls(**values)

    return _once(read)


def _as_they_are(hint: Any) -> frozenset[type]:
    """The types of which a value is read as it is: `str`, and for `str | None` None as well."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return frozenset(kinds) if PLAIN.issuperset(kinds) else frozenset()


def _needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
