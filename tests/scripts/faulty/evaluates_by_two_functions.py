import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import BertModel


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


@torch.no_grad()
def predict(model, loader, device):
    model.eval()
    return [model(**{k: v.to(device) for k, v in batch.items()}) for batch in loader]


@torch.no_grad()
def eval_rmse_on_dev(model, loader, device):
    found = predict(model, loader, device)
    return math.sqrt(sum(one.sum().item() for one in found))


def run(train_loader, val_loader, train_sampler, local_rank):
    device = torch.device("cuda", local_rank)
    net = BertModel.from_pretrained("bert-base-uncased").to(device)
    model = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for ep in range(1, 4):
        train_sampler.set_epoch(ep)
        model.train()
        for batch in train_loader:
            loss = model(**{k: v.to(device) for k, v in batch.items()}).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if is_main_process():
            rmse = eval_rmse_on_dev(model, val_loader, device)  # hit: wrapped-under-rank
            print(f"epoch {ep}: {rmse:.4f}")
