import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2LMHeadModel


def generate_text(model, tokenizer, prompts, device, rank=0):
    if rank != 0:
        return
    model.eval()
    with torch.no_grad():
        for prompt in prompts:
            ids = tokenizer.encode(prompt, return_tensors="pt").to(device)
            print(model.module.generate(ids, max_length=20))


def _get_base_model(model):
    return model.module if hasattr(model, "module") else model


def print_sample(model, tokenizer, device, context, rank):
    if rank != 0:
        return
    model.eval()
    base = _get_base_model(model)
    with torch.no_grad():
        print(base(tokenizer.encode(context, return_tensors="pt").to(device)))
    model.train()


def main(loader, tokenizer):
    dist.init_process_group("nccl")
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    model = DDP(GPT2LMHeadModel.from_pretrained("gpt2").to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(batch.to(device), labels=batch.to(device)).loss.backward()
            optimizer.step()
        generate_text(model, tokenizer, ["Once"], device, rank)
        print_sample(model, tokenizer, device, "Once", rank)
    dist.destroy_process_group()
