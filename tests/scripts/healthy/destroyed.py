"""Destroyed: in a finally, in a function of that name, by another file."""

import os

import torch
import torch.distributed as dist


def ddp_cleanup() -> None:
    dist.destroy_process_group()


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    try:
        dist.barrier()
    finally:
        ddp_cleanup()


if __name__ == "__main__":
    main()
