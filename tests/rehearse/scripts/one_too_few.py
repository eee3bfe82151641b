"""Starts two ranks of a job of three, as a shell script with a wrong number would."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import planted

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
job = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
script = Path(__file__).with_name("ddp.py")
ranks = [
    subprocess.Popen([sys.executable, str(script)], env=os.environ | job | {"RANK": str(rank)})
    for rank in range(2)
]
planted.now()
sys.exit(max(rank.wait() for rank in ranks))
