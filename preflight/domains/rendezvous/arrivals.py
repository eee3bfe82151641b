"""What the host of a meeting can say of those who came. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from preflight.domains.rendezvous.attempts import Reach
from preflight.frozen import dataclass
from preflight.humanize import duration, plural, rank_list
from preflight.identity.slurm_hosts import ExpectedHost
from preflight.inference import consensus
from preflight.model import Blame, Confidence, Found, Kind, Status, Subject, World
from preflight.nodeset import folded, hostlist, same_host
from preflight.roster import Arrival, Roll

SECONDS_LATE = 5.0
"""Behind the median: a healthy start of many nodes is spread over a second or two."""

SHOWN = 4


@dataclass(frozen=True, slots=True)
class MeetingView:
    """A meeting as its host saw it. `host`: its own arrival; `guests`: those of other machines."""

    node: str
    reach: Reach
    host: Arrival
    guests: tuple[Arrival, ...]

    @property
    def roll(self) -> Roll:
        return self.reach.roll

    @property
    def came(self) -> frozenset[int]:
        return frozenset(r for a in self.roll.arrivals for r in a.ranks)


def meeting_views(world: World[Reach]) -> tuple[MeetingView, ...]:
    """The meetings that were held, the best attended first. There should be one at most."""
    found = []
    for node, reach in world.seen.items():
        roll = reach.roll
        if not roll.hosts or roll.failed or not roll.arrivals:
            continue
        own = (a for a in roll.arrivals if (a.host, a.pid) == (roll.host, roll.pid))
        host = next(own, roll.arrivals[0])
        guests = tuple(a for a in roll.arrivals if a.identity != host.identity)
        found.append(MeetingView(node, reach, host, guests))
    return tuple(sorted(found, key=lambda v: -len(v.roll.arrivals)))


def node_of(arrival: Arrival) -> Subject:
    return Subject(Kind.NODE, arrival.node, ranks=arrival.ranks)


def who(arrival: Arrival) -> str:
    """`gpu2 (pid 4711, 10.0.0.2)`."""
    addr = f", {arrival.addr}" if arrival.addr else ""
    return f"{arrival.node} (pid {arrival.pid}{addr})"


# --- who came wrongly ---


def duplicate_ranks(view: MeetingView) -> Iterator[Found]:
    """Two agents with a rank in common. Which of them is wrong, the node list or MASTER_ADDR may
    tell; else both are named."""
    holders: dict[int, list[int]] = {}
    for number, arrival in enumerate(view.roll.arrivals):
        for rank in set(arrival.ranks):
            holders.setdefault(rank, []).append(number)
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, numbers in sorted(holders.items()):
        if len(numbers) > 1:
            groups.setdefault(tuple(numbers), []).append(rank)
    for claimants, ranks in groups.items():
        claim = [view.roll.arrivals[n] for n in claimants]
        yield duplicate_rank(claim, ranks, view.reach.expected)


def duplicate_rank(
    claim: list[Arrival], ranks: list[int], expected: Iterable[ExpectedHost] = ()
) -> Found:
    one_machine = len({a.identity for a in claim}) == 1
    right, why = (None, "") if one_machine else _rightful(claim, ranks, expected)
    odd = [a for a in claim if right is not None and a is not right] or claim
    saw = f"{rank_list(ranks)} claimed by {' and by '.join(who(a) for a in claim[:SHOWN])}"
    first = min(ranks)
    if one_machine:
        saw += " · on one machine: the command was started twice there"
    elif len(ranks) > 1 and all(set(a.ranks) == set(ranks) for a in claim):
        saw += f" · {len(claim)} nodes think that they are node rank {first // len(ranks)}"
    elif first == 0:
        saw += f" · {'both' if len(claim) == 2 else 'all'} think that they lead"
    saw += f" · {why}" if why else ""
    subjects = [
        Subject(Kind.RANK, a.node, str(r), (r,))
        if len(ranks) == 1
        else Subject(Kind.NODE, a.node, ranks=tuple(ranks))
        for a in odd
        for r in ranks[:1]
    ]
    return Found(
        "leader-duplicate" if first == 0 else "rank-duplicate",
        tuple(dict.fromkeys(subjects)),
        saw=saw,
        expected="each rank once",
        confidence=Confidence.CERTAIN if odd is claim else Confidence.LIKELY,
        fields={"host": odd[-1].node, "pid": str(odd[-1].pid), "ranks": rank_list(ranks)},
    )


ANOTHER_JOB = "another job of this user on that node has the same MASTER_PORT"


def twins(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    """Nodes on which two agents have the same ranks, of which not both came to the meeting: the
    other one was started later, or had come to one of its own. Of nodes without rank 0 only where
    this one did not get in: pods of two jobs that share a node's network may both be named alike,
    and meet elsewhere."""
    came = {(a.node, a.pid) for a in view.roll.arrivals} if view is not None else set()
    for here, reach in world.each():
        roll = reach.roll
        apart = [pid for pid in reach.twins if (here.node, pid) not in came]
        if not apart or not (roll.hosts or roll.reached is None):
            continue
        pids = [roll.pid, *apart]
        told = " and by ".join(f"{here.node} (pid {pid})" for pid in pids[:SHOWN])
        saw = f"{rank_list(here.ranks)} claimed by {told}"
        fields = {"host": here.node, "pid": str(apart[0]), "ranks": rank_list(here.ranks)}
        code = "leader-duplicate" if 0 in here.ranks else "rank-duplicate"
        if reach.numbers:
            code = "nodes-surplus"
            saw = f"--nnodes {roll.nodes} · {told}"
            fields |= {
                "count": f"more than {roll.nodes}",
                "nodes": str(roll.nodes),
                "counts": f"{len(pids)} on {here.node}",
            }
        alone = len(here.ranks) == 1 and not reach.numbers
        rank = Subject(Kind.RANK, here.node, str(here.ranks[0]), here.ranks) if alone else here
        yield Found(
            code,
            (rank,),
            saw=f"{saw} · on one machine: the command was started twice there",
            expected="each rank once",
            confidence=Confidence.LIKELY,
            alternatives=(ANOTHER_JOB,),
            fields=fields,
        )


def _rightful(
    claim: list[Arrival], ranks: list[int], expected: Iterable[ExpectedHost]
) -> tuple[Arrival | None, str]:
    """The one of several who should have these ranks, and what says so."""
    due = [e for e in expected if set(ranks) <= set(e.ranks)]
    listed = [a for a in claim if due and same_host(due[0].host, a.host)]
    if len(listed) == 1:
        return listed[0], f"the node list has {rank_list(ranks)} on {due[0].host}"
    mine = [a for a in claim if a.mine]
    if 0 in ranks and len(mine) == 1:
        return mine[0], f"MASTER_ADDR is an address of {mine[0].node}"
    return None, ""


def surplus_nodes(view: MeetingView) -> Iterator[Found]:
    """More torchruns than are to meet, or as many, with several on one machine: then they do meet,
    which may be meant, and on another machine one may find no place."""
    arrivals, nodes = view.roll.arrivals, view.roll.nodes
    agents = Counter(a.node for a in arrivals)
    several = [node for node, count in agents.items() if count > 1]
    more = len(arrivals) > nodes
    if not nodes or not (more or several) or len(view.came) < sum(len(a.ranks) for a in arrivals):
        return  # ranks that two have are another finding
    odd = several or list(agents)
    told = ", ".join(f"{agents[node]} on {node}" for node in odd[:SHOWN])
    yield Found(
        "nodes-surplus",
        tuple(dict.fromkeys(Subject(Kind.NODE, node) for node in odd)),
        saw=f"--nnodes {nodes} · who came: {' and '.join(who(a) for a in arrivals[:SHOWN])}",
        expected=f"{plural(nodes, 'node')}, with one torchrun each",
        status=Status.FAIL if more else Status.WARN,
        confidence=Confidence.CERTAIN if several and more else Confidence.LIKELY,
        fields={
            "count": str(len(arrivals)),
            "nodes": str(nodes),
            "counts": told,
            "host": hostlist(odd),
        },
    )


def uneven_nodes(world: World[Reach], view: MeetingView) -> Iterator[Found]:
    """Nodes that are all there, of which torchrun will start different numbers of ranks: its agents
    add them up (torch/distributed/elastic/agent/server/api.py, _assign_worker_ranks), whatever the
    rendezvous."""
    arrivals = view.roll.arrivals
    counts = {a.node: len(a.ranks) for a in arrivals}
    one_each = len(counts) == len(arrivals) == view.roll.nodes
    if not one_each or len(set(counts.values())) < 2:
        return
    by_count = [
        f"{folded(n for n, c in counts.items() if c == count)} {count}"
        for count in sorted(set(counts.values()))
    ]
    told = ", ".join(by_count[:SHOWN]) + (", …" if by_count[SHOWN:] else "")
    multiplied = [h.node for h, reach in world.each() if reach.identical and h.node in counts]
    saw = f"ranks that torchrun is to start: {told} · {sum(counts.values())} in all, which "
    saw += "torchrun adds up itself"
    if multiplied:
        saw += f", but on {folded(multiplied)}: TORCH_ELASTIC_WORKER_IDENTICAL=1"
    yield Found(
        "nproc-uneven",
        tuple(node_of(a) for a in arrivals),
        saw=saw,
        expected="as many on each node",
        status=Status.FAIL if multiplied else Status.WARN,
        fields={"counts": told},
    )


def job_size(view: MeetingView) -> tuple[int, tuple[Found, ...]]:
    """How many ranks the job has, and the finding about those who think otherwise. A machine has
    one voice for each number that it holds: its agents share a script."""
    arrivals = view.roll.arrivals
    found = consensus({f"{a.identity} {a.size}": a.size for a in arrivals})
    if not found.odd:
        return view.roll.size, ()
    sizes = sorted({a.size for a in arrivals})
    came = len(view.came)
    fits = came in sizes and all(r < came for r in view.came)
    size, sure = found.value, Confidence.LIKELY
    alternatives: tuple[str, ...] = ()
    reason = f"{plural(came, 'rank')} really came"
    if size is None and fits:
        size = came
    elif size is None or (fits and size != came):
        size = None
        sure = Confidence.POSSIBLE
        alternatives = tuple(f"{s} is right, and the others are wrong" for s in sizes[:SHOWN])
    elif fits:
        sure = Confidence.CERTAIN
    odd = [a for a in arrivals if a.size != size]
    said = [f"{s}: {_nodes(a for a in arrivals if a.size == s)}" for s in sizes[:SHOWN]]
    finding = Found(
        "size-differs",
        tuple(dict.fromkeys(node_of(a) for a in odd)),
        saw=f"ranks of the job: {'; '.join(said)} · {reason}",
        expected=f"{size} on every node" if size is not None else "one number on every node",
        confidence=sure,
        alternatives=alternatives,
        fields={"size": str(size) if size is not None else ""},
    )
    # when it can't be told, nobody is absent whom one of the numbers does not know
    return (size if size is not None else min(s for s in sizes if s >= min(came, sizes[-1]))), (
        finding,
    )


def _nodes(arrivals: Iterable[Arrival]) -> str:
    nodes = list(dict.fromkeys(a.node for a in arrivals))
    return ", ".join(nodes[:SHOWN]) + (f" and {len(nodes) - SHOWN} more" if nodes[SHOWN:] else "")


# --- who came late ---


def late_agents(world: World[Reach], view: MeetingView) -> Iterator[Found]:
    arrivals = [a for a in view.roll.arrivals if not a.lost]
    middle = median(a.at for a in arrivals) if arrivals else 0.0
    behind = [
        a for a in arrivals if a.at - middle >= SECONDS_LATE and not _looked_elsewhere(world, a)
    ]
    if not behind or len(behind) * 2 >= len(arrivals):
        return
    there: list[Arrival] = []
    elsewhere: list[Arrival] = []
    for late in behind:
        (there if _dialled_in_vain(world, late) else elsewhere).append(late)
    in_time = {a.node for a in arrivals if a.at - middle < SECONDS_LATE}

    def whom(late: Arrival) -> str:
        """The node, or its ranks where others of it were in time."""
        own = f"{rank_list(late.ranks)} on " if late.node in in_time else ""
        return f"{own}{late.node}"

    for some, dialled in ((elsewhere, False), (there, True)):
        if not some:
            continue
        times = (f"{whom(a)} came {duration(a.at - middle)} after most" for a in some[:SHOWN])
        links = (Subject(Kind.LINK, a.node, to=view.node, ranks=a.ranks) for a in some)
        yield Found(
            "agent-late",
            tuple(dict.fromkeys(links if dialled else (node_of(a) for a in some))),
            saw=" · ".join(times)
            + f" of {len(arrivals)} agents"
            + f": {view.node} gave no answer to what it sent before" * dialled,
            expected=f"all within {duration(SECONDS_LATE)}",
            confidence=Confidence.LIKELY,
            blame=Blame.NETWORK if dialled else None,
            fields={"host": hostlist(a.node for a in some)},
        )


def _looked_elsewhere(world: World[Reach], arrival: Arrival) -> bool:
    """Whether variables that a torchrun has left over there sent it to a store that is not there,
    for which it imported torch first: it was started in time."""
    reach = world.seen.get(arrival.node)
    return reach is not None and bool(reach.roll.store)


def _dialled_in_vain(world: World[Reach], arrival: Arrival) -> bool:
    """Whether it was there in time, and the meeting did not answer it for as long."""
    reach = world.seen.get(arrival.node)
    ladder = reach.roll.ladder if reach is not None else ()
    return any(way.tries > 1 and way.at >= SECONDS_LATE / 2 for way in ladder)


# --- who does not belong here ---


def unexpected_connections(world: World[Reach], view: MeetingView) -> Iterator[Found]:
    """Agents and ranks of another job are worth a word; scanners and health checks come to every
    port and are only counted. An agent whose own part is there speaks for itself."""
    outside = [r for r in world.seen.values() if not r.roll.hosts and r.roll.reached is None]
    known = {ip for reach in outside for ip in reach.addresses}
    # its agent has looked here for the store that its variables, left over there, tell of
    misled = {a.addr for a in view.roll.arrivals if _has_left_over(world, a.node, view)}
    where = Subject(Kind.SOFTWARE, view.node, "MASTER_PORT", view.host.ranks, port=view.roll.port)
    for code, kinds, said in (
        ("stranger-job", ("other job", "c10d"), "agents or ranks of another job"),
        ("stranger-token", ("token",), "agents without the PREFLIGHT_TOKEN of this job"),
        (
            "stranger-crowd",
            ("crowd",),
            "silent connections, closed to make room,",
        ),
    ):
        ours = {a.addr for a in view.roll.arrivals} if code == "stranger-crowd" else misled
        came = [s for s in view.roll.strangers if s.kind in kinds and s.addr not in known | ours]
        if came:
            from_ = ", ".join(dict.fromkeys(_with_node(view, s.addr) for s in came[:SHOWN]))
            times = plural(sum(s.count for s in came), "time")
            yield Found(
                code,
                (where,),
                saw=f"{said} connected {times} to port {view.roll.port}, from {from_}",
                expected="this job's ranks only",
                confidence=Confidence.LIKELY,
                fields={"port": str(view.roll.port), "addr": came[0].addr},
            )


def _has_left_over(world: World[Reach], node: str, view: MeetingView) -> bool:
    reach = world.seen.get(node)
    return reach is not None and reach.agent and not view.reach.agent


def _with_node(view: MeetingView, addr: str) -> str:
    node = next((a.node for a in view.roll.arrivals if a.addr == addr), "")
    return f"{addr} ({node})" if node else addr
