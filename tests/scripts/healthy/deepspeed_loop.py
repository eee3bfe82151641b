"""DeepSpeed's engine decides when to step."""

import deepspeed
import torch
from deepspeed import comm as dist
from torch.utils.data import DataLoader, TensorDataset


def main(args) -> None:
    deepspeed.init_distributed("nccl")
    data = TensorDataset(torch.rand(8, 2))
    engine, _, loader, _ = deepspeed.initialize(args=args, training_data=data)
    for step, batch in enumerate(loader):
        engine.backward(engine(batch[0].cuda()).sum())
        engine.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(step)
    dist.barrier()
    print(DataLoader(data))
