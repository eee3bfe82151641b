"""A critic in each batch, a generator in every fifth: two optimizers."""


def train(generator, critic, loader, opt_g, opt_d, n_critic) -> None:
    for i, real in enumerate(loader):
        opt_d.zero_grad()
        opt_g.zero_grad()
        loss = critic(generator(real)).mean() - critic(real).mean()
        loss.backward()
        opt_d.step()
        if i % n_critic == 0:
            fake = -critic(generator(real)).mean()
            fake.backward()
            opt_g.step()
