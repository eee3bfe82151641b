"""Counters of drivers: the ioctl's three answers, from a driver of the test's and from veth's."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.domains.net import nic_counters
from preflight.domains.net.ethtool import COUNTS, MOST, SET_INFO, STRINGS, driver_counts
from preflight.domains.net.nic_counters import cards_since, read_errors
from preflight.host import Host

Driver = Callable[[int, int, bytes], object]


def driver(counters: dict[str, int], grown: int = 0) -> Driver:
    """Answers as the kernel does for a driver with these; with `grown` more by the time when they
    are read."""

    def ioctl(descriptor: int, number: int, request: bytes) -> object:
        assert number == 0x8946
        assert len(request) == ctypes.sizeof(ctypes.c_char * 40)
        name, where = struct.unpack("16sP", request[:24])
        if name.rstrip(b"\0") != b"ens1":
            raise OSError(errno.EOPNOTSUPP, "not supported")
        (asked,) = struct.unpack("I", ctypes.string_at(where, 4))
        more = {f"late_{n}": n for n in range(grown)}
        if asked == SET_INFO:
            (mask,) = struct.unpack("Q", ctypes.string_at(where + 8, 8))
            assert mask == 2
            told = struct.pack("IIQI", asked, 0, mask, len(counters))
        elif asked == STRINGS:
            names = b"".join(n.encode().ljust(32, b"\0") for n in counters | more)
            told = struct.pack("III", asked, 1, len(counters | more)) + names
        else:
            assert asked == COUNTS
            numbers = (counters | more).values()
            told = struct.pack("II", asked, len(numbers)) + struct.pack(
                f"{len(numbers)}Q", *numbers
            )
        ctypes.memmove(where, told, len(told))
        return 0

    return ioctl


MLX5 = {
    "rx_packets": 4711,
    "rx_out_of_buffer": 12,
    "rx_crc_errors_phy": 3,
    "rx0_packets": 9,
    "a_name_of_31_letters_which_is_al": 2**64 - 1,
}


def test_the_wanted_ones_are_read() -> None:
    found = driver_counts("ens1", {"rx_out_of_buffer", "rx_crc_errors_phy", "nic"}, driver(MLX5))
    assert found == {"rx_out_of_buffer": 12, "rx_crc_errors_phy": 3}
    assert driver_counts("ens2", {"rx_packets"}, driver(MLX5)) == {}
    storm = "tx_pause_storm_warning_events"
    assert driver_counts("ens1", {storm}, driver({f"{storm} ": 4})) == {storm: 4}


def test_counters_that_come_meanwhile_are_no_harm() -> None:
    assert driver_counts("ens1", {"rx0_packets"}, driver(MLX5, grown=900)) == {"rx0_packets": 9}


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_a_number_of_counters_that_is_none(count: int) -> None:
    many = {f"c{n}": n for n in range(count)}
    assert driver_counts("ens1", set(many), driver(many)) == {}


def live(monkeypatch: pytest.MonkeyPatch, root: Path, *counts: dict[str, int]) -> Host:
    """A machine whose ens1 has these counts, one after the other."""
    told = iter(counts)
    monkeypatch.setattr(nic_counters, "driver_counts", lambda name, wanted: next(told))
    host = Host(root=root)
    host.live = True
    return host


def test_names_of_drivers_for_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An i40e counts twice what the kernel counts as well: it is said once."""
    folder = tmp_path / "sys/class/net/ens1/statistics"
    folder.mkdir(parents=True)
    (folder / "rx_crc_errors").write_text("5\n")
    mine = {"port.rx_crc_errors": 5, "port.rx_dropped": 100}
    host = live(monkeypatch, tmp_path, mine, {"port.rx_crc_errors": 45, "port.rx_dropped": 912})
    before = read_errors(host, "ens1")
    (folder / "rx_crc_errors").write_text("45\n")
    (card,) = cards_since(host, "ens1", before)
    assert card.damaged == "40 received frames with a wrong CRC"
    assert card.held_up == "812 packets dropped for lack of receive buffers"


def test_what_a_cloud_allows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = {"bw_out_allowance_exceeded": 7, "conntrack_allowance_exceeded": 0}
    after = {"bw_out_allowance_exceeded": 1234, "conntrack_allowance_exceeded": 2}
    host = live(monkeypatch, tmp_path, before, after)
    (card,) = cards_since(host, "ens5", read_errors(host, "ens5"))
    assert (card.damaged, card.held_up) == (
        "",
        "1227 packets beyond the instance's outbound bandwidth",
    )


@pytest.mark.root
def test_a_real_driver() -> None:
    """veth's own counters, by this module and by ethtool's name for one of them."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("needs root and ip, to make a pair of veth")
    names = f"pf{os.getpid()}a"[:15], f"pf{os.getpid()}b"[:15]
    made = ["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("no veth can be made here")
    try:
        index = int(Path(f"/sys/class/net/{names[1]}/ifindex").read_text())
        assert driver_counts(names[0], {"peer_ifindex"}) == {"peer_ifindex": index}
        assert driver_counts("lo", {"peer_ifindex"}) == {}
    finally:
        subprocess.run(["ip", "link", "del", names[0]], check=True)
