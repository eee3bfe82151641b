"""A rank with a GPU that is none, as nccl_stand_in.py has it, for world.bandwidth: what that asks
CUDA for as well is answered, and what moves moves over Gloo between CPUs."""

from __future__ import annotations

from typing import Any

from support import nccl_stand_in


def perform(args: Any, channel: Any, preloaded: Any, free: int = 70 << 30) -> Any:
    import torch

    torch.cuda.is_available = lambda: True
    torch.cuda.mem_get_info = lambda _: (free, 80 << 30)  # type: ignore[assignment,misc]
    torch.cuda.get_device_name = lambda _: "NVIDIA H100 80GB HBM3"  # type: ignore[assignment,misc]
    if args["context"].get("options", {}).get("small"):
        from preflight.checks import world_bandwidth

        # two CPUs add up no gigabytes
        sizes = tuple(s for s in world_bandwidth.SIZES["nccl"] if s <= 16 << 20)
        world_bandwidth.SIZES["nccl"] = sizes
        world_bandwidth.MOST["nccl"] = 4 << 20
    return nccl_stand_in.perform(args, channel, preloaded)


def crowded(args: Any, channel: Any, preloaded: Any) -> Any:
    """With a GPU that another program fills."""
    return perform(args, channel, preloaded, free=1 << 30)


def broken(args: Any, channel: Any, preloaded: Any) -> Any:
    """With a CUDA that does not start on rank 1."""
    import torch

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: system not yet initialized")

    if args["context"]["rank"] == 1:
        torch.zeros = fails  # type: ignore[assignment]
    return perform(args, channel, preloaded)
