import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as NativeDDP
from torchvision.models import resnet50


def is_primary(args):
    return args.rank == 0


def reduce_tensor(tensor, n):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    return rt / n


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, args, device):
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        loss = loss_fn(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            if args.distributed:
                reduced = reduce_tensor(loss.data, args.world_size)
            if is_primary(args):
                print(epoch, reduced)


def validate(model, loader, loss_fn, args, device):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            loss = loss_fn(model(data), target)
            total += reduce_tensor(loss.data, args.world_size) if args.distributed else loss
    return {"loss": total}


def main(args, loader_train, loader_eval, saver):
    device = torch.device("cuda", args.local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = NativeDDP(resnet50().to(device), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(args.epochs):
        if hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        train_one_epoch(epoch, model, loader_train, optimizer, nn.CrossEntropyLoss(), args, device)
        eval_metrics = validate(model, loader_eval, nn.CrossEntropyLoss(), args, device)
        if saver is not None and is_primary(args):
            saver.save_checkpoint(epoch, metric=eval_metrics["loss"])
    if args.distributed:
        dist.destroy_process_group()
