"""All ranks raise in one step, once one of them has no batch left, and go on to the next epoch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(epochs: int, batches: list[torch.Tensor]) -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        try:
            with model.join(throw_on_early_termination=True):
                for batch in batches[dist.get_rank() :]:
                    loss = model(batch).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        except RuntimeError as error:
            if "exhausted" not in str(error):
                raise
            print(f"epoch {epoch}: a rank has no data left")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(3, [torch.ones(4, 8)] * 20)
