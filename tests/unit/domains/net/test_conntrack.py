"""net.conntrack: what is read of the connection tracking table."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.net.conntrack import TrackingTable, tracking_table
from preflight.host import Host


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, TrackingTable(0, 0, 0)),
        ({"count": 9, "max": 100, "tcp_timeout_established": 60}, TrackingTable(9, 100, 60)),
        ({"count": 0, "max": 100, "tcp_timeout_established": 60}, TrackingTable(0, 100, 0)),
        ({"count": 9, "max": 100}, TrackingTable(9, 100, 0)),
    ],
)
def test_what_is_read(tmp_path: Path, files: dict[str, int], expected: TrackingTable) -> None:
    folder = tmp_path / "proc/sys/net/netfilter"
    folder.mkdir(parents=True)
    for name, value in files.items():
        (folder / f"nf_conntrack_{name}").write_text(f"{value}\n")
    assert tracking_table(Host(str(tmp_path))) == expected
