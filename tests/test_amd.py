"""AMD's GPUs, on machines that are trees of files and a stand-in for amdsmi: the healthy ones are
silent, of the others the fault is named. Nothing of this was seen on such a GPU yet."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import amd as lab
from lab import nvml
from lab.amd import GIB, MI210, MI250X, MI300X, Board, kernel
from lab.amd_machines import ECC, FAILED, FAULTY, HEALTHY, TAKEN, Machine, pages
from support import Case, assert_case, context, judged, round_trips, topology, world

from preflight.checks import gpu_health, gpu_links, gpu_visible
from preflight.domains.gpu import amdsmi as amdhealth
from preflight.domains.gpu import kfd as amd
from preflight.domains.gpu import vendor
from preflight.domains.system import inventory
from preflight.engine import tasks as _observer
from preflight.host import Host
from preflight.model import Cause, Mark, Missing, NotApplicable, Status

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
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


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("machine", HEALTHY, ids=str)
def test_a_healthy_machine(machine: Machine, check: str, tmp_path: Path) -> None:
    saw = observed(tmp_path, machine, check).value
    round_trips(saw)
    assert saw.make == "AMD"
    ranks = 1 if machine.board.gpus == 1 else 2
    assert_case(CHECKS[check], Case("", saw, topology=topology(ranks)))


@pytest.mark.parametrize("machine", FAULTY, ids=str)
def test_a_faulty_machine(machine: Machine, tmp_path: Path) -> None:
    saw = observed(tmp_path, machine, machine.check).value
    round_trips(saw)
    found = judged(CHECKS[machine.check], Case("", saw, topology=topology(1)))
    assert [(f.code, f.subjects[0].name) for f in found] == [(machine.code, machine.subject)]
    assert found[0].status == machine.status


def test_what_gpu_visible_sees(tmp_path: Path) -> None:
    machine = Machine(
        "", MI210, environ={"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "3"}
    )
    saw = observed(tmp_path, machine, "gpu.visible").value
    gpu = saw.answer.gpus[1]
    assert (gpu.name, gpu.bus, gpu.minor) == ("AMD Instinct MI210", "0000:1c:00.0", 129)
    assert (gpu.uuid, gpu.capability) == ("GPU-a000000000000001", "gfx90a")
    assert (gpu.memory, gpu.used) == (64 * GIB, 300 << 20)
    # the driver that comes with the kernel has no version of its own
    assert saw.module == saw.answer.driver == "of kernel 6.8.0-60-generic"
    assert (saw.mask, saw.mask_name, saw.withheld) == ("0,1", "HIP_VISIBLE_DEVICES", 0)
    text = gpu_visible.measured(world("gpu.visible", saw)).text
    assert text == "4 x AMD Instinct MI210 64 GiB · driver of kernel 6.8.0-60-generic"


def test_what_is_hidden_is_counted(tmp_path: Path) -> None:
    half = replace(MI300X, hidden=frozenset({6, 7}), unrendered=frozenset({5}))
    saw = observed(tmp_path, Machine("", half), "gpu.visible").value
    assert (saw.answer.count, saw.withheld, len(saw.pci)) == (5, 3, 8)
    (found,) = judged(gpu_visible, Case("", saw, expect={"gpus_per_node": 8}))
    assert found.code == "gpu-count"
    assert found.saw.startswith("KFD lists 5 GPUs · 8 on the PCI bus · 3 of them not given")


@pytest.mark.parametrize(("path", "count"), [("dev/kfd", 8), ("dev/dri/renderD130", 7)])
def test_no_permission(
    path: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may open all, so the kernel's refusal is played."""
    opened = os.open

    def refusing(name: Any, *args: Any, **more: Any) -> int:
        if str(name) == str(tmp_path / path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(name, *args, **more)

    host = Host(str(tree(tmp_path, Machine(""))))
    monkeypatch.setattr(os, "open", refusing)
    saw = gpu_visible.observe(host, context())
    assert saw.answer.code == errno.EACCES
    (found,) = judged(gpu_visible, Case("", saw, expect={"gpus_per_node": 8}))
    assert (found.code, found.status) == ("kfd-refused", FAIL)
    assert found.saw == f"/{path}: Permission denied"
    assert len(amd.visible(host)) == (0 if count == 8 else 7)


def test_amdgpu_is_not_loaded(tmp_path: Path) -> None:
    for number in range(2):
        lab.device(tmp_path, MI300X, number)
    saw = gpu_visible.observe(Host(str(tmp_path)), context())
    (found,) = judged(gpu_visible, Case("", saw))
    assert (found.code, found.status) == ("amdgpu-missing", WARN)
    assert found.saw == "amdgpu is not loaded · 2 AMD GPUs on the PCI bus"


def test_whose_gpus_are_here(tmp_path: Path) -> None:
    """The display of a machine is nobody's accelerator, and NVIDIA's GPUs come first."""
    for name, board in (("amd", MI300X), ("desktop", lab.DESKTOP), ("both", MI210)):
        lab.machine(tmp_path / name, board)
    nvml.machine(tmp_path / "both", gpus=1)
    (tmp_path / "empty").mkdir()
    found = {n: vendor.found(Host(str(tmp_path / n))).NAME for n in ("amd", "desktop", "both")}
    assert found == {"amd": "AMD", "desktop": "NVIDIA", "both": "NVIDIA"}
    assert vendor.found(Host(str(tmp_path / "empty"))) is vendor.NVIDIA
    with pytest.raises(NotApplicable):
        gpu_visible.observe(Host(str(tmp_path / "desktop")), context())


@pytest.mark.parametrize(
    ("environ", "indexes"),
    [
        ({}, (0, 1, 2, 3)),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, (2, 0)),
        ({"CUDA_VISIBLE_DEVICES": "1"}, (1,)),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, (2,)),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, (1,)),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, (3,)),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a000000000000003,0"}, (3,)),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
        ({"HIP_VISIBLE_DEVICES": "-1"}, ()),
    ],
)
def test_what_masks_show(
    environ: Mapping[str, str], indexes: tuple[int, ...], tmp_path: Path
) -> None:
    uuids = [n.uuid for n in amd.nodes(Host(str(lab.machine(tmp_path, MI210))))]
    assert vendor.shown(amd.masks(environ), uuids).indexes == indexes


