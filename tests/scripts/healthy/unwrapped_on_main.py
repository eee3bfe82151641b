import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18


def is_main_process():
    return dist.get_rank() == 0


def unwrap_model(model):
    return model.module if isinstance(model, DDP) else model


def sync_metrics(metrics):
    box = [metrics]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def evaluate(model, loader, device):
    model.eval()
    with torch.no_grad():
        return sum(model(x.to(device)).sum().item() for x in loader)


def main(loader, val_loader, sampler, local_rank, patience):
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    model = DDP(resnet18().to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())
    best, waited = float("inf"), 0
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x.to(device)).mean().backward()
            optimizer.step()
        if is_main_process():
            metrics = {"val_loss": evaluate(unwrap_model(model), val_loader, device)}
        else:
            metrics = {"val_loss": 0.0}
        metrics = sync_metrics(metrics)
        if metrics["val_loss"] < best:
            best, waited = metrics["val_loss"], 0
        else:
            waited += 1
        if waited >= patience:
            break
    dist.destroy_process_group()
