"""Rank 0 waits for a program that it has started: `computes`, below a shell, `downloads` or
`unpacks`, which takes its time at files; the others are at the barrier. `trained`: all of them have
made some steps before."""

import subprocess
import sys
import time

import elsewhere
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

COMPUTES = "sum(i * i for _ in range(3) for i in range(25_000_000))"
DOWNLOADS = """
import sys, time, urllib.request
for _ in range(7):
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/part").read()
"""
UNPACKS = """
import sys, tempfile, time
with tempfile.TemporaryFile() as file:
    for _ in range(140):
        file.write(bytes(1 << 17))
        time.sleep(0.1)
"""


def work(how: str) -> None:
    python = [sys.executable, "-I", "-c"]
    if how == "computes":
        shell = f'"{sys.executable}" -I -c "{COMPUTES}"; true'
        subprocess.run(["sh", "-c", shell], check=True)
    elif how == "downloads":
        subprocess.run([*python, DOWNLOADS, str(elsewhere.serve("answers", 2.0))], check=True)
    else:
        subprocess.run([*python, UNPACKS], check=True)


def train() -> None:
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        time.sleep(0.02)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if "trained" in sys.argv:
        train()
    if dist.get_rank() == 0:
        work(sys.argv[1])
    dist.barrier()
    dist.destroy_process_group()
