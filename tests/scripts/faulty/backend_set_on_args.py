import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def init_distributed_mode(args):
    if "RANK" not in os.environ:
        args.distributed = False
        return
    args.rank = int(os.environ["RANK"])
    args.gpu = int(os.environ["LOCAL_RANK"])
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    args.dist_backend = "nccl"
    dist.init_process_group(backend=args.dist_backend, init_method="env://")  # hit: destroy-missing
    dist.barrier()


def main(args):
    init_distributed_mode(args)
    model = nn.Linear(8, 2).cuda()
    model_without_ddp = model
    if args.distributed:
        model = DistributedDataParallel(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    optimizer = torch.optim.AdamW(model_without_ddp.parameters())
    for x, y in torch.load("batches.pt"):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()


if __name__ == "__main__":
    main(argparse.Namespace())
