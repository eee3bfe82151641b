"""Gradients are clipped, and not by one factor: `flat` and `original` parameters of a model in FSDP
by the norm of each rank's shard, `scattered` shards of a script's own, `loss` by a max_norm from
each rank's loss; healthy: `right`, FSDP's own method, `summed` norms of all shards, `agreed` a loss
of all ranks, `layers` one after the other in DDP, `stages` with layers of their own, `before` the
gradients are averaged, `whole` FSDP without shards"""

import sys

import planted
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

HOW = sys.argv[1]
STEPS = 40


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 8))


def batch(step: int) -> torch.Tensor:
    return torch.randn(16, 24) * (3 + step % 5)


def shards_by_fsdp() -> None:
    strategy = ShardingStrategy.NO_SHARD if HOW == "whole" else ShardingStrategy.FULL_SHARD
    model = FullyShardedDataParallel(
        network(),
        sharding_strategy=strategy,
        use_orig_params=HOW != "flat",
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        model(batch(step)).square().mean().backward()
        if HOW == "right":
            model.clip_grad_norm_(0.3)
        else:
            clip_grad_norm_(model.parameters(), 0.3)  # <- here
        optimizer.step()
        optimizer.zero_grad()


def shards_by_hand() -> None:
    """Each rank steps a part of one vector of all weights, and gathers the other parts."""
    world, rank = dist.get_world_size(), dist.get_rank()
    model = network()
    whole = nn.utils.parameters_to_vector(model.parameters()).detach()
    part = nn.Parameter(whole.chunk(world)[rank].clone())
    optimizer = torch.optim.SGD([part], lr=0.05)
    for step in range(STEPS):
        model(batch(step)).square().mean().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        part.grad = torch.empty_like(part)
        dist.reduce_scatter_tensor(part.grad, gradient / world)
        if HOW == "summed":
            norm = nn.utils.get_total_norm([part.grad]).square()
            dist.all_reduce(norm)
            nn.utils.clip_grads_with_norm_([part], 0.3, norm.sqrt())
        else:
            nn.utils.clip_grad_norm_([part], max_norm=0.3)  # <- or here
        optimizer.step()
        dist.all_gather_into_tensor(whole, part.detach())
        nn.utils.vector_to_parameters(whole, model.parameters())
        model.zero_grad()


def by_loss() -> None:
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(STEPS):
        loss = model(batch(step)).square().mean()
        loss.backward()
        seen = loss.detach().clone()
        if HOW == "agreed":
            dist.all_reduce(seen)
        if HOW == "layers":
            for parameter in model.parameters():
                clip_grad_norm_(parameter, 0.1)
        else:
            clip_grad_norm_(model.parameters(), 0.05 * seen.item())  # <- or here
        optimizer.step()
        optimizer.zero_grad()


def without_shards() -> None:
    """All ranks with a layer of their own, or one that they average themselves."""
    torch.manual_seed(dist.get_rank() if HOW == "stages" else 0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for step in range(STEPS):
        out = model(batch(step))
        if HOW == "stages":
            dist.all_reduce(out.detach())
        out.square().mean().backward()
        clip_grad_norm_(model.parameters(), 0.3)
        if HOW == "before":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    planted.now()
    if HOW in ("flat", "original", "right", "whole"):
        shards_by_fsdp()
    elif HOW in ("scattered", "summed"):
        shards_by_hand()
    elif HOW in ("loss", "agreed", "layers"):
        by_loss()
    else:
        without_shards()
    dist.destroy_process_group()
