"""A look at one node, as a daemon of SLURM has it made: alone, soon over, and blind to the job."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from preflight import check, registry
from preflight.config.resolve import Flags
from preflight.engine import agent
from preflight.engine.agent import Wish
from preflight.engine.plan import Plan
from preflight.engine.scheduler import Run
from preflight.identity import discover as topology
from preflight.model import Report
from preflight.process.call import Returned
from preflight.process.pool import Workers
from preflight.process.servers import open_light

DEADLINE = 5.0
"""Seconds for all checks of a hook. With what follows a verdict this stays below the 7 s after
which the script around it ends it, and the 8 s after which srun tells users of a hung prolog."""
BUDGET = 3.5
"""Seconds for one of them: what is killed then is still told before the deadline."""

CONFIG = "/etc/preflight/config.toml"

NOT_THE_NODE = {
    "env.identity": "the job's variables: slurmd has none of them",
    "env.vars": "the job's variables",
    "host.cpu": "the CPUs that the job was given: here they are slurmd's",
    "net.name": "MASTER_ADDR, and name servers that all nodes share",
}
"""Quick checks that a hook leaves out, as they can say nothing of this node itself."""
JOBS_PLACES = ("checkpoint_dir", "init_file")
"""Options of host.storage that a hook does without: a shared file system that is dead drains no
node, let alone all of them."""

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


def at_node(workers: Workers, node: str, config_file: str | None, root: str) -> Report:
    """The quick checks of this machine, all that are about the node itself, and their judgement."""
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
        if _about_the_node(check_id, catalogue)
    }
    here = topology.discover(
        os.environ, node, nproc=1, nproc_source="one rank stands for any", gpus=0
    )
    options = {name: dict(values) for name, values in chosen.options.items()}
    for name in JOBS_PLACES:
        options.get("host.storage", {}).pop(name, None)
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
    started = datetime.datetime.now(datetime.UTC)
    open_light(workers)
    run = Run(plan, workers, agent.passes(catalogue, chosen))
    return agent.report_of(run, run.observe(), chosen, started)


def _about_the_node(check_id: str, catalogue: registry.Catalogue) -> bool:
    """Whether a hook may make this check; one that is broken says so."""
    loaded = catalogue.checks.get(check_id)
    if loaded is None:
        return True
    alone = loaded.check.stage is check.Stage.MACHINE and not loaded.check.torch
    return alone and check_id not in NOT_THE_NODE


AFTER = "after"
"""The server of what comes after the verdict: it shares no fate with that of the checks."""


def asked(workers: Workers, seconds: float, **asked: Mapping[str, Any]) -> dict[str, Any]:
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


TARGETS = {
    "drain": "preflight.slurm.scontrol:drain",
    "resume": "preflight.slurm.scontrol:resume",
    "log": "preflight.slurm.scontrol:log",
    "left": "preflight.slurm.leftovers:look",
    "keep": "preflight.output.tasks:write_file",
    "kept": "preflight.output.tasks:read_file",
    "forget": "preflight.slurm.leftovers:forget",
}
