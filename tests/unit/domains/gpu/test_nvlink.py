"""nvlink: how far NCCL copies directly, IOMMU and ACS as /sys has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.gpu import nvlink
from preflight.host import Host

ROOT, UP = "0000:00:01.0", "0000:15:00.0"


@pytest.mark.parametrize(
    ("disable", "level", "reach"),
    [
        ("", "", None),
        ("1", "SYS", nvlink.NO_P2P),
        ("0", "PHB", nvlink.NODE),
        ("true", "PIX", nvlink.SINGLE),
        ("", "LOC", nvlink.NO_P2P),
        ("", "NVL", nvlink.ONLY_NVLINK),
        ("", "0", nvlink.NO_P2P),
        ("", "2", nvlink.MULTIPLE),
        ("", "99", nvlink.SYSTEM),
        ("", "sys", None),
        ("", "-1", None),
    ],
)
def test_what_nccl_reads(disable: str, level: str, reach: int | None) -> None:
    assert nvlink.p2p_level_setting(disable, level) == reach


def capability(number: int, then: int, control: int = 0) -> bytes:
    """The head of an extended capability, and the words of ACS."""
    head = number | 1 << 16 | then << 20
    return head.to_bytes(4, "little") + (0x5F | control << 16).to_bytes(4, "little")


def config(control: int | None) -> bytes:
    """The configuration space of a bridge, its ACS capability the second in the list."""
    space = bytearray(nvlink.CONFIG_SIZE)
    space[0x100:0x108] = capability(0x0001, 0x148 if control is not None else 0)
    if control is not None:
        space[0x148:0x150] = capability(nvlink.ACS, 0, control)
    return bytes(space)


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
        (b"\xff" * nvlink.CONFIG_SIZE, 0),
    ],
)
def test_the_acs_word(tmp_path: Path, space: bytes, word: int | None) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / ROOT
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(space)
    assert nvlink.acs_control(Host(str(tmp_path)), ROOT) == word


def test_the_iommu_of_a_device(tmp_path: Path) -> None:
    """An older kernel has no file `type`: its command line says a part of it."""
    device = tmp_path / "sys/bus/pci/devices" / ROOT
    group = tmp_path / "sys/kernel/iommu_groups/7"
    device.mkdir(parents=True)
    group.mkdir(parents=True)
    (device / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
    host = Host(str(tmp_path))
    assert nvlink.iommu(host, ROOT) == "unknown"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text("ro quiet iommu=pt\n")
    assert nvlink.iommu(host, ROOT) == "identity"
    (group / "type").write_text("DMA-FQ\n")
    assert nvlink.iommu(host, ROOT) == "DMA-FQ"
    assert nvlink.iommu(host, "../../../etc") == nvlink.iommu(host, "0000:ff:00.0") == ""
