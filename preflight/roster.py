"""The roll of a meeting: who came, when and from where, who did not, and how an agent got there.

meeting/coordinator.py writes it, rdzv.reach and agree.clock judge it. Plain data.
"""

from __future__ import annotations

from dataclasses import field

from preflight.frozen import dataclass
from preflight.model import Mark
from preflight.strenum import StrEnum

SLOW_LOOKUP = 1.0
"""Seconds."""

SILENT = "no sign of life"
"""How it begins why somebody was lost of whom nothing was heard any more, not even an end."""

HALFWAY = "in the middle of a message"
"""How it ends why somebody was lost whose message had not come whole."""

GAVE_UP = "it gave the host up"
"""How an agent's goodbye begins that lost the host of the meeting, and could still say so."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to the meeting point that an agent tried, the last time that it tried it.

    ip        a numeric address; empty when the name gave none
    error     errno's name (ECONNREFUSED, ETIMEDOUT: nobody answered, EHOSTUNREACH, ENETUNREACH,
              EACCES, EINVAL …), or of the lookup (EAI_NONAME, EAI_AGAIN, SILENT); empty: connected
    answer    what was there after the connection: `ours` (a meeting of this job), `other job`,
              `token` (it, or we, could not prove to know PREFLIGHT_TOKEN), `silent` (accepts, says
              nothing), `closed`, `stranger` (other bytes, see `heard`); empty: not connected
    heard     the first bytes of a stranger, made printable and cut
    seconds   that this try took; `tries` how many there were, `at` when the last began
    unacked   bytes of ours that the other end's kernel had not acknowledged at its end
    icmp      the ICMP message that ended it: `port`, `prohibited`, `host`, `network` or
              `expired`; empty: none, or the kernel does not say. `icmp_by`: the address of who
              sent it
    """

    ip: str
    port: int
    error: str = ""
    answer: str = ""
    heard: str = ""
    seconds: float = 0.0
    tries: int = 1
    at: float = 0.0
    unacked: int = 0
    icmp: str = ""
    icmp_by: str = ""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One agent that came to the meeting, its host included.

    node      its name in the report (unique, `gpu1#2` when two machines are called gpu1)
    host      its own host name; identity: boot id, network namespace and host name, hashed
    ranks     that it owns; `size` the ranks of the whole job as it believes
    addr      the address that the host of the meeting saw it come from
    claims    what it believes MASTER_ADDR:MASTER_PORT to be
    mine      whether MASTER_ADDR is an address of its own machine
    at        seconds after the meeting opened
    mark      the last sign of life: `CHECK: mark`; lost: why it is gone, empty while it is there
    offset    its wall clock less that of the meeting's host, seconds, +- uncertainty; None: unknown
    through   the process of its node that was here for it and has ended, so that nothing more was
              heard of this one; 0: `lost` is its own
    """

    node: str
    host: str
    identity: str
    pid: int
    ranks: tuple[int, ...]
    size: int
    addr: str = ""
    claims: str = ""
    mine: bool = False
    job: str = ""
    at: float = 0.0
    mark: str = ""
    lost: str = ""
    offset: float | None = None
    uncertainty: float | None = None
    through: int = 0


@dataclass(frozen=True, slots=True)
class Stranger:
    """Somebody at the meeting's port who is no agent of this job.

    kind      `silent`, `http`, `c10d`, `tls`, `garbage`, `other job`, `token`, `half-open`;
              `crowd`: silent, and closed early to make room for others; `too many`: an agent
              beyond all that can belong to the job
    """

    addr: str
    kind: str
    count: int = 1
    heard: str = ""


@dataclass(frozen=True, slots=True)
class Crawl:
    """A connection to the meeting's host that still took bytes while nothing was heard any more.

    acked    bytes that the other end's kernel acknowledged within `seconds`
    queued   bytes that waited to be sent, or to be acknowledged, at the end
    scaled   whether both ends agreed on TCP window scaling
    """

    seconds: float
    acked: int
    queued: int
    scaled: bool = True


class StoreStage(StrEnum):
    """What an agent waits for before a launcher's own store has told it where they meet."""

    NONE = ""
    IMPORT = "import"  # of torch, which its client needs
    CONNECTION = "connection"
    ANNOUNCEMENT = "announcement"  # of the meeting, by its host


@dataclass(frozen=True, slots=True)
class Roll:
    """What one agent knows of the meeting when it is over with arriving.

    hosts       this agent holds the meeting; only then `arrivals` and `strangers` are filled
    name        MASTER_ADDR and port as they were given; `ips` what the name gave here, c10d's order
    lookup      why the lookup of the name failed (EAI_NONAME …, SILENT), empty when it did not;
                `looked`: how many seconds the last one took
    mine        MASTER_ADDR is an address of this machine
    ladder      each address that this agent tried, in order; empty on the host
    reached     it is in the meeting, seconds after it began; None: it never was
    waited      seconds that it waited (for the others, or to get in); `patience` the most it would
    failed      why the host could not listen (errno's name), empty when it could
    full        why the host could not accept for a while (errno's name: EMFILE), empty when it
                always could; `files`: how many files it may have open
    itself      how the host's own connections to MASTER_ADDR ended, where no interface of its
                machine has that address: `ok`, errno's name, `stranger` or `another meeting`;
                empty: it made none
    lost        why it is in the meeting no more, empty while it is
    speaker     the rank of its node whose agent was there for it, where that is whom it lost; -1:
                the host itself
    began       when it went there, by its own wall clock; 0: nobody said
    stood       the longest time for which this agent itself did nothing at all, seconds
    starved     for how many of them it was ready to go on, and had no CPU
    claim       the name by which an agent of its machine is known that has its ranks
                (meeting_port.py); `twins`: processes of others that had it when it began
    store       what this agent was still waiting for where a launcher's own store has to tell it
                where they meet, or when it went to MASTER_ADDR by itself; empty: it was told, or
                there is none
    nodes       of the torchrun that is to come, which adds up their ranks; 0: of none such
    crawl       how slowly it could send to the host until it gave it up; None: not known, or not so
    offset      as in Arrival, measured by this agent itself against the host's clock
    """

    hosts: bool
    name: str
    port: int
    size: int
    ranks: tuple[int, ...] = ()
    host: str = ""
    pid: int = 0
    ips: tuple[str, ...] = ()
    lookup: str = ""
    looked: float = 0.0
    mine: bool = False
    ladder: tuple[Attempt, ...] = ()
    reached: float | None = None
    waited: float = 0.0
    patience: float = 0.0
    failed: str = ""
    full: str = ""
    files: int = 0
    arrivals: tuple[Arrival, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    itself: str = ""
    lost: str = ""
    began: float = 0.0
    stood: float = 0.0
    starved: float = 0.0
    offset: float | None = None
    uncertainty: float | None = None
    speaker: int = -1
    crawl: Crawl | None = None
    nodes: int = 0
    claim: str = ""
    twins: tuple[int, ...] = ()
    store: StoreStage = StoreStage.NONE
    marks: tuple[Mark, ...] = field(default=())

    @property
    def master_ip(self) -> str:
        """The address by which this agent came to the meeting, where it took seconds to look the
        name up: c10d does that twice for each connection. Empty where it did not."""
        if self.looked < SLOW_LOOKUP:
            return ""
        inside = (attempt.ip for attempt in self.ladder if attempt.answer == "ours")
        return next(inside, next(iter(self.ips), ""))
