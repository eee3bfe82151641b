"""devices: which GPU is whose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.cases import context

from preflight.domains.torch.devices import own_gpu, undecided_where_given
from preflight.host import Host
from preflight.model import CannotObserve, Node, NotApplicable


def test_the_gpu_of_a_rank() -> None:
    at = context(rank=5, local_rank=1, local_world_size=4, world_size=8)
    assert [own_gpu(at, count) for count in (8, 4, 3, 1, 0)] == [1, 1, None, None, None]
    mine = replace(at.topology, nodes=(Node("n1", (5,), size=4),))
    alone = replace(at, topology=mine)
    assert [own_gpu(alone, count) for count in (4, 2, 1, 0)] == [1, None, 0, None]


@pytest.mark.parametrize(
    ("files", "mask", "raised"),
    [
        (("nvidia0", "nvidiactl"), None, CannotObserve),
        (("nvidia0",), "0", CannotObserve),
        (("nvidia0",), "", NotApplicable),
        (("nvidia0",), " -1", NotApplicable),
        (("nvidiactl", "nvidia-uvm"), None, NotApplicable),
        (("kfd",), None, NotApplicable),  # every kernel with the driver has it, GPU or not
        ((), None, NotApplicable),
    ],
)
def test_where_gpus_are_given_nothing_to_look_at_is_no_answer(
    tmp_path: Path, files: tuple[str, ...], mask: str | None, raised: type[Exception]
) -> None:
    (tmp_path / "dev").mkdir()
    for name in files:
        (tmp_path / "dev" / name).touch()
    host = Host(str(tmp_path), {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})
    with pytest.raises(raised, match="torch sees no GPU here"), undecided_where_given(host):
        raise NotApplicable("torch sees no GPU here")
