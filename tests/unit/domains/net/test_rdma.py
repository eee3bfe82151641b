"""NCCL_IB_HCA and the GIDs by tables, the ports from small trees of /sys."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hcas import LOCAL, ROCE, V1, V2, V4, V6, gpus, hca, write

from preflight.domains.net.hca_selection import NodeRdma, waits_for_manager
from preflight.domains.net.rdma import (
    ACTIVE,
    DOWN,
    ETHERNET,
    INFINIBAND,
    INIT,
    MAX_HCAS,
    Gid,
    chosen_gid,
    counters,
    devices,
    disabled_by,
    growth,
    hca_rule,
    peer_memory,
    ports,
    roce_mtu,
)
from preflight.host import Host

MANY = [f"mlx5_{n}" for n in (0, 1, 2, 10, 11)]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", MANY),
        ("mlx5", MANY),
        ("mlx5_1", ["mlx5_1", "mlx5_10", "mlx5_11"]),
        ("=mlx5_1", ["mlx5_1"]),
        ("=mlx5_1,mlx5_2", ["mlx5_1", "mlx5_2"]),
        ("=mlx5_1,=mlx5_2", ["mlx5_1"]),
        ("^mlx5_1", ["mlx5_0", "mlx5_2"]),
        ("^=mlx5_1", ["mlx5_0", "mlx5_2", "mlx5_10", "mlx5_11"]),
        ("mlx5_0:1,mlx5_2:2", ["mlx5_0"]),
        ("mlx5_0:1:3:0", ["mlx5_0"]),  # rail and plane, from 2.30 on
        ("mlx5_0:x", []),
        ("^", []),
        (",", MANY),
        ("=^mlx5_1", ["mlx5_1"]),
        (" mlx5_0", []),
        ("ib0", []),
    ],
)
def test_the_hcas_that_a_rule_takes(text: str, taken: list[str]) -> None:
    rule = hca_rule(text)
    assert [device for device in MANY if rule.admits(device, 1)] == taken


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("mlx5_1", True),
        ("=mlx5_1:1", True),
        ("mlx5_1:2", False),
        ("mlx5", False),
        ("^mlx5_1", False),
        ("", False),
    ],
)
def test_a_name_that_somebody_wrote(text: str, means: bool) -> None:
    assert hca_rule(text).means("mlx5_1", 1) is means


def test_a_list_without_end() -> None:
    assert len(hca_rule("=" + "a," * 5000).entries) == MAX_HCAS


def table(*entries: tuple[str, str]) -> list[Gid]:
    return [Gid(i, a, {V1: 1, V2: 2}[kind]) for i, (a, kind) in enumerate(entries) if a]


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        (table(*ROCE), 3),
        (table((LOCAL, V1), (LOCAL, V2), (V4, V1)), 2),
        (table((LOCAL, V1), (LOCAL, V2)), 0),
        (table((LOCAL, V1), (LOCAL, V2), (V6, V1), (V6, V2)), 0),
        (table(("", V1), ("", V1), ("", V1), ("", V1), (V4, V1), (V4, V2)), 5),
        (table((V4, V2)), 0),
        ([], None),
    ],
)
def test_the_gid_that_nccl_takes_by_itself(gids: list[Gid], index: int | None) -> None:
    found = chosen_gid(gids)
    assert (found.index if found else None) == index


def test_the_gid_of_another_family_or_version() -> None:
    both = table(*ROCE, (V6, V1), (V6, V2))
    assert [chosen_gid(both, 1).index, chosen_gid(both, 2, ipv6=True).index] == [2, 5]  # type: ignore[union-attr]


def test_what_a_gid_stands_for() -> None:
    assert Gid(3, V4, 2).ipv4 == "10.10.10.5"
    assert (Gid(0, LOCAL).ipv4, Gid(0, LOCAL).link_local, Gid(0, V6).link_local) == (
        "",
        True,
        False,
    )


@pytest.mark.parametrize(
    ("mtu", "rdma"), [(1500, 1024), (2200, 2048), (4200, 4096), (9000, 4096), (68, 0)]
)
def test_the_mtu_of_roce(mtu: int, rdma: int) -> None:
    assert roce_mtu(mtu) == rdma


def test_an_active_port(tmp_path: Path) -> None:
    hca(tmp_path, numa=1)
    (port,) = ports(Host(str(tmp_path), {}))
    assert (port.name, port.layer, port.state, port.rate) == ("mlx5_0:1", INFINIBAND, ACTIVE, 400)
    assert (port.width, port.kind, port.card) == ("4X NDR", "MT4129 MT_0000000838", "0000:18:00")
    assert port.firmware == "28.39.1002"
    assert (port.driver, port.numa, port.given, port.pkey) == ("mlx5_core", 1, True, 0xFFFF)
    assert (port.gids, port.virtual, port.iwarp) == ((), False, False)


@pytest.mark.parametrize(
    ("pkeys", "index", "key", "full"),
    [
        (("0xffff", "0x8012"), "", 0xFFFF, None),  # one that needs no other
        (("0x7fff", "0x0000", "0x8012"), "", 0x7FFF, (2, 0x8012)),
        (("0x7fff", "0x8000"), "", 0x7FFF, None),
        (("0xffff", "0x0000"), "1", 0, (0, 0xFFFF)),
        (("0x7fff", "0x8012"), "1", 0x8012, None),
    ],
)
def test_the_key_of_a_full_member(
    tmp_path: Path, pkeys: tuple[str, ...], index: str, key: int, full: tuple[int, int] | None
) -> None:
    hca(tmp_path, pkeys=pkeys)
    (port,) = ports(Host(str(tmp_path), {"NCCL_IB_PKEY": index} if index else {}))
    assert (port.pkey, port.full_pkey) == (key, full)


@pytest.mark.parametrize(
    ("gids", "subnet"),
    [
        (("",), ""),
        (("fec0:0000:0000:0001:9c63:c003:0055:48ae",), "fec0:0000:0000:0001"),
        (("fe80:0000:0000:0000:9c63:c003:0055:48ae", "", "fe80::1"), "fe80:0000:0000:0000"),
        # the second one has a forwardable identifier: a router leads to other subnets
        (
            (
                "fe80:0000:0000:0001:9c63:c003:0055:48ae",
                "fec0:0000:0a01:0001:9c63:c003:0055:48ae",
            ),
            "",
        ),
        (("0000:0000:0000:0000:0000:0000:0000:0000",), ""),
        (("somewhere",), ""),
    ],
)
def test_the_subnet_of_a_port(tmp_path: Path, gids: tuple[str, ...], subnet: str) -> None:
    here = hca(tmp_path)
    (here / "gids").mkdir(exist_ok=True)
    for index, gid in enumerate(gids):
        (here / f"gids/{index}").write_text(f"{gid}\n")
    (port,) = ports(Host(str(tmp_path), {}))
    assert port.subnet == subnet


@pytest.mark.parametrize(
    ("environ", "off"),
    [
        ({}, ""),
        ({"NCCL_IB_DISABLE": "0"}, ""),
        ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1"),
        ({"NCCL_NET": "socket"}, "NCCL_NET=socket"),
        ({"NCCL_NET": "IB"}, ""),
    ],
)
def test_what_keeps_nccl_from_rdma(tmp_path: Path, environ: dict[str, str], off: str) -> None:
    assert disabled_by(Host(str(tmp_path), environ)) == off


def test_ports_of_every_kind(tmp_path: Path) -> None:
    hca(tmp_path, "mlx4_0", state=1, physical=2, rate="10 Gb/sec (4X SDR)", verbs=None)
    hca(tmp_path, "mlx4_0", port=2, state=2, verbs=None)
    hca(tmp_path, "mlx5_1", layer="Ethernet", pci="0000:2a:00.1", verbs=1, mtu=9000, numa=-1)
    hca(tmp_path, "rdmap7s0", layer="Unknown", driver="efa", pci="0000:07:00.0", verbs=2)
    hca(tmp_path, "irdma0", layer="Ethernet", node_type="4: RNIC", pci="0000:08:00.0", verbs=3)
    hca(tmp_path, "vf0", pci="0000:18:01.1", virtual=True, verbs=4)
    found = {p.name: p for p in ports(Host(str(tmp_path), {"NCCL_IB_PKEY": "1"}))}
    down, init = found["mlx4_0:1"], found["mlx4_0:2"]
    assert (down.state, down.says, down.given) == (DOWN, "state Down, physical Polling", False)
    assert (init.state, waits_for_manager(init), waits_for_manager(down)) == (INIT, True, False)
    assert init.pkey == 0
    roce = found["mlx5_1:1"]
    assert (roce.layer, roce.mtu, roce.gid_slots, len(roce.gids)) == (ETHERNET, 9000, 8, 4)
    assert (roce.card, roce.numa, roce.pkey) == ("0000:2a:00", None, None)
    assert found["rdmap7s0:1"].driver == "efa"
    assert [name for name, p in found.items() if p.iwarp or p.virtual] == ["irdma0:1", "vf0:1"]
    taken = [p.name for p in NodeRdma(tuple(found.values())).taken]
    assert taken == ["irdma0:1", "mlx5_1:1", "vf0:1"]


def test_files_that_say_nothing(tmp_path: Path) -> None:
    """Empty, absent, of another format, and a device whose name no report can hold."""
    here = hca(tmp_path)
    for name, text in (
        ("state", ""),
        ("phys_state", "up"),
        ("rate", "fast"),
        ("link_layer", "?" * 999),
    ):
        (here / name).write_text(text)
    (tmp_path / "sys/class/infiniband/bare").mkdir()
    (here.parent / "x").mkdir()
    (port,) = ports(Host(str(tmp_path), {}))
    assert (port.state, port.physical, port.rate, port.width) == (-1, -1, 0.0, "")
    assert (port.active, port.idle, len(port.layer)) == (False, False, 64)
    assert port.says == "state -1, physical -1"


def test_no_end_of_devices(tmp_path: Path) -> None:
    for n in range(100):
        write(tmp_path / f"sys/class/infiniband/mlx5_{n}/ports/1", {"state": "4: ACTIVE"})
    host = Host(str(tmp_path), {})
    assert len(devices(host)) == len(list(ports(host))) == 64


def test_the_pcie_link_of_its_card(tmp_path: Path) -> None:
    hca(tmp_path)
    hca(tmp_path, "mlx5_1", pci="0000:29:00.0", verbs=1)
    card = tmp_path / "sys/devices/pci0000:00/0000:18:00.0"
    write(card, {"current_link_width": "8", "max_link_width": "16"})
    write(card, {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"})
    first, second = ports(Host(str(tmp_path), {}))
    assert (first.pcie, first.pcie_max) == (256.0, 512.0)
    assert (second.pcie, second.pcie_max) == (0.0, 0.0)
    assert (first.lanes_max, second.lanes_max) == (16, 0)
    # of a virtual function
    write(card, {"current_link_width": "0", "current_link_speed": "Unknown"})
    assert next(iter(ports(Host(str(tmp_path), {})))).pcie == 0.0


def test_counters_that_grew(tmp_path: Path) -> None:
    here = hca(tmp_path)
    before = counters(Host(str(tmp_path), {}))["mlx5_0:1"]
    assert before == {"symbol_error": 0, "link_downed": 1, "port_rcv_errors": 0}
    write(here / "counters", {"symbol_error": "7", "link_downed": "0", "port_rcv_errors": "-"})
    assert growth(before, counters(Host(str(tmp_path), {}))["mlx5_0:1"]) == {"symbol_error": 7}


@pytest.mark.parametrize(
    ("driver", "kernel", "sign", "can"),
    [
        ("Open Kernel Module", "6.8.0", "", True),
        ("Open Kernel Module", "5.4.0", "", False),
        ("x86_64 Kernel Module", "6.8.0", "", False),
        ("x86_64 Kernel Module", "4.18.0", "sys/module/nvidia_peermem", True),
        ("x86_64 Kernel Module", "4.18.0", "sys/kernel/mm/memory_peers/nv_mem", True),
        ("x86_64 Kernel Module", "unknown", "", None),
    ],
)
def test_ways_into_the_memory_of_gpus(
    tmp_path: Path, driver: str, kernel: str, sign: str, can: bool | None
) -> None:
    gpus(tmp_path, driver=driver, kernel=kernel)
    if sign:
        write(tmp_path / sign, {"version": "1.0"})
    assert peer_memory(Host(str(tmp_path), {})) is can
