"""What common systems reach."""

from __future__ import annotations

import pytest

from preflight.domains.collectives import reference_busbw


@pytest.mark.parametrize(
    ("gpu", "count", "said"),
    [
        ("NVIDIA H200", 8, "8 x H200 reach about 482 GB/s"),
        ("NVIDIA H200 NVL", 8, ""),
        ("NVIDIA H100 NVL", 2, "2 x H100 NVL reach about 208 GB/s"),
        ("NVIDIA H100 PCIe", 8, ""),
        ("NVIDIA A100-SXM4-80GB", 8, "8 x A100-SXM reach about 235 GB/s"),
        ("NVIDIA A100-SXM4-80GB", 4, ""),
        ("Tesla V100-SXM2-32GB", 8, "8 x V100-SXM reach about 110 GB/s"),
        ("NVIDIA GB200", 8, ""),
        ("", 8, ""),
    ],
)
def test_what_common_systems_reach(gpu: str, count: int, said: str) -> None:
    assert reference_busbw.hint({gpu}, count) == said
    assert reference_busbw.hint({gpu, "another"}, count) == ""
