"""A script that ends where there is no apex."""

import torch

try:
    from apex import amp
except ImportError:
    raise ImportError("Please install apex to use fp16 training") from None


def train(model, loader) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")  # hit: apex-amp
    for batch in loader:
        with amp.scale_loss(model(batch).mean(), optimizer) as scaled:
            scaled.backward()
        optimizer.step()
