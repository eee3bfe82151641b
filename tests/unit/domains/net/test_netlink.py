"""What the kernel answers by netlink, and what can be read of an answer that is cut off."""

from __future__ import annotations

import pytest

from preflight.domains.net.netlink import ROUTE, asked, attribute, attributes


def test_attributes_are_read_as_they_are_written() -> None:
    body = attribute(1, b"\x0a\x00\x00\x01") + attribute(0x8000 | 2, b"abc")
    assert attributes(body) == {1: b"\x0a\x00\x00\x01", 2: b"abc"}


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x00\x00\x01\x00", b"\xff\xff\x01\x00abcd"])
def test_what_is_cut_off_is_left_out(body: bytes) -> None:
    assert attributes(body) == {}


def test_no_answer_to_what_nobody_knows() -> None:
    assert asked(ROUTE, 0x7FF0, bytes(12)) == b""
