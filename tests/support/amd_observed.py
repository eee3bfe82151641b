"""Machines with AMD's GPUs, observed: trees of files and a stand-in for amdsmi. Nothing of this was
seen on such a GPU yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab import amd as lab
from lab import nvml
from lab.amd_machines import Machine

from preflight.checks import gpu_health, gpu_links, gpu_visible
from preflight.host import Host
from support.cases import Case, assert_case, context, judged, round_trips, topology

CHECKS = {"gpu.visible": gpu_visible, "gpu.health": gpu_health, "gpu.links": gpu_links}


def tree(root: Path, machine: Machine) -> Path:
    made = lab.machine(root, machine.board)
    with (made / "dev/kmsg").open("a") as file:
        file.write(machine.log)
    return made


def observed(root: Path, machine: Machine, check: str, **more: Any) -> nvml.Observed:
    """amdsmi is asked in a process of its own."""
    made = tree(root, machine)
    if check != "gpu.health":
        saw = CHECKS[check].observe(Host(str(made), machine.environ), context())
        return nvml.Observed(saw, "", ())
    return lab.observed(check, made, machine.scenario, environ=machine.environ, **more)


def assert_healthy(check: str, machine: Machine, root: Path) -> None:
    """No finding about a machine without a fault."""
    saw = observed(root, machine, check).value
    round_trips(saw)
    assert saw.make == "AMD"
    ranks = 1 if machine.board.gpus == 1 else 2
    assert_case(CHECKS[check], Case("", saw, topology=topology(ranks)))


def assert_named(machine: Machine, root: Path) -> None:
    """The one finding about the machine's fault."""
    saw = observed(root, machine, machine.check).value
    round_trips(saw)
    found = judged(CHECKS[machine.check], Case("", saw, topology=topology(1)))
    assert [(f.code, f.subjects[0].name) for f in found] == [(machine.code, machine.subject)]
    assert found[0].status == machine.status
