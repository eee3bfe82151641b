"""What stands behind `preflight gate`: the first thing that it does is on the GPU."""

import torch

print("sum", torch.ones(8, device="cuda").sum().item(), flush=True)
