# started by: torchrun --nproc-per-node=4 train.py
"""Ranks are started where no launcher has done so."""

import os

import torch.multiprocessing as mp


def main(work) -> None:
    if "LOCAL_RANK" in os.environ:
        work(int(os.environ["LOCAL_RANK"]))
    else:
        mp.spawn(work, nprocs=4)
