"""What so many nodes would have seen: the observations of one real run, told again by each of them
with a name, addresses and numbers.

data/recorded.json holds what the host and a guest of a meeting saw on machines of the tests' lab,
and what a node with eight H100 says of its GPUs and HCAs (from the goldens).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight import registry
from preflight.check import Scope
from preflight.domains.net import pairing
from preflight.model import (
    Cause,
    Fact,
    Mark,
    Missing,
    Node,
    Observation,
    Observations,
    Seen,
    Setting,
    Topology,
    key_of,
)
from preflight.packed import Packing

RECORDED = Path(__file__).with_name("data") / "recorded.json"
NEEDS_ALL = ("rdzv.store", "world.gloo", "world.ddp", "world.bandwidth", "world.nccl")
"""What is not run where a rank is absent or double."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Nodes with so many ranks each. Of `odd` nodes one GPU is about to lose a row of its memory,
    `absent` never comes, and `twin` claims the ranks of another one. `jitter`: what was measured,
    times among it, is a little different everywhere."""

    nodes: int
    ranks: int = 8
    odd: tuple[int, ...] = ()
    absent: int | None = None
    twin: int | None = None
    jitter: bool = False
    seed: int = 1

    @property
    def size(self) -> int:
        return self.nodes * self.ranks

    def name(self, place: int) -> str:
        return f"gpu{place:05}" + ("b" if place >= self.nodes else "")

    def ranks_of(self, place: int) -> tuple[int, ...]:
        first = (self.twin if place >= self.nodes and self.twin is not None else place) * self.ranks
        return tuple(range(first, first + self.ranks))

    def address(self, place: int) -> str:
        return f"10.{64 + (place >> 16)}.{place >> 8 & 255}.{place & 255}"

    @property
    def places(self) -> list[int]:
        """Everybody who comes; the twin has the number after all others, and is seated after the
        one whose ranks it claims."""
        all_of = [p for p in range(self.nodes) if p != self.absent]
        if self.twin is not None:
            all_of.insert(all_of.index(self.twin) + 1, self.nodes)
        return all_of


@dataclass(slots=True)
class Script:
    """What a node says of each check, made from what was recorded."""

    of: Simulated
    recorded: dict[str, dict[str, Any]] = field(
        default_factory=lambda: json.loads(RECORDED.read_text())
    )
    _known: Mapping[str, registry.Loaded] = field(default_factory=lambda: registry.load().checks)
    _shared: dict[str, Any] = field(default_factory=dict)
    _packing: Packing = field(default_factory=Packing)
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._random.seed(self.of.seed)

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(i for i in self._known if i in self.recorded["guest"])

    def by_rank(self, check: str) -> bool:
        return self._known[check].check.scope in (Scope.RANK, Scope.WORLD)

    def said(self, check: str, place: int, seat: int, rank: int | None = None) -> dict[str, Any]:
        """An observation as JSON data; where nothing in it is a node's own it is one object."""
        data = self._shared.get(check)
        if data is None:
            data = self._shared[check] = self._common(check)
        own = OWN.get(check)
        if own is not None:
            data = own(json.loads(json.dumps(data)), self.of, place, seat, rank)
        if check == "gpu.health" and place in self.of.odd:
            data = json.loads(json.dumps(data))
            data["ok"]["told"]["gpus"][3]["remap_pending"] = True
        return self._jittered(data) if self.of.jitter else data

    def kept(self, data: dict[str, Any]) -> dict[str, Any]:
        """The same as the host of a meeting keeps it."""
        return {**data, "ok": self._packing.of(data["ok"])} if "ok" in data else data

    def _common(self, check: str) -> dict[str, Any]:
        data = self.recorded["guest"][check]
        if check == "world.bandwidth" and "ok" in data:
            data["ok"] |= {"ranks": self.of.size, "each": self.of.ranks}
        if (self.of.absent, self.of.twin) != (None, None) and check in NEEDS_ALL:
            data = {"missing": "blocked", "detail": "", "seconds": 0.0, "marks": []}
            data["by"] = "rdzv.reach"
        return dict(data)

    def _jittered(self, data: Any, name: str = "") -> Any:
        if isinstance(data, dict):
            return {k: self._jittered(v, k) for k, v in data.items()}
        if isinstance(data, list):
            return [self._jittered(v, name) for v in data]
        if isinstance(data, float) and data and name not in EXACT:
            return round(data * self._random.uniform(0.95, 1.05), 6)
        return data


