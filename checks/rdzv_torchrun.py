"""Would torchrun's c10d rendezvous find its host, and advertise a name that all nodes resolve?

Level        standard
Looks at     the endpoint (PET_RDZV_ENDPOINT, else MASTER_ADDR): which nodes torchrun would let open
             the store there, by torch's own rule (localhost, the node's hostname, or an address
             that it resolves to); the name that it would advertise to all ranks as MASTER_ADDR: the
             alphabetically first of the nodes' FQDNs or PET_LOCAL_ADDR, as each node resolves it;
             PET_RDZV_ID or TORCHELASTIC_RUN_ID, PET_NNODES, PET_RDZV_BACKEND and the endpoint's
             port on all nodes
Fails if     the ids, counts, backends or ports differ; and where PET_RDZV_BACKEND is c10d: no node
             or several would open the store, all would get a loopback address, a node can't
             resolve its own hostname, or nodes can't resolve the advertised name or resolve it to
             another machine
Warns if     no name server tells nodes the advertised name: one may later. Without
             PET_RDZV_BACKEND=c10d these names may not matter
Undecided    a copied file tree is checked; a lookup times out, or a node is missing
Not covered  the command line of torchrun, but where `preflight gate` starts it; whether the
             endpoint can be reached (rdzv.reach, net.mesh); clocks, which this rendezvous depends
             on (agree.clock)
Seen as      "The connection to the C10d store has failed", RendezvousConnectionError,
             RendezvousTimeoutError, "gai error: -2" for a name that nobody configured,
             "generated a random run_id", a world that is smaller than it should be
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.net.dns import (
    NO_ANSWER,
    NO_RESOLVER,
    Lookup,
    LookupBatch,
    in_words,
    is_loopback,
    look_up,
    parse_ip,
)
from preflight.domains.rendezvous.torchrun_names import (
    addresses_of,
    endpoint_of,
    matches_this_machine,
    reachable_addresses,
)
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import parties, plural
from preflight.identity.addresses import flaw
from preflight.identity.launchers import OPTIONS, is_host, named
from preflight.inference import consensus
from preflight.model import (
    Blame,
    CannotObserve,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)
from preflight.redact import redact
from preflight.sanitize import quoted

CHECK = Check(
    scope=Scope.PAIR,
    stage=Stage.MEETING,
    budget=8.0,
    level=Level.STANDARD,
    required=False,
    requires=frozenset({Requirement.PEERS}),
    disturbs="the name servers: 4 lookups per node",
    blame=Blame.JOB,
    explains=("rdzv.store", "world.*"),
)

HEARING = 2.0
"""Seconds for each of two exchanges: the nodes were started at the same time."""
RESERVE = 0.7
ENDPOINT = "PET_RDZV_ENDPOINT"
COMPARED = (ENDPOINT, "PET_RDZV_ID", "PET_NNODES", "PET_RDZV_BACKEND")
A_RANK = "(one process per rank)"
"""What identity/discover.py says of a launcher that has started the ranks already."""
SHOWN = 4

# what is known of how the job will be started
C10D, STATIC, INSIDE, UNKNOWN = "c10d", "static", "inside torchrun", ""
NO_HOST = "'The connection to the C10d store has failed' on all nodes after 60 s"

FINDINGS = {
    "store-host-missing": FindingType(
        headline="{seen}",
        who="job author",
        cause="an endpoint that is a service address or a second interface: torchrun compares it "
        "only with the node's hostname and the addresses of that",
        means=NO_HOST + ", although ping and nc get there",
        text="pass --rdzv-conf is_host=1 to torchrun on one node and is_host=0 on the others, or "
        "use the hostname of one node as endpoint, or --rdzv-backend static",
        was=("nobody-hosts",),
    ),
    "store-host-duplicate": FindingType(
        headline="{seen}",
        who="job author",
        cause="localhost as endpoint, or machines with the same hostname",
        means="each of these nodes opens its own store and waits there for the others, until "
        "RendezvousTimeoutError",
        text="pass --rdzv-conf is_host=1 to torchrun on one node and is_host=0 on the others, or "
        "use an endpoint that belongs to one node only, and give each machine its own hostname",
        was=("two-hosts",),
    ),
    "hostname-unknown": FindingType(
        headline="torchrun can't resolve the hostname of {at}",
        cause="a host or container name that is not in DNS or /etc/hosts",
        means="torchrun fails there: 'socket.gaierror: Name or service not known'",
        text="pass --rdzv-conf is_host=1 to torchrun on one node and is_host=0 on the others, or "
        "add the node's name to /etc/hosts or DNS",
        commands=(Command("getent hosts $(hostname)", "the node"),),
        was=("own-name-unknown",),
    ),
    "advertised-name-unusable": FindingType(
        headline="torchrun would advertise '{name}', which {others}",
        who="job author, then cluster administrator",
        cause="an FQDN that only its own machine can resolve, or that resolves to the loopback or "
        "to an old address elsewhere",
        means="the rendezvous succeeds, then the ranks fail with 'The client socket has timed out "
        "… ({name}, …)', a name that nobody configured",
        text="give {name} its address in DNS or /etc/hosts of all nodes, or pass --local-addr with "
        "each node's own IP address",
        commands=(Command("getent ahosts {name}", "each node"),),
        status=(Status.FAIL, Status.WARN),
        explains=("rdzv.store", "world.*", "agree.names:resolution-differs"),
        was=("handed-unusable",),
    ),
    "advertised-loopback": FindingType(
        headline="torchrun would advertise '{name}', which is each node itself",
        who="job author",
        cause="--local-addr of a command for one node",
        means="the rendezvous succeeds, then the ranks of the other nodes connect to themselves: "
        "'The client socket has timed out … ({name}, …)'",
        text="remove {option!s}, or give it each node's own address there",
        explains=("rdzv.store", "world.*", "agree.names:resolution-differs"),
    ),
    "rendezvous-differs": FindingType(
        headline="{seen}",
        who="job author",
        cause="a command that was changed on some nodes, or a script that computes the ID from the "
        "time or the hostname",
        means="the nodes wait for each other in different places, until RendezvousTimeoutError on "
        "one node and 'The connection to the C10d store has failed' on the other",
        text="start torchrun with the same --nnodes, --rdzv-id, --rdzv-backend and port on all "
        "nodes; an id is computed once for the job, e.g. --rdzv-id $SLURM_JOB_ID",
    ),
}


@dataclass(frozen=True, slots=True)
class Handed:
    """The name that all ranks would get, of the node of this number, and where it leads here."""

    number: int
    seen: Lookup


@dataclass(frozen=True, slots=True)
class Hosting:
    """use      C10D, STATIC, INSIDE or UNKNOWN
    endpoint  its host; port and source (a variable) of it
    hosts     whether torchrun would open the store here; None: a lookup had no answer
    why       what it goes by; stops: the error with which it would end in place of that
    addresses that this node has on its interfaces
    run_id, nnodes, backend   as torchrun takes them, empty where nothing is known
    typed     of the variables that stand for options those that were typed: how
    """

    use: str
    endpoint: str = ""
    port: str = ""
    source: str = ""
    hosts: bool | None = None
    why: str = ""
    stops: str = ""
    name: str = ""
    addresses: tuple[str, ...] = ()
    handed: Handed | None = None
    run_id: str = ""
    nnodes: str = ""
    backend: str = ""
    typed: Mapping[str, str] = field(default_factory=dict)


def observe(host: Host, ctx: Context) -> Hosting:
    environ = host.environ
    use = _backend_of(environ, ctx)
    run_id = redact("", environ.get("PET_RDZV_ID", "") or environ.get("TORCHELASTIC_RUN_ID", ""))
    known = Hosting(
        use=use,
        run_id=run_id if use in (INSIDE, UNKNOWN) else run_id or "none",
        nnodes="" if use in (INSIDE, UNKNOWN) else _range(environ.get("PET_NNODES", "1")),
        backend="" if use == INSIDE else _backend_said(environ),
        typed=_typed(environ),
    )
    if use in (INSIDE, STATIC):
        return known
    if not host.live:
        raise CannotObserve("names are looked up on the live machine only")
    until = time.monotonic() + max(0.1, ctx.seconds - RESERVE)
    inquiry, own = LookupBatch(until, ctx.mark), host.hostname()
    source, port = ENDPOINT if use else "MASTER_ADDR", ""
    endpoint, source = environ.get(source, ""), named(environ, source)
    if use:
        endpoint, port = endpoint_of(endpoint)
    endpoint = (endpoint or ctx.master_addr)[:253]
    inquiry.put("own name", own, addresses_of(host, own))
    inquiry.put("endpoint", endpoint, addresses_of(host, endpoint))
    full = environ.get("PET_LOCAL_ADDR", "")[:253]
    if not full:
        full = next(iter(look_up(own, lambda: (host.fqdn(),), HEARING).found), "")
    name = _first_by_name(ctx, full)
    if name is not None:
        inquiry.put("handed name", name[1], addresses_of(host, name[1]))
    mine, its = inquiry.take("own name"), inquiry.take("endpoint")
    hosts, why, stops = matches_this_machine(endpoint, own, mine, its)
    if (said := is_host(environ.get("PET_RDZV_CONF", ""))) is not None:
        hosts, why, stops = said, "is_host in PET_RDZV_CONF", ""
    return replace(
        known,
        endpoint=endpoint,
        port=port,
        source=source,
        hosts=hosts,
        why=why,
        stops=stops,
        name=own,
        addresses=reachable_addresses(host),
        handed=Handed(name[0], inquiry.take("handed name")) if name is not None else None,
    )


def _range(nnodes: str) -> str:
    """`4` is 4:4 (parse_min_max_nnodes in torch/distributed/run.py)."""
    text = nnodes[:40].strip()
    return text if ":" in text else f"{text}:{text}"


def _typed(environ: Mapping[str, str]) -> dict[str, str]:
    """The options that stand for the variables, of a torchrun that is to come."""
    typed = {name: option for name in COMPARED if (option := named(environ, name)) != name}
    return {"PET_RDZV_BACKEND": "--rdzv-backend"} | typed if OPTIONS in environ else typed


def _backend_said(environ: Mapping[str, str]) -> str:
    """Empty where it is not known: the command line may still say it."""
    default = "static" if OPTIONS in environ else ""
    return environ.get("PET_RDZV_BACKEND", "")[:40] or default


def _backend_of(environ: Mapping[str, str], ctx: Context) -> str:
    if environ.get("TORCHELASTIC_RUN_ID") and environ.get("RANK"):
        return INSIDE
    if backend := environ.get("PET_RDZV_BACKEND", ""):
        return C10D if backend == "c10d" else STATIC
    if any(environ.get(name) for name in ("PET_NNODES", "PET_RDZV_ENDPOINT", "PET_RDZV_ID")):
        return STATIC  # torchrun's default
    ranks = ctx.topology.facts.get("nproc")
    if ranks is not None and ranks.source.endswith(A_RANK):
        raise NotApplicable("the launcher starts a process per rank: no torchrun follows")
    return UNKNOWN


def _first_by_name(ctx: Context, full: str) -> tuple[int, str] | None:
    """The node that would be first, and its name: torchrun sorts its agents by name
    (_mark_rendezvous_complete in dynamic_rendezvous.py). Node 0 collects and tells."""
    ctx.peers.say("full name", full, to=[0])
    if ctx.rank == 0:
        ctx.mark("hear the full names")
        heard = ctx.peers.hear("full name", ctx.world_size, HEARING)
        names = [(name, n) for n, name in heard.items() if _usable(name)]
        ctx.peers.say("first", [*reversed(min(names))] if names else None)
    ctx.mark("hear the first name")
    match ctx.peers.hear("first", 1, 2 * HEARING).get(0):
        case [int(number), str(name)] if _usable(name):
            return number, name
    return None


def _usable(name: object) -> bool:
    return isinstance(name, str) and not flaw(name)


def judge(world: World[Hosting], expect: Expect) -> Iterator[Found]:
    seen = world.seen
    if len(seen) < 2:
        return
    for variable, values in _values_to_compare(seen):
        yield from _judge_equal(world, _as_typed(seen, variable), values)
    would = {n: h for n, h in seen.items() if h.use in (C10D, UNKNOWN)}
    planned = any(h.use == C10D for h in would.values())
    if planned and len(would) == len(world.topology.nodes):
        yield from _judge_hosts(world, would)
        yield from _judge_handed(world, would)


def _values_to_compare(seen: Mapping[str, Hosting]) -> Iterator[tuple[str, dict[str, str]]]:
    told = {n: h for n, h in seen.items() if h.use}
    inside = all(h.use == INSIDE for h in told.values())
    yield (
        "TORCHELASTIC_RUN_ID" if inside else "PET_RDZV_ID",
        {n: h.run_id for n, h in told.items() if inside or h.use != INSIDE},
    )
    planned = {n: h for n, h in told.items() if h.use != INSIDE}
    yield "PET_NNODES", {n: h.nnodes for n, h in planned.items()}
    # where it is not set the command line may say the same
    yield "PET_RDZV_BACKEND", {n: h.backend for n, h in planned.items() if h.backend}
    c10d = {n: h.port for n, h in planned.items() if h.use == C10D}
    yield ENDPOINT, c10d


def _as_typed(seen: Mapping[str, Hosting], variable: str) -> str:
    """The variable, or the option of torchrun's that was typed on each node in its place."""
    options = {h.typed.get(variable, "") for h in seen.values()}
    return variable if "" in options else min(options)


