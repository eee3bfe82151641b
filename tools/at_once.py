"""Some pieces of work at a time, each in a process of its own that was forked from this one: the
labs of tests/lab name control groups by their process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# what the processes find when they are forked: faults have functions in them that can't be pickled
_work: Callable[[Any], Any]
_items: Sequence[Any] = ()


def each(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[tuple[int, R]]:
    """The number of an item and what came of it, in the order in which they end."""
    global _work, _items
    _work, _items = work, items
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        begun = [pool.submit(_do, number) for number in range(len(items))]
        for done in as_completed(begun):
            yield done.result()


def _do(number: int) -> tuple[int, Any]:
    return number, _work(_items[number])
