"""datasets shards itself."""

import torch
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset

rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
data = split_dataset_by_node(load_dataset("x", split="train"), rank, world_size)
loader = DataLoader(Subset(data, range(10)), batch_size=8)
model = DDP(torch.nn.Linear(1, 1))
for batch in loader:
    model(batch)
