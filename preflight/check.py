"""The declaration of a check, and how checks are found, validated, selected and ordered.

A check is a module in checks/ whose file name is its id (net_port.py is net.port). It has

    a docstring   the question in its first line; `Level  standard` (or `deep`) in the third where
                  it is beyond quick, so that a quick run need not load it; then the sections
    CHECK         a Check
    FINDINGS      finding code -> FindingType
    observe(host, ctx) -> a frozen dataclass     runs in a process of its own, knows no threshold
    judge(world, expect) -> iterable of Found    pure
    measured(world) -> Measured                  pure; the right column of the screen

Nothing registers itself: the folder is listed. A module that can't be imported or is declared
badly is reported as broken, never silently absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from preflight.frozen import dataclass
from preflight.headline import begun
from preflight.model import Blame, Finding, FindingType, Found, Measured, Status, Topology, World
from preflight.strenum import StrEnum

if TYPE_CHECKING:
    from preflight.expect import Expect
    from preflight.host import Host
    from preflight.roster import Roll

T = TypeVar("T")


OLDEST_TORCH = (2, 4)
"""The oldest release with which the checks that need torch have been seen to be right."""


class Scope(StrEnum):
    """Who observes: once a node, every rank alone, pairs of nodes, or all ranks together."""

    NODE = "node"
    RANK = "rank"
    PAIR = "pair"
    WORLD = "world"


class Stage(StrEnum):
    """Stages follow each other, with a barrier between all ranks; those in LOCAL need nobody."""

    MACHINE = "machine"
    MEETING = "meeting"
    FABRIC = "fabric"
    TRAINING = "training"
    REHEARSAL = "job"


LOCAL = frozenset({Stage.REHEARSAL, Stage.MACHINE})
"""What every agent does on its own, also where it can't reach the others."""


