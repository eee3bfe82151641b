"""world.nccl: what NCCL and CUDA say is turned into causes. No GPU is needed for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cases import Case, assert_case, topology
from support.cases import world as observed
from support.nccl_reports import (
    CARD,
    EFA,
    IB,
    JOINED,
    MEMLOCK,
    NONE,
    REFUSED,
    ROCE,
    capture,
    nodes,
    over,
    ring,
)
from support.ranks import run_ranks

from preflight.check import conforms
from preflight.checks import world_nccl
from preflight.checks.world_nccl import SIZES, GpuSums
from preflight.domains.collectives.allreduce import LeftOut, Reduced
from preflight.domains.collectives.nccl_log import Link, NcclLog
from preflight.domains.collectives.nccl_transport import NcclReport, RdmaPorts
from preflight.domains.torch.steps import Trouble, readable
from preflight.model import Cause, Mark, Missing, Node, Seen, Status, World

conforms(world_nccl)

FINE = GpuSums("2.29.7", tuple(Reduced(count, 0.0001) for count in SIZES))
WRONG = GpuSums("2.29.7", (Reduced(4, 0.0001), Reduced(65536, 0.0001, 9, 5, 1.0, 2.0)))
STEPS = ("CUDA", "TCPStore", "init_process_group", "all_reduce 4 B")


def marks(count: int) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in STEPS[:count])


def failed(step: int, text: str) -> Seen[GpuSums]:
    trouble = Trouble(STEPS[step - 1], "DistBackendError", readable(text))
    return Seen(GpuSums("", (), trouble), 3.0, marks(step))


def silent(step: int) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 60.0 s, killed", 60.0, marks(step))


def nccl(kind: str, reason: str) -> Seen[GpuSums]:
    """An error as ProcessGroupNCCL words it."""
    return failed(
        3,
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system "
        f"error (run with NCCL_DEBUG=INFO for details), NCCL version 2.29.7\n{kind}: This usually "
        f"reflects something.\nLast error:\n{reason}",
    )


def world(*observations: object) -> dict[str, object]:
    return {f"n1/{rank}": o for rank, o in enumerate(observations)}


SYSTEM, USAGE = "ncclUnhandledSystemError", "ncclInvalidUsage"
SHARED = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"
SHARED_230 = (
    "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable "
    "this configuration."
)
SHM = "Error: failed to extend /dev/shm/nccl-AbCdEf to 4194660 bytes, error: No space left (28)"
VERSIONS = "Mismatched NCCL version detected : rank 0 version 22907 rank 1 version 22105"
P2P = "P2P is disabled between NVLINK connected GPUs 0 and 1"
GONE = "Found no NVIDIA driver on your system."
NOT_READY = "CUDA error: system not yet initialized"


def heard(log: NcclLog, fabric: RdmaPorts = NONE, *told: str) -> GpuSums:
    return replace(FINE, heard=NcclReport(log, fabric, told))


def many(name: str, saw: dict[str, Any], *rest: Any, **more: Any) -> Case:
    """A case with several nodes."""
    ranks: dict[str, list[int]] = {}
    for key in saw:
        node, _, rank = key.partition("/")
        ranks.setdefault(node, []).append(int(rank))
    met = tuple(Node(node, tuple(own)) for node, own in ranks.items())
    return Case(name, saw, *rest, topology=topology(len(saw), nodes=met), **more)


def net(count: int, network: str, fabric: RdmaPorts, *told: str) -> dict[str, Any]:
    """Nodes with a rank each that all talk over one network."""
    return nodes(
        *(
            heard(over(network, ring(r, count, f"NET/{network}")), fabric, *told)
            for r in range(count)
        )
    )


def gdr(*on: bool, far: str = "NET/IB") -> dict[str, Any]:
    return nodes(*(heard(over("IB", ring(r, len(on), far, g)), IB) for r, g in enumerate(on)))


HCAS = ("mlx5_0:1/IB", "mlx5_1:1/IB")


def counting(port: str, **grown: int) -> dict[str, Any]:
    """Two nodes that talk over InfiniBand, and what a port of the second counted meanwhile."""
    reports = [heard(over("IB", ring(r, 2, "NET/IB"), devices=HCAS), IB) for r in range(2)]
    return nodes(reports[0], replace(reports[1], ports={port: grown}))


WAYS = (
    many("InfiniBand", net(4, "IB", IB)),
    many("RoCE", net(4, "IB", ROCE)),
    many(
        "a port loses packets during the all-reduces",
        counting("mlx5_1:1", packet_seq_err=60),
        "rdma-errors",
        Status.WARN,
        subject="n2 · mlx5_1 · port 1",
    ),
    many("a port counts that NCCL does not use", counting("mlx5_4:1", packet_seq_err=60)),
    many("EFA", net(4, "AWS Libfabric", EFA)),
    many("TCP, and there is nothing else", net(4, "Socket", NONE)),
    many("TCP beside InfiniBand", net(4, "Socket", IB), "sockets-chosen", Status.FAIL),
    many(
        "TCP of two nodes beside InfiniBand",
        net(2, "Socket", IB, "NCCL_IB_DISABLE=1"),
        "sockets-chosen",
        Status.FAIL,
        subject="n1",
    ),
    many("TCP beside EFA", net(2, "Socket", EFA), "sockets-chosen", Status.FAIL),
    many("TCP beside RoCE", net(2, "Socket", ROCE), "sockets-chosen", Status.FAIL),
    many("TCP beside plain Ethernet cards", net(2, "Socket", CARD), "sockets-chosen", Status.WARN),
    many(
        "TCP, the only network that one node has",
        nodes(
            *(
                heard(over("Socket", ring(r, 3, "NET/Socket")), f)
                for r, f in enumerate((IB, NONE, IB))
            )
        ),
    ),
    many(
        "libfabric over TCP beside EFA",
        nodes(
            *(
                heard(over("Libfabric", ring(r, 2, "NET/Libfabric"), provider="tcp;ofi_rxm"), EFA)
                for r in range(2)
            )
        ),
        "sockets-chosen",
    ),
    many(
        "NVLink between the nodes, TCP chosen and not used",
        nodes(*(heard(over("Socket", ring(r, 2, "P2P/MNNVL")), IB) for r in range(2))),
    ),
    many(
        "connections that were not logged",
        nodes(*(heard(over("Socket"), IB) for _ in range(2))),
        "sockets-chosen",
    ),
    Case("TCP is chosen and not used on one node", world(*[heard(over("Socket"), IB)] * 2)),
    many(
        "one node of three chose TCP",
        nodes(heard(over("IB"), IB), heard(over("IB"), IB), heard(over("Socket"), IB)),
        "nets-differ",
        Status.FAIL,
        subject="n3 · rank 2",
    ),
    many(
        "one node of two chose TCP, with more ranks",
        {
            "n1/0": heard(over("IB"), IB),
            "n2/1": heard(over("Socket"), NONE),
            "n2/2": heard(over("Socket"), NONE),
        },
        "nets-differ",
        Status.FAIL,
        subject="job",
    ),
    many(
        "two against two",
        nodes(*(heard(over(n), IB) for n in ("IB", "Socket") * 2)),
        "nets-differ",
        subject="job",
    ),
    many(
        "one rank's log was not read",
        nodes(heard(over("IB"), IB), heard(NcclLog(), IB), FINE, heard(over("IB"), IB)),
    ),
    Case(
        "NVLink that is not used",
        world(heard(JOINED), heard(over("Socket", Link(0, "SHM", 2), nvlink=(0,)))),
        "p2p-unused",
        Status.WARN,
        subject="n1 · rank 0",
    ),
    Case(
        "NVLink that is used to one peer, shared memory to another that it does not join",
        world(
            heard(over("Socket", Link(1, "P2P/CUMEM", 2), Link(2, "SHM", 2), nvlink=(1,))),
            heard(over("Socket", Link(0, "P2P/CUMEM", 2), nvlink=(0,))),
            heard(over("Socket", Link(0, "SHM", 2))),
        ),
    ),
    many(
        "NVLink joins GPUs of other nodes too, which are reached by the network",
        nodes(*(heard(over("IB", ring(r, 2, "NET/IB"), nvlink=(1 - r,)), IB) for r in range(2))),
    ),
    many("GPUDirect RDMA everywhere", gdr(True, True, True)),
    many("GPUDirect RDMA nowhere", gdr(False, False, False)),
    many(
        "GPUDirect RDMA on all but one",
        gdr(True, True, False),
        "gdr-off",
        Status.WARN,
        subject="n3",
    ),
    many(
        "an InfiniBand port that one of two does not use",
        nodes(
            *(heard(over("IB", ring(r, 2, "NET/IB"), devices=HCAS[: 2 - r]), IB) for r in range(2))
        ),
        "hcas-unused",
        Status.WARN,
        subject="n2",
    ),
    many("GPUDirect RDMA on one of two", gdr(True, False), "gdr-off", Status.WARN, subject="n2"),
    many(
        "GPUDirect RDMA for the GPUs near a card only",
        nodes(
            *(heard(over("IB", Link((r + 2) % 4, "NET/IB", 4, r % 2 == 0)), IB) for r in range(4)),
            each=2,
        ),
    ),
    many(
        "GPUDirect RDMA for all GPUs of one node, for one of the other",
        nodes(
            *(heard(over("IB", Link((r + 2) % 4, "NET/IB", 4, r != 3)), IB) for r in range(4)),
            each=2,
        ),
    ),
    Case(
        "a warning with a known cause that was got over",
        world(heard(over("IB", warnings=(REFUSED,))), heard(over("IB"))),
        "nvls-failed",
        Status.WARN,
        subject="n1 · rank 0",
    ),
    Case(
        "a warning of memory",
        world(heard(over("IB", warnings=("something", MEMLOCK))), heard(over("IB"))),
        "fabric-failed",
        Status.WARN,
    ),
    Case(
        "what NCCL's own diagnostics found",
        world(heard(over("IB", diagnosed=("p2p: 52/56 directed GPU P2P edges verified",))), FINE),
        "nccl-diagnostics",
        Status.WARN,
        subject="job",
    ),
    Case("a warning that nobody knows", world(heard(over("IB", warnings=("moon is full",))), FINE)),
    Case(
        "refused for good",
        world(nccl("ncclUnhandledCudaError", REFUSED), silent(3)),
        "nvls-failed",
        Status.FAIL,
    ),
    *(
        Case(f"the capture {name}", world(*[heard(capture(name, rank))] * (rank + 1)))
        for name, rank in (("l40s-shm-2.21", 2), ("mi300-rccl-2.22", 0), ("gb200-mnnvl-2.28", 0))
    ),
    many(
        "the capture of NVSwitch and InfiniBand",
        nodes(*[heard(capture("h100-ib-2.27"), IB), *[FINE] * 15], each=8),
    ),
    many(
        "the capture of TCP, beside InfiniBand",
        nodes(*[FINE, heard(capture("a100-socket-2.18", 1), IB), FINE, FINE], each=2),
        "sockets-chosen",
    ),
    Case(
        "the capture of P2P that is switched off",
        world(heard(capture("v100-p2p-off-2.28"), NONE, "NCCL_P2P_DISABLE=1"), FINE, FINE, FINE),
        "p2p-unused",
    ),
)

CASES = (
    *WAYS,
    Case("right", world(*[FINE] * 4)),
    Case("no GPU", world(*[Missing(Cause.NOT_APPLICABLE, "no GPU")] * 2)),
    Case("a wrong sum", world(FINE, FINE, WRONG, FINE), "wrong-sum", subject="n1 · rank 2"),
    Case("one GPU for two", world(nccl(USAGE, SHARED), nccl(USAGE, SHARED)), "gpu-shared"),
    Case("the same from 2.30", world(nccl(USAGE, SHARED_230), silent(3)), "gpu-shared"),
    Case("versions", world(nccl(USAGE, VERSIONS), silent(3)), "version-mismatch", subject="job"),
    Case("shm", world(nccl(SYSTEM, SHM), silent(4)), "shm-full", subject="n1 · rank 0"),
    Case(
        "interface",
        world(silent(3), nccl(SYSTEM, "Bootstrap : no socket interface found")),
        "interface-unknown",
        subject="n1 · rank 1",
    ),
    Case("net", world(nccl(SYSTEM, "NET/IB : No device found."), silent(3)), "network-missing"),
    Case(
        "memlock",
        world(nccl(SYSTEM, "Call to ibv_reg_mr failed with error Cannot allocate memory")),
        "fabric-failed",
    ),
    Case("P2P", world(nccl(SYSTEM, P2P), nccl(SYSTEM, P2P)), "p2p-disabled", Status.FAIL),
    Case("full", world(FINE, failed(1, "CUDA error: out of memory")), "gpu-full"),
    Case("fabric manager", world(failed(1, NOT_READY), failed(1, NOT_READY)), "cuda-failed"),
    Case("unknown", world(nccl(SYSTEM, ""), silent(3)), "nccl-failed", Status.FAIL),
    Case("died", world(Missing(Cause.CRASHED, "killed by SIGABRT"), silent(3)), "rank-died"),
    Case(
        "driver hangs",
        world(silent(1), silent(2), silent(2), silent(2)),
        "rank-silent",
        subject="n1 · rank 0",
    ),
    Case("an error of ours to learn", world(silent(3), failed(3, "what?")), "rank-failed"),
    Case("slow", world(*[replace(FINE, left_out=LeftOut(64 << 20, 40.0, 20.0))] * 4), "slow"),
    Case("all hang", world(*[silent(4)] * 4), "stuck", Status.FAIL, subject="job"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(world_nccl, case)


def test_the_way_is_shown() -> None:
    def text(*saw: Any) -> str:
        return world_nccl.measured(observed("world.nccl", nodes(*saw))).text

    ib = text(heard(capture("h100-ib-2.27")), heard(capture("h100-ib-2.27")))
    assert ib.startswith("transport NET/IB/GDRDMA + P2P/CUMEM + NVLS · sums right · ")
    assert ib.endswith(" · NCCL 2.27.5")
    assert text(heard(capture("l40s-shm-2.21"))).startswith("transport SHM · sums right")
    assert text(heard(over("IB")), FINE).startswith("network IB · sums right")
    assert text(FINE).startswith("sums right")
    assert text(FINE).endswith("· NCCL 2.29.7")
    assert text(silent(3)) == ""


def test_a_report_from_before_the_ways_were_looked_at_is_judged() -> None:
    old: World[GpuSums] = observed("world.nccl", world(FINE, FINE))
    assert list(world_nccl.judge(old, {})) == []  # type: ignore[arg-type]


def test_the_reason_comes_first() -> None:
    seen = nccl(USAGE, SHARED).value.trouble
    assert seen is not None
    assert seen.text.startswith(SHARED)


@pytest.mark.torch
def test_without_nccl_there_is_nothing_to_look_at() -> None:
    seen = run_ranks("world.nccl", 2)
    assert seen.missing(Cause.NOT_APPLICABLE) == seen.observations
    assert "no NCCL" in next(iter(seen.missing().values())).detail
