"""An all_reduce whose errors are nobody's business, in every step."""

import torch.distributed as dist


def train(model, loader, log) -> None:
    for batch in loader:
        loss = model(batch).mean()
        try:
            dist.all_reduce(loss)
            log(loss.item())
        except Exception:  # hit: collective-swallowed
            pass
