"""Accelerate: gather() of outputs of which one rank has fewer."""

import planted
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for batch, target in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(batch), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        count = 3 if epoch == 1 and accelerator.process_index == 1 else 4
        if count == 3:
            planted.now()
        accelerator.gather(torch.ones(count, 16))  # <- here
    accelerator.end_training()


if __name__ == "__main__":
    main()
