"""Predictions that are read once all of them have come to the CPU."""

import numpy as np
import torch


def evaluate(model, loader) -> float:
    found = [model(batch.cuda()).argmax(1).to("cpu", non_blocking=True) for batch in loader]
    torch.cuda.synchronize()
    return float(np.mean(torch.cat(found).numpy()))
