"""Faults that show when GPUs compute, and copy to each other; and machines whose GPUs do it well,
however they are joined. What stands in for the GPUs: stand_in/fake_cuda.py for torch.cuda, and the
fake NVML for what the driver tells of them."""

from __future__ import annotations

from faults.accelerators import BARE_METAL, CROWDED
from faults.inject import Fault

STANDARD = ("--level", "standard")
WHOLE = (*STANDARD, "--skip", "world.*,rdzv.*")
"""There is no NCCL over these GPUs."""
COMPUTE = (*STANDARD, "--only", "gpu.visible,gpu.health,gpu.compute")
COPIES = (
    *(*STANDARD, "--only", "gpu.visible,gpu.health,gpu.links,gpu.p2p"),
    *("--skip", "gpu.compute"),
)

MIB = 1 << 20
SMALL = {"free": 32 * MIB}
"""GPUs with so little memory that copies are short. No product is made on them."""
NVLINK = {"links": 18}
PCIE = {"name": "NVIDIA L40S", "topology": 20}
L40S = {"name": "NVIDIA L40S", "copy_speed": 0.4}


def computes(name: str, code: str, cuda: dict[str, object], **more: object) -> Fault:
    """Two GPUs, of which GPU 1 is not well."""
    given = {"gpus": 2, "args": COMPUTE, "seconds": 45, "scenario": {}, **more}
    given = {"nproc": given["gpus"], "subject": "n1 · GPU 1", "also": CROWDED, **given}
    return Fault(name, "gpu.compute", code, cuda=cuda, **given)  # type: ignore[arg-type]


def copies(name: str, code: str, subject: str, cuda: dict[str, object], **more: object) -> Fault:
    """Four GPUs that copy to each other."""
    given = {"gpus": 4, "nproc": 4, "args": COPIES, "seconds": 45, "scenario": NVLINK}
    given = {**given, "also": CROWDED, **more}
    cuda = {**SMALL, **cuda} if given["args"] != WHOLE else cuda
    return Fault(name, "gpu.p2p", code, subject, cuda=cuda, **given)  # type: ignore[arg-type]


PRODUCTS = (
    computes(
        "one bit of every product of a GPU is wrong",
        "matmul-wrong",
        {"gpu1.product": "flip"},
        says="1 of 16777216 numbers of a product in bf16",
    ),
    computes(
        "one product of a GPU has other bits than the same before",
        "bits-vary",
        {"gpu1.product": "vary"},
        says="at time 2",
        args=WHOLE,
    ),
    computes(
        "one GPU of four always computes the same wrongly",
        "bits-differ",
        {"gpu2.product": "alike"},
        subject="n1 · GPU 2",
        gpus=4,
        says="than on the other 3",
    ),
    computes(
        "an illegal memory access in a product",
        "cuda-failed",
        {"gpu1.product": "error"},
        says="exact product bf16 on GPU 1: CUDA error: an illegal memory access",
        args=WHOLE,
    ),
    computes(
        "CUDA does not start on a GPU",
        "cuda-failed",
        {"gpu1.start": "error"},
        says="start CUDA on GPU 1",
    ),
    computes(
        "CUDA's start never ends on a GPU",
        "gpu-hangs",
        {"gpu1.start": "hang"},
        says="'start CUDA on GPU 1' did not end in",
        # the check waits 50 s for a start; a busy machine needs some before it comes to that
        args=(*COMPUTE, "--timeout", "gpu.compute=80s"),
        seconds=110,
    ),
    computes(
        "a product never ends",
        "gpu-hangs",
        {"gpu1.product": "hang"},
        says="'exact product bf16 on GPU 1' did not end in",
        args=(*WHOLE, "--timeout", "gpu.compute=30s"),
        seconds=60,
    ),
    computes(
        "a product dies of SIGSEGV",
        "gpu-crashes",
        {"gpu1.product": "crash"},
        says="killed by SIGSEGV in 'exact product bf16 on GPU 1'",
    ),
    computes(
        "what comes back from the host has another bit",
        "copy-wrong",
        {"gpu1.bus": "flip"},
        says="1 of ",
        args=WHOLE,
    ),
    computes(
        "no memory is left for a product",
        "not-observable",
        {"gpu1.product": "full"},
        subject="n1 · rank 1",
        status="undecided",
        says="CUDA out of memory",
        exit=4,
    ),
)

