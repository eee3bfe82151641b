"""Who waits for whom."""

from __future__ import annotations

from dataclasses import replace

from support.rehearsed_worlds import call, pair, rank

from preflight.domains.job.wait_graph import wait_graph


def test_in_init_they_wait_for_who_has_no_group() -> None:
    seen = wait_graph({0: replace(rank("init"), groups=()), 1: replace(rank("init"), groups=())})
    assert seen.behind == dict.fromkeys((0, 1), frozenset({2, 3}))
    assert seen.unseen == (2, 3)
    calls = {0: replace(rank("init"), groups=(), world=2)}
    calls[1] = replace(rank("own"), groups=(), world=2)
    seen = wait_graph(calls)
    assert (seen.behind, seen.roots) == ({0: frozenset({1})}, (1,))


def test_a_mate_is_found_by_its_number_in_the_group() -> None:
    inside = replace(pair(call(1, "send 0->1", p2p=True), name="pp"), ranks=(4, 6))
    seen = wait_graph({4: rank("collective", inside), 6: rank("own", replace(inside, calls=()))})
    assert seen.behind[4] == {6}


def test_calls_between_two_are_no_collectives() -> None:
    """Whoever has only those has entered no collective yet, however many they are."""
    sent = tuple(call(seq, "send 1->0", p2p=True, done=True) for seq in range(1, 9))
    ahead = rank("own", replace(pair(), enqueued=8, completed=8, calls=sent))
    seen = wait_graph({0: rank("collective", pair(call(1))), 1: ahead})
    assert seen.behind[0] == {1}


def test_a_call_that_the_others_have_done_is_no_wait_where_a_later_one_is_open() -> None:
    """Its end was not recorded; it waits in the barrier, to which the other did not come."""
    waits = rank("collective", pair(call(6), call(7, "barrier"), done=5))
    sleeps = rank("own", pair(done=6))
    seen = wait_graph({0: sleeps, 1: waits})
    assert seen.behind == {1: frozenset({0})}
    assert seen.roots == (0,)
    # alone it is what hangs: the network may have taken the answer of this one only
    alone = wait_graph({0: sleeps, 1: rank("collective", pair(call(6), done=5))})
    assert (alone.roots, alone.alone) == ((), (1,))
