"""An agent among the others of its job: alone, as the host of their meeting, or as a guest of it.

The runner asks it what may start, tells it what was observed, and takes from it what the others
have seen. Who hosts: the agent of rank 0, if MASTER_ADDR is its own machine's; else the agent that
finds MASTER_ADDR to be its own, once nobody has listened there for a while.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.check import Scope, Stage
from preflight.cpu_wait import cpu_wait
from preflight.domains.net import meeting_port
from preflight.meeting import handshake, neighbours, tasks
from preflight.meeting.coordinator import Meeting, Taken
from preflight.meeting.discovery import Agent, Board, Whereabouts, look_around
from preflight.meeting.member import Attendance
from preflight.meeting.neighbours import Neighbours
from preflight.meeting.protocol import AGENTS_MOST, JUDGED_PER_AGENT, Hello, Said, slack
from preflight.model import Node, Observation, Topology, key_of, place_of
from preflight.process.call import Call, Told
from preflight.process.pool import Returned, Workers
from preflight.process.servers import LIGHT
from preflight.registry import Loaded
from preflight.roster import Attempt, Roll

OWN_CALL = 4.0
"""Seconds for which rank 0 tries to reach its own meeting by a translated address."""
TAKES_OVER = 2.0
"""Seconds for which nobody has listened at MASTER_ADDR before its own machine's agent does, though
it has not rank 0; half of its patience where the launcher starts rank 0 on this machine, too."""
STORE_SILENT = 1.0
"""Seconds for which a client of a launcher's store has had no answer, which takes milliseconds."""
ELSEWHERE = 8.0
TAKEN_HERE = 4.0
"""Seconds for which an agent goes on trying when all that answers is somebody else; and when it is
the one that should listen there itself."""
TAKEN = "EADDRINUSE"
NOT_OURS = ("silent", "stranger", "closed")
TURNS = 2
"""How often an agent looks whether they meet at another port."""
MANY = 1024
"""Agents of which each looks around once a second while nothing wakes it."""
PAUSE_NOTED = 2.0
"""Seconds without a turn of ours, after which nobody may be called silent for that long."""
GOODBYE_SECONDS, GOODBYE_PER_AGENT = 1.0, 0.002
"""For the guests to hear how it ended and to close their ends."""
ASSEMBLED_SECONDS, ASSEMBLED_PER_AGENT = 30.0, 0.02
"""For the guests' checks of the machine stage to end, beyond their own deadlines, and for the host
to take what they have seen."""


