"""A run from one place: `--slurm` starts an agent on every node of the job with srun, `--hosts` on
every host over ssh, and their parts come back through the same connections. So a job network that
is broken still yields one report, which is judged and published here.

Who brings nothing is absent, and what srun or ssh said of it is data: a Missing(not_arrived) of
rdzv.reach that names the program.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from preflight import __version__, redact
from preflight.config import resolve as config
from preflight.config.resolve import Config, Flags
from preflight.engine import agent
from preflight.engine import setup as outset
from preflight.engine.agent import Ending, Wish
from preflight.engine.plan import Progress, Watch
from preflight.frozen import dataclass
from preflight.identity import discover as topology
from preflight.identity.launchers import LOCAL
from preflight.judge import verdict
from preflight.model import Observations, PreflightError, Setting, Topology
from preflight.nodeset import HOSTS_MOST, folded
from preflight.process.call import Call, Died, Raised, Result, Returned, Told
from preflight.process.pool import Workers
from preflight.process.servers import LIGHT, open_light
from preflight.process.signals import Interrupt
from preflight.remote import launch_worker
from preflight.remote.collect import Gathering, RemoteNode, empty_run, merge_gathered
from preflight.remote.protocol import Orders

EXPAND_SECONDS = 20.0
"""For ClusterShell to say who is in a set; the source of a group may be a command."""
START_SECONDS = 30.0
"""For srun or ssh to start the agents, beyond the deadline of these."""
CONNECT_SECONDS = 10
"""For ssh to connect."""
LATE_SECONDS = 10.0
"""For the others, once more than half of the agents have ended: all of a meeting end together."""
END_SECONDS = 12.0
"""For all to end when it is enough; the worker takes less (_fanout.ENDING_SECONDS)."""
LAUNCHES = 3
"""As often srun may be started, see launch_worker.py."""
ANSWER_LIMIT = 512 << 20
GPUS_MOST = 16
"""Of a node, of which only its agent will know."""
COUNT = r"[1-9]\d{0,3}"
"""A number of GPUs or tasks in SLURM's environment."""
GROUP = "fanout"
TICK = 0.5


@dataclass(frozen=True, slots=True)
class Launch:
    """How the agents are started: with srun in this job, or on these hosts."""

    slurm: bool
    hosts: str = ""
    connect: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """What reaches a node."""
        if self.slurm:
            return "srun"
        return os.path.basename(self.connect[0]) if self.connect else "ssh"


def launch_of(flags: Flags, slurm: bool, hosts: str | None, connect: str | None) -> Launch:
    """The launch that the command line asks for; PreflightError for what can't be."""
    if connect is not None and hosts is None:
        raise PreflightError(f"{flags.source('connect')} goes with --hosts")
    if slurm and hosts is not None:
        both = f"{flags.source('slurm')} and {flags.source('hosts')}"
        raise PreflightError(f"{both}: the agents are started by srun, or on hosts")
    who = flags.source("slurm" if slurm else "hosts")
    for name in ("nodes", "node_rank"):
        if getattr(flags, name) is not None:
            raise PreflightError(f"{who} numbers the nodes itself; leave {flags.source(name)} out")
    if slurm:
        _inside_a_job(who)
        return Launch(True)
    words = _split_connect(connect, flags.source("connect")) if connect is not None else ()
    return Launch(False, hosts or "", words)


def _inside_a_job(who: str) -> None:
    if not os.environ.get("SLURM_JOB_ID") or not os.environ.get("SLURM_JOB_NODELIST"):
        raise PreflightError(
            f"{who} is for a batch script or salloc: there is no SLURM_JOB_ID here"
        )
    if os.environ.get("SLURM_STEP_NUM_TASKS"):
        raise PreflightError(
            f"{who} is for the batch script: srun has started this already (SLURM_STEP_NUM_TASKS "
            "is there), so leave it out"
        )


def _split_connect(connect: str, who: str) -> tuple[str, ...]:
    import shlex

    try:
        words = tuple(shlex.split(connect))
    except ValueError as error:
        raise PreflightError(f"{who} {connect!r:.60}: {error}") from None
    if not any("%h" in word for word in words):
        raise PreflightError(f"{who} wants %h where the name of a host belongs")
    return words


# --- the run ---


