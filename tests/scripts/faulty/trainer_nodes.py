# started by: torchrun --nnodes 2 --nproc_per_node 8 train.py
"""Two nodes for torchrun, one for Lightning."""

import pytorch_lightning as pl


def main(model) -> None:
    trainer = pl.Trainer(devices=8, strategy="ddp")  # hit: launcher-contradicted
    trainer.fit(model)
