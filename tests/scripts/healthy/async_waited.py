"""Works that are waited for, or kept for whoever does."""

import torch
import torch.distributed as dist


class Averager:
    def __init__(self) -> None:
        self.pending = []
        self.last = None

    def start(self, x: torch.Tensor) -> None:
        self.pending.append(dist.all_reduce(x, async_op=True))
        self.last = dist.broadcast(x, 0, async_op=True)

    def finish(self) -> None:
        for work in self.pending:
            work.wait()
        self.last.wait()


def chained(x: torch.Tensor) -> None:
    dist.all_reduce(x, async_op=True).wait()


def overlapped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(a, async_op=True)
    c = b @ b
    work.wait()
    return a + c


def many(tensors: list) -> None:
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work.wait()


def handed_on(x: torch.Tensor):
    work = dist.all_gather([x], x, async_op=True)
    return work


def as_future(x: torch.Tensor):
    handle = dist.all_reduce(x, async_op=True)
    return handle.get_future().then(lambda f: f.value()[0] / dist.get_world_size())


def chosen(x: torch.Tensor, wait: bool) -> None:
    work = dist.all_reduce(x, async_op=not wait)
    if work is not None:
        work.wait()


def on_device(x: torch.Tensor) -> None:
    dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
