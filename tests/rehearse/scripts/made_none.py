"""All children fail before they join, and the script does not look how they ended."""

import planted
import torch.distributed as dist
import ways


def work(rank: int) -> None:
    planted.now()
    os.environ["RANK"] = str(rank)  # noqa: F821  <- here
    dist.init_process_group("gloo")
    dist.barrier()


if __name__ == "__main__":
    ways.start(work, 2)
