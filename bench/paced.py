"""A healthy script whose steps take 20 ms, most of it asleep: DDP on the CPU. Rank 0 prints the CPU
milliseconds of a step and the memory of a rank after the last, the means over the ranks.

    paced.py [COLLECTIVES [GROUPS]]    so many more broadcasts in each step, each in a group of this
                                       step's own, of which there are so many
"""

import re
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS, STEP, WIDTH, LAYERS = 250, 0.02, 32, 24
COLLECTIVES, GROUPS = (int(given) for given in (*sys.argv[1:], "0", "0")[:2])

torch.set_num_threads(1)
dist.init_process_group("gloo")
layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(STEPS * 8, WIDTH)), batch_size=8)
numbers = torch.zeros(64)
began, due = time.process_time(), time.monotonic()
for (batch,) in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    made = [dist.new_group() for _ in range(GROUPS)] or [dist.group.WORLD]
    for number in range(COLLECTIVES):
        dist.broadcast(numbers, 0, group=made[number % len(made)])
    for group in made[:GROUPS]:
        dist.destroy_process_group(group)
    due = max(due + STEP, time.monotonic())
    time.sleep(max(0.0, due - time.monotonic()))
spent = time.process_time() - began
(memory,) = re.findall(r"^Pss: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
told = torch.tensor([1e3 * spent / STEPS, int(memory) / 1024])
dist.all_reduce(told)
if dist.get_rank() == 0:
    each = told / dist.get_world_size()
    print(f"cpu {each[0].item():.4f} memory {each[1].item():.2f}", flush=True)
dist.destroy_process_group()
