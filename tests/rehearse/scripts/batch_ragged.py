"""Lengths that vary by chance on all ranks, a smaller last batch, and an evaluation on rank 0 with
batches of its own: nothing is uneven."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
pad = torch.nn.utils.rnn.pad_sequence
texts = [torch.ones(int(n), 4) for n in torch.randint(8, 200, (300,))]
loader = DataLoader(texts, 8, shuffle=True, collate_fn=lambda many: pad(many, batch_first=True))
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for batch in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        with torch.no_grad():
            for batch in DataLoader(torch.ones(640, 64), 64):
                model.module(batch[:, :4])
    dist.barrier()
dist.destroy_process_group()
