import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler


def setup_for_distributed(is_master):
    import builtins

    builtin_print = builtins.print

    def print(*args, **kwargs):
        if is_master or kwargs.pop("force", False):
            builtin_print(*args, **kwargs)

    builtins.print = print


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def save_on_master(*args, **kwargs):
    if is_main_process():
        torch.save(*args, **kwargs)


@torch.no_grad()
def evaluate(loader, model, device):
    model.eval()
    total = torch.zeros(1, device=device)
    for images, target in loader:
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        total += torch.nn.functional.cross_entropy(model(images), target)
    dist.barrier()
    dist.all_reduce(total)
    return {"loss": total.item()}


def main(args, model, train_set, val_set):
    dist.init_process_group(backend="nccl", init_method=args.dist_url)
    torch.cuda.set_device(args.gpu)
    setup_for_distributed(args.rank == 0)
    device = torch.device(args.device)
    sampler_train = DistributedSampler(train_set, shuffle=True)
    sampler_val = DistributedSampler(val_set) if args.dist_eval else SequentialSampler(val_set)
    loader = DataLoader(train_set, sampler=sampler_train)
    val_loader = DataLoader(val_set, sampler=sampler_val)
    model_without_ddp = model
    if args.distributed:
        model = DistributedDataParallel(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    if args.eval:
        print(evaluate(val_loader, model, device))
        dist.destroy_process_group()
        return
    optimizer = torch.optim.AdamW(model_without_ddp.parameters())
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            loader.sampler.set_epoch(epoch)
        for images, target in loader:
            images = images.to(device)
            target = target.to(device)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), target).backward()
            optimizer.step()
        save_on_master({"model": model_without_ddp.state_dict()}, f"{epoch}.pth")
        stats = evaluate(val_loader, model, device)
        if args.output_dir and is_main_process():
            with open(os.path.join(args.output_dir, "log.txt"), "a") as f:
                f.write(json.dumps(stats))
    dist.destroy_process_group()
