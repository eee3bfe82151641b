"""Counters of cards, from small trees of /sys."""

from __future__ import annotations

from pathlib import Path

from preflight.domains.net.nic_counters import below, cards_since, read_errors
from preflight.host import Host


def card(root: Path, name: str, *entries: str, **files: str) -> None:
    folder = root / "sys/class/net" / name
    (folder / "statistics").mkdir(parents=True, exist_ok=True)
    for entry in entries:
        (folder / entry).mkdir()
    for file, text in files.items():
        place = folder / ("statistics" if "_" in file else "") / file
        place.write_text(text + "\n")


def test_what_was_counted_before_does_not_count(tmp_path: Path) -> None:
    host = Host(root=tmp_path)
    card(tmp_path, "eth0", rx_crc_errors="4711", rx_dropped="9", duplex="full", operstate="up")
    before = read_errors(host, "eth0")
    card(tmp_path, "eth0", rx_crc_errors="4731", rx_dropped="999")
    (one,) = cards_since(host, "eth0", before)
    assert one.errors == {"rx_crc_errors": 20}
    assert one.damaged == "20 received frames with a wrong CRC"
    assert (one.duplex, one.linked, one.bond) == ("full", True, "")


def test_the_members_of_a_bond_below_a_vlan(tmp_path: Path) -> None:
    host = Host(root=tmp_path)
    card(tmp_path, "bond0.7", "lower_bond0")
    card(tmp_path, "bond0", "bonding", "lower_ens1", "lower_ens2")
    card(tmp_path, "ens1", operstate="up")
    card(tmp_path, "ens2", operstate="down")
    assert below(host, "bond0.7") == (("ens1", "bond0"), ("ens2", "bond0"))
    assert [(c.name, c.linked) for c in cards_since(host, "bond0.7", {})] == [
        ("ens1", True),
        ("ens2", False),
    ]


def test_without_sys_nothing_is_known(tmp_path: Path) -> None:
    (one,) = cards_since(Host(root=tmp_path), "eth0", {})
    assert (one.damaged, one.duplex, one.linked) == ("", "", True)
