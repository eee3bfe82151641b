# started by: torchrun --nproc-per-node=4 train.py
"""Whoever has not chosen GPUs gets all."""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
os.environ.update(OMP_NUM_THREADS="1")
