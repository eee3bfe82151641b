import argparse
import atexit

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--dist-backend", default="nccl", type=str)
parser.add_argument("--gpu", default=0, type=int)


def main(args):
    dist.init_process_group(backend=args.dist_backend)
    atexit.register(dist.destroy_process_group)
    torch.cuda.set_device(args.gpu)
    model = DistributedDataParallel(nn.Linear(8, 2).cuda(args.gpu), device_ids=[args.gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in torch.load("batches.pt"):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y.cuda(args.gpu)).backward()
        optimizer.step()


if __name__ == "__main__":
    main(parser.parse_args())
