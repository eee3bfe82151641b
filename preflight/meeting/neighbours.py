"""Agents of one node of which one speaks for all, where the launcher has started one for each rank:
a job of 100,000 ranks is 12,500 connections then.

They find each other by an abstract Unix socket: it is there in containers that share the network
and no folder, ends with its process, and tells who is at the other end. The agent of local rank 0
listens; each other one is a guest of it, as it would be of the host, and goes to the host itself
when nobody is found in time, when it is sent away, or when the connection ends before the host has
given out the seats. So does whoever differs from its neighbours in anything that the name of the
socket is made of: the host has to see that.
"""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.domains.net.meeting_port import STEP
from preflight.meeting.connection import Loop
from preflight.meeting.coordinator import Guest, Meeting
from preflight.meeting.member import Attendance
from preflight.meeting.protocol import Hello, Said, Seat
from preflight.model import Observation, Seen, key_of
from preflight.packed import plain

FROM_RANKS = 512
"""Ranks of a job from which on one agent speaks for its node. A host has met as many as that 0.1 s
after the last one came; some more, and the 1,024 files are used up that many systems let a process
open."""
FIND_SECONDS = 3.0
"""For the agent of local rank 0 to listen. Those that a launcher starts together begin within a
second or two of each other."""


def name_of(hello: Hello, token: str, environ: Mapping[str, str]) -> str:
    """The name of the socket: of one user's agents on one machine, of one step of one job, who mean
    the same meeting and the same world, and know the same token."""
    step = [environ.get(name, "") for name in STEP]
    said = repr((hello.identity, hello.job, hello.size, hello.claims, hello.version, *step))
    digest = hmac.digest(token.encode() or b"preflight", said.encode(), "sha256").hex()[:32]
    return f"\0preflight-{os.geteuid()}-{digest}"


def listen(name: str) -> socket.socket:
    """OSError where somebody has the name already."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(name)
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    return sock


@dataclass(slots=True)
class Neighbours:
    """The agents of the other ranks of this node, for which this one speaks."""

    meeting: Meeting
    _told: list[Guest] = field(default_factory=list)
    """Of whom the host knows."""
    _gone: list[Guest] = field(default_factory=list)
    _started: int = 0
    _seated: bool = False

    @classmethod
    def expected(cls, loop: Loop, hello: Hello, ranks: int, token: str, name: str) -> Neighbours:
        """`ranks`: how many the launcher runs on this node."""
        return cls(Meeting(loop, [listen(name)], replace(hello, size=ranks), token))

    def tend(self, host: Attendance) -> None:
        """Tell the host what they say, and them what the host says."""
        self.meeting.tend()
        if host.reached is None:
            return
        if host.seat is None:
            self._introduce(host)
        elif not self._seated:
            self._seat(host.seat)
        for guest in self._told:
            if guest.lost and guest not in self._gone:
                self._gone.append(guest)
                host.send_gone(guest.hello.nonce, guest.lost)
        for check in host.started[self._started :]:
            self.meeting.start(check)
        self._started = len(host.started)
        for taken in self.meeting.take():
            # what there is one of for a node is this agent's to say
            if taken.rank is not None and taken.guest in self._told:
                key = key_of(host.hello.host, taken.rank)
                host.send_seen(taken.check, key, _unpacked(taken.observation))
        for said in self.meeting.said:
            host.send_said(said)
        self.meeting.said.clear()

    def _introduce(self, host: Attendance) -> None:
        """Tell the host who has come since. Who has a rank that another one has goes to the host
        itself, which reports the duplicate."""
        known = set(host.hello.ranks).union(*(guest.ranks for guest in self._told))
        new = []
        for guest in self.meeting.guests:
            if guest in self._told or guest.lost:
                continue
            if guest.ranks & known:
                self.meeting.send_away(guest)
                continue
            known |= guest.ranks
            new.append(guest)
        if new:
            host.send_with([guest.hello for guest in new])
            self._told += new

    def _seat(self, seat: Seat) -> None:
        """All who are here sit with this agent; who has come too late for the host is sent away."""
        self._seated = True
        self.meeting.close_door()
        for guest in self.meeting.guests:
            if guest not in self._told or not guest.ranks <= set(seat.ranks):
                self.meeting.send_away(guest)
        speaker = min(self.meeting.me.ranks)
        self.meeting.seat_together(replace(seat, voice=False, speaker=speaker))

    def hear(self, said: Said) -> None:
        """What a rank elsewhere, or one of theirs, has said to the ranks."""
        self.meeting.relay(said, by_node=False)

    def all_done(self, stage: str) -> bool:
        return self.meeting.all_done(stage)

    @property
    def mark(self) -> str:
        """What one of them is at."""
        return next((g.mark for g in self.meeting.guests if g.mark and not g.lost), "")

    def tell_end(self, over: Mapping[str, Any]) -> None:
        """How it ended; the line that a node ends with is this agent's."""
        self.meeting.over(over, dict.fromkeys({g.node for g in self.meeting.guests}, over))

    @property
    def all_gone(self) -> bool:
        return self.meeting.gone

    def excuse(self, seconds: float) -> None:
        self.meeting.excuse(seconds)

    def close(self, why: str, *, host_lost: bool) -> None:
        """Who has not heard the end yet goes to the host itself, where that is still possible, and
        else knows why that was: `host_lost`, or this agent left."""
        if why:
            self.meeting.say_goodbye(why, host_lost=host_lost)
        self.meeting.close()


def asked(loop: Loop, hello: Hello, ranks: int, token: str, name: str) -> Attendance:
    """The connection of an agent to the one that speaks for its node, with the timeouts of a small
    meeting; once it has a seat, with those of the whole job."""
    return Attendance(loop, hello, token, (name,), 0, began=time.monotonic(), agents=ranks)


def _unpacked(observation: Observation) -> Observation:
    """As it goes over the wire again."""
    if isinstance(observation, Seen):
        return replace(observation, value=plain(observation.value))
    return observation
