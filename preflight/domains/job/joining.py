"""Launchers and ranks that wait for others who have not come: what can be seen of it from outside,
and what a job's store tells. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from preflight.frozen import dataclass
from preflight.humanize import plural, rank_list
from preflight.inference import consensus
from preflight.model import Confidence, Found, Kind, Status, Subject, place_of

PATIENCE = 10.0
"""Seconds that a wait may take in which nothing is wrong: nodes are not started at once."""
SIZES = 1 << 16

LAUNCHER, RANK = "torchrun", "rank"
"""Joining.who"""
ELSEWHERE = "it is in another network namespace: run attach in its container"


@dataclass(frozen=True, slots=True)
class Joining:
    """Where a process waits for the others of its job.

    who      LAUNCHER: in its rendezvous, for nodes; RANK: in init_process_group, for ranks
    place    HOST:PORT of the store; empty where nothing tells it
    since    seconds for which it waits
    mine     its own number; None where it has none, as with c10d
    size     how many must come; 0 where it does not wait (a launcher that has not come so far)
    come     how many the store knows; None where it tells nothing
    known    their numbers, as far as the store tells them
    names    the nodes that are in a c10d rendezvous, as they call themselves
    complete the rendezvous is over, and this node is not in it
    error    why the store could not be read: a name of errno or of the resolver, or a sentence
    command  what starts a node that is missing, its words divided by "\\0"
    run_id   that of the rendezvous
    alone    no other node can come: --standalone
    """

    who: str
    place: str = ""
    since: float = 0.0
    mine: int | None = None
    size: int = 0
    come: int | None = None
    known: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    complete: bool = False
    error: str = ""
    command: str = ""
    run_id: str = ""
    alone: bool = False

    @property
    def loopback(self) -> bool:
        """Whether the place is another one on each node."""
        return self.place.startswith(("localhost:", "127.", "[::1]:", "::1:"))

    @property
    def title(self) -> str:
        number = f" of node rank {self.mine}" if self.who == LAUNCHER and self.mine else ""
        return f"{self.who}{number}" if self.who == LAUNCHER else f"rank {self.mine}"


REFUSED = "ECONNREFUSED"
UNREACHABLE = {
    REFUSED: "connection refused, so nothing listens there",
    "ETIMEDOUT": "no answer: a firewall drops the packets, or that machine is down",
    "EHOSTUNREACH": "no route to that machine",
    "ENETUNREACH": "no route to its network",
    "ECONNRESET": "the connection is reset",
    "EAI_NONAME": "no such host name on this node",
    "EAI_AGAIN": "the name server gives no answer",
    "EAI_FAIL": "the name server fails",
}


def describe(one: Joining) -> str:
    """The same in a few words."""
    what, where = ("node", "the rendezvous") if one.who == LAUNCHER else ("rank", "init")
    if one.alone:
        return f"waits in {where} for {plural(one.size, what)} · --standalone: nobody else can come"
    if one.error:
        return f"waits in {where} · {one.place} can't be asked"
    return f"waits in {where} · {_come(one, what)}"


def from_launchers(waiting: Mapping[str, Joining]) -> Found | None:
    """Of launchers that wait in their rendezvous, by where they are observed: who has not come, or
    why the store can't be reached."""
    inside = {key: one for key, one in waiting.items() if one.size}
    for key, one in inside.items():
        if one.alone:
            saw = f"{one.title} has waited for {_time(one.since)} in its rendezvous for "
            saw += f"{plural(one.size, 'node')}: with --standalone it meets only itself"
            here = (Subject(Kind.NODE, place_of(key)[0]),)
            found = _found("rendezvous-incomplete", here, one, saw, "--standalone on one node only")
            return found.with_(status=None)  # however short the wait is
    apart = _launchers_apart(inside)
    if apart is not None:
        return apart
    # who can't get in knows more than who waits for him
    for key, one in sorted(inside.items(), key=lambda item: item[1].error not in UNREACHABLE):
        head = f"{one.title} has waited for {_time(one.since)} in its rendezvous at {one.place}"
        here = (Subject(Kind.NODE, place_of(key)[0]),)
        if one.error in UNREACHABLE:
            return _unreachable(here, one, head)
        if one.complete:
            saw = f"{head}: that has begun without it, with {_nodes(one)}"
            return _found("rendezvous-incomplete", here, one, saw, "an --nnodes that counts it")
        subjects = [Subject(Kind.JOB, "", f"node rank {n}") for n in _missing(one)[:64]]
        return _found(
            "rendezvous-incomplete",
            tuple(subjects) or (Subject(Kind.JOB, "", "the other nodes"),),
            one,
            f"{head}: {_come(one, 'node')}{_others(one)}",
            f"{plural(one.size, 'node')}, as --nnodes says",
        )
    return None


