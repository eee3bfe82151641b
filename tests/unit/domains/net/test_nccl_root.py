"""NCCL_COMM_ID: what rank 0's node can't listen at is named, and nothing is resolved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from preflight.domains.net.nccl_root import comm_id_problem
from preflight.host import Address, Host, Interface


class OneCard(Host):
    """A machine with the loopback and one card."""

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        card = Interface(
            name="eth0",
            up=True,
            running=True,
            loopback=False,
            mtu=1500,
            addresses=(Address("10.0.0.1", 24, 4), Address("fd77::1", 64, 6)),
        )
        return (
            replace(card, name="lo", loopback=True, addresses=(Address("127.0.0.1", 8, 4),)),
            card,
        )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", ""),
        ("10.0.0.1:4444", ""),
        ("[fd77::1]:4444", ""),
        ("127.0.0.1:4444", ""),
        ("node-0:4444", ""),
        ("10.1.1.1:4444", "this node has eth0 10.0.0.1, eth0 fd77::1"),
        ("[fd77::9]:4444", "this node has eth0 10.0.0.1, eth0 fd77::1"),
        ("10.0.0.1", "it has no port"),
        ("node-0", "it has no port"),
    ],
)
def test_comm_id(tmp_path: Path, value: str, problem: str) -> None:
    assert comm_id_problem(OneCard(str(tmp_path), {"NCCL_COMM_ID": value})) == problem
