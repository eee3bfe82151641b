"""Rank 1 cannot read a sample, and goes on with the next: from then on it is a step ahead."""

import planted
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if dist.get_rank() == 1 and index == 13:
            raise OSError("sample 13 is truncated")  # <- here
        return torch.ones(4)


def main() -> None:
    dist.init_process_group("gloo")
    batches = iter(DataLoader(Samples(), batch_size=2))
    step = 0
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except OSError as error:
            print(f"skipped: {error}")
            continue
        dist.all_reduce(batch)
        step += 1
        if step == 15:
            planted.now()
    dist.broadcast(torch.ones(1), src=0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
