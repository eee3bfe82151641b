"""Ranks that were given different places to meet: those that are fewer are named, and nobody where
all have met."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import world

from preflight.domains.job.record import End, Frame, HeldStore, Joins, Life, WatchedCommand
from preflight.domains.job.rendezvous import rendezvous_conflict, unreachable_address
from preflight.model import Found

INIT = Frame("train.py", 12, "main", own=True)
REFUSED = "DistNetworkError: The client socket has failed to connect to (x, 1)"


def joins(rank: int, **changes: object) -> Joins:
    base = Joins(100 + rank, "tcp", "n1", 29500, "", rank, 3, INIT)
    return replace(base, **changes)  # type: ignore[arg-type]


def lives(*said: Joins | None, why: str = "stuck", joined: bool = False) -> dict[str, Life]:
    command = WatchedCommand(("python", "train.py"), None, why, 30.0)
    return {
        f"n1/{i}": Life(command, i, 3, len(said), 100 + i, joined=joined, joins=each)
        for i, each in enumerate(said)
    }


def conflict(of: dict[str, Life]) -> Found | None:
    return rendezvous_conflict(world("job.ranks", of))


SAME = lives(joins(0), joins(1), joins(2))
OTHER_PORT = lives(joins(0), joins(1, port=29501), joins(2))
OTHER_SIZE = lives(joins(0), joins(1), joins(2, world=4))


@pytest.mark.parametrize(
    "of",
    [
        SAME,
        lives(None, None),
        # localhost and a name may be one machine
        lives(joins(0, host="localhost"), joins(1, host="127.0.0.1")),
        lives(joins(0, how="env"), joins(1, how="tcp")),
        lives(joins(0), joins(1, port=29501), why="ended"),
        lives(joins(0), joins(1, port=29501), joined=True),
        lives(joins(0, how="store", host="", port=0), joins(1)),
        lives(joins(0, world=0), joins(1)),
        lives(joins(0, how="file", port=0, path="/x", stale=0.4)),
    ],
)
def test_no_conflict(of: dict[str, Life]) -> None:
    assert conflict(of) is None


@pytest.mark.parametrize(
    ("of", "code", "ranks", "saw"),
    [
        (
            OTHER_PORT,
            "rendezvous-differs",
            [1],
            "rank 1: port 29501 (tcp://n1:29501 at t",
        ),
        (OTHER_SIZE, "world-size-differs", [2], "rank 2: world_size 4 "),
        # in a tie those that are not with rank 0
        (lives(joins(0, port=1), joins(1)), "rendezvous-differs", [1], "rank 1: port 29500"),
        (
            lives(joins(0, how="file", port=0, path="/a"), joins(1, how="file", port=0, path="/b")),
            "rendezvous-differs",
            [1],
            "rank 1: file /b (file:///b at train.py:12); rank 0: file /a",
        ),
        (
            lives(joins(0, how="env"), joins(1, how="env", port=2), joins(2, how="env")),
            "rendezvous-differs",
            [1],
            "(n1:2 by MASTER_ADDR, MASTER_PORT at train.py:12)",
        ),
        (
            lives(*(joins(r, how="file", port=0, path="/x", stale=60.0 * (r < 1)) for r in (0, 1))),
            "rendezvous-file-stale",
            [0, 1],
            "written 60.0 s before it began",
        ),
    ],
)
def test_what_differs_is_named(of: dict[str, Life], code: str, ranks: list[int], saw: str) -> None:
    found = conflict(of)
    assert found is not None
    assert (found.code, [int(s.name) for s in found.subjects]) == (code, ranks)
    assert saw in found.saw


SET = Frame("train.py", 3, "<module>", own=True)
HELD = HeldStore("n1", 29500, SET)


def test_an_address_that_the_script_has_set_itself() -> None:
    own = [joins(r, how="env", port=29501, refused="Connection refused", held=HELD) for r in (0, 1)]
    found = conflict(lives(*own))
    assert found is not None
    assert (found.code, len(found.subjects)) == ("rendezvous-replaced", 2)
    assert found.saw == (
        "ranks 0-1 at n1:29501, set at train.py:3: Connection refused · torchrun has the store at "
        "n1:29500 · init_process_group at train.py:12"
    )
    # of one rank alone, before it is said that their ports differ
    found = conflict(lives(joins(0), replace(own[1], held=HeldStore("n1", 29500)), joins(2)))
    assert found is not None
    assert (found.code, found.fields["line"]) == ("rendezvous-replaced", "train.py:12")


def test_each_rank_has_set_an_address_of_its_own() -> None:
    each = [
        joins(r, how="env", port=29501 + r, refused="Connection refused", held=HELD)
        for r in range(7)
    ]
    found = conflict(lives(*each[:2]))
    assert found is not None
    assert found.saw.startswith(
        "rank 0 at n1:29501, rank 1 at n1:29502 (2 different addresses), set at train.py:3: "
        "Connection refused · torchrun"
    )
    found = conflict(lives(*each))
    assert found is not None
    assert "rank 3 at n1:29504 and 3 other addresses (7 different addresses), set" in found.saw


def test_nobody_can_listen_there_however_short_the_rehearsal_was() -> None:
    tried = [joins(r, port=29501, refused="Connection refused", held=HELD) for r in (0, 1)]
    found = conflict(lives(*tried, why="time"))
    assert found is not None
    assert found.code == "rendezvous-replaced"
    # not tried, or somebody of the script's own listens there
    assert conflict(lives(*(replace(one, refused="") for one in tried), why="time")) is None
    # two that may still come to one address
    assert conflict(lives(joins(0), joins(1, port=29501), why="time")) is None


@pytest.mark.parametrize(
    "of",
    [
        lives(*(joins(r, host="localhost", held=HELD) for r in (0, 1))),  # one machine by two names
        lives(*(joins(r, port=29501, held=HELD) for r in (0, 1)), joined=True),
        lives(*(joins(r, port=29501, held=HELD) for r in (0, 1)), why="ended"),
    ],
)
def test_another_address_that_does_no_harm(of: dict[str, Life]) -> None:
    assert conflict(of) is None


def test_a_path_is_quoted_once() -> None:
    """By whatever puts it into a command; twice, `rm` is told another file."""
    path = "/tmp/a store"
    found = conflict(lives(*(joins(r, how="file", port=0, path=path, stale=60.0) for r in (0, 1))))
    assert found is not None
    assert found.fields["path"] == path


def test_one_rank_twice() -> None:
    twice = {**SAME, "n1/1": replace(SAME["n1/1"], twins=(joins(1, pid=7),))}
    elsewhere = {**SAME, "n2/0": replace(SAME["n1/1"], joins=joins(1, pid=9))}
    for of, pid in ((twice, 7), (elsewhere, 9)):
        found = conflict(of)
        assert found is not None
        assert (found.code, {s.name for s in found.subjects}) == ("rank-duplicate", {"1"})
        assert found.saw.startswith("2 processes are rank 1: pid 101 (tcp://n1:29500")
        assert f"pid {pid}" in found.saw


def test_an_address_of_which_nobody_is_reached() -> None:
    refused = [joins(r, refused="no such host name") for r in range(2)]
    found = unreachable_address(world("job.ranks", lives(*refused)))
    assert found is not None
    assert found.saw == "ranks 0-1 can't reach n1:29500 (tcp://n1:29500 at train.py:12): " + (
        "no such host name"
    )
    # without rank 0 it is that one that is missed
    assert unreachable_address(world("job.ranks", {"n1/1": lives(*refused)["n1/1"]})) is None
    assert unreachable_address(world("job.ranks", SAME)) is None
    ended = replace(SAME["n1/1"], end=End("raised", 9.0, 1, REFUSED))
    found = unreachable_address(world("job.ranks", {**SAME, "n1/1": ended}))
    assert found is not None
    assert REFUSED in found.saw