class Level(StrEnum):
    """A time contract: quick < 8 s node-local, standard < 90 s with peers, deep: minutes."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"

    def includes(self, other: Level) -> bool:
        order = tuple(Level)
        return order.index(other) <= order.index(self)


class Requirement(StrEnum):
    TORCH = "torch"
    GPU = "gpu"
    PEERS = "peers"
    """Another agent: several nodes, or one process per rank."""
    REHEARSAL = "rehearsal"
    """A command that was rehearsed (`preflight rehearse`): no run has that."""


@dataclass(frozen=True, slots=True)
class Check:
    """The declaration.

    budget    seconds that one observation may take before it is killed
    quick_budget
              the same in a quick run, where its whole deadline has no room for `budget`
    needs     ids that must have passed for the same subject, else Missing(blocked)
    requires  what it can't do without; not there: skipped with that reason
    torch     it runs in a fork of the process that has tried to import torch
    preload   modules that a further fork of that process imports for it, beside the other work
    required  False: undecided does not make the run undecided
    disturbs  what it touches, for `list` ("-" is nothing)
    drains    True: SLURM's hooks run it, and a FAIL of it that blames the node drains that node.
              Only for what says nothing but of the node: not of a job, or of what nodes share
    reports_meeting, reports_torch
              it says who came to the meeting, or why torch can't be imported: what can't be run
              for lack of either is blocked by it. The first answers {"roll": Roll, …}
    holds_port
              it binds MASTER_PORT: the meeting opens there once it is done
    was       ids that it had before; they stay aliases forever
    blame     whom its findings blame, where their codes say nothing else
    explains  what its findings explain, where their codes say nothing else
    options   the keys of [checks."id"] that observe() reads from ctx.options, with their meaning
    """

    scope: Scope
    stage: Stage
    budget: float
    quick_budget: float | None = None
    needs: tuple[str, ...] = ()
    level: Level = Level.QUICK
    required: bool = True
    requires: frozenset[Requirement] = frozenset()
    torch: bool = False
    preload: tuple[str, ...] = ()
    disturbs: str = "-"
    drains: bool = False
    reports_meeting: bool = False
    reports_torch: bool = False
    holds_port: bool = False
    was: tuple[str, ...] = ()
    blame: Blame = Blame.UNKNOWN
    explains: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def when(self) -> str:
        """The level from which on a run has it, or the command that has it at any level."""
        return "rehearse" if Requirement.REHEARSAL in self.requires else str(self.level)


class Peers(Protocol):
    """What the observers of one WORLD check (its ranks) or of one PAIR check (the nodes, numbered)
    may say to each other while they observe. Relayed by the parents over the meeting, so that it
    works when the network under test does not."""

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        """Tell `value` (small JSON data) to all ranks of this check, or to those in `to`. With a
        thousand nodes nobody may tell everybody: a PAIR check names whom it means."""

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        """rank -> value of those who said `topic`, this rank included if it did; returns once they
        are `count`, or after `seconds` with as many as there were."""


@dataclass(frozen=True, slots=True)
class Preloaded:
    """How an import in the fork server went. `error` is a traceback, empty when it succeeded;
    `note` says who names its Python where that is not ours, or why another one is not taken. Of the
    `seconds` it only waited for a CPU in `cpu_wait`."""

    seconds: float
    error: str = ""
    absent: bool = False
    version: str = ""
    note: str = ""
    cpu_wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Context:
    """Who observes, for how long, with which options. No thresholds.

    rank, local_rank     of this observer (0 for a node-scope check)
    world_size           ranks of this WORLD check; local_world_size: those on this node.
                         In a PAIR check the nodes are numbered: rank is this node's number,
                         world_size how many there are
    roll                 what this agent knows of the meeting; None where there was none
    master_addr, _port   where the job would meet; empty/0 when nothing says so
    master_ip            the address of master_addr by which this agent came to the meeting, where
                         it takes seconds to look that up; else empty
    seconds              the budget of this observation; the process is killed when it is over
    patience             seconds for which this run waits for nodes that are late (--arrive)
    mark(name)           "I have got this far": shown when the observation is killed
    """

    topology: Topology
    node: str
    seconds: float
    mark: Callable[[str], None]
    peers: Peers
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    master_addr: str = ""
    master_port: int = 0
    master_ip: str = ""
    patience: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    preloaded: Mapping[str, Preloaded] = field(default_factory=dict)
    roll: Roll | None = None


@runtime_checkable
class MayFail(Protocol):
    """An observation that says itself, by `trouble`, that it did not get through."""

    trouble: Any


class CheckModule(Protocol[T]):
    """What a module in checks/ is. `conforms` in its test lets mypy compare the two T."""

    __doc__: str | None
    CHECK: Check
    FINDINGS: Mapping[str, FindingType]

    def observe(self, host: Host, ctx: Context) -> T: ...
    def judge(self, world: World[T], expect: Expect) -> Iterable[Found]: ...
    def measured(self, world: World[T]) -> Measured: ...


def conforms(module: CheckModule[T]) -> CheckModule[T]:
    """The module itself; for the type checker's eyes."""
    return module


def status_of(declared: Mapping[str, FindingType], found: Found) -> Status:
    """The status of what a judge found: its own, else the usual one of its code."""
    return found.status or declared[found.code].statuses[0]


def complete(check_id: str, check: Check, declared: FindingType, found: Found) -> Finding:
    """A judge's Found with what its code and its check declare. Who can't tell blames nobody and
    explains nothing unless it says so."""
    status = found.status or declared.statuses[0]
    sure = status is not Status.UNDECIDED
    blames = (*declared.blames, check.blame if sure else Blame.UNKNOWN)
    explains = (found.explains, declared.explains, check.explains if sure else ())
    return Finding(
        code=found.code,
        status=status,
        subjects=found.subjects,
        saw=found.saw,
        expected=found.expected,
        blame=found.blame or blames[0],
        confidence=found.confidence,
        explains=next(ids for ids in explains if ids is not None),
        alternatives=found.alternatives,
        fields=found.fields,
        evidence=found.evidence,
        headline=begun(declared.headline, found.saw, found.fields),
        check=check_id,
        advice=declared.filled(found.fields),
    )
