"""link_outliers: what is joined less well than its peers; never a majority of two."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.domains.gpu.link_outliers import (
    cards_without_lanes,
    missing_lanes,
    pairs_without_xgmi,
    slow_lanes,
)
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


def at(index: int, speeds: Iterable[int | None], model: str = "H100") -> LinkedGpu:
    lanes = (Lane(n, active=True, kind=SWITCH, speed=speed) for n, speed in enumerate(speeds))
    return LinkedGpu(index, model, lanes=tuple(lanes))


def test_a_slow_lane() -> None:
    node = GpuTopology(gpus=(at(0, [100] * 4), at(1, [100, 50, 100, 25]), at(2, [100] * 4)))
    (found,) = slow_lanes(node)
    assert (found.gpu.index, found.speeds) == (1, {1: 50, 3: 25})
    assert (found.usual, found.agreed, found.compared) == (100, 10, 12)
    assert found.text == "GPU 1: lane 3 at 25 of 100 MB/s, lane 1 at 50 of 100 MB/s"


def test_speeds_without_a_majority_tell_nothing() -> None:
    for speeds in ([], [50], [100, 50], [100, 100, 50, 50], [100, 70, 50], [None, 0, 50, 100]):
        assert slow_lanes(GpuTopology(gpus=(at(0, speeds),))) == [], speeds
    assert len(slow_lanes(GpuTopology(gpus=(at(0, [100, 100, 50]),)))) == 1


def test_speeds_that_are_nearly_equal_agree() -> None:
    assert slow_lanes(GpuTopology(gpus=(at(0, [1000, 990, 981, 1000]),))) == []
    (found,) = slow_lanes(GpuTopology(gpus=(at(0, [1000, 990, 981, 500]),)))
    assert found.speeds == {3: 500}
    assert found.agreed == 3


def test_many_slow_lanes_are_counted() -> None:
    gpus = (*(at(i, [100] * 18) for i in range(3)), at(3, [50] * 18))
    (found,) = slow_lanes(GpuTopology(gpus=gpus))
    assert found.text == "GPU 3: lanes 0, 1, 2, 3, 4, 5 and 12 more at 50 of 100 MB/s"


def test_cards_whose_model_has_lanes_on_another_node() -> None:
    up, dark = (GpuTopology(gpus=tuple(gpu(i, up=n) for i in range(2))) for n in (4, 0))
    assert list(cards_without_lanes({"n1": up, "n2": dark})) == ["n2"]
    assert cards_without_lanes({"n1": dark, "n2": dark}) == {}
    half = GpuTopology(gpus=(gpu(0), gpu(1, up=0)))
    assert cards_without_lanes({"n1": up, "n2": half}) == {}, "some lanes are up"
    other = GpuTopology(gpus=tuple(gpu(i, up=0, model="A100") for i in range(2)))
    assert cards_without_lanes({"n1": up, "n2": other}) == {}
