"""Needs what the user's own sitecustomize has set."""

import os

import torch
import torch.distributed as dist

if os.environ.get("OWN_SITE") != "was here":
    raise SystemExit("the own sitecustomize has not run")
dist.init_process_group("gloo")
for _ in range(50):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
