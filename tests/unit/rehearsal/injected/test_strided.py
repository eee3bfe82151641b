"""What is noted of views that are given to collectives, with stand-ins for torch's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_strided as strided

LINE = ["train.py", 12, "main", True]


class View:
    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], device: str = "cpu"):
        self.shape, self._strides, self.device = shape, strides, SimpleNamespace(type=device)

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def is_contiguous(self) -> bool:
        expected = 1
        for stride, size in zip(reversed(self._strides), reversed(self.shape), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


ROWS = View((8, 64), (64, 1))
COLUMNS = View((32, 8), (64, 1))
EVERY_SECOND = View((16, 64), (128, 1))
TRANSPOSED = View((64, 32), (1, 64))
EXPANDED = View((4, 3), (0, 1))
ONE_ROW = View((1, 64), (4096, 1))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    class Group:
        group_name = "0"
        ranks = 2

        def size(self) -> int:
            return self.ranks

        def allreduce(self, tensors: object, options: object = None) -> str:
            return "work"

        def broadcast(self, tensors: object, options: object = None) -> str:
            return "work"

        def scatter(self, outputs: object, inputs: object, options: object = None) -> str:
            return "work"

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13.0+cpu"))  # type: ignore[arg-type]
    strided.begin()
    strided.follow(SimpleNamespace(ProcessGroup=Group), lambda *_: None, lambda: LINE)
    yield Group()
    strided.begin()


@pytest.mark.parametrize("view", [ROWS, TRANSPOSED, ONE_ROW], ids=["rows", "transposed", "one"])
def test_a_view_without_gaps(group: Any, view: View) -> None:
    assert group.allreduce([view]) == group.broadcast(view) == "work"
    assert strided.told() == []


def test_views_with_gaps(group: Any) -> None:
    for view in (COLUMNS, EVERY_SECOND):
        assert group.allreduce([view], None) == "work"
    assert group.broadcast(EXPANDED) == "work"
    assert strided.told() == [
        ["all_reduce", "0", [32, 8], [64, 1], 2, LINE],
        ["broadcast", "0", [4, 3], [0, 1], 1, LINE],
    ]
    strided.begin()
    assert strided.told() == []


def test_what_is_scattered(group: Any) -> None:
    group.scatter([ROWS], [[ROWS, COLUMNS]])
    assert [one[0] for one in strided.told()] == ["scatter"]


def test_where_nothing_goes_wrong(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    group.allreduce([View((32, 8), (64, 1), "cuda")])
    group.allreduce("nonsense")
    group.ranks = 1
    group.allreduce([COLUMNS])
    group.ranks = 2
    monkeypatch.setattr(sys.modules["torch"], "__version__", "2.14.0")
    group.allreduce([COLUMNS])
    assert strided.told() == []
