"""kfd: AMD's GPUs by /sys and /dev/kfd, and what gpu.visible makes of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import amd as lab
from lab.amd import GIB, MI210, MI250X, MI300X, Board
from lab.amd_machines import FAULTY, HEALTHY, Machine
from support.amd_observed import assert_healthy, assert_named, observed, tree
from support.cases import Case, context, judged, world

from preflight.checks import gpu_visible
from preflight.domains.gpu import kfd, vendor
from preflight.engine import tasks
from preflight.host import Host
from preflight.model import Status

FAIL, WARN = Status.FAIL, Status.WARN


@pytest.mark.parametrize("machine", HEALTHY, ids=str)
def test_a_healthy_machine_is_silent(machine: Machine, tmp_path: Path) -> None:
    assert_healthy("gpu.visible", machine, tmp_path)


@pytest.mark.parametrize("machine", [m for m in FAULTY if m.check == "gpu.visible"], ids=str)
def test_a_fault_is_named(machine: Machine, tmp_path: Path) -> None:
    assert_named(machine, tmp_path)


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
    assert (found.code, found.status) == ("kfd-permission-denied", FAIL)
    assert found.saw == f"/{path}: Permission denied"
    assert len(kfd.openable_nodes(host)) == (0 if count == 8 else 7)


def test_amdgpu_is_not_loaded(tmp_path: Path) -> None:
    for number in range(2):
        lab.device(tmp_path, MI300X, number)
    saw = gpu_visible.observe(Host(str(tmp_path)), context())
    (found,) = judged(gpu_visible, Case("", saw))
    assert (found.code, found.status) == ("amdgpu-missing", WARN)
    assert found.saw == "amdgpu is not loaded · 2 AMD GPUs on the PCI bus"


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
    uuids = [n.uuid for n in kfd.nodes(Host(str(lab.machine(tmp_path, MI210))))]
    assert vendor.visible_devices(kfd.masks(environ), uuids).indexes == indexes


def test_the_usual_number_of_ranks(tmp_path: Path) -> None:
    """As count_gpus() asks it where there is a /dev/kfd."""

    class Marks:
        def mark(self, name: str) -> None:
            assert name == "/sys/class/kfd"

    def counted(board: Board, name: str, **environ: str) -> int:
        root = tmp_path / name
        if not root.exists():
            lab.machine(root, board)
        return tasks._amd_gpus(Host(str(root), environ), Marks())  # type: ignore[arg-type]

    assert counted(MI250X, "mi250x") == 8
    assert counted(MI250X, "mi250x", ROCR_VISIBLE_DEVICES="0,1", HIP_VISIBLE_DEVICES="1") == 1
    assert counted(replace(MI300X, unrendered=frozenset({0, 1, 2})), "some") == 5
    assert counted(lab.DESKTOP, "desktop") == 0


def test_a_hostile_topology(tmp_path: Path) -> None:
    root = lab.machine(tmp_path, MI210)
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    (nodes / "2/properties").write_text(
        "simd_count 8\ngfx_target_version " + "9" * 20 + "\nx\n\0 1\n"
    )
    (nodes / "3/properties").write_bytes(b"\xff" * 100_000)
    (nodes / "4/gpu_id").write_text("many\n")
    (nodes / ("9" * 30)).mkdir()
    listed = kfd.nodes(Host(str(root)))
    assert [n.number for n in listed] == [2, 4, 5]
    assert [n.hidden for n in listed] == [False, True, False]
    gpu_visible.observe(Host(str(root)), context())
