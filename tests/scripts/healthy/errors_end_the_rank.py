"""Errors are told and end the rank, or end the loop, or are those of the data."""

import logging
import sys

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def told(net, loader, optimizer) -> None:
    model = DDP(net)
    for batch in loader:
        try:
            model(batch).mean().backward()
            optimizer.step()
        except RuntimeError:
            logging.exception("a step failed")
            raise


def left(tensors) -> None:
    for tensor in tensors:
        try:
            dist.all_reduce(tensor)
        except Exception as error:
            print(error)
            sys.exit(1)


def data(loader, model, optimizer) -> None:
    for path in loader:
        try:
            batch = path.read()
        except Exception:
            batch = b""
        model(batch).backward()
        optimizer.step()


def narrow(tensors) -> None:
    for tensor in tensors:
        try:
            dist.all_reduce(tensor)
        except KeyboardInterrupt:
            break


def at_the_end() -> None:
    try:
        dist.barrier()
    except Exception:
        pass
