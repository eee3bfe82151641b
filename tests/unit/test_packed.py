"""What thousands of nodes say, each of them kept as what is its own."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight import redact
from preflight.packed import Packed, Packing, Shared, SlimDicts, plain, restored, stored
from preflight.serde import as_it_is, encode

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, "", "1", "é", "\U0001f600"])
    | st.text(max_size=4)
)
KEYS = st.sampled_from(["a", "b", "1", "12", "", "#0", "=1", "/"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@st.composite
def said(draw: st.DrawFn) -> list[Any]:
    """Values of which most have the same form: the first one again with other leaves."""
    first = draw(VALUES)

    def other(data: Any) -> Any:
        if isinstance(data, dict):
            numbers = all(key.isdecimal() for key in data) and draw(st.booleans())
            return {
                str(number + 40) if numbers else key: other(value)
                for number, (key, value) in enumerate(data.items())
            }
        if isinstance(data, list):
            return [other(value) for value in data]
        return draw(LEAVES) if draw(st.integers(0, 3)) == 0 else data

    return [first, *(other(first) for _ in range(draw(st.integers(1, 4)))), draw(VALUES)]


@given(said())
def test_a_packed_value_is_the_same_to_the_letter(values: list[Any]) -> None:
    packing = Packing()
    for value in (*values, *values[::-1]):
        kept = packing.of(json.loads(json.dumps(value)))
        assert json.dumps(plain(kept)) == json.dumps(value)
        assert json.dumps(encode({"ok": kept})) == json.dumps({"ok": value})
        assert as_it_is([kept]) == [value]


@given(said())
def test_equal_values_are_one_object(values: list[Any]) -> None:
    packing = Packing()
    first = [packing.of(json.loads(json.dumps(value))) for value in values]
    held = packing.held
    again = [packing.of(json.loads(json.dumps(value))) for value in values]
    for one, other, value in zip(first, again, values, strict=True):
        assert one is other or not isinstance(value, (dict, list))
    assert packing.held == held


@given(said(), st.sampled_from(["aaaaaa", "secret-of-a", "b" * 12]))
def test_a_secret_is_hidden_in_a_packed_value_as_in_any(values: list[Any], secret: str) -> None:
    packing = Packing()
    for number, value in enumerate(values):
        value = {"value": value, "text": f"has {secret}" if number % 2 else "has none"}
        kept = redact.without({"ok": packing.of(value)}, (secret,))
        assert encode(kept) == redact.without({"ok": value}, (secret,))


def node(number: int) -> dict[str, Any]:
    """What a node with eight GPUs says, as it comes from the wire."""
    gpu = {"name": "H100", "ecc": [0] * 4, "links": [{"up": True, "gbs": 26.5}] * 18}
    data = {"gpus": [{"uuid": f"GPU-{number:08}-{n}", **gpu} for n in range(8)], "took": number / 7}
    return dict(json.loads(json.dumps(data)))


def test_a_value_takes_the_room_of_what_is_its_own() -> None:
    packing = Packing()
    first = packing.of(node(0))
    before = packing.held
    kept = [packing.of(node(number)) for number in range(1, 101)]
    assert all(type(one) is Packed for one in kept)
    assert (
        packing.held - before
    ) / 100 < 600  # 8 UUIDs, a number, and the entry by which it is found
    assert kept[5].plain()["gpus"][2]["links"] is first["gpus"][2]["links"]
    assert plain(first) is first


def test_what_is_known_to_be_new_is_the_same_value_and_is_not_looked_for() -> None:
    packing = Packing()
    first, second = packing.of(node(0), new=True), packing.of(node(1), new=True)
    assert (plain(first), plain(second)) == (node(0), node(1))
    assert type(second) is Packed
    again = packing.of(node(1))
    assert plain(again) == node(1)
    assert packing.of(node(1)) is again, "what may come again is one object"


def test_the_room_is_told_of_whoever_has_another_form_each_time() -> None:
    packing = Packing()
    for number in range(50):
        before = packing.held
        data = {f"key {number}": ["x" * 50] * 20}
        packing.of(data)
        assert packing.held - before >= len(json.dumps(data)) / 20


@pytest.mark.parametrize("value", [3, 2.5, "x", None, True, [], {}])
def test_what_is_no_more_than_a_word_is_kept_as_it_is(value: Any) -> None:
    packing = Packing()
    assert [packing.of(value), packing.of(value)] == [value, value]


def test_equal_parts_become_one_object() -> None:
    shared = Shared()
    one = shared.of({"a": [1, {"b": "x" * 40}], "c": 1})
    other = shared.of({"a": [1, {"b": "x" * 40}], "c": 2})
    assert (one, other) == ({"a": [1, {"b": "x" * 40}], "c": 1}, {**one, "c": 2})
    assert one["a"] is other["a"]
    assert repr([shared.of([1]), shared.of([1.0]), shared.of([True])]) == "[[1], [1.0], [True]]"
    assert shared.of({"n": "5"}) != shared.of({"n": 5})
    assert repr([shared.of([0.0]), shared.of([-0.0])]) == "[[0.0], [-0.0]]"
    assert shared.of(json.loads('{"k": ["a", 1.5]}')) is shared.of({"k": ["".join(["a"]), 1.5]})


def test_numbers_are_one_object_only_where_they_are_the_same() -> None:
    shared = Shared()
    said = [1000, 1000.0, 0.0, -0.0, 0, False, True, 1, 1.0, 2.5, -3000, 10**30]
    for _ in range(2):
        for order in (said, said[::-1]):
            assert json.dumps(shared.of({"a": list(order)})) == json.dumps({"a": order})
    first, second = (json.loads(f'{{"at": 0.125, "n": {n}}}') for n in (1, 2))
    assert shared.of(first)["at"] is shared.of(second)["at"]


def test_dicts_of_one_form_take_half_of_the_room() -> None:
    slim = SlimDicts()
    plain = [{f"key {n}": n + m for n in range(18)} for m in range(20)]
    made = [slim.of(one) for one in plain]
    assert made == plain
    assert {type(one) for one in made} == {dict}
    assert [list(one) for one in made] == [list(one) for one in plain]
    assert json.dumps(made) == json.dumps(plain)
    assert sys.getsizeof(made[-1]) < 0.7 * sys.getsizeof(plain[-1])
    many = {str(n): n for n in range(1000)}
    assert slim.of(many) is many
    assert slim.of({}) == {}


def test_whoever_has_other_keys_each_time_costs_no_class_each_time() -> None:
    slim = SlimDicts()
    for n in range(2000):
        assert slim.of({f"key {n}": n}) == {f"key {n}": n}
    assert len(slim._classes) == 1024


def test_what_is_said_again_takes_no_more_room() -> None:
    shared = Shared()
    for part in ("", "x" * 5000, [1.5] * 500, {"y": ["z" * 3000]}):
        before = shared.held
        shared.of(part)
        once = shared.held - before
        assert once >= len(json.dumps(part))
        shared.of(json.loads(json.dumps(part)))
        assert shared.held == before + once


@given(VALUES)
def test_what_is_stored_is_the_same_again(data: Any) -> None:
    assert repr(restored(stored(data))) == repr(data)
    assert restored(data) is data


def test_what_is_stored_takes_little() -> None:
    names = [f"GPU-{number:08x}-0000-4000-8000-{number:012x}" for number in range(1000)]
    assert len(stored(names)._own) < 1000 * 43
