"""Opacus makes a loader with a sampler for each rank of the plain one, and gives back both."""

import os

import torch
import torch.distributed as dist
from opacus import PrivacyEngine
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    model = DDP(torch.nn.Linear(8, 2).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_data = TensorDataset(torch.rand(4096, 8), torch.randint(2, (4096,)))
    train_loader = DataLoader(train_data, batch_size=64, num_workers=2, pin_memory=True)
    model, optimizer, train_loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        noise_multiplier=1.1,
        max_grad_norm=1.0,
    )
    for _ in range(3):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
