"""An EarlyStopping object of each rank's own."""

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


class Trainer:
    def fit(self, net, train_set, val_set, EarlyStopping) -> None:
        self.model = DistributedDataParallel(net)
        self.train_sampler = DistributedSampler(train_set)
        self.val_sampler = DistributedSampler(val_set)
        early_stopping = EarlyStopping(patience=5)
        for epoch in range(1, 50):
            self.train_sampler.set_epoch(epoch)
            early_stopping(self.validate(), self.model)
            if early_stopping.early_stop:
                break  # hit: early-stop-per-rank
