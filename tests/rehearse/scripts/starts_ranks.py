"""A launcher of one's own, as DeepSpeed's: a subprocess for each rank, told who it is by variables
and by its last argument."""

import os
import socket
import subprocess
import sys

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
ranks = [
    subprocess.Popen(
        [sys.executable, "-u", *sys.argv[1:], f"--local_rank={rank}"],
        env=os.environ | job | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
    )
    for rank in range(2)
]
sys.exit(max(abs(rank.wait()) for rank in ranks))
