"""Who has come to a meeting, counted as they come: with a thousand guests nothing is counted again
whenever one of them says a word.
"""

from __future__ import annotations

import itertools
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import field, replace
from typing import Any

from preflight.frozen import dataclass
from preflight.meeting import connection as wire
from preflight.meeting.connection import Gone, Loop, Wire
from preflight.meeting.handshake import Door, Visit
from preflight.meeting.numbering import numbered
from preflight.meeting.protocol import (
    MARK_LIMIT,
    NONCE_LIMIT,
    RANKS_OF_AGENT,
    Hello,
    Said,
    Seat,
    bounded,
    digest_of,
    marks_of,
    observation_from,
    proof_of_host,
    silence,
    text_of,
)
from preflight.model import Mark, Node, Observation, Seen, key_of, place_of
from preflight.packed import ENTRY, Packed, Packing
from preflight.packed import digest as digest_of_data
from preflight.roster import SILENT, Arrival, Stranger
from preflight.serde import encode, finite, weight


class Headcount:
    """How many agents claim how many ranks, and in how large a world each of them believes."""

    def __init__(self) -> None:
        self.claims = 0
        self.agents = 0
        self._ranks: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._nodes: Counter[int] = Counter()
        self._numbers: Counter[int] = Counter()
        self._machines: Counter[str] = Counter()

    def add(self, hello: Hello, times: int = 1) -> None:
        self.claims += times * len(hello.ranks)
        self.agents += times
        for rank in hello.ranks:
            _count(self._ranks, rank, times)
        _count(self._sizes, hello.size, times)
        _count(self._nodes, hello.nodes, times)
        _count(self._numbers, hello.node, times)
        _count(self._machines, hello.identity, times)

    def remove(self, hello: Hello) -> None:
        self.add(hello, -1)

    @property
    def ranks(self) -> int:
        return len(self._ranks)

    @property
    def sizes(self) -> Set[int]:
        """What they believe to be the number of all ranks."""
        return self._sizes.keys()

    def all_of(self, size: int) -> bool:
        """Whether each of so many ranks is there, once, and no other."""
        if not self.claims == size == len(self._ranks):
            return False
        return all(rank < size for rank in self._ranks)

    @property
    def nodes(self) -> int:
        """For how many nodes the torchrun is that all of them are to start, the least that one of
        them says; 0 where not all are of one (Hello.nodes)."""
        return min(self._nodes, default=0)

    @property
    def all_nodes(self) -> bool:
        """Whether an agent of each of these nodes is there, and from each another machine."""
        numbers = self._numbers.keys()
        fit = numbers == {-1} or (-1 not in numbers and len(numbers) == self.agents)
        here = self._nodes.keys() == {self.agents}
        return here and fit and len(self._machines) == self.agents


def _count(counter: Counter[Any], value: Any, times: int) -> None:
    counter[value] += times
    if not counter[value]:
        del counter[value]


QUIET_SECONDS = 2.0
"""After the last arrival, when as many ranks as anybody expects are there, but not the right."""
LOOK_SECONDS = 0.25
"""Between two looks at who has fallen silent."""
KEPT = 32 << 20
KEPT_A_RANK = 256 << 10
RANKS_MOST = 1 << 14
"""Bytes that are kept of what guests say, all together; what they have seen of a healthy node with
eight GPUs takes some fifty thousand beside what it has in common with others. Of more ranks than
that there is no more: their number is only claimed."""
KEPT_OF_GUEST = 24 << 20
"""The same of one of them, and of one that has any when all together have said too much."""
KEPT_ALWAYS = 256 << 10
SEEN_WEIGHT = 512
"""Bytes of an observation of a guest beside its value: its times and marks."""
UNSENT = 64 << 20
"""Bytes that wait for guests to read them, all together."""
PONG_UNSENT = 1 << 16
"""Of a guest with more than this waiting no beat is answered."""
STAGES = 16
BESIDE_MOST = 256
"""Agents for which another one speaks."""
APART = 1.0
"""Seconds after that one, from which on the roll says of each of them when it came."""


