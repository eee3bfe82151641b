"""Which ranks the nodes of a torchrun have that is yet to be started. Pure.

torchrun's agents add up how many ranks each of them starts (_assign_worker_ranks in
torch/distributed/elastic/agent/server/api.py), and number the nodes themselves where their
rendezvous is not static. Ours know that only once they have met; until then each multiplies its own
number of ranks. What an agent says of itself is a stranger's word: numbers that fit nowhere change
nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from preflight.meeting.protocol import RANKS_MOST, Hello


def adds_up(hello: Hello) -> bool:
    """Whether it is of such a torchrun, and what it says makes sense."""
    first = min(hello.ranks, default=0)
    block = hello.ranks == tuple(range(first, first + max(1, len(hello.ranks))))
    return block and 0 < hello.nodes <= RANKS_MOST and -1 <= hello.node < hello.nodes


def numbered(hellos: Sequence[Hello]) -> tuple[Hello, ...]:
    """The hellos with the ranks and the size of the job that their torchrun will give them; as they
    are where not all are of one, or two were given the same number.

    The first is that of the meeting's host, which rank 0 is to be on. torchrun itself orders its
    nodes by their full names and the numbers of its processes, which are not there yet. How many
    nodes there are is the host's to say, and of those that have not come, as many ranks are assumed
    as it has."""
    given = [hello.node for hello in hellos if hello.node >= 0]
    if not all(map(adds_up, hellos)) or len(set(given)) < len(given):
        return tuple(hellos)
    numbers = _numbers(hellos)
    each, came = len(hellos[0].ranks), sum(len(hello.ranks) for hello in hellos)
    size = came + max(0, hellos[0].nodes - len(hellos)) * each
    found = list(hellos)
    before = 0
    for count, i in enumerate(sorted(range(len(hellos)), key=numbers.__getitem__)):
        hello = hellos[i]
        first = before + (numbers[i] - count) * each
        before += len(hello.ranks)
        if max(first + len(hello.ranks), size) > RANKS_MOST:
            return tuple(hellos)
        ranks = tuple(range(first, first + len(hello.ranks)))
        found[i] = replace(hello, ranks=ranks, size=size)
    return tuple(found)


def _numbers(hellos: Sequence[Hello]) -> list[int]:
    """The number of each node: its own, or the first that nobody has."""
    given = {hello.node for hello in hellos}
    free = (number for number in itertools.count() if number not in given)
    numbers = [hello.node for hello in hellos]
    for i in sorted(range(len(hellos)), key=lambda i: (i > 0, _place(hellos[i]))):
        if numbers[i] < 0:
            numbers[i] = next(free)
    return numbers


def _place(hello: Hello) -> tuple[object, ...]:
    """By name, gpu2 before gpu10."""
    parts = re.split(r"([0-9]+)", hello.host)
    name = [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)]
    return name, hello.identity, hello.pid, hello.nonce
