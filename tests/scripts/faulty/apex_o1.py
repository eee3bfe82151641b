"""apex's amp, which has had no release for years."""

from apex import amp


def build(model, optimizer):
    model, optimizer = amp.initialize(model.cuda(), optimizer, opt_level="O1")  # hit: apex-amp
    return model, optimizer


def step(loss, optimizer) -> None:
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
