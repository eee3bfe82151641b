"""Several reports of one run as one: the parts of agents that did not all meet. Pure.

The part of the meeting's host comes first: it knows the nodes that met, and where it and another
part say different things of the same subject, it is believed. An absence is no such thing: what an
agent that could not get in saw of its own node replaces the host's word that it had not arrived.
Where nobody hosted, the part that holds the most ranks is the first. The order in which the parts
are given does not matter, nor does a part that is given twice; what is merged can be merged again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.model import (
    RANK_DIGITS,
    UNNUMBERED,
    AsNeeded,
    ByKey,
    Cause,
    Missing,
    Node,
    Observation,
    Observations,
    PreflightError,
    Seen,
    key_of,
    place_of,
)
from preflight.serde import encode

RANKS_LIMIT = 100_000
"""Ranks that a merged report may have."""

NO_JOB = ("", "none")


@dataclass(slots=True)
class _Machine:
    """A node of the merged report, and what tells it from another one that is called the same.

    ranks     that are known to be its
    size      how many the launcher runs there; 0: unknown
    identity  of the machine, as the meeting's host noted it; empty: unknown
    agents    the ranks that one agent owns -> its pid
    """

    name: str
    ranks: set[int]
    addr: str = ""
    size: int = 0
    identity: str = ""
    agents: dict[tuple[int, ...], int] = field(default_factory=dict)

    def is_same(self, other: _Machine) -> bool:
        """Whether two nodes of one name are one machine. Of two that hold other ranks that is so
        only where a launcher started a process for each: then both say how many run there."""
        if self.identity and other.identity:
            return self.identity == other.identity
        if any(other.agents.get(ranks, pid) != pid for ranks, pid in self.agents.items()):
            return False  # two agents for the same ranks
        if self.ranks <= other.ranks or self.ranks >= other.ranks:
            return True
        return len(self.ranks | other.ranks) <= max(self.size, other.size)

    def takes(self, other: _Machine) -> None:
        self.ranks |= other.ranks
        self.addr = self.addr or other.addr
        self.size = max(self.size, other.size)
        self.identity = self.identity or other.identity
        self.agents |= other.agents


def merge(parts: Sequence[Observations], meeting: str) -> Observations:
    """All parts as one; PreflightError for what can't belong together. `meeting`: the check whose
    observation is the roll of the meeting (roster.py)."""
    if not parts:
        raise PreflightError("nothing to merge: no report was given")
    jobs = sorted({part.topology.job for part in parts} - set(NO_JOB))
    if len(jobs) > 1:
        raise PreflightError(
            f"these reports are of different jobs: {', '.join(f'{job!r:.40}' for job in jobs[:4])}"
        )
    by_order: dict[tuple[bool, int, int], list[Observations]] = {}
    for part in parts:
        by_order.setdefault(_order(part, meeting), []).append(part)
    distinct = [part for order in sorted(by_order) for part in _distinct(by_order[order])]
    ordered, size = _numbered(distinct, meeting)
    if any(part.topology.met > RANKS_LIMIT for part in ordered):
        raise PreflightError(f"more than {RANKS_LIMIT} ranks in one report")
    machines: dict[str, _Machine] = {}
    placed = [(part, _place(part, machines, meeting)) for part in ordered]
    nodes = _nodes(machines.values())
    if sum(len(node.ranks) for node in nodes) > RANKS_LIMIT:
        raise PreflightError(f"more than {RANKS_LIMIT} ranks in all")
    in_order = _Order(nodes)

    def merged(check: str) -> ByKey:
        return in_order.of(_of_check(check, placed, meeting))

    ids = dict.fromkeys(check for part in ordered for check in part.checks)
    checks: Mapping[str, Mapping[str, Observation]]
    if any(isinstance(part.checks, AsNeeded) for part in ordered):
        checks = AsNeeded(ids, merged)  # all at once are what reading them takes care not to hold
    else:
        checks = {check: merged(check) for check in ids}
    first = ordered[0]
    return replace(
        first,
        tool={name: value for part in reversed(ordered) for name, value in part.tool.items()},
        started=min((part.started for part in ordered if part.started), default=""),
        seconds=max(part.seconds for part in ordered),
        topology=replace(
            first.topology,
            job=jobs[0] if jobs else first.topology.job,
            size=size or (first.topology.size if _hosted(first, meeting) else _agreed(ordered)),
            nodes=nodes,
        ),
        checks=checks,
        interrupted=next((part.interrupted for part in ordered if part.interrupted), ""),
        left_behind=tuple(dict.fromkeys(left for part in ordered for left in part.left_behind)),
    )


# --- the order of the parts ---


def _text(part: Observations) -> str:
    """A part as text: the same for the same part, whoever read it."""
    return json.dumps(encode(part), sort_keys=True)


def _distinct(parts: Sequence[Observations]) -> Sequence[Observations]:
    """Equal ones once, in the order of their text, which of many nodes takes all of their room."""
    if len(parts) == 1:
        return parts
    texts = {_text(part): part for part in parts}
    return [texts[text] for text in sorted(texts)]


def _order(part: Observations, meeting: str) -> tuple[bool, int, int]:
    lowest = min((rank for node in part.topology.nodes for rank in node.ranks), default=0)
    return (not _hosted(part, meeting), -part.topology.met, lowest)


def _agreed(ordered: Sequence[Observations]) -> int:
    """The size of the job that most parts speak of; of two that are equally many, the larger."""
    sizes = Counter(part.topology.size for part in ordered)
    return max(sizes, key=lambda size: (sizes[size], size))


# --- nodes that nobody has given a number ---


def _numbered(ordered: Sequence[Observations], meeting: str) -> tuple[Sequence[Observations], int]:
    """The parts, of which those that never met anybody get the ranks that are free, and how many
    ranks the job then has; 0 where there is no such part."""
    to_come = [part for part in ordered if UNNUMBERED in part.topology.facts]
    if not to_come:
        return ordered, 0
    known = {r for p in ordered if p not in to_come for n in p.topology.nodes for r in n.ranks}
    free = max(known, default=-1) + 1
    found = {}
    for part in sorted(to_come, key=lambda part: [node.name for node in part.topology.nodes]):
        ranks = [rank for node in part.topology.nodes for rank in node.ranks]
        found[id(part)] = _shifted(part, free - min(ranks, default=0), meeting)
        free += len(ranks)
    said = to_come[0].topology.facts[UNNUMBERED].value
    nodes = int(said) if said.isascii() and said.isdigit() and len(said) < RANK_DIGITS else 0
    here = len({node.name for part in ordered for node in part.topology.nodes})
    each = max((len(node.ranks) for node in ordered[0].topology.nodes[:1]), default=1)
    size = free + max(0, nodes - here) * each
    return [found.get(id(part), part) for part in ordered], size


def _shifted(part: Observations, by: int, meeting: str) -> Observations:
    """A part whose ranks are others by so much."""

    def key(old: str) -> str:
        node, rank = place_of(old)
        return key_of(node, None if rank is None else rank + by)

    def renumbered(observation: Observation) -> Observation:
        roll = _roll(observation) if isinstance(observation, Seen) else {}
        ranks = roll.get("ranks")
        if not isinstance(observation, Seen) or not isinstance(ranks, list):
            return observation
        ranks = [rank + by if isinstance(rank, int) else rank for rank in ranks]
        value = {**encode(observation.value), "roll": {**roll, "ranks": ranks}}
        return replace(observation, value=value)

    nodes = tuple(replace(n, ranks=tuple(r + by for r in n.ranks)) for n in part.topology.nodes)
    checks: dict[str, dict[str, Observation]] = {
        check: {key(old): observation for old, observation in part.checks[check].items()}
        for check in part.checks
    }
    if meeting in checks:
        checks[meeting] = {old: renumbered(seen) for old, seen in checks[meeting].items()}
    return replace(part, topology=replace(part.topology, nodes=nodes), checks=checks)


# --- rolls: hostile data, as all that a report holds ---


def _rolls(part: Observations, meeting: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Node -> what its agent knows of the meeting, as JSON data."""
    for key, observation in part.checks.get(meeting, {}).items():
        if isinstance(observation, Seen):
            yield place_of(key)[0], _roll(observation)


