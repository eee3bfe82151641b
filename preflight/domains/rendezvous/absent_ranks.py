"""What the host of a meeting can say of those who did not come. Pure.

A guest's own words (what it could not reach, see not_admitted.py) count more than the host's guess:
who is there with a part of its own is never called absent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from preflight.domains.rendezvous.arrivals import MeetingView
from preflight.domains.rendezvous.attempts import AbsentHost, AttemptOutcome, Reach, describe_probes
from preflight.humanize import duration, plural, rank_list
from preflight.identity.addresses import loopback
from preflight.identity.discover import RANKS_LIMIT
from preflight.identity.slurm_hosts import ExpectedHost
from preflight.model import Cause, Confidence, Found, Kind, Missing, Status, Subject, World
from preflight.nodeset import folded, hostlist, same_host
from preflight.roster import Roll

SHOWN = 4
LINES_SHOWN = 4
ONE_BY_ONE = 64
"""Absent ranks that are subjects each for itself; more are one subject."""

CALL_THEMSELVES = "they are on other machines: MASTER_ADDR is the loopback, they call themselves"

FILTERED = (
    "has MASTER_ADDR and rp_filter=1, and another interface has the route to that subnet: it drops "
    "what they send"
)

COUNTED_TOO = "WORLD_SIZE counts a process that is no rank, or is another job's"

NOT_WAITED_FOR = "it was still starting: as many agents as there are ranks had come by then"

TURNED_AWAY = ("token", "other job", "version")

ALTERNATIVES = {
    "absent": (
        "they were never started, or ended before they connected",
        "they start with another MASTER_ADDR or MASTER_PORT",
        "their host is down, or a firewall drops what it sends",
    ),
    "absent-host-up": ("a firewall there lets no connection to this port out",),
    "absent-host-silent": ("a firewall drops all that we send there",),
}


def absent_hosts(roll: Roll, expected: Iterable[ExpectedHost]) -> tuple[ExpectedHost, ...]:
    """The expected hosts from which nobody came. Where somebody came from a host with other ranks
    than the list says, the launcher deals in its own way: the hosts count, their ranks don't."""
    expected = tuple(expected)
    ranks_at, dealt = _at_hosts(roll, expected)
    came = {r for a in roll.arrivals for r in a.ranks}
    return tuple(
        e if dealt else ExpectedHost(e.host)
        for e in expected
        if e.host not in ranks_at and not (dealt and came & set(e.ranks))
    )


def _at_hosts(roll: Roll, expected: Iterable[ExpectedHost]) -> tuple[dict[str, set[int]], bool]:
    """Which ranks came from each of the expected hosts, and whether all are as expected."""
    expected = tuple(expected)
    short: dict[str, list[ExpectedHost]] = {}
    for one in expected:
        short.setdefault(one.host.lower().partition(".")[0], []).append(one)
    ranks_at: dict[str, set[int]] = {}
    for arrival in roll.arrivals:
        for one in short.get(arrival.host.lower().partition(".")[0], ()):
            if same_host(one.host, arrival.host):
                ranks_at.setdefault(one.host, set()).update(arrival.ranks)
    return ranks_at, all(ranks_at.get(e.host, set()) <= set(e.ranks) for e in expected if e.ranks)


def _homes(view: MeetingView) -> dict[int, str]:
    """Rank -> its node, of those that the node list has on a node from where others came."""
    ranks_at, dealt = _at_hosts(view.roll, view.reach.expected)
    if not dealt:
        return {}
    node_of_rank = {r: a.node for a in view.roll.arrivals for r in a.ranks}
    return {
        rank: node_of_rank[min(ranks_at[e.host])]
        for e in view.reach.expected
        for rank in e.ranks
        if ranks_at.get(e.host)
    }


SRUN = "srun"
"""What a job of SLURM starts agents with; hosts are reached by ssh, or by whatever leads there."""


def not_reporting(world: World[Reach]) -> dict[str, Missing]:
    """The nodes whose agents the launching process (remote/launch.py) never heard from, with what
    it was told about them instead."""
    return {
        key: seen
        for key, seen in world.observations.items()
        if isinstance(seen, Missing) and seen.cause is Cause.NOT_ARRIVED and seen.by
    }


def excuse_waiting(world: World[Reach], finding: Found) -> Found:
    """A finding of those who found nobody to listen, where rank 0 was never started: they miss
    somebody, and nothing is wrong with their way there."""
    begun = {rank for node in world.topology.nodes for rank in node.ranks}
    if finding.code != AttemptOutcome.REFUSED or 0 in begun or not not_reporting(world):
        return finding
    return finding.with_(status=Status.MISSING, confidence=Confidence.LIKELY, alternatives=())


