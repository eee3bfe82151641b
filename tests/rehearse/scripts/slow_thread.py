"""A thread of rank 1 computes all the time, and holds Python's lock while the main thread needs it:
`reporter` sums up what was logged, `subclass` of Thread with a method of its own; healthy: `sleeps`
most of the time, `all` ranks have one"""

import json
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]
logged: list[dict[str, float]] = [{"loss": n / 7, "step": n} for n in range(200)]
over = threading.Event()


def report() -> None:
    while not over.is_set():
        total = 0.0
        for entry in logged:
            total += entry["loss"] * entry["step"]  # <- here
        if HOW == "sleeps":
            time.sleep(0.3)


class Writer(threading.Thread):
    def run(self) -> None:
        while not over.is_set():
            json.loads(json.dumps(logged))  # <- or here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(16, 16)] * 60))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if rank == 1 or HOW == "all":
        thread = Writer() if HOW == "subclass" else threading.Thread(target=report, name="reporter")
        thread.start()
    began = time.monotonic()
    for _ in range(20000):
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        seen = torch.tensor(float(time.monotonic() - began > 18))
        dist.all_reduce(seen)
        if seen:
            break
    over.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
