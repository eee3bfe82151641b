"""Rank 1 waits for an event that nobody sets, while the thread of a tracker tells its server each
second that it lives; rank 0 is at the barrier"""

import socket
import threading
import time

import elsewhere
import planted
import torch
import torch.distributed as dist


def track(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while True:
            sock.sendall(b'{"step": 12, "loss": 0.25, "system": {"cpu": 11, "memory": 4711}}' * 20)
            time.sleep(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1:
        thread = threading.Thread(target=track, args=(elsewhere.serve("takes", 0.0),), daemon=True)
        thread.start()
        planted.now()
        threading.Event().wait()  # <- here
    dist.barrier()
    dist.destroy_process_group()
