import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18


@torch.no_grad()
def sample(model, rank):
    model.eval()
    return model(torch.randn(4, 3, 32, 32).cuda(rank))


def main(rank, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
    net = resnet18().cuda(rank)
    ema = copy.deepcopy(net)
    model = DDP(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x.cuda(rank)).mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save(sample(ema, rank), "samples.pt")
            torch.save(sample(net, rank), "plain.pt")
            torch.save(model.state_dict(), "model.pt")
    dist.destroy_process_group()
