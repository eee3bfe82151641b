"""The record of a rehearsal, from all that the watch has seen. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from preflight.domains.collectives.nccl_log import NcclLog
from preflight.domains.job.gpu_use import GpuUse, WatchedGpu, use_of
from preflight.domains.job.record import (
    NO_RANK,
    NOT_IMPORTED,
    End,
    Joins,
    Life,
    RehearsalRecord,
    Rehearsed,
    Uncaught,
    WatchedCommand,
)
from preflight.frozen import dataclass
from preflight.rehearsal import aggregate, client
from preflight.rehearsal.gpu_looks import gpu_of
from preflight.rehearsal.history import History
from preflight.rehearsal.optimizers import (
    clipping_of,
    copies_of,
    discarded_of,
    needless_of,
    optimized_of,
    settings_of,
    untied_of,
)
from preflight.rehearsal.replicas import (
    backends_of,
    dealt_of,
    loads_of,
    parts_of,
    replicas_of,
    shares_of,
)

STOPPED = "KeyboardInterrupt"
OF_ANOTHER = (
    STOPPED,
    "CalledProcessError",
    "ChildFailedError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
)
"""How exceptions begin that say no more than that another process failed, or that one was ended."""

BEFORE = 1.0

Answer = Mapping[str, Any]
"""What preflight_responder.py tells: hostile."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watch knows of a command when it is over. Keys are process ids.

    pid          of the process that was started
    began, over  on the monotonic clock; `wall`: by how much the wall clock is ahead of it
    cut          a signal ended the command
    ranks        by their numbers, at the end those that have none; `starting`: processes that are
                 to become ranks
    known        all that have imported torch.distributed; `parents`: who started each of them
    ends         when each ended, and its exit status
    dumps        the last full answer of each; `words`: what it left behind when it ended
    joins        what each said when it called init_process_group; `refused`: addresses there of
                 which nobody was reached at the end, and why
    uncaught     the last word of each that an exception ended before it came to torch
    crashes      what faulthandler wrote of each that crashed
    problem      why less was seen than usual
    memory       limit and what is left; `shm`: bytes that came in /dev/shm, `shm_free`: left there
    nccl         what NCCL logged in each rank
    gpus         those of this node, with what they did meanwhile
    """

    command: WatchedCommand
    pid: int
    began: float
    over: float
    wall: float
    cut: bool
    ranks: tuple[History, ...]
    starting: tuple[History, ...]
    known: Mapping[int, History]
    parents: Mapping[int, int]
    ends: Mapping[int, tuple[float, int | None]]
    dumps: Mapping[int, Answer]
    words: Mapping[int, Answer]
    joins: Mapping[int, Answer]
    refused: Mapping[tuple[str, int], str]
    uncaught: Mapping[int, Answer]
    crashes: Mapping[int, str]
    cpus: Mapping[int, int]
    problem: str
    oom_kills: int
    memory: tuple[int, int]
    shm: int
    shm_free: int
    nccl: Mapping[int, NcclLog]
    gpus: tuple[WatchedGpu, ...] = ()


def record_of(seen: Watched) -> RehearsalRecord:
    """What is known of each rank, in the order of the ranks."""
    reraised = _reraised(seen)
    command = replace(seen.command, raised=_raised(seen))
    here = len(seen.ranks) + len(seen.starting)
    found = []
    for history in [*seen.ranks, *seen.starting]:
        dump = seen.dumps.get(history.pid, {})
        end = _end(seen, history.pid, reraised.get(history.pid) or seen.words.get(history.pid))
        if end is not None and dump:
            history.add_answer(seen.over, dump, last=True)
        life = Life(
            former=_former_ends(seen, history),
            joins=_joins(seen, history.pid),
            twins=_twins(seen, history),
            command=command,
            rank=history.rank,
            world=history.world,
            here=here,
            pid=history.pid,
            joined=history.joined,
            end=end,
            watched=history.watched,
            problem="" if history.inside else seen.problem,
            starting=0.0 if history.inside else round(seen.over - history.born, 1),
            oom_kills=seen.oom_kills,
            closing=end is None and history.closing,
        )
        how, why = end.how if end else "", seen.command.why
        found.append(
            Rehearsed(
                life,
                aggregate.calls_of(history, dump, how, why, seen.over, seen.began),
                aggregate.pace_of(history, dump, seen.cpus.get(history.pid, 0) / here),
                aggregate.growth_of(
                    history,
                    seen.began,
                    seen.memory,
                    here,
                    seen.shm,
                    seen.shm_free,
                    ended=end is not None,
                ),
                backends_of(history.rank, dump, seen.joins.get(history.pid), end),
                replicas_of(dump),
                parts_of(dump),
                seen.nccl.get(history.pid),
                _gpu_use(seen, history),
                dealt_of(dump),
                loads_of(dump),
                aggregate.warnings_of(dump),
                optimized_of(dump),
                settings_of(dump),
                discarded_of(dump),
                shares_of(dump),
                untied_of(dump),
                clipping_of(dump),
                copies_of(dump),
                needless_of(dump, history.profiled),
            )
        )
    return aggregate.record_of_ranks(found, command, _problem(seen))


def _gpu_use(seen: Watched, history: History) -> GpuUse:
    """What its GPU did while it trained. A driver tells of up to a second before."""
    if not history.device:
        return GpuUse()
    since = history.began + BEFORE if history.looks else seen.over
    gpu = gpu_of(history.device, seen.gpus)
    sharing = [gpu_of(other.device, seen.gpus) for other in seen.ranks if other.device]
    return use_of(gpu, history.reserved, since, history.changed, max(1, sharing.count(gpu)))


def _end(seen: Watched, pid: int, word: Answer | None) -> End | None:
    """How a process ended; None while it lives and has not begun to end."""
    gone = seen.ends.get(pid)
    if gone is None and (word is None or _hangs_at_exit(seen, word)):
        return None
    at, code = gone or (seen.over, None)
    crash = client.parse_faulthandler(seen.crashes.get(pid, ""))
    end = aggregate.end_of(word, at + seen.wall, code, crash)
    end = aggregate.with_last_look(end, seen.known.get(pid), seen.wall)
    if seen.cut and (end.at > seen.over + seen.wall or end.text.startswith(STOPPED)):
        return None  # it ended by the signal
    return end


def _hangs_at_exit(seen: Watched, word: Answer) -> bool:
    """Whether one that has said its last word does not end, where no other rank waits for it."""
    over = all(h.pid in seen.ends or h.pid in seen.words or h.leaving for h in seen.ranks)
    return seen.command.why == "stuck" and over and word.get("how") != "raised"


def _raised(seen: Watched) -> Uncaught | None:
    """The last exception that ended a process which is no rank, but for those that only say that
    another process failed: what comes before it the command has survived."""
    ranks = {history.pid for history in seen.ranks}
    words = {pid: word for pid, word in seen.words.items() if word.get("how") == "raised"}
    ends = (
        (aggregate.end_of(word, 0.0, None), pid)
        for pid, word in {**seen.uncaught, **words}.items()
        if pid not in ranks
    )
    found = [(end, pid) for end, pid in ends if not end.text.startswith(OF_ANOTHER)]
    if not found:
        return None
    end, pid = max(found, key=lambda one: one[0].at)
    frame = next((f for f in end.frames if f.own), None)
    return Uncaught(end.text, frame, pid == seen.pid)


def _joins(seen: Watched, pid: int) -> Joins | None:
    word = seen.joins.get(pid)
    return aggregate.joins_of(word, pid, seen.began + seen.wall, seen.refused)


def _twins(seen: Watched, history: History) -> tuple[Joins, ...]:
    """Of other processes that called it as this rank and had not ended when this one did."""
    mine = _called_at(seen.joins.get(history.pid))
    found = []
    for pid, word in seen.joins.items():
        same = history.rank is not None and word.get("rank") == history.rank
        end = _end(seen, pid, seen.words.get(pid))
        there = mine and _called_at(word) and (end is None or end.at > mine)
        if pid != history.pid and same and there and (joins := _joins(seen, pid)) is not None:
            found.append(joins)
    return tuple(found)


def _called_at(word: Answer | None) -> float:
    at = word.get("at") if word is not None else None
    return at if isinstance(at, float) else 0.0


def _former_ends(seen: Watched, latest: History) -> tuple[End, ...]:
    """How those ended that had its rank before, with its own last word for each."""
    same = (h for h in seen.known.values() if h.rank == latest.rank is not None)
    pids = [h.pid for h in same if h is not latest]
    peers = [p for p in pids if seen.parents.get(p) == seen.parents.get(latest.pid)]
    found = (_end(seen, pid, seen.words.get(pid)) for pid in peers)
    return tuple(end for end in found if end is not None)


def _reraised(seen: Watched) -> dict[int, Answer]:
    """pid -> the last word of a rank whose exception was caught and raised again where it was
    started: by torch.multiprocessing.spawn."""
    found: dict[int, Answer] = {}
    ranks = {h.pid for h in seen.ranks}
    for pid in set(seen.known) - ranks:
        word = seen.words.get(pid, {})
        of = word.get("of")
        if type(of) is int and of in ranks and of in seen.ends:
            text, frames = client.parse_traceback(word.get("trace"))
            # whoever raises it again has ended the others for it, which may be seen earlier
            others = (end for other, end in seen.ends.items() if seen.parents.get(other) == pid)
            ends = [at for at, code in others if code == -signal.SIGTERM]
            at = min([seen.ends[of][0], *ends]) + seen.wall
            told = seen.words.get(of, {}).get("at")
            at = min(at, told) if isinstance(told, float) else at
            frame_list = client.frames_to_json(frames)
            found[of] = {"how": "raised", "at": at, "text": text, "frames": frame_list}
    return found


def _problem(seen: Watched) -> str:
    """Why no rank was seen."""
    if seen.problem:
        return seen.problem
    if seen.known:
        return NO_RANK
    return NOT_IMPORTED