def _judge_equal(
    world: World[Hosting], variable: str, values: Mapping[str, str]
) -> Iterator[Found]:
    agreed = consensus(values)
    if not agreed.odd:
        return
    said = [
        f"{quoted(v, 60)} on {parties(list(ns), SHOWN)}"
        for v, ns in list(agreed.odd.items())[:SHOWN]
    ]
    if agreed.value is not None:
        said.append(f"{quoted(agreed.value, 60)} on {parties(list(agreed.holders), SHOWN)}")
    of = "the port of " if variable in (ENDPOINT, _as_typed(world.seen, ENDPOINT)) else ""
    odd = [n for nodes in agreed.odd.values() for n in nodes]
    yield Found(
        "rendezvous-differs",
        tuple(_subject(world, n, variable) for n in odd),
        saw=f"{of}{variable} is {', '.join(said)}",
        expected="one value on all nodes",
        confidence=Confidence.POSSIBLE if agreed.tie else Confidence.LIKELY,
        alternatives=tuple(f"{n} has the intended one" for n in odd[:SHOWN]) if agreed.tie else (),
        fields={"variable": variable},
    )


def _judge_hosts(world: World[Hosting], would: Mapping[str, Hosting]) -> Iterator[Found]:
    first = next(iter(would.values()))
    what = f"{first.source} {quoted(first.endpoint)}"
    hosts = {n: h for n, h in would.items() if h.hosts}
    stops = {n: h for n, h in would.items() if h.stops}
    if stops:
        told = [
            f"{n}: {quoted(h.name)}: {in_words(h.stops)}" for n, h in list(stops.items())[:SHOWN]
        ]
        yield Found(
            "hostname-unknown",
            tuple(world.subject(n) for n in stops),
            saw=" · ".join(told),
            expected="a hostname that resolves on its own node",
        )
    elif not hosts and all(h.hosts is False for h in would.values()):
        endpoints = {h.endpoint for h in would.values()}
        owner = next((n for n, h in would.items() if endpoints & set(h.addresses)), "")
        leads = (
            f" · it is an address of {owner}, but its hostname resolves elsewhere" if owner else ""
        )
        home = owner or next((n.name for n in world.topology.nodes if 0 in n.ranks), "")
        yield Found(
            "store-host-missing",
            (_subject(world, home or next(iter(would)), first.source),),
            saw=f"none of {plural(len(would), 'node')} would open the store at {what}{leads}",
            expected="one node that would",
        )
    elif len(hosts) > 1:
        told = [f"{n} by {h.why}" for n, h in list(hosts.items())[:SHOWN]]
        yield Found(
            "store-host-duplicate",
            tuple(world.subject(n) for n in hosts),
            saw=f"{plural(len(hosts), 'node')} would open the store at {what}: {', '.join(told)}",
            expected="one node that would",
        )


