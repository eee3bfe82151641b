"""Whether the job is given GPUs: then READY means that they were tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from preflight.domains.gpu import nvml
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable


@contextmanager
def undecided_where_given(host: Host) -> Iterator[None]:
    """Where this job is given GPUs, a check of them that has nothing to look at is no answer: it
    could not look. Who wants a try on the CPU says so by CUDA_VISIBLE_DEVICES."""
    try:
        yield
    except NotApplicable as why:
        if not nvidia_gpus_given(host):
            raise
        raise CannotObserve(f"{why}, but the job is given GPUs") from None


def nvidia_gpus_given(host: Host) -> int:
    """How many of NVIDIA's this process may open, where no mask hides them all."""
    if nvml.all_hidden(host.environ):
        return 0
    files = (name for name in host.gpu_files() if name.startswith("/dev/nvidia"))
    return sum(not host.refused(name) for name in files)
