"""The fork servers that a run starts with."""

from __future__ import annotations

from preflight.isolate import Workers

LIGHT, TORCH = "light", "torch"

TORCH_MODULES = ("torch", "torch.distributed")
TORCH_SECONDS = 60.0
# NumPy's OpenBLAS would start a thread a core in the process that is to be forked
TORCH_ENV = {"OPENBLAS_NUM_THREADS": "1"}


def open_light(workers: Workers) -> None:
    """The server of the checks that need no torch: a fork of this very process, with all that it
    has imported by now."""
    if not workers.opened(LIGHT):
        workers.fork(LIGHT)


def open_torch(workers: Workers) -> None:
    """The server that imports torch, beside everything else: begin it early."""
    if not workers.opened(TORCH):
        workers.open(TORCH, preload=TORCH_MODULES, env=TORCH_ENV, seconds=TORCH_SECONDS)
