"""The words that all parts of preflight share. Does no I/O.

Errors of ours (all three; what else escapes is our bug):

    Exception
      PreflightError     the user's fault: exit 2, one line, no traceback
      CannotObserve      raised by observe(): we could not look (permission, no such interface)
      NotApplicable      raised by observe(): there is nothing to look at here
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from preflight.frozen import dataclass
from preflight.sanitize import shell_prose, shell_word
from preflight.strenum import StrEnum

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")


class PreflightError(Exception):
    """The user's fault: shown as one line, exit code 2."""


class CannotObserve(Exception):
    """observe() could not look; the text says why and becomes Missing(cannot_observe)."""


class NotApplicable(Exception):
    """There is nothing to look at on this machine; the text says why."""


FRAMES = 12
"""Lines of a traceback that are kept, the last ones."""


def frames_of(error: BaseException) -> tuple[str, ...]:
    """The traceback of an error as `file:line in function`: no source is read for it, and no value
    of a variable is in it."""
    found = []
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        found.append(f"{code.co_filename}:{frame.tb_lineno} in {code.co_name}"[-300:])
        frame = frame.tb_next
    return tuple(found[-FRAMES:])


class Status(StrEnum):
    """What a check says of a subject. Its order is its weight: see WEIGHT."""

    PASS = "pass"
    SKIP = "skip"
    WARN = "warn"
    UNDECIDED = "undecided"
    MISSING = "missing"
    FAIL = "fail"


WEIGHT: Mapping[Status, int] = {status: weight for weight, status in enumerate(Status)}


class Cause(StrEnum):
    """Why an observation is missing."""

    TIMED_OUT = "timed_out"
    UNKILLABLE = "unkillable"
    CRASHED = "crashed"
    CANNOT_OBSERVE = "cannot_observe"
    NOT_APPLICABLE = "not_applicable"
    BLOCKED = "blocked"
    NOT_ARRIVED = "not_arrived"
    INTERRUPTED = "interrupted"
    """The run was over (a signal, --deadline) before it had answered: evidence against nobody."""
    SKIPPED = "skipped"


class Blame(StrEnum):
    """Who is at fault: this machine, the job's settings, the shared network, or we ourselves."""

    NODE = "node"
    JOB = "job"
    NETWORK = "network"
    TOOL = "tool"
    UNKNOWN = "unknown"


