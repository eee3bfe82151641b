"""A rank with a GPU and an NCCL that are none: torch's CPU adds up the numbers over Gloo, and what
NCCL would log is played back from a capture (STAND_IN_LOG) to where NCCL was told to log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from preflight.engine import tasks


def perform(args: Any, channel: Any, preloaded: Any) -> Any:
    """The observer, after torch has been given the GPU."""
    import torch
    import torch.distributed as dist

    real, connect = torch.device, dist.init_process_group

    class Named(type):
        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, real)

    class Device(metaclass=Named):
        def __new__(cls, *_: Any) -> Any:
            return real("cpu")

    def init_process_group(backend: str, *, device_id: Any, **named: Any) -> None:
        assert backend == "nccl"
        assert device_id is not None
        log()
        connect("gloo", **named)

    torch.device = Device  # type: ignore[misc,assignment]
    torch.cuda.init = lambda: None
    torch.cuda.device_count = lambda: 8
    torch.cuda.set_device = lambda _: None
    torch.cuda.nccl.version = lambda: (2, 26, 0)
    dist.is_nccl_available = lambda: True
    dist.init_process_group = init_process_group
    return tasks.perform(args, channel, preloaded)


def log() -> None:
    """As src/debug.cc does it: opened once and emptied, every line at once. The file stays open."""
    if os.environ["NCCL_DEBUG"] == "INFO" and "NET" in os.environ["NCCL_DEBUG_SUBSYS"]:
        file = open(os.environ["NCCL_DEBUG_FILE"], "w", buffering=1)  # noqa: SIM115
        file.write(Path(os.environ["STAND_IN_LOG"]).read_text())
        _open.append(file)


_open: list[Any] = []
