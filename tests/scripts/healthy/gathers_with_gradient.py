"""Features of all ranks in a contrastive loss: each rank puts its part back, or the collective
carries gradients; a queue and recall need none."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def with_own_part(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    parts[dist.get_rank()] = x
    return torch.cat(parts)


def own_part_in_a_new_list(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    rank = dist.get_rank()
    parts = [*parts[:rank], x, *parts[rank + 1 :]]
    return torch.cat(parts)


def differentiable(x: torch.Tensor) -> torch.Tensor:
    return torch.cat(torch.distributed.nn.functional.all_gather(x))


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


@torch.no_grad()
def for_the_queue(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def plain(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def recall(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    ours, all_of_them = model(x), plain(model(y))
    logits = ours @ all_of_them.T
    right = torch.arange(len(x)) + dist.get_rank() * len(x)
    print("loss", F.cross_entropy(logits, right).item())
    return (logits.argmax(1) == right).float().mean().item()


def learn(model: nn.Module, x: torch.Tensor, y: torch.Tensor, queue: torch.Tensor) -> torch.Tensor:
    one, two = model(x), model(y)
    right = torch.arange(len(x)) + dist.get_rank() * len(x)
    loss = F.cross_entropy(one @ with_own_part(two).T, right)
    loss = loss + F.cross_entropy(one @ own_part_in_a_new_list(two).T, right)
    loss = loss + F.cross_entropy(one @ differentiable(two).T, right)
    loss = loss + F.cross_entropy(one @ Gather.apply(two).T, right)
    queue[: dist.get_world_size() * len(x)] = for_the_queue(two)
    return loss + torch.logsumexp(one @ queue.T, 1).mean()


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    queue = torch.randn(256, 32)
    for _ in range(100):
        loss = learn(model, torch.randn(16, 64), torch.randn(16, 64), queue)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(recall(model, torch.randn(16, 64), torch.randn(16, 64)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
