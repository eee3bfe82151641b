"""A good report becomes the expectation: which keys of `[expect]` it has a value for. Pure.

Nothing is taken that would make a check look less closely than it does by itself, and nothing that
belongs to one job and not to the cluster. What differs between nodes is nobody's expectation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from preflight.baseline import facts
from preflight.domains.collectives.allreduce import busbw
from preflight.domains.net.slow_pairs import FAST, SLOW
from preflight.frozen import dataclass
from preflight.humanize import GIB, plural
from preflight.model import Cause, Missing, PreflightError, Report, Verdict, place_of

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Source:
    """Where the value of a key comes from.

    read     what an observation of `check` says of it: "" and None say nothing
    least    a floor below this is no bar: the check itself asks for as much where it matters, and
             would ask for less than that if it were told
    part     of what was measured: then it is the least of all nodes that counts, and this part of
             it; None for what is said and not measured, which has to be the same everywhere
    """

    check: str
    read: Callable[[object], str | int | float | None]
    least: float = 0.0
    part: float | None = None


def _at_least(path: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        found = facts.version(facts.text(value, path))
        return f">={found}" if found else ""

    return read


def _nccl(value: object) -> str:
    found = facts.version(facts.nccl_of(value))
    return f">={found}" if found else ""


def _gpu_count(value: object) -> int | None:
    return facts.whole(value, "answer.count") or None


def _gpu_model(value: object) -> str:
    """Nothing where a node has several."""
    names = set(facts.gpu_names(value))
    return names.pop() if len(names) == 1 else ""


def _gib(path: str) -> Callable[[object], float | None]:
    def read(value: object) -> float | None:
        """Rounded down: the same machine must pass its own expectation."""
        found = facts.whole(value, path)
        if found is None or found == UNLIMITED:
            return None if found is None else math.inf
        return math.floor(found / GIB * 1000) / 1000

    return read


def _files(value: object) -> float | None:
    found = facts.whole(value, "files")
    return math.inf if found == UNLIMITED else found


def _gbits(value: object) -> float | None:
    """What came in from the best partner; more than a CPU moves in one stream is no more."""
    trials = facts.entries(value, "trials")
    rates = [rate for t in trials if (rate := facts.number(t, "moved.inward.rate")) is not None]
    return min(max(rates), FAST) / 1.25e8 if rates else None


def _busbw(value: object) -> float | None:
    """What the largest all-reduce had on the wire, between GPUs of several nodes only: one node
    alone has NVLink and does better, and without GPUs it is the CPUs that count."""
    points = facts.entries(value, "curve")
    ranks, each = facts.whole(value, "ranks"), facts.whole(value, "each")
    if facts.text(value, "backend") != "nccl" or not (points and ranks and each and ranks > each):
        return None
    most, seconds = facts.whole(points[-1], "bytes"), facts.number(points[-1], "seconds")
    return busbw(most, seconds, ranks) or None if most and seconds else None


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "gpus_per_node": Source("gpu.visible", _gpu_count),
        "gpu_model": Source("gpu.visible", _gpu_model),
        "torch": Source("host.software", _at_least("build.version")),
        "cuda": Source("host.software", _at_least("build.cuda")),
        "nccl": Source("host.software", _nccl),
        "driver": Source("host.software", _at_least("driver")),
        # what host.limits asks for by itself beside RDMA devices, and in /dev/shm
        "memlock_gib": Source("host.limits", _gib("memlock"), least=1.0),
        "shm_gib": Source("host.limits", _gib("shm_size"), least=1.0),
        # enough for 4000 ranks by the rule of host.limits, which a floor takes the place of
        "nofile": Source("host.limits", _files, least=65536),
        # less than this part of its peers' speed is what net.speed calls a slow node
        "tcp_gbits": Source("net.speed", _gbits, part=SLOW),
        # runs of the same nodes scatter by a few percent, and more nodes reach somewhat less
        "allreduce_busbw_gbs": Source("world.bandwidth", _busbw, part=0.8),
    }
)
"""Key of `[expect]` -> where its value comes from."""

NOT_MEASURED: Mapping[str, str] = MappingProxyType(
    {
        "cpus_per_rank": "depends on how many ranks a job has",
        "free_gib": "changes from hour to hour",
        "loader_workers": "is the job's own choice",
    }
)
"""Keys that no report can tell, and why."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a report says of one key: its value, or None and why it is left out."""

    key: str
    check: str
    value: str | int | float | None
    why: str


def learnt(report: Report) -> tuple[Learnt, ...]:
    """The expectations that a report gives, and what of it gives none; PreflightError for a report
    that is not READY, or has nothing to expect."""
    cut = report.observations.interrupted
    if report.verdict is not Verdict.READY or cut:
        word = str(report.verdict).replace("_", " ").upper()
        why = f"was interrupted: {cut!r:.20}" if cut else f"is {word}"
        raise PreflightError(f"a baseline is made of a report that is READY; this one {why}")
    found = tuple(one for key in SOURCES if (one := _learnt(report, key)) is not None)
    if not any(one.value is not None for one in found):
        raise PreflightError("the report holds nothing that could be expected")
    return found


def _learnt(report: Report, key: str) -> Learnt | None:
    source = SOURCES[key]
    check = source.check
    nodes = [node.name for node in report.observations.topology.nodes]
    values: dict[str, str | int | float | None] = {}
    for place, seen in facts.seen(report, check).items():
        # of the ranks of a node the first one that has something to say speaks for it
        node = place if place in nodes else place_of(place)[0]
        values[node] = source.read(seen) if values.get(node) in (None, "") else values[node]
    told = {name: value for name in nodes if (value := values.get(name)) not in (None, "")}

    def left_out(why: str) -> Learnt:
        return Learnt(key, check, None, why)

    if not told:
        return None if _looked(report, check) else left_out(f"{check} is not in this report")
    if check in report.tolerated:
        return left_out(f"{check} failed, and was tolerated")
    if len(told) < len(nodes):
        return left_out(f"known of {len(told)} of {plural(len(nodes), 'node')}")
    if source.part is not None:
        measured = min(value for value in told.values() if not isinstance(value, str))
        floor = math.floor(measured * source.part * 100) / 100
        if floor <= 0:
            return left_out(f"{measured:.3g} is too little to expect a part of")
        return Learnt(key, check, floor, f"{source.part:.0%} of the slowest node's {measured:.3g}")
    different = sorted({str(value) for value in told.values()})
    if len(different) > 1:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        return left_out(f"differs between nodes: {', '.join(different[:3])}{more}")
    value = next(iter(told.values()))
    if isinstance(value, (int, float)):
        if value == math.inf:
            return left_out("unlimited, which no number says")
        if value < source.least:
            return left_out(f"{value:g}: {check} may ask for more than that by itself")
    elif not str(value).isprintable():
        return left_out("not a printable text")
    return Learnt(key, check, value, "" if len(nodes) == 1 else f"the same on {len(nodes)} nodes")


def _looked(report: Report, check: str) -> bool:
    """Whether a check was made, or found that there is nothing to look at here."""
    by_key = report.observations.checks.get(check, {}).values()
    return any(not isinstance(o, Missing) or o.cause is Cause.NOT_APPLICABLE for o in by_key)
