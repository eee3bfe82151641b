"""What is settled before a run begins: who is in this world, and which checks it will do.

`run` goes on from here, `plan` shows it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping

from preflight import check, registry
from preflight.check import Requirement
from preflight.config.resolve import Config
from preflight.engine.tasks import count_gpus
from preflight.identity import discover
from preflight.identity.launchers import wants_gpus
from preflight.model import Topology
from preflight.process.pool import Call, Result, Returned, Workers
from preflight.process.servers import LIGHT, open_light

DEVICE = re.compile("nvidia[0-9]{1,3}")
COUNT_SECONDS = 5.0
"""How long NVML or KFD may take to count the GPUs."""
MASK, MASK_MOST = "CUDA_VISIBLE_DEVICES", 64
"""The variable, and how many devices of it count: a longer list is a mistake."""
STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""`True` where torchrun's own store has the port at MASTER_ADDR."""


def world(workers: Workers, chosen: Config, wake: Callable[[], bool]) -> Topology:
    """Who is in this world. Only where neither a flag nor a launcher nor CUDA_VISIBLE_DEVICES says
    how many ranks there are, NVML or KFD is asked: in a worker, and not for long."""
    gpus, source = 0, ""
    if _counts_gpus(chosen):
        open_light(workers)
        call = workers.call(LIGHT, count_gpus, None, seconds=COUNT_SECONDS)
        counted = wait(workers, call, COUNT_SECONDS + 3.0, wake)
        if isinstance(counted, Returned):
            gpus, source = int(counted.value["gpus"]), f"{counted.value['by']}: GPUs of this node"
        else:  # a driver without persistence mode wakes slowly, and its device files are there
            gpus = sum(bool(DEVICE.fullmatch(name)) for name in os.listdir("/dev"))
            source = "/dev/nvidia*: GPUs of this node (NVML did not answer)" if gpus else ""
    elif (mask := os.environ.get(MASK)) is not None:
        devices = [entry for entry in mask.split(",") if entry.strip()]
        gpus, source = min(len(devices), MASK_MOST), f"env {MASK}"
    return discover.discover(
        os.environ,
        os.uname().nodename,
        nproc=chosen.nproc,
        nproc_source=chosen.nproc_source,
        nodes=chosen.nodes,
        node_rank=chosen.node_rank,
        meet=chosen.meet,
        gpus=gpus,
        gpus_source=source,
        cpus=len(os.sched_getaffinity(0)),
        typed=_typed(),
    )


def _counts_gpus(chosen: Config) -> bool:
    """Whether only NVML or KFD can say how many ranks there are to be here."""
    typed = chosen.nodes is None and _typed()
    return chosen.nproc is None and MASK not in os.environ and wants_gpus(os.environ, typed)


def _typed() -> bool:
    """Whether this was typed at the prompt of a shell that is itself a task of SLURM's: such a
    shell leads its session and, unlike a script, gives each command a process group of its own."""
    leader = os.getsid(0)
    task = os.environ.get("SLURM_TASK_PID") == str(leader)
    return task and os.getpgid(0) != leader and os.isatty(0)


def meets(chosen: Config, here: Topology) -> bool:
    """Whether there are other agents in this job, and this level asks them."""
    return chosen.level is not check.Level.QUICK and here.size > here.met


def selected(catalogue: registry.Catalogue, chosen: Config, meeting: bool) -> Mapping[str, str]:
    """The checks of this run, id -> "" or why it is left out. Those that need another agent are not
    in it where there is none, unless they were named; and where there are others, who came is
    always looked at."""
    found = dict(
        registry.select(
            catalogue,
            level=chosen.level,
            only=chosen.only,
            skip=chosen.skip,
            enabled=chosen.enabled,
        )
    )
    if not chosen.only:
        left_out = {Requirement.REHEARSAL} | (set() if meeting else {Requirement.PEERS})
        for loaded in catalogue:
            if left_out & loaded.check.requires:
                found.pop(loaded.id, None)
    if meeting:
        found |= {c.id: "" for c in catalogue if c.check.reports_meeting and c.id not in found}
    return found


def wait(
    workers: Workers, call: Call, seconds: float, wake: Callable[[], bool] = lambda: False
) -> Result | None:
    """What one call comes to; None when it has not ended in time."""
    until = time.monotonic() + seconds
    while call.result is None and time.monotonic() < until and not wake():
        next(workers.run(until, wake), None)
    return call.result
