"""FSDP: the state dict is gathered by all ranks, and rank 0 writes it."""

import functools
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.utils.data.distributed import DistributedSampler


def train(model, rank: int, loader, optimizer, epoch: int, sampler=None) -> None:
    total = torch.zeros(2).to(rank)
    if sampler:
        sampler.set_epoch(epoch)
    for data, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(model(data.to(rank)), target.to(rank))
        loss.backward()
        optimizer.step()
        total[0] += loss.item()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(epoch, total[0] / total[1])


def main(rank: int, world_size: int, data) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    sampler = DistributedSampler(data, rank=rank, num_replicas=world_size, shuffle=True)
    loader = torch.utils.data.DataLoader(data, sampler=sampler)
    wrap = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    model = FSDP(torch.nn.Linear(2, 2).to(rank), auto_wrap_policy=wrap)
    for epoch in range(2):
        train(model, rank, loader, torch.optim.SGD(model.parameters(), 0.1), epoch, sampler)
    whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
        state = model.state_dict()
    dist.barrier()
    if rank == 0:
        torch.save(state, "model.pt")
    dist.destroy_process_group()
