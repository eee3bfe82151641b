"""One node's way through the rounds of pairing.rounds(): in each of them it meets another partner.

No clock is compared: a node enters a round when its last one is over and waits for the partner's
word, which comes over the meeting. Who is slow holds up its next partner, but nobody for longer
than a round may take. In the end the two of a pair tell each other their best, and both come to the
same conclusion whether they measure once more: what decides something is seen twice.

Every wait ends. What the others say is hostile input.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from preflight.check import Context
from preflight.domains.net import pairing
from preflight.domains.net.dns import parse_ip
from preflight.domains.net.tcp_throughput import Transfer, answer, dial
from preflight.frozen import dataclass
from preflight.host import Host

ROUNDS = 5
"""Partners of each node: a slow node is slow with all of them, a slow link with one."""

SHARE = 0.85
"""Of the budget; the rest is for the answer."""

ROUND_SECONDS = 1.2
"""For which a partner is waited for, and then for the transfer. A healthy one takes 0.3 s."""

PRESENCE = 2.0
"""Seconds until everybody who takes part has said so."""

READING = 0.01

AGAIN = 0.5
"""What is below this share of the best of either end is measured once more."""

FAR, FAR_SECONDS = 4.0, 0.0005
"""And a round trip beyond so many times the shortest."""

ABSENT = "no sign of life"
NO_TIME = "no time left"


@dataclass(frozen=True, slots=True)
class Trial:
    """A meeting of this node with another one, by its number, in one round. `again`: the second."""

    peer: int
    round: int
    again: bool
    moved: Transfer


class PairRounds:
    """This node's way through the rounds, with the listener that greater addresses dial: Gloo
    opens its connections in that direction, and a firewall may let in no other ones."""

    def __init__(self, host: Host, ctx: Context, ip: str) -> None:
        """OSError when there can be no listener at this address."""
        self.host, self.ctx = host, ctx
        self.began = time.monotonic()
        self.until = self.began + ctx.seconds * SHARE
        self.nonce = os.urandom(8).hex()
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        self.listener = socket.create_server((ip, 0), family=family, backlog=16)
        number, count = ctx.rank, ctx.world_size
        self.rounds = [
            (i, a + b - number)
            for i, made in enumerate(pairing.rounds(count, ROUNDS))
            for a, b in made
            if number in (a, b)
        ]
        self.partners = [partner for _, partner in self.rounds]
        self.told = (ip, self.listener.getsockname()[1], self.nonce)

    def __enter__(self) -> PairRounds:
        return self

    def __exit__(self, *raised: object) -> None:
        self.listener.close()

    def all_rounds(self) -> tuple[Trial, ...]:
        """Every round, and those once more whose result stands out."""
        peers = self.ctx.peers
        peers.say("here", list(self.told), to=self.partners)
        trials = [self._visit(number, partner) for number, partner in self.rounds]
        if self.ctx.world_size > 2:
            outstanding = self._outstanding({t.peer: t.moved for t in trials})
            trials += [
                self._visit(number, partner, again=True)
                for number, partner in self.rounds
                if partner in outstanding
            ]
        return tuple(trials)

    def _visit(self, number: int, partner: int, again: bool = False) -> Trial:
        label = f"round {number + 1}{' again' if again else ''}"
        self.ctx.mark(f"{label}: node {partner}")
        # no partner that lives is later than by what everybody before it may have cost it
        rounds = len(self.rounds) + 2 if again else number + 1
        latest = self.began + PRESENCE + rounds * ROUND_SECONDS
        return Trial(partner, number, again, self._meet(label, partner, latest))

    def _meet(self, label: str, partner: int, latest: float) -> Transfer:
        if time.monotonic() >= self.until:
            return Transfer(error=NO_TIME)
        address = self._address(partner)
        if address is None:
            return Transfer(error=ABSENT)
        self.ctx.peers.say(label, to=[partner])
        if partner not in self.ctx.peers.hear(label, 1, self._left(latest)):
            return Transfer(error=ABSENT)
        until = time.monotonic() + self._left(time.monotonic() + ROUND_SECONDS)
        ip, port, nonce = address
        if _order(self.told[0], self.ctx.rank) < _order(ip, partner):
            return answer(self.host, self.listener, f"{self.nonce} {partner} {label}", until)
        return dial(self.host, ip, port, f"{nonce} {self.ctx.rank} {label}", until)

    def _left(self, moment: float) -> float:
        """Seconds until then, or until this tour has to end."""
        return max(0.0, min(moment, self.until) - time.monotonic())

    def _address(self, partner: int) -> tuple[str, int, str] | None:
        """Where a partner listens. Those that do not take part cost their patience once, together:
        afterwards what was heard is only read."""
        left = self.began + PRESENCE - time.monotonic()
        heard: Mapping[int, Any] = {}
        # the others of this node need not be waited for
        while partner not in heard and left > 0:
            heard = self.ctx.peers.hear("here", len(heard) + 1, left)
            left = self.began + PRESENCE - time.monotonic()
        if partner not in heard:
            heard = self.ctx.peers.hear("here", len(self.partners), READING)
        return _read_listener(heard.get(partner))

    def _outstanding(self, moved: Mapping[int, Transfer]) -> set[int]:
        """The partners with whom this node measures once more. Both ends of a pair know the same
        numbers and conclude the same."""
        there = [p for p, m in moved.items() if m.error != ABSENT]
        rates = {p: m.inward.able if m.inward else 0.0 for p, m in moved.items()}
        trips = {p: m.latency or 0.0 for p, m in moved.items()}
        best = max(rates.values(), default=0.0)
        shortest = min((t for t in trips.values() if t), default=0.0)
        self.ctx.mark("compare with the partners")
        latest = self.began + PRESENCE + (len(self.rounds) + 1) * ROUND_SECONDS
        for p in there:
            self.ctx.peers.say("best", [best, rates[p], shortest, trips[p]], to=[p])
        heard = self.ctx.peers.hear("best", len(there), self._left(latest))
        found = set()
        for p in there:
            told = _read_numbers(heard.get(p), 4)
            if told is not None:
                slow = min(rates[p], told[1]) < AGAIN * max(best, told[0])
                least = min((t for t in (shortest, told[2]) if t), default=0.0)
                if slow or max(trips[p], told[3]) > max(FAR_SECONDS, FAR * least):
                    found.add(p)
        return found


def _order(ip: str, number: int) -> tuple[int, int, int]:
    """Who of two nodes dials: the one whose is greater."""
    address = parse_ip(ip)
    return (address.version, int(address), number) if address else (0, 0, number)


def _read_listener(value: Any) -> tuple[str, int, str] | None:
    """The address in a partner's message about its listener; None when it is not valid."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    ip, port, nonce = value
    if not (isinstance(ip, str) and type(port) is int and isinstance(nonce, str)):
        return None
    try:
        return (str(ip_address(ip[:64])), port, nonce[:32]) if 0 < port < 65536 else None
    except ValueError:
        return None


def _read_numbers(value: Any, count: int) -> tuple[float, ...] | None:
    if not isinstance(value, list) or len(value) != count:
        return None
    if not all(type(n) in (int, float) and 0 <= n < 1e18 for n in value):
        return None
    return tuple(value)
