"""A bare except around the whole step, as for data that is broken."""

from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, optimizer, logger) -> None:
        self.model = DistributedDataParallel(net)
        self.optimizer, self.logger = optimizer, logger

    def train(self, loader) -> None:
        for batch in loader:
            try:
                loss = self.model(**batch)["loss"]
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            except BaseException:  # hit: collective-swallowed
                self.logger.warning("a bad batch")
