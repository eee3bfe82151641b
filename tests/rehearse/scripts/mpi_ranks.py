"""Ranks that only mpirun has numbered, by Open MPI's variables or by those of MPICH and Intel MPI,
with what scripts make of them: RANK and WORLD_SIZE, or arguments of init_process_group."""

import os
import sys
import time

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MODE, PORT = sys.argv[1:3]
KINDS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
names = next(names for names in KINDS if names[0] in os.environ)
rank, world, local = (int(os.environ[name]) for name in names)
address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT}


def train() -> None:
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        if MODE == "raises" and rank == 1 and step == 10:
            planted.now()
            raise ValueError("no such label: 17")  # <- here
        model(torch.randn(4, 8)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if MODE == "given":
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=world
    )
else:
    os.environ.update(address, RANK=str(rank), WORLD_SIZE=str(world))
    if MODE == "size":  # what the job's file says, and not what mpirun has started
        os.environ["WORLD_SIZE"] = str(world + 1)
        planted.now()
    if MODE == "local":  # every node counts from 0
        os.environ["RANK"] = str(local)
    if MODE == "same":
        os.environ["RANK"] = "0"
        planted.now()
    if MODE == "late" and rank == 1:
        planted.now()
        time.sleep(600)  # <- here
    if MODE == "mpi":
        planted.now()
    dist.init_process_group("mpi" if MODE == "mpi" else "gloo")  # <- or here
train()
dist.destroy_process_group()
