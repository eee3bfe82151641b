"""link_outliers: what is joined less well than its peers; never a majority of two."""

from __future__ import annotations

from preflight.domains.gpu.link_outliers import missing_lanes, pairs_without_xgmi
from preflight.domains.gpu.nvlink import SWITCH, GpuTopology, Lane, LinkedGpu


def gpu(index: int, up: int = 4, of: int = 4, model: str = "H100") -> LinkedGpu:
    lanes = tuple(Lane(n, active=n < up, kind=SWITCH) for n in range(of))
    return LinkedGpu(index, model, lanes=lanes)


def test_a_gpu_with_fewer_lanes_than_its_peers() -> None:
    node = GpuTopology(gpus=tuple(gpu(i, up=3 if i == 2 else 4) for i in range(4)))
    (found,) = missing_lanes({"n1": node}, frozenset())["n1"]
    assert (found.gpu.index, found.usual, found.lost) == (2, 4, (3,))
    assert found.text == "GPU 2: link 3 down, 3 of 4 lanes up"


def test_two_that_differ_are_no_majority() -> None:
    node = GpuTopology(gpus=(gpu(0), gpu(1, up=3)))
    assert missing_lanes({"n1": node}, frozenset()) == {}


def test_half_of_a_board_that_has_all_of_its_lanes_shows_what_the_other_half_lacks() -> None:
    board = tuple(gpu(i, up=3 if i > 1 else 4) for i in range(4))
    found = missing_lanes({"n1": GpuTopology(gpus=board)}, frozenset())["n1"]
    assert [(one.gpu.index, one.usual, one.lost) for one in found] == [(2, 4, (3,)), (3, 4, (3,))]
    unknown = tuple(gpu(i, up=3 if i > 1 else 4, of=5) for i in range(4))
    assert missing_lanes({"n1": GpuTopology(gpus=unknown)}, frozenset()) == {}, "none has all"
    dead = (*board[:2], gpu(2, up=0), gpu(3, up=0))
    assert missing_lanes({"n1": GpuTopology(gpus=dead)}, frozenset()) == {}, "it may be no switch"


def test_pairs_that_xgmi_does_not_join() -> None:
    def joined(index: int, others: list[int]) -> LinkedGpu:
        lanes = tuple(Lane(n, active=True, remote=f"bus {n}") for n in others)
        return LinkedGpu(index, "MI300X", bus=f"bus {index}", lanes=lanes)

    gpus = [joined(i, [n for n in range(4) if n != i and {i, n} != {1, 3}]) for i in range(4)]
    found = pairs_without_xgmi({"n1": GpuTopology(gpus=tuple(gpus))})
    assert [(one.index, other.index) for one, other in found["n1"]] == [(1, 3)]
