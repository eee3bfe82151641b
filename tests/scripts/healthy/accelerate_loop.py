"""Accelerate prepares loaders, accumulates and sums."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4)
    with accelerator.main_process_first():
        data = TensorDataset(torch.rand(8, 2))
    loader = DataLoader(data, shuffle=True, batch_size=2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for (batch,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).sum())
                optimizer.step()
        losses = accelerator.gather(torch.zeros(1))
        if accelerator.is_main_process:
            print(epoch, losses)
        accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.save(model, "x")
