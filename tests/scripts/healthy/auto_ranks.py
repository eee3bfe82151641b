# started by: torchrun --nproc-per-node=gpu train.py
"""torchrun counts the GPUs itself."""

import lightning as L

L.Trainer(devices=8)