def not_started(
    world: World[Reach], view: MeetingView | None, accused: Collection[str]
) -> Iterator[Found]:
    """One finding for all nodes of which the same is said, less those of which more is known."""
    ranks = {e.host: e.ranks for e in view.reach.expected} if view is not None else {}
    groups: dict[tuple[str, str], list[str]] = {}
    for host, missing in not_reporting(world).items():
        if host in accused:
            continue
        # "connect to host n3: refused" and "connect to host n4: refused" are one thing
        words = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", missing.detail)
        groups.setdefault((missing.by, words), []).append(host)
    for (program, words), hosts in groups.items():
        names = folded(hosts)
        said = words.replace("HOST", hosts[0])
        yield Found(
            "not-launched" if program == SRUN else "not-reached",
            tuple(Subject(Kind.NODE, host, ranks=ranks.get(host, ())) for host in hosts),
            saw=f"nothing came from {names} · " + " · ".join(said.splitlines()[:LINES_SHOWN]),
            expected=f"an agent on every node that {program} was to start one on",
            confidence=Confidence.LIKELY,
            fields={"host": hostlist(hosts) or "them"},
        )


def absent(
    view: MeetingView,
    size: int,
    others: Iterable[Roll],
    told: Collection[str] = (),
    nodes: int = 0,
) -> Iterator[Found]:
    """Findings about ranks that never came. `others`: what all agents but the host saw; `told`:
    hosts of which it is already known why nobody came; `nodes`: as many as this run was started
    for, 0 where nobody said so."""
    roll = view.roll
    others = tuple(others)
    elsewhere = frozenset(r for other in others for r in other.ranks)
    claims = sum(len(a.ranks) for a in roll.arrivals)
    # another who holds a meeting of its own with the same ranks
    claims += sum(len(view.came & set(other.ranks)) for other in others if other.hosts)
    missing = frozenset(range(min(size, RANKS_LIMIT))) - view.came - elsewhere
    # as many came with the rank of another: it is they who are missing, unless the node list has a
    # host from where nobody came
    taken = claims - len(view.came) >= len(missing)
    hosts = [e for e in absent_hosts(roll, view.reach.expected) if missing >= set(e.ranks)]
    hosts = [e for e in hosts if not any(same_host(e.host, o.host) for o in others)]
    if not missing or (taken and not hosts):
        return
    last = max(a.at for a in roll.arrivals)
    met = f"{len(view.came)} of {size} ranks arrived in {duration(last)}"
    if roll.nodes:  # how many ranks the others have nobody knows
        met = f"{len(roll.arrivals)} of {roll.nodes} nodes arrived in {duration(last)}"
    if roll.full:
        yield _no_files(view, met, sorted(missing))
        return
    turned = [s for s in roll.strangers if s.kind in TURNED_AWAY]
    away = f" · {turned[0].addr} was turned away: {turned[0].kind}" if turned else ""
    crowds = [s for s in roll.strangers if s.kind == "crowd"]
    if crowds:
        away += (
            f" · {plural(sum(s.count for s in crowds), 'silent connection')} from "
            f"{crowds[0].addr} had to be closed to make room"
        )
    known = frozenset(r for e in hosts for r in e.ranks)
    unknown_ranks = [e for e in hosts if not e.ranks]
    hosts = [e for e in hosts if e.host not in told]
    for code, group in _by_answer(hosts, view.reach.sought).items():
        names = folded(e.host for e, _ in group)
        ranks = [r for e, _ in group for r in e.ranks]
        numbers = rank_list(ranks)
        whom = f"{names} ({numbers})" if ranks else names
        saw = f"{met}; nobody from {whom} connected within {duration(roll.waited)}{away}"
        looked = "; ".join(_describe_host(s) for _, s in group[:SHOWN] if s is not None)
        yield Found(
            code,
            tuple(Subject(Kind.NODE, e.host, ranks=e.ranks) for e, _ in group),
            saw=saw + (f" · from {view.node}: {looked}" if looked else ""),
            expected=f"all {size} ranks, {numbers} from {names}" if ranks else f"{size} ranks",
            confidence=Confidence.POSSIBLE if taken or code == "absent" else Confidence.LIKELY,
            alternatives=(*((NOT_WAITED_FOR,) if taken else ()), *ALTERNATIVES[code]),
            fields={
                "host": hostlist(e.host for e, _ in group) or "them",
                "port": str(roll.port),
                "ranks": rank_list(ranks or missing),
            },
        )
    if unknown_ranks or taken:
        return
    looped: tuple[str, ...] = (CALL_THEMSELVES,) if loopback(roll.name) else ()
    if view.reach.filtered:
        looped = (f"{view.reach.interface} here {FILTERED}",)
    looped += tuple(
        f"{view.node} drops what comes from {way.network} on {way.comes}: its route back leaves by "
        f"{way.leaves}, and rp_filter is 1"
        for way in view.reach.detours[:1]
    )
    homes = _homes(view)
    for rest, launched in _launched_and_beyond(view, sorted(missing - known), nodes):
        surplus = (f"the nodes of this run have {plural(launched, 'rank')}: {COUNTED_TOO}",)
        beyond = launched and rest[0] >= launched
        many = len(rest) > ONE_BY_ONE
        single = tuple(Subject(Kind.RANK, homes.get(r, ""), str(r), (r,)) for r in rest if not many)
        where = sorted({homes[r] for r in rest if r in homes})
        yield Found(
            "absent",
            single or (Subject(Kind.RANK, ranks=tuple(rest)),),
            saw=f"{met}; {rank_list(rest)} never connected within {duration(roll.waited)}{away}"
            + (f" · of {folded(where)}, from where others came" if where else "")
            + _who_came(view),
            expected=f"all {size} ranks",
            confidence=Confidence.POSSIBLE,
            alternatives=(*(surplus if beyond else ()), *looped, *ALTERNATIVES["absent"]),
            fields={
                "host": hostlist(where) or "their node",
                "port": str(roll.port),
                "ranks": rank_list(rest),
            },
        )


