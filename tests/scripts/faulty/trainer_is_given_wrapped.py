import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Solver:
    def __init__(self, net, train_loader, test_loader, rank):
        self.net = net
        self.train_loader = train_loader
        self.test_loader = test_loader
        self.rank = rank
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_loader.sampler.set_epoch(epoch)
            for x, y in self.train_loader:
                x, y = x.cuda(self.rank), y.cuda(self.rank)
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.net(x), y).backward()
                self.optimizer.step()
            if self.rank == 0:
                print(epoch, self.test())  # hit: wrapped-under-rank

    @torch.no_grad()
    def test(self):
        self.net.eval()
        right = 0
        for x, y in self.test_loader:
            right += (self.net(x.cuda(self.rank)).argmax(1).cpu() == y).sum().item()
        return right


def main():
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(10))
    net = DDP(net.cuda(rank), device_ids=[rank])
    train_loader, test_loader = torch.load("loaders.pt")
    Solver(net, train_loader, test_loader, rank).fit(10)
    dist.destroy_process_group()


main()
