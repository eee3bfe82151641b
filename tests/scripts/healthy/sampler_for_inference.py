import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(dataset, model):
    dist.init_process_group("gloo")
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    found = []
    with torch.no_grad():
        for _i, x in enumerate(loader):
            found.append(model(x).argmax(1))
    mine = torch.cat(found)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    dist.destroy_process_group()
