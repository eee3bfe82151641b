"""zero_grad() at the head of each batch, as without accumulation."""


def train(model, loader, optimizer, criterion, accumulation_steps) -> None:
    for i, (images, labels) in enumerate(loader):
        optimizer.zero_grad()  # hit: accumulation-reset
        loss = criterion(model(images), labels) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
