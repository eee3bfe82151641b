"""NCCL's log as facts: captures in the line forms of 2.18 to 2.28, of plugins and of RCCL, and text
that is cut, mixed or hostile. Where the forms are from: captures/nccl/README.md."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import round_trips

from preflight.domains.collectives.nccl_log import LINKS, TEXT, WARNINGS, Link, NcclLog, parse

CAPTURES = Path(__file__).parents[3] / "data/nccl_logs"


def capture(name: str, rank: int = 0) -> NcclLog:
    return parse((CAPTURES / f"{name}.log").read_text().split("\n"), rank)


def info(text: str) -> str:
    return f"host:1:2 [0] NCCL INFO {text}"


READ: dict[tuple[str, int], dict[str, Any]] = {
    ("h100-ib-2.27", 0): {
        "version": "2.27.5+cuda12.9",
        "interface": "bond0",
        "address": "10.12.0.11",
        "network": "IB",
        "devices": tuple(f"mlx5_{n}:1/IB" for n in range(8)),
        "links": (Link(7, "P2P/CUMEM", 16), Link(8, "NET/IB", 32, gdr=True)),
        "gdr_on": tuple(f"mlx5_{n}" for n in range(8)),
        "gdr_off": (),
        "nvlink": (1, 2, 3, 4, 5, 6, 7),
        "nodes": 2,
        "rings": 16,
        "trees": 16,
        "nvls": 16,
        "over_tcp": False,
        "warnings": (),
    },
    ("h100-alone-2.28", 0): {
        "network": "Socket",
        "devices": ("eth0:10.0.0.2<0>",),
        "links": (),
        "nvls": 0,
        "nodes": 1,
        "rings": 64,
        "warnings": (),
    },
    ("a100-socket-2.18", 1): {
        "version": "2.18.5+cuda12.1",
        "interface": "eth0",
        "network": "Socket",
        "links": (Link(0, "P2P/IPC", 2), Link(2, "NET/Socket", 2)),
        "trees": 2,
        "nvls": 0,
        "over_tcp": True,
    },
    ("p5-efa-2.26", 0): {
        "network": "Libfabric",
        "plugin": "Libfabric",
        "provider": "efa",
        "links": (Link(1, "P2P/CUMEM", 8), Link(8, "NET/Libfabric", 8, gdr=True)),
        "over_tcp": False,
    },
    ("l40s-shm-2.21", 2): {
        "network": "Socket",
        "links": (Link(1, "SHM", 1), Link(3, "SHM", 2)),
        "nvlink": (),
        "nodes": 1,
    },
    # of its NVLinks one goes to rank 1, one to rank 2; the GPU of rank 3 has none
    ("v100-p2p-off-2.28", 0): {"links": (Link(1, "SHM", 1), Link(3, "SHM", 1)), "nvlink": (1, 2)},
    ("roce-no-gdr-2.20", 0): {
        "network": "IB",
        "devices": ("mlx5_bond_0:1/RoCE", "mlx5_bond_1:1/RoCE"),
        "links": (Link(1, "NET/IB", 3),),
        "gdr_on": (),
        "gdr_off": ("mlx5_bond_0", "mlx5_bond_1"),
        "rings": 2,
    },
    ("gb200-mnnvl-2.28", 0): {
        "links": (Link(1, "P2P/MNNVL", 1), Link(4, "P2P/MNNVL", 2)),
        "nodes": 1,
        "nvls": 24,
    },
    ("mi300-rccl-2.22", 0): {
        "version": "2.22.3+hip6.4",
        "links": (Link(1, "P2P/direct", 1),),
        "nvlink": (1,),
    },
    ("nvls-refused-2.28", 4): {
        "warnings": (
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 "
            "'the operation cannot be performed in the present state'.",
        ),
    },
    ("sharp-2.19", 0): {
        "network": "IBext_v7",
        "plugin": "NCCL RDMA Plugin v7",
        "devices": ("mlx5_2:1/IB/SHARP", "mlx5_3:1/IB/SHARP"),
        "links": (Link(1, "P2P/indirect", 1), Link(4, "NET/IBext_v7", 1, gdr=True)),
        "collnet": 1,
    },
}


@pytest.mark.parametrize(("name", "rank"), READ, ids=lambda v: str(v))
def test_a_capture(name: str, rank: int) -> None:
    log = capture(name, rank)
    wanted = READ[name, rank]
    assert {field: getattr(log, field) for field in wanted} == wanted
    round_trips(log)


def test_every_capture_is_read() -> None:
    assert {path.stem for path in CAPTURES.glob("*.log")} == {name for name, _ in READ}


def test_nothing_is_said() -> None:
    assert parse([], 0) == NcclLog()
    assert parse(["", "loss 3.1", "NCCL", "NCCL INFO", "NCCL WARN "], 0) == NcclLog()


@pytest.mark.parametrize(
    ("via", "way", "gdr"),
    [
        ("P2P/direct pointer/read", "P2P/direct", False),
        ("P2P/CUMEM/CE", "P2P/CUMEM", False),
        ("P2P/MNNVL/read", "P2P/MNNVL", False),
        ("SHM/CE/direct", "SHM", False),
        ("direct shared memory", "SHM", False),
        ("NET/Socket/1", "NET/Socket", False),
        ("NET/AWS Libfabric/3/GDRDMA", "NET/AWS Libfabric", True),
        ("NET/IB/2(5)/GDRDMA(PCI)/Shared", "NET/IB", True),
        ("NET/IB/2/Shared", "NET/IB", False),
    ],
)
def test_a_way(via: str, way: str, gdr: bool) -> None:
    (link,) = parse([info(f"Channel 03/1 : 0[0] -> 9[1] [send] via {via}")], 0).links
    assert link == Link(9, way, 1, gdr)


@pytest.mark.parametrize("via", ["", "Q/7", "carrier pigeon", "NET/"])
def test_an_unknown_way_is_no_link(via: str) -> None:
    assert parse([info(f"Channel 03/1 : 0[0] -> 9[1] [send] via {via}")], 0).links == ()


def test_the_timestamps_of_some_settings_are_passed_over() -> None:
    line = "[2026-01-02 03:04:05] " + info("Using network AWS Libfabric")
    assert parse([line], 0).network == "AWS Libfabric"


@pytest.mark.parametrize(
    ("line", "diagnosed"),
    [
        ("[OK]   p2p: all 56 directed GPU P2P edges verified", False),
        (
            "[OK] net bw: 376.1/391.5/398.2 Gbit/s min/median/max same-nic bw (across 8 ranks)",
            False,
        ),
        ("[INFO] p2p: temporarily enabled context-wide CUDA peer access rank=0 cudaDev=0;", False),
        ("[INFO] p2p: 52/56 directed GPU P2P edges verified", True),
        ("[INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification", True),
        ("[INFO] net bw: same-nic rank 3 (n0): 65.1 Gbit/s, >30% off median 391.5 Gbit/s", True),
    ],
)
def test_of_the_diagnostics_what_they_found(line: str, diagnosed: bool) -> None:
    """The forms of 2.31 (src/diagnostics.cc, src/diagnostics/p2p.cc) and of its user guide; INFO
    marks notices, too."""
    assert bool(parse([f"n0:77 NCCL DIAG {line}"], 0).diagnosed) is diagnosed


def test_the_links_of_a_cpu_are_not_those_of_the_gpu_above_it() -> None:
    """POWER9: NVLink between the CPU and its GPUs is printed after them, in the CPU's column."""
    lines = [
        "CPU/0 (2/4/0)",
        "+ PCI[12.0] - GPU/1000 (0)",
        "              + NVL[75.0] - CPU/0",
        "+ PCI[12.0] - GPU/2000 (1)",
        "+ NVL[75.0] - GPU/1000",
    ]
    assert parse([info(line) for line in lines], 0).nvlink == ()
    assert parse([info(line) for line in lines], 1).nvlink == ()