def _launched_and_beyond(
    view: MeetingView, missing: Sequence[int], nodes: int
) -> Iterator[tuple[Sequence[int], int]]:
    """The missing ranks that the nodes of this run can have, and those beyond them, which exist in
    WORLD_SIZE alone (env.identity), each with how many ranks these nodes have, 0 where nobody can
    tell. A node that is down is no consequence of the latter."""
    here: dict[str, int] = {}
    for arrival in view.roll.arrivals:
        here[arrival.node] = here.get(arrival.node, 0) + len(arrival.ranks)
    most = max(here.values())
    launched = nodes * most if most == 1 or len(here) == nodes else 0
    parts = ([r for r in missing if r < launched], [r for r in missing if r >= launched])
    yield from ((part, launched) for part in parts if part)


def _no_files(view: MeetingView, met: str, missing: list[int]) -> Found:
    """The host had no file for another connection, so nobody can tell who did come."""
    roll = view.roll
    most = {
        "EMFILE": f"its process may have {roll.files} open files (RLIMIT_NOFILE)",
        "ENFILE": "all open files of the machine are in use (fs.file-max)",
    }.get(roll.full, "its kernel had no memory for another connection")
    return Found(
        "open-files-exhausted",
        (Subject(Kind.NODE, view.node, ranks=view.host.ranks),),
        saw=f"{met}; {view.node} could not accept more connections: {most} ({roll.full}) · "
        f"{rank_list(missing)} may be waiting",
        expected="an open file for each agent of the job, and for each rank in its store",
        confidence=Confidence.LIKELY,
        fields={"host": view.node},
    )


def _by_answer(
    hosts: Iterable[ExpectedHost], sought: Iterable[AbsentHost]
) -> dict[str, list[tuple[ExpectedHost, AbsentHost | None]]]:
    """The absent hosts by what the look at them gave. Only some of many are looked at: where those
    are all alike, the others go with them."""
    looked = {s.host: s for s in sought}
    groups: dict[str, list[tuple[ExpectedHost, AbsentHost | None]]] = {}
    for host in hosts:
        groups.setdefault(_absence_code(looked.get(host.host)), []).append(
            (host, looked.get(host.host))
        )
    blind = [g for g in groups.get("absent", []) if g[1] is None]
    if len(groups) == 2 and blind and len(blind) == len(groups["absent"]):
        del groups["absent"]
        next(iter(groups.values())).extend(blind)
    return groups


def _absence_code(sought: AbsentHost | None) -> str:
    if sought is None or not sought.probes:
        return "absent"
    if any(p.answered for p in sought.probes):
        return "absent-host-up"
    return "absent-host-silent"


def _describe_host(sought: AbsentHost) -> str:
    if not sought.ips:
        return f"{sought.host} does not resolve ({sought.error or 'no address'})"
    return f"{sought.host} is {sought.ips[0]}: {describe_probes(sought.probes)}"


def _who_came(view: MeetingView) -> str:
    nodes = list(dict.fromkeys(a.node for a in view.roll.arrivals))
    more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    return f" · who came: {', '.join(nodes[:8])}{more}"
