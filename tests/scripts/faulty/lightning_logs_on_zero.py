import lightning as L
import torch
from torch import nn


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.layer(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layer(x), y)
        if self.trainer.is_global_zero:
            self.log("val/loss", loss, sync_dist=True)  # hit: collective-under-rank


trainer = L.Trainer(devices="auto", strategy="ddp")
trainer.fit(Lit(), torch.load("loader.pt"))
