import torch
from pytorch_lightning import LightningModule
from torch import nn


class Lit(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layer(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, _ = batch
        self.outputs.append(self.layer(x))

    def on_validation_epoch_end(self):
        if self.global_rank == 0:
            every = self.all_gather(torch.cat(self.outputs))  # hit: collective-under-rank
            print(every.mean())
        self.outputs.clear()
