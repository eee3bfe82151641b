"""serde: our dataclasses to JSON and back; whatever comes back is refused by name or fits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model import Kind, Subject
from preflight.packed import Packed, Packing
from preflight.serde import (
    DEPTH,
    INTEGERS,
    TEXT_DEPTH,
    Known,
    as_it_is,
    decode,
    encode,
    parsed,
    reader,
    weight,
    weight_of,
)
from preflight.strenum import StrEnum


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner
    colour: Colour = Colour.RED
    share: float = 0.0
    sure: bool = False
    perhaps: int | None = None
    pair: tuple[str, int] = ("", 0)
    many: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    anything: Any = None
    maybe: Inner | None = None
    either: Inner | tuple[int, ...] | str = ""


INNERS = st.builds(Inner, st.text(max_size=5), st.lists(st.integers(), max_size=3).map(tuple))
OUTERS = st.builds(
    Outer,
    INNERS,
    st.sampled_from(Colour),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none() | st.integers(),
    st.tuples(st.text(max_size=3), st.integers()),
    st.lists(INNERS, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3), INNERS, max_size=3),
    st.none() | st.text(max_size=3) | st.booleans(),
)


@given(OUTERS)
def test_there_and_back(value: Outer) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    assert decode(Outer, json.loads(text), lax=True) == value


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_has_not(number: float) -> None:
    data = encode(Outer(Inner("x"), share=number))
    back = decode(Outer, data, lax=True).share
    assert back == number or (math.isnan(back) and math.isnan(number))
    with pytest.raises(ValueError, match="expected float"):
        decode(Outer, data)


def test_what_is_missing_takes_its_default_and_what_is_new_is_ignored() -> None:
    assert decode(Outer, {"inner": {"name": "x", "newer": 1}, "newer": {}}) == Outer(Inner("x"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "$: expected an object for Outer"),
        ({}, "$.inner: missing"),
        ({"inner": None}, "$.inner: expected an object for Inner"),
        ({"inner": {}}, "$.inner.name: missing"),
        ({"inner": {"name": 3}}, "$.inner.name: expected str, got int"),
        ({"inner": {"name": "x", "numbers": 3}}, "$.inner.numbers: expected a list"),
        ({"inner": {"name": "x", "numbers": "12"}}, "$.inner.numbers: expected a list"),
        (
            {"inner": {"name": "x", "numbers": [1, "2"]}},
            "$.inner.numbers[1]: expected int",
        ),
        ({"inner": {"name": "x", "numbers": [True]}}, "$.inner.numbers[0]: expected int, got bool"),
        ({"inner": {"name": "x", "numbers": [1.0]}}, "$.inner.numbers[0]: expected int, got float"),
        ({"inner": {"name": "x"}, "colour": "green"}, "$.colour: 'green' is no Colour"),
        ({"inner": {"name": "x"}, "colour": ["red"]}, "$.colour: ['red'] is no Colour"),
        ({"inner": {"name": "x"}, "share": "much"}, "$.share: expected float, got str"),
        ({"inner": {"name": "x"}, "share": True}, "$.share: expected float, got bool"),
        ({"inner": {"name": "x"}, "sure": 1}, "$.sure: expected bool, got int"),
        ({"inner": {"name": "x"}, "perhaps": "x"}, "$.perhaps: expected"),
        ({"inner": {"name": "x"}, "pair": ["x"]}, "$.pair: expected 2 items, got 1"),
        ({"inner": {"name": "x"}, "by_name": []}, "$.by_name: expected an object"),
        (
            {"inner": {"name": "x"}, "by_name": {"k": 1}},
            "$.by_name.k: expected an object",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(data: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"^\$") as error:
        decode(Outer, data)
    assert str(error.value).startswith(said)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
FIELDS = st.sampled_from([*Outer.__dataclass_fields__, *Inner.__dataclass_fields__])


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=6))
def test_anything_is_refused_or_fits(data: Any) -> None:
    for cls in (Outer, Inner, tuple[Inner, ...], Mapping[str, int], int | None, Subject, Kind):
        try:
            value = decode(cls, data)
        except ValueError:
            continue
        assert decode(cls, encode(value)) == value


def test_depth_is_bounded() -> None:
    @dataclass(frozen=True, slots=True)
    class Holder:
        inside: Any = None

    deep: Any = 1
    for _ in range(DEPTH + 3):
        deep = [deep]
    kind: Any = int
    for _ in range(DEPTH + 3):
        kind = tuple[kind, ...]
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(kind, deep)
    assert decode(Holder, {"inside": deep}).inside == deep, "what is not looked into may be deep"


NOT_JSON = {
    "no number": "NaN",
    "infinity": "-Infinity",
    "beyond a float": '{"a": [1e999]}',
    "beyond an integer": f"[{INTEGERS}]",
    "400 digits": "1" + "0" * 400,
    "5,000 digits": "1" * 5000,
    "as deep as no text of ours": "[" * (TEXT_DEPTH + 1) + "]" * (TEXT_DEPTH + 1),
    "600 deep": '{"a":' * 600 + "1" + "}" * 600,
    "100,000 deep": "[" * 100_000,
    "half a letter in UTF-8": b'"\xed\xa0\x80"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "nothing": "",
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_a_text_that_could_not_be_written_again_is_refused(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  of json and of codecs, too
        parsed(NOT_JSON[name])


def test_lone_surrogates_are_written_out() -> None:
    """A file name that is no UTF-8 is no reason to lose a guest, and no printer gets it."""
    assert parsed(r'{"\ud800": ["\udcff", "\ud83d\ude00"]}') == {
        r"\ud800": [r"\udcff", "\U0001f600"]
    }


@given(JSON)
def test_what_was_parsed_can_be_written_printed_and_compared(data: Any) -> None:
    try:
        value = parsed(json.dumps(data))
    except ValueError:
        return
    assert parsed(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()) == value


def test_what_is_as_deep_as_may_be_is_taken() -> None:
    deep = "[" * TEXT_DEPTH + "]" * TEXT_DEPTH
    assert json.dumps(parsed(deep)) == deep


def test_what_is_json_already_stays_the_same_object() -> None:
    plain = {"a": [1, 2.5, None, "x", {"b": []}]}
    assert as_it_is(plain) is plain
    mixed = {"plain": plain, "not": [math.inf, (1, 2)], 3: Colour("red")}
    assert as_it_is(mixed) == encode(mixed) == json.loads(json.dumps(as_it_is(mixed)))


def test_what_is_one_object_is_read_once() -> None:
    known: Known = {}
    data = {"inner": {"name": "x"}}
    made = [decode(Outer, data, known=known), decode(Outer, {**data}, known=known)]
    assert made[0] == made[1] == decode(Outer, data)
    assert made[0].inner is made[1].inner
    with pytest.raises(ValueError, match="inner"):
        decode(Outer, {"inner": 3}, known=known)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
WRONG = st.tuples(st.integers(0, 40), LEAVES)


def with_leaf(data: Any, change: tuple[int, Any]) -> Any:
    """A copy with another leaf, also one that does not fit."""
    left = [change[0]]

    def copied(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: copied(value) for key, value in one.items()}
        if isinstance(one, list):
            return [copied(value) for value in one]
        left[0] -= 1
        return change[1] if left[0] == -1 else one

    return copied(data)


def read_or_refused(read: Callable[[], Any]) -> str:
    """What was read, told apart by repr(): 1 is not True."""
    try:
        return repr(read())
    except Exception:
        return "refused"


SAMPLES = st.builds(
    Outer,
    INNERS,
    many=st.lists(INNERS, min_size=1, max_size=2).map(tuple),
    by_name=st.fixed_dictionaries({"a": INNERS}) | st.fixed_dictionaries({"7": INNERS}),
    anything=st.just([1, {"x": "y"}]),
    maybe=st.none() | INNERS,
    either=INNERS | st.just((1, 2)) | st.text(max_size=3),
)


@given(SAMPLES, st.lists(WRONG, min_size=1, max_size=6))
def test_what_values_have_in_common_is_read_once(sample: Outer, changes: list[Any]) -> None:
    """A reader of a layout makes what decode() makes of each of its values, or refuses it."""
    packing, data = Packing(), json.loads(json.dumps(encode(sample)))
    packing.of(data)
    several = [data]
    for change in changes:
        several += [with_leaf(several[-1], change), with_leaf(data, change)]
    for value in map(packing.of, several):
        if isinstance(value, Packed):
            known: Known = {}
            own = value.own
            layout = value.layout
            made = read_or_refused(lambda: reader(Outer, layout, known)(own))  # noqa: B023
            plain = value.plain()
            told = read_or_refused(lambda: decode(Outer, plain, lax=True))  # noqa: B023
            # what all have in common is what the first one said, which fits
            assert made == told


def test_what_a_reader_has_in_common_is_one_object() -> None:
    packing, known = Packing(), Known()
    one, other, third = (
        packing.of({"inner": {"name": name}, "many": [{"name": "m", "numbers": [1, 2]}]})
        for name in ("a", "b", "c")
    )
    assert isinstance(other, Packed)
    assert other.layout is third.layout
    read = reader(Outer, other.layout, known)
    assert read(other.own) == decode(Outer, other.plain())
    assert read(other.own).many is read(third.own).many
    assert read(third.own).many[0] is decode(Outer, one, known=known).many[0]


@given(st.text(st.sampled_from('[{,"ax\\\\u0041é\u1234')), st.lists(st.integers(0, 40), max_size=5))
def test_a_text_in_parts_weighs_as_much(text: str, places: list[int]) -> None:
    data = text.encode()
    ends = sorted({0, len(data), *(place for place in places if place < len(data))})
    assert weight_of(data[a:b] for a, b in pairwise(ends)) == weight(data)
