"""Every fault of the catalogue: named as the root of the report, and nobody else; in time."""

from __future__ import annotations

import pytest
from faults import accelerators, computing, job, node, ranks, torch_builds
from faults.at_length import short
from faults.inject import Fault, judge, lacking, needs_torch, run

FAULTS = (
    *(*job.FAULTS, *node.FAULTS, *accelerators.FAULTS, *torch_builds.FAULTS, *ranks.FAULTS),
    *(fault for fault in computing.FAULTS if fault.name not in computing.AT_LENGTH),
)


def _marked(fault: Fault) -> object:
    marks = [pytest.mark.torch] if needs_torch(fault) else []
    if fault.missed:
        marks.append(pytest.mark.xfail(reason=fault.missed, strict=True))
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.mark.root
@pytest.mark.parametrize("fault", [_marked(fault) for fault in short(FAULTS)])
def test_the_culprit_is_named(fault: Fault) -> None:
    if why := lacking(fault):
        pytest.skip(why)
    verdict = judge(fault, run(fault))
    assert not verdict.problems, "\n".join(verdict.problems)


def test_names_are_unique() -> None:
    names = [fault.name for fault in (*FAULTS, *computing.HEALTHY)]
    assert len(names) == len(set(names))
    assert {fault.name for fault in (*computing.FAULTS, *computing.HEALTHY)} >= computing.AT_LENGTH
