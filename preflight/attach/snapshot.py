"""A look at a job that already runs, from outside: its processes on this machine, their stacks and
calls as torch's own worker server in them tells, where they have one, else their stacks as py-spy
reads them, and what NCCL's RAS service says of all of them. Runs in a worker; changes nothing.

    args    {"pid" or "job", "seconds"}
    returns the Record as JSON
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.attach import debug_server, gpu_lines, ras_client, rendezvous
from preflight.attach.debug_server import Servers
from preflight.domains.job.collective_order import crossed_groups
from preflight.domains.job.hang import NEW_GROUP, RPC
from preflight.domains.job.joining import Joining
from preflight.domains.job.nccl_ras import Ras, unchanged, with_ranks
from preflight.domains.job.record import (
    WENT,
    Calls,
    Frame,
    Group,
    Life,
    Rehearsed,
    WatchedCommand,
)
from preflight.domains.job.stack_sites import BACKWARD, UNNUMBERED, with_arguments
from preflight.identity.launcher_options import LauncherOptions
from preflight.model import CannotObserve
from preflight.process.worker import Channel
from preflight.rehearsal import aggregate, client, procfs, pyspy, sampling
from preflight.rehearsal.history import LOADER_WORKER, History, activity, all_stuck, leaves
from preflight.serde import encode

EVERY = 1.0
INIT_CALL = "init_process_group"
DISTRIBUTED = re.compile(r"/torch/(?:distributed|nn/parallel)/")
STARTED = "/multiprocessing/process.py"
WORKER_FILE = "/torch/utils/data/_utils/worker.py"
STOPPED = ("T", "t")
POLLS = (70, 105)
"""Waits a second of a thread that asks every 10 ms, as NCCL's blocking wait does."""
MARGIN = 1.5
"""Seconds less than the whole look for which nothing must have gone on: the first look is later."""


def take_snapshot(args: Mapping[str, Any], channel: Channel, preloaded: object) -> Any:
    """Look for some seconds, and say what there was."""
    began = time.monotonic()
    until = began + float(args["seconds"])
    channel.mark("processes of the job")
    python = _python_processes(args)
    started = rendezvous.launchers(python)
    numbered = _find_ranks(python, started, args)
    if not numbered:
        raise CannotObserve(_why_nothing(python, args))
    pids = list(numbered)
    histories = {pid: _history(pid, told, began) for pid, told in numbered.items()}
    worlds = {pid: history.world for pid, history in histories.items()}
    channel.mark("torch's worker server")
    servers = debug_server.find_servers(pids)
    channel.mark("NCCL's RAS")
    first, asked = ras_client.query_job(pids), time.monotonic()
    problem = ""
    switched: dict[int, int] = {}
    inside: dict[int, float] = {}
    while True:
        channel.mark("torch's worker server")
        pulses = servers.ask(worlds)
        if rest := [pid for pid in pids if pid not in pulses]:
            channel.mark("py-spy")
            found, why = pyspy.stacks(rest)
            problem = problem or why
            for pid, frames in found.items():
                stack = client.frames_to_json(frames)
                pulses[pid] = {"stack": stack, "leaving": leaves(frames)}
        for pid, history in histories.items():
            if (seen := sampling.sample_process(pid, pulses.get(pid))) is not None:
                history.add_sample(seen)
            _note_progress(history, switched, procfs.switches(pid))
            if _in_a_call(history):
                inside.setdefault(pid, history.answered)
        if time.monotonic() + EVERY >= until:
            break
        time.sleep(EVERY)
    now = time.monotonic()
    counted = _unchanged_ras(first, asked, histories) if first is not None else None
    patience = max(EVERY, now - began - MARGIN)
    for history in histories.values():
        if not history.served:
            _settle(history, now, patience)
    waiting = [pid for pid, h in histories.items() if h.at in ("init", "collective")]
    called = pyspy.arguments(waiting) if waiting else {}
    stuck = all_stuck(histories.values(), (), now, patience) or _cross(histories, called, now)
    why = "stuck" if stuck else "time"
    command = WatchedCommand((_describe_target(args),), None, why, round(now - began, 2))
    _look_at_workers(histories.values())
    channel.mark("the job's store")
    joining = _joining(histories, started, called, problem)
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
                joined=bool(h.stack) and h.pid not in joining,
                watched=h.watched if h.stack else "",
                problem="" if h.served else _problem(h, problem),
                joining=joining.get(h.pid),
            ),
            _from_outside(
                aggregate.calls_of(h, dumps.get(h.pid, {}), "", why, now, began),
                called.get(h.pid, {}),
                moves=_went_on(h, inside.get(h.pid)),
            ),
            aggregate.pace_of(h, {}),
            aggregate.growth_of(h, began, memory, len(histories)),
        )
        for h in sorted(histories.values(), key=lambda h: h.rank or 0)
    ]
    if ranks and counted is not None:
        ranks[0] = replace(ranks[0], calls=replace(ranks[0].calls, ras=counted))
    return encode(aggregate.record_of_ranks(ranks, command, problem))


