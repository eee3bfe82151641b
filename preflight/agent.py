"""One invocation of `run` or `gate`, an agent: it observes its ranks, judges once, and publishes.

The parent reads nothing but its own installation and the config file; what a file system, a name
or a driver might keep waiting is asked by workers.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from preflight import __version__, check, config, configfile, redact, screen, topology, verdict
from preflight.config import Config, Flags, Output
from preflight.interrupt import Interrupt
from preflight.isolate import Call, Died, Raised, Result, Returned, Workers
from preflight.model import Observations, Report, Setting, Topology
from preflight.render import human
from preflight.runner import Plan, Progress, Run
from preflight.start import LIGHT, TORCH, open_light, open_torch

FILES = "files"
"""The server whose workers touch report files: it shares no fate with that of the checks."""

FILE_SECONDS = 10.0
"""How long a report may take to be written or read: its file system may be the dead one."""

COUNT_SECONDS = 5.0
"""How long NVML may take to count the GPUs."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for, beside the flags that a config file could also set."""

    flags: Flags
    config_file: str | None = None
    root: str = "/"


@contextlib.contextmanager
def session(interrupt: Interrupt) -> Iterator[Workers]:
    """Workers whose waits a signal ends, and nothing of them left afterwards."""
    workers = Workers()
    wakeup = signal.set_wakeup_fd(workers.wake_fd, warn_on_full_buffer=False)
    try:
        yield workers
    finally:
        signal.set_wakeup_fd(wakeup)
        told = len(workers.left_behind)  # these are in the report
        for left in workers.close()[told:]:
            where = f", in {left.wchan}" if left.wchan else ""
            screen.say(f"preflight: left behind: pid {left.pid}, state {left.state}{where}")


def configured(
    wish: Wish, before_loading: Callable[[Mapping[str, Any]], None] = lambda table: None
) -> tuple[Config, check.Catalogue]:
    """Flags and config file as one, and the checks that there are."""
    path = configfile.find(wish.config_file, os.environ, root=os.geteuid() == 0)
    table = configfile.read(path) if path else {}
    before_loading(table)
    catalogue = check.load()
    today = datetime.datetime.now(datetime.UTC).date()
    return config.resolve(wish.flags, table, str(path or ""), catalogue, today), catalogue


def report_of(
    wish: Wish, workers: Workers, interrupt: Interrupt, watch: Callable[[Progress], None]
) -> tuple[Report, Config]:
    """Everything between the flags and the report."""

    def begin(table: Mapping[str, Any]) -> None:
        if config.wants_torch(wish.flags, table):
            open_torch(workers)  # before the checks themselves are loaded: its import takes longest

    chosen, catalogue = configured(wish, begin)
    selected = check.select(
        catalogue, level=chosen.level, only=chosen.only, skip=chosen.skip, enabled=chosen.enabled
    )
    open_light(workers)
    here = _topology(workers, interrupt, chosen)
    plan = Plan(
        catalogue=catalogue,
        selected=selected,
        topology=here,
        deadline=chosen.deadline,
        root=wish.root,
        budgets=chosen.budgets,
        options=chosen.options,
    )
    started = datetime.datetime.now(datetime.UTC)
    run = Run(
        plan,
        workers,
        lambda i, seen: verdict.passed(i, seen, catalogue, here, chosen.expect, chosen.policy),
        watch,
        lambda: interrupt.name,
    )
    outcome = run.observe()
    tool = {"name": "preflight", "version": __version__, "python": sys.version.split()[0]}
    if torch := (workers.preloaded(TORCH) or {}).get("torch", {}).get("version"):
        tool["torch"] = torch
    observations = Observations(
        tool=tool,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(outcome.seconds, 3),
        settings={"nproc": Setting(here.met, here.facts["nproc"].source), **chosen.shown},
        topology=here,
        checks=outcome.checks,
        interrupted=outcome.interrupted,
        left_behind=workers.left_behind,
    )
    observations = redact.without(observations, redact.secrets(os.environ))
    return verdict.judge(observations, catalogue, chosen.expect, chosen.policy), chosen


def _topology(workers: Workers, interrupt: Interrupt, chosen: Config) -> Topology:
    """Who is in this world. Only where neither a flag nor a launcher nor CUDA_VISIBLE_DEVICES says
    how many ranks there are, NVML is asked: in a worker, and not for long."""
    gpus, source = 0, ""
    if chosen.nproc is None and topology.detect(os.environ) is topology.LOCAL:
        mask = os.environ.get("CUDA_VISIBLE_DEVICES")
        if mask is not None:
            devices = [entry for entry in mask.split(",") if entry.strip()]
            gpus, source = min(len(devices), 64), "env CUDA_VISIBLE_DEVICES"
        else:
            target = "preflight._observer:count_gpus"
            call = workers.call(LIGHT, target, None, seconds=COUNT_SECONDS)
            counted = _wait(workers, call, COUNT_SECONDS + 3.0, lambda: bool(interrupt.name))
            if isinstance(counted, Returned):
                gpus, source = int(counted.value), "NVML: GPUs of this node"
    return topology.discover(
        os.environ,
        os.uname().nodename,
        nproc=chosen.nproc,
        nproc_source=chosen.nproc_source,
        gpus=gpus,
        gpus_source=source,
    )


def publish(
    workers: Workers, outputs: Iterable[Output], report: Report, look: human.Look
) -> tuple[str, ...]:
    """Print and write the report, files first; why an output could not be had, for each."""
    problems: list[str] = []
    saved = ""
    for output in sorted(outputs, key=lambda o: o.file == "-"):
        if output.file == "-":
            problem = screen.write(rendered(output, report, replace(look, saved_as=saved)))
        else:
            plain = human.Look(verbose=look.verbose)
            text = rendered(output, report, plain)
            args = {"path": config.absolute(output.file), "text": text}
            problem = _in_worker(workers, "write_file", args, output.file, str)
            if output.format == "json" and not problem:
                saved = saved or output.file
        if problem:
            problems.append(problem)
            screen.say(f"preflight: could not write the report: {problem}")
    return tuple(problems)


def rendered(output: Output, report: Report, look: human.Look) -> str:
    if output.format == "json":
        from preflight.render import json as as_json

        return as_json.render(report)
    return human.render(report, look)


def read(path: str, limit: int) -> tuple[str, str]:
    """The text of a report, or why it can't be had."""
    args = {"path": config.absolute(path), "limit": limit}
    with session(Interrupt()) as workers:
        found = _in_worker(workers, "read_file", args, path, lambda why: {"error": why})
    return found.get("text", ""), found.get("error", "")


def _in_worker(
    workers: Workers, function: str, args: Any, path: str, problem: Callable[[str], Any]
) -> Any:
    """What a function of _observer.py returns; `problem` makes as much of a reason why not."""
    if not workers.opened(FILES):
        workers.fork(FILES)
    call = workers.call(FILES, f"preflight._observer:{function}", args, seconds=FILE_SECONDS)
    result = _wait(workers, call, FILE_SECONDS + 5.0)
    match result:
        case Returned():
            return result.value
        case Raised():
            return problem(f"{path}: {result.message}")
        case Died():
            return problem(f"{path}: {result.stderr.strip().partition(chr(10))[0]}")
    return problem(f"{path}: no answer from its file system in {FILE_SECONDS:.0f} s")


def _wait(
    workers: Workers, call: Call, seconds: float, wake: Callable[[], bool] = lambda: False
) -> Result | None:
    """What one call comes to; None when it has not ended in time."""
    until = time.monotonic() + seconds
    while call.result is None and time.monotonic() < until and not wake():
        next(workers.run(until, wake), None)
    return call.result
