"""What is paid for in each step without need. A profiler is `left` running on rank 0; healthy: with
a `schedule`. Averaged weights take all parameters of a sharded model: `summons`, or `tensors`; so
do norms of its `gradients`; healthy: every few steps (`seldom`), `norms` of shards, an `optimizer`
that needs gradients whole, one number of a parameter (`scale`). no_sync() is around the `backward`
alone, or around that of `two` losses; healthy: around `both`, the forward and the backward in
blocks of their own (`apart`), the `last`. Short epochs, each with `workers` of its own, that take a
while to start; healthy: `persistent` ones, `long` epochs. A compiled function for which a list is
another one each time (`lists`); healthy: two of them, in turn (`turns`)"""

import sys
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]
MICRO = 4


def made() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


class Trace:
    """Started at a step of its own, for those that look for what is slow."""

    def __init__(self) -> None:
        schedule = torch.profiler.schedule(wait=30, warmup=2, active=6)
        self.cycle = schedule if HOW == "schedule" else None
        self.profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], schedule=self.cycle
        )

    def step(self, number: int) -> None:
        if number == 40:
            self.profiler.start()  # <- here
        elif number > 40 and self.cycle is not None:
            self.profiler.step()


def profiled() -> None:
    model = DistributedDataParallel(made())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trace = Trace() if dist.get_rank() == 0 else None
    for step in range(500):
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.004)
        if trace is not None:
            trace.step(step)
    if trace is not None:
        trace.profiler.stop()


class Average:
    def __init__(self, model: nn.Module) -> None:
        self.weights = [p.detach().clone() for p in model.parameters()]

    def summon(self, sharded: nn.Module, fsdp: type) -> None:
        with torch.no_grad(), fsdp.summon_full_params(sharded, writeback=False):  # <- here
            for mine, new in zip(self.weights, sharded.parameters(), strict=True):
                mine.lerp_(new, 0.1)

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        for mine, new in zip(self.weights, model.parameters(), strict=True):
            mine.lerp_(new.detach().full_tensor(), 0.1)  # <- or here


class Signs(torch.optim.SGD):
    """It scales each gradient by all of it."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad.div_(parameter.grad.full_tensor().abs().max())
        super().step(closure)


def averaged() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    model = made()
    average = Average(model)
    if HOW in ("summons", "seldom"):
        cpu = torch.device("cpu")
        model = FullyShardedDataParallel(model, use_orig_params=True, device_id=cpu)
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    kind = Signs if HOW == "optimizer" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.01)
    for step in range(60):
        model(torch.randn(4, 16)).square().mean().backward()
        if HOW == "gradients":
            _ = [p.grad.full_tensor().norm() for p in model.parameters()]  # <- or here
        if HOW == "norms":
            _ = [p.grad.norm().full_tensor() for p in model.parameters()]
        if HOW == "scale":
            model[2].bias.full_tensor().max().item()
        optimizer.step()
        optimizer.zero_grad()
        if HOW == "summons" or (HOW == "seldom" and step % 4 == 3):
            average.summon(model, FullyShardedDataParallel)
        elif HOW == "tensors":
            average.take(model)
        time.sleep(0.04)


def accumulated() -> None:
    model = DistributedDataParallel(made())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for micro in range(60 * MICRO):
        last = micro % MICRO == MICRO - 1
        silent = nullcontext if last else model.no_sync
        batch = torch.randn(4, 16)
        if HOW == "both":
            with silent():
                model(batch).square().mean().backward()
        elif HOW == "apart":
            with silent():
                loss = model(batch).square().mean()
            with silent():
                loss.backward()
        elif HOW == "last":
            with model.no_sync() if micro % MICRO == 0 else nullcontext():
                pass
            model(batch).square().mean().backward()
        else:
            out = model(batch)
            loss = out.square().mean() / MICRO
            with silent():  # <- here
                if HOW == "two":
                    loss = loss + out.abs().mean()
                loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)


class Archive(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, samples: int) -> None:
        self.samples, self.index = samples, None
        self.first = samples * dist.get_rank()

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.index is None:
            time.sleep(0.3)
            self.index = range(self.first, self.first + self.samples)
        return torch.full((16,), float(self.index[number]))


def read() -> None:
    model = DistributedDataParallel(made())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    epochs, samples = (2, 1600) if HOW == "long" else (10, 32)
    loader = torch.utils.data.DataLoader(
        Archive(samples), batch_size=4, num_workers=2, persistent_workers=HOW == "persistent"
    )
    for _ in range(epochs):
        for batch in loader:  # <- here
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.01)


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))

    def forward(self, batch: torch.Tensor, keep: "tuple[int, ...]") -> torch.Tensor:  # <- here
        for number in keep * 12:  # twelve times as much to compile
            batch = torch.relu(self.layers[number](batch)) + batch
        return batch


def compiled() -> None:
    torch.manual_seed(0)
    model = Dropped()
    model.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kinds = 2 if HOW == "turns" else 40
    for step in range(100):
        number = step % kinds + 1
        keep = tuple(layer for layer in range(8) if number >> layer & 1)
        loss = model(torch.randn(4, 16), keep).square().mean()
        loss.backward()
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad.div_(dist.get_world_size()))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if HOW in ("left", "schedule"):
        profiled()
    elif HOW in ("summons", "tensors", "gradients", "seldom", "norms", "optimizer", "scale"):
        averaged()
    elif HOW in ("workers", "persistent", "long"):
        read()
    elif HOW in ("lists", "turns"):
        compiled()
    else:
        accumulated()
    dist.destroy_process_group()
