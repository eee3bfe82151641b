"""Every fault of a job on several machines: named as the root, nobody else, and in time."""

from __future__ import annotations

import functools

import pytest
from faults import (
    accelerators,
    agents,
    agreement,
    bandwidth,
    job,
    naming,
    network,
    node,
    rails,
    ranks,
    slow_networks,
    torch_builds,
    torchruns,
)
from faults.at_length import AT_LENGTH, short
from faults.world import WorldFault, healthy_twin, judge, lacking, needs_torch, run

FAULTS = (
    *(*network.FAULTS, *naming.FAULTS, *agreement.FAULTS, *agents.FAULTS, *rails.FAULTS),
    *torchruns.FAULTS,
)


def _marked(fault: WorldFault) -> object:
    marks = [pytest.mark.torch] if needs_torch(fault) else []
    if fault.missed:
        marks.append(pytest.mark.xfail(reason=fault.missed, strict=True))
    return pytest.param(fault, id=fault.name, marks=marks)


@functools.cache
def healthy_seconds(machines: int, nproc: int, args: tuple[str, ...]) -> float:
    """Of a run of the same world on this machine with nothing wrong."""
    twin = healthy_twin(WorldFault("", nproc=nproc, args=args), machines)
    return run(twin).seconds


@pytest.mark.root
@pytest.mark.parametrize("fault", [_marked(fault) for fault in short(FAULTS)])
def test_the_culprit_is_named(fault: WorldFault) -> None:
    if why := lacking(fault):
        pytest.skip(why)
    healthy = healthy_seconds(len(fault.machines), fault.nproc, fault.args)
    verdict = judge(fault, run(fault), healthy)
    if verdict.problems:
        # beside other labs on two cores an agent may starve for seconds: what is wrong twice is
        # wrong. `make faults` counts one run of each.
        verdict = judge(fault, run(fault), healthy)
    assert not verdict.problems, "\n".join(verdict.problems)


def test_names_are_unique() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names))


def test_there_are_sixty_and_ten_of_them_are_pairs() -> None:
    assert len(short(FAULTS)) >= 60
    assert sum(bool(fault.second[0]) for fault in FAULTS) >= 10


def test_what_is_left_to_make_faults_is_in_its_catalogue() -> None:
    alone = (*job.FAULTS, *node.FAULTS, *accelerators.FAULTS, *torch_builds.FAULTS, *ranks.FAULTS)
    all_of_them = (*FAULTS, *bandwidth.FAULTS, *slow_networks.FAULTS, *alone)
    assert {fault.name for fault in all_of_them} >= AT_LENGTH
