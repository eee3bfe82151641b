"""A communication hook that compresses gradients, and divides before it sends them."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def in_half(
    group: dist.ProcessGroup, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer().div_(group.size())
    half = buffer.to(torch.bfloat16)
    work = dist.all_reduce(half, group=group, async_op=True)

    def back(done: torch.futures.Future) -> torch.Tensor:
        buffer.copy_(done.value()[0])
        return buffer

    return work.get_future().then(back)


def main() -> None:
    dist.init_process_group()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
    model = DistributedDataParallel(net, device_ids=[local])
    model.register_comm_hook(dist.group.WORLD, in_half)
    data = TensorDataset(torch.randn(4096, 32), torch.randint(10, (4096,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        seen, total = 0, 0.0
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
        print(epoch, seen, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
