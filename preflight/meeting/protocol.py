"""What the two ends of the meeting say to each other, beside the lines (connection.py)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from preflight.frozen import dataclass
from preflight.model import Mark, Missing, Observation, Seen, Verdict
from preflight.roster import Arrival
from preflight.serde import decode, encode, finite

BEAT_SECONDS = 1.0
BEATS = 256
"""That a host is to answer in a second: in a crowd each guest has fewer of them."""
SILENT_SECONDS = 6.0
"""Without a beat, after which a guest (or the host) is lost; and some more in a crowd, since a
thousand agents on one small machine are slow, and not dead."""
SILENT_PER_AGENT = 0.01
CROWD = 4096
"""Agents beyond which nobody is given more time: their number is only claimed."""
JUDGED_PER_AGENT = 0.004
"""Seconds for the host to judge what all have seen, before it tells them."""
AGENTS_MOST = 1 << 14
"""For whom there is more time to judge, and to hear the end: their number is only claimed."""
INLINE = 512
"""Bytes of a value that is sent at once: asking for it would cost more."""
MARK_LIMIT = 200
MARKS_LIMIT = 1000
CODES = (0, 3, 4, 5, 129, 130, 143)
"""The exit codes of a run: of its verdict, or of the signal that ended it."""
RANKS_OF_AGENT = 4096
RANKS_MOST = 1 << 20
NONCE_LIMIT = 64
NODE_LIMIT = 80
"""Characters of a node's name: those of its host, and what tells it from another one of that."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What an agent says of itself.

    local_rank  of its first rank, None where nobody says it
    nodes       of the torchrun that it is to start, whose agents add up their ranks
                (numbering.py); 0: its ranks are as it says
    node        which of these it is; -1: the host of the meeting gives out the numbers
    """

    version: str
    job: str
    host: str
    identity: str
    pid: int
    ranks: tuple[int, ...]
    size: int
    claims: str
    mine: bool
    nonce: str
    local_rank: int | None = None
    nodes: int = 0
    node: int = -1

    @property
    def process(self) -> tuple[str, int, str]:
        """Which process it is from. Its number does not tell that: each of the containers that
        share a machine's network may have a process 1."""
        return self.identity, self.pid, self.nonce

    @property
    def agents(self) -> int:
        """How many there are in all, if each has as many ranks as this one."""
        return -(-self.size // max(1, len(self.ranks)))

    def arrival(self, node: str, **more: Any) -> Arrival:
        """Its line in the roll."""
        told = (self.host, self.identity, self.pid, self.ranks, self.size)
        return Arrival(node, *told, claims=self.claims, mine=self.mine, job=self.job, **more)


@dataclass(frozen=True, slots=True)
class Seat:
    """A guest's place among all: its node's name and number, how many nodes there are, and all
    ranks that its node has; `voice`: it speaks for its node where one observation a node is made;
    `speaker`: the rank whose agent is in the meeting for this one, -1 where it is there itself;
    `first`: the first of its ranks where the host has given them out (Hello.nodes), -1 where it has
    not, and `size` is then that of the whole job.
    """

    node: str
    number: int
    nodes: int
    ranks: tuple[int, ...]
    voice: bool
    met: int
    size: int
    speaker: int = -1
    first: int = -1

    def ranks_of(self, hello: Hello) -> tuple[int, ...]:
        """The ranks of the agent whose seat it is."""
        if self.first < 0:
            return hello.ranks
        return tuple(range(self.first, self.first + len(hello.ranks)))


def seat_of(data: Mapping[str, Any], hello: Hello) -> Seat:
    """The seat that a host gives to the agent of a hello; ValueError for one that can't be its."""
    seat: Seat = decode(Seat, data)
    ranks = set(seat.ranks)
    given = seat.first >= 0
    if given and not (hello.nodes and max(ranks, default=0) < seat.size <= RANKS_MOST):
        raise ValueError("its seat has ranks that are not the host's to give")
    own = set(seat.ranks_of(hello))
    if not own <= ranks or not all(0 <= rank < RANKS_MOST for rank in ranks):
        raise ValueError("its seat is for other ranks")
    if not 0 <= seat.number < seat.nodes <= RANKS_MOST:
        raise ValueError("its seat has an invalid number")
    if not 0 < len(seat.node) <= NODE_LIMIT or "/" in seat.node:
        raise ValueError("its seat has an invalid node name")
    if seat.speaker != -1 and seat.speaker not in ranks:
        raise ValueError("its seat has a speaker of another node")
    return seat


def end_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """How a host says that it ended, see Meeting.over(); ValueError for anything else."""
    verdict, codes = Verdict(str(data.get("verdict"))), (data.get("exit"), data.get("own"))
    if not all(type(code) is int and code in CODES for code in codes):
        raise ValueError("an invalid exit code")
    if codes[0] == 0 and verdict is not Verdict.READY:
        raise ValueError(f"{verdict} with the exit code 0")
    return {**data, "verdict": verdict}


@dataclass(frozen=True, slots=True)
class Said:
    """What an observer told its peers; `to` None: all of them."""

    group: str
    rank: int
    topic: str
    value: Any
    to: tuple[int, ...] | None


# --- observations on their way ---


def text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def observation_for(observation: Observation) -> tuple[dict[str, Any], str, str]:
    """(what to send, digest, the value's text); digest and text empty where all is in the first."""
    if isinstance(observation, Missing):
        return {"missing": encode(observation)}, "", ""
    data: dict[str, Any] = {
        "seconds": observation.seconds,
        "marks": [[m.name, m.at] for m in observation.marks],
    }
    text = text_of(observation.value)
    if len(text) <= INLINE:
        return {**data, "value": observation.value}, "", ""
    digest = digest_of(text)
    return {**data, "digest": digest}, digest, text


def observation_from(data: Mapping[str, Any]) -> Observation:
    """Inverse of observation_for(); ValueError for what makes no sense."""
    if "missing" in data:
        return decode(Missing, data["missing"])  # type: ignore[no-any-return]
    return Seen(data["value"], finite(data.get("seconds", 0.0)), marks_of(data))


def marks_of(data: Mapping[str, Any]) -> tuple[Mark, ...]:
    marks = data.get("marks", [])
    return tuple(Mark(str(name)[:MARK_LIMIT], finite(at)) for name, at in marks[:MARKS_LIMIT])


# --- signs of life ---


def slack(agents: int) -> float:
    """Seconds by which one of so many may be slower than it would be alone."""
    return SILENT_PER_AGENT * min(agents, CROWD)


def judging(agents: int) -> float:
    """Seconds for which the host of these agents says nothing, since it judges what all saw."""
    return JUDGED_PER_AGENT * min(agents, AGENTS_MOST)


def silence(agents: int) -> float:
    """Seconds without a sign of life after which one of so many is lost."""
    return SILENT_SECONDS + slack(agents)


def pause(agents: int) -> float:
    """Seconds between two beats of one of so many; several of them fit into a silence."""
    return max(BEAT_SECONDS, min(agents, CROWD) / BEATS)


# --- who it is ---


def bounded(hello: Hello) -> Hello:
    """What will stand in the report. A slash would make the key of a rank out of a host's name."""
    return replace(
        hello,
        host=hello.host[:64].replace("/", "?") or "?",
        nonce=hello.nonce[:NONCE_LIMIT],
        claims=hello.claims[:300],
        job=hello.job[:256],
        ranks=hello.ranks[:RANKS_OF_AGENT],
    )


def _proof(token: str, nonce: str, hello: Hello) -> str:
    said = f"{nonce} {hello.nonce} {hello.identity} {hello.pid} {hello.ranks} {hello.size}"
    said += f" {hello.nodes} {hello.node}"
    return hmac.digest(token.encode(), said.encode(), "sha256").hex()


def proof_of_guest(token: str, nonce: str, hello: Hello) -> str:
    """What a guest answers a banner's nonce with; empty without a token."""
    return _proof(token, nonce, hello) if token else ""


def proof_of_host(token: str, nonce: str, hello: Hello) -> str:
    """What the welcome must carry."""
    return _proof(token, hello.nonce + nonce, hello) if token else ""
