"""Lines that come in pieces of any size: each once, whole, and in time that its length allows."""

from __future__ import annotations

import time

import pytest

from preflight.process.lines import LineBuffer


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_pieces_of_any_size_make_the_same_lines(size: int) -> None:
    data = b"\nfirst\n\nsecond line\nrest"
    lines = LineBuffer()
    found = [line for at in range(0, len(data), size) for line in lines.add(data[at : at + size])]
    assert found == [b"", b"first", b"", b"second line"]
    assert len(lines) == len(b"rest")
    lines.clear()
    assert lines.add(b"\n") == [b""]


def test_a_byte_costs_no_copy_of_all_that_came_before() -> None:
    lines = LineBuffer()
    lines.add(b"x" * (8 << 20))
    began = time.process_time()
    for _ in range(20_000):
        lines.add(b"x")
    assert time.process_time() - began < 2.0  # as copies it is 160 GB
