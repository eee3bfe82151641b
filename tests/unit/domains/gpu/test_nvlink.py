"""nvlink: how far NCCL copies directly, and what switches NVLink off in the driver."""

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


@pytest.mark.parametrize(
    ("lines", "setting"),
    [
        ("", None),
        ("EnableMSI: 1\n", None),
        ("NvLinkDisable: 0\n", ""),
        ("NvLinkDisable: 1\n", "NvLinkDisable: 1"),
        ('RegistryDwords: "RMNvLinkEnable=0x0"\n', "RegistryDwords: RMNvLinkEnable=0x0"),
        (
            'NvLinkDisable: 0\nRegistryDwords: "A=1;RMNvLinkEnable=0;"\n',
            "RegistryDwords: RMNvLinkEnable=0",
        ),
        (
            'RegistryDwords: "A=1; rmnvlinkenable = 0x00 "\nNvLinkDisable: 0\n',
            "RegistryDwords: rmnvlinkenable = 0x00",
        ),
        (
            'NvLinkDisable: 0\nRegistryDwords: "RMNvLinkControl=0x1"\n',
            "RegistryDwords: RMNvLinkControl=0x1",
        ),
        *(
            (f'NvLinkDisable: 0\nRegistryDwords: "{harmless}"\n', "")
            for harmless in (
                *("", "PeerMappingOverride=1;", "RMNvLinkEnable=0x3f", "RMNvLinkEnable", ";;=;"),
                *(
                    "RMNvLinkEnable=",
                    "RMNvLinkEnable=off",
                    "RMNvLinkControl=0x2",
                    "RMNvLinkEnableX=0",
                ),
                *("RmNvlinkBandwidthLinkCount=0", "RMNvLinkEnable=0x0y"),
            )
        ),
    ],
)
def test_what_switches_nvlink_off(tmp_path: Path, lines: str, setting: str | None) -> None:
    params = tmp_path / nvlink.PARAMETERS.removeprefix("/")
    params.parent.mkdir(parents=True)
    params.write_text(lines)
    assert nvlink.switched_off(Host(str(tmp_path))) == setting


def test_a_driver_without_parameters(tmp_path: Path) -> None:
    assert nvlink.switched_off(Host(str(tmp_path))) is None
