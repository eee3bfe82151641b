"""How many bytes DDP broadcasts before each forward."""

from __future__ import annotations

import pytest

from preflight.domains.job.replica import Replica
from preflight.domains.job.shared_buffers import SharedBuffers, shared_buffers


@pytest.mark.parametrize(
    ("buffer", "size"),
    [
        ("mask [768, 768] float32", 768 * 768 * 4),
        ("cos [4096, 64] bfloat16", 4096 * 64 * 2),
        ("seen [] int64", 8),
        ("keep [10, 10] bool", 100),
        ("scale [16] float8_e4m3fn", 16),
        ("a name [2] with [3] float64", 24),
        ("nonsense", 0),
        ("empty [0] float32", 0),
    ],
)
def test_the_bytes_of_a_buffer(buffer: str, size: int) -> None:
    assert shared_buffers([Replica(kind="ddp", placed=(buffer,))]).bytes == size


def test_the_model_with_most_counts() -> None:
    teacher = Replica(kind="ddp", bytes=400, placed=("mean [4] float32",))
    student = Replica(kind="ddp", bytes=800, placed=("a [8] float32", "b [2, 64] float32"))
    found = shared_buffers([teacher, student])
    assert found == SharedBuffers(544, 800, 2, "b [2, 64] float32")


def test_without_ddp_or_without_buffers_there_are_none() -> None:
    alone = Replica(kind="optimizer", placed=("a [8] float32",))
    assert shared_buffers([alone, Replica(kind="ddp")]) == SharedBuffers()