def ending_of(
    wish: Wish,
    launch: Launch,
    workers: Workers,
    interrupt: Interrupt,
    watch: Watch,
) -> Ending:
    """Start the agents, wait for what they have to say, judge it."""
    began, started = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    wish = replace(wish, config=agent.found_config(wish))
    chosen, catalogue = agent.configured(wish)
    open_light(workers)
    hosts = _resolve_hosts(launch, workers, interrupt)
    flags = _agent_flags(wish.flags, chosen, launch, hosts)
    deadline = chosen.among(len(hosts) * (flags.nproc or GPUS_MOST)).deadline
    call = _start_agents(replace(wish, flags=flags), launch, hosts, deadline, workers)
    places = {name: RemoteNode(name, number) for number, name in enumerate(hosts)}
    gathering = Gathering(launch.program, launch.slurm, places)
    enough = _gather(gathering, call, deadline, workers, interrupt, watch)
    _raise_worker_failure(gathering, call.result)
    together = merge_gathered(
        gathering, _empty_run(launch, hosts, flags, started), flags.nproc, catalogue.of_meeting
    )
    chosen = chosen.among(together.topology.size)
    shown = {name: s for name, s in together.settings.items() if name == "nproc"}
    together = replace(
        together,
        topology=_with_local_sources(together.topology, flags.sources),
        seconds=round(time.monotonic() - began, 3),
        settings={**shown, **_launch_settings(wish.flags, launch, hosts), **chosen.shown},
        # one that was ended because it was enough is not one that somebody else has interrupted
        interrupted=interrupt.name or ("" if enough else together.interrupted),
        left_behind=(*together.left_behind, *workers.left_behind),
    )
    together = redact.without(together, redact.secrets(os.environ, sys.argv))
    report = verdict.judge(together, catalogue, chosen.expect, chosen.policy)
    return Ending(report.verdict, report.exit_code, report.exit_code, report, chosen.outputs)


def _with_local_sources(top: Topology, sources: Mapping[str, str]) -> Topology:
    """The same with the numbers that an agent was ordered to take from where these came here."""
    told = {"--nodes": "nodes", "--node-rank": "node_rank", "--meet": "meet"}
    facts = {
        name: replace(fact, source=sources.get(told.get(fact.source, ""), fact.source))
        for name, fact in top.facts.items()
    }
    return replace(top, facts=facts)


def _launch_settings(flags: Flags, launch: Launch, hosts: Sequence[str]) -> dict[str, Setting]:
    """What the report records of the launch."""
    if launch.slurm:
        return {"slurm": Setting(True, flags.source("slurm"))}
    shown = {"hosts": Setting(list(hosts), flags.source("hosts"))}
    if launch.connect:
        shown["connect"] = Setting(
            " ".join(redact.command_line(launch.connect)), flags.source("connect")
        )
    return shown


def _empty_run(launch: Launch, hosts: Sequence[str], flags: Flags, started: str) -> Observations:
    """What is known of the run when no agent has told anything."""
    addr, port = topology.split_address(flags.meet) if flags.meet else ("", 0)
    top = Topology(
        launcher="SLURM" if launch.slurm else LOCAL.name,
        job=os.environ.get("SLURM_JOB_ID", "")[:64] if launch.slurm else "",
        size=len(hosts) * (flags.nproc or 1),
        master_addr=addr or (os.environ.get("MASTER_ADDR", "")[:256] or hosts[0]),
        master_port=port or topology.DEFAULT_PORT,
    )
    return empty_run(agent.tool(), started, top)


# --- starting ---


def _resolve_hosts(launch: Launch, workers: Workers, interrupt: Interrupt) -> list[str]:
    """Who the agents are to be started on, in the order of their node ranks."""
    text = os.environ["SLURM_JOB_NODELIST"] if launch.slurm else launch.hosts
    who = "SLURM_JOB_NODELIST" if launch.slurm else "--hosts"
    call = workers.call(
        LIGHT,
        launch_worker.expand,
        {
            "set": text,
            "groups": not launch.slurm,
            "most": HOSTS_MOST if launch.slurm else launch_worker.SSH_MOST,
        },
        seconds=EXPAND_SECONDS,
        label=who,
    )
    result = outset.wait(workers, call, EXPAND_SECONDS + 3.0, lambda: bool(interrupt.name))
    match result:
        case Returned():
            return [str(name) for name in result.value]
        case Raised(kind="PreflightError"):
            raise PreflightError(f"{who} {text!r:.80}: {result.message}")
        case None if interrupt.name:
            raise KeyboardInterrupt
        case Raised() | Died():
            raise RuntimeError(f"{who}: {result}")
    raise PreflightError(f"{who} {text!r:.80}: ClusterShell gave no answer in {EXPAND_SECONDS:g} s")


def _agent_flags(flags: Flags, chosen: Config, launch: Launch, hosts: Sequence[str]) -> Flags:
    """What all agents are told of the command line here: not where the report goes."""
    sources = dict(flags.sources)
    nproc, meet = flags.nproc, flags.meet
    if launch.slurm and chosen.nproc is None:
        nproc, sources["nproc"] = _ranks_per_node(os.environ)
    if not launch.slurm:
        sources |= dict.fromkeys(("nodes", "node_rank"), sources.get("hosts", "--hosts"))
        if meet is None:
            meet, sources["meet"] = f"{hosts[0]}:{topology.DEFAULT_PORT}", "the first of --hosts"
    folder = flags.checkpoint_dir
    return replace(
        flags,
        nproc=nproc,
        meet=meet,
        nodes=None if launch.slurm else len(hosts),
        output=(),
        checkpoint_dir=config.absolute(folder) if folder else folder,
        sources=sources,
    )


