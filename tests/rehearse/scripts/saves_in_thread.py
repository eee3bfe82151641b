"""A thread of each rank agrees on a checkpoint in the group in which the others meet at a barrier
(as dcp.async_save does it in the default group); with `healthy` in a group of its own."""

import sys
import threading
import time

import planted
import torch
import torch.distributed as dist


def plan(step: int, group) -> None:
    if dist.get_rank() == 1:
        time.sleep(0.2)  # a slower disk
        planted.now()
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, {"step": step}, group=group)  # <- or here


def main() -> None:
    dist.init_process_group("gloo")
    own = dist.new_group() if "healthy" in sys.argv else None
    for step in range(20):
        dist.all_reduce(torch.ones(1000))
        time.sleep(0.02)
        if step % 10 == 5:
            saving = threading.Thread(target=plan, args=(step, own))
            saving.start()
            if dist.get_rank() != 1:
                time.sleep(0.1)
            dist.barrier()  # <- here
            saving.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