def _launchers_apart(waiting: Mapping[str, Joining]) -> Found | None:
    """Launchers that wait for each other at different places, for different numbers, or as one."""
    first = next(iter(waiting.values()), None)
    if first is None or len(waiting) < 2:
        return None
    for name, values in (
        ("the rendezvous endpoint", {key: one.place for key, one in waiting.items()}),
        ("--rdzv-id", {key: one.run_id for key, one in waiting.items()}),
        ("--nnodes", {key: str(one.size) for key, one in waiting.items()}),
    ):
        told = consensus(values)
        if told.odd:
            rows = [*told.odd.items(), *([(told.value, told.holders)] if told.value else [])]
            said = [f"{v} for {', '.join(_who(waiting, k) for k in of)}" for v, of in rows[:4]]
            return _found(
                "rendezvous-incomplete",
                tuple({Subject(Kind.NODE, place_of(k)[0]) for ks in told.odd.values() for k in ks}),
                replace(first, command="", since=max(o.since for o in waiting.values())),
                f"launchers wait for each other and never meet: {name} is {', '.join(said)}",
                "one value on all nodes",
            )
    twice = [n for n, count in Counter(o.mine for o in waiting.values()).items() if count > 1]
    if twice and twice[0] is not None:
        return _found(
            "rendezvous-incomplete",
            (Subject(Kind.JOB, "", f"node rank {twice[0]}"),),
            replace(first, command=""),
            f"{len(waiting)} launchers wait at {first.place}, and several of them have "
            f"--node-rank {twice[0]}",
            "a different --node-rank for each node",
        )
    return None


def _who(waiting: Mapping[str, Joining], key: str) -> str:
    one = waiting[key]
    return f"node rank {one.mine}" if one.mine is not None else place_of(key)[0]


def launchers_without_ranks(waiting: Mapping[str, Joining]) -> Found | None:
    """Of launchers that have started no rank and are not known to wait for anybody."""
    for key, one in waiting.items():
        if not one.size:
            return Found(
                "not-watched",
                (Subject(Kind.NODE, place_of(key)[0]),),
                saw=f"the launcher has started no rank in {_time(one.since)}"
                + f": {one.error}" * bool(one.error),
                expected="ranks",
            )
    return None


def from_ranks(
    waiting: Mapping[int, Joining], nodes: Mapping[int, str], here: frozenset[int]
) -> Found | None:
    """Of ranks that wait in init_process_group: those that are on no machine that is looked at.
    waiting, nodes by rank; here: all ranks that are looked at."""
    if not waiting:
        return None
    apart = _places_apart(waiting, nodes)
    if apart is not None:
        return apart
    for rank, one in waiting.items():
        if one.error in UNREACHABLE:
            head = f"rank {rank} has waited for {_time(one.since)} in init_process_group for "
            head += f"the store at {one.place}"
            subject = Subject(Kind.RANK, nodes[rank], str(rank), ranks=(rank,))
            return _unreachable((subject,), one, head)
    size = max(one.size for one in waiting.values())
    known = here.union(*(one.known for one in waiting.values()))
    absent = sorted(set(range(min(size, SIZES))) - known)
    come = max((one.come for one in waiting.values() if one.come is not None), default=None)
    if not absent or (come is not None and come >= size):
        return None
    first = max(waiting.values(), key=lambda one: (one.come or 0, one.since))
    told = any(one.known for one in waiting.values()) or come == size - len(absent)
    saw = f"{rank_list(waiting)} {'has' if len(waiting) == 1 else 'have'} waited for "
    saw += f"{_time(max(one.since for one in waiting.values()))} in init_process_group"
    saw += f" at {first.place}" * bool(first.place)
    saw += f": {_come(first, 'rank')}" if come is not None else f" with {plural(size, 'rank')}"
    saw += f" · {rank_list(absent)} {'is' if len(absent) == 1 else 'are'} "
    saw += "missing" if told else "not on this machine"
    if come is None and first.error:
        saw += f" · the store was not asked: {first.error}"
    return _found(
        "rank-absent",
        tuple(Subject(Kind.RANK, "", str(r), ranks=(r,)) for r in absent[:64]),
        first,
        saw,
        f"{plural(size, 'rank')} in init_process_group",
        {"rank": str(absent[0])},
        alternatives=() if told else ("it is on another machine, and waits as well",),
    )


