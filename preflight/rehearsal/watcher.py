"""The record of a rehearsal, when its watch is over: the last questions, the last words of those
that have ended, and what the watch has seen, for each rank."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from preflight.domains.job.record import FRAMES, Command, End, Life, Record, Rehearsed
from preflight.process.worker import Channel
from preflight.rehearsal import aggregate as gathered
from preflight.rehearsal import client as talk
from preflight.rehearsal import procfs as processes
from preflight.rehearsal import pyspy
from preflight.rehearsal.crashes import Crashes
from preflight.rehearsal.history import History, idle, patience_of, place, stuck, waited
from preflight.rehearsal.other_agents import Elsewhere
from preflight.rehearsal.sampling import among, look_at
from preflight.rehearsal.workdir import OVER
from preflight.serde import encode

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


EVERY = 0.5
"""Seconds between two looks."""
ANSWER = 1.0
"""Seconds for all answers to one look; who is later is asked again at the next."""
SNAPSHOT = 0.5
SAME = 0.5
"""Seconds before a signal reached us in which it may have reached others: a terminal sends it to
all of them."""
TELL = 1.0
SPY = 2.0
"""Seconds between two questions to py-spy."""
SEARCH_FEW, SEARCH = 1.0, 5.0
"""Seconds between two searches for ranks that have not come to torch yet, while some are known to
be missing, and otherwise."""
FOLDER = 8192
"""Words in the folder of a rehearsal that are read."""
AT_ONCE = 0.001


def watch(args: Mapping[str, Any], channel: Channel, preloaded: object) -> Any:
    """Until the command ends, hangs, has done enough steps, or the time is over."""
    watcher = Watcher(args, channel)
    told = 0.0
    while not (why := watcher.over()):
        watcher.look()
        if time.monotonic() - told >= TELL:
            told = time.monotonic()
            channel.say("progress", watcher.progress())
    return encode(record_of(watcher, why))


class Watcher:
    def __init__(self, args: Mapping[str, Any], channel: Channel) -> None:
        self.channel = channel
        self.cut = 0.0
        """When a signal ended the command; 0 while none has."""
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
        self.elsewhere = Elsewhere()
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)
        self.pidfds: dict[int, int] = {}
        self.crashes = Crashes(self.folder, self.poll, self._snapshot)
        self._follow(self.command)

    # --- the loop ---

    def over(self) -> str:
        """Why the watch is over; empty while it is not."""
        now = time.monotonic()
        if self._interrupted():
            return "stuck" if self._stands() else "interrupted"
        if self.command in self.ends:
            return "ended"
        ranks = self.ranks()
        last = max((at for at, _ in self.ends.values()), default=0.0)
        hung = now - last >= self.patience
        if hung and (self.alone or self._all_here()) and self._stuck(now):
            self._search()  # one that has come since, and is on its way
            if self._stuck(time.monotonic()):
                return "stuck"
        if not self.alone and self._stuck_everywhere(now, hung):
            return "stuck"
        if self.steps and ranks and all(self._enough(h) for h in ranks):
            return "steps"
        if now < self.until:
            return ""
        return "stuck" if self._stands() else "time"

    def _stands(self) -> bool:
        """Whether nothing goes on when the watch is over. Of a job that has ranks elsewhere it is
        seen when all have met whether somebody moves there."""
        now = self.over_at
        ended = {pid: at for pid, (at, _) in self.ends.items() if at <= now}
        living = [h for h in self.ranks() if h.pid not in ended]
        hung = now - max(ended.values(), default=0.0) >= self.patience
        return hung and bool(living) and idle(living, now, self.patience)

    @property
    def over_at(self) -> float:
        """Now, or when a signal ended the command, which it may have done a little earlier than it
        reached us."""
        return self.cut - SAME if self.cut else time.monotonic()

    def _stuck(self, now: float) -> bool:
        living = [h for h in self.ranks() if h.pid not in self.ends]
        return stuck(living, self.starting(), now, self.patience)

    def _stuck_everywhere(self, now: float, hung: bool) -> bool:
        """The same of ranks that other agents watch, too. Each tells when its own stand."""
        living = [h for h in self.ranks() if h.pid not in self.ends]
        patience = patience_of(living, self.patience)
        still = hung and bool(living) and idle([*living, *self.starting()], now, patience)
        if not still and not self.elsewhere.told:
            return False
        ranks = [*self.ranks(), *self.starting()]
        waits = still and waited(living, now, patience)
        sockets = self.sockets("sock")
        lowest = sorted((h for h in living if h.pid in sockets), key=lambda h: h.rank or 0)
        return self.elsewhere.stand_too(
            {h.pid: sockets[h.pid] for h in lowest},
            len(ranks) if still else 0,
            waits,
            max((h.world for h in ranks), default=0),
        )

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
        self.find()
        pulses = talk.ask(self.sockets("sock"), "pulse", ANSWER)
        if self._interrupted():
            return  # what they do now is how they take the signal
        apart = {h.pid for h in self.ranks()}
        for pid, history in [*self.known.items(), *self.others.items()]:
            if pid in self.ends:
                continue
            born = self.births.get(pid, 0)
            if (seen := look_at(pid, pulses.get(pid), born, apart)) is not None:
                history.saw(seen)
        few = self.others or not self._all_here()
        if time.monotonic() - self.searched >= (SEARCH_FEW if few else SEARCH):
            self._search()
        pause = max(0.05, EVERY - (time.monotonic() - began))
        self.ended_of(self.poll.poll(pause * 1000))

    def _interrupted(self) -> bool:
        """Whether the parent has told us that a signal has come."""
        told = self.channel.hear(OVER, 1, AT_ONCE)
        self.cut = next((float(at) for at in told.values()), 0.0)
        return self.cut > 0

    def ended_of(self, events: Iterable[tuple[int, int]]) -> None:
        for descriptor, _ in events:
            self.crashes.come(descriptor)
            if descriptor in self.pidfds:
                self._ended(descriptor)

    def find(self) -> None:
        """Processes that have come to torch.distributed since."""
        with os.scandir(self.folder) as entries:
            names = [entry.name for _, entry in zip(range(FOLDER), entries, strict=False)]
        for name in names:
            number, _, kind = name.partition(".")
            if kind == "hello" and number.isdecimal() and int(number) not in self.known:
                self._greet(int(number), self.word(name) or {})

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
        if code != 0 and pid in self.known and pid not in self.crashes.text:
            self._snapshot(SNAPSHOT)

    def _snapshot(self, seconds: float) -> None:
        """What all are in, before a launcher ends the others, too."""
        self.find()
        self.snapshots |= talk.ask(self.sockets("sock"), "dump", seconds)

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
        inside = among(self.known, self._ancestors)
        return [*inside, *(h for h in self.others.values() if h.stack)]

    def starting(self) -> list[History]:
        """What is to become a rank, and that nothing can look into."""
        return [h for h in self.others.values() if not h.stack]

    def _ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(64):
            pid = self.parents.get(pid, 0)
            if not pid:
                return
            yield pid

    def sockets(self, kind: str) -> dict[int, str]:
        return {
            pid: os.path.join(self.folder, f"{pid}.{kind}")
            for pid in self.known
            if pid not in self.ends
        }

    def word(self, name: str) -> Mapping[str, Any] | None:
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


def _span(counts: Iterable[int]) -> list[int]:
    """The slowest and the fastest."""
    found = sorted(counts) or [0]
    return [found[0], found[-1]]
