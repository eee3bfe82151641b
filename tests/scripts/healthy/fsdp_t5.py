import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import T5ForConditionalGeneration


def validation(model, rank, world_size, val_loader):
    model.eval()
    local_rank = int(os.environ["LOCAL_RANK"])
    fsdp_loss = torch.zeros(2).to(local_rank)
    with torch.no_grad():
        for batch in val_loader:
            for key in batch:
                batch[key] = batch[key].to(local_rank)
            fsdp_loss[0] += model(**batch)["loss"].item()
            fsdp_loss[1] += len(batch)
    dist.all_reduce(fsdp_loss, op=dist.ReduceOp.SUM)
    val_loss = fsdp_loss[0] / fsdp_loss[1]
    if rank == 0:
        print(f"Validation Loss: {val_loss:.4f}")
    return val_loss


def fsdp_main(args, train_set, val_set):
    local_rank = int(os.environ["LOCAL_RANK"])
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    sampler1 = DistributedSampler(train_set, rank=rank, num_replicas=world_size, shuffle=True)
    sampler2 = DistributedSampler(val_set, rank=rank, num_replicas=world_size)
    train_loader = DataLoader(train_set, sampler=sampler1)
    val_loader = DataLoader(val_set, sampler=sampler2)
    model = FSDP(T5ForConditionalGeneration.from_pretrained("t5-base"), device_id=local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    best_val_loss = float("inf")
    for epoch in range(1, args.epochs + 1):
        sampler1.set_epoch(epoch)
        for batch in train_loader:
            for key in batch:
                batch[key] = batch[key].to(local_rank)
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
        curr_val_loss = validation(model, rank, world_size, val_loader)
        if args.save_model and curr_val_loss < best_val_loss:
            save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
                cpu_state = model.state_dict()
            if rank == 0:
                torch.save(cpu_state, f"model-{epoch}.pt")
        best_val_loss = min(curr_val_loss, best_val_loss)
    dist.barrier()
    dist.destroy_process_group()
