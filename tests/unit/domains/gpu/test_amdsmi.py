"""amdsmi: the health of AMD's GPUs, played by a stand-in in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import amd as lab
from lab import nvml
from lab.amd import GIB, MI300X, kernel
from lab.amd_machines import ECC, FAILED, FAULTY, HEALTHY, TAKEN, Machine, pages
from support.amd_observed import assert_healthy, assert_named, observed, tree
from support.cases import Case, judged, topology

from preflight.checks import gpu_health
from preflight.domains.gpu import amdsmi
from preflight.domains.gpu.vitals import Reset, Resets
from preflight.host import Host
from preflight.model import Cause, Mark, Missing, Status

FAIL, UNDECIDED = Status.FAIL, Status.UNDECIDED

ALL = lab.gpus(MI300X)
NO_LIBRARY = "libamd_smi.so: cannot open shared object file"


@pytest.mark.parametrize("machine", HEALTHY, ids=str)
def test_a_healthy_machine_is_silent(machine: Machine, tmp_path: Path) -> None:
    assert_healthy("gpu.health", machine, tmp_path)


@pytest.mark.parametrize("machine", [m for m in FAULTY if m.check == "gpu.health"], ids=str)
def test_a_fault_is_named(machine: Machine, tmp_path: Path) -> None:
    assert_named(machine, tmp_path)


def test_what_gpu_health_sees(tmp_path: Path) -> None:
    machine = Machine("", changes={2: {**ECC, **pages(0, 0, 1), **TAKEN}})
    got = observed(tmp_path, machine, "gpu.health")
    gpu = got.value.told.gpus[2]
    assert (gpu.volatile, gpu.rows, gpu.pages_pending, gpu.remap_failed) == (3, 2, True, False)
    assert (gpu.temperature, gpu.slowdown_at, gpu.brakes) == (41, 100, 0)
    assert (gpu.width, gpu.width_max, gpu.name) == (16, 16, "AMD Instinct MI300X")
    assert [(p.pid, p.memory) for p in gpu.processes] == [(4000000, 60 * GIB)]
    assert got.marks[:4] == ("/sys/bus/pci", "/sys/class/kfd", "import of amdsmi", "amdsmi_init")
    assert "amdsmi_get_violation_status of GPU 7" in got.marks
    assert got.marks[-2:] == ("amdsmi_shut_down", "/dev/kmsg")


@pytest.mark.parametrize(
    ("play", "why"),
    [
        (None, "the package amdsmi is not installed"),
        (
            {"gpus": {}, "import": f"OSError: {NO_LIBRARY}"},
            f"amdsmi does not fit the ROCm here: {NO_LIBRARY}",
        ),
        (
            {"gpus": ALL, "errors": {"amdsmi_init": 18}},
            "amdsmi_init: 18 | AMDSMI_STATUS_18 - in words",
        ),
        (
            {"gpus": ALL, "errors": {"amdsmi_get_processor_handles": 34}},
            "amdsmi_get_processor_handles: 34 | AMDSMI_STATUS_34 - in words",
        ),
    ],
)
def test_without_amdsmi_sys_tells_of_errors(
    play: Mapping[str, Any] | None, why: str, tmp_path: Path
) -> None:
    root = tree(tmp_path, Machine(""))
    ras = root / "sys/bus/pci/devices" / lab.bus(3) / "ras"
    (ras / "umc_err_count").write_text("ue: 2\nce: 4\n")
    (ras / "gpu_vram_bad_pages").write_text("0x1 : 0x1000 : R\n0x2 : 0x1000 : P\n")
    saw = lab.observed("gpu.health", root, play).value
    gpu = saw.told.gpus[3]
    assert (gpu.volatile, gpu.rows, gpu.pages_pending, gpu.width) == (2, 1, True, 16)
    found = judged(gpu_health, Case("", saw, topology=topology(8)))
    assert [(f.code, f.status) for f in found] == [
        ("bad-pages", FAIL),
        ("amdsmi-unavailable", UNDECIDED),
    ]
    assert found[1].saw.startswith(f"{why} · /sys reports")


def test_a_gpu_that_amdsmi_does_not_list(tmp_path: Path) -> None:
    root = tree(tmp_path, Machine(""))
    (root / "sys/bus/pci/devices" / lab.bus(7) / "ras/umc_err_count").write_text("ue: 1\n")
    listed = lab.gpus(replace(MI300X, gpus=7))
    saw = lab.observed("gpu.health", root, {"gpus": listed}).value
    assert [gpu.volatile for gpu in saw.told.gpus] == [0] * 7 + [1]
    (found,) = judged(gpu_health, Case("", saw))
    assert (found.code, found.subjects[0].name) == ("ras-errors", "GPU 7")


@pytest.mark.parametrize("call", ["amdsmi_init", f"amdsmi_get_temp_metric@{lab.bus(3)}"])
def test_a_call_that_hangs_is_named(call: str, tmp_path: Path) -> None:
    machine = Machine("", play={"hangs": call})
    python = lab.package(tmp_path / "python", machine.scenario or {})
    root = tree(tmp_path, machine)
    process = nvml.start("gpu.health", None, root=root, python_path=python)
    name = call.partition("@")[0]
    last, marks = name if "@" not in call else f"{name} of GPU 3", list[str]()
    try:
        assert process.stderr is not None
        for line in process.stderr:
            marks.append(line.strip())
            if marks[-1] == last:
                break
        time.sleep(0.3)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    saw = Missing(Cause.TIMED_OUT, seconds=5.0, marks=tuple(Mark(m, 0.0) for m in marks))
    (found,) = judged(gpu_health, Case("", saw))
    assert (found.code, found.status) == ("amdsmi-hangs", FAIL)
    assert str(found.subjects[0]) == ("n1 · GPU 3" if "@" in call else "n1 · AMD driver")


def test_the_kernel_log_is_hostile_or_not_readable(tmp_path: Path) -> None:
    root = tree(tmp_path, Machine("", log=kernel(9, FAILED)))
    host = Host(str(root))
    assert amdsmi.failed_resets(host, 5.0).failed == (Reset("0000:2c:00.0", 9.0),)
    odd = [kernel(5, FAILED.replace("2c", "zz")), "\xff;;" + FAILED, kernel(5, "x" * 500 + FAILED)]
    # what programs of root write there is not the kernel's
    odd.append(kernel(5, FAILED).replace("4,77", "12,77", 1))
    (root / "dev/kmsg").write_text("\n".join(odd))
    assert amdsmi.failed_resets(host, 5.0) == Resets()
    (root / "dev/kmsg").unlink()
    assert amdsmi.failed_resets(host, 5.0).refused == "/dev/kmsg: No such file or directory"
