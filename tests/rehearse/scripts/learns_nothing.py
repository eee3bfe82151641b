"""The second model learns nothing: `detached` its output has no part in the loss, `another` the
optimizer has the parameters of a copy, `small` bfloat16 rounds each update to 0, `evaluates` it
stays in eval mode after validation; without an argument it is healthy"""

import copy
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


def main() -> None:
    dist.init_process_group("gloo")
    first = DistributedDataParallel(torch.nn.Linear(16, 8))
    plain = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Dropout(0.1))
    with torch.no_grad():
        plain[0].weight.fill_(0.5)
        plain[0].bias.fill_(0.5)
    if HOW == "small":
        plain = plain.bfloat16()
    second = DistributedDataParallel(plain)  # <- here
    trained = copy.deepcopy(plain) if HOW == "another" else second
    parameters = [*first.parameters(), *trained.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5 if HOW == "small" else 1e-2, weight_decay=0)
    for step in range(60):
        batch = torch.randn(8, 16)
        other = second(batch.bfloat16() if HOW == "small" else batch).float()
        other = other.detach() if HOW == "detached" else other
        optimizer.zero_grad()
        (first(batch) - other).pow(2).mean().backward()
        optimizer.step()
        if step % 10 == 9:
            second.eval()
            with torch.no_grad():
                second.module(torch.randn(8, 16, dtype=plain[0].weight.dtype))
            if HOW != "evaluates":
                second.train()
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
