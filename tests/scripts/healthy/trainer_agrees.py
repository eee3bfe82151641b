# started by: torchrun --nnodes=2 --nproc-per-node=4 train.py
"""As many as torchrun starts, or what it finds."""

import os

import lightning as L

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"


def main(args, model) -> None:
    L.Trainer(devices=4, num_nodes=2).fit(model)
    L.Trainer(devices="auto", num_nodes=2).fit(model)
    L.Trainer(devices=args.devices, num_nodes=args.nodes).fit(model)
    L.Trainer(devices=-1, num_nodes=2).fit(model)