class Confidence(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Verdict(StrEnum):
    READY = "ready"
    NOT_READY = "not_ready"
    INCOMPLETE = "incomplete"
    UNDECIDED = "undecided"


class Kind(StrEnum):
    """What a subject is."""

    NODE = "node"
    GPU = "gpu"
    NIC = "nic"
    LINK = "link"
    RANK = "rank"
    JOB = "job"
    SOFTWARE = "software"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about. Comparable; knows its node and ranks wherever they are known.

    `name` is the device, interface, variable or package; for a link, `to` is the other node.
    """

    kind: Kind
    node: str = ""
    name: str = ""
    ranks: tuple[int, ...] = ()
    to: str = ""
    port: int | None = None

    def __str__(self) -> str:
        where = f"{self.node}->{self.to}" if self.kind is Kind.LINK else self.node
        name = f"rank {self.name}" if self.kind is Kind.RANK and self.name else self.name
        port = f"port {self.port}" if self.port is not None else ""
        return " · ".join(part for part in (where, name, port) if part) or str(self.kind)

    def meets(self, other: Subject) -> bool:
        """Whether a fault of one can be what the other shows: no other node, no other rank."""
        if Kind.JOB in (self.kind, other.kind):
            return True
        nodes = {self.node, self.to} - {""}, {other.node, other.to} - {""}
        if nodes[0] and nodes[1] and not nodes[0] & nodes[1]:
            return False
        ranks = set(self.ranks), set(other.ranks)
        return not (ranks[0] and ranks[1]) or bool(ranks[0] & ranks[1])


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a remedy: what to type, where, and whom it disturbs."""

    run: str
    where: str = ""
    disturbs: str = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingType:
    """The declaration of one finding code: how serious it is, whom it blames, which findings are
    its consequences, and what to tell the user. A judge only says who it is about and what it saw.

    headline       the finding in one sentence, subject and verb first: `{at}`, `{where}` and
                   `{seen}` as in headline.py. Empty: its subjects and what was seen
    who, cause     who can repair it, mostly the cluster administrator; the typical cause in one
                   phrase (left column of `explain`)
    means          what the user will see from torch or NCCL
    now, text      the immediate way out; the lasting repair
    commands       to look and to repair
    status, blame  the usual one, or all that a judge chooses from, the usual one first. blame None:
                   that of the check
    explains       ids (or prefixes like `world.*`, or id:code) of findings that are consequences of
                   this one where the subjects meet. None: those of the check
    was            codes that it had before; they stay aliases forever
    strict         --strict takes a warning of it for a failure: not where it is a setting that
                   sites choose on purpose, and only some jobs suffer from

    All texts are templates: `{port}` comes from the finding's `fields`. In `now`, `text` and
    commands it is a word for a shell, never inside of quotes: `{port!s}` is words of prose, quoted
    only where a shell would find more in them, `{port!r}` what the judge has quoted.
    """

    who: str = "cluster administrator"
    headline: str = ""
    cause: str
    means: str
    now: str = ""
    text: str = ""
    commands: tuple[Command, ...] = ()
    status: Status | tuple[Status, ...] = Status.FAIL
    blame: Blame | tuple[Blame, ...] | None = None
    explains: tuple[str, ...] | None = None
    was: tuple[str, ...] = ()
    strict: bool = True

    @property
    def statuses(self) -> tuple[Status, ...]:
        """All that a judge chooses from, the usual one first."""
        return (self.status,) if isinstance(self.status, Status) else self.status

    @property
    def blames(self) -> tuple[Blame, ...]:
        """The same of the blame; empty: the check's."""
        if self.blame is None:
            return ()
        return (self.blame,) if isinstance(self.blame, Blame) else self.blame

    def filled(self, fields: Mapping[str, str]) -> FindingType:
        """The same with its templates filled; a field that is not there stands as its name in
        capitals, as one writes what the reader has to put in. A `now` that lacks one is no command
        to paste, and becomes empty."""
        known, words = _Fields(fields), _Words(fields)
        try:
            now = self.now.format_map(_Known(fields))
        except LookupError:
            now = ""
        return replace(
            self,
            who=self.who.format_map(known),
            cause=self.cause.format_map(known),
            means=self.means.format_map(known),
            now=now,
            text=self.text.format_map(words),
            commands=tuple(
                replace(c, run=c.run.format_map(words), where=c.where.format_map(known))
                for c in self.commands
            ),
        )


class _Fields(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key.upper().replace("_", "-")


class _Words(_Fields):
    """The same for texts that are pasted into a shell."""

    def __getitem__(self, key: str) -> Any:
        return _Word(super().__getitem__(key), self.__missing__(key))


class _Known(_Words):
    """The same; LookupError for what is not there or can't be pasted."""

    def __getitem__(self, key: str) -> Any:
        word = _Word(self.get(key, ""), key)
        if not word.pasted():
            raise LookupError(key)
        return word


@dataclass(frozen=True, slots=True)
class _Word:
    """A field in a command; its name in capitals where the value can't be pasted."""

    text: str
    name: str

    def __format__(self, spec: str) -> str:
        return self.pasted() or self.name

    def __str__(self) -> str:
        return shell_prose(self.text) or self.name

    def __repr__(self) -> str:
        return self.text

    def pasted(self) -> str:
        """As words of a shell; empty where there are none that can be pasted."""
        # a whole command has its words divided by NUL, as in /proc/PID/cmdline
        words = [shell_word(word) for word in self.text.split("\0")]
        # what begins like an option would be one: ssh -oProxyCommand=…
        return " ".join(words) if all(words) and self.text[0] != "-" else ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point that an observation had reached, in seconds since it began."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A completed observation. `value` is what observe() returned; JSON until it is decoded."""

    value: T
    seconds: float = 0.0
    marks: tuple[Mark, ...] = ()


NO_PROCESS = "no process or thread can be started"
"""How the reason begins of whatever could not look since fork() or clone() was refused."""

NO_CPU = "it got too little CPU time"
STARVED = 0.5
"""From this part of its time on that it waited for a CPU, one that was not done in time was late
for that."""


def too_little_cpu(waited: float, seconds: float) -> str:
    """Why an observation timed out that waited for a CPU for `waited` of its `seconds`; empty where
    it had a CPU."""
    if seconds <= 0 or waited < STARVED * seconds:
        return ""
    return f"{NO_CPU}: it waited for a CPU for {waited:.1f} of its {seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Missing:
    """An observation that there is not, and why. `by` is the check that blocked it."""

    cause: Cause
    detail: str = ""
    seconds: float = 0.0
    marks: tuple[Mark, ...] = ()
    by: str = ""

    @property
    def last_mark(self) -> str:
        return self.marks[-1].name if self.marks else ""

    @property
    def starved(self) -> bool:
        """Whether it was only late, on a machine that had no CPU for it."""
        return self.cause is Cause.CANNOT_OBSERVE and self.detail.startswith(NO_CPU)


Observation = Seen[Any] | Missing


@dataclass(frozen=True, slots=True)
class Fact:
    """A value and where it came from, e.g. `Fact("4", "env WORLD_SIZE")`."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node and the ranks that are observed there. `size` is how many the launcher runs on it,
    0 when nothing says so: where it starts a process per rank, each of them observes only its own.
    """

    name: str
    ranks: tuple[int, ...]
    addr: str = ""
    size: int = 0


_named: tuple[tuple[Node, ...], Mapping[str, Node]] = (), {}


def _by_name(nodes: tuple[Node, ...]) -> Mapping[str, Node]:
    """Nodes by their names, of two that are called the same the first. Those of the last question
    are kept: a judge asks it of every node, each time of the same ten thousand."""
    global _named
    if _named[0] is not nodes:
        _named = nodes, {node.name: node for node in reversed(nodes)}
    return _named[1]


_told: tuple[tuple[Node, ...], dict[str, Subject]] = (), {}


def _subjects(nodes: tuple[Node, ...]) -> dict[str, Subject]:
    """Subjects of these nodes that were asked for, by key; those of the last nodes are kept: all
    checks ask for the same."""
    global _told
    if _told[0] is not nodes:
        _told = nodes, {}
    return _told[1]


def subject_of(top: Topology, key: str) -> Subject:
    """The node or the rank that an observation's key stands for."""
    known = _subjects(top.nodes)
    subject = known.get(key)
    if subject is None:
        node, rank = place_of(key)
        if rank is None:
            subject = Subject(Kind.NODE, node, ranks=top.ranks_of(node))
        else:
            subject = Subject(Kind.RANK, node, str(rank), ranks=(rank,))
        known[key] = subject
    return subject


def forget_subjects() -> None:
    """All checks are judged: what it takes to name a hundred thousand ranks is not kept beside the
    report."""
    global _told
    _told = (), {}


UNNUMBERED = "unnumbered"
"""The fact of how many nodes a job has, where this one knows its own number no more than torchrun
does: until all have met its ranks are provisional."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Who is in this world. `facts` says where each number came from; contradictions are data for
    env.identity, never silently resolved.

    `size` is the number of ranks of the whole job, `nodes` holds those that this run observes.
    """

    launcher: str = "local"
    job: str = ""
    size: int = 1
    nodes: tuple[Node, ...] = ()
    master_addr: str = ""
    master_port: int = 0
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def ranks_of(self, node: str) -> tuple[int, ...]:
        found = _by_name(self.nodes).get(node)
        return found.ranks if found is not None else ()

    def ranks_on(self, node: str) -> int:
        """How many ranks share a node: those that are observed, or as many as the launcher says."""
        found = _by_name(self.nodes).get(node)
        return max(len(found.ranks), found.size) if found is not None else 0

    @property
    def meets_at(self) -> str:
        """MASTER_ADDR:MASTER_PORT."""
        host = f"[{self.master_addr}]" if ":" in self.master_addr else self.master_addr
        return f"{host}:{self.master_port}"

    @property
    def several_nodes(self) -> bool:
        """Whether more than one node is observed, or the job has ranks beyond those observed."""
        return len(self.nodes) > 1 or self.size > sum(self.ranks_on(n.name) for n in self.nodes)

    @property
    def whole_nodes(self) -> int:
        """How many nodes the whole job has: as the launcher says, else as many as its ranks need
        where each has as many as this one; 0 where several are observed."""
        if len(self.nodes) != 1:
            return 0
        said = self.facts.get("nodes")
        if said is not None and said.value.isascii() and said.value.isdigit():
            return int(said.value[:RANK_DIGITS])
        return -(-self.size // max(self.ranks_on(self.nodes[0].name), 1))

    @property
    def met(self) -> int:
        """How many ranks are observed; one that two nodes claim is one."""
        return len({rank for node in self.nodes for rank in node.ranks})


def key_of(node: str, rank: int | None = None) -> str:
    """The key of an observation: the node's name, or NODE/rank."""
    return node if rank is None else f"{node}/{rank}"


RANK_DIGITS = 9
"""Of a rank's number; a longer one is none."""


KEPT = 128
"""Characters of a key whose place is kept: a stranger's may be of any length."""


def place_of(key: str) -> tuple[str, int | None]:
    """Inverse of key_of."""
    return _kept_place(key) if len(key) <= KEPT else _place(key)


def _place(key: str) -> tuple[str, int | None]:
    node, slash, rank = key.rpartition("/")
    number = rank.isascii() and rank.isdecimal() and len(rank) <= RANK_DIGITS
    return (node, int(rank)) if slash and number else (key, None)


_one_text = lru_cache(64)(str)
"""A text as it was first, which the places of a node's ranks share: they come one after another."""


@lru_cache(1 << 17)
def _kept_place(key: str) -> tuple[str, int | None]:
    node, rank = _place(key)
    return _one_text(node), rank


@dataclass(frozen=True, slots=True)
class World(Generic[T]):
    """The observations of one check from everybody, keyed by node or NODE/rank. No I/O."""

    check: str
    observations: Mapping[str, Seen[T] | Missing]
    topology: Topology
    drawn: bool = True
    """Whether measured() is to make what is only drawn."""
    _values: dict[str, T] = field(default_factory=dict, init=False, compare=False, repr=False)
    _made: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, make: Callable[..., R], *args: Hashable) -> R:
        """What a function makes of this world, which judge() and measured() both go by: of ten
        thousand nodes it takes a second each time. Nobody changes it."""
        if (make, args) not in self._made:
            self._made[make, args] = make(self, *args)
        return self._made[make, args]  # type: ignore[no-any-return]

    @property
    def seen(self) -> Mapping[str, T]:
        """What was seen, by key."""
        if not self._values:
            every: Mapping[str, Any] = self.observations
            if self.once(_all_missing):
                every = {k: o for k, o in every.items() if isinstance(o, Seen)}
            self._values.update(zip(every, map(_value, every.values()), strict=True))
        return self._values

    def told(self, make: Callable[[T], R | None]) -> dict[str, R]:
        """What `make` finds in each value, by key, without those in which it finds nothing (None).
        Where that are all, none of a hundred thousand keys is looked at."""
        made = {id(value): make(value) for value in self.distinct}
        if all(one is None for one in made.values()):
            return {}
        found = ((key, made[id(value)]) for key, value in self.seen.items())
        return {key: one for key, one in found if one is not None}

    def undrawn(self) -> World[T]:
        """The same, of which nothing is made that is only drawn."""
        other = replace(self, drawn=False)
        other._values.update(self._values)
        other._made.update(self._made)
        return other

    @property
    def distinct(self) -> tuple[T, ...]:
        """Every value that was seen, in their order; those that are one object once, and so are
        most of ten thousand nodes."""
        return self.once(_distinct)

    def missing(self, *causes: Cause) -> Mapping[str, Missing]:
        """What is missing for one of these causes (for any cause when none is named)."""
        missing = self.once(_all_missing)
        told = self.once(_causes) if causes else frozenset()
        if told <= {*causes}:
            return missing
        if told.isdisjoint(causes):
            return {}
        return {k: o for k, o in missing.items() if o.cause in causes}

    def subject(self, key: str) -> Subject:
        """The node or the rank that an observation's key stands for."""
        return subject_of(self.topology, key)

    def each(self) -> Iterator[tuple[Subject, T]]:
        """Every value that was seen, with the node or rank that it belongs to."""
        known = _subjects(self.topology.nodes)
        for key, value in self.seen.items():
            yield known.get(key) or self.subject(key), value

    def found(self, rule: Callable[[Subject, T], Iterable[Found]]) -> Iterator[Found]:
        """What a rule finds of each value. One of which it has found nothing is not looked at again
        where another node has the same one and as many ranks: most of ten thousand nodes are alike,
        and then their value is one object. A rule takes nothing else but its name from the
        subject."""
        sound: set[tuple[int, int]] = set()
        for subject, value in self.each():
            known = id(value), len(subject.ranks)
            if known not in sound:
                found = list(rule(subject, value))
                yield from found
                if not found:
                    sound.add(known)


def of_each(values: Mapping[K, T], make: Callable[[T], R]) -> dict[K, R]:
    """What `make` returns for each value, by key. It is called once for all keys whose value is one
    object, as it is on most of ten thousand nodes. `values` keeps them alive: a dict, not a view
    that creates them on access."""
    every = values.values()
    made = {id(value): make(value) for value in each_once(every)}
    if len(made) == 1:
        return dict.fromkeys(values, *made.values())
    return dict(zip(values, map(made.__getitem__, map(id, every)), strict=True))


def each_once(values: Collection[T]) -> Collection[T]:
    """Those that are one object once, in their order. Of a hundred thousand ranks that is mostly
    one, and all the rest need not be asked what it says itself."""
    return dict(zip(map(id, values), values, strict=True)).values()


_value = attrgetter("value")


def _distinct(world: World[T]) -> tuple[T, ...]:
    observations = each_once(world.observations.values())
    return tuple(each_once([o.value for o in observations if isinstance(o, Seen)]))


def _causes(world: World[Any]) -> frozenset[Cause]:
    return frozenset(one.cause for one in each_once(world.once(_all_missing).values()))


def _all_missing(world: World[Any]) -> Mapping[str, Missing]:
    if not any(isinstance(one, Missing) for one in each_once(world.observations.values())):
        return {}
    return {k: o for k, o in world.observations.items() if isinstance(o, Missing)}


@dataclass(frozen=True, slots=True)
class Found:
    """What a judge yields. `subjects` is never empty and its first is the primary one.

    `code` names an entry of the check's FINDINGS; `saw` and `expected` are sentences of facts;
    `fields` fills the templates of that entry. `status`, `blame` and `explains` are given only
    where they are not the usual ones of the declaration.
    """

    code: str
    subjects: tuple[Subject, ...]
    saw: str
    expected: str = ""
    status: Status | None = None
    blame: Blame | None = None
    explains: tuple[str, ...] | None = None
    confidence: Confidence = Confidence.CERTAIN
    alternatives: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()

    def with_(self, **changes: Any) -> Found:
        return replace(self, **changes)


OF_ANY_CHECK = frozenset(
    {
        *("no-answer", "unkillable", "crashed", "not-observable", "interrupted"),
        *("no-process", "unjudged", "not-loaded"),
    }
)
"""Codes of judge/fallbacks.py, which no check declares."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, complete: a judge's Found with what its code declares. `check`, `advice` (the
    declaration with its texts filled), `folded` and `headline`, the one sentence that says it, come
    from judge/verdict.py."""

    @property
    def name(self) -> str:
        """`check:code`, as the screen has it."""
        return f"{self.check}:{self.code}"

    @property
    def explained_as(self) -> str:
        """What `preflight explain` takes for it."""
        return self.check if self.code in OF_ANY_CHECK else self.name

    code: str
    status: Status
    subjects: tuple[Subject, ...]
    saw: str
    expected: str = ""
    blame: Blame = Blame.UNKNOWN
    confidence: Confidence = Confidence.CERTAIN
    explains: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    headline: str = ""
    check: str = ""
    advice: FindingType | None = None
    folded: tuple[str, ...] = ()

    def with_(self, **changes: Any) -> Finding:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a Grid, by the index of its row and of its column."""

    row: int
    column: int
    value: float


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers between what stands in rows and in columns, e.g. what each pair of nodes exchanged;
    drawn as a heat map. A cell that is not there was not measured. Where rows and columns are the
    same, one cell stands for both directions.

    title   what the cells are, as the heading has it
    usual   what most cells are like: each is drawn as a part of it
    unit    of `usual` and of the cells, e.g. GB/s; empty where they only say yes (1) or no (0)
    rest    the value of every cell that is not listed; None: it was not measured
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    usual: float
    unit: str = ""
    rest: float | None = None

    @property
    def square(self) -> bool:
        return self.rows == self.columns

    def by_place(self) -> Mapping[tuple[int, int], float]:
        """(row, column) -> value, both ways where rows and columns are the same."""
        found = {(c.row, c.column): c.value for c in self.cells}
        if self.square:
            found = {(column, row): value for (row, column), value in found.items()} | found
        if self.rest is not None:
            for place in ((r, c) for r in range(len(self.rows)) for c in range(len(self.columns))):
                if place not in found and not (self.square and place[0] == place[1]):
                    found[place] = self.rest
        return found


class Doing(StrEnum):
    """What somebody does in a Span."""

    ABSENT = "absent"
    WORK = "work"
    DATA = "data"
    WAIT = "wait"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where on the axis of its Lanes, doing what."""

    start: float
    end: float
    doing: Doing = Doing.WORK
    text: str = ""


@dataclass(frozen=True, slots=True)
class Swimlane:
    """What one node or rank did; `key` is that of its observation."""

    key: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Several nodes or ranks side by side on one axis: who came late, where each one stopped.

    unit  of the axis: `s`, or what is counted, e.g. collectives
    """

    title: str
    unit: str
    lanes: tuple[Swimlane, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """A number of one node or rank over an axis, as points (x, y)."""

    key: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """Several of them, with the units of both axes."""

    title: str
    across: str
    unit: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a node, for a drawing of the machine: `name` as findings call it, `place` what it
    shares with its neighbours (a NUMA node), `text` what it is, `broken` when it does not work."""

    kind: Kind
    node: str
    name: str
    place: str = ""
    text: str = ""
    broken: bool = False


DRAWN_NODES = 1024
"""Nodes of a world beyond which what is drawn is not stored: `show --judge` makes it anew."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The right column of a row (numbers even when green), the same as data, and what is drawn
    below the rows or in an HTML report. notes: lines below the row, for what needs a sentence or a
    small table."""

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid | None = None
    lanes: Lanes | None = None
    curves: Curves | None = None
    parts: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective setting and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Row:
    """One check of the report. `by_subject` is keyed like the observations."""

    id: str
    stage: str
    scope: str
    status: Status
    seconds: float
    by_subject: Mapping[str, Status]
    measured: Measured = Measured()
    reason: str = ""
    required: bool = True

    @property
    def covered(self) -> int:
        """How many subjects were really looked at."""
        blind = (Status.UNDECIDED, Status.MISSING, Status.SKIP)
        return sum(status not in blind for status in self.by_subject.values())


@dataclass(frozen=True, slots=True)
class Standing:
    """What one check says while the run goes on: the status of each subject, and the headline of
    its first failure."""

    by_subject: Mapping[str, Status]
    headline: str = ""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A process that could not be killed: its pid, its state and where in the kernel it waits."""

    pid: int
    state: str
    wchan: str = ""


class ByKey(dict[str, Observation]):
    """The observations of a check."""

    __slots__ = ("__weakref__",)


class AsNeeded(Mapping[str, Mapping[str, Observation]]):
    """Checks, each of which is made when somebody looks at it, and once for as long as somebody has
    it or looks at no other one."""

    def __init__(self, checks: Iterable[str], make: Callable[[str], ByKey]) -> None:
        self._checks = dict.fromkeys(checks)
        self._make = make
        self._known: WeakValueDictionary[str, ByKey] = WeakValueDictionary()
        self._last = ByKey()

    def __getitem__(self, check: str) -> Mapping[str, Observation]:
        if check not in self._checks:
            raise KeyError(check)
        made = self._known.get(check)
        if made is None:
            self._last = ByKey()  # which goes before there is another one
            made = self._known[check] = self._make(check)
        self._last = made
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._checks)

    def __len__(self) -> int:
        return len(self._checks)

    def __contains__(self, check: object) -> bool:
        return check in self._checks


@dataclass(frozen=True, slots=True)
class Observations:
    """Everything that was seen, before anybody judged it: a JSON document (serde.py)."""

    tool: Mapping[str, str]
    started: str
    seconds: float
    settings: Mapping[str, Setting]
    topology: Topology
    checks: Mapping[str, Mapping[str, Observation]]
    interrupted: str = ""
    left_behind: tuple[LeftBehind, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Observations and what they mean. `exit_code` is a function of all the rest."""

    verdict: Verdict
    exit_code: int
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    observations: Observations
    skipped: tuple[str, ...] = ()
    tolerated: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
