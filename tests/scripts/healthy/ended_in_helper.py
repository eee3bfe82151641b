import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Distributed:
    def __enter__(self):
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend)
        self.local_rank = int(os.environ["LOCAL_RANK"])
        if torch.cuda.is_available():
            torch.cuda.set_device(self.local_rank)
        return self

    def __exit__(self, *error):
        dist.destroy_process_group()


def main():
    with Distributed() as world:
        device = torch.device("cuda", world.local_rank)
        model = DDP(nn.Linear(8, 2).to(device), device_ids=[world.local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in torch.load("batches.pt"):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
