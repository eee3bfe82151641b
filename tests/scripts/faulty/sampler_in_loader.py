import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world_size, device_name):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    return torch.device(device_name)


def prepare_for_device(dataset, rank, world_size, batch_size):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=False,
        sampler=DistributedSampler(dataset, world_size, rank),  # hit: set-epoch-missing
    )


def main(rank, world_size, args, dataset):
    device = setup(rank, world_size, "cpu")
    loader = prepare_for_device(dataset, rank, world_size, args.batch_size)
    model = DistributedDataParallel(nn.Linear(8, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _i in range(args.n_epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
    dist.destroy_process_group()
