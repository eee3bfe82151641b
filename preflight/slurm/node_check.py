"""The check of one node for a SLURM daemon: alone, soon over, and independent of the job."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from preflight import registry
from preflight.config.resolve import Flags
from preflight.engine import agent
from preflight.engine.agent import Wish
from preflight.engine.plan import Plan
from preflight.engine.scheduler import Run
from preflight.identity import discover
from preflight.model import Report
from preflight.output.tasks import read_file, write_file
from preflight.process.pool import Returned, Target, Workers
from preflight.process.servers import open_light
from preflight.slurm import leftovers, scontrol

DEADLINE = 5.0
"""Seconds for all checks of a hook. With what follows a verdict this stays below the 7 s after
which the script around it ends it, and the 8 s after which srun tells users of a hung prolog."""
BUDGET = 3.5
"""Seconds for one of them: what is killed then is still told before the deadline."""

CONFIG = "/etc/preflight/config.toml"

JOBS_PLACES = ("checkpoint_dir", "init_file")
"""Options of checks that a hook does without: a shared file system that is dead drains no node, let
alone all of them."""

KEPT = (
    "PATH",
    "SLURM_CONF",
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_UID",
    "SLURM_SCRIPT_CONTEXT",
)


def forget_the_job(environ: MutableMapping[str, str]) -> None:
    """Leave of the environment what names this node and its cluster. The rest is the job's, or was
    set for it: GPUs that it may see by numbers of its own, settings of slurmd's shell."""
    kept = {name: environ[name] for name in KEPT if name in environ}
    environ.clear()
    environ.update(kept)
    environ["LANG"] = "C.UTF-8"
    # slurmd says it to all but the health check: who asks is the node and not a job on it, where a
    # limit would be the settings of a container
    environ.setdefault("SLURM_SCRIPT_CONTEXT", "health_check_slurmd")


def config_of(given: str | None) -> str:
    """The config file of a hook: that which is named, or the system's, or none."""
    if given is not None:
        return given
    return CONFIG if os.path.isfile(CONFIG) else os.devnull


def check_node(workers: Workers, node: str, config_file: str | None, root: str) -> Report:
    """What the quick checks that may drain this node see, and their judgement."""
    flags = Flags(level="quick", nproc=1)
    chosen, catalogue = agent.configured(Wish(flags, config_of(config_file), root), to_run=True)
    selected = {
        check_id: why
        for check_id, why in registry.select(
            catalogue,
            level=chosen.level,
            only=chosen.only,
            skip=chosen.skip,
            enabled=chosen.enabled,
        ).items()
        # one that is broken says so
        if (loaded := catalogue.checks.get(check_id)) is None or loaded.check.drains
    }
    here = discover.discover(
        os.environ, node, nproc=1, nproc_source="one rank, as an example of any", gpus=0
    )
    options = {name: dict(values) for name, values in chosen.options.items()}
    for values in options.values():
        for name in JOBS_PLACES:
            values.pop(name, None)
    plan = Plan(
        catalogue=catalogue,
        selected=selected,
        topology=here,
        deadline=min(DEADLINE, chosen.deadline),
        root=root,
        budgets={
            loaded.id: min(BUDGET, chosen.budgets.get(loaded.id, loaded.check.budget))
            for loaded in catalogue
        },
        options=options,
    )
    started = datetime.datetime.now(datetime.timezone.utc)
    open_light(workers)
    run = Run(plan, workers, agent.passes(catalogue, chosen))
    return agent.report_of(run, run.observe(), chosen, started)


AFTER = "after"
"""The server of what comes after the verdict: it shares no fate with that of the checks."""


def call_workers(workers: Workers, seconds: float, **asked: Mapping[str, Any]) -> dict[str, Any]:
    """What functions of TARGETS return, all called at once. One that has no answer in time, or no
    good one, is not in the result."""
    if not workers.opened(AFTER):
        workers.fork(AFTER)
    until = time.monotonic() + seconds
    calls = {
        name: workers.call(AFTER, TARGETS[name], args, seconds=seconds)
        for name, args in asked.items()
    }
    while time.monotonic() < until and any(call.result is None for call in calls.values()):
        next(workers.run(until), None)
    return {
        name: call.result.value for name, call in calls.items() if isinstance(call.result, Returned)
    }


TARGETS: Mapping[str, Target] = {
    "drain": scontrol.drain,
    "resume": scontrol.resume,
    "log": scontrol.log,
    "left": leftovers.find_leftovers,
    "keep": write_file,
    "kept": read_file,
    "forget": leftovers.remove_file,
}
