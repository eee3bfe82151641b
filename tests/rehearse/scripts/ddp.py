"""Plain DDP with a sampler; also started without torchrun by one_too_few.py."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for batch, target in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch), target).backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print("trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
