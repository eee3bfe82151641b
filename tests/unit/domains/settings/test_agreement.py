"""What the reader of a setting makes of its value, and which have to be the same everywhere."""

from __future__ import annotations

import pytest

from preflight.domains.settings.agreement import compared, effective, fatal_if_different


def test_what_is_fatal_is_compared() -> None:
    assert fatal_if_different() < compared().keys()
    assert "NCCL_ALGO" in fatal_if_different()
    assert "OMP_NUM_THREADS" not in fatal_if_different()


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("NCCL_P2P_DISABLE", ("0", "", "false", "off")),
        ("NCCL_P2P_DISABLE", ("1", " 1", "0x1", "2")),
        ("NCCL_P2P_LEVEL", ("PXB", "2")),
        ("NCCL_P2P_LEVEL", ("", "pxb", "nonsense")),
        ("NCCL_BUFFSIZE", ("", "4194304", "0x400000", "-2")),
        ("NCCL_ALGO", ("^Tree,Ring", "^ring,tree")),
        ("NCCL_PROTO", ("allreduce:LL,simple;broadcast:ll", "broadcast:LL;allreduce:Simple,LL")),
        ("NCCL_NET", ("Socket", "socket")),
        ("NCCL_SOCKET_FAMILY", ("", "af_inet")),
        ("NCCL_NVLS_ENABLE", ("", "1", "2")),
        ("TORCH_NCCL_ENABLE_MONITORING", ("1", "true", "Y", "")),
        ("TORCH_NCCL_RANKS_PER_ROOT", ("", "128", " 128 ")),
        ("TORCH_DISTRIBUTED_DEBUG", ("DETAIL", "detail")),
    ],
)
def test_a_value_is_what_its_reader_makes_of_it(name: str, alike: tuple[str, ...]) -> None:
    assert len({effective(name, value) for value in alike}) == 1


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("NCCL_ALGO", "Ring", "^Ring"),
        ("NCCL_PROTO", "LL", "LL128"),
        ("NCCL_BUFFSIZE", "4194304", "8M"),
        ("NCCL_NVLS_ENABLE", "0", ""),
        ("NCCL_SOCKET_FAMILY", "AF_INET", "AF_INET6"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO", "DETAIL"),
        ("OMP_NUM_THREADS", "", "1"),
    ],
)
def test_values_that_are_not_alike(name: str, one: str, other: str) -> None:
    assert effective(name, one) != effective(name, other)
