"""Two models, two optimizers that step in turn: no accumulation."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(generator, critic, loader, g_opt, d_opt, n_critic: int) -> None:
    generator, critic = DDP(generator), DDP(critic, broadcast_buffers=False)
    for step, (real,) in enumerate(loader):
        fake = generator(torch.randn(real.shape[0], 8))
        d_loss = (critic(fake.detach()).mean() - critic(real).mean()) / 2
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        if step % n_critic == 0:
            g_opt.zero_grad()
            (-critic(fake).mean()).backward()
            g_opt.step()
