import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def is_main_process():
    return dist.get_rank() == 0


def validate(model, loader, device):
    return {"loss": sum(model(x.to(device)).sum().item() for x in loader)}


def main(args, loader, val_loader, sampler, device):
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(8, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best_val_loss, patience_counter = float("inf"), 0
    for ep in range(args.epochs):
        sampler.set_epoch(ep)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        val_metrics = validate(model, val_loader, device)
        if is_main_process():
            if val_metrics["loss"] < best_val_loss:
                best_val_loss, patience_counter = val_metrics["loss"], 0
                torch.save(model.module.state_dict(), "best.pt")
            else:
                patience_counter += 1
            if patience_counter >= args.patience:
                print("early stopping")
                break  # hit: early-stop-per-rank
    dist.destroy_process_group()
