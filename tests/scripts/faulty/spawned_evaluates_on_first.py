import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train_epoch(model, optimizer, loader, device):
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader, device, rank):
    model.eval()
    total, count = 0.0, 0
    for x, y in loader:
        logits = model(x.to(device))
        total += nn.functional.cross_entropy(logits, y.to(device)).item()
        count += 1
    print(rank, total / max(count, 1))


def main_worker(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)  # hit: nccl-on-cpu
    torch.cuda.set_device(rank)
    device = torch.device(f"cuda:{rank}")
    encoded = torch.load("encoded.pt")
    sampler = DistributedSampler(encoded, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(encoded, batch_size=4, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).cuda(rank)
    model = DDP(model, device_ids=[rank], output_device=rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        train_epoch(model, optimizer, loader, device)
        if rank == 0:
            evaluate(model, loader, device, rank)  # hit: wrapped-under-rank
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main_worker, args=(8,), nprocs=8, join=True)
