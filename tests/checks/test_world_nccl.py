"""world.nccl: what NCCL and CUDA say is turned into causes. No GPU is needed for that."""

from __future__ import annotations

import pytest
from ranks import run_ranks
from support import Case, assert_case

from preflight.check import conforms
from preflight.checks import world_nccl
from preflight.checks.world_nccl import SIZES, GpuSums
from preflight.knowledge.group import Trouble, readable
from preflight.knowledge.sums import Reduced
from preflight.model import Cause, Mark, Missing, Seen, Status

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

CASES = (
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
    Case("all hang", world(*[silent(4)] * 4), "stuck", Status.FAIL, subject="job"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(world_nccl, case)


def test_the_reason_comes_first() -> None:
    seen = nccl(USAGE, SHARED).value.trouble
    assert seen is not None
    assert seen.text.startswith(SHARED)


@pytest.mark.torch
def test_without_nccl_there_is_nothing_to_look_at() -> None:
    seen = run_ranks("world.nccl", 2)
    assert seen.missing(Cause.NOT_APPLICABLE) == seen.observations
    assert "no NCCL" in next(iter(seen.missing().values())).detail
