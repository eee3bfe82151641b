"""Accelerate knows in which batch zero_grad() is meant."""

from accelerate import Accelerator


def train(model, loader, optimizer) -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader):
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            accelerator.backward(model(batch).loss)
            if step % 4 == 0:
                optimizer.step()
