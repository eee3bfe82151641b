"""The record of a rehearsal, when its watch is over: the last questions, the last words of those
that have ended, and what the watch has seen, for each rank."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from preflight.knowledge.rehearsed import FRAMES, Command, End, Life, Record, Rehearsed
from preflight.rehearsal import gathered, processes, talk
from preflight.rehearsal.history import History, place

if TYPE_CHECKING:
    from preflight.rehearsal.watcher import Watcher

LAST, LAST_AT_ONCE = 8.0, 1.0
"""Seconds for all that is asked, and where a signal is about to reach those that are asked."""
LATE = 0.3
"""Seconds in which the last words of ranks may still come when the command has ended."""
STOPPED = "KeyboardInterrupt"


def record_of(watcher: Watcher, why: str) -> Record:
    """`why`: Command.why."""
    over = watcher.over_at
    if why == "ended":
        time.sleep(LATE)
    watcher.find()
    dumps = _asked(watcher)
    watcher.ended_of(watcher.poll.poll(0))
    watcher.crashes.close()
    seconds = round(over - watcher.began, 2)
    command = Command(watcher.argv, None, why, seconds, over + watcher.wall)
    kills = max(0, processes.oom_kills() - watcher.oom_kills)
    _introduced(watcher, over)
    ranks = sorted(watcher.ranks(), key=lambda h: h.rank or 0)
    waiting = [h for h in watcher.starting() if h.pid not in watcher.ends]
    shm, free = processes.shared_memory()
    memory = processes.memory()
    here = len(ranks) + len(waiting)
    passed_on = _passed_on(watcher, {h.pid for h in ranks})
    found = []
    for history in [*ranks, *waiting]:
        word = passed_on.get(history.pid) or watcher.word(f"{history.pid}.end")
        dump = dumps.get(history.pid) or (word or {}).get("dump")
        dump = dump or watcher.snapshots.get(history.pid)
        dump = dump if isinstance(dump, dict) else {}
        end = _end(watcher, history.pid, word)
        if end is not None and dump:
            history.told(over, dump)
        life = Life(
            former=_former(watcher, history),
            command=command,
            rank=history.rank,
            world=history.world,
            here=here,
            pid=history.pid,
            joined=history.joined,
            end=end,
            watched=history.watched,
            problem="" if history.inside else watcher.problem,
            starting=0.0 if history.inside else round(over - history.born, 1),
            oom_kills=kills,
        )
        how = end.how if end else ""
        cpus = watcher.cpus.get(history.pid, 0) / here
        found.append(
            Rehearsed(
                life,
                gathered.calls_of(history, dump, how, why, over, watcher.began),
                gathered.pace_of(history, dump, cpus),
                gathered.growth_of(
                    history,
                    watcher.began,
                    memory,
                    here,
                    shm - watcher.shm,
                    free,
                    ended=end is not None,
                ),
            )
        )
    return gathered.record(found, command, _problem(watcher))


def _introduced(watcher: Watcher, over: float) -> None:
    """Ranks that have ended between two looks say who they were in their last word."""
    for pid, history in watcher.known.items():
        told = (watcher.word(f"{pid}.end") or {}).get("dump") or watcher.snapshots.get(pid)
        if history.rank is None and isinstance(told, dict):
            history.told(over, told)


def _asked(watcher: Watcher) -> Mapping[int, Mapping[str, Any]]:
    """pid -> all that its inside tells. Of a silent one torch's own server tells the stack."""
    seconds = LAST_AT_ONCE if watcher.cut else LAST
    dumps = talk.ask(watcher.sockets("sock"), "dump", seconds)
    if watcher.cut:
        return dumps  # their stacks are what they do at the signal
    silent = {pid: path for pid, path in watcher.sockets("torch").items() if pid not in dumps}
    for pid, text in talk.post(silent, "dump_traceback", seconds).items():
        history = watcher.known[pid]
        history.stack = talk.frames_of(text)[:FRAMES]
        history.at = place(history.stack)
    return dumps


def _end(watcher: Watcher, pid: int, word: Mapping[str, Any] | None) -> End | None:
    """How a process ended; None while it lives and has not begun to end."""
    gone = watcher.ends.get(pid)
    if gone is None and word is None:
        return None
    at, code = gone or (time.monotonic(), None)
    crash = talk.frames_of(watcher.crashes.text.get(pid, ""))
    end = gathered.end_of(word, at + watcher.wall, code, crash)
    end = gathered.with_last_look(end, watcher.known.get(pid), at)
    if watcher.cut and (end.at > watcher.over_at + watcher.wall or end.text.startswith(STOPPED)):
        return None  # it ended by the signal
    return end


def _former(watcher: Watcher, latest: History) -> tuple[End, ...]:
    """How those ended that had its rank before, with its own last word for each."""
    known, parents = watcher.known.values(), watcher.parents
    pids = [h.pid for h in known if h.rank == latest.rank and h is not latest]
    peers = [p for p in pids if parents.get(p) == parents.get(latest.pid)]
    found = (_end(watcher, pid, watcher.word(f"{pid}.end")) for pid in peers)
    return tuple(end for end in found if end is not None)


def _passed_on(watcher: Watcher, ranks: set[int]) -> dict[int, Mapping[str, Any]]:
    """pid -> the last word of a rank whose exception was caught and raised again where it was
    started: by torch.multiprocessing.spawn."""
    found: dict[int, Mapping[str, Any]] = {}
    for pid in set(watcher.known) - ranks:
        word = watcher.word(f"{pid}.end") or {}
        of = word.get("of")
        if type(of) is int and of in ranks and of in watcher.ends:
            text, frames = talk.raised_in(word.get("trace"))
            at = watcher.ends[of][0] + watcher.wall
            found[of] = {"how": "raised", "at": at, "text": text, "frames": talk.told(frames)}
    return found


def _problem(watcher: Watcher) -> str:
    """Why no rank was seen."""
    if watcher.problem:
        return watcher.problem
    if watcher.known:
        return "it imports torch.distributed, but nothing makes a rank of it"
    return "nothing of it has imported torch.distributed"