def _roll(seen: Seen[Any]) -> Mapping[str, Any]:
    value = encode(seen.value)
    roll = value.get("roll") if isinstance(value, Mapping) else None
    return roll if isinstance(roll, Mapping) else {}


def _renamed(observation: Observation, names: Mapping[str, str]) -> Observation:
    """A roll that calls those who came by the names that they have in the merged report."""
    if not isinstance(observation, Seen):
        return observation
    roll = _roll(observation)
    if not isinstance(roll.get("arrivals"), list):
        return observation
    arrivals = [
        {**a, "node": names.get(str(a.get("node")), a.get("node"))} if isinstance(a, Mapping) else a
        for a in roll["arrivals"]
    ]
    value = {**encode(observation.value), "roll": {**roll, "arrivals": arrivals}}
    return replace(observation, value=value)


def _hosted(part: Observations, meeting: str) -> bool:
    return any(roll.get("hosts") is True for _, roll in _rolls(part, meeting))


def _relayed(rolls: Mapping[str, Observation]) -> frozenset[str]:
    """The keys of those whose own way into the meeting the first part, its host's, only has from
    what they told: an agent that did not stay to the end knows more of that itself."""
    own = {
        key for key, seen in rolls.items() if isinstance(seen, Seen) and _roll(seen).get("hosts")
    }
    return frozenset(rolls) - own if own else frozenset()


