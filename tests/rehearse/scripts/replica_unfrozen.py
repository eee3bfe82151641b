"""A frozen embedding is trained from step 10 on, or the last layer is `replaced` then: DDP, built
before, sums no gradient of it."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.EmbeddingBag(50, 12)
        self.tags = torch.nn.Linear(12, 5)
        self.words.weight.requires_grad_(False)

    def forward(self, tokens):
        return self.tags(self.words(tokens))


dist.init_process_group("gloo")
how = (sys.argv[1:] or ["late"])[0]
torch.manual_seed(4)
tagger = Tagger()
ddp = DDP(tagger)  # <- here
optimizer = torch.optim.AdamW(tagger.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank())
for step in range(40):
    if step == 10 and how != "never":
        planted.now()
        if how.startswith("replaced"):
            tagger.tags = torch.nn.Linear(12, 5)
            optimizer = torch.optim.AdamW(tagger.parameters(), lr=1e-2)
        else:
            tagger.words.weight.requires_grad_(True)
        ddp = DDP(tagger) if how.endswith("wrapped-again") else ddp
    tokens = torch.randint(50, (16, 7))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(ddp(tokens), tokens[:, 0] % 5).backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