def _problem(history: History, problem: str) -> str:
    """Why less of a process could be seen than usual."""
    found = procfs.stat(history.pid)
    return WENT if not history.stack and (found is None or found.ended) else problem


def _cross(
    histories: Mapping[int, History], called: Mapping[int, Mapping[str, str]], now: float
) -> bool:
    """Whether all stand in new_group, and count the group that they make as another one."""
    making = {pid: _group_made(h.stack, called.get(pid, {})) for pid, h in histories.items()}
    if any(now - h.moved < EVERY for h in histories.values()):
        return False
    made = {pid: group for pid, group in making.items() if group is not None}
    return len(made) == len(making) and bool(crossed_groups(made))


def _group_made(stack: Sequence[Frame], told: Mapping[str, str]) -> Group | None:
    """The group that a process makes in new_group, by what torch's own function was called with."""
    name, ranks = told.get("name", ""), tuple(debug_server.parse_ranks(told.get("members")))
    if not name or not ranks or not any(f.function == NEW_GROUP for f in stack):
        return None
    return Group(name, ranks, made=next((f for f in stack if f.own), None))


def _look_at_workers(histories: Iterable[History]) -> None:
    """Where the workers are that DataLoaders wait for: of all ranks at once, within one time."""
    waiting = [history for history in histories if history.awaits_workers]
    workers = [c.pid for h in waiting for c in h.children if c.name == LOADER_WORKER]
    places = pyspy.samples(workers) if workers else {}
    for history in waiting:
        history.children = tuple(
            replace(child, frame=places.get(child.pid)) for child in history.children
        )


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


def _python_processes(args: Mapping[str, Any]) -> list[int]:
    if job := args.get("job"):
        pids = [
            int(name)
            for name in os.listdir("/proc")
            if name.isdecimal() and procfs.variable(int(name), "SLURM_JOB_ID") == str(job)
        ]
    else:
        pids = list(procfs.descendants(int(args["pid"])))
    return [pid for pid in pids if procfs.is_python(pid)]


def _find_ranks(
    python: Sequence[int], launchers: Container[int], args: Mapping[str, Any]
) -> dict[int, tuple[int, int] | None]:
    """The ranks of a job with their numbers: processes that a launcher has given one, and not what
    these have started. A launcher is none, though a pod may give it a number. Without any: the
    launchers, else the process itself if it has torch."""
    workers = [pid for pid in python if pid not in launchers]
    for names in procfs.RANKS:
        told = {pid: found for pid in workers if (found := procfs.rank_of(pid, names))}
        ranks = [pid for pid in told if not any(a in told for a in procfs.ancestors(pid))]
        if ranks:
            return {pid: told[pid] for pid in ranks}
    if waiting := [pid for pid in python if pid in launchers]:
        return dict.fromkeys(waiting)
    own = [pid for pid in python if args.get("pid") and procfs.has_torch(pid)]
    return _spawned(own) or dict.fromkeys(own[:1])


