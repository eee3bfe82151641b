"""Rank 0 waits for its GPU, as it looks from outside: the host asks it again and again in native
code, at a line that needs a value. Rank 1 waits for a lock. There is no GPU: what stands for the
driver's library is an empty file of its name.

    python waits_for_gpu.py [both]      both: rank 1 waits for its GPU, too
"""

import itertools
import mmap
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from types import SimpleNamespace

import planted
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "libcuda.so.1"), "w+b") as driver:
    driver.truncate(4096)
    library = mmap.mmap(driver.fileno(), 4096)
shutil.rmtree(folder)
loss = SimpleNamespace(item=partial(sum, itertools.repeat(0)))
dist.barrier()
planted.now()
if rank == 0 or sys.argv[1:] == ["both"]:
    print(loss.item())
while not os.path.exists("/nonexistent/lock"):
    time.sleep(0.3)