EXACT = ("wanted", "got", "rate", "cpus", "gbs", "gradient_gap", "max_error", "latency", "began")
"""Numbers that are no time, or by which a node would stand out."""

Own = Callable[[dict[str, Any], Simulated, int, int, int | None], dict[str, Any]]


def _renamed(data: dict[str, Any], of: Simulated, place: int, *_: Any) -> dict[str, Any]:
    """With this node's name and addresses wherever the recorded guest had its own."""
    text = json.dumps(data)
    low = f"{place >> 8:x}:{place & 0xFFFF:x}"
    for old, new in (
        ("n1", of.name(0)),
        ("n2", of.name(place)),
        ("10.77.0.1", of.address(0)),
        ("10.77.0.2", of.address(place)),
        ("fd77::2", f"fd77::{low}"),
        ("fe80::77:ff:fe00:2", f"fe80::77:{low}"),
        ("e8955fa7-4739-4fa4-a629-70eafe6673fc", f"{place:08x}-4739-4fa4-a629-70eafe6673fc"),
    ):
        for before, after in (('"', '"'), ("'", "'"), (":", '"'), (" ", "/"), (" ", '"')):
            text = text.replace(before + old + after, before + new + after)
    return dict(json.loads(text))


def _gpus(data: dict[str, Any], of: Simulated, place: int, *_: Any) -> dict[str, Any]:
    gpus = data["ok"].get("answer", data["ok"].get("told", {})).get("gpus", [])
    for number, gpu in enumerate(gpus):
        if "uuid" in gpu:
            gpu["uuid"] = f"GPU-{place:08x}-0000-4000-8000-{number:012x}"
    return data


def _mesh(data: dict[str, Any], of: Simulated, place: int, seat: int, _: Any) -> dict[str, Any]:
    data = _renamed(data, of, place)
    count = len(of.places)
    ok = data["ok"]
    ok["place"] = {"number": seat, "count": count}
    to = pairing.dials(seat, count)
    if "times" in ok:
        ok["times"] = {"Gloo": dict.fromkeys(map(str, to), 2.2e-05)}
        ok["heard"] = sorted(pairing.dialled_by(seat, count))
    if "sweeps" in ok:
        first = ok["sweeps"][0]
        ok["sweeps"] = [{**first, "to": other} for other in to]
    if "trials" in ok:
        first = ok["trials"][0]
        rounds = _rounds(count)
        first["moved"]["inward"]["rate"] = 1.2e9
        ok["trials"] = [
            {**first, "peer": made[seat], "round": number}
            for number, made in enumerate(rounds)
            if seat in made
        ]
    return data


_ROUNDS: dict[int, list[dict[int, int]]] = {}


def _rounds(count: int) -> list[dict[int, int]]:
    if count not in _ROUNDS:
        _ROUNDS[count] = [
            {a: b for pair in made for a, b in (pair, pair[::-1])}
            for made in pairing.rounds(count, 5)
        ]
    return _ROUNDS[count]


def _names(data: dict[str, Any], of: Simulated, place: int, seat: int, _: Any) -> dict[str, Any]:
    data = _renamed(data, of, place)
    places = of.places
    first = data["ok"]["peers"][0]
    peers = []
    for other in pairing.dials(seat, len(places)):
        seen = {**first["seen"], "name": of.name(places[other])}
        seen["found"] = [of.address(places[other])]
        peers.append({"number": other, "seen": seen})
    data["ok"]["peers"] = peers
    return data


def _roll(data: dict[str, Any], of: Simulated, place: int, *_: Any) -> dict[str, Any]:
    data = _renamed(data, of, place)
    roll = data["ok"]["roll"]
    roll["ranks"], roll["size"] = list(of.ranks_of(place)), of.size
    roll["pid"] = 1000 + place
    return data


