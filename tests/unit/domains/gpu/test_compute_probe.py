"""compute_probe: which GPU a rank computes on, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cases import context, topology
from support.compute_stand_in import COUNT, Cuda

from preflight.domains.gpu import compute_probe
from preflight.domains.torch.devices import Devices
from preflight.host import Host
from preflight.model import CannotObserve, Fact, Node, NotApplicable


def stand_in(**changes: Any) -> Devices:
    return Devices(Cuda(**changes), "cpu")


@pytest.mark.torch
def test_too_little_memory_is_no_verdict() -> None:
    with pytest.raises(CannotObserve, match=r"only 100 MiB are free on GPU 0: gpu.health"):
        compute_probe.compute(Host(), context(), lambda: stand_in(free=100 << 20))


@pytest.mark.torch
def test_each_rank_takes_its_own_gpu() -> None:
    assert compute_probe._own_gpu_and_turn(context(local_rank=3), COUNT)[0] == 3
    with pytest.raises(NotApplicable, match="fewer GPUs than ranks: 2 < 4"):
        compute_probe._own_gpu_and_turn(context(local_rank=3), 2)
    # an agent of one rank of eight
    alone = replace(
        topology(1, nodes=(Node("n1", (5,), size=8),)), facts={"local_rank": Fact("5", "env")}
    )
    one = context(topology=alone, rank=5, local_world_size=1)
    assert compute_probe._own_gpu_and_turn(one, COUNT)[0] == 5
    assert compute_probe._own_gpu_and_turn(one, 1)[0] == 0, "the launcher shows each its own"
