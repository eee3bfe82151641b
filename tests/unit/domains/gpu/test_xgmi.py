"""xgmi: which of AMD's GPUs are joined, and what gpu.links makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.amd_machines import FAULTY, HEALTHY, Machine
from support.amd_observed import assert_healthy, assert_named


@pytest.mark.parametrize("machine", HEALTHY, ids=str)
def test_a_healthy_machine_is_silent(machine: Machine, tmp_path: Path) -> None:
    assert_healthy("gpu.links", machine, tmp_path)


@pytest.mark.parametrize("machine", [m for m in FAULTY if m.check == "gpu.links"], ids=str)
def test_a_fault_is_named(machine: Machine, tmp_path: Path) -> None:
    assert_named(machine, tmp_path)