def _ranks_per_node(environ: Mapping[str, str]) -> tuple[int | None, str]:
    """How many ranks the job is to have on each of its nodes, and what says so: its tasks where it
    has more than one per node, else its GPUs."""
    names = ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    name = next((name for name in names if environ.get(name)), "")
    tasks = environ.get(name, "")
    found = re.fullmatch(r"(\d{1,4})(?:\(x\d+\))?", tasks.strip())
    if tasks and not found:
        raise PreflightError(
            f"{name}={tasks[:60]}: not the same number of ranks on every node, so --nproc has to "
            "say how many"
        )
    if found and int(found[1]) > 1:
        return int(found[1]), f"env {name}"
    gpus = environ.get("SLURM_GPUS_ON_NODE", "")
    if re.fullmatch(COUNT, gpus):
        return int(gpus), "env SLURM_GPUS_ON_NODE"
    return None, ""


def _srun_options(environ: Mapping[str, str]) -> list[str]:
    """A task per node beside whatever runs there, with all that the job has of it; known to SLURM
    since 20.11."""
    options = ["--label", "--overlap", "--mpi=none", "--input=all", "--export=ALL"]
    options += ["--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none"]
    # a job with GPUs for each task gives this one task those of one, unless it asks for all
    each = environ.get("SLURM_GPUS_PER_TASK", "").rpartition(":")[2]
    tasks = environ.get("SLURM_NTASKS_PER_NODE", "")
    if re.fullmatch(COUNT, each):
        product = int(each) * int(tasks) if re.fullmatch(COUNT, tasks) else 0
        gpus = environ.get("SLURM_GPUS_ON_NODE") or str(product or "")
        options += [f"--gpus-per-node={gpus}"] if gpus.isdecimal() else []
    return options


def _start_agents(
    wish: Wish, launch: Launch, hosts: Sequence[str], deadline: float, workers: Workers
) -> Call:
    """The call that starts them all, and says what they say."""
    orders = Orders(
        version=__version__,
        flags=wish.flags,
        config=wish.config or ("", ""),
        token=os.environ.get("PREFLIGHT_TOKEN", ""),
        root=wish.root,
    )
    by_file = [str(Path(__file__).parents[1] / "__main__.py")]  # as safe, without -P
    started = ["-P", "-m", "preflight"] if sys.version_info >= (3, 11) else by_file
    command = [sys.executable, *started, "agent"]
    args: dict[str, Any] = {"hosts": list(hosts), "command": command}
    if launch.slurm:
        args |= {"orders": orders.line.decode(), "options": _srun_options(os.environ)}
    else:
        each = (
            replace(orders, place=host, flags=replace(orders.flags, node_rank=number))
            for number, host in enumerate(hosts)
        )
        args |= {"orders": [one.line.decode() for one in each]}
        args |= {"connect": list(launch.connect), "seconds": CONNECT_SECONDS}
    workers.relaying = True
    return workers.call(
        LIGHT,
        launch_worker.by_srun if launch.slurm else launch_worker.by_hosts,
        args,
        seconds=LAUNCHES * (START_SECONDS + deadline) + END_SECONDS,
        label=launch.program,
        group=GROUP,
        limit=ANSWER_LIMIT,
    )


# --- waiting ---


def _gather(
    gathering: Gathering,
    call: Call,
    deadline: float,
    workers: Workers,
    interrupt: Interrupt,
    watch: Watch,
) -> bool:
    """Until all have said what they had to say, or it is enough; whether we were it who ended it,
    and not a signal."""
    began = since = time.monotonic()
    halfway = ended = 0.0
    while call.result is None:
        now = time.monotonic()
        due = since + START_SECONDS + deadline
        if len(gathering.open) * 2 < len(gathering.places):
            halfway = halfway or now
            due = min(due, halfway + LATE_SECONDS) if gathering.open else now
        if not ended and (interrupt.name or now >= due):
            workers.tell(GROUP, Told(-1, "end", interrupt.name))
            ended = now
        if ended and now >= ended + END_SECONDS:
            break
        wake = (lambda: False) if ended else (lambda: bool(interrupt.name))
        for _ in workers.run(now + TICK, wake):
            pass
        for _, told in workers.heard:
            if told.topic == "begun":
                since, halfway = time.monotonic(), 0.0
            gathering.hear(told.topic, told.value)
        workers.heard.clear()
        watch(lambda: _progress(gathering, time.monotonic() - began))
    return bool(ended) and not interrupt.name


def _progress(gathering: Gathering, seconds: float) -> Progress:
    """That of the first agent while it runs, once it has told any."""
    first = next(iter(gathering.places.values()))
    if gathering.progress is not None and first in gathering.open:
        return replace(gathering.progress, seconds=seconds)
    waiting = folded(place.name for place in gathering.open)
    return Progress(gathering.said, len(gathering.places), seconds, waiting_for=waiting)


def _raise_worker_failure(gathering: Gathering, result: Result | None) -> None:
    """It may have failed itself: that is no fault of the nodes."""
    match result:
        case Returned():
            return
        case Raised(kind="PreflightError"):
            raise PreflightError(result.message)
        case Raised() | Died() if not gathering.said:
            why = result.traceback if isinstance(result, Raised) else result.stderr
            raise RuntimeError(f"the worker that starts the agents failed: {why}")
    for place in gathering.open:
        place.words = f"{place.words}\nthe process that should wait for it is gone".strip()
