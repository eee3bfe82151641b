"""Who has come to a meeting, counted as they come: with a thousand guests nothing is counted anew
whenever one of them says a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from preflight.messages import Hello


class Headcount:
    """How many agents claim how many ranks, and in how large a world each of them believes."""

    def __init__(self) -> None:
        self.claims = 0
        self._ranks: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()

    def add(self, hello: Hello, times: int = 1) -> None:
        self.claims += times * len(hello.ranks)
        for counter, values in ((self._ranks, hello.ranks), (self._sizes, (hello.size,))):
            for value in values:
                counter[value] += times
                if not counter[value]:
                    del counter[value]

    def remove(self, hello: Hello) -> None:
        self.add(hello, -1)

    @property
    def ranks(self) -> int:
        return len(self._ranks)

    @property
    def sizes(self) -> Set[int]:
        """What they believe to be the number of all ranks."""
        return self._sizes.keys()

    def all_of(self, size: int) -> bool:
        """Whether each of so many ranks is there, once, and no other."""
        if not self.claims == size == len(self._ranks):
            return False
        return all(rank < size for rank in self._ranks)
