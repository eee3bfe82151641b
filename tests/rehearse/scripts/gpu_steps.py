"""Steps on the CPU, and a stand-in for torch.cuda that says which of the lab's GPUs they are on:
rank 0 uses GPU 3, and so on."""

import sys
import time

import gpu_tensors
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

MODE = sys.argv[1]


class Samples(Dataset):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 800

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.randn(16)


def report(loss: torch.Tensor, step: int, rank: int) -> None:
    if MODE == "item" or (MODE == "item-seldom" and step % 25 == 0):
        loss.item()  # <- here
    if MODE == "float":
        float(loss)  # <- here
    if MODE == "test" and loss > 1e6:  # <- or here
        raise SystemExit("diverged")
    if MODE == "synchronize" and rank == 1:
        torch.cuda.synchronize()  # <- here
    if MODE == "prints" and rank == 0:
        print(loss)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gpu_tensors.use(3 - rank, (70 if MODE == "memory" and rank == 2 else 30) << 30)
    gpu_tensors.wait_as_a_gpu_would(MODE.partition("-")[0])
    # of a step of 80 ms these are 56 more for a batch, and 96
    seconds = {"starves": 0.007 if rank == 0 else 0.0, "starves-all": 0.012}.get(MODE, 0.0)
    model = DDP(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(DataLoader(Samples(seconds), batch_size=8)):
        loss = model(batch).mean()
        time.sleep(0.08)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        report(loss, step, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
