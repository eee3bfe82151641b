"""The watch over a running command: finds its ranks, looks at them twice a second, and says when it
has seen enough. Runs in a worker; ends nothing and touches nothing of the command.

    args    {"folder", "pid", "seconds", "stuck", "steps", "argv", "alone"}; alone: no other agent
            watches ranks of this job
    tells   "progress": where the ranks are, once a second
    returns the Record as JSON
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from preflight._worker import Channel
from preflight.document import encode
from preflight.knowledge.rehearsed import FRAMES, Command, End, Life, Rehearsed
from preflight.rehearsal import gathered, processes, pyspy, talk
from preflight.rehearsal.history import History, idle, place, stuck
from preflight.rehearsal.looking import look_at

EVERY = 0.5
"""Seconds between two looks."""
ANSWER = 1.0
"""Seconds for all answers to one look; who is later is asked again at the next."""
SNAPSHOT = 0.5
LAST = 8.0
"""Seconds for all that is asked once at the end."""
TELL = 1.0
SPY = 2.0
"""Seconds between two questions to py-spy."""
SEARCH_FEW, SEARCH = 1.0, 5.0
"""Seconds between two searches for ranks that have not come to torch yet, while some are known to
be missing, and otherwise."""
FOLDER = 8192
"""Words in the folder of a rehearsal that are read."""
LATE = 0.3
"""Seconds in which the last words of ranks may still come when the command has ended."""


def watch(args: Mapping[str, Any], channel: Channel, preloaded: object) -> Any:
    """Until the command ends, hangs, has done enough steps, or the time is over."""
    watcher = Watcher(args)
    told = 0.0
    while not (why := watcher.over()):
        watcher.look()
        if time.monotonic() - told >= TELL:
            told = time.monotonic()
            channel.say("progress", watcher.progress())
    return encode(watcher.conclude(why))


class Watcher:
    def __init__(self, args: Mapping[str, Any]) -> None:
        self.folder = str(args["folder"])
        self.command = int(args["pid"])
        self.argv = tuple(args["argv"])
        self.began = time.monotonic()
        self.wall = time.time() - self.began
        self.until = self.began + float(args["seconds"])
        self.patience = float(args["stuck"])
        self.steps = int(args["steps"])
        self.alone = bool(args["alone"])
        self.known: dict[int, History] = {}
        self.others: dict[int, History] = {}
        self.births: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        self.ends: dict[int, tuple[float, int | None]] = {}
        self.snapshots: dict[int, Mapping[str, Any]] = {}
        """What ranks told when another one had ended badly."""
        self.searched = self.asked = self.began
        self.problem = ""
        self.told = (self.began, 0)
        """When the live line was told last, and the collectives until then."""
        self.oom_kills = processes.oom_kills()
        self.shm, _ = processes.shared_memory()
        self.cpus: dict[int, int] = {}
        self.poll = select.poll()
        self.pidfds: dict[int, int] = {}
        self._follow(self.command)

    # --- the loop ---

    def over(self) -> str:
        """Why the watch is over; empty while it is not."""
        now = time.monotonic()
        if self.command in self.ends:
            return "ended"
        ranks = self.ranks()
        living = [h for h in ranks if h.pid not in self.ends]
        last = max((at for at, _ in self.ends.values()), default=0.0)
        hung = now - last >= self.patience
        if hung and (self.alone or self._all_here()) and self._stuck(now):
            self._search()  # one that has come since, and is on its way
            if self._stuck(time.monotonic()):
                return "stuck"
        if self.steps and ranks and all(self._enough(h) for h in ranks):
            return "steps"
        if now < self.until:
            return ""
        # of a job that has ranks elsewhere: whether somebody moves there is seen when all have met
        return "stuck" if living and hung and idle(living, now, self.patience) else "time"

    def _stuck(self, now: float) -> bool:
        living = [h for h in self.ranks() if h.pid not in self.ends]
        return stuck(living, self.starting(), now, self.patience)

    def _all_here(self) -> bool:
        """Whether the watch is over all ranks of the job."""
        found = [*self.ranks(), *self.starting()]
        return max((h.world for h in found), default=0) <= len(found)

    def _enough(self, history: History) -> bool:
        """A program without an optimizer of torch's is counted by its collectives."""
        return max(history.steps, 0 if history.steps else history.collectives) >= self.steps

    def look(self) -> None:
        """One look at everything, then wait for the next, or for the end of a process."""
        began = time.monotonic()
        self._find()
        pulses = talk.ask(self._sockets("sock"), "pulse", ANSWER)
        for pid, history in [*self.known.items(), *self.others.items()]:
            if pid in self.ends:
                continue
            if (seen := look_at(pid, pulses.get(pid), self.births.get(pid, 0))) is not None:
                history.saw(seen)
        few = self.others or not self._all_here()
        if time.monotonic() - self.searched >= (SEARCH_FEW if few else SEARCH):
            self._search()
        pause = max(0.05, EVERY - (time.monotonic() - began))
        for descriptor, _ in self.poll.poll(pause * 1000):
            self._ended(descriptor)

    def _find(self) -> None:
        """Processes that have come to torch.distributed since."""
        with os.scandir(self.folder) as entries:
            names = [entry.name for _, entry in zip(range(FOLDER), entries, strict=False)]
        for name in names:
            number, _, kind = name.partition(".")
            if kind == "hello" and number.isdecimal() and int(number) not in self.known:
                self._greet(int(number), self._word(name) or {})

    def _greet(self, pid: int, hello: Mapping[str, Any]) -> None:
        history = self.others.pop(pid, None) or History(pid, time.monotonic())
        history.inside, history.answered = True, time.monotonic()
        self.known[pid] = history
        environ = hello.get("env")
        if history.rank is None and isinstance(environ, dict):
            rank, world = (str(environ.get(name, "")) for name in processes.RANKS[0])
            if rank.isdecimal() and world.isdecimal():
                history.rank, history.world = int(rank[:7]), int(world[:7])
        parent = hello.get("ppid")
        self.parents[pid] = parent if type(parent) is int else 0
        if pid not in self.births:
            self._follow(pid)

    def _follow(self, pid: int) -> None:
        """Be told when it ends."""
        found = processes.stat(pid)
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            self.ends[pid] = (time.monotonic(), None)
            return
        self.births[pid] = found.began if found is not None else 0
        self.cpus[pid] = processes.cpus(pid)
        self.pidfds[descriptor] = pid
        self.poll.register(descriptor, select.POLLIN)

    def _ended(self, descriptor: int) -> None:
        """The status can be read as long as nobody has taken it, and by newer kernels always."""
        pid = self.pidfds.pop(descriptor)
        self.poll.unregister(descriptor)
        found = processes.stat(pid)
        if found is not None and found.ended and found.began == self.births.get(pid):
            code: int | None = processes.exit_status(found.code)
        else:
            code = processes.reaped_status(descriptor)
        os.close(descriptor)
        self.ends[pid] = (time.monotonic(), code)
        if code != 0 and pid in self.known:
            # a launcher is about to end the others, too
            self.snapshots |= talk.ask(self._sockets("sock"), "dump", SNAPSHOT)

    def _search(self) -> None:
        """Processes that a launcher has started as ranks and that have not come to torch yet."""
        self.searched = time.monotonic()
        for pid in processes.below(self.command):
            if pid in self.known or pid in self.others or pid in self.ends:
                continue
            if not processes.is_python(pid):
                continue
            if (found := processes.rank_of(pid)) is not None and not self._is_of_a_rank(pid):
                history = History(pid, time.monotonic(), inside=False)
                history.rank, history.world = found
                self._follow(pid)
                self.others[pid] = history
        self._ask_pyspy()

    def _ask_pyspy(self) -> None:
        """Of those that our hook is not in, or not yet, only py-spy can tell where they are."""
        waiting = [pid for pid in self.others if pid not in self.ends]
        if waiting and time.monotonic() - self.asked >= SPY:
            found, self.problem = pyspy.stacks(waiting)
            self.asked = time.monotonic()
            for pid, frames in found.items():
                history = self.others[pid]
                if frames != history.stack:
                    history.changed = history.moved = history.stood = self.asked
                history.stack, history.at, history.answered = frames, place(frames), self.asked

    def _is_of_a_rank(self, pid: int) -> bool:
        """What a rank has started has its RANK, too; a launcher that is known is no rank."""
        ranks = {h.pid for h in self.ranks()} | set(self.others)
        return any(one in ranks for one in processes.ancestors(pid))

    # --- what there is ---

    def ranks(self) -> list[History]:
        """The processes that are ranks: neither a launcher nor what a rank has started."""
        told = [h for h in self.known.values() if h.rank is not None]
        # a launcher in a pod may have a RANK of its own, that of the pod
        above = {pid for h in told for pid in self._ancestors(h.pid)}
        told = [h for h in told if h.joined or h.pid not in above]
        ranks = {h.pid for h in told}
        inside = [h for h in told if not any(p in ranks for p in self._ancestors(h.pid))]
        # the latest of those that had a rank one after the other: a launcher may start it again
        latest = {h.rank: h for h in sorted(inside, key=lambda h: h.born)}
        return [*latest.values(), *(h for h in self.others.values() if h.stack)]

    def starting(self) -> list[History]:
        """What is to become a rank, and that nothing can look into."""
        return [h for h in self.others.values() if not h.stack]

    def _ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(64):
            pid = self.parents.get(pid, 0)
            if not pid:
                return
            yield pid

    def _sockets(self, kind: str) -> dict[int, str]:
        return {
            pid: os.path.join(self.folder, f"{pid}.{kind}")
            for pid in self.known
            if pid not in self.ends
        }

    def _word(self, name: str) -> Mapping[str, Any] | None:
        try:
            told = json.loads(processes.read(os.path.join(self.folder, name), talk.LIMIT))
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    def progress(self) -> Mapping[str, Any]:
        """Numbers for the live line."""
        ranks = self.ranks()
        now = time.monotonic()
        most = max((h.collectives for h in ranks), default=0)
        (then, before), self.told = self.told, (now, most)
        return {
            "rate": round(max(0, most - before) / max(TELL, now - then), 1),
            "gpu": sum(h.samples[-1][3] for h in ranks if h.samples and h.pid not in self.ends),
            "seconds": round(now - self.began, 1),
            "alive": sum(h.pid not in self.ends for h in ranks),
            "starting": len(self.starting()),
            "world": max((h.world for h in [*ranks, *self.starting()]), default=0),
            "steps": _span(h.steps for h in ranks),
            "collectives": _span(h.collectives for h in ranks),
            "cpu": round(sum(h.cpu for h in ranks if h.pid not in self.ends), 2),
            "rss": sum(h.samples[-1][2] for h in ranks if h.samples and h.pid not in self.ends),
            "shm": max(0, processes.shared_memory()[0] - self.shm),
            "workers": sum(len(h.children) for h in ranks if h.pid not in self.ends),
            "waiting": [h.rank for h in ranks if h.waits and now - h.changed > 2 * TELL][:8],
            "quiet": round(min((now - h.changed for h in ranks), default=0.0), 1),
        }

    # --- the end ---

    def conclude(self, why: str) -> Any:
        """The record, with all that is asked only now."""
        now = time.monotonic()
        if why == "ended":
            time.sleep(LATE)
        self._find()
        dumps = talk.ask(self._sockets("sock"), "dump", LAST)
        silent = {pid: path for pid, path in self._sockets("torch").items() if pid not in dumps}
        for pid, text in talk.post(silent, "dump_traceback", LAST).items():
            history = self.known[pid]
            history.stack = talk.frames_of(text)[:FRAMES]
            history.at = place(history.stack)
        for descriptor, _ in self.poll.poll(0):
            self._ended(descriptor)
        command = Command(self.argv, None, why, round(now - self.began, 2), now + self.wall)
        kills = max(0, processes.oom_kills() - self.oom_kills)
        ranks = sorted(self.ranks(), key=lambda h: h.rank or 0)
        waiting = [h for h in self.starting() if h.pid not in self.ends]
        shm, free = processes.shared_memory()
        memory = processes.memory()
        found = []
        here = len(ranks) + len(waiting)
        passed_on = self._passed_on({h.pid for h in ranks})
        for history in [*ranks, *waiting]:
            word = passed_on.get(history.pid) or self._word(f"{history.pid}.end")
            dump = dumps.get(history.pid) or (word or {}).get("dump")
            dump = dump or self.snapshots.get(history.pid)
            dump = dump if isinstance(dump, dict) else {}
            end = self._end(history.pid, word)
            if end is not None and dump:
                history.told(now, dump)
            life = Life(
                former=self._former(history),
                command=command,
                rank=history.rank,
                world=history.world,
                here=here,
                pid=history.pid,
                joined=history.joined,
                end=end,
                watched=history.watched,
                problem="" if history.inside else self.problem,
                starting=0.0 if history.inside else round(now - history.born, 1),
                oom_kills=kills,
            )
            found.append(
                Rehearsed(
                    life,
                    gathered.calls_of(history, dump, end.how if end else "", why, now, self.began),
                    gathered.pace_of(history, dump, self.cpus.get(history.pid, 0) / here),
                    gathered.growth_of(
                        history,
                        self.began,
                        memory,
                        here,
                        shm - self.shm,
                        free,
                        ended=end is not None,
                    ),
                )
            )
        return gathered.record(found, command, self._problem())

    def _end(self, pid: int, word: Mapping[str, Any] | None) -> End | None:
        """How a process ended; None while it lives and has not begun to end."""
        gone = self.ends.get(pid)
        if gone is None and word is None:
            return None
        at, code = gone or (time.monotonic(), None)
        crash = talk.frames_of(processes.read(f"{self.folder}/{pid}.fault", talk.LIMIT))
        return gathered.end_of(word, at + self.wall, code, crash)

    def _former(self, latest: History) -> tuple[End, ...]:
        """How those ended that had its rank before, with its own last word for each."""
        pids = [h.pid for h in self.known.values() if h.rank == latest.rank and h is not latest]
        peers = [p for p in pids if self.parents.get(p) == self.parents.get(latest.pid)]
        found = (self._end(pid, self._word(f"{pid}.end")) for pid in peers)
        return tuple(end for end in found if end is not None)

    def _passed_on(self, ranks: set[int]) -> dict[int, Mapping[str, Any]]:
        """pid -> the last word of a rank whose exception was caught and raised again where it was
        started: by torch.multiprocessing.spawn."""
        found: dict[int, Mapping[str, Any]] = {}
        for pid in set(self.known) - ranks:
            word = self._word(f"{pid}.end") or {}
            of = word.get("of")
            if type(of) is int and of in ranks and of in self.ends:
                text, frames = talk.raised_in(word.get("trace"))
                told = [[f.file, f.line, f.function, f.own] for f in frames]
                at = self.ends[of][0] + self.wall
                found[of] = {"how": "raised", "at": at, "text": text, "frames": told}
        return found

    def _problem(self) -> str:
        """Why no rank was seen."""
        if self.problem:
            return self.problem
        if self.known:
            return "it imports torch.distributed, but nothing makes a rank of it"
        return "nothing of it has imported torch.distributed"


def _span(counts: Iterable[int]) -> list[int]:
    """The slowest and the fastest."""
    found = sorted(counts) or [0]
    return [found[0], found[-1]]
