"""Whether the ranks that other agents watch are idle as well, while the command runs.

The agents can't meet then: the job itself has the port. What all ranks are sure to reach is the
store that their process group was made with, so one rank of every idle machine adds
its ranks to a number there (preflight_responder.py: stand), and takes them away when they move
again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from preflight.rehearsal import client

SECONDS = 0.5
"""For an answer: it is what is known already."""
SURE = 2.0
"""Seconds for which all must be seen to stand: the numbers are read one after the other."""


class OtherAgents:
    """What the agents of one job tell each other through the job's store."""

    def __init__(self) -> None:
        self._teller = 0
        """The rank's process that tells the others; always the same, since it knows what it has
        added so far."""
        self._since = 0.0
        self.told = False
        """Something is added there, or may be, that has to be taken away when they move."""

    def stand_too(self, sockets: Mapping[int, str], ranks: int, waits: bool, world: int) -> bool:
        """Tell that so many ranks stand here, 0 when they move, and whether one of them waits for
        others. True when it has been so of all `world` ranks for a while, and somebody waits.
        `sockets`: pid -> the socket of its inside, the lowest rank first."""
        self._teller = self._teller or next(iter(sockets), 0)
        if self._teller not in sockets:
            return False
        question = f"stand {ranks} {int(waits)}"
        path = {self._teller: sockets[self._teller]}
        answer = client.ask_responders(path, question, SECONDS).get(self._teller, {})
        self.told = ranks > 0 or answer.get("added") != [0, 0]
        now = time.monotonic()
        match answer.get("stand"):
            case [int(still), int(waiting)] if ranks and still >= world > 0 and waiting > 0:
                self._since = self._since or now
            case _:
                self._since = 0.0
        return self._since > 0 and now - self._since >= SURE
