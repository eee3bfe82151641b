"""Some of the runs of `make chaos`: something happens to one of the machines at a random moment."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from faults.world import WorldFault, lacking

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import chaos

pytestmark = [
    pytest.mark.root,
    pytest.mark.torch,
    pytest.mark.skipif(bool(why := lacking(WorldFault(""))), reason=why or "-"),
]

NUMBERS = (20, 29, 32, 62, 65)
"""SIGKILL, a process of a rehearsal killed, a process stopped, /tmp read-only, few open files."""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    plan = chaos.plans(seed=1, runs=number + 1)[-1]
    came = chaos.look(plan)
    assert came.codes
    assert came.problems == (), plan
