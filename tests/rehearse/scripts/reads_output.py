"""Rank 0 reads what a program says, a line a second, as of ssh or of a queue, and the others are at
the barrier."""

import subprocess
import sys

import torch.distributed as dist

SAYS = "import time\nfor n in range(int(%s)): print(n, flush=True); time.sleep(1)"

if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        command = [sys.executable, "-I", "-c", SAYS % sys.argv[1]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            lines = list(program.stdout)
        assert len(lines) == int(sys.argv[1])
    dist.barrier()
    dist.destroy_process_group()
