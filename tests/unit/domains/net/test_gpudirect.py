"""gpudirect: which bridges are between an HCA and its GPU, and what they send elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.net.gpudirect import GpuPath, read_paths
from preflight.host import Host

NO_ACS = bytes(4096)


def acs(control: int) -> bytes:
    """The configuration space of a bridge with ACS."""
    words = (0x000D | 1 << 16).to_bytes(4, "little") + (0x5F | control << 16).to_bytes(4, "little")
    return bytes(0x100) + words + bytes(4096 - 0x108)


def device(root: Path, *path: str, config: bytes = NO_ACS, hca: str = "") -> None:
    """A device below these bridges, each with that configuration space, or an HCA."""
    real = Path("devices/pci0000:15", *path)
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (root / "sys" / real).mkdir(parents=True, exist_ok=True)
    for depth in range(1, len(path) + 1):
        folder = Path("devices/pci0000:15", *path[:depth])
        if not (devices / path[depth - 1]).exists():
            (devices / path[depth - 1]).symlink_to(Path("../../..") / folder)
            (root / "sys" / folder / "config").write_bytes(config)
    if hca:
        there = root / "sys/class/infiniband" / hca
        there.mkdir(parents=True)
        (there / "device").symlink_to(Path("../../..") / real)


ROOT, UP, FOR_HCA, FOR_GPU = "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:17:01.0"
HCA, GPU, FAR = "0000:18:00.0", "0000:19:00.0", "0000:c1:00.0"


def test_the_bridges_below_the_switch_that_both_share(tmp_path: Path) -> None:
    device(tmp_path, ROOT, UP, FOR_HCA, HCA, config=acs(0x1D), hca="mlx5_0")
    device(tmp_path, ROOT, UP, FOR_GPU, GPU, config=acs(0x1D))
    device(tmp_path, "0000:c0:01.0", FAR)
    (tmp_path / "sys/kernel/iommu_groups/7").mkdir(parents=True)
    (tmp_path / "sys/kernel/iommu_groups/7/type").write_text("DMA-FQ\n")
    (tmp_path / "sys/bus/pci/devices" / HCA / "iommu_group").symlink_to("/iommu_groups/7")
    (path,) = read_paths(Host(str(tmp_path)), (FAR, GPU))
    assert path == GpuPath("mlx5_0", GPU, ((FOR_HCA, 0x1D),), ((FOR_GPU, 0x1D),), "DMA-FQ")
    assert path.near
    assert path.redirected == (FOR_HCA, FOR_GPU)
    assert path.translated
    # users see the first 64 bytes
    for file in tmp_path.glob("sys/devices/**/config"):
        file.write_bytes(file.read_bytes()[:64])
    (path,) = read_paths(Host(str(tmp_path)), (FAR, GPU))
    assert path.ours == ((FOR_HCA, None),)
    assert not path.redirected


def test_who_shares_no_switch_has_no_path(tmp_path: Path) -> None:
    device(tmp_path, ROOT, HCA, hca="mlx5_0")
    device(tmp_path, "0000:15:02.0", GPU)
    assert read_paths(Host(str(tmp_path)), (GPU,)) == ()
    assert read_paths(Host(str(tmp_path)), (FAR,)) == ()
    assert read_paths(Host(str(tmp_path)), ()) == ()
    assert read_paths(Host(str(tmp_path / "none")), (GPU,)) == ()


def test_a_switch_below_a_switch_is_not_near(tmp_path: Path) -> None:
    device(tmp_path, ROOT, UP, FOR_HCA, HCA, hca="mlx5_0")
    device(tmp_path, ROOT, UP, FOR_GPU, "0000:20:00.0", "0000:21:00.0", GPU)
    (path,) = read_paths(Host(str(tmp_path)), (GPU,))
    assert not path.near
    assert [bridge for bridge, _ in path.theirs] == [FOR_GPU, "0000:20:00.0", "0000:21:00.0"]


@pytest.mark.parametrize(
    ("ours", "theirs", "redirected"),
    [
        (0x1D, 0x1D, (FOR_HCA, FOR_GPU)),
        (0b100, 0, (FOR_HCA,)),
        (0, 0b1000, (FOR_GPU,)),
        (0b1000, 0b100, ()),  # what a GPU asks, and an HCA answers
        (0x11, 0x11, ()),  # source validation, upstream forwarding
        (0x5D, 0x1D, ()),  # translated addresses go straight on
        (0, 0, ()),
    ],
)
def test_what_acs_sends_to_the_cpu(ours: int, theirs: int, redirected: tuple[str, ...]) -> None:
    path = GpuPath("mlx5_0", GPU, ((FOR_HCA, ours),), ((FOR_GPU, theirs),), "identity")
    assert path.redirected == redirected
    assert not path.translated
