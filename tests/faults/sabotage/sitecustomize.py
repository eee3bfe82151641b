"""One rank of a job goes wrong: a Python with this folder on its PYTHONPATH reads this at start.

    SABOTAGE="2 all_reduce stop"     what rank 2 does when it comes to its first all-reduce

The step is start, rendezvous, init_process_group or all_reduce (of a MiB or more); what it does is
`stop` (SIGSTOP, as by a debugger or a frozen control group), `kill` (SIGKILL, as by the kernel that
is out of memory), `sleep=4`, `raise`, or `corrupt` (one wrong number in the sum).
"""

import os
import signal
import sys
import time

LARGE = 1 << 18
"""Elements of a tensor of one MiB."""


def _sabotaged(step, rank, action):
    def wrapper(*args, **kwargs):
        mine = os.environ.get("RANK") == rank
        if step.__name__ == "all_reduce":
            mine = mine and args[0].numel() >= LARGE
        if mine and action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif mine and action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif mine and action == "raise":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        elif mine and action.startswith("sleep="):
            time.sleep(float(action.partition("=")[2]))
        result = step(*args, **kwargs)
        if mine and action == "corrupt":
            args[0][args[0].numel() // 2] += 1
        return result

    wrapper.__name__ = step.__name__
    return wrapper


def _after_fork():
    """preflight forks its ranks from a process that has torch loaded."""
    rank, name, action = os.environ["SABOTAGE"].split()
    if name == "start":
        _delay(rank, float(action.partition("=")[2]))
        return
    place = "torch.distributed.rendezvous" if name == "rendezvous" else "torch.distributed"
    module = sys.modules.get(place)
    step = getattr(module, name, None)
    if step is not None and step.__module__ != __name__:
        changed = _sabotaged(step, rank, action)
        setattr(module, name, changed)


def _delay(rank, seconds):
    """Which rank it is, the fork is told a moment later: a timer looks."""
    tries = iter(range(50))

    def look(*_):
        if "RANK" not in os.environ and next(tries, None) is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0002)
        elif os.environ.get("RANK") == rank:
            time.sleep(seconds)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.0002)


if "SABOTAGE" in os.environ:
    os.register_at_fork(after_in_child=_after_fork)
