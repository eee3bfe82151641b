"""nvml: CUDA's own rules, and what /sys and /proc say of GPUs."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from lab import nvml

from preflight.domains.gpu import nvml as nvidia
from preflight.host import Host

UUIDS = ("GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb1111", "")


@pytest.mark.parametrize(
    ("mask", "indexes"),
    [
        (None, (0, 1, 2, 3)),
        ("0,1,2,3", (0, 1, 2, 3)),
        (" 3, 1", (3, 1)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,-1,1", (0,)),
        ("0,9,1", (0,)),
        ("4", ()),
        ("0,0", ()),
        ("1gpu2,2ampere", (1, 2)),
        ("2,", (2,)),
        ("GPU-bbbb", (2,)),
        ("GPU-aaaa2222,GPU-bbbb1111", (1, 2)),
        ("GPU-aaaa", ()),
        ("GPU-aaaa2222,GPU-cccc,GPU-bbbb1111", (1,)),
        ("GPU-aaaa2222,GPU-aaaa22", ()),
        ("GPU-bbbb,0", (2,)),
        ("0,GPU-bbbb", (0,)),
        ("MIG-0123", ()),
        ("٣,²", ()),
        ("9" * 5000, ()),
        ("," * 5000, ()),
        ("\0\n%s{x}", ()),
    ],
)
def test_what_a_mask_shows(mask: str | None, indexes: tuple[int, ...]) -> None:
    assert nvidia.visible_devices(mask, UUIDS).indexes == indexes


def test_a_mask_tells_why() -> None:
    assert nvidia.visible_devices("", UUIDS).off
    assert nvidia.visible_devices("-1", UUIDS).off
    assert nvidia.visible_devices("MIG-0123", UUIDS).mig
    assert "'9'" in nvidia.visible_devices("0,9", UUIDS).problem
    assert "twice" in nvidia.visible_devices("1,1", UUIDS).problem
    assert "fits 2" in nvidia.visible_devices("GPU-aaaa", UUIDS).problem
    assert not nvidia.visible_devices("0,1", UUIDS).problem


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        ("sm_80 sm_90", "9.0", True),
        ("sm_86", "8.9", True),  # same major version, older minor
        ("sm_89", "8.6", False),
        ("sm_80 sm_90", "12.0", False),
        ("sm_80 compute_90", "12.0", True),  # PTX is compiled at load
        ("compute_120", "9.0", False),
        ("sm_90a", "9.0", True),
        ("sm_100a", "10.3", False),
        ("sm_100f", "10.3", True),
        ("compute_100f", "12.0", False),
        ("sm_100", "10.3", True),
        ("gfx90a nonsense sm_", "9.0", False),
        ("", "9.0", False),
    ],
)
def test_which_binaries_run(built: str, capability: str, runs: bool) -> None:
    assert nvidia.runs_on(built.split(), capability) is runs


def test_minimum_driver() -> None:
    assert nvidia.minimum_driver("12.8") == "525.60.13"
    assert nvidia.minimum_driver("99.0") == nvidia.minimum_driver("") == ""


def test_bus_ids_are_those_of_sysfs() -> None:
    assert nvidia.bus_id("00000000:18:00.0") == "0000:18:00.0"
    assert nvidia.bus_id(b"00010000:E1:00.0") == "10000:e1:00.0"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            "550.54.15",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
            "580.65.06",
        ),
        ("NVRM version: something else\n", ""),
    ],
)
def test_version_of_the_kernel_module(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert nvidia.module_version(Host(str(tmp_path))) == version


def test_gpus_on_the_bus(tmp_path: Path) -> None:
    nvml.machine(tmp_path, gpus=2)
    nvml.pci_device(tmp_path, "0000:03:00.0", kind="0x020000", driver="mlx5_core")
    nvml.pci_device(tmp_path, "0000:c1:00.0", kind="0x030000", vendor="0x1002", driver="amdgpu")
    found = nvidia.gpus_on_pci(Host(str(tmp_path)))
    assert found == (
        nvidia.PciGpu("0000:18:00.0", "0x2330", "nvidia", 0),
        nvidia.PciGpu("0000:28:00.0", "0x2330", "nvidia", 1),
    )


def proc_gpus(root: Path, *gpus: tuple[str, int, str, str]) -> None:
    """What the driver says of GPUs in /proc: address, minor number, UUID and model of each."""
    for bus, minor, uuid, model in gpus:
        folder = root / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        text = f"Model: \t\t {model}\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n"
        (folder / "information").write_text(f"{text}Device Minor: \t {minor}\nGPU Excluded:\t No\n")


FIRST, SECOND = (f"GPU-{n}d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77" for n in (1, 2))
MINORS = [os.makedev(195, minor) for minor in range(3)]


def test_uuids_by_the_number_that_cuda_gives_a_gpu(tmp_path: Path) -> None:
    """By address, though the driver counts its files otherwise; those of others are left out."""
    proc_gpus(
        tmp_path,
        ("0000:c1:00.0", 0, SECOND, "NVIDIA H100"),
        ("0000:41:00.0", 1, FIRST, "NVIDIA H100"),
        ("0001:01:00.0", 2, "GPU-????????-????-????-????-????????????", "NVIDIA H100"),
    )
    here = Host(str(tmp_path))
    assert nvidia.uuids_by_number(here, MINORS[:2]) == (FIRST, SECOND)
    assert nvidia.uuids_by_number(here, MINORS[1:2]) == (FIRST,)
    assert nvidia.uuids_by_number(here, MINORS) == (), "one of them sleeps"
    assert nvidia.uuids_by_number(here, [os.makedev(195, 7)]) == ()
    assert nvidia.uuids_by_number(Host(str(tmp_path / "none")), MINORS) == ()


def test_gpus_of_several_models_have_no_certain_number(tmp_path: Path) -> None:
    models = (("0000:41:00.0", 0, FIRST, "NVIDIA L4"), ("0000:c1:00.0", 1, SECOND, "NVIDIA H100"))
    proc_gpus(tmp_path, *models)
    assert nvidia.uuids_by_number(Host(str(tmp_path)), MINORS[:2]) == ()
    by_address = Host(str(tmp_path), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert nvidia.uuids_by_number(by_address, MINORS[:2]) == (FIRST, SECOND)
    assert nvidia.uuids_by_number(Host(str(tmp_path)), MINORS[1:2]) == (SECOND,)


def test_the_libcuda_that_is_searched_first(tmp_path: Path) -> None:
    """One of LD_LIBRARY_PATH alone: what the linker's cache has comes in an order of its own."""
    for folder, version in (("compat", "535.104.05"), ("lib64", "580.65.06"), ("odd", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (tmp_path / "etc").mkdir()
    cache = b"glibc-ld.so.cache1.1\0libcuda.so.1\0/compat/libcuda.so.1\0"
    (tmp_path / "etc/ld.so.cache").write_bytes(cache)

    def first(path: str) -> tuple[str, str]:
        return nvidia.cuda_driver(Host(str(tmp_path), {"LD_LIBRARY_PATH": path}))

    assert first("/nowhere:/compat/:/lib64") == ("/compat/libcuda.so.1", "535.104.05")
    assert first("/lib64:/compat") == ("/lib64/libcuda.so.1", "580.65.06")
    assert first("/odd:/compat") == ("", ""), "one without a version is not passed over"
    assert first("") == ("", "")
    (tmp_path / "cuda/stubs").mkdir(parents=True)
    (tmp_path / "cuda/stubs/libcuda.so").touch()
    assert first("/cuda/stubs:/lib64") == ("/lib64/libcuda.so.1", "580.65.06")
    (tmp_path / "cuda/stubs/libcuda.so.1").symlink_to("libcuda.so")
    assert first("/cuda/stubs:/lib64") == ("/cuda/stubs/libcuda.so.1", nvidia.STUB)


def test_without_the_drivers_library_its_bindings_are_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_library(name: str) -> NoReturn:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it would raise
    answer = nvidia.list_gpus(Host(), lambda mark: None, 1.0)
    assert (answer.code, answer.gpus) == (nvidia.NO_LIBRARY, ())


@pytest.mark.parametrize(
    ("environ", "tasks"),
    [
        ({}, 0),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NODEID": "1"}, 4),
        # a step over two components of a heterogeneous job
        ({"SLURM_STEP_TASKS_PER_NODE": "8,1(x2)", "SLURM_NODEID": "0"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "8,1(x2)", "SLURM_NODEID": "2"}, 1),
        # mpirun below a step of one task
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"PALS_LOCAL_SIZE": "12"}, 12),
    ],
)
def test_tasks_of_this_node(environ: dict[str, str], tasks: int) -> None:
    assert nvidia.tasks_here(environ) == tasks
