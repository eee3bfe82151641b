"""A JSON text in pieces: says the same as the whole text, wherever it is cut, and is never there
as a whole."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile import DEEP, VALUES, text_of

from preflight.packed import Stored, restored, stored
from preflight.render import pieces
from preflight.serde import parsed

WAYS = {"a": {pieces.ANY: {pieces.ANY: stored, "but": {pieces.ANY: stored}}}, "b": stored}
LAID_OUT = (
    {"indent": 3},
    {"separators": (",", ":")},
    {"sort_keys": True, "indent": "\t", "ensure_ascii": False},
)


@pytest.fixture(autouse=True)
def _little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "AHEAD", 8)


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(ends)]


def whole(data: Any) -> Any:
    """Without what is stored."""
    if isinstance(data, Stored):
        return data.data
    if isinstance(data, dict):
        return {key: whole(one) for key, one in data.items()}
    return [whole(one) for one in data] if isinstance(data, list) else data


def outcome(read: Any, *args: Any) -> str:
    try:
        return repr(whole(read(*args)))
    except json.JSONDecodeError:
        return "not JSON"
    except ValueError as error:
        return str(error)


DOCUMENTS = st.dictionaries(st.sampled_from(["a", "b", "but", "c\u1234"]), VALUES, max_size=4)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=9)


@given(VALUES | DOCUMENTS | DOCUMENTS.map(lambda inner: {"a": {"x": inner}}), CUTS)
def test_it_says_the_same_wherever_it_is_cut(data: Any, places: list[int]) -> None:
    text = text_of(data).decode()
    for given_text in (text, f" {text}\r\n", text[: places[0] % (len(text) + 1)] if places else ""):
        told = outcome(parsed, given_text)
        assert outcome(pieces.read, cut(given_text, places), WAYS) == told
        assert outcome(pieces.read, [given_text], WAYS) == told


@pytest.mark.parametrize("how", LAID_OUT)
def test_however_it_is_laid_out(how: dict[str, Any]) -> None:
    data = {"b": [1, "é\U0001f600"], "a": {"x": {"but": {"/ok": [1.5, None]}, "as": {}}, "y": []}}
    text = json.dumps(data, **how)
    assert whole(pieces.read(list(text), WAYS)) == data


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":{}', '{"a":{"x":1,}}', '{"a":{,"x":1}}', '{"a":{"x" 1}}', '{"a":[1 2]}'),
        *('{"a":[1,]}', '{"a":[,1]}', '{"a":{"x":1 "y":2}}', '{"a":1}}', "{'a':1}", "{1:2}"),
        *("", "   ", "1 2", '{"a":{"x":[1}}', '{"a":tru', '{"a', '{"a":"\x01"}', "\ufeff{}"),
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    for parts in ([text], list(text)):
        with pytest.raises(json.JSONDecodeError):
            pieces.read(parts, WAYS)
    with pytest.raises(json.JSONDecodeError):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'{{"a":{{"x":{DEEP}}}}}', "nested too deeply"),
        (f'{{"a":{{"x":{{"but":{"[" * 58}{"]" * 58}}}}}}}', "nested too deeply"),
        ('{"a":' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        ('{"a":{"x":{"y":NaN}}}', "NaN is not a JSON number"),
        ('{"b":1e999}', "not finite"),
        ('{"a":[1' + "0" * 400 + "]}", "too large"),
    ],
)
def test_what_can_not_be_written_again_is_refused(text: str, why: str) -> None:
    for parts in ([text], cut(text, list(range(0, len(text), 7)))):
        with pytest.raises(ValueError, match=why):
            pieces.read(parts, WAYS)
    with pytest.raises(ValueError, match=why):
        parsed(text)


def test_a_number_goes_on_in_the_next_part() -> None:
    text = '{"b":1' + "0" * 350 + "e-345}"
    assert pieces.read(list(text), WAYS) == {"b": 1e5}
    assert pieces.read(["12", "34"], {}) == 1234
    assert pieces.read(["[", "-1", "e", "+", "3", "]"], {}) == [-1000.0]
    assert pieces.read(["-1.", "5e", "+", "1 "], {}) == -15.0


def test_of_two_members_of_one_name_the_last_one_counts() -> None:
    text = '{"a":{"x":{"y":[1]}},"b":1,"a":{"x":{"y":[2],"y":[3]}}}'
    assert whole(pieces.read(list(text), WAYS)) == json.loads(text)


def test_lone_surrogates_are_written_out() -> None:
    text = r'{"b":["\ud800"],"a":{"\udfff":{"\ud83d\ude00":"\ud83d\ude00"}}}'
    assert whole(pieces.read(list(text), WAYS)) == parsed(text)


def test_only_what_is_read_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 MB, which are 30 MiB as Python's objects, two pieces and what is kept of all."""
    monkeypatch.setattr(pieces, "AHEAD", 1 << 16)
    column = json.dumps([f"GPU-{number:08x}" for number in range(4000)])

    def parts() -> Iterator[str]:
        yield '{"a":{"x":{"but":{"":0'
        for number in range(128):
            yield f',"{number}":{column}'
        yield "}}}}"

    tracemalloc.start()
    try:
        made = pieces.read(parts(), WAYS)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(restored(made["a"]["x"]["but"]["99"])) == 4000
    text = 128 * len(column)
    assert kept < 1.2 * text
    assert peak - kept < text / 4
