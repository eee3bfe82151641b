"""All ranks evaluate, the first one tells."""

import torchvision
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader) -> float:
    return sum(model(x).sum().item() for x in loader)


def main(val_loader, rank) -> None:
    model = DDP(torchvision.models.resnet18())
    loss = evaluate(model, val_loader)
    if rank == 0:
        print(loss)


def sharded(net, rank, save) -> None:
    model = FSDP(net)
    state = model.state_dict()
    if rank == 0:
        save(state)
