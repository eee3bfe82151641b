"""devices: which GPU is whose."""

from __future__ import annotations

from dataclasses import replace

from support.cases import context

from preflight.domains.torch.devices import own_gpu
from preflight.model import Node


def test_the_gpu_of_a_rank() -> None:
    at = context(rank=5, local_rank=1, local_world_size=4, world_size=8)
    assert [own_gpu(at, count) for count in (8, 4, 3, 1, 0)] == [1, 1, None, None, None]
    mine = replace(at.topology, nodes=(Node("n1", (5,), size=4),))
    alone = replace(at, topology=mine)
    assert [own_gpu(alone, count) for count in (4, 2, 1, 0)] == [1, None, 0, None]
