"""Two models, two optimizers, in turns; each has its own reducer."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
generator = DistributedDataParallel(torch.nn.Linear(8, 16))
critic = DistributedDataParallel(torch.nn.Linear(16, 1))
adam_g = torch.optim.Adam(generator.parameters())
adam_c = torch.optim.Adam(critic.parameters())
for step in range(120):
    with torch.no_grad():
        made = generator(torch.randn(4, 8))
    adam_c.zero_grad()
    (critic(made).mean() - critic.module(torch.randn(4, 16)).mean()).backward()
    adam_c.step()
    if step % 5 == 4:
        adam_g.zero_grad()
        (-critic.module(generator(torch.randn(4, 8))).mean()).backward()
        adam_g.step()
dist.destroy_process_group()