def _judge_handed(world: World[Hosting], would: Mapping[str, Hosting]) -> Iterator[Found]:
    seen = {n: h.handed for n, h in would.items() if h.handed is not None}
    numbers = {h.number for h in seen.values()}
    number = next(iter(numbers), -1)
    if len(numbers) != 1 or not 0 <= number < len(world.topology.nodes):
        return
    # by what it calls itself: in a merged report the numbers are those of the nodes that had met
    names = {h.seen.name for h in seen.values()}
    home = next((n for n, h in would.items() if h.name in names), world.topology.nodes[number].name)
    has = would[home].addresses if home in would else ()
    bad: dict[str, str] = {}
    for node, handed in seen.items():
        found, error = handed.seen.found, handed.seen.error
        if error and error != NO_ANSWER:
            bad[node] = error
        elif found and node != home and has and not set(found) & set(has):
            bad[node] = f"{found[0]}{', the loopback' if is_loopback(found[0]) else ''}"
    if not bad:
        return
    name = seen[next(iter(bad))].seen.name[:80]
    if is_loopback(name) or name == "localhost":
        option = "--local-addr" if any(h.typed for h in would.values()) else "PET_LOCAL_ADDR"
        yield Found(
            "advertised-loopback",
            (_subject(world, home, option),),
            saw=f"torchrun would advertise {quoted(name)} to all ranks, by {option} of {home}",
            expected=f"an address of {home} that the other nodes reach",
            fields={"name": name, "option": option},
        )
        return
    few = home not in bad and len(bad) * 2 < len(seen)
    nodes = [*bad] if few else [*dict.fromkeys((home, *(bad if len(seen) == 2 else ())))]
    either = not few and home not in bad and len(seen) == 2
    # the name servers may answer the job, which asks until its timeout
    later = all(told in NO_RESOLVER for told in bad.values())
    yield Found(
        "advertised-name-unusable",
        tuple(world.subject(n) for n in nodes),
        saw=f"torchrun would advertise {quoted(name)}, {home}'s name · "
        + ", ".join(f"{n}: {in_words(told)}" for n, told in list(bad.items())[:SHOWN]),
        expected=f"an address of {home}, on all nodes",
        confidence=Confidence.POSSIBLE if either or later else Confidence.LIKELY,
        alternatives=(
            *((f"{home} has a name that is nowhere", f"{nodes[-1]} lacks it") if either else ()),
            *(("the name servers will answer later",) if later else ()),
        ),
        fields={"name": name, "others": _taken_for(bad)},
        status=Status.WARN if later else Status.FAIL,
    )


