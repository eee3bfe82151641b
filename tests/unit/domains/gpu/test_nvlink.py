"""nvlink: how far NCCL copies directly."""

from __future__ import annotations

import pytest

from preflight.domains.gpu import nvlink

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