SPEED = (
    computes(
        "one GPU of four computes at half speed",
        "gpu-slow",
        {"gpu2.speed": 0.5},
        subject="n1 · GPU 2",
        gpus=4,
        status="warn",
        exit=0,
        says="50 % of the median of 4",
        seconds=60,
    ),
    computes(
        "the memory of one GPU of four has half its speed",
        "gpu-slow",
        {"gpu3.memory_speed": 0.5},
        subject="n1 · GPU 3",
        gpus=4,
        status="warn",
        exit=0,
        says="copy 0.2 GB/s",
        seconds=60,
        args=WHOLE,
    ),
    computes(
        "the bus of one GPU of four has a quarter of its speed",
        "bus-slow",
        {"gpu0.bus_speed": 0.25},
        subject="n1 · GPU 0",
        gpus=4,
        status="warn",
        exit=0,
        says="to GPU 0.05 GB/s, 25 %",
        seconds=60,
        args=WHOLE,
    ),
    computes(
        "one GPU of four has locked clocks, and says so",
        "gpu-slow",
        {"gpu2.speed": 0.6},
        subject="n1 · GPU 2",
        gpus=4,
        status="warn",
        exit=0,
        scenario={"gpu2.reasons": 0x8 | 0x80},
        also=(*CROWDED, "gpu.health clocks-throttled"),
        seconds=60,
        args=WHOLE,
    ),
)

CONTENT = (
    copies(
        "copies between two GPUs bring zeros",
        "copy-wrong",
        "n1 · GPU 1",
        {"copy.1.2": "zeros", "copy.2.1": "zeros"},
        says="GPU 1->2, 2->1, of 12 pairs: all words wrong from byte 0 on: zeros arrived",
    ),
    copies(
        "one bit of a copy changes on its way",
        "copy-wrong",
        "n1 · GPU 0",
        {"copy.0.3": "bit"},
        says="GPU 0->3, of 12 pairs: 1 of ",
        args=WHOLE,
    ),
    copies(
        "nothing arrives at one GPU, and nothing from it",
        "copy-wrong",
        "n1 · GPU 2",
        {f"copy.{p}.{q}": "nothing" for p in range(4) for q in range(4) if 2 in (p, q)},
        says="nothing arrived",
    ),
    copies(
        "no copy over PCIe arrives: ACS sends them elsewhere",
        "copy-wrong",
        "n1",
        {f"copy.{p}.{q}": "nothing" for p in range(4) for q in range(4)} | L40S,
        scenario=PCIE,
        setup=BARE_METAL,
        says="nothing arrived",
    ),
    copies(
        "one of five copies between two GPUs changes a bit",
        "copy-wrong",
        "n1 · GPU 1",
        {"copy.1.2": "rarely"},
        says="GPU 1->2, of 12 pairs: 1 of ",
    ),
    copies(
        "the end of a copy is cut off, with NCCL_P2P_DISABLE=1",
        "copy-wrong",
        "n1 · GPU 0",
        {"copy.0.1": "cut"},
        env={"NCCL_P2P_DISABLE": "1"},
        status="warn",
        exit=0,
        says="NCCL is told to do without",
    ),
    copies(
        "the job's second pair of GPUs copies wrongly",
        "copy-wrong",
        "n1 · GPU 2",
        {"copy.2.3": "zeros"},
        env={"CUDA_VISIBLE_DEVICES": "2,3"},
        nproc=2,
        says="GPU 2->3, of 2 pairs",
    ),
)

ENDS = (
    copies(
        "a copy between two GPUs raises an error",
        "copy-fails",
        "n1 · GPU 0",
        {"copy.0.1": "error", "copy.1.0": "error"},
        says="GPU 0->1, 1->0, of 12 pairs: CUDA error: peer access is not supported",
    ),
    copies(
        "CUDA does nothing more after a copy",
        "copy-fails",
        "n1 · GPU 1",
        {"copy.1.2": "poison"},
        says="10 of 12 pairs were not tried: CUDA does nothing more after 1->2",
    ),
    copies(
        "a copy between two GPUs never ends",
        "copy-hangs",
        "n1 · GPU 1",
        {"copy.1.2": "hang"},
        says="from GPU 1 to GPU 2 has not ended in",
        args=(*COPIES, "--timeout", "gpu.p2p=26s"),
    ),
    copies(
        "a copy blocks its process",
        "copy-hangs",
        "n1 · GPU 2",
        {"copy.2.3": "block"},
        says="from GPU 2 to GPU 3 has not ended in",
        args=(*COPIES, "--timeout", "gpu.p2p=15s"),
    ),
)

WAYS = (
    copies(
        "copies between two GPUs have a third of their speed",
        "copy-slow",
        "n1 · GPU 0",
        {"copy_speed.0.3": 0.3, "copy_speed.3.0": 0.3},
        status="warn",
        exit=0,
        says="0->3 ",
    ),
    copies(
        "all copies of one GPU have a third of their speed",
        "copy-slow",
        "n1 · GPU 2",
        {"gpu2.copy_speed": 0.3},
        status="warn",
        exit=0,
    ),
    copies(
        "one GPU of an L40S machine has half of its lanes of PCIe",
        "copy-slow",
        "n1 · GPU 1",
        {**L40S, "gpu1.copy_speed": 0.15},
        status="warn",
        exit=0,
        scenario=PCIE,
        setup=BARE_METAL,
    ),
    copies(
        "one way between two sockets has a quarter of the way back",
        "copy-slow",
        "n1 · GPU 0",
        {**L40S, "copy_speed.0.1": 0.1},
        status="warn",
        exit=0,
        scenario={"name": "NVIDIA L40S"},
        says="0->1 ",
        gpus=2,
        nproc=2,
    ),
)

