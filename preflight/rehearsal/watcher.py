"""Watches the rehearsed command from a worker: finds its ranks, samples them twice a second, and
decides when the watch is over. The record is made of it by conclusion.py."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from preflight.domains.job.record import WatchedCommand
from preflight.process import scratch
from preflight.process.worker import Channel
from preflight.rehearsal import client, gpu_looks, nccl_logs, procfs, pyspy
from preflight.rehearsal.addresses import unreached
from preflight.rehearsal.conclusion import Watched, record_of
from preflight.rehearsal.crashes import Crashes
from preflight.rehearsal.history import (
    History,
    activity,
    all_idle,
    all_stuck,
    any_waited,
    patience_of,
)
from preflight.rehearsal.other_agents import OtherAgents
from preflight.rehearsal.sampling import (
    number_by_elimination,
    number_by_index,
    sample_process,
    select_ranks,
    select_unnumbered,
    tree_below,
)
from preflight.rehearsal.traffic import Traffic
from preflight.rehearsal.workdir import OVER
from preflight.serde import encode

LAST, LAST_AT_ONCE = 8.0, 1.0
"""Seconds for all that is asked, and where a signal is about to reach those that are asked."""
LATE = 0.3
"""Seconds in which the last words of ranks may still come when the command has ended."""
EVERY = 0.5
"""Seconds between two looks."""
GLANCE, GLANCES = 0.2, 10.0
"""Seconds between two glances, and for how long ranks are glanced at from their first steps on: a
run of a few seconds of steps has too few looks to tell where their time goes."""
IN_A_STEP = 2
"""Glances in a step, at most: several at one say the same."""
LIGHT = 0.03
"""Seconds in which answers must come, or the next glance is left out: the machine is busy."""
ANSWER = 1.0
"""Seconds for all answers to one look; who is later is asked again at the next."""
BYTES_EVERY = 1.0
"""Seconds between two counts of what ranks move; one must be quiet for as long to be counted."""
SNAPSHOT = 0.5
WAITED = 5.0
"""Seconds that somebody has waited before all are asked for everything, and between two times."""
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
    with contextlib.suppress(OSError):  # a file system without locks
        scratch.hold(str(args["folder"]))
    watcher = Watcher(args, channel)
    told = 0.0
    while not (why := watcher.over()):
        watcher.look()
        if time.monotonic() - told >= TELL:
            told = time.monotonic()
            channel.say("progress", watcher.progress())
    return encode(record_of(watcher.conclude(why)))


class Watcher:
    """The processes of one command, and what is known of them so far."""

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
        """What ranks answered when another one had ended badly, or somebody waited."""
        self.snapped = self.tried = self.began
        """When all have answered last, and when they were asked."""
        self.searched = self.asked = self.began
        self.problem = ""
        self.told = (self.began, 0)
        """When the live line was sent last, and the collectives until then."""
        self.oom_kills = procfs.oom_kills()
        self.shm, _ = procfs.shared_memory()
        self.cpus: dict[int, int] = {}
        self.traffic = Traffic()
        self.counted = self.began
        self.stores: dict[int, int] = {}
        """MASTER_PORT of each rank."""
        self.elsewhere = OtherAgents()
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
        # one that is still on its way is waited for by those that are there
        here = [*living, *self.starting()]
        return hung and bool(living) and all_idle(here, now, self.patience, self.until)

    @property
    def over_at(self) -> float:
        """Now, or when a signal ended the command, which it may have done a little earlier than it
        reached us."""
        return self.cut - SAME if self.cut else time.monotonic()

    def _stuck(self, now: float) -> bool:
        living = [h for h in self.ranks() if h.pid not in self.ends]
        return all_stuck(living, self.starting(), now, self.patience, self.until)

    def _stuck_everywhere(self, now: float, hung: bool) -> bool:
        """The same of ranks that other agents watch, too. Each tells when its own stand."""
        living = [h for h in self.ranks() if h.pid not in self.ends]
        patience = patience_of(living, self.patience)
        here = [*living, *self.starting()]
        still = hung and bool(living) and all_idle(here, now, patience, self.until)
        if not still and not self.elsewhere.told:
            return False
        ranks = [*self.ranks(), *self.starting()]
        waits = still and any_waited(living, now, patience)
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
        pulses = client.ask_responders(self.sockets("sock"), "pulse", ANSWER)
        if self._interrupted():
            return  # what they do now is how they take the signal
        apart = {h.pid for h in self.ranks()}
        self._count_bytes(apart)
        for pid, history in [*self.known.items(), *self.others.items()]:
            if pid in self.ends:
                continue
            born, moved = self.births.get(pid, 0), self.traffic.of(pid)
            if (seen := sample_process(pid, pulses.get(pid), born, apart, moved)) is not None:
                history.add_sample(seen)
        few = self.others or not self._all_here()
        if time.monotonic() - self.searched >= (SEARCH_FEW if few else SEARCH):
            self._search()
        self._snapshot_of_wait()
        self._glance_until(began + EVERY)

    def _glance_until(self, until: float) -> None:
        """Wait for the next look, or for the end of a process; short before, ask ranks in their
        first steps where they are."""
        events: list[tuple[int, int]] = []
        while not events and (pause := self._glance_seconds()) < until - time.monotonic():
            events = self.poll.poll(pause * 1000)
            began = time.monotonic()
            asked = {} if events else self.sockets("sock")
            for pid, pulse in client.ask_responders(asked, "pulse", GLANCE).items():
                if "error" not in pulse:
                    self.known[pid].add_answer(time.monotonic(), pulse)
            if time.monotonic() - began > LIGHT:
                break
        if not events:
            events = self.poll.poll(max(0.05, until - time.monotonic()) * 1000)
        self.handle_events(events)

    def _glance_seconds(self) -> float:
        """Until the next glance."""
        now = time.monotonic()
        living = [h for h in self.ranks() if h.inside and h.done and h.pid not in self.ends]
        if not living or any(h.looks and now - h.began > GLANCES for h in living):
            return EVERY
        return max(GLANCE, *(h.step_seconds / IN_A_STEP for h in living))

    def _count_bytes(self, ranks: set[int]) -> None:
        """What ranks move that show nothing else, where somebody waits."""
        now = time.monotonic()
        living = [h for h in self.ranks() if h.pid not in self.ends]
        if now - self.counted < BYTES_EVERY or not any_waited(living, now, BYTES_EVERY):
            return
        self.counted = now
        for pid in ranks - self.stores.keys():
            port = procfs.variable(pid, "MASTER_PORT")
            self.stores[pid] = int(port) if port.isdecimal() and len(port) < 6 else 0
        quiet = [h.pid for h in living if now - h.changed >= BYTES_EVERY]
        trees = [(pid, tree_below(pid, ranks)) for pid in quiet]
        self.traffic.look(trees, {port for port in self.stores.values() if port})

    def _interrupted(self) -> bool:
        """Whether the parent says that a signal has come."""
        told = self.channel.hear(OVER, 1, AT_ONCE)
        self.cut = next((float(at) for at in told.values()), 0.0)
        return self.cut > 0

    def handle_events(self, events: Iterable[tuple[int, int]]) -> None:
        """Crashes that begin, and processes that have ended."""
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
            if not number.isdecimal():
                continue
            if kind == "hello" and int(number) not in self.known:
                self._greet(int(number), self.word(name) or {})
            elif kind == "child" and int(number) in self.known:
                self.known[int(number)].child = True

    def _greet(self, pid: int, hello: Mapping[str, Any]) -> None:
        history = self.others.pop(pid, None) or History(pid, time.monotonic())
        history.inside, history.answered = True, time.monotonic()
        self.known[pid] = history
        environ = hello.get("env")
        if history.rank is None and isinstance(environ, dict):
            rank, world = (str(environ.get(name, "")) for name in procfs.RANKS[0])
            if rank.isdecimal() and world.isdecimal():
                history.rank, history.world = int(rank[:7]), int(world[:7])
        history.child = hello.get("child") is True
        parent = hello.get("ppid")
        self.parents[pid] = parent = parent if type(parent) is int else 0
        # between a rank and its helper may be a process without torch: a fork server
        for above in procfs.ancestors(parent):
            self.parents.setdefault(parent, above)
            parent = above
        if pid not in self.births:
            self._follow(pid)

    def _follow(self, pid: int) -> None:
        """Get an event when it ends."""
        found = procfs.stat(pid)
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            self.ends[pid] = (time.monotonic(), None)
            return
        self.births[pid] = found.began if found is not None else 0
        self.cpus[pid] = len(procfs.cpus(pid))
        self.pidfds[descriptor] = pid
        self.poll.register(descriptor, select.POLLIN)

    def _ended(self, descriptor: int) -> None:
        """The status can be read as long as nobody has taken it, and by newer kernels always."""
        pid = self.pidfds.pop(descriptor)
        self.poll.unregister(descriptor)
        found = procfs.stat(pid)
        if found is not None and found.ended and found.began == self.births.get(pid):
            code: int | None = procfs.exit_status(found.code)
        else:
            code = procfs.reaped_status(descriptor)
        os.close(descriptor)
        self.ends[pid] = (time.monotonic(), code)
        if code != 0 and pid in self.known and pid not in self.crashes.text:
            self._snapshot(SNAPSHOT)

    def _snapshot(self, seconds: float) -> Collection[int]:
        """What all are in, before a launcher ends the others, too."""
        self.find()
        found = client.ask_responders(self.sockets("sock"), "dump", seconds)
        self.snapshots |= found
        return found.keys()

    def _snapshot_of_wait(self) -> None:
        """What all are in while somebody waits. A signal that ends the command leaves a second to
        ask them, which is not enough on a busy machine."""
        now = time.monotonic()
        living = [h for h in self.ranks() if h.pid not in self.ends]
        if not self._still_so() and now - self.tried >= WAITED and any_waited(living, now, WAITED):
            self.tried = now
            told = self._snapshot(ANSWER)
            self.snapped = now if all(h.pid in told for h in living if h.inside) else 0.0

    def _still_so(self) -> bool:
        """Whether no rank has done anything since all were asked."""
        return all(history.changed < self.snapped for history in self.known.values())

    def _search(self) -> None:
        """Processes that a launcher has started as ranks and that have not come to torch yet."""
        self.searched = time.monotonic()
        for pid in procfs.descendants(self.command):
            if pid in self.known or pid in self.others or pid in self.ends:
                continue
            if not procfs.is_python(pid):
                continue
            if (found := procfs.rank_of(pid)) is not None and not self._is_of_a_rank(pid):
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
                history.stack, history.at, history.answered = frames, activity(frames), self.asked

    def _is_of_a_rank(self, pid: int) -> bool:
        """What a rank has started has its RANK, too; a launcher that is known is no rank."""
        ranks = {h.pid for h in self.ranks()} | set(self.others)
        return any(one in ranks for one in procfs.ancestors(pid))

    # --- the end ---

    def conclude(self, why: str) -> Watched:
        """The last questions, and all that was seen. `why`: WatchedCommand.why."""
        over = self.over_at
        if why == "ended":
            time.sleep(LATE)
        self.find()
        answers = self._last_answers()
        self.handle_events(self.poll.poll(0))
        self.crashes.close()
        waited = self.snapshots if self.cut and self._still_so() else {}
        words = {pid: w for pid in self.known if (w := self.word(f"{pid}.end")) is not None}
        dumps: dict[int, Mapping[str, Any]] = {}
        for pid, history in self.known.items():
            dump = answers.get(pid) or waited.get(pid)
            dump = dump or words.get(pid, {}).get("dump") or self.snapshots.get(pid)
            if isinstance(dump, dict):
                dumps[pid] = dump
                # a rank that has ended between two looks says who it was in its last word
                if history.rank is None and pid not in answers:
                    history.add_answer(over, dump, last=True)
        if self.alone:
            indexes = {pid: word.get("index") for pid, word in words.items()}
            number_by_index(self.unnumbered(), self.ranks(), indexes)
        number_by_elimination(self.unnumbered(), self.ranks())
        ranks = sorted(self.ranks(), key=lambda h: h.rank or 0)
        # of the others those that an exception has ended before they could say it
        ranks += [h for h in self.unnumbered() if words.get(h.pid, {}).get("how") == "raised"]
        joins = {pid: w for pid in self.known if (w := self.word(f"{pid}.joins")) is not None}
        uncaught = dict(client.uncaught(self.folder, FOLDER)) if why == "ended" else {}
        waiting = {h.pid for h in ranks if h.at == "init" and h.pid not in self.ends}
        tried = {pid: joins[pid] for pid in waiting & joins.keys()}
        if why != "stuck":  # rank 0 may be about to listen, unless the launcher does so for it
            tried = {pid: w for pid, w in tried.items() if why == "time" and w.get("held")}
        refused = unreached(tried.values())
        kills = max(0, procfs.oom_kills() - self.oom_kills)
        shm, free = procfs.shared_memory()
        return Watched(
            command=WatchedCommand(
                self.argv, None, why, round(over - self.began, 2), over + self.wall
            ),
            pid=self.command,
            began=self.began,
            over=over,
            wall=self.wall,
            cut=self.cut > 0,
            ranks=tuple(ranks),
            starting=tuple(h for h in self.starting() if not (h.inside or h.pid in self.ends)),
            known=self.known,
            parents=self.parents,
            ends=self.ends,
            dumps=dumps,
            words=words,
            joins=joins,
            refused=refused,
            uncaught=uncaught,
            crashes=self.crashes.text,
            cpus=self.cpus,
            problem=self.problem,
            oom_kills=kills,
            memory=procfs.memory(),
            shm=shm - self.shm,
            shm_free=free,
            nccl=nccl_logs.read_logs(self.folder, {h.pid: h.rank for h in ranks}),
            gpus=gpu_looks.read_looks(self.folder),
        )

    def _last_answers(self) -> Mapping[int, Mapping[str, Any]]:
        """pid -> all that its inside tells. Of a silent one py-spy tells the stack: such as of one
        in native code that keeps the interpreter's lock."""
        seconds = LAST_AT_ONCE if self.cut else LAST
        dumps = client.ask_responders(self.sockets("sock"), "dump", seconds)
        if self.cut:
            return dumps  # their stacks are what they do at the signal
        silent = [pid for pid in self.sockets("sock") if pid not in dumps]
        found, _ = pyspy.stacks(silent) if silent else ({}, "")
        for pid, frames in found.items():
            self.known[pid].stack, self.known[pid].at = frames, activity(frames)
        return dumps

    # --- what there is ---

    def ranks(self) -> list[History]:
        """The processes that are ranks: neither a launcher nor what a rank has started."""
        inside = select_ranks(self.known, self._ancestors)
        return [*inside, *(h for h in self.others.values() if h.stack)]

    def starting(self) -> list[History]:
        """What is to become a rank: what nothing can look into, and children that have not said
        which, while one is missing."""
        found = [h for h in self.others.values() if not h.stack]
        ranks = self.ranks()
        if len(ranks) < max((h.world for h in ranks), default=0):
            found += [h for h in self.unnumbered() if h.pid not in self.ends]
        return found

    def unnumbered(self) -> list[History]:
        """Children that may be ranks and have not said which."""
        return select_unnumbered(self.known, self._ancestors)

    def _ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(64):
            pid = self.parents.get(pid, 0)
            if not pid:
                return
            yield pid

    def sockets(self, kind: str) -> dict[int, str]:
        """pid -> its socket in the folder, of those that live."""
        return {
            pid: os.path.join(self.folder, f"{pid}.{kind}")
            for pid in self.known
            if pid not in self.ends
        }

    def word(self, name: str) -> Mapping[str, Any] | None:
        """What a process has left in a file of the folder."""
        told = client.parse_json(procfs.read(os.path.join(self.folder, name), client.LIMIT))
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
            "shm": max(0, procfs.shared_memory()[0] - self.shm),
            "workers": sum(len(h.children) for h in ranks if h.pid not in self.ends),
            "waiting": [h.rank for h in ranks if h.waits and now - h.changed > 2 * TELL][:8],
            "quiet": round(min((now - h.changed for h in ranks), default=0.0), 1),
        }


def _span(counts: Iterable[int]) -> list[int]:
    """The slowest and the fastest."""
    found = sorted(counts) or [0]
    return [found[0], found[-1]]
