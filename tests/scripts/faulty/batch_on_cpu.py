"""The model is on the GPU, the batch is not."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main(net, data, sampler, optimizer, local_rank) -> None:
    torch.cuda.set_device(local_rank)
    model = DDP(net.cuda())
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for images, _ in loader:
        loss = model(images).mean()  # hit: batch-not-moved
        loss.backward()
        optimizer.step()
