"""The main process alone gathers, in a function that Accelerate calls on no other."""

import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator()

model, loader = accelerator.prepare(*torch.load("parts.pt"))


@accelerator.on_main_process
def report(loss):
    print(accelerator.gather(loss.detach()).mean())  # hit: collective-under-rank


for _epoch in range(10):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
    report(loss)
