"""Each rank looks for a free port of its own in place of one that all know"""

import os
import socket

import planted
import torch.distributed as dist


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    planted.now()
    os.environ["MASTER_PORT"] = str(free_port())
    dist.init_process_group("gloo")  # <- here
    dist.destroy_process_group()