def _note(machine: _Machine, ranks: Any, pid: Any) -> None:
    """Which process is the agent of these ranks, where a roll says it."""
    known = isinstance(ranks, list) and ranks and all(isinstance(r, int) for r in ranks)
    if known and isinstance(pid, int) and pid > 0:
        machine.agents.setdefault(tuple(sorted(ranks)), pid)


# --- nodes ---


def _place(part: Observations, machines: dict[str, _Machine], meeting: str) -> dict[str, str]:
    """Find each node of a part among the machines, or add it; its name in the part -> its name."""
    own = {n.name: _Machine(n.name, set(n.ranks), n.addr, n.size) for n in part.topology.nodes}
    for node, roll in _rolls(part, meeting):
        if node in own:
            _note(own[node], roll.get("ranks"), roll.get("pid"))
        arrivals = roll.get("arrivals")
        for arrival in arrivals if isinstance(arrivals, list) else ():
            if isinstance(arrival, Mapping) and (machine := own.get(str(arrival.get("node")))):
                machine.identity = machine.identity or str(arrival.get("identity") or "")
                _note(machine, arrival.get("ranks"), arrival.get("pid"))
    names = {}
    taken: set[str] = set()
    for name, machine in own.items():
        number = 1
        place = name
        # two nodes of one part are never one machine
        while place in taken or (place in machines and not machines[place].is_same(machine)):
            number += 1
            place = f"{name}#{number}"
        if place in machines:
            machines[place].takes(machine)
        else:
            machines[place] = replace(machine, name=place)
        names[name] = place
        taken.add(place)
    return names


def _nodes(machines: Iterable[_Machine]) -> tuple[Node, ...]:
    """In the order of their lowest rank."""
    nodes = [Node(m.name, tuple(sorted(m.ranks)), m.addr, m.size) for m in machines]
    return tuple(sorted(nodes, key=lambda node: min(node.ranks, default=RANKS_LIMIT)))


# --- observations ---


def _absent(observation: Observation) -> bool:
    return isinstance(observation, Missing) and observation.cause is Cause.NOT_ARRIVED


_Placed = Sequence[tuple[Observations, Mapping[str, str]]]
"""The parts in their order, each with the names that its nodes have in the merged report."""


def _of_check(check: str, placed: _Placed, meeting: str) -> dict[str, Observation]:
    """What all parts say of one check: the first that says something, but for absences."""
    found: dict[str, Observation] = {}
    relayed: frozenset[str] = frozenset()
    for number, (part, names) in enumerate(placed):
        same = all(old == new for old, new in names.items())
        for key, observation in part.checks.get(check, {}).items():
            node, rank = place_of(key)
            renamed = key_of(names.get(node, node), rank)
            known = found.get(renamed)
            own = renamed in relayed and isinstance(observation, Seen)
            if known is None or own or _absent(known):
                named = check == meeting and not same
                found[renamed] = _renamed(observation, names) if named else observation
        if check == meeting and not number:
            relayed = _relayed(found)
    return found


class _Order:
    """Those of a node beside each other, its ranks in their order. Of a rank that did arrive no
    absence is left that another part noted where it did not know its node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._number = {node.name: i for i, node in enumerate(nodes)}
        self._arrived = {rank for node in nodes for rank in node.ranks}

    def of(self, by_key: Mapping[str, Observation]) -> ByKey:
        return ByKey(
            (key, by_key[key])
            for key in sorted(by_key, key=self._place)
            if not (_absent(by_key[key]) and self._has_arrived(*self._place(key)))
        )

    def _place(self, key: str) -> tuple[int, int]:
        node, rank = place_of(key)
        return self._number.get(node, len(self._number)), -1 if rank is None else rank

    def _has_arrived(self, node: int, rank: int) -> bool:
        """Whether a rank whose node is none of the report's is that of one."""
        return node == len(self._number) and rank in self._arrived
