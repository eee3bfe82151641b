import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from utils.general import LOCAL_RANK, RANK
from utils.torch_utils import EarlyStopping, de_parallel
from val import run as validate_run


def train(opt, loader, val_loader, device):
    torch.cuda.set_device(LOCAL_RANK)
    dist.init_process_group("nccl")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to(device)
    model = DDP(model, device_ids=[LOCAL_RANK])
    stopper, stop = EarlyStopping(patience=opt.patience), False
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(opt.epochs):
        if RANK != -1:
            loader.sampler.set_epoch(epoch)
        for imgs, targets in loader:
            imgs = imgs.to(device)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(imgs), targets.to(device)).backward()
            optimizer.step()
        if RANK in {-1, 0}:
            results = validate_run(model=de_parallel(model), dataloader=val_loader)
            stop = stopper(epoch=epoch, fitness=results[0])
            torch.save({"model": de_parallel(model).half()}, "last.pt")
        if RANK != -1:
            broadcast_list = [stop if RANK == 0 else None]
            dist.broadcast_object_list(broadcast_list, 0)
            if RANK != 0:
                stop = broadcast_list[0]
        if stop:
            break
    dist.destroy_process_group()
