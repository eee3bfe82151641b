# started by: torchrun --nproc-per-node=2 train.py
"""Lightning is told of four devices, torchrun starts two ranks."""

import lightning as L

trainer = L.Trainer(accelerator="gpu", devices=4, strategy="ddp")  # hit: launcher-contradicted
