"""A batch that does not fit is left out, by one rank alone."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer) -> None:
    model = DDP(net)
    for batch in loader:
        try:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        except RuntimeError as e:  # hit: collective-swallowed
            if "out of memory" in str(e):
                print("| WARNING: ran out of memory, skipping batch")
                torch.cuda.empty_cache()
                continue
            else:
                raise e
