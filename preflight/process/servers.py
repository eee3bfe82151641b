"""The fork servers that a run starts with."""

from __future__ import annotations

from pathlib import Path

from preflight.process import scratch
from preflight.process.interpreter import SEARCH
from preflight.process.pool import Workers

LIGHT, TORCH = "light", "torch"

TORCH_MODULES = ("torch", "torch.distributed")
TORCH_SECONDS = 60.0
RANKS = ("rdzv", "world")
"""The groups of checks in which every rank is a process of its own."""
# NumPy's OpenBLAS would start a thread a core in the process that is to be forked
TORCH_ENV = {"OPENBLAS_NUM_THREADS": "1"}


def open_light(workers: Workers) -> None:
    """The server of the checks that need no torch: a fork of this very process, with all that it
    has imported by now."""
    if not workers.opened(LIGHT):
        workers.fork(LIGHT)


def open_torch(workers: Workers, python: str = "") -> None:
    """The server that imports torch, beside everything else: begin it early. It also loads what
    every rank's fork would load again: the checks that all ranks run together. `python` is the
    job's interpreter, where somebody says it."""
    if not workers.opened(TORCH):
        checks = Path(__file__).parent.parent / "checks"
        ours = sorted(path.stem for group in RANKS for path in checks.glob(f"{group}_*.py"))
        modules = ("preflight.engine.tasks", *(f"preflight.checks.{name}" for name in ours))
        preload = (*TORCH_MODULES, *modules)
        folder = scratch.name()
        env = {**TORCH_ENV, scratch.VARIABLE: folder}
        workers.open(
            TORCH, preload=preload, env=env, seconds=TORCH_SECONDS, python=python or SEARCH
        )
        # one that is killed at its imports can't do it itself
        workers.afterwards(LIGHT, scratch.remove, folder)
