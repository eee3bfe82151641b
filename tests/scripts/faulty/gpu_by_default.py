# started by: torchrun --nproc-per-node=4 train.py
"""Whoever has not chosen a GPU gets one."""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # hit: launcher-contradicted
