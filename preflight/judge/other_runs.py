"""Parts of another run among those that are to be merged: what an earlier one has left in the same
folder. Pure.

Clocks of nodes may be off by minutes, and nodes of one run may start minutes apart. So the times of
two parts tell only what is half an hour apart; but of a node that has come to the meeting, its host
has noted when, and how far that node's clock was from its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.humanize import duration
from preflight.model import UNNUMBERED, Observations, PreflightError, Seen
from preflight.nodeset import same_host
from preflight.serde import encode, finite

APART = 1800.0
"""Seconds between the end of one part and the beginning of another, from which on they are not of
one run."""
BEFORE, UNSURE = 0.5, 600.0
"""Seconds by which a part has to be over before its node came to the meeting; and where nobody
knows how far its clock is off."""
SHOWN = 4


def left_over(parts: Mapping[str, Observations], meeting: str) -> dict[str, str]:
    """Name of a part -> why it is of an earlier run than the others, those of which this is certain
    enough. PreflightError where they are of two runs and nobody can tell which one counts.
    `meeting`: the check whose observation is the roll."""
    # nodes that were looked at one by one are of no run together
    met = {name: part for name, part in parts.items() if next(_rolls(part, meeting), None)}
    began = {name: at for name, part in met.items() if (at := _began(part)) is not None}
    hosts = [name for name, part in parts.items() if _host_roll(part, meeting) is not None]
    newest = max((name for name in hosts if name in began), key=began.__getitem__, default="")
    newest = newest or max(began, key=began.__getitem__, default="")
    found: dict[str, str] = {}
    later = []
    for name, part in parts.items():
        if name == newest or name not in began:
            continue
        before = began[newest] - began[name] - part.seconds
        after = began[name] - began[newest] - parts[newest].seconds
        came = _came_later(part, parts[newest], meeting)
        if before > APART:
            found[name] = f"it ended {duration(before)} before {newest} began"
        elif came:
            found[name] = f"its node came to the meeting of {newest} {duration(came)} after it"
        elif after > APART:
            later.append(f"{name} began {duration(after)} after {newest} ended")
    if later:
        raise PreflightError(
            f"these reports are of two runs, or a clock is wrong: {'; '.join(later[:SHOWN])}. "
            "Give those of one run"
        )
    return found


def _began(part: Observations) -> float | None:
    """When it began, in seconds since 1970 by the clock of its node."""
    try:
        at = datetime.datetime.strptime(part.started[:40], "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return None
    return at.replace(tzinfo=datetime.timezone.utc).timestamp()


def _rolls(part: Observations, meeting: str) -> Iterator[Mapping[str, Any]]:
    for observation in part.checks.get(meeting, {}).values():
        value = encode(observation.value) if isinstance(observation, Seen) else None
        roll = value.get("roll") if isinstance(value, Mapping) else None
        if isinstance(roll, Mapping):
            yield roll


def _host_roll(part: Observations, meeting: str) -> Mapping[str, Any] | None:
    return next((roll for roll in _rolls(part, meeting) if roll.get("hosts") is True), None)


def _came_later(part: Observations, host: Observations, meeting: str) -> float:
    """How many seconds after a part was over its node came to the meeting of the host's part, with
    the same ranks; 0 where it did not, or not surely."""
    roll = _host_roll(host, meeting)
    own = next(_rolls(part, meeting), None)
    if roll is None or own is None or own.get("hosts") is True or len(part.topology.nodes) != 1:
        return 0.0
    ranks = {rank for node in part.topology.nodes for rank in node.ranks}
    numbered = UNNUMBERED not in part.topology.facts
    arrivals = roll.get("arrivals")
    for arrival in arrivals if isinstance(arrivals, Sequence) else ():
        if not isinstance(arrival, Mapping) or not isinstance(arrival.get("ranks"), list):
            continue
        its = {rank for rank in arrival["ranks"] if isinstance(rank, int)}
        if not same_host(str(arrival.get("host")), str(own.get("host"))):
            continue
        if numbered and not its & ranks:
            continue
        known = isinstance(arrival.get("offset"), int | float)
        came = _seconds(roll, "began") + _seconds(arrival, "at") + _seconds(arrival, "offset")
        ended = _seconds(own, "began") + max(_seconds(own, "reached"), _seconds(own, "waited"))
        if _seconds(own, "began") and came - ended > (BEFORE if known else UNSURE):
            return came - ended
    return 0.0


def _seconds(data: Mapping[str, Any], name: str) -> float:
    try:
        return finite(data.get(name))
    except ValueError:
        return 0.0
