"""nccl_transport: what a finding about a way says. tests/checks/test_world_nccl.py has the table of
the ways that are right and wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.cases import topology, world
from support.nccl_reports import (
    IB,
    JOINED,
    NONE,
    REFUSED,
    ROCE,
    capture,
    nodes,
    over,
    ring,
)

from preflight.domains.collectives.nccl_log import Link, NcclLog, parse
from preflight.domains.collectives.nccl_transport import (
    NcclReport,
    RdmaPorts,
    different_networks,
    findings,
    transport_summary,
    warnings_survived,
)
from preflight.domains.collectives.stalls import Signature
from preflight.model import Blame, Confidence, Found, Node, Status, World, place_of

KNOWN = (
    Signature("ibv_reg_mr", "fabric-failed"),
    Signature("NVLS", "nvls-failed", "NVLink SHARP that works", Blame.NODE),
)


def ranks(heard: Mapping[str, NcclReport]) -> World[NcclReport]:
    met: dict[str, list[int]] = {}
    for key in heard:
        node, rank = place_of(key)
        assert rank is not None
        met.setdefault(node, []).append(rank)
    made = tuple(Node(node, tuple(own)) for node, own in met.items())
    return world("world.nccl", heard, topology(len(heard), nodes=made))


def everything(heard: Mapping[str, NcclReport]) -> list[Found]:
    return list(findings(ranks(heard), heard))


def found(heard: Mapping[str, NcclReport]) -> Found:
    (finding,) = findings(ranks(heard), heard)
    return finding


def tcp(fabric: RdmaPorts, *told: str) -> dict[str, NcclReport]:
    """Two nodes with a rank each that talk over TCP."""
    logs = (over("Socket", ring(r, 2, "NET/Socket")) for r in range(2))
    return nodes(*(NcclReport(log, fabric, told) for log in logs))


def test_tcp_beside_a_fabric_names_the_setting_that_forbids_it() -> None:
    told = found(tcp(IB, "NCCL_IB_DISABLE=1"))
    assert told.saw == (
        "NCCL sends over TCP between the nodes, in spite of active InfiniBand ports mlx5_0:1, "
        "mlx5_1:1 · NCCL_IB_DISABLE=1"
    )
    assert (told.blame, told.confidence) == (Blame.JOB, Confidence.LIKELY)
    assert told.fields["unset"] == "NCCL_IB_DISABLE", "what was set, and nothing else"
    untold = found(tcp(IB))
    assert untold.blame is Blame.UNKNOWN
    assert "NCCL_NET" in untold.fields["unset"]


@pytest.mark.parametrize(
    ("gbits", "status", "confidence"),
    [(199, Status.WARN, Confidence.POSSIBLE), (200, Status.FAIL, Confidence.LIKELY)],
)
def test_a_fast_ethernet_port_passes_for_the_fabric(
    gbits: int, status: Status, confidence: Confidence
) -> None:
    finding = found(tcp(RdmaPorts(ethernet=("mlx5_0:1",), gbits=gbits)))
    assert (finding.code, finding.status) == ("sockets-chosen", status)
    assert finding.confidence is confidence
    assert bool(finding.alternatives) is (status is Status.WARN)


def test_many_ports_are_not_all_shown() -> None:
    finding = found(tcp(replace(IB, infiniband=tuple(f"mlx5_{n}:1" for n in range(8)))))
    assert finding.saw.endswith("mlx5_3:1, …")


def test_different_networks_say_who_chose_which() -> None:
    nets = nodes(*(NcclReport(over(net), IB) for net in ("IB", "IB", "Socket")))
    assert found(nets).saw == (
        "NCCL chose different networks · IB: rank 0 on n1 and rank 1 on n2 · Socket: rank 2 on n3"
    )


def test_networks_that_differ_are_told_before_a_hang() -> None:
    assert different_networks({0: "IB", 1: "Socket", 2: None, 3: "IB"}) == ["IB", "Socket"]
    assert different_networks({0: "IB", 1: "IB", 2: "", 3: None}) == []
    assert different_networks({}) == []


def test_nvlink_that_is_not_used_names_the_pair() -> None:
    back = over("Socket", Link(0, "SHM", 2), nvlink=(0,))
    assert found(nodes(NcclReport(JOINED, NONE), NcclReport(back, NONE), each=2)).saw == (
        "rank 0 reaches rank 1 by SHM, although NVLink connects their GPUs · so ranks 0-1"
    )


def test_a_setting_that_forbids_p2p_is_the_jobs() -> None:
    told = NcclReport(JOINED, NONE, ("NCCL_P2P_DISABLE=1", "NCCL_IB_DISABLE=1"))
    finding = found(nodes(told, NcclReport(over("Socket")), each=2))
    assert finding.blame is Blame.JOB
    assert finding.saw.endswith("NVLink connects their GPUs · NCCL_P2P_DISABLE=1")


def test_a_node_without_gpudirect_rdma_is_named_beside_those_that_have_it() -> None:
    some = [NcclReport(over("IB", ring(r, 2, "NET/IB", r == 0)), IB) for r in range(2)]
    assert found(nodes(*some)).saw == "no GPUDirect RDMA on n2; there is on n1"
    because = replace(some[1], told=("NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET=IB"))
    assert found(nodes(some[0], because)).saw == (
        "no GPUDirect RDMA on n2 (NCCL_NET_GDR_LEVEL=LOC); there is on n1"
    )


def test_nothing_is_said_of_what_nobody_logged() -> None:
    silent = nodes(*[NcclReport(NcclLog(), IB)] * 2)
    assert list(findings(ranks(silent), silent)) == []
    assert list(findings(ranks({}), {})) == []


def test_a_warning_that_was_got_over_is_told_once() -> None:
    warned = NcclReport(over("IB", warnings=("moon is full", REFUSED)))
    heard = nodes(warned, NcclReport(over("IB")), warned, each=3)
    (finding,) = warnings_survived(ranks(heard), heard, KNOWN)
    assert (finding.code, finding.status, finding.blame) == (
        "nvls-failed",
        Status.WARN,
        Blame.NODE,
    )
    assert [s.ranks for s in finding.subjects] == [(0,), (2,)]
    assert finding.saw == f"rank 0 warns: {REFUSED} · so ranks 0,2"
    assert (finding.confidence, finding.explains) == (Confidence.POSSIBLE, ())
    assert list(warnings_survived(ranks(heard), heard, KNOWN[:1])) == []


def summary(*logs: NcclLog) -> str:
    return transport_summary({f"n1/{rank}": NcclReport(log) for rank, log in enumerate(logs)})


def test_the_ways_are_shown_the_farthest_first() -> None:
    ib = capture("h100-ib-2.27")
    assert summary(ib, ib) == "transport NET/IB/GDRDMA + P2P/CUMEM + NVLS"
    assert summary(capture("l40s-shm-2.21")) == "transport SHM"
    mixed = over("IB", ring(0, 2, "NET/IB", True)), over("IB", ring(1, 2, "NET/IB"))
    assert summary(*mixed) == "transport NET/IB", "GPUDirect RDMA is shown where all have it"
    assert summary(over("IB"), over("Socket")) == "network IB, Socket", "nothing was connected"
    assert summary(NcclLog()) == ""


# --- HCAs that are there and that NCCL does not use ---

FOUR = RdmaPorts(tuple(f"mlx5_{n}:1" for n in range(4)), rates=(400,) * 4)
TEN = RdmaPorts(tuple(f"mlx5_{n}:1" for n in range(10)), rates=(200,) * 10)
TWO_SLOW = replace(FOUR, rates=(400, 400, 100, 100))


def listing(*lines: str) -> NcclLog:
    """Of a rank that reaches the other node; the lines are as reports have them."""
    return replace(parse([*lines, "n1:1:1 [0] NCCL INFO Using network IB"], 0), nodes=2)


def using(*numbers: int, line: str = "") -> NcclLog:
    names = " ".join(f"[{i}]mlx5_{n}:1/IB" for i, n in enumerate(numbers))
    return listing(
        *([line] if line else []),
        f"n1:1:1 [0] NCCL INFO NET/IB : Using {names} [RO]; OOB ib0:10.0.0.1<0>",
    )


def two(one: NcclLog, other: NcclLog, fabric: RdmaPorts, *told: str) -> dict[str, Any]:
    return nodes(NcclReport(one, fabric, told), NcclReport(other, fabric, told))


def test_half_of_the_ports_everywhere() -> None:
    # one of them in the container: kvcache-ai/Mooncake#102
    one, other = everything(two(using(0), using(0), FOUR))
    assert one.code == other.code == "hcas-unused"
    assert one.saw == (
        "NCCL on n1 uses 1 of 4 active InfiniBand ports, not mlx5_1:1, mlx5_2:1, mlx5_3:1"
    )
    assert (one.confidence, one.status or Status.WARN) == (Confidence.POSSIBLE, Status.WARN)
    assert one.fields["used"] == "mlx5_0"


def test_one_node_that_uses_fewer_than_the_others() -> None:
    (one,) = everything(two(using(0, 1, 2, 3), using(0, 1, 3), FOUR))
    assert one.saw == "NCCL on n2 uses 3 of 4 active InfiniBand ports, not mlx5_2:1"


@pytest.mark.parametrize(
    "saw",
    [
        two(using(0, 1, 2, 3), using(0, 1, 2, 3), FOUR),
        # two for storage on every node, as on a DGX
        two(using(*range(8)), using(*range(8)), TEN),
        two(using(0, 1), using(0, 1), TWO_SLOW),
        # it was said so
        two(using(0), using(0), FOUR, "NCCL_IB_HCA=mlx5_0"),
        two(using(0), using(0), FOUR, "MELLANOX_VISIBLE_DEVICES=0"),
        two(*[using(0, line="n1:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0")] * 2, FOUR),
        # the fabric of the machine is not seen, or is another
        two(using(0), using(0), NONE),
        two(using(0), using(0), ROCE),
    ],
    ids=range(8),
)
def test_ports_that_are_left_out_for_a_reason(saw: dict[str, Any]) -> None:
    assert everything(saw) == []


def test_one_node_alone_needs_no_network() -> None:
    assert everything(nodes(*[NcclReport(using(0), FOUR)] * 2, each=2)) == []


@pytest.mark.parametrize(
    ("lines", "devices", "hcas"),
    [
        (  # NVIDIA/nccl-tests#182
            [
                "testgpu2:3255:3262 [1] NCCL INFO NCCL_IB_HCA set to mlx5_0",
                "testgpu2:3255:3262 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; "
                "OOB ibs65:10.10.10.101<0>",
            ],
            ["mlx5_0:1/IB"],
            "mlx5_0",
        ),
        (  # ROCm/rccl#419
            [
                "e05r3n09:929:929 [2] NCCL INFO NET/IB : Using [0]mlx5_3:1/IB [1]mlx5_2:1/IB "
                "[2]mlx5_1:1/IB [3]mlx5_0:1/IB ; OOB ib0:11.5.5.50<0>"
            ],
            ["mlx5_3:1/IB", "mlx5_2:1/IB", "mlx5_1:1/IB", "mlx5_0:1/IB"],
            "",
        ),
        (  # NVIDIA/pyxis#60
            [
                "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_1:1/IB/SHARP [1]mlx5_3:1/IB/SHARP "
                "[2]mlx5_6:1/IB/SHARP [3]mlx5_8:1/IB/SHARP [4]mlx5_4:1/RoCE [5]mlx5_10:1/RoCE ; "
                "OOB enp226s0:10.16.2.21<0>"
            ],
            [
                *(f"mlx5_{n}:1/IB/SHARP" for n in (1, 3, 6, 8)),
                *("mlx5_4:1/RoCE", "mlx5_10:1/RoCE"),
            ],
            "",
        ),
        (
            [
                "n:1:1 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} "
                "[1]mlx5_2:1/IB [RO]; OOB ib0:10.0.0.1<0>"
            ],
            ["mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_2:1/IB"],
            "",
        ),
    ],
    ids=["nccl-tests-182", "rccl-419", "pyxis-60", "merged"],
)
def test_the_lines_of_reports(lines: list[str], devices: list[str], hcas: str) -> None:
    log = listing(*lines)
    assert (list(log.devices), log.hcas) == (devices, hcas)
    active = tuple(d.partition("/")[0] for d in devices if "/IB" in d)
    assert everything(two(log, log, RdmaPorts(active, rates=(200,) * len(active)))) == []
