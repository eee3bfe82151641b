"""What DDP broadcasts before each forward: the buffers of the model, constant ones as well. Pure.

`broadcast_buffers` is True by default, so rank 0 sends all of them, as DistributedDataParallel's
_sync_buffers() does: running statistics, which are small, and causal masks, tables of positions and
the like, which need not be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from preflight.domains.job.frame import Frame
from preflight.domains.job.replica import Replica
from preflight.frozen import dataclass

BUFFER = re.compile(r"(?P<name>.+) \[(?P<sizes>[\d, ]*)\] (?P<type>[a-z]+\d*)\w*$")
"""`Replica.placed`: `blocks.0.mask [1, 1, 768, 768] float32`."""
BITS = re.compile(r"\d+")
LARGEST = 1 << 50


@dataclass(frozen=True, slots=True)
class SharedBuffers:
    """Of a model that DDP wraps: bytes of the buffers that it broadcasts, and of the gradients that
    it sums in a step; the largest buffer, as `name [768, 768] float32`; the line that wraps it."""

    bytes: int = 0
    gradients: int = 0
    count: int = 0
    largest: str = ""
    frame: Frame | None = None


def shared_buffers(models: Iterable[Replica]) -> SharedBuffers:
    """Of the model with most of them; empty without one."""
    found = [_of(model) for model in models if model.kind == "ddp" and model.placed]
    return max(found, key=lambda one: one.bytes, default=SharedBuffers())


def _of(model: Replica) -> SharedBuffers:
    sizes = {buffer: _bytes(buffer) for buffer in model.placed}
    return SharedBuffers(
        sum(sizes.values()),
        model.bytes,
        len(sizes),
        max(sizes, key=lambda buffer: sizes[buffer]),
        model.frame,
    )


def _bytes(buffer: str) -> int:
    """Of a buffer by what is said of it; 0 where that is no shape and type."""
    found = BUFFER.match(buffer)
    if found is None:
        return 0
    elements = prod(int(length) for length in re.findall(r"\d{1,12}", found["sizes"]))
    bits = BITS.search(found["type"])
    return min(elements * max(1, int(bits[0][:3]) // 8 if bits else 1), LARGEST)