def _spawned(pids: Sequence[int]) -> dict[int, tuple[int, int] | None]:
    """Of processes that the program itself has started, such as with mp.spawn, those that are
    ranks: at least one of them is in a call of torch.distributed. Their numbers as far as their
    own calls tell them, else in the order in which they were started."""
    if len(pids) < 2:
        return {}
    stacks, _ = pyspy.stacks(pids)
    made = {
        pid: stack
        for pid, stack in sorted(stacks.items())
        if any(f.file.endswith(STARTED) and f.function == "_bootstrap" for f in stack)
        and not any(f.file.endswith(WORKER_FILE) for f in stack)
    }
    if len(made) < 2 or not any(activity(s) in ("init", "collective") for s in made.values()):
        return {}
    told = pyspy.arguments(list(made))
    found: dict[int, tuple[int, int] | None] = {}
    for order, pid in enumerate(made):
        said = told.get(pid, {})
        rank = next((said[n] for n in ("rank", "index") if said.get(n, "").isdecimal()), str(order))
        sizes = [t["world_size"] for t in told.values() if t.get("world_size", "").isdecimal()]
        found[pid] = int(rank[:7]), max([len(made), *(int(size[:7]) for size in sizes)])
    return found


def _why_nothing(python: Sequence[int], args: Mapping[str, Any]) -> str:
    target = _describe_target(args)
    if not python:
        return f"no Python process of {target} on this machine"
    name = procfs.command_line(python[0], 80)
    return f"{target} is not a torch job: no launcher, no rank, and torch is not loaded in {name!r}"


def _joining(
    histories: Mapping[int, History],
    launchers: Mapping[int, LauncherOptions],
    called: Mapping[int, Mapping[str, str]],
    problem: str,
) -> dict[int, Joining]:
    """Of those that have no process group yet: where they wait for the others. called: what
    pyspy.arguments() says."""
    found = {
        pid: rendezvous.launcher_joining(pid, launchers[pid], history.stack, problem)
        for pid, history in histories.items()
        if pid in launchers
    }
    for pid, history in histories.items():
        inside = history.at == "init" and any(f.function == INIT_CALL for f in history.stack)
        if inside and (waits := rendezvous.rank_joining(pid, called.get(pid, {}))) is not None:
            found[pid] = waits
    return found


def _from_outside(calls: Calls, told: Mapping[str, str], *, moves: bool) -> Calls:
    """The same where only its stack is known: with what its call was called with, and whether it
    was seen in a call of torch's, and went on."""
    made = _group_made(calls.stack, told) if calls.at == "init" else None
    if made is not None:
        return replace(calls, groups=(made,), moves=moves)
    unnumbered = [g for g in calls.groups if g.open is not None and g.open.seq == UNNUMBERED]
    groups = [with_arguments(group, calls.rank or 0, told) for group in unnumbered]
    return replace(calls, groups=tuple(groups) or calls.groups, moves=moves)


def _note_progress(history: History, switched: dict[int, int], now: int) -> None:
    """A job may be met in the same call at every look, and go on: its main threads wait for one
    thing after the other there, where those of a job that hangs wait once. now, switched (by pid):
    procfs.switches() at this look, and at the last one."""
    times = now - switched.get(history.pid, now)
    switched[history.pid] = now
    if _in_a_call(history) and times and not _spins(history) and not POLLS[0] <= times <= POLLS[1]:
        history.moved = history.changed = history.answered


def _in_a_call(history: History) -> bool:
    """Whether its main thread is in a call of torch's that waits for other ranks in C++. A loader
    and the user's own code may look every second whether what they wait for has come."""
    if history.world < 2 or not history.stack or history.at not in ("collective", "own"):
        return False
    frame = history.stack[0]
    return not frame.own and (frame.function == BACKWARD or bool(DISTRIBUTED.search(frame.file)))


def _went_on(history: History, since: float | None) -> bool:
    """Whether it has done anything after it was seen in a call. Of one that spins only another
    place in its code tells."""
    return since is not None and (history.stood if _spins(history) else history.moved) > since


def _spins(history: History) -> bool:
    """Whether it waits in torch.distributed.rpc, whose threads use the CPU meanwhile."""
    return any(RPC in frame.file for frame in history.stack if not frame.own)


def _settle(history: History, now: float, patience: float) -> None:
    """What a stack alone does not tell, but the kernel: a process that is stopped is in no call,
    and one that does nothing in a call of torch's that ends in C++ waits there for the others."""
    if history.state in STOPPED:
        history.at = "unknown"
    elif _in_a_call(history) and now - history.moved >= patience:
        history.at = "collective"
    elif history.at == "own" and history.stack and now - history.stood >= patience:
        # it may burn a CPU there: CUDA asks the GPU again and again
        history.gpu_wait = history.gpu_wait or gpu_lines.gpu_wait(history.pid, history.stack[0])
