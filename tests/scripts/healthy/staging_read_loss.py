"""One pinned buffer, in a loop that reads its loss in each step and so waits for the copy."""

import torch


def train(model, optimizer, loader) -> float:
    stage, total = torch.empty(64, 128).pin_memory(), 0.0
    for rows in loader:
        stage[:] = rows
        loss = model(stage.to("cuda", non_blocking=True)).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
