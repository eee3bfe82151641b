import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM, AutoTokenizer


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(name, loader):
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = FSDP(AutoModelForCausalLM.from_pretrained(name), device_id=local_rank)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, loader, optimizer)
    if local_rank == 0:
        ids = tokenizer("Once upon", return_tensors="pt").input_ids.cuda()
        out = model.generate(ids, max_new_tokens=20)  # hit: wrapped-under-rank
        print(tokenizer.decode(out[0]))
    dist.destroy_process_group()
