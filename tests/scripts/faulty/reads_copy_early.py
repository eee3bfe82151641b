"""Predictions that are read before they have come to the CPU."""

import numpy as np


def evaluate(model, loader, scores) -> None:
    for batch in loader:
        found = model(batch.cuda()).argmax(1).to("cpu", non_blocking=True)  # hit: copy-not-awaited
        scores.append(np.mean(found))
