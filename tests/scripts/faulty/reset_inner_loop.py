"""A loop of micro-batches inside of a step, and zero_grad() in the inner one."""


def train(model, stream, optimizer, steps, micro) -> None:
    for _ in range(steps):
        for _ in range(micro):
            optimizer.zero_grad()  # hit: accumulation-reset
            loss = model(next(stream)).mean()
            loss.backward()
        optimizer.step()
