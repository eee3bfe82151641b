"""A loop of micro-batches, zero_grad() before it, and no sum but in the last."""

from contextlib import nullcontext


def train(model, stream, optimizer, steps, micro) -> None:
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        for part in range(micro):
            with nullcontext() if part == micro - 1 else model.no_sync():
                loss = model(next(stream)).mean() / micro
                loss.backward()
        optimizer.step()
