"""Parcels: what is packed comes out again, whatever lies between; what is hostile does not."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.remote import protocol
from preflight.remote.protocol import Parcels, is_parcel_line, pack, progress, progress_of
from preflight.serde import weight

NOISE = (
    "Welcome to gpu-b08!  Last login: today",
    "",
    "preflight-parcel 1 is what a line of ours begins with",
    "preflight-parcel 1 0123456789abcdef 1/0 QUJD",
    "preflight-parcel 1 0123456789abcdef 7/3 QUJD",
    "preflight-parcel 1 0123456789abcdef 1/2 not base64",
    "preflight-parcel 2 0123456789abcdef 1/1 QUJD",
    "\x1b[31mred\x1b[0m \xff",
)

contents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


def opened(lines: list[str]) -> list[Any]:
    """All that comes out of a stream."""
    taken = Parcels()
    return [content for line in lines if (content := taken.take(line)) is not None]


def large(seed: int) -> dict[str, Any]:
    """A content of many pieces, which does not compress."""
    return {"seed": seed, "noise": random.Random(seed).randbytes(20_000).hex()}


@given(content=contents.filter(lambda c: c is not None))
def test_what_is_packed_comes_out(content: Any) -> None:
    assert opened(list(pack(content))) == [content]


@given(data=st.data())
@settings(max_examples=40)
def test_streams_that_are_mixed_come_apart(data: st.DataObject) -> None:
    """The lines of several nodes in any order, some of them twice, each with a label before it,
    and with everything else that a login prints."""
    sent = [large(seed) for seed in range(3)]
    lines = [line for content in sent for line in pack(content)]
    lines += data.draw(st.lists(st.sampled_from(lines), max_size=20)) + list(NOISE)
    lines = [f"{n}: {line.rstrip()}\r\n" for n, line in enumerate(lines)]
    mixed = data.draw(st.permutations(lines))
    assert sorted(opened(mixed), key=lambda c: c["seed"]) == sent


def test_lines_are_short_and_plain() -> None:
    for line in pack(large(1)):
        assert len(line) <= protocol.LINE_MOST
        assert line.isascii()
        assert line.endswith("\n")
        assert is_parcel_line(f"12: {line}")
    assert not is_parcel_line("Last login: today")


def test_a_piece_that_is_missing_is_told() -> None:
    lines = list(pack(large(1)))
    taken = Parcels()
    for line in lines[:3] + lines[4:]:
        assert taken.take(line) is None
    (told,) = taken.incomplete()
    assert f"{len(lines) - 1} of {len(lines)} pieces came" in told
    assert taken.take(lines[3]) == large(1)
    assert taken.incomplete() == []


def test_a_piece_of_another_is_found_out() -> None:
    """Two pieces of one name and number, and the wrong one was the first."""
    lines = list(pack(large(1)))
    stranger = lines[2].rpartition(" ")[0] + " " + base64.b64encode(b"x" * 600).decode()
    taken = Parcels()
    assert [taken.take(line) for line in [stranger, *lines]] == [None] * (len(lines) + 1)
    assert "not those that were sent" in taken.spoilt[0]


def made(data: bytes, of: int | None = None) -> list[str]:
    """Lines around these bytes, whatever they are."""
    name = hashlib.sha256(data).hexdigest()[:16]
    pieces = [data[i : i + protocol.PIECE] for i in range(0, len(data), protocol.PIECE)]
    return [
        f"preflight-parcel 1 {name} {n}/{of or len(pieces)} {base64.b64encode(piece).decode()}"
        for n, piece in enumerate(pieces, 1)
    ]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (made(b"no zlib"), "incorrect header check"),
        (made(zlib.compress(b"{")), "Expecting property name"),
        (made(zlib.compress(b"{}") + b"more"), "not what we pack"),
        (made(zlib.compress(b"{}")[:-2]), "not what we pack"),
        (made(zlib.compress(b"[" * 100_000)), "nested too deeply"),
        (made(zlib.compress(b"\xff\xfe\xff")), "codec"),
        (made(b"x", of=999_999), "piece 1 of 999999"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_no_parcel_is_not_opened(lines: list[str], why: str) -> None:
    taken = Parcels()
    assert [taken.take(line) for line in lines] == [None] * len(lines)
    assert why in taken.spoilt[0]


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "OPENED_MOST", 1 << 20)
    taken = Parcels()
    for line in made(zlib.compress(b'"' + b"0" * (4 << 20) + b'"')):
        assert taken.take(line) is None
    assert "too much of it" in taken.spoilt[0]
    with pytest.raises(ValueError, match="when it is opened"):
        list(pack("0" * (2 << 20)))


def test_what_takes_much_room_is_not_parsed() -> None:
    """Twenty million lists are 58 kB on their way, and 1.8 GiB in Python."""
    text = b'{"report":[' + b"[]," * 8_000_000 + b"[]]}"
    assert weight(text) > protocol.WEIGHT_MOST
    data = zlib.compress(text)
    parcels = Parcels()
    of = -(-len(data) // protocol.PIECE)
    for number in range(of):
        piece = base64.b64encode(data[number * protocol.PIECE :][: protocol.PIECE]).decode()
        line = f"preflight-parcel 1 {protocol._name(data)} {number + 1}/{of} {piece}"
        assert parcels.take(line) is None
    assert parcels.tried == 1
    assert parcels.spoilt[0].endswith("it says more than is kept of one")


def test_a_stream_of_pieces_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parcels that never become whole cost no more memory than all may have together, nor lines."""
    monkeypatch.setattr(protocol, "TOGETHER_MOST", 50_000)
    taken = Parcels()
    for seed in range(40):
        for line in list(pack(large(seed)))[1:]:
            assert taken.take(line) is None
    assert sum(len(p) for pieces in taken._pieces.values() for p in pieces.values()) <= 50_000
    assert 0 < len(taken.spoilt) <= 16


@given(line=st.text(max_size=200))
def test_any_line_may_come(line: str) -> None:
    taken = Parcels()
    assert taken.take(line) is None
    assert taken.take(f"preflight-parcel 1 {line}") is None
    progress_of(f"preflight-progress 1 {line}")


def test_progress_is_a_line_or_nothing() -> None:
    told = {"done": 3, "total": 15, "check": "net.mesh", "waiting_for": "n1"}
    assert progress_of(f" 2: {progress(told)}") == told
    assert progress({"waiting_for": "é" * 200}) == "", "it does not fit"
    assert progress_of("preflight-progress 1 {]") is None
    assert progress_of(f"preflight-progress 1 {json.dumps(told)}\r") == told
