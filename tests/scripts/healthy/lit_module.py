import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from torch import nn


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train/loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self.net(x)
        self.outputs.append(out)
        self.log("val/loss", nn.functional.cross_entropy(out, y), sync_dist=True)
        if self.global_rank == 0:
            self.log("val/first", out.mean(), rank_zero_only=True)

    def on_validation_epoch_end(self):
        every = self.all_gather(torch.cat(self.outputs))
        if self.trainer.is_global_zero:
            self.print_table(every)
        self.outputs.clear()

    @rank_zero_only
    def print_table(self, every):
        print(every.mean().item())


trainer = L.Trainer(devices="auto", callbacks=[EarlyStopping("val/loss"), ModelCheckpoint()])
trainer.fit(Lit(), torch.load("loader.pt"))
