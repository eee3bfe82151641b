"""GPUs that are none, for the workers of a whole run: a Python with this folder on its PYTHONPATH
reads this at start, and FAKE_CUDA says what the GPUs are like (fake_cuda.py)."""

import os
import sys


def _after_fork():
    """preflight forks its workers from a process that has torch loaded."""
    if "torch" in sys.modules:
        import fake_cuda

        fake_cuda.install()


if "FAKE_CUDA" in os.environ:
    os.register_at_fork(after_in_child=_after_fork)
