"""inventory: the GPUs of a node by name."""

from __future__ import annotations

from pathlib import Path

from lab import amd as lab
from lab.amd import MI210

from preflight.domains.system import inventory
from preflight.host import Host
from preflight.model import Status

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED


def test_agreement_of_hardware_has_their_names(tmp_path: Path) -> None:
    assert (
        inventory._gpu_names(Host(str(lab.machine(tmp_path, MI210)))) == ("AMD Instinct MI210",) * 4
    )
