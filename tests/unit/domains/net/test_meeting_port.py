"""That the agent of a job holds MASTER_PORT for the meeting is known to the others of its job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import topology

from preflight.domains.net.meeting_port import (
    NAMES_READ,
    claim,
    claimants,
    name_of,
    rank_name,
    sign,
    signed,
)
from preflight.host import Host

TOP = topology(8, job="job 7", master_addr="n1", master_port=29500)
STEP = {"SLURM_STEP_ID": "1"}


@pytest.fixture
def _signs() -> Iterator[None]:
    held = sign(TOP, STEP)
    assert held is not None
    with held:
        yield


@pytest.mark.usefixtures("_signs")
def test_it_is_known_to_the_same_start_of_the_same_job_alone() -> None:
    assert signed(Host(environ=STEP), TOP)
    assert not signed(Host(environ={"SLURM_STEP_ID": "2"}), TOP)
    for changes in ({"job": "job 8"}, {"size": 9}, {"master_port": 29501}, {"master_addr": "n2"}):
        other = {"job": "job 7", "master_addr": "n1", "master_port": 29500, "size": 8, **changes}
        assert not signed(Host(environ=STEP), topology(int(str(other.pop("size"))), **other))


@pytest.mark.usefixtures("_signs")
def test_one_of_them_says_so() -> None:
    assert sign(TOP, STEP) is None


def test_it_ends_with_what_says_so() -> None:
    held = sign(TOP, STEP)
    assert held is not None
    held.close()
    assert not signed(Host(environ=STEP), TOP)


def test_a_table_that_is_long_or_not_there(tmp_path: Path) -> None:
    assert not signed(Host(str(tmp_path), STEP), TOP)
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    line = f"0: 2 0 0 1 1 7 @{name_of(TOP, STEP)}\n"
    (net / "unix").write_text("head\n" + line)
    assert signed(Host(str(tmp_path), STEP), TOP)
    (net / "unix").write_text("1: 3 0 0 1 3 8\n" * NAMES_READ + line)
    assert not signed(Host(str(tmp_path), STEP), TOP)


def test_an_agent_is_known_to_those_with_its_ranks() -> None:
    name = rank_name(TOP, STEP)
    assert claimants(Host(environ=STEP), name) == ()
    held = claim(TOP, STEP)
    assert held is not None
    with held:
        assert claim(TOP, STEP) is None
        assert claimants(Host(environ=STEP), name) == (os.getpid(),)
        for other in (topology(4, job="job 8"), topology(9, job="job 7", master_port=29501)):
            assert claimants(Host(environ=STEP), rank_name(other, STEP)) == ()
        assert claimants(Host(environ=STEP), "") == ()


def test_names_that_anybody_may_have(tmp_path: Path) -> None:
    name = rank_name(TOP, STEP)
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    ends = ("7", "x", "", "-1", "9" * 30, "²", "12 3", "8")
    (net / "unix").write_text("".join(f"0: 2 0 0 1 1 7 @{name}{end}\n" for end in ends))
    assert claimants(Host(str(tmp_path), STEP), name) == (7, 8)
