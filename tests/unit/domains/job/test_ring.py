"""Which rank of a ring of send and recv has the wrong peer; nobody where there is no ring."""

from __future__ import annotations

import pytest
from support.rehearsed_worlds import call, group, rank

from preflight.domains.job.record import Calls
from preflight.domains.job.ring import wrong_peer

Peers = dict[int, tuple[str, ...]]


def world(peers: Peers) -> dict[int, Calls]:
    """Ranks with these calls between two: `>1` sends to rank 1, `<3` receives from rank 3."""
    everybody = tuple(sorted(peers))
    made = {}
    for r, told in peers.items():
        ops = [f"send {r}->{one[1:]}" if one[0] == ">" else f"recv {r}<-{one[1:]}" for one in told]
        calls = [call(n, op, p2p=True) for n, op in enumerate(ops, 1)]
        here = group(*calls, done=0, ranks=everybody)
        made[r] = rank("collective", here)
    return made


RING: Peers = {r: (f">{(r + 1) % 4}", f"<{(r - 1) % 4}") for r in range(4)}
BACK: Peers = {r: (f">{(r - 1) % 5}", f"<{(r + 1) % 5}") for r in range(5)}
THREE: Peers = {r: (f">{(r + 1) % 3}", f"<{(r - 1) % 3}") for r in range(3)}


@pytest.mark.parametrize(
    ("peers", "guilty", "peer", "meant"),
    [
        (RING | {2: (">0", "<1")}, 2, 0, 3),
        (RING | {0: (">1", "<2")}, 0, 2, 3),
        (RING | {3: (">0", "<2", ">1")}, 3, 1, 0),
        (RING | {1: (">0", "<2")}, 1, 0, 2),
        (BACK | {4: (">3", "<1")}, 4, 1, 0),
        (THREE | {1: (">2", "<2")}, 1, 2, 0),
        # each has come to its first call only
        ({0: (">1",), 1: ("<0",), 2: (">0",), 3: (">0",)}, 2, 0, 3),
    ],
    ids=str,
)
def test_the_rank_with_the_wrong_peer(peers: Peers, guilty: int, peer: int, meant: int) -> None:
    found = wrong_peer(world(peers))
    assert found is not None
    assert (found.rank, found.peer, found.meant) == (guilty, peer, meant)


@pytest.mark.parametrize(
    "peers",
    [
        RING,
        THREE,
        # a pipeline, with gradients on their way back
        {
            0: (">1", "<1"),
            1: ("<0", ">2", "<2", ">0"),
            2: ("<1", ">3", "<3", ">2"),
            3: ("<2", ">2"),
        },
        # the last stage of a pipeline answers, the one before it has not yet received
        {0: (">1",), 1: ("<0", ">2"), 2: ("<1", ">3"), 3: ("<2", ">2")},
        # an exchange by distances 1 and 2
        {r: (f">{r ^ 1}", f"<{r ^ 1}", f">{r ^ 2}", f"<{r ^ 2}") for r in range(4)},
        # two of four are not as the other two
        RING | {1: (">3", "<0"), 2: (">0", "<1")},
        # two alone
        {0: (">1", "<1"), 1: (">0", "<0")},
        # one has called nothing yet
        RING | {2: ()},
        # one is wrong, and of another nothing is known
        RING | {2: (">0",), 3: ()},
    ],
    ids=str,
)
def test_nobody(peers: Peers) -> None:
    assert wrong_peer(world(peers)) is None


def test_a_rank_that_is_not_seen_may_be_the_one() -> None:
    seen = world(RING | {2: (">0", "<1")})
    assert wrong_peer({r: of for r, of in seen.items() if r != 3}) is None
