# started by: python train.py
"""Lightning or torch.multiprocessing starts the ranks: no torchrun."""

import lightning as L
import torch.multiprocessing as mp

L.Trainer(devices=4)
mp.spawn(print, nprocs=4)
