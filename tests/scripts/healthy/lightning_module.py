"""Lightning shards the data and places the processes."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(L.LightningModule):
    def training_step(self, batch, index: int):
        loss = self.layer(batch).sum()
        if self.trainer.is_global_zero:
            print(index)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.rand(8, 2)), batch_size=2, shuffle=True)
    L.Trainer(devices=4, strategy="ddp", accumulate_grad_batches=4).fit(Module(), loader)
