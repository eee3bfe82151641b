"""The training is over, and a thread of rank 0 that is no daemon waits for work that never comes;
with `stopped` it hears that there is none"""

import queue
import sys
import threading

import planted
import torch
import torch.distributed as dist


class Uploads:
    def __init__(self) -> None:
        self.jobs: queue.Queue[str | None] = queue.Queue()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self) -> None:
        while True:
            job = self.jobs.get()  # <- here
            if job is None:
                return


def main() -> None:
    dist.init_process_group("gloo")
    uploads = Uploads() if dist.get_rank() == 0 else None
    for step in range(10):
        dist.all_reduce(torch.ones(8))
        if uploads is not None:
            uploads.jobs.put(f"step-{step}.pt")
    if uploads is not None and "stopped" in sys.argv:
        uploads.jobs.put(None)
    planted.now()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