def test_what_is_kept_is_bounded() -> None:
    warnings = [f"h:1:1 [0] x.cc:1 NCCL WARN number {n} \x1b[31m" + "y" * 5000 for n in range(99)]
    links = [info(f"Channel 00/0 : 0[0] -> {n}[0] via P2P/IPC") for n in range(5000)]
    huge = [info("Channel 00/0 : 0[0] -> " + "9" * 900 + "[0] via P2P/IPC")]
    names = [info("Using network " + "n" * 900)]
    log = parse([*warnings, *links, *huge, *names], 0)
    assert len(log.warnings) == WARNINGS
    assert len(log.links) == LINKS
    assert len(log.network) <= 64
    assert all(len(w) <= TEXT and w.isprintable() for w in log.warnings)


@pytest.mark.parametrize(
    "line",
    [
        "NET/" * 250,
        "Channel 00/02 :" + " 1" * 480 + "x",
        "Trees " + "[1] " * 250,
        "+ PCI[1] - GPU/" + "a" * 900,
        "NCCL INFO " * 100,
        "Selected provider is " + ";" * 900,
    ],
)
def test_a_hostile_line_costs_no_time(line: str) -> None:
    began = time.process_time()
    parse([info(line)] * 2000, 0)
    assert time.process_time() - began < 5.0


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(sorted(READ)),
    st.integers(0, 3000),
    st.text(max_size=40),
    st.integers(0, 1 << 30),
)
def test_any_text_is_read_without_an_error(
    name: tuple[str, int], at: int, junk: str, rank: int
) -> None:
    text = (CAPTURES / f"{name[0]}.log").read_text()
    round_trips(parse((text[:at] + junk + text[at:]).split("\n"), rank))


SPLIT = (
    "h:1:1 [0] NCCL INFO ncclCommSplit comm 0x55d rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 6000 "
    "parent 0x55a splitCount 1 color 7 key 1 - Init START"
)


def test_of_a_log_with_a_part_of_the_job_no_peer_is_known() -> None:
    """The ranks of a part count from 0, and no line says of which communicator it is."""
    lines = (CAPTURES / "h100-ib-2.27.log").read_text().split("\n")
    alone = parse(lines, 0)
    assert alone.communicators == ((0, 16),)
    assert alone.of_job(0, 16) == alone
    assert alone.links
    assert alone.of_job(8, 16).links == ()  # another job's, or a damaged log
    both = parse([*lines, SPLIT], 0)
    assert both.communicators == ((0, 16), (1, 2))
    judged = both.of_job(0, 16)
    assert (judged.links, judged.nvlink, judged.network) == ((), (), "IB")