@dataclass(slots=True)
class Beside:
    """An agent for which another one of its node speaks: when it came, and why it is lost."""

    pid: int
    ranks: tuple[int, ...]
    came: float
    lost: str = ""


@dataclass(slots=True, eq=False)
class Guest:
    """An agent that has come, for itself or for others of its node as well (neighbours.py). `owed`
    are digests that it alone has offered so far."""

    wire: Wire
    hello: Hello
    addr: str
    at: float
    heard: float
    node: str = ""
    mark: str = ""
    lost: str = ""
    over: bool = False
    offset: float | None = None
    uncertainty: float | None = None
    done: set[str] = field(default_factory=set)
    owed: set[str] = field(default_factory=set)
    voice: bool = True
    number: int = 0
    ranks: frozenset[int] = frozenset()
    beside: dict[str, Beside] = field(default_factory=dict)
    """By nonce, the other agents of its node for which it speaks; `hello` has their ranks."""
    kept: int = 0
    unread: int = 0
    keys: dict[int | None, str] = field(default_factory=dict)
    """Of its node and of its ranks, once it has a seat: one text for all checks."""
    shift: int = 0
    """What its ranks are above those that it came with, by which it speaks of them."""

    def process_of(self, nonce: str) -> tuple[str, int, str]:
        """As Hello.process, of an agent for which it speaks."""
        return self.hello.identity, self.beside[nonce].pid, nonce


@dataclass(frozen=True, slots=True)
class Taken:
    """An observation of a guest, of its node or of one of its ranks. The key that it has in the
    report is known once everybody has a seat."""

    check: str
    guest: Guest
    rank: int | None
    observation: Observation

    @property
    def key(self) -> str:
        guest = self.guest
        if not guest.node:
            return key_of("", self.rank)
        if self.rank not in guest.keys:
            # as the guest itself says it, mostly: then it is one text with that
            rank = self.rank if self.rank is None else self.rank + guest.shift
            guest.keys[self.rank] = sys.intern(key_of(guest.node, rank))
        return guest.keys[self.rank]


class Intake:
    """What was taken from guests, in the order in which it came. The four fields of each lie one
    after the other: before the seats are given out there are a million of them, and an object for
    each would take as much room as what they say, and leave its holes there when it goes."""

    def __init__(self) -> None:
        self._fields: list[Any] = []

    def add(self, check: str, guest: Guest, rank: int | None, observation: Observation) -> None:
        self._fields += (check, guest, rank, observation)

    def __len__(self) -> int:
        return len(self._fields) // 4

    def __iter__(self) -> Iterator[Taken]:
        fields = iter(self._fields)
        return itertools.starmap(Taken, zip(fields, fields, fields, fields, strict=True))


class KnownMarks:
    """The marks of observations. Their names are those of the check, and their times are to the
    tenth of a millisecond: most of them have been said before, all of an observation or some. Equal
    ones are one object. `held`: bytes that they take, about and at most."""

    def __init__(self) -> None:
        self._all: dict[bytes, tuple[Mark, ...]] = {}
        """By the digest of what was said."""
        self._each: dict[Mark, Mark] = {}
        self._times: dict[float, float] = {}
        self.held = 0

    def of(self, data: Mapping[str, Any]) -> tuple[Mark, ...]:
        """Those of an observation; ValueError for what makes no sense."""
        said = digest_of_data(data.get("marks", []))
        marks = self._all.get(said)
        if marks is None:
            marks = self._all[said] = tuple(map(self._one, marks_of(data)))
            self.held += 2 * ENTRY + sys.getsizeof(marks)
        return marks

    def _one(self, mark: Mark) -> Mark:
        known = self._each.get(mark)
        if known is None:
            # several checks have a mark with the node's name in it
            known = Mark(sys.intern(mark.name), self._times.setdefault(mark.at, mark.at))
            self._each[known] = known
            self.held += 3 * ENTRY + sys.getsizeof(mark.name)
        return known


