"""Who waits for whom before there is a process group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.domains.job.joining import (
    LAUNCHER,
    RANK,
    Joining,
    describe,
    from_launchers,
    from_ranks,
    launchers_without_ranks,
)
from preflight.model import Confidence, Status

AT = "gpu1:29500"
STATIC = Joining(LAUNCHER, AT, 12.0, mine=0, size=2, come=1, command="torchrun\0-x")
C10D = replace(STATIC, mine=None, names=("gpu1",))
IN_INIT = Joining(RANK, AT, 40.0, mine=0, size=3, come=2)


def test_a_node_that_is_missing_is_named_with_the_command_for_it() -> None:
    found = from_launchers({"n1/0": STATIC})
    assert found is not None
    assert found.saw == (
        "torchrun has waited for 12 s in its rendezvous at gpu1:29500: 1 of 2 nodes is here · "
        "node rank 1 is missing"
    )
    assert [str(s) for s in found.subjects] == ["node rank 1"]
    assert found.fields["command"] == "torchrun\0-x"
    assert found.status is None


def test_of_a_short_wait_nobody_is_accused() -> None:
    found = from_launchers({"n1/0": replace(STATIC, since=4.0)})
    assert found is not None
    assert found.status is Status.UNDECIDED


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (C10D, "1 of 2 nodes is here (gpu1)"),
        (replace(STATIC, size=4, known=(2,), come=2), "node ranks 1,3 are missing"),
        (replace(STATIC, size=4, come=2), "2 of 4 nodes are here"),
        (replace(STATIC, mine=1, error="ECONNREFUSED", come=None), "connection refused"),
        (replace(STATIC, mine=1, error="EAI_NONAME", come=None), "no such host name"),
        (replace(C10D, complete=True), "has begun without it, with gpu1"),
        (replace(STATIC, come=None, error="closed"), "its store was not asked: closed"),
        (replace(STATIC, place="127.0.0.1:29500"), "127.0.0.1 is each node's own address"),
    ],
)
def test_what_is_known_is_said(one: Joining, words: str) -> None:
    found = from_launchers({"n1/0": one})
    assert found is not None
    assert words in found.saw


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"place": "gpu1:29501"}, "the rendezvous endpoint is"),
        ({"size": 3}, "--nnodes is 2 for node rank 0, 3 for node rank 1"),
        ({"run_id": "8"}, "--rdzv-id is"),
        ({"mine": 0}, "several of them have --node-rank 0"),
    ],
)
def test_launchers_that_never_meet(changes: dict[str, object], words: str) -> None:
    other = replace(STATIC, **({"mine": 1} | changes))  # type: ignore[arg-type]
    found = from_launchers({"n1/0": STATIC, "n2/0": other})
    assert found is not None
    assert words in found.saw


def test_a_launcher_that_nobody_can_find_waits_in_vain_from_the_beginning() -> None:
    alone = Joining("torchrun", since=2.0, size=2, alone=True)
    found = from_launchers({"n1/0": alone})
    assert found is not None
    assert found.status is None
    assert "for 2 nodes: with --standalone it meets only itself" in found.saw
    assert describe(alone).endswith("--standalone: nobody else can come")


def test_who_can_not_get_in_is_believed_before_who_waits_for_him() -> None:
    lost = replace(STATIC, mine=1, error="ETIMEDOUT", come=None)
    found = from_launchers({"n1/0": STATIC, "n2/0": lost})
    assert found is not None
    assert (found.code, str(found.subjects[0])) == ("rendezvous-unreachable", "n2")


def test_a_launcher_that_has_not_come_so_far_is_not_green() -> None:
    early = {"n1/0": Joining(LAUNCHER, since=3.0)}
    assert from_launchers(early) is None
    found = launchers_without_ranks(early)
    assert found is not None
    assert found.code == "not-watched"


def absent(*waiting: Joining, here: tuple[int, ...] = ()) -> tuple[list[int], str] | None:
    ranks = {one.mine: one for one in waiting if one.mine is not None}
    found = from_ranks(ranks, dict.fromkeys(ranks, "n1"), frozenset({*ranks, *here}))
    return ([r for s in found.subjects for r in s.ranks], found.saw) if found else None


def test_the_rank_that_is_missing_is_named() -> None:
    found = absent(IN_INIT, replace(IN_INIT, mine=1, known=(1,)))
    assert found is not None
    assert found[0] == [2]
    assert "2 of 3 ranks are here · rank 2 is missing" in found[1]


def test_ranks_of_other_machines_are_missing_only_as_the_store_tells() -> None:
    told = replace(IN_INIT, size=4, come=3, known=(0, 2, 3))
    found = absent(told)
    assert found is not None
    assert found[0] == [1]
    assert absent(replace(told, come=4, known=(0, 1, 2, 3))) is None


def test_without_the_store_it_is_only_possible() -> None:
    found = from_ranks({0: replace(IN_INIT, come=None)}, {0: "n1"}, frozenset({0, 1}))
    assert found is not None
    assert found.confidence is Confidence.POSSIBLE


def test_a_rank_that_is_here_is_job_collectives() -> None:
    assert absent(IN_INIT, here=(1, 2)) is None


def test_ranks_with_other_ports_never_meet() -> None:
    one, two = (replace(IN_INIT, mine=r, size=3) for r in (0, 1))
    found = absent(one, two, replace(one, mine=2, place="gpu1:29501"))
    assert found is not None
    assert found[0] == [2]
    assert "gpu1:29501 on rank 2, gpu1:29500 on ranks 0-1" in found[1]


def test_a_rank_that_can_not_reach_the_store_is_named() -> None:
    found = absent(IN_INIT, replace(IN_INIT, mine=1, error="EAI_NONAME", come=None))
    assert found is not None
    assert found[0] == [1]
