import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from tqdm import tqdm


def train(model, device, train_loader, optimizer, loss_fn, epoch):
    model.train()
    for _idx, (data, target) in enumerate(tqdm(train_loader)):
        data = data.to(device, non_blocking=True)
        optimizer.zero_grad()
        output = model(data)
        loss = loss_fn(output, target)  # hit: batch-not-moved
        loss.backward()
        optimizer.step()


def main(loader):
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    model = DDP(nn.Linear(8, 2).to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        train(model, device, loader, optimizer, nn.CrossEntropyLoss(), epoch)
    dist.destroy_process_group()
