"""Errors that the script expects: caught ones, and a Python child that fails."""

import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(50):
    try:
        torch.ones(3).reshape(2, step + 2)
    except RuntimeError:
        pass
    if step == 20 and dist.get_rank() == 1:
        # no extension to be had: the slow way then; the child has this rank's environment
        probe = "import torch.distributed; raise ImportError('no fused kernels')"
        subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL, check=False)
    dist.all_reduce(torch.ones(8))
dist.destroy_process_group()