def _taken_for(bad: Mapping[str, str]) -> str:
    """What other nodes make of the name: an error or an address for each."""
    wrong = {node: told for node, told in bad.items() if parse_ip(told.partition(",")[0])}
    if wrong != dict(bad):
        return "other nodes can't resolve"
    node, told = next(iter(wrong.items()))
    return f"{node} resolves to {told}" if len(wrong) == 1 else "other nodes resolve wrongly"


def _subject(world: World[Hosting], node: str, name: str) -> Subject:
    return Subject(Kind.NODE, node, name, world.topology.ranks_of(node))


def measured(world: World[Hosting]) -> Measured:
    if not world.seen:
        return Measured()
    uses = {h.use for h in world.seen.values()}
    hosts = sorted(n for n, h in world.seen.items() if h.hosts)
    ids = sorted({h.run_id for h in world.seen.values() if h.run_id})
    text = "inside torchrun" if uses == {INSIDE} else "torchrun's rendezvous is static"
    if uses & {C10D, UNKNOWN}:
        text = f"c10d's store would be on {parties(hosts, SHOWN) or 'no node'}"
        handed = next((h.handed.seen.name for h in world.seen.values() if h.handed), "")
        text += f" · {quoted(handed, 60)} handed out" if handed else ""
    return Measured(text, {"hosts": hosts, "ids": ids})
