"""pci: ACS and the IOMMU as /sys has them, and what a virtual machine says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pci_config import capability, config

from preflight.domains import pci
from preflight.host import Host

ROOT = "0000:00:01.0"


@pytest.mark.parametrize(
    ("space", "word"),
    [
        (config(0x1D), 0x1D),
        (config(None), 0),
        (config(0x1D)[:256], None),
        (b"", None),
        # a list that leads to itself, and one that leads out of the space
        (bytes(0x100) + capability(1, 0x100) + bytes(0xEF8), 0),
        (bytes(0x100) + capability(1, 0xFFC) + bytes(0xEF8), 0),
        (b"\xff" * pci.CONFIG_SIZE, 0),
    ],
)
def test_the_acs_word(tmp_path: Path, space: bytes, word: int | None) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / ROOT
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(space)
    assert pci.acs_control(Host(str(tmp_path)), ROOT) == word


def test_the_iommu_of_a_device(tmp_path: Path) -> None:
    """An older kernel has no file `type`: its command line says a part of it."""
    device = tmp_path / "sys/bus/pci/devices" / ROOT
    group = tmp_path / "sys/kernel/iommu_groups/7"
    device.mkdir(parents=True)
    group.mkdir(parents=True)
    (device / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
    host = Host(str(tmp_path))
    assert pci.iommu(host, ROOT) == "unknown"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text("ro quiet iommu=pt\n")
    assert pci.iommu(host, ROOT) == "identity"
    (group / "type").write_text("DMA-FQ\n")
    assert pci.iommu(host, ROOT) == "DMA-FQ"
    assert pci.iommu(host, "../../../etc") == pci.iommu(host, "0000:ff:00.0") == ""


def test_the_bridges_above_a_device(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / "0000:18:00.0").symlink_to(
        "../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0"
    )
    host = Host(str(tmp_path))
    assert pci.bridges(host, "0000:18:00.0") == ("0000:15:01.0", "0000:16:00.0")
    assert pci.bridges(host, "0000:28:00.0") == pci.bridges(host, "../18") == ()


@pytest.mark.parametrize(
    ("lines", "virtual"),
    [
        ("flags\t\t: fpu sse\n", False),
        ("flags\t\t: fpu hypervisor\n", True),
        ("Features : fp\n", None),
    ],
)
def test_a_virtual_machine(tmp_path: Path, lines: str, virtual: bool | None) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\n{lines}")
    assert pci.virtual_machine(Host(str(tmp_path))) is virtual
    if virtual is None:
        (tmp_path / "sys/hypervisor").mkdir(parents=True)
        (tmp_path / "sys/hypervisor/type").write_text("xen\n")
        assert pci.virtual_machine(Host(str(tmp_path))) is True