def test_the_usual_number_of_ranks(tmp_path: Path) -> None:
    """As count_gpus() asks it where there is a /dev/kfd."""

    class Marks:
        def mark(self, name: str) -> None:
            assert name == "/sys/class/kfd"

    def counted(board: Board, name: str, **environ: str) -> int:
        root = tmp_path / name
        if not root.exists():
            lab.machine(root, board)
        return _observer._amd_gpus(Host(str(root), environ), Marks())  # type: ignore[arg-type]

    assert counted(MI250X, "mi250x") == 8
    assert counted(MI250X, "mi250x", ROCR_VISIBLE_DEVICES="0,1", HIP_VISIBLE_DEVICES="1") == 1
    assert counted(replace(MI300X, unrendered=frozenset({0, 1, 2})), "some") == 5
    assert counted(lab.DESKTOP, "desktop") == 0


def test_agreement_of_hardware_has_their_names(tmp_path: Path) -> None:
    assert inventory._gpus(Host(str(lab.machine(tmp_path, MI210)))) == ("AMD Instinct MI210",) * 4


# --- gpu.health ---


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


ALL = lab.gpus(MI300X)
NO_LIBRARY = "libamd_smi.so: cannot open shared object file"


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
        ("amdsmi-untold", UNDECIDED),
    ]
    assert found[1].saw.startswith(f"{why} · /sys tells")


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
    assert amdhealth.failed_resets(host, 5.0).failed == (amdhealth.Reset("0000:2c:00.0", 9.0),)
    odd = [kernel(5, FAILED.replace("2c", "zz")), "\xff;;" + FAILED, kernel(5, "x" * 500 + FAILED)]
    # what programs of root write there is not the kernel's
    odd.append(kernel(5, FAILED).replace("4,77", "12,77", 1))
    (root / "dev/kmsg").write_text("\n".join(odd))
    assert amdhealth.failed_resets(host, 5.0) == amdhealth.Resets()
    (root / "dev/kmsg").unlink()
    assert amdhealth.failed_resets(host, 5.0).refused == "/dev/kmsg: No such file or directory"


def test_a_hostile_topology(tmp_path: Path) -> None:
    root = lab.machine(tmp_path, MI210)
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    (nodes / "2/properties").write_text(
        "simd_count 8\ngfx_target_version " + "9" * 20 + "\nx\n\0 1\n"
    )
    (nodes / "3/properties").write_bytes(b"\xff" * 100_000)
    (nodes / "4/gpu_id").write_text("many\n")
    (nodes / ("9" * 30)).mkdir()
    listed = amd.nodes(Host(str(root)))
    assert [n.number for n in listed] == [2, 4, 5]
    assert [n.hidden for n in listed] == [False, True, False]
    gpu_visible.observe(Host(str(root)), context())
