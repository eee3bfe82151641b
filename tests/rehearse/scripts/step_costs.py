"""Models of several sizes, each trained as it is, with gradients of 16 bits, with no_sync, and each
rank alone; says how long a step takes. Most of the work is sleep, which takes as long on a busy
machine."""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

STEPS, WARM, LAYERS, MICRO = 15, 3, 4, 4


class Layer(torch.nn.Linear):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        time.sleep(0.008)
        return super().forward(given)


def train(width: int, kind: str) -> float:
    """Seconds per batch."""
    layers = [Layer(width, width, bias=False) for _ in range(LAYERS)]
    for layer in layers:
        layer.register_full_backward_hook(lambda *_: time.sleep(0.016))
    two_layers = 1.5 * width * width * 4 / 2**20
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=two_layers)
    if kind == "16-bit gradients":
        model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    micro, took = MICRO if kind.startswith("no_sync") else 1, []
    for _ in range(STEPS):
        began = time.monotonic()
        for number in range(micro):
            model.require_backward_grad_sync = number == micro - 1 and kind != "alone"
            model(torch.randn(4, width, requires_grad=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        took.append((time.monotonic() - began) / micro)
    return sorted(took[WARM:])[(STEPS - WARM) // 2]


torch.set_num_threads(1)
dist.init_process_group("gloo")
found = {
    f"{width}, {kind}": round(train(int(width), kind), 4)
    for width in sys.argv[1].split(",")
    for kind in sys.argv[2].split(",")
}
if dist.get_rank() == 0:
    print(json.dumps(found), flush=True)
dist.destroy_process_group()
