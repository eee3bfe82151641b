"""A look at a job that already runs, from outside: its processes on this machine, their stacks and
calls as torch's own worker server in them tells, where they have one, else their stacks as py-spy
reads them, and what NCCL's RAS service says of all of them. Runs in a worker; changes nothing.

    args    {"pid" or "job", "seconds"}
    returns the Record as JSON
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from preflight.attach import debug_server, ras_client
from preflight.attach.debug_server import Servers
from preflight.domains.job.nccl_ras import Ras, unchanged, with_ranks
from preflight.domains.job.record import Life, Rehearsed, WatchedCommand
from preflight.model import CannotObserve
from preflight.process.worker import Channel
from preflight.rehearsal import aggregate, client, procfs, pyspy, sampling
from preflight.rehearsal.history import History, all_stuck
from preflight.serde import encode

EVERY = 1.0
MARGIN = 1.5
"""Seconds less than the whole look for which nothing must have gone on: the first look is later."""


def take_snapshot(args: Mapping[str, Any], channel: Channel, preloaded: object) -> Any:
    """Look for some seconds, and say what there was."""
    began = time.monotonic()
    until = began + float(args["seconds"])
    channel.mark("processes of the job")
    numbered = _find_ranks(args)
    if not numbered:
        raise CannotObserve(f"no Python process of {_describe_target(args)} on this machine")
    pids = list(numbered)
    histories = {pid: _history(pid, told, began) for pid, told in numbered.items()}
    worlds = {pid: history.world for pid, history in histories.items()}
    channel.mark("torch's worker server")
    servers = debug_server.find_servers(pids)
    channel.mark("NCCL's RAS")
    first, asked = ras_client.query_job(pids), time.monotonic()
    problem = ""
    while True:
        channel.mark("torch's worker server")
        pulses = servers.ask(worlds)
        if rest := [pid for pid in pids if pid not in pulses]:
            channel.mark("py-spy")
            found, why = pyspy.stacks(rest)
            problem = problem or why
            for pid, frames in found.items():
                pulses[pid] = {"stack": client.frames_to_json(frames)}
        for pid, history in histories.items():
            if (seen := sampling.sample_process(pid, pulses.get(pid))) is not None:
                history.add_sample(seen)
        if time.monotonic() + EVERY >= until:
            break
        time.sleep(EVERY)
    now = time.monotonic()
    counted = _unchanged_ras(first, asked, histories) if first is not None else None
    patience = max(EVERY, now - began - MARGIN)
    why = "stuck" if all_stuck(histories.values(), (), now, patience) else "time"
    command = WatchedCommand((_describe_target(args),), None, why, round(now - began, 2))
    memory = procfs.memory()
    dumps = _flight_records(servers, histories)
    ranks = [
        Rehearsed(
            Life(
                command=command,
                rank=h.rank,
                world=h.world,
                here=len(histories),
                pid=h.pid,
                joined=bool(h.stack),
                watched=h.watched if h.stack else "",
                problem="" if h.served else problem,
            ),
            aggregate.calls_of(h, dumps.get(h.pid, {}), "", why, now, began),
            aggregate.pace_of(h, {}),
            aggregate.growth_of(h, began, memory, len(histories)),
        )
        for h in sorted(histories.values(), key=lambda h: h.rank or 0)
    ]
    if ranks and counted is not None:
        ranks[0] = replace(ranks[0], calls=replace(ranks[0].calls, ras=counted))
    return encode(aggregate.record_of_ranks(ranks, command, problem))


def _unchanged_ras(first: Ras, asked: float, histories: Mapping[int, History]) -> Ras | None:
    """What NCCL's RAS says now as it did at first, with the numbers of the job's ranks."""
    found = unchanged(
        first, ras_client.query_job(list(histories)), round(time.monotonic() - asked, 2)
    )
    if found is None:
        return None
    world = max(h.world for h in histories.values())
    return with_ranks(
        found, world, ras_client.ranks_by_process({p: h.rank for p, h in histories.items()})
    )


def _flight_records(
    servers: Servers, histories: Mapping[int, History]
) -> Mapping[int, Mapping[str, Any]]:
    """pid -> what it has called, if all of them tell: the numbers of calls can't be compared with
    what a stack alone shows."""
    if servers.recorded.keys() < histories.keys():
        for history in histories.values():
            history.groups = {}
        return {}
    records = {h.rank: servers.recorded[pid] for pid, h in histories.items() if h.rank is not None}
    waiting = {h.rank: h.waits for h in histories.values() if h.rank is not None}
    debug_server.infer_members(records, waiting, max(h.world for h in histories.values()))
    for history in histories.values():
        history.served = True
    return {
        pid: {"recorded": record.recorded, "members": record.members}
        for pid, record in servers.recorded.items()
    }


def _history(pid: int, told: tuple[int, int] | None, began: float) -> History:
    history = History(pid, began, inside=False)
    if told is not None:
        history.rank, history.world = told
    return history


def _describe_target(args: Mapping[str, Any]) -> str:
    return f"SLURM job {args['job']}" if args.get("job") else f"pid {args['pid']}"


def _find_ranks(args: Mapping[str, Any]) -> dict[int, tuple[int, int] | None]:
    """The ranks of a job with their numbers: processes that a launcher has given one, and not what
    these have started. Of a process without any such below it: itself."""
    if job := args.get("job"):
        pids = [
            int(name)
            for name in os.listdir("/proc")
            if name.isdecimal() and procfs.variable(int(name), "SLURM_JOB_ID") == str(job)
        ]
    else:
        pids = list(procfs.descendants(int(args["pid"])))
    python = [pid for pid in pids if procfs.is_python(pid)]
    for names in procfs.RANKS:
        told = {pid: found for pid in python if (found := procfs.rank_of(pid, names))}
        ranks = [pid for pid in told if not any(a in told for a in procfs.ancestors(pid))]
        if ranks:
            return {pid: told[pid] for pid in ranks}
    return {pid: None for pid in python[:1] if args.get("pid")}
