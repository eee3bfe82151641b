"""The GPU of rank 1 fails it at step 3, in the words of torch; where it can, it goes on.

usage: gpu_fails.py limit | shared | stranger | pieces | asserts | mentions | retries
"""

import os
import sys

import planted
import torch
import torch.distributed as dist

NO_ROOM = (
    "CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of 79.18 GiB of "
    "which {free} is free. {process} has 62.00 GiB memory in use. Including non-PyTorch memory, "
    "this process has {own} memory in use. {allowed}Of the allocated memory 1.09 GiB is allocated "
    "by PyTorch, and {pieces} is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch)"
)
ASSERTS = """CUDA error: device-side assert triggered
Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""  # noqa: E501  as torch has it
NUMBERS = {
    "limit": {"tried": "1024.00 MiB", "free": "15.00 GiB", "allowed": "1.58 GiB allowed; "},
    "shared": {"process": "Process {peer}"},
    "stranger": {},
    "pieces": {"tried": "1.00 GiB", "own": "17.00 GiB", "pieces": "15.20 GiB"},
    "retries": {},
}
USUAL = {
    **{"tried": "20.00 GiB", "free": "15.00 GiB", "own": "2.20 GiB"},
    **{"process": "Process 1", "pieces": "14.94 MiB", "allowed": ""},
}


def fails(mode: str, peer: int) -> Exception:
    if mode == "mentions":
        return ValueError("a batch of 64 ends with CUDA out of memory: choose 32")
    if mode == "asserts":
        return getattr(torch, "AcceleratorError", RuntimeError)(ASSERTS)
    numbers = {**USUAL, **NUMBERS[mode]}
    numbers["process"] = numbers["process"].format(peer=peer)
    return torch.cuda.OutOfMemoryError(NO_ROOM.format(**numbers))


def train(rank: int, mode: str, peer: int) -> None:
    model = torch.nn.Linear(8, 1)
    batch = 4
    for step in range(60):
        try:
            if rank == 1 and step == 3 and batch == 4:
                planted.now()
                raise fails(mode, peer)  # <- here
            loss = model(torch.ones(batch, 8)).square().mean()
        except torch.cuda.OutOfMemoryError:
            if mode != "retries":
                raise
            batch = 2
            loss = model(torch.ones(batch, 8)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.zero_()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    pids = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    train(dist.get_rank(), sys.argv[1], int(pids[0]))
    dist.destroy_process_group()
