"""Where this agent is, what MASTER_ADDR is here, and what a launcher's own store says of the
meeting: asked of workers, since names and stores may never answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from preflight.frozen import dataclass
from preflight.meeting import tasks
from preflight.meeting.member import Attendance
from preflight.meeting.protocol import Hello
from preflight.model import Topology
from preflight.process.call import Call
from preflight.process.pool import Returned, Target, Workers
from preflight.process.servers import LIGHT, TORCH
from preflight.roster import Roll, StoreStage

LOOKS_AGAIN = 1.0
"""Seconds between two looks at where a launcher's store says that the meeting is."""


@dataclass(slots=True)
class Agent:
    """What a meeting needs to know of this agent. `store`: the launcher's own store has the port
    at MASTER_ADDR, and the meeting is announced there. `may_come`: MASTER_ADDR can be the name of
    something that is still to start. `nodes`, `node`: see Hello. `claim`: see Roll. `is_host`: what
    torchrun is told of where its store is; None: nothing, the address of the endpoint decides."""

    topology: Topology
    version: str
    token: str
    patience: float
    store: bool
    local_rank: int | None
    loopback: bool
    may_come: bool = True
    nodes: int = 0
    node: int = -1
    claim: str = ""
    is_host: bool | None = None

    @property
    def unnumbered(self) -> bool:
        """Whether the host of the meeting is to say which node this is."""
        return self.nodes > 0 and self.node < 0

    @property
    def meets_at(self) -> str:
        return self.topology.meets_at


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What a look around has found, see tasks.scout(); `pending`: it is still looking;
    `translated`: MASTER_ADDR may lead here though no interface has it; `looked`: seconds that the
    last lookup of it took."""

    host: str = ""
    identity: str = ""
    ips: tuple[str, ...] = ()
    error: str = ""
    mine: bool = False
    translated: bool = False
    looked: float = 0.0
    own: tuple[str, ...] = ()
    twins: tuple[int, ...] = ()
    pending: bool = True
    call: Call | None = None

    def hello(self, agent: Agent) -> Hello:
        """What this agent says of itself at the meeting."""
        top = agent.topology
        return Hello(
            version=agent.version,
            job=top.job if top.job != "none" else "",
            host=self.host,
            identity=self.identity,
            pid=os.getpid(),
            ranks=top.nodes[0].ranks,
            size=top.size,
            claims=agent.meets_at,
            mine=self.mine,
            nonce=os.urandom(16).hex(),
            local_rank=agent.local_rank,
            nodes=agent.nodes,
            node=agent.node,
        )

    def roll(self, agent: Agent) -> Roll:
        """What is known before anybody has met."""
        top = agent.topology
        return Roll(
            hosts=False,
            name=top.master_addr,
            port=top.master_port,
            size=top.size,
            ranks=top.nodes[0].ranks,
            host=self.host or top.nodes[0].name,
            pid=os.getpid(),
            ips=self.ips,
            lookup=self.error,
            looked=self.looked,
            mine=self.mine,
            patience=agent.patience,
            nodes=agent.nodes,
            twins=self.twins,
        )


def look_around(agent: Agent, workers: Workers, before: Whereabouts) -> Whereabouts:
    """Ask a worker, or see what it has answered to `before`."""
    if before.call is None:
        call = workers.call(
            LIGHT,
            tasks.scout,
            {
                "name": agent.topology.master_addr,
                "seconds": agent.patience,
                "may_come": agent.may_come,
                "claim": agent.claim,
            },
            seconds=agent.patience + 1.0,
            label="the look-up of MASTER_ADDR",
        )
        return Whereabouts(call=call)
    result = before.call.result
    if result is None:
        return before
    if not isinstance(result, Returned):
        return Whereabouts(error="SILENT", pending=False, call=before.call)
    seen: Mapping[str, Any] = result.value
    return Whereabouts(
        host=str(seen["host"]),
        identity=str(seen["identity"]),
        ips=tuple(seen["ips"]),
        error=str(seen["error"]),
        mine=bool(seen["mine"]),
        translated=bool(seen["translated"]),
        looked=float(seen["looked"]),
        own=tuple(seen["own"]),
        twins=tuple(pid for pid in seen["claimants"] if pid != os.getpid()),
        pending=False,
        call=before.call,
    )


@dataclass(slots=True)
class Board:
    """The launcher's own store, where the meeting is announced: read again while nobody is where
    it says, since an earlier run may have left that."""

    agent: Agent
    workers: Workers
    _call: Call | None = None
    _asked: Call | None = None
    """The last one that was to find the meeting, ended or not."""
    _again: float = 0.0
    _said: tuple[tuple[str, ...], int] | None = None

    def announce(self, own: tuple[str, ...], port: int) -> None:
        """Write there where the meeting is."""
        more = {"own": list(own), "port": port}
        self._call = _ask_store(self.agent, self.workers, tasks.announce_meeting, more)

    def look(self) -> None:
        """Read it there; that waits for somebody to write it."""
        self._call = _ask_store(self.agent, self.workers, tasks.find_meeting, {})
        self._asked = self._call

    @property
    def stage(self) -> StoreStage:
        """How far this agent has come with that store."""
        if self._said is not None or self._asked is None:
            return StoreStage.NONE
        marks = [mark.name for mark in self._asked.marks]
        if tasks.CONNECTED in marks:
            return StoreStage.ANNOUNCEMENT
        return StoreStage.CONNECTION if tasks.CONNECTS in marks else StoreStage.IMPORT

    @property
    def unanswered(self) -> float:
        """For how many seconds it has tried to connect to that store, which has not answered yet;
        before that a worker imports torch, however long it takes."""
        if self._asked is None or self.stage is not StoreStage.CONNECTION:
            return 0.0
        since = next(mark.at for mark in self._asked.marks if mark.name == tasks.CONNECTS)
        return time.monotonic() - self._asked.began - since

    def lead(self, attending: Attendance) -> str:
        """Send a guest to where the meeting is; why that can't be, empty while it can."""
        now = time.monotonic()
        if self._call is None:
            tried = attending.ladder
            if self._said and tried and now >= self._again and all(a.error for a in tried):
                self.look()
            return ""
        if not self._call.result:
            return ""
        result, self._call = self._call.result, None
        self._again = now + LOOKS_AGAIN
        if not (isinstance(result, Returned) and result.value.get("port")):
            return "the launcher's store names no meeting"
        said = tuple(result.value["ips"]), int(result.value["port"])
        if said != self._said:
            self._said = said
            attending.go_to(*said)
        return ""


def _ask_store(agent: Agent, workers: Workers, target: Target, more: Mapping[str, Any]) -> Call:
    top = agent.topology
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    args = {
        "addr": top.master_addr,
        "port_of_store": top.master_port,
        "key": f"preflight/meeting/{restart}",
        "seconds": agent.patience,
        **more,
    }
    return workers.call(
        TORCH,
        target,
        args,
        seconds=agent.patience,
        label="the launcher's store",
    )