@dataclass(slots=True)
class Company:
    """The others of this run. `hosting` or `attending` is there once it is known which it is."""

    agent: Agent
    workers: Workers
    began: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    hosting: Meeting | None = None
    attending: Attendance | None = None
    assembled: bool = False
    """Whoever was to come is here, and what all have seen of their machines too."""
    nodes: tuple[Node, ...] = ()
    number: int = 0
    voice: bool = True
    gone: str = ""
    """Why this guest is on its own again: it never got in, or it lost the meeting."""
    pairs: Set[str] = frozenset()
    """Checks whose observers are numbered by node."""
    here: Whereabouts = field(default_factory=Whereabouts)
    stood: float = 0.0
    starved: float = 0.0
    _cpu_wait: float = field(default_factory=cpu_wait)
    _tended: float = field(default_factory=time.monotonic)
    _board: Board = field(init=False)
    _hello: Hello | None = None
    _failed: str = ""
    _door_closed: float | None = None
    _waited: float = 0.0
    _done: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _early: list[tuple[str, str, Observation]] = field(default_factory=list)
    _own_call: Call | None = None
    _neighbours: Neighbours | None = None
    """The agents of this node for which this one speaks."""
    _claim: socket.socket | None = None
    """That this is the agent of its ranks."""
    _sign: socket.socket | None = None
    """That this agent holds the port in the place of rank 0's."""
    _shift: int = 0
    """What this agent's ranks are above those that it came with, see numbering.py."""
    _port: int = 0
    """The other port at which they meet, where a torchrun's own was taken; 0: they meet at that."""
    _refused: tuple[Attempt, ...] = ()
    """What came of MASTER_PORT before the other one was tried."""
    _turned: float = 0.0
    _turns: int = 0
    _straight: bool = False
    """Whether it looks for the meeting where a launcher's store should be, and none answers."""
    _asked: bool = False
    """Whether it is attending with the one that speaks for its node, and has no seat yet."""

    def __post_init__(self) -> None:
        self._board = Board(self.agent, self.workers)

    def claim_ranks(self) -> None:
        """Say on this machine that this is the agent of its ranks, until close()."""
        self._claim = meeting_port.claim(self.agent.topology, os.environ)
        self.agent.claim = meeting_port.rank_name(self.agent.topology, os.environ)

    # --- what the runner asks ---

    @property
    def decides(self) -> bool:
        """Whether this agent says what is run after the machine stage."""
        return self.hosting is not None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those of this agent: the host of the meeting may have given it others."""
        return self.agent.topology.nodes[0].ranks

    @property
    def called(self) -> tuple[str, ...]:
        """What a guest was told to run."""
        return tuple(self.attending.started) if self.attending is not None else ()

    @property
    def pause(self) -> float:
        """Seconds between two looks of an agent that waits: a thousand of them on one machine have
        nothing else to do, and what comes wakes them."""
        agents = self._hello.agents if self._hello is not None else 1
        return min(agents / MANY, 1.0)

    @property
    def seconds_more(self) -> float:
        """For which a guest waits beyond the run's deadline: the host ends at its own, judges and
        tells."""
        if self.attending is None or self.gone:
            return 0.0
        return self._seconds(GOODBYE_SECONDS + 0.5, GOODBYE_PER_AGENT + JUDGED_PER_AGENT)

    def _seconds(self, few: float, per_agent: float) -> float:
        """What something may take among as many agents as there are said to be."""
        agents = self._hello.agents if self._hello is not None else 1
        return few + per_agent * min(agents, AGENTS_MOST)

    @property
    def over(self) -> Mapping[str, Any] | None:
        """How it ended, as the host told us."""
        return self.attending.over if self.attending is not None else None

    @property
    def whole(self) -> bool:
        return self.hosting is not None and self.hosting.whole

    @property
    def incomplete(self) -> bool:
        """Whether this agent holds the meeting, and some ranks never came or have been lost."""
        if self.hosting is None:
            return False
        return self.hosting.ranks_met() < self.agent.topology.size or bool(self.lost)

    @property
    def lost(self) -> Mapping[str, str]:
        """Keys of which nothing more will be heard, and why: those of guests that are gone, and of
        the ranks of agents that are for which a guest speaks. Asked after every word: of ten
        thousand guests only those are looked at."""
        lost: dict[str, str] = {}
        for guest in self.hosting.parted if self.hosting is not None else ():
            for one in guest.beside.values():
                if one.lost:
                    lost |= {key_of(guest.node, rank): one.lost for rank in one.ranks}
            if guest.lost:
                lost |= {key_of(guest.node, rank): guest.lost for rank in guest.ranks}
                if guest.voice:
                    lost[guest.node] = guest.lost
        return lost

    def keys(self, loaded: Loaded) -> list[str]:
        """The keys of all others for a check, once everybody has a seat."""
        if self.hosting is None:
            return []
        by_rank = loaded.check.scope in (Scope.RANK, Scope.WORLD)
        keys: list[str] = []
        for guest in self.hosting.guests:
            if by_rank:
                keys += [key_of(guest.node, rank) for rank in guest.hello.ranks]
            elif guest.voice:
                keys.append(guest.node)
        return keys

    def take(self) -> Iterable[Taken]:
        """What others have seen since this was last asked, once everybody has a seat."""
        if self.hosting is None or self._door_closed is None:
            return ()
        return self.hosting.take()

    def start(self, loaded: Loaded) -> None:
        """Have everybody observe it."""
        if self.hosting is not None:
            self.hosting.start(loaded.id)

    def observed(self, check: str, key: str, observation: Observation) -> None:
        """This agent's own: the host has to know. There a rank is called as this agent came."""
        node, rank = place_of(key)
        key = key if rank is None else key_of(node, rank - self._shift)
        if self.attending is not None:
            self.attending.send_seen(check, key, observation)
            if self._asked:  # to be said again, should it have to go to the host itself
                self._early.append((check, key, observation))
        elif self.hosting is None:
            self._early.append((check, key, observation))

    def finished(self, stage: Stage) -> None:
        """All checks of a stage that this agent has are done."""
        self._done.add(stage)

    @property
    def progress(self) -> tuple[str, float, float]:
        """What is waited for, since when, for how long at most; empty when nothing is."""
        now = time.monotonic()
        if self.assembled or self.gone:
            return "", 0.0, 0.0
        if self.hosting is not None and self._door_closed is None:
            told = self.hosting.progress
        elif self.attending is not None and self.attending.reached is None:
            told = f"the meeting at {self.agent.meets_at}"
        else:
            return "", 0.0, 0.0
        return told, now - self.began, self.agent.patience

    @property
    def roll(self) -> Roll:
        """What this agent knows of the meeting by now."""
        known = replace(
            self.here.roll(self.agent),
            waited=round(self._waited, 3),
            failed=self._failed,
            began=round(self.began_at, 3),
            stood=round(self.stood, 3),
            starved=round(self.starved, 3),
            claim=self.agent.claim,
        )
        if self.hosting is not None and self._hello is not None:
            node = self.nodes[self.number].name if self.nodes else self._hello.host
            mine = self._hello.arrival(node, offset=0.0, uncertainty=0.0)
            full, files = self.hosting.full
            return replace(
                known,
                hosts=True,
                nodes=self.hosting.nodes,
                itself=self._itself,
                full=full,
                files=files if full else 0,
                arrivals=self.hosting.arrivals(mine),
                strangers=self.hosting.strangers,
                offset=0.0,
                uncertainty=0.0,
            )
        attending = self.attending
        if attending is None:
            return known
        clock, seat = attending.clock, attending.seat
        spoken_for = seat is not None and bool(attending.lost) and not attending.host_lost
        return replace(
            known,
            ladder=self._ladder(attending),
            store=self._board.stage,
            reached=attending.reached,
            lost=attending.lost,
            crawl=attending.crawl,
            speaker=seat.speaker if seat is not None and spoken_for else -1,
            offset=clock.offset,
            uncertainty=clock.uncertainty,
        )

    # --- what happens ---

    def tend(self, mark: str) -> None:
        """Do what is due; `mark`: what this agent is at."""
        self._note_pause()
        if self.gone:
            return
        if self._hello is None:
            self._look_around()
        elif self.hosting is not None:
            self._host()
        elif self.attending is not None:
            self.attending.mark = mark or (self._neighbours.mark if self._neighbours else "")
            if self._asked:
                self._ask(self.attending)
            else:
                self._attend(self.attending)

    def _note_pause(self) -> None:
        """This agent may have been stopped for a while, with its machine or alone: what the others
        said meanwhile has yet to be read, and their silence was none."""
        now = time.monotonic()
        pause, self._tended = now - self._tended, now
        wait = cpu_wait()
        waited, self._cpu_wait = wait - self._cpu_wait, wait
        if pause >= PAUSE_NOTED:
            self.stood, self.starved = max((self.stood, self.starved), (pause, waited))
            for line in (self.hosting, self.attending, self._neighbours):
                if line is not None:
                    line.excuse(pause)

    def _look_around(self) -> None:
        """Once it is known where we are: be the host when the port may be taken, or a guest."""
        if self.agent.loopback:
            self._leave("MASTER_ADDR is this machine's own loopback")
            return
        self.here = look_around(self.agent, self.workers, self.here)
        if self.here.pending:
            return
        if not self.here.ips:
            self._leave("MASTER_ADDR has no address here")
            return
        self._hello = self.here.hello(self.agent)
        self._set_out()

    def _set_out(self) -> None:
        leads = 0 in self.agent.topology.nodes[0].ranks
        # of nodes without a number any may be the first, where the address is its own
        translated = self.here.translated and not self.agent.unnumbered
        mine = self.here.mine or translated or self.agent.store
        if self.agent.unnumbered and self.agent.is_host is not None:
            mine = self.agent.is_host
        if leads and mine:
            return
        if not self._has_neighbours():
            self._go_as_guest()
        elif self.agent.local_rank == 0:
            self._speak_for_neighbours()
        else:
            self._ask_neighbour()

    def wants_port(self) -> bool:
        """Whether this agent is to open the meeting as soon as the port may be taken."""
        return self._hello is not None and not (self.hosting or self.attending or self.gone)

    def open(self) -> None:
        """Open the meeting; go as a guest if somebody else of ours holds the port already."""
        assert self._hello is not None
        top = self.agent.topology
        port = 0 if self.agent.store else top.master_port
        if 0 not in top.nodes[0].ranks:
            self._sign = meeting_port.sign(top, os.environ)
        try:
            listeners = handshake.listen(port)
        except OSError as error:
            self._failed = errno.errorcode.get(error.errno or 0, str(error))
            self._unsign()
            self._go_as_guest()
            return
        self.hosting = Meeting(self.workers, listeners, self._hello, self.agent.token)
        if self.agent.store:
            port = listeners[0].getsockname()[1]
            self._board.announce(self.here.own, port)
        elif not self.here.mine:
            self._call_oneself(self.hosting)

    @property
    def _other_port(self) -> int:
        """Where the nodes of a torchrun meet if the port of its endpoint is taken: the store of
        another run may be there, which it shares, and the rest is looked at all the same."""
        port = self.agent.topology.master_port
        return 0 if not self.agent.nodes or self.agent.store else port + (1 if port < 65535 else -1)

    def _turn(self, attending: Attendance, waited: float) -> None:
        """Where all that answers at MASTER_PORT is somebody else: open the meeting at the other
        port, if it should have been here, or look there for a while."""
        if self._port:
            if not attending.listening and waited - self._turned >= ELSEWHERE / 2:
                attending.go_to(self.here.ips, self.agent.topology.master_port)
                self._port = 0
        elif self._turns < TURNS and self._other_port and _answers_otherwise(attending.ladder):
            self._port, self._turned, self._refused = self._other_port, waited, attending.ladder
            self._turns += 1
            if self._failed != TAKEN or not self._open_beside(attending):
                attending.go_to(self.here.ips, self._port)

    def _open_beside(self, attending: Attendance) -> bool:
        """Whether this agent holds the meeting at the other port."""
        assert self._hello is not None
        try:
            listeners = handshake.listen(self._port)
        except OSError:
            return False
        attending.close()
        self._early += attending.unsent
        self.attending, self._failed = None, ""
        self.hosting = Meeting(self.workers, listeners, self._hello, self.agent.token)
        return True

    def _go_straight(self, attending: Attendance) -> None:
        """The variables of a launcher's store may be left over on this node alone: then rank 0's
        agent listens itself where that store should be."""
        if not self._straight and self._board.unanswered >= STORE_SILENT:
            self._straight = True
            attending.go_to(self.here.ips, self.agent.topology.master_port)

    def _ladder(self, attending: Attendance) -> tuple[Attempt, ...]:
        """What came of the way that is to lead there."""
        if attending.reached is None and self._board.stage:
            return ()
        return self._refused if attending.reached is None and self._port else attending.ladder

    def _call_oneself(self, meeting: Meeting) -> None:
        """Where the address is translated on the way to this machine, rank 0's own client of the
        store needs that way back as well."""
        port = self.agent.topology.master_port
        self._own_call = self.workers.call(
            LIGHT,
            tasks.call_oneself,
            {"ips": list(self.here.ips), "port": port, "word": meeting.word, "seconds": OWN_CALL},
            seconds=OWN_CALL + 2.0,
            label="a connection to MASTER_ADDR",
        )

    @property
    def _itself(self) -> str:
        """How that went, see Roll.itself; None of it while it is under way."""
        if self._own_call is None:
            return ""
        if self.hosting is not None and self.hosting.met_itself:
            return "ok"
        result = self._own_call.result
        return str(result.value["error"]) if isinstance(result, Returned) else ""

    def _unsign(self) -> None:
        if self._sign is not None:
            self._sign.close()
            self._sign = None

    def _go_as_guest(self) -> None:
        assert self._hello is not None
        ips, port = self.here.ips, self.agent.topology.master_port
        if self.agent.store:
            self._board.look()
            ips = ()
        self.attending = Attendance(
            self.workers, self._hello, self.agent.token, ips, port, began=self.began
        )
        for check, key, observation in self._early:
            self.attending.send_seen(check, key, observation)
        self._early.clear()

    # --- with the other agents of this node ---

    def _has_neighbours(self) -> bool:
        """Whether one agent of this node is to speak for all: each of them has one rank, no rank of
        them is the host of the meeting or may become it, and it is worth it."""
        top, node = self.agent.topology, self.agent.topology.nodes[0]
        may_host = self.here.mine or self.agent.store or self.agent.local_rank in node.ranks
        one_each = self.agent.local_rank is not None and len(node.ranks) == 1 < node.size
        return one_each and not may_host and top.size >= neighbours.FROM_RANKS

    @property
    def _meeting_place(self) -> str:
        assert self._hello is not None
        return neighbours.name_of(self._hello, self.agent.token, os.environ)

    def _speak_for_neighbours(self) -> None:
        assert self._hello is not None
        ranks = self.agent.topology.nodes[0].size
        told = (self.workers, self._hello, ranks, self.agent.token, self._meeting_place)
        try:
            self._neighbours = Neighbours.expected(*told)
        except OSError:
            pass  # somebody has the name, or a sandbox allows none: each goes by itself
        self._go_as_guest()

    def _ask_neighbour(self) -> None:
        assert self._hello is not None
        ranks = self.agent.topology.nodes[0].size
        told = (self.workers, self._hello, ranks, self.agent.token, self._meeting_place)
        self.attending = neighbours.asked(*told)
        self._asked = True
        for check, key, observation in self._early:
            self.attending.send_seen(check, key, observation)

    def _ask(self, attending: Attendance) -> None:
        """Until there is a seat: to the host itself, where nobody speaks for this agent."""
        attending.tend()
        waited = time.monotonic() - attending.began
        if attending.seat is not None:
            self._asked = False
            self._early.clear()
            attending.agents = attending.hello.agents
            self._attend(attending)
        elif attending.lost or (
            attending.reached is None and (attending.refused or waited >= neighbours.FIND_SECONDS)
        ):
            self._asked = False
            attending.close()
            self._told.clear()
            self._go_as_guest()
        elif attending.reached is not None:
            self._tell_done(attending)

    def _leave_neighbours(self, why: str = "", *, host_lost: bool = False) -> None:
        """Those that this agent can't lead to the host go there themselves, as long as they can."""
        if self._neighbours is not None:
            self._neighbours.close(why, host_lost=host_lost)
            self._neighbours = None

    def tell_neighbours(self) -> None:
        """How it ended; waits a moment for them to close first."""
        if self._neighbours is None or self.over is None:
            return
        self._neighbours.tell_end(self.over)
        self._wait_for_goodbye(lambda: self._neighbours is None or self._neighbours.all_gone)
        self._leave_neighbours()

    def placed(self, topology: Topology) -> Topology:
        """The topology with all nodes that have met; a guest's, with its own node's name there. Of
        its own node the host knows what the launcher runs there, also where some never came."""
        if not self.nodes:
            return topology
        mine = self.agent.topology
        topology = replace(topology, size=mine.size, master_port=self._port or mine.master_port)
        own = replace(topology.nodes[0], ranks=mine.nodes[0].ranks)
        if self.hosting is None:
            node = self.nodes[0]
            return replace(topology, nodes=(replace(own, name=node.name, size=len(node.ranks)),))
        known = (
            replace(n, size=own.size) if own.size > len(n.ranks) and own.ranks[0] in n.ranks else n
            for n in self.nodes
        )
        return replace(topology, nodes=tuple(known))

    def _take_ranks(self, ranks: tuple[int, ...], size: int) -> None:
        """From now on this agent has these, of a job of `size` ranks."""
        top = self.agent.topology
        own = top.nodes[0]
        self._shift += min(ranks) - min(own.ranks)
        self.agent.topology = replace(top, size=size, nodes=(replace(own, ranks=ranks),))

    def _tell(self, said: Said) -> None:
        """Hand a worker here what a peer of its check has said."""
        self.workers.tell(said.group, Told(said.rank, said.topic, said.value, said.to))

    def _heard(self) -> list[Said]:
        """Take what workers here have to say to the peers of their checks."""
        heard = [Said(g, t.rank, t.topic, t.value, t.to) for g, t in self.workers.heard]
        self.workers.heard.clear()
        return heard

    # --- as the host ---

    def _host(self) -> None:
        host = self.hosting
        assert host is not None
        host.tend()
        if self._itself == tasks.ANOTHER and not host.guests and self._door_closed is None:
            host.close()  # the address is another machine's after all, and they meet there
            self.hosting = self._own_call = None
            self._go_as_guest()
            return
        now = time.monotonic()
        if self._door_closed is None:
            late = now - self.began >= self.agent.patience
            calling = self._own_call is not None and self._own_call.result is None
            if (host.complete() and (host.met_itself or not calling)) or late:
                self._door_closed = now
                self._waited = now - self.began
                host.close_door()
                self._place(host)
        elif not self.assembled:
            there = host.all_done(Stage.MACHINE)
            patience = self._seconds(ASSEMBLED_SECONDS, ASSEMBLED_PER_AGENT)
            if there or now - self._door_closed > patience:
                self.assembled = True
        for said in host.said:
            self._tell(said)
            host.relay(said, by_node=said.group in self.pairs)
        host.said.clear()
        for said in self._heard():
            host.relay(said, by_node=said.group in self.pairs)

    def _place(self, host: Meeting) -> None:
        """Everybody gets a seat, also this agent itself."""
        assert self._hello is not None
        self.nodes = host.seats()
        if host.me != self._hello:
            self._hello = host.me
            self._take_ranks(host.me.ranks, host.me.size)
        mine = self._hello.ranks
        at = self.here.ips[0] if self.here.mine else ""
        self.nodes = tuple(
            replace(n, addr=n.addr or (at if set(mine) <= set(n.ranks) else "")) for n in self.nodes
        )
        self.number = next(i for i, n in enumerate(self.nodes) if set(mine) <= set(n.ranks))
        here = [g for g in host.guests if g.number == self.number]
        self.voice = all(min(mine) <= min(g.hello.ranks) for g in here)

    def forget(self) -> None:
        """No observation is awaited any more: what there is is judged now."""
        if self.hosting is not None:
            self.hosting.say_judging()
            self.hosting.forget()

    def tell_end(self, ends: Mapping[str, Any], by_node: Mapping[str, Mapping[str, Any]]) -> None:
        """The host's last word; waits a moment for the others to close first."""
        host = self.hosting
        if host is None:
            return
        host.over(ends, by_node)
        self._wait_for_goodbye(lambda: host.gone)
        host.close()

    def _wait_for_goodbye(self, gone: Callable[[], bool]) -> None:
        until = time.monotonic() + self._seconds(GOODBYE_SECONDS, GOODBYE_PER_AGENT)
        while not gone() and time.monotonic() < until:
            for _ in self.workers.run(min(until, time.monotonic() + 0.05)):
                pass

    # --- as a guest ---

    def _attend(self, attending: Attendance) -> None:
        if attending.reached is None and (why := self._board.lead(attending)):
            self._waited = time.monotonic() - self.began
            self._leave(why)
            return
        attending.tend()
        now = time.monotonic()
        if self._neighbours is not None:
            self._neighbours.tend(attending)
        if attending.reached is None:
            waited = now - self.began
            self._turn(attending, waited)
            if self.hosting is not None:
                return
            self._go_straight(attending)
            if waited >= self.agent.patience / 2:
                self._leave_neighbours()  # they have as long for ways of their own
            if waited >= self.agent.patience or self._hopeless(attending, waited):
                self._waited = waited
                self._leave("no way led to the meeting")
            elif self._may_take_over(attending, waited):
                attending.close()
                self._early += attending.unsent  # it is a guest again if another one was faster
                self.attending = None
                self.open()
            return
        if attending.lost:
            self._leave(attending.lost)
            return
        if attending.seat is not None and not self.assembled:
            seat = attending.seat
            self.assembled = True
            self.number, self.voice = seat.number, seat.voice
            self.nodes = (Node(seat.node, seat.ranks),)
            if seat.first >= 0:
                self._failed = ""  # one of ours had the port, on this machine as well
                self._take_ranks(seat.ranks_of(attending.hello), seat.size)
        self._tell_done(attending)
        for said in attending.said:
            self._tell(said)
            if self._neighbours is not None and said.group not in self.pairs:
                self._neighbours.hear(said)
        attending.said.clear()
        for said in self._heard():
            attending.send_said(said)

    def _tell_done(self, attending: Attendance) -> None:
        """Stages that this agent has done with, and those that it speaks for."""
        for stage in self._done - self._told:
            if self._neighbours is None or self._neighbours.all_done(stage):
                attending.send_done(stage)
                self._told.add(stage)

    def _may_take_over(self, attending: Attendance, waited: float) -> bool:
        """MASTER_ADDR is this machine's, and nobody listens there."""
        beside_rank_0 = self.agent.local_rank in self.agent.topology.nodes[0].ranks
        seconds = max(TAKES_OVER, self.agent.patience / 2) if beside_rank_0 else TAKES_OVER
        if self.agent.store or not self.here.mine or waited < seconds or self._failed or self._port:
            return False
        ladder = attending.ladder
        return bool(ladder) and all(a.error == "ECONNREFUSED" for a in ladder)

    def _hopeless(self, attending: Attendance, waited: float) -> bool:
        """Somebody else answers at every address, or the port is not to be had here: then nobody of
        ours will come to listen there."""
        if self._board.stage:
            return False  # what answers may be the store itself, which has much to do
        found = {a.answer for a in attending.ladder}
        seconds = (TAKEN_HERE if self._failed else ELSEWHERE) + slack(attending.hello.agents)
        hope = {"ours"} if self._failed else {"ours", "", "closed"}  # a proxy may hang up as yet
        return waited >= seconds and bool(found) and not found & hope

    def _leave(self, why: str) -> None:
        self.gone = why
        self.assembled = True
        if self.agent.unnumbered and not self.nodes and not self.here.mine:
            # the first one is where they meet; which of the others this is nobody has said
            own = self.agent.topology.nodes[0]
            first = (self.agent.nodes - 1) * len(own.ranks)
            ranks = tuple(range(first, first + len(own.ranks)))
            self._take_ranks(ranks, self.agent.topology.size)
            self.nodes = (Node(own.name, ranks),)
        # outside it speaks for itself: whoever spoke for its node may well have got in
        self.voice = self.voice or self.attending is None or self.attending.seat is None
        if self.attending is not None:
            self.attending.close()
        self._leave_neighbours(why, host_lost=True)

    def close(self, why: str = "") -> None:
        """End all of it; `why`: this agent leaves before it is over."""
        self._leave_neighbours(why)
        if self.attending is not None:
            self.attending.leave(why)
        if self.hosting is not None:
            self.hosting.close()
        self._unsign()
        if self._claim is not None:
            self._claim.close()
            self._claim = None


def _answers_otherwise(ladder: Sequence[Attempt]) -> bool:
    """Whether something that is none of ours takes the connections at every address."""
    return bool(ladder) and all(a.answer in NOT_OURS and not a.error for a in ladder)
