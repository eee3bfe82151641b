"""Started by torchrun, and sets MASTER_PORT itself: `own` on all ranks, `one` on rank 1 alone;
healthy: `default` where nobody has set it, `same` as it was, `listens` at a port of its own without
the store of torchrun"""

import os
import socket
import sys

import planted
import torch
import torch.distributed as dist

HOW = sys.argv[1]


def free_port(offset: int) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(offset or free.getsockname()[1])


def setup() -> None:
    given = os.environ["MASTER_PORT"]
    if HOW == "own" or (HOW == "one" and os.environ["RANK"] == "1"):
        planted.now()
        os.environ["MASTER_PORT"] = free_port(0)  # <- here
    elif HOW == "default":
        os.environ.setdefault("MASTER_PORT", "29501")
    elif HOW == "same":
        os.environ["MASTER_PORT"] = given
    elif HOW == "listens":
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
        os.environ["MASTER_PORT"] = free_port(int(given) % 1000 + 21000)
    dist.init_process_group("gloo")


if __name__ == "__main__":
    setup()
    for _ in range(20):
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
