"""Data that is sorted by length, and split in one piece per rank: the last one has the longest."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
texts = [torch.ones(8 + n // 8, 4) for n in range(320 * world)]
mine = texts[320 * rank : 320 * (rank + 1)]
pad = torch.nn.utils.rnn.pad_sequence
loader = DataLoader(mine, 8, shuffle=True, collate_fn=lambda many: pad(many, batch_first=True))
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
