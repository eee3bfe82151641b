"""The training is over, and rank 0 does not end: `tracker` multiprocessing joins a child that waits
for more to log (as wandb in fairseq#4619), `event` what atexit calls waits for an event. Healthy:
it `uploads` at its exit, or the `workers` of its DataLoader don't end by themselves."""

import atexit
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

import elsewhere
import planted
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


def log(queue: multiprocessing.SimpleQueue) -> None:
    while queue.get() is not None:
        pass


def flush(sent: threading.Event) -> None:
    planted.now()
    sent.wait()  # <- here


def upload() -> None:
    port = elsewhere.serve("takes", 0.1)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        sock.sendall(bytes(8 << 20))
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)


class Stubborn(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index > 40:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(30)
        return torch.ones(8)


def main() -> None:
    how = sys.argv[1]
    dist.init_process_group("gloo")
    queue = multiprocessing.SimpleQueue()
    if dist.get_rank() == 0:
        if how == "tracker":
            multiprocessing.Process(target=log, args=(queue,)).start()
        elif how == "event":
            atexit.register(flush, threading.Event())
        elif how == "uploads":
            atexit.register(upload)
    for step in range(10):
        dist.all_reduce(torch.ones(8))
        if how == "tracker" and dist.get_rank() == 0:
            queue.put(step)
    if how == "workers":
        batches = iter(DataLoader(Stubborn(), batch_size=4, num_workers=3))
        for _ in range(4):
            next(batches)
    if how == "tracker":
        planted.now()
    dist.destroy_process_group()
    print("rank", os.environ["RANK"], "is done")


if __name__ == "__main__":
    main()