class Meeting:
    """The host's side. `tend()` is called again and again; what has come is in `taken`, `said`."""

    def __init__(self, loop: Loop, listeners: list[socket.socket], me: Hello, token: str) -> None:
        self._token = token
        self.me = me
        self.began = time.monotonic()
        self.guests: list[Guest] = []
        self.parted: dict[Guest, None] = {}
        """Those of them that are lost, or that have lost others for which they speak."""
        self.taken = Intake()
        self.said: list[Said] = []
        self.closed_at: float | None = None
        self._received = 0
        self._kept = 0
        self._room = KEPT + KEPT_A_RANK * min(me.size, RANKS_MOST)
        self._came = Headcount()
        self._came.add(me)
        self._processes: dict[tuple[str, int, str], Guest] = {}
        self._ended: dict[tuple[str, int, frozenset[int]], tuple[str, int, str]] = {}
        """Processes that are lost: when a container is started again, its process has the same
        number and ranks, and another nonce."""
        self._by_number: dict[int, tuple[Guest, ...]] = {}
        self._by_rank: dict[int, tuple[Guest, ...]] = {}
        self._passed_on = 0
        self._waits_for: Guest | None = None
        self._looks_at = self.began
        self._values: dict[bytes, Any] = {}
        """By digest."""
        self._packing = Packing()
        self._marks = KnownMarks()
        self._said_so: dict[tuple[int, float, int], Seen[Any]] = {}
        """Observations by the id() of their value, which is kept as long as this, and of their
        marks."""
        self._missing: dict[Observation, Observation] = {}
        """Equal ones are one object: where one rank does not come, five checks are blocked on all
        others."""
        self._awaited: dict[str, list[tuple[str, Guest, int | None, float, tuple[Mark, ...]]]] = {}
        self._last_arrival = self.began
        self._door = Door(loop, listeners, me, token, self._seat)

    # --- arriving ---

    def _seat(self, line: Wire, said: Hello, visit: Visit) -> None:
        line.limit = wire.LINE_LIMIT
        hello = bounded(said)
        ranks = frozenset(hello.ranks)
        process = hello.process
        again = self._ended.pop((hello.identity, hello.pid, ranks), process)
        old = self._processes.get(process) or self._processes.get(process := again)
        if old is not None and process[2] in old.beside:  # it comes by itself now
            self._change_ranks(old, old.ranks - set(old.beside.pop(process[2]).ranks))
            del self._processes[process]
        elif old is not None and not old.over:  # its first connection broke silently
            old.wire.close(reset=True)
            self._received += old.wire.received
            self._let_go(old)
            self._came.remove(old.hello)
            self.guests.remove(old)
            self.parted.pop(old, None)
            for key in [process, *(old.process_of(nonce) for nonce in old.beside)]:
                del self._processes[key]
        since = time.monotonic()
        guest = Guest(line, hello, visit.addr, since - self.began, since, ranks=ranks)
        line.wake_with(lambda events: self._heard_from(guest, events))
        self.guests.append(guest)
        self._processes[hello.process] = guest
        self._came.add(hello)
        self._last_arrival = since
        answer: dict[str, Any] = {"welcome": [visit.sent, visit.came, time.time()]}
        if self._token:
            answer["proof"] = proof_of_host(self._token, visit.nonce, said)
        try:
            line.send(answer)
            if self._token:
                line.prove(wire.proof_key(self._token, visit.nonce, hello.nonce), "host")
        except Gone as why:
            self._lose(guest, str(why))
        self._listen_to(guest, lambda: [] if self._token else visit.more)  # which nobody proved

    def _note_end(self, process: tuple[str, int, str], ranks: frozenset[int]) -> None:
        self._ended[process[0], process[1], ranks] = process

    def _change_ranks(self, guest: Guest, ranks: frozenset[int]) -> None:
        self._came.remove(guest.hello)
        guest.ranks = ranks
        guest.hello = replace(guest.hello, ranks=tuple(sorted(ranks)))
        self._came.add(guest.hello)

    def _speaks_for(self, guest: Guest, nonce: str, pid: int, ranks: frozenset[int]) -> None:
        """Another agent of a guest's node has come to it, if it has not come here by itself."""
        fits = all(0 <= rank < self.me.size for rank in ranks) and not ranks & guest.ranks
        fits = fits and not guest.hello.nodes
        many = len(guest.beside) >= BESIDE_MOST or len(guest.ranks) + len(ranks) > RANKS_OF_AGENT
        if many or not (ranks and fits) or nonce in guest.beside:
            raise ValueError(f"process {pid} can't have these ranks")
        process = (guest.hello.identity, pid, nonce)
        if self._processes.setdefault(process, guest) is guest and nonce != guest.hello.nonce:
            self._last_arrival = time.monotonic()
            came = self._last_arrival - self.began
            guest.beside[nonce] = Beside(pid, tuple(sorted(ranks)), came)
            self._change_ranks(guest, guest.ranks | ranks)

    @property
    def strangers(self) -> tuple[Stranger, ...]:
        """Who came to the port and was no agent of this job."""
        return self._door.strangers

    @property
    def full(self) -> tuple[str, int]:
        """Why nobody could be accepted for a while, and how many files may be open here."""
        return self._door.full, self._door.files.limit

    def complete(self) -> bool:
        """Whether nobody else is to be expected: every rank is there; or as many as anybody speaks
        of, but not the right ones, and nobody has come for a while."""
        if self._came.nodes:
            return self._came.all_nodes or (self._came.agents >= self._came.nodes and self._quiet())
        if self._came.all_of(self.me.size):
            return self._came.sizes == {self.me.size} or self._quiet()
        return self._came.claims >= min(self._came.sizes) and self._quiet()

    def _quiet(self) -> bool:
        return time.monotonic() - self._last_arrival >= QUIET_SECONDS

    def ranks_met(self) -> int:
        return self._came.ranks

    @property
    def nodes(self) -> int:
        """Of the torchrun that all are to start, by this agent's word; 0 where not all are."""
        return self.me.nodes if self._came.nodes else 0

    @property
    def progress(self) -> str:
        """How many have come of how many."""
        if self._came.nodes:
            return f"{self._came.agents}/{self.me.nodes} nodes"
        return f"{self._came.ranks}/{self.me.size} ranks"

    @property
    def whole(self) -> bool:
        """Every rank of the job is here, once, and nobody has been lost."""
        return self._came.all_of(self.me.size) and not any(
            g.lost or any(one.lost for one in g.beside.values()) for g in self.guests
        )

    @property
    def word(self) -> str:
        """By which the door knows a connection of this agent itself."""
        return self._door.word

    @property
    def met_itself(self) -> bool:
        return self._door.met_itself

    def close_door(self) -> None:
        """Nobody else is let in: the port is free again, the connections stay."""
        self._door.close()
        self.closed_at = self.closed_at or time.monotonic()

    def _number(self) -> None:
        """Give those the ranks that their torchrun adds up."""
        told = numbered([self.me, *(guest.hello for guest in self.guests)])
        self._came = Headcount()
        for hello in told:
            self._came.add(hello)
        self.me = told[0]
        for guest, hello in zip(self.guests, told[1:], strict=True):
            guest.shift = min(hello.ranks) - min(guest.hello.ranks)
            guest.hello, guest.ranks = hello, frozenset(hello.ranks)

    def seats(self) -> tuple[Node, ...]:
        """Give every guest its seat; the nodes in the order of their lowest rank."""
        if self._came.nodes:
            self._number()
        by_identity: dict[str, list[tuple[Hello, Guest | None]]] = {}
        for hello, guest in [(self.me, None), *((g.hello, g) for g in self.guests)]:
            by_identity.setdefault(hello.identity, []).append((hello, guest))
        groups = sorted(by_identity.values(), key=lambda g: min(min(h.ranks) for h, _ in g))
        names: Counter[str] = Counter()
        nodes: list[Node] = []
        for number, group in enumerate(groups):
            host = name = group[0][0].host
            while names[name]:  # somebody may be called gpu#2, too
                names[host] += 1
                name = f"{host}#{names[host]}"
            names[name] += 1
            ranks = tuple(sorted({r for hello, _ in group for r in hello.ranks}))
            addr = next((g.addr for _, g in group if g is not None), "")
            nodes.append(Node(name, ranks, addr))
            first = min(group, key=lambda pair: min(pair[0].ranks))[1]
            for _, guest in group:
                if guest is not None:
                    guest.node, guest.number, guest.voice = name, number, guest is first
        met = self.ranks_met()
        for guest in self.guests:
            _add(self._by_number, (guest.number,), guest)
            _add(self._by_rank, guest.ranks, guest)
        for guest in self.guests:
            node = nodes[guest.number]
            seat = Seat(
                node.name, guest.number, len(nodes), node.ranks, guest.voice, met, self.me.size
            )
            if self._came.nodes:
                hello = guest.hello
                seat = replace(seat, first=min(hello.ranks), size=hello.size)
            self._tell(guest, wire.line_of({"seat": encode(seat)}))
        return tuple(nodes)

    def seat_together(self, seat: Seat) -> None:
        """Give all that are here the seat of this agent, which speaks for them elsewhere."""
        for guest in self.guests:
            guest.node, guest.number, guest.voice = seat.node, seat.number, seat.voice
            _add(self._by_rank, guest.ranks, guest)
            self._tell(guest, wire.line_of({"seat": encode(seat)}))

    def say_goodbye(self, why: str, *, host_lost: bool) -> None:
        """All are told why this agent, which is in a meeting for them, leaves it before its end."""
        line = wire.line_of({"bye": why, "host_lost": host_lost})
        for guest in self.guests:
            self._tell(guest, line)

    def send_away(self, guest: Guest) -> None:
        """It is to go to the host itself."""
        self._lose(guest, "it came too late, or had ranks that others have")

    def arrivals(self, me: Arrival) -> tuple[Arrival, ...]:
        """Everybody who came, the host (`me`) first."""
        return (me, *(line for guest in self.guests for line in self._lines(guest)))

    def _lines(self, guest: Guest) -> Iterator[Arrival]:
        """A guest's line in the roll, and one for each that it speaks for of whom there is more to
        be told: that it came later, or is lost. Where a guest's process has ended, so that its
        kernel still closed the connection, the others of its node are only out of reach."""
        line = guest.hello.arrival(
            guest.node or guest.hello.host,
            addr=guest.addr,
            at=round(guest.at, 3),
            mark=guest.mark,
            lost=guest.lost,
            offset=guest.offset,
            uncertainty=guest.uncertainty,
        )
        ended = bool(guest.lost) and SILENT not in guest.lost
        apart = [
            one for one in guest.beside.values() if ended or one.lost or one.came - guest.at > APART
        ]
        told = {rank for one in apart for rank in one.ranks}
        yield replace(line, ranks=tuple(sorted(guest.ranks - told))) if apart else line
        for one in apart:
            yield replace(
                line,
                pid=one.pid,
                ranks=one.ranks,
                at=round(one.came, 3),
                mark="",
                lost=one.lost or guest.lost,
                through=guest.hello.pid if ended and not one.lost else 0,
            )

    # --- what guests say ---

    def _heard_from(self, guest: Guest, events: int) -> None:
        def messages() -> list[dict[str, Any]]:
            if events & wire.WRITE:
                guest.wire.flush()
            received = guest.wire.receive() if events & wire.READ else []
            guest.heard = time.monotonic()
            self._hold(guest, guest.wire.unread)
            return received

        self._listen_to(guest, messages)

    def _listen_to(self, guest: Guest, messages: Callable[[], list[dict[str, Any]]]) -> None:
        try:
            for message in messages():
                self._understand(guest, message)
        except Gone as why:
            self._lose(guest, str(why))
        except Exception as error:  # noqa: BLE001  whatever its words raise costs this guest alone
            self._lose(guest, f"it sent what makes no sense: {error}"[:MARK_LIMIT])

    def _hold(self, guest: Guest, unread: int, said: int = 0) -> None:
        """Count what is kept of a guest: the line that has not come whole yet, and bytes of what it
        said. Gone when that is more than there is room for."""
        more = unread - guest.unread + said
        guest.unread = unread
        guest.kept += more
        self._kept += more
        most = KEPT_OF_GUEST if self._kept <= self._room else KEPT_ALWAYS
        if guest.kept > most:
            raise Gone("it sent more than is kept of a guest")

    def _let_go(self, guest: Guest) -> None:
        """Its last line will not come whole any more."""
        self._kept -= guest.unread
        guest.unread = 0

    def _understand(self, guest: Guest, message: Mapping[str, Any]) -> None:
        match message:
            case {"beat": mark, "t": sent, **more}:
                guest.mark = str(mark)[:MARK_LIMIT]
                match more.get("clock"):
                    case [int() | float() as offset, int() | float() as uncertainty]:
                        guest.offset, guest.uncertainty = finite(offset), finite(uncertainty)
                now = time.time()
                if guest.wire.unsent < PONG_UNSENT:
                    guest.wire.send({"pong": [finite(sent), now, time.time()]})
            case {"seen": [str(check), str(key), dict(data)]}:
                self._seen(guest, check, key, data)
            case {"value": [str(digest), value]}:
                self._valued(guest, digest, value)
            case {"done": str(stage)} if len(guest.done) < STAGES:
                guest.done.add(stage[:40])
            case {"said": [str(group), int(rank), str(topic), value, to]}:
                numbers = None if to is None else tuple(int(n) for n in to)
                if rank in guest.ranks or rank == guest.number:
                    self._hold(guest, guest.unread, weight(wire.line_of(message)))
                    self.said.append(Said(group, rank, topic, value, numbers))
            case {"with": list(others)} if self.closed_at is None:
                for nonce, pid, ranks in others:
                    of = frozenset(int(rank) for rank in ranks)
                    self._speaks_for(guest, str(nonce)[:NONCE_LIMIT], int(pid), of)
            case {"gone": [str(nonce), why]} if nonce in guest.beside:
                one = guest.beside[nonce]
                one.lost = str(why)[:MARK_LIMIT] or "it left"
                self.parted[guest] = None
                self._note_end(guest.process_of(nonce), frozenset(one.ranks))
            case {"bye": why}:
                guest.over, guest.lost = True, str(why)[:MARK_LIMIT]
                self.parted[guest] = None

    def _seen(self, guest: Guest, check: str, key: str, data: Mapping[str, Any]) -> None:
        """The key is made again from the guest's own seat: it can't speak for another node."""
        rank = place_of(sys.intern(key))[1]
        if rank is not None and rank + guest.shift not in guest.ranks:
            raise ValueError(f"{key!r:.60} is not its own")
        self._hold(guest, guest.unread, SEEN_WEIGHT + len(check))
        check = sys.intern(check)  # which each of a million observations names
        if "missing" in data:
            self._hold(guest, guest.unread, weight(wire.line_of(data)))
            missing = observation_from(data)
            self.taken.add(check, guest, rank, self._missing.setdefault(missing, missing))
            return
        seconds, marks = finite(data.get("seconds", 0.0)), self._marks_of(guest, data)
        if "digest" not in data:
            seen = self._seen_as(self._kept_of(guest, data["value"]), seconds, marks)
            self.taken.add(check, guest, rank, seen)
            return
        digest = str(data["digest"])[:64]
        if (known := bytes.fromhex(digest)) in self._values:
            seen = self._seen_as(self._values[known], seconds, marks)
            self.taken.add(check, guest, rank, seen)
            return
        guest.owed.add(digest)
        if digest not in self._awaited:
            guest.wire.send({"want": [digest]})
        self._awaited.setdefault(digest, []).append((check, guest, rank, seconds, marks))

    def _kept_of(self, guest: Guest, value: Any, *, new: bool = False) -> Any:
        """A value of a guest, of which only what nobody has said before is kept. `new`: it is known
        that nobody has said all of it."""
        before = self._packing.held
        value = self._packing.of(value, new=new)
        self._hold(guest, guest.unread, self._packing.held - before)
        return value

    def _seen_as(self, value: Any, seconds: float, marks: tuple[Mark, ...]) -> Seen[Any]:
        """An observation; of those that are equal there is one. What was packed is one node's."""
        if isinstance(value, Packed):
            return Seen(value, seconds, marks)
        key = id(value), seconds, id(marks)
        seen = self._said_so.get(key)
        if seen is None:
            seen = self._said_so[key] = Seen(value, seconds, marks)
        return seen

    def _marks_of(self, guest: Guest, data: Mapping[str, Any]) -> tuple[Mark, ...]:
        """The marks of an observation, of which only those are kept that nobody has said before."""
        before = self._marks.held
        marks = self._marks.of(data)
        self._hold(guest, guest.unread, self._marks.held - before)
        return marks

    def _valued(self, guest: Guest, digest: str, value: Any) -> None:
        if digest_of(text_of(value)) != digest:
            raise ValueError("a value is not what its digest says")
        if digest not in self._awaited:
            return  # nobody has asked for it, or another one was faster
        value = self._values[bytes.fromhex(digest)] = self._kept_of(guest, value, new=True)
        for check, of, rank, seconds, marks in self._awaited.pop(digest, ()):
            of.owed.discard(digest)
            if not of.owed:
                of.owed = set()  # one that has been emptied keeps its room
            self.taken.add(check, of, rank, self._seen_as(value, seconds, marks))

    def take(self) -> Iterable[Taken]:
        """All that was taken, which goes."""
        taken, self.taken = self.taken, Intake()
        return taken

    def forget(self) -> None:
        """Nothing more is awaited: what it takes to keep equal values once and to pass on what one
        says may go, some half of the memory that the values take themselves."""
        self._packing = Packing()
        self._values.clear()
        self._marks = KnownMarks()
        self._said_so.clear()
        self._missing.clear()
        self._awaited.clear()
        self._by_number.clear()
        self._by_rank.clear()
        for guest in self.guests:
            guest.keys.clear()

    def all_done(self, stage: str) -> bool:
        """Whether every guest that is still there has done with a stage. The one who was waited for
        last is looked at first: this is asked after every word."""
        last = self._waits_for
        if last is not None and stage not in last.done and not last.lost:
            return False
        waits = (g for g in self.guests if stage not in g.done and not g.lost)
        self._waits_for = next(waits, None)
        return self._waits_for is None

    # --- time ---

    def tend(self) -> None:
        """Do what is due."""
        self._door.tend()
        now = time.monotonic()
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_SECONDS
        limit = silence(max(len(self.guests), self.me.agents))
        for guest in self.guests:
            silent = now - guest.heard
            # a neighbour beats as rarely as it would for a host of all
            there = silent > limit and not guest.lost and not guest.over
            if there and silent > silence(guest.hello.agents):
                self._lose(guest, f"{SILENT} for {silent:.0f} s")

    def excuse(self, seconds: float) -> None:
        """We ourselves did not listen for so long."""
        for guest in self.guests:
            guest.heard += seconds

    def _lose(self, guest: Guest, why: str) -> None:
        if guest.wire.closed:
            return
        if not guest.over:
            byes = (str(m["bye"]) for m in guest.wire.rest() if "bye" in m)
            guest.lost = next(byes, why)[:MARK_LIMIT]
            self.parted[guest] = None
            theirs = {rank for one in guest.beside.values() for rank in one.ranks}
            self._note_end(guest.hello.process, guest.ranks - theirs)
        guest.wire.close(reset=True)
        self._let_go(guest)
        # what it alone had offered is asked of another one that offered the same
        for digest in guest.owed & self._awaited.keys():
            offers = (other for _, other, *_ in self._awaited[digest])
            other = next((g for g in offers if g is not guest and not g.lost), None)
            if other is not None:
                self._tell(other, wire.line_of({"want": [digest]}))

    # --- what the host says ---

    def _tell(self, guest: Guest, line: bytes) -> None:
        if guest.lost or guest.over:
            return
        try:
            guest.wire.send_line(line)
        except Gone as why:
            self._lose(guest, str(why))

    def start(self, check: str) -> None:
        """Have every guest observe a check."""
        line = wire.line_of({"start": check})
        for guest in self.guests:
            self._tell(guest, line)

    def relay(self, said: Said, *, by_node: bool) -> None:
        """Pass on what one observer told the others. `by_node`: they are numbered by node."""
        if self._passed_on > UNSENT // 8 and self.unsent > UNSENT:
            slowest = max(self.guests, key=lambda g: 0 if g.lost else g.wire.unsent)
            self._lose(slowest, "it stopped reading")
        line = wire.line_of(
            {"said": [said.group, said.rank, said.topic, said.value, said.to and list(said.to)]}
        )
        meant = None if said.to is None else set(said.to)
        for guest in self._meant(meant, by_node):
            numbers = frozenset((guest.number,)) if by_node else guest.ranks
            if said.rank in numbers and len(numbers) == 1:
                continue
            if by_node and not guest.voice:
                continue
            if meant is None or meant & numbers:
                self._passed_on += len(line)
                self._tell(guest, line)

    def _meant(self, numbers: Set[int] | None, by_node: bool) -> list[Guest]:
        """The guests that may be meant. Each of ten thousand nodes speaks to a few others: to look
        at all of them every time would take minutes."""
        if numbers is None:
            return self.guests
        places = self._by_number if by_node else self._by_rank
        found = {id(g): g for number in numbers for g in places.get(number, ())}
        return [*found.values()]

    def say_judging(self) -> None:
        """Tell everybody that no beat is answered until it is over: of ten thousand nodes judging
        takes longer than a host may else be silent."""
        line = wire.line_of({"judging": ""})
        for guest in self.guests:
            self._tell(guest, line)

    def over(self, ends: Mapping[str, Any], by_node: Mapping[str, Mapping[str, Any]]) -> None:
        """Tell everybody how it ended; `by_node`: what is only for that node, `own`, its exit code,
        and `line`, which one of its agents says."""
        for guest in self.guests:
            own = {"own": 0, **by_node.get(guest.node, {})}
            if not guest.voice:
                own["line"] = ""
            self._tell(guest, wire.line_of({"over": {**ends, **own}}))

    @property
    def received(self) -> int:
        """Bytes that agents have sent."""
        return self._received + sum(g.wire.received for g in self.guests)

    @property
    def unsent(self) -> int:
        """Bytes that wait to be read by guests."""
        self._passed_on = 0
        return sum(g.wire.unsent for g in self.guests if not g.lost and not g.over)

    @property
    def gone(self) -> bool:
        """Whether every guest has closed its end."""
        return all(g.lost or g.over or g.wire.closed for g in self.guests)

    def close(self) -> None:
        """Nothing of the meeting stays, no TIME_WAIT on its port either: the guests close first,
        and who has not is reset."""
        self.close_door()
        self._received = self.received
        for guest in self.guests:
            guest.wire.close(reset=True)
        for known in (self.guests, self.parted, self._processes, self._by_number, self._by_rank):
            known.clear()
        self._door.files.restore()


def _add(places: dict[int, tuple[Guest, ...]], numbers: Iterable[int], guest: Guest) -> None:
    """Note who has these numbers. A number is nearly always one guest's: of all that are its alone
    there is one tuple."""
    alone = (guest,)
    for number in numbers:
        places[number] = places[number] + alone if number in places else alone
