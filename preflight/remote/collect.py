"""What comes back from the agents of a launch, and the one report's observations that it makes.
Pure: who starts them, and when it is enough, is launch.py's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.engine.plan import Progress
from preflight.judge.merge import merge
from preflight.model import (
    Cause,
    Missing,
    Observation,
    Observations,
    PreflightError,
    Seen,
    Topology,
)
from preflight.packed import plain
from preflight.remote.protocol import Parcels, progress_of
from preflight.render import json as as_json
from preflight.serde import decode

SPOILT_SHOWN = 2


@dataclass(slots=True)
class RemoteNode:
    """One node of a launch: its name for the job or the user, its number among those started, and
    what came of it.

    parcel  what its agent sent, at its end; None while nothing has come
    over    nothing more will come: what started it has ended, with `code` where that is known
    words   what that program, or the agent on its stderr, has said last
    failed  it could not be started, and the others were started again without it
    """

    name: str
    number: int
    parcel: Mapping[str, Any] | None = None
    over: bool = False
    code: int | None = None
    words: str = ""
    failed: bool = False


@dataclass(slots=True)
class Gathering:
    """All nodes of a launch, and what they sent. `numbered`: what a parcel says of itself counts
    more than the name under which it came, which is only the number of a task."""

    program: str
    numbered: bool
    places: dict[str, RemoteNode]
    progress: Progress | None = None
    parcels: Parcels = field(default_factory=Parcels)
    heard_out: set[str] = field(default_factory=set)
    """Names under which one has come whole: an agent sends no other, and to open one takes time."""

    def hear(self, topic: str, value: Any) -> None:
        """What the worker says (launch_worker.py). It comes from elsewhere: it may be anything."""
        match topic, value:
            case "begun", list(names):
                begun = {str(name) for name in names}
                for place in self.places.values():
                    place.failed, place.parcel = place.name not in begun, None
                for number, name in enumerate(names):
                    self.places[str(name)] = RemoteNode(str(name), number)
                self.parcels, self.heard_out = Parcels(), set()
            case "line", [str(name), str(line)]:
                self._line(name, line)
            case "over", [str(name), code, str(words)] if name in self.places:
                place = self.places[name]
                place.over, place.words = True, words
                place.code = code if isinstance(code, int) else None

    def _line(self, name: str, line: str) -> None:
        if (told := progress_of(line)) is not None:
            try:
                self.progress = decode(Progress, told)
            except ValueError:
                pass
            return
        if name in self.heard_out:
            return
        tried = self.parcels.tried
        content = self.parcels.take(line)
        if self.parcels.tried > tried:
            self.heard_out.add(name)
        if isinstance(content, dict):
            said = self.places.get(str(content.get("place"))) if self.numbered else None
            place = said or self.places.get(name)
            if place is not None and place.parcel is None:
                place.parcel = content

    @property
    def open(self) -> list[RemoteNode]:
        """Those of whom something may still come."""
        return [p for p in self.places.values() if p.parcel is None and not p.over]

    @property
    def said(self) -> int:
        """How many have sent what they had to say."""
        return sum(place.parcel is not None for place in self.places.values())


def merge_gathered(
    gathering: Gathering, nothing: Observations, nproc: int | None, meeting: str
) -> Observations:
    """The observations of all that came, as of one run, with those that are absent in the roll.
    `nothing`: a run that nobody took part in; `nproc`: ranks per node, where that was said;
    `meeting`: the check that has the roll."""
    parts = list(_reports(gathering.places.values()))
    merged = merge(parts, meeting) if parts else nothing
    top = merged.topology
    each = Counter(len(node.ranks) for node in top.nodes)
    per_node = nproc or (each.most_common(1)[0][0] if each else 1)
    arrived = {rank for node in top.nodes for rank in node.ranks}
    absent = [
        place
        for place in gathering.places.values()
        if place.parcel is None and (place.failed or not arrived & {*_ranks(place, per_node)})
    ]
    if not absent:
        return merged
    roll = dict(merged.checks.get(meeting, {}))
    if not gathering.numbered:
        due = [
            {"host": place.name, "ranks": [*_ranks(place, per_node)]}
            for place in gathering.places.values()
        ]
        roll = {key: _with_expected_hosts(seen, due) for key, seen in roll.items()}
    spoilt = [*gathering.parcels.spoilt, *gathering.parcels.incomplete()][:SPOILT_SHOWN]
    for place in absent:
        told = [*place.words.splitlines(), _why_absent(place, gathering.program), *spoilt]
        missing = Missing(Cause.NOT_ARRIVED, "\n".join(told), by=gathering.program)
        roll.setdefault(place.name, missing)
    more = per_node * sum(place.failed for place in gathering.places.values())
    return replace(
        merged,
        topology=replace(top, size=top.size + more) if parts else top,
        checks={**merged.checks, meeting: roll},
    )


def _reports(places: Iterable[RemoteNode]) -> Iterable[Observations]:
    for place in places:
        if place.parcel is not None and "report" in place.parcel:
            try:
                yield as_json.parse(json.dumps(place.parcel["report"])).observations
            except PreflightError as error:
                place.parcel = None
                place.words = f"{place.words}\nwhat it sent is no report: {error}".strip()


def _ranks(place: RemoteNode, per_node: int) -> range:
    return range(place.number * per_node, (place.number + 1) * per_node)


def _with_expected_hosts(seen: Observation, due: Sequence[Mapping[str, Any]]) -> Observation:
    """The roll of the meeting's host with the hosts that were to come: no launcher had told it."""
    value = plain(seen.value) if isinstance(seen, Seen) else None
    if not isinstance(seen, Seen) or not isinstance(value, Mapping):
        return seen
    roll = value.get("roll")
    if not isinstance(roll, Mapping) or roll.get("hosts") is not True or value.get("expected"):
        return seen
    return replace(seen, value={**value, "expected": list(due)})


def _why_absent(place: RemoteNode, program: str) -> str:
    if place.failed:
        return f"{program} started nothing there"
    if place.code is None or place.code < 0:
        return f"no report came as long as {program} was waited for"
    return f"{program} ended with exit code {place.code}, and no report had come"


def empty_run(tool: Mapping[str, str], started: str, topology: Topology) -> Observations:
    """A run that nobody took part in."""
    return Observations(
        tool=tool, started=started, seconds=0.0, settings={}, topology=topology, checks={}
    )
