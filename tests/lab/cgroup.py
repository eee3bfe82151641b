"""A control group with one limit, for what a job finds under SLURM or in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TOP = Path("/sys/fs/cgroup")
PREFIX = "preflight-lab-"

# controller -> the files of its limit under v1 and v2
FILES = {
    "pids": ("pids.max", "pids.max"),
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "cpu": ("cpu.cfs_quota_us", "cpu.max"),
}


def missing(controller: str) -> str:
    """Why no group with such a limit can be made here; empty when one can."""
    parent, v1 = _parent(controller)
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return f"{parent} can't be written: no control group for {controller}"
    if not v1 and controller not in (parent / "cgroup.subtree_control").read_text().split():
        return f"the {controller} controller is not given to groups below {parent}"
    return ""


@contextmanager
def made(limit: tuple[str, str] | None) -> Iterator[Sequence[str]]:
    """A group with this (controller, value); yields what a command is started by to be in it."""
    if limit is None:
        yield ()
        return
    controller, value = limit
    parent, v1 = _parent(controller)
    _sweep(parent)
    folder = parent / f"{PREFIX}{os.getpid()}"
    folder.mkdir()
    try:
        name = FILES[controller][0 if v1 else 1]
        (folder / name).write_text(value)
        yield ("sh", "-c", f'echo 0 > {folder}/cgroup.procs && exec "$@"', "sh")
    finally:
        folder.rmdir()


def _parent(controller: str) -> tuple[Path, bool]:
    """The folder in which groups are made, and whether it is of v1."""
    if (TOP / controller).is_dir():
        return TOP / controller, True
    return TOP, False


def _sweep(parent: Path) -> None:
    """Remove what a test process left that was killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(PREFIX)).exists():
            folder.rmdir()
