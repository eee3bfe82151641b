"""The sitecustomize of a job whose torch says that it is another build: OTHER_TORCH has its version
and that of CUDA, and what it has code for, with semicolons between them (torch_builds.py)."""

import os
import sys


def _after_fork():
    """preflight forks its workers from a process that has torch loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "version"):
        return
    version, torch.version.cuda, code = os.environ["OTHER_TORCH"].split(";")
    torch.version.__version__ = torch.__version__ = version
    torch._C._cuda_getArchFlags = lambda: code
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None:
        distributed.is_nccl_available = lambda: True


if "OTHER_TORCH" in os.environ:
    os.register_at_fork(after_in_child=_after_fork)