def _places_apart(waiting: Mapping[int, Joining], nodes: Mapping[int, str]) -> Found | None:
    """Ranks of one job that wait for each other at different places, or for different numbers."""
    for name, values in (
        ("MASTER_ADDR:MASTER_PORT", {r: one.place for r, one in waiting.items() if one.place}),
        ("WORLD_SIZE", {r: str(one.size) for r, one in waiting.items() if one.size}),
    ):
        counted = Counter(values.values()).most_common()
        if len(counted) < 2:
            continue
        tie = counted[0][1] == counted[1][1]
        odd = [r for r, value in values.items() if tie or value != counted[0][0]]
        said = [
            f"{value} on {rank_list([r for r in values if values[r] == value])}"
            for value, _ in reversed(counted[:4])
        ]
        return Found(
            "rank-absent",
            tuple(Subject(Kind.RANK, nodes[r], str(r), ranks=(r,)) for r in odd[:64]),
            saw=f"ranks wait in init_process_group and never meet: {name} is {', '.join(said)}",
            expected="one value on all ranks",
            confidence=Confidence.LIKELY,
            alternatives=tuple(f"rank {r} has the intended one" for r in odd[:2]) * tie,
            fields={"rank": str(odd[0])},
        )
    return None


def _found(
    code: str,
    subjects: tuple[Subject, ...],
    one: Joining,
    saw: str,
    expected: str,
    fields: Mapping[str, str] | None = None,
    alternatives: tuple[str, ...] = (),
) -> Found:
    host = one.place.rpartition(":")[0]
    where = f" · {host} is each node's own address" if one.loopback and one.who == LAUNCHER else ""
    return Found(
        code,
        subjects,
        saw=saw + where,
        expected=expected,
        confidence=Confidence.POSSIBLE if alternatives else Confidence.LIKELY,
        alternatives=alternatives,
        status=None if one.since >= PATIENCE else Status.UNDECIDED,
        fields={
            "command": one.command,
            "place": one.place,
            "host": host,
            **(fields or {}),
        },
    )


def _unreachable(subjects: tuple[Subject, ...], one: Joining, head: str) -> Found:
    return _found(
        "rendezvous-unreachable",
        subjects,
        one if one.error == REFUSED else replace(one, command=""),
        f"{head}, which can't be reached: {UNREACHABLE[one.error]}",
        f"a store that answers at {one.place}",
    )


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 300 else f"{seconds / 60:.0f} min"


def _come(one: Joining, what: str) -> str:
    """`1 of 2 nodes is here`."""
    if one.come is None:
        return f"it waits for {plural(one.size, what)}"
    verb = "is" if one.come == 1 else "are"
    return f"{one.come} of {plural(one.size, what)} {verb} here"


def _nodes(one: Joining) -> str:
    return ", ".join(one.names[:4]) + f" and {len(one.names) - 4} more" * (len(one.names) > 4)


def _missing(one: Joining) -> list[int]:
    """The node ranks that are not here, where that is known."""
    if one.mine is None or one.come is None:
        return []
    known = {one.mine, *one.known}
    absent = [n for n in range(min(one.size, SIZES)) if n not in known]
    return absent if len(absent) == one.size - one.come else []


def _others(one: Joining) -> str:
    missing = _missing(one)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return f" · node {rank_list(missing)} {verb} missing"
    if one.names:
        return f" ({_nodes(one)})"
    return f" · its store was not asked: {one.error}" if one.error else ""