FAULTS = (*PRODUCTS, *SPEED, *CONTENT, *ENDS, *WAYS)

BRIDGES = {f"gpu{gpu}.link_remote": f"0000:{0x18 + 0x10 * (gpu ^ 1):02x}:00.0" for gpu in range(4)}
"""Two pairs of GPUs, each with a bridge of NVLink between them."""


def well(name: str, count: int, cuda: dict[str, object], **more: object) -> Fault:
    given = {"scenario": {}, "nproc": count, "args": WHOLE, "seconds": 60, "exit": 0, **more}
    args = f"{given['args'][-1]},host.cpu"  # few CPUs for so many GPUs: true of where the tests run
    given["args"] = (*given["args"][:-1], args)
    return Fault(name, gpus=count, cuda=cuda, **given)  # type: ignore[arg-type]


HEALTHY = (
    well(
        "two RTX 4090 without P2P",
        2,
        {"name": "NVIDIA GeForce RTX 4090", "reach": 0},
        scenario={"name": "NVIDIA GeForce RTX 4090", "capability": "8.9", "p2p": 1},
    ),
    well("four L40S below PCIe switches", 4, L40S, scenario=PCIE, setup=BARE_METAL),
    well("eight H100 with NVSwitch", 8, SMALL, scenario=NVLINK, args=COPIES),
    well("four H100 with NVSwitch", 4, {}, scenario=NVLINK),
    well(
        "four A100 with NVLink bridges in pairs, the pairs joined by PCIe",
        4,
        {
            "name": "NVIDIA A100 80GB PCIe",
            "major": 8,
            **{
                f"copy_speed.{p}.{q}": 0.08 if p + q == 3 else 0.12
                for p in range(4)
                for q in range(4)
                if p != q and p ^ q != 1
            },
        },
        scenario={
            "name": "NVIDIA A100 80GB PCIe",
            "capability": "8.0",
            "links": 12,
            "link_remote_type": 0,
            **BRIDGES,
        },
    ),
    well(
        "a GPU with little free memory beside others with more",
        3,
        {"free": 1200 * MIB, "gpu1.free": 520 * MIB},
    ),
    well(
        "GPUs of two models, one of them slow",
        4,
        {"gpu2.name": "NVIDIA L4", "gpu2.speed": 0.3, "gpu3.name": "NVIDIA L4", "gpu3.speed": 0.3},
        scenario={"gpu2.name": "NVIDIA L4", "gpu3.name": "NVIDIA L4"},
        args=(*WHOLE[:-1], f"{WHOLE[-1]},gpu.visible"),  # which warns of the mixture
    ),
)

AT_LENGTH = frozenset(
    {
        "two RTX 4090 without P2P",
        "a product dies of SIGSEGV",
        "copies between two GPUs bring zeros",
        "a copy between two GPUs raises an error",
        "one GPU of four computes at half speed",
        "one of five copies between two GPUs changes a bit",
        "one product of a GPU has other bits than the same before",
        "one GPU of four always computes the same wrongly",
        "an illegal memory access in a product",
        "CUDA does not start on a GPU",
        "CUDA's start never ends on a GPU",
        "a product never ends",
        "what comes back from the host has another bit",
        "no memory is left for a product",
        "the memory of one GPU of four has half its speed",
        "the bus of one GPU of four has a quarter of its speed",
        "one GPU of four has locked clocks, and says so",
        "one bit of a copy changes on its way",
        "no copy over PCIe arrives: ACS sends them elsewhere",
        "the end of a copy is cut off, with NCCL_P2P_DISABLE=1",
        "CUDA does nothing more after a copy",
        "a copy blocks its process",
        "one GPU of an L40S machine has half of its lanes of PCIe",
        "all copies of one GPU have a third of their speed",
        "one way between two sockets has a quarter of the way back",
        "four L40S below PCIe switches",
        "eight H100 with NVSwitch",
        "four H100 with NVSwitch",
        "four A100 with NVLink bridges in pairs, the pairs joined by PCIe",
        "the job's second pair of GPUs copies wrongly",
        "nothing arrives at one GPU, and nothing from it",
        "a GPU with little free memory beside others with more",
        "GPUs of two models, one of them slow",
    }
)
"""Rows that `make faults` runs as well, and the tests do not: another row of the tests is of their
kind, and each takes 4 to 60 s."""
