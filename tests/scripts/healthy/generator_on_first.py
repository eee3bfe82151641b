import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Conv1d(80, 80, 3)
        self.norm = nn.BatchNorm1d(80)

    def forward(self, x):
        return self.norm(self.pre(x))


def evaluate(rank, epoch, generator, val_loader, writer):
    generator.eval()
    with torch.no_grad():
        for number, mel in enumerate(val_loader):
            mel = mel.cuda(rank)
            audio = generator(mel)
            writer.add_audio(f"{epoch}/{number}", audio)
    generator.train()


def train(rank, generator, optimizer, loader):
    for mel in loader:
        mel = mel.cuda(rank, non_blocking=True)
        optimizer.zero_grad()
        generator(mel).mean().backward()
        optimizer.step()


def run(rank, n_gpus, hps, loader, val_loader, writer):
    dist.init_process_group(backend="nccl", init_method="env://", world_size=n_gpus, rank=rank)
    torch.cuda.set_device(rank)
    generator = Generator().cuda(rank)
    optimizer = torch.optim.AdamW(generator.parameters(), hps.lr)
    generator = DDP(generator, device_ids=[rank])
    for epoch in range(1, hps.epochs + 1):
        loader.batch_sampler.set_epoch(epoch)
        if rank == 0:
            evaluate(rank, epoch, generator, val_loader, writer)
            train(rank, generator, optimizer, loader)
        else:
            train(rank, generator, optimizer, loader)
    dist.destroy_process_group()
