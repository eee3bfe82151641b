"""zero_grad() where it belongs, and that of another optimizer in every batch."""


def accumulates(model, loader, optimizer, n) -> None:
    optimizer.zero_grad()
    for i, batch in enumerate(loader):
        (model(batch).mean() / n).backward()
        if (i + 1) % n == 0:
            optimizer.step()
            optimizer.zero_grad()


def skips(model, loader, optimizer, n) -> None:
    for i, batch in enumerate(loader):
        (model(batch).mean() / n).backward()
        if (i + 1) % n != 0:
            continue
        optimizer.step()
        optimizer.zero_grad()


def reports(model, loader, optimizer, log) -> None:
    for i, batch in enumerate(loader):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        if i % 10 == 0:
            log(i)
