"""torch's accelerators, as the checks that compute on them see them.

`torch.cuda` also serves AMD's GPUs, in torch built for ROCm. torch is imported inside the
functions; using a device starts CUDA or HIP and may hang: only in a worker.
"""

from __future__ import annotations

from typing import Any

from preflight.check import Context
from preflight.frozen import dataclass
from preflight.model import NotApplicable


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one kind that this process sees. `module` is torch.cuda or what answers like
    it; `kind` is the name under which torch.device knows them."""

    module: Any
    kind: str = "cuda"

    @property
    def count(self) -> int:
        return int(self.module.device_count())

    def at(self, index: int) -> Any:
        """The torch.device of one of them."""
        import torch

        return torch.device(self.kind, index)

    def name(self, index: int) -> str:
        return str(self.module.get_device_name(index))[:100]

    def about(self, index: int) -> Any:
        """Its properties; which of them there are depends on torch's version."""
        return self.module.get_device_properties(index)

    def has_bf16(self, index: int) -> bool:
        """Whether it computes with bfloat16 itself: NVIDIA's from Ampere on, and all of AMD's that
        torch supports. Others only imitate it."""
        import torch

        return bool(torch.version.hip) or int(self.about(index).major) >= 8

    def start(self, index: int) -> None:
        """Make it this process's device and start it, which takes seconds."""
        import torch

        self.module.set_device(index)
        torch.zeros(1, device=self.at(index))
        self.wait(index)

    def wait(self, index: int) -> None:
        """Until all that was asked of a device is done; errors of kernels come out here."""
        self.module.synchronize(index)

    def free(self, index: int) -> int:
        """Bytes of its memory that nobody has taken."""
        return int(self.module.mem_get_info(index)[0])


def torch_gpus() -> Devices:
    """The GPUs of this machine that torch sees."""
    import torch

    if not torch.cuda.is_available():
        raise NotApplicable("torch sees no GPU here")
    return Devices(torch.cuda)


def own_gpu(ctx: Context, count: int) -> int | None:
    """The number of this rank's GPU where `count` are visible; None: there are fewer than ranks. A
    launcher that starts a process per rank may show each of them its own one only."""
    if count >= ctx.local_world_size:
        return ctx.local_rank
    alone = ctx.topology.ranks_of(ctx.node) == (ctx.rank,)
    return 0 if count == 1 and alone else None
