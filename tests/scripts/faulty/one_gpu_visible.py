# started by: torchrun --nproc-per-node=4 train.py
"""Four ranks, and one GPU that they may see."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # hit: launcher-contradicted
