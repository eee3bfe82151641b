"""After the last step rank 0 calls a barrier that nobody else calls: they are through."""

import planted
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.all_reduce(torch.ones(16))
    if dist.get_rank() == 0:
        planted.now()
        dist.barrier()  # <- here
        print("trained", flush=True)


if __name__ == "__main__":
    main()
