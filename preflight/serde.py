"""Frozen dataclasses to JSON data and back, bounded and strict: what comes back is hostile input.

Only what our own types need: dataclasses, enums, tuples, mappings with string keys, optional
values and JSON's own scalars. Unknown fields of a newer writer are ignored, missing ones take the
dataclass's default, anything else that does not fit is a ValueError that names the place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, NoReturn, TypeVar

from preflight.sanitize import encodable

T = TypeVar("T")

DEPTH = 24
"""Nesting that our own documents never reach; deeper input is refused, not recursed into."""
TEXT_DEPTH = 60
"""The same of a text, whatever a check observes."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON escapes one half of a letter; the other half may follow."""
NO_NUMBERS = ("nan", "inf", "-inf")
"""How encode() spells what JSON has no number for."""
INTEGERS = 1 << 128
"""What a whole number is below: an IPv6 address is one, and float() takes it."""


def parsed(text: str | bytes) -> Any:
    """JSON that somebody else has written, so that whatever is done with it can also be written,
    compared and printed again; ValueError for a number that is none (NaN, 1e999) or too large, for
    what is nested too deeply and for bytes that are not UTF-8. Lone surrogates are written out."""
    if isinstance(text, bytes):
        text = text.decode()
    try:
        data = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _look_through(data)
    return _encodable(data) if SURROGATE.search(text) else data


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _look_through(data: object) -> None:
    """ValueError for what parsed() refuses."""
    level: list[Any] = [data]
    for _ in range(TEXT_DEPTH):
        deeper: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                deeper += one.values()
            elif isinstance(one, list):
                deeper += one
            elif isinstance(one, float) and not math.isfinite(one):
                raise ValueError("a number that is not finite")
            elif isinstance(one, int) and not -INTEGERS < one < INTEGERS:
                raise ValueError("a number that is too large")
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
    # what most of a report is, observations as they came in: a million times for 512 nodes
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is dict:
        return {k if type(k) is str else str(k): encode(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [encode(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [encode(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no number for it
    return value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def decode(cls: Any, data: Any, place: str = "$", depth: int = 0, *, lax: bool = False) -> Any:
    """`data` as a `cls`; ValueError with the JSON path where it doesn't fit. `lax`: a float may be
    none, as a check may have measured it."""
    if depth > DEPTH:
        raise ValueError(f"{place}: nested too deeply")
    origin = typing.get_origin(cls)
    if cls is Any or cls is object:
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(cls, data, place, depth, lax)
    if origin in (tuple, list):
        return _decode_sequence(cls, origin, data, place, depth, lax)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise ValueError(f"{place}: expected an object")
        inner = typing.get_args(cls)[1]
        return {
            str(k): decode(inner, v, f"{place}.{k}", depth + 1, lax=lax) for k, v in data.items()
        }
    if isinstance(cls, type) and issubclass(cls, Enum):
        try:
            return cls(data)
        except ValueError:
            raise ValueError(f"{place}: {data!r:.60} is no {cls.__name__}") from None
    if dataclasses.is_dataclass(cls):
        return _decode_dataclass(cls, data, place, depth, lax)
    if cls is float:
        return float(data) if lax and data in NO_NUMBERS else finite(data, place)
    if cls is type(None) and data is None:
        return None
    if (
        cls in (str, int, bool)
        and isinstance(data, cls)
        and (cls is not int or not isinstance(data, bool))
    ):
        return data
    raise ValueError(
        f"{place}: expected {getattr(cls, '__name__', cls)}, got {type(data).__name__}"
    )


def _decode_union(cls: Any, data: Any, place: str, depth: int, lax: bool) -> Any:
    problem = ValueError(f"{place}: fits none of {cls}")
    for option in typing.get_args(cls):
        try:
            return decode(option, data, place, depth + 1, lax=lax)
        except ValueError as error:
            problem = error
    raise problem


def _decode_sequence(cls: Any, origin: Any, data: Any, place: str, depth: int, lax: bool) -> Any:
    if not isinstance(data, (list, tuple)):
        raise ValueError(f"{place}: expected a list")
    args = typing.get_args(cls)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(args) != len(data):
            raise ValueError(f"{place}: expected {len(args)} items, got {len(data)}")
        items = zip(args, data, strict=True)
    else:
        items = zip([args[0]] * len(data), data, strict=True)
    return origin(
        decode(a, v, f"{place}[{i}]", depth + 1, lax=lax) for i, (a, v) in enumerate(items)
    )


def _decode_dataclass(cls: Any, data: Any, place: str, depth: int, lax: bool) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{place}: expected an object for {cls.__name__}")
    hints = _hints(cls)
    values = {}
    for f in dataclasses.fields(cls):
        if f.name in data:
            values[f.name] = decode(
                hints[f.name], data[f.name], f"{place}.{f.name}", depth + 1, lax=lax
            )
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ValueError(f"{place}.{f.name}: missing")
    return cls(**values)