def _compute(
    data: dict[str, Any], of: Simulated, place: int, _: int, rank: int | None
) -> dict[str, Any]:
    number = (rank or 0) % of.ranks
    card = data["ok"]["card"]
    card["number"], card["bus"] = str(number), f"0000:{0x18 + 8 * number:02x}:00.0"
    card["identity"] = f"GPU-{place:08x}-0000-4000-8000-{number:012x}"
    return data


OWN: dict[str, Own] = {
    "net.name": _renamed,
    "net.interface": _renamed,
    "rdzv.reach": _roll,
    "rdzv.torchrun": _renamed,
    "agree.hardware": _renamed,
    "agree.names": _names,
    "net.mesh": _mesh,
    "net.payload": _mesh,
    "net.speed": _mesh,
    "gpu.visible": _gpus,
    "gpu.health": _gpus,
    "gpu.compute": _compute,
}
"""What is different for each node, or for each rank of it."""


def arrivals(of: Simulated) -> list[dict[str, Any]]:
    """The roll of the host."""
    return [
        {
            "node": of.name(place),
            "host": of.name(place),
            "identity": f"{place:016x}",
            "pid": 1000 + place,
            "ranks": list(of.ranks_of(place)),
            "size": of.size,
            "addr": of.address(place) if place else "",
            "claims": f"{of.name(0)}:29500",
            "mine": place == 0,
            "job": "",
            "at": 0.0,
            "mark": "",
            "lost": "",
            "offset": 0.0,
            "uncertainty": 0.0001,
        }
        for place in of.places
    ]


def observation(data: dict[str, Any]) -> Observation:
    marks = tuple(Mark(name, at) for name, at in data["marks"])
    if "missing" in data:
        cause = Cause(data["missing"])
        return Missing(cause, data["detail"], data["seconds"], marks, data.get("by", ""))
    return Seen(data["ok"], data["seconds"], marks)


def observed(of: Simulated) -> Observations:
    """All that was seen, as the leader of such a run would hold it."""
    script = Script(of)
    places = of.places
    nodes = [Node(of.name(p), of.ranks_of(p), of.address(p), of.ranks) for p in places]
    checks: dict[str, dict[str, Observation]] = {}
    names = {place: [key_of(of.name(place), r) for r in of.ranks_of(place)] for place in places}
    for check in script.checks:
        by_key: dict[str, Observation] = {}
        made: dict[int, Observation] = {}
        for seat, place in enumerate(places):
            ranks: tuple[int | None, ...] = (None,)
            if script.by_rank(check):
                ranks = of.ranks_of(place)
            for number, rank in enumerate(ranks):
                data = script.said(check, place, seat, rank)
                shared = data is script._shared.get(check)
                if not shared or id(data) not in made:
                    made[id(data)] = observation(data if shared else script.kept(data))
                key = of.name(place) if rank is None else names[place][number]
                by_key[key] = made[id(data)]
                if not shared:
                    made.clear()
        checks[check] = by_key
    host = of.name(0)
    roll = dict(script.recorded["host"]["rdzv.reach"]["ok"])
    roll["roll"] = {**roll["roll"], "arrivals": arrivals(of), "size": of.size, "pid": 1000}
    roll["roll"] |= {"host": host, "name": host, "ranks": list(of.ranks_of(0))}
    checks["rdzv.reach"][host] = Seen(roll, 0.1, ())
    facts = {"size": Fact(str(of.size), "env WORLD_SIZE"), "nproc": Fact("8", "--nproc")}
    facts["nodes"] = Fact(str(of.nodes), "--nodes")
    return Observations(
        tool={"name": "preflight", "version": "0.1.0", "python": "3.11.7"},
        started="2026-01-01T00:00:00Z",
        seconds=60.0,
        settings={"nproc": Setting(of.ranks, "--nproc")},
        topology=Topology("SLURM", "4711", of.size, tuple(nodes), host, 29500, facts),
        checks=checks,
    )
