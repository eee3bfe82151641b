import deepspeed
import torch
from torch import nn


def main(args, loader):
    deepspeed.init_distributed()
    net = nn.Linear(64, 64)
    model_engine, _optimizer, _, _ = deepspeed.initialize(
        args=args, model=net, model_parameters=net.parameters()
    )
    for step, (x, y) in enumerate(loader):
        x, y = x.to(model_engine.device), y.to(model_engine.device)
        loss = nn.functional.mse_loss(model_engine(x), y)
        model_engine.backward(loss)
        model_engine.step()
        if step % 100 == 0 and torch.distributed.get_rank() == 0:
            model_engine.save_checkpoint("ckpt", tag=f"step{step}")  # hit: wrapped-under-rank
