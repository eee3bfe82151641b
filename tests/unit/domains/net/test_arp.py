"""net.arp: what is read of the kernel's table, and an interface's own MAC address."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.net.arp import KEPT, TABLE, Neighbour, mac_address, neighbours
from preflight.host import Host

HEAD = "IP address       HW type     Flags       HW address            Mask     Device\n"
MAC = "02:77:00:00:00:03"


def machine(folder: Path, *lines: str) -> Host:
    file = folder / TABLE[1:]
    file.parent.mkdir(parents=True)
    file.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return Host(str(folder), {})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"10.77.0.3  0x1  0x2  {MAC}  *  eth0", Neighbour("10.77.0.3", MAC, "eth0")),
        (f"10.77.0.3  0x1  0x6  {MAC}  *  eth0", Neighbour("10.77.0.3", MAC, "eth0", True)),
        # nobody has answered yet
        ("10.77.0.3  0x1  0x0  00:00:00:00:00:00  *  eth0", None),
        (f"10.77.0.3  0x1  0x0  {MAC}  *  eth0", None),
        (f"10.77.0.9  0x1  0x2  {MAC}  *  eth0", None),
        ("10.77.0.3  0x20  0x2  80:00:02:08:fe:80:00:00  *  ib0", None),
        ("10.77.0.3  0x1", None),
        (f"10.77.0.3  0x1  flags  {MAC}  *  eth0", None),
    ],
)
def test_an_entry(tmp_path: Path, line: str, found: Neighbour | None) -> None:
    assert list(neighbours(machine(tmp_path, line), {"10.77.0.3"})) == [found] * bool(found)


def test_a_large_table_is_cut(tmp_path: Path) -> None:
    ips = [f"10.77.{n // 256}.{n % 256}" for n in range(2 * KEPT)]
    host = machine(tmp_path, *(f"{ip} 0x1 0x2 {MAC} * eth0" for ip in ips))
    assert len(list(neighbours(host, ips))) == KEPT


def test_no_table(tmp_path: Path) -> None:
    assert list(neighbours(Host(str(tmp_path), {}), {"10.77.0.3"})) == []


@pytest.mark.parametrize(
    ("text", "mac"), [(f"{MAC}\n", MAC), ("00:00:00:00:00:00\n", ""), ("80:00:02:08\n", "")]
)
def test_an_interfaces_own(tmp_path: Path, text: str, mac: str) -> None:
    file = tmp_path / "sys/class/net/eth0/address"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    host = Host(str(tmp_path), {})
    assert (mac_address(host, "eth0"), mac_address(host, "eth1")) == (mac, "")
