"""Do all ranks join torch's TCPStore at MASTER_ADDR:MASTER_PORT?

Level        standard
Looks at     the env:// rendezvous as a training script does it: TCPStore on MASTER_ADDR and
             MASTER_PORT, a set and get through it, init_process_group("gloo"); the seconds of each
             step on each rank
Fails if     the port is taken or another program answers there; the store can't be reached by its
             name; GLOO_SOCKET_IFNAME matches no interface; Gloo's addresses can't be reached; a
             rank dies, fails or does not arrive
Warns if     a rank arrives seconds after the others; the store takes seconds to accept a rank
Undecided    torch is not installed
Not covered  RANK and WORLD_SIZE of the job itself (env.identity); reverse lookups of the ranks'
             addresses (net.name); which connection between two nodes fails (net.mesh); torchrun's
             own rendezvous (rdzv.torchrun)
Seen as      "The client socket has timed out after", "Timed out after 1800 seconds waiting for
             clients. 3/4 clients joined", "wait timeout after 1800000ms, keys:", "EADDRINUSE",
             "Address already in use", "Ping failed, invalid value returned from server", "Unable
             to find address for:", "Gloo connectFullMesh failed", "Broken pipe"
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from preflight import humanize
from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.collectives import gloo_unreachable, stalls
from preflight.domains.collectives.process_group import CLOSING, leave, without_dns
from preflight.domains.collectives.stalls import GLOO_UNREACHABLE, Signature
from preflight.domains.net.port_owners import LISTEN, sockets_at
from preflight.domains.torch.steps import Steps, Trouble
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
    key_of,
)

CHECK = Check(
    scope=Scope.WORLD,
    stage=Stage.TRAINING,
    budget=15.0,
    needs=("env.identity", "env.vars", "net.name", "net.port", "net.mesh"),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH}),
    torch=True,
    disturbs="MASTER_PORT",
    explains=("world.*",),
)

# part of the budget that torch's store may take: a refused connection is retried for up to 2.7
# times the timeout (seen in torch 2.13)
PATIENCE = 0.4

# meeting takes milliseconds; a reverse lookup of the peers' addresses that nobody answers adds
# 10 s to every connection of c10d
SECONDS_LATE = 3.0

# for which a client waits for rank 0 to listen before it dials anyway
SECONDS_AHEAD = 1.0

PORT = "a free MASTER_PORT"
SIGNATURES = (
    Signature(r"EADDRINUSE|[Aa]ddress already in use", "port-taken", PORT),
    Signature(r"Ping failed, invalid value", "not-a-store", PORT),
    Signature(
        r"Unable to find address for",
        "interface-unknown",
        "the name of an interface that is here, without NCCL's ^ and =",
    ),
    Signature(
        r"errno: (113|101)\b|client socket has (timed out|failed to connect)",
        "store-unreachable",
        "an answer from the store that rank 0 has opened",
        symptom=True,
    ),
    GLOO_UNREACHABLE,
)

FINDINGS = {
    **stalls.FINDINGS,
    **gloo_unreachable.FINDINGS,
    "port-taken": FindingType(
        headline="MASTER_PORT is taken: {seen}",
        who="job author",
        cause="another job on this node with the default port, or a rank left over from an "
        "earlier job",
        means="'The server socket has failed to listen on any local network address … EADDRINUSE' "
        "on rank 0, while the others connect to the wrong server and wait",
        text="choose a different port for each job: MASTER_PORT=$((10000 + SLURM_JOB_ID % "
        "20000)), or torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 on one node",
        commands=(Command("ss -ltnp", "the node"),),
        blame=Blame.JOB,
    ),
    "not-a-store": FindingType(
        headline="another program answers on MASTER_PORT: {seen}",
        who="job author",
        cause="another kind of service, or a proxy, on MASTER_PORT",
        means="'Ping failed, invalid value returned from server', and the ranks never meet",
        text="choose a free MASTER_PORT",
        commands=(Command("ss -ltnp", "the node"),),
        blame=Blame.JOB,
    ),
    "interface-unknown": FindingType(
        headline="GLOO_SOCKET_IFNAME matches no interface: {seen}",
        who="job author",
        cause="an interface name from another machine, or NCCL's syntax (^lo, =eth0)",
        means="'Unable to find address for:' on that rank, the others wait silently",
        now="unset GLOO_SOCKET_IFNAME",
        text="write exact names in GLOO_SOCKET_IFNAME, separated by commas: Gloo accepts nothing "
        "else",
        commands=(Command("ip -brief address", "the node"),),
        blame=Blame.JOB,
    ),
    "store-unreachable": FindingType(
        headline="ranks can't reach the TCPStore of rank 0: {seen}",
        who="job author, then network administrator",
        cause="a MASTER_ADDR that is not an address of rank 0's node, or a name that resolves to "
        "another one",
        means="'The client socket has timed out after …ms while trying to connect to (host, port)'",
        text="set MASTER_ADDR to a name or address of rank 0's node that all ranks can reach; "
        "torch prints the same message for an unknown name, a refused connection and a firewall: "
        "net.name tells which it is",
        commands=(Command("getent ahosts $MASTER_ADDR", "the node"),),
    ),
    "rank-late": FindingType(
        headline="{seen}",
        who="job author",
        cause="a slow file system with that rank's Python environment, or a busy node",
        means="all other ranks wait for it at every start, and at every restart",
        text="put the environment on a local disk; reduce what that rank does before "
        "init_process_group",
        status=Status.WARN,
        explains=(),
    ),
    "store-slow": FindingType(
        headline="the TCPStore is slow: {seen}",
        cause="no answer to reverse lookups (PTR) of the ranks' addresses; c10d makes one for each",
        means="'The hostname of the client socket cannot be retrieved. err=-3' and 10 s more for "
        "every connection to the store",
        text="add the ranks' addresses to DNS or /etc/hosts",
        commands=(Command("time getent hosts $(hostname -I)", "rank 0's node"),),
        status=Status.WARN,
        blame=Blame.NETWORK,
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class RendezvousTimes:
    """Seconds that a rank spent in each step; None: it did not get through that step.

    waited      in all steps together: the rank that came last waited least, on any clock
    round_trip  a set and a get of its own key
    """

    store: float | None
    round_trip: float | None
    init: float | None
    waited: float
    trouble: Trouble | None = None


def observe(host: Host, ctx: Context) -> RendezvousTimes:
    if not ctx.master_addr or not ctx.master_port:
        raise NotApplicable("nothing says where the ranks meet (MASTER_ADDR, MASTER_PORT)")
    if ctx.master_ip:
        os.environ["MASTER_ADDR"] = ctx.master_ip
    without_dns(host, ctx.master_ip or ctx.master_addr)
    steps = Steps(ctx)
    began = time.perf_counter()
    store: list[Any] = []
    with steps.until_trouble():
        _rendezvous(host, ctx, steps, store)
    waited = round(time.perf_counter() - began, 6)
    leave(ctx, steps)
    _close_in_order(ctx, store)
    seconds = steps.seconds
    return RendezvousTimes(
        store=seconds.get("TCPStore"),
        round_trip=seconds.get("set and get"),
        init=seconds.get("init_process_group"),
        waited=waited,
        trouble=steps.trouble,
    )


def _rendezvous(host: Host, ctx: Context, steps: Steps, store: list[Any]) -> None:
    """The store is put into a list, the only place that holds it, so that _part can drop it."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    timeout = timedelta(seconds=ctx.seconds * PATIENCE)
    steps.at("TCPStore")
    if ctx.rank == 0:
        ctx.peers.say("run", os.urandom(8).hex())
    with _announced(host, ctx):
        met = next(iter(rendezvous("env://", ctx.rank, ctx.world_size, timeout=timeout)))
    store.append(met[0])
    del met
    steps.at("set and get")
    key, value = f"preflight/{ctx.rank}", f"rank {ctx.rank}"
    store[0].set(key, value)
    back = store[0].get(key)
    if back != value.encode():
        raise ValueError(f"the store gave back {back!r:.60} for {value!r}")
    steps.at("init_process_group")
    # the store may be the launcher's: the job's own group, or another run, would read our keys
    run = str(ctx.peers.hear("run", 1, SECONDS_AHEAD).get(0, ""))
    ours = dist.PrefixStore(f"preflight/{run[:16]}", store[0])
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore("default_pg", ours),
        rank=ctx.rank,
        world_size=ctx.world_size,
        timeout=timeout,
    )


@contextmanager
def _announced(host: Host, ctx: Context) -> Iterator[None]:
    """Hold the clients back until rank 0 listens, if that is soon: one that is refused sleeps for
    half a second. Rank 0 can't say so itself, it waits for its clients."""
    if ctx.rank != 0:
        ctx.peers.hear("open", 1, SECONDS_AHEAD)
        yield
        return
    until = time.monotonic() + SECONDS_AHEAD

    def watch() -> None:
        while time.monotonic() < until:
            sockets = sockets_at(host, ctx.master_port)
            if sockets is None or any(s.state == LISTEN for s in sockets):
                break
            time.sleep(0.002)
        ctx.peers.say("open")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        watcher.join()  # it has the line to the parent, which must not be used by two


def _close_in_order(ctx: Context, store: list[Any]) -> None:
    """Leave the port as it was. Whoever closes a connection first keeps it in TIME_WAIT: all
    clients close before the server does, so that none is left on MASTER_PORT."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    if ctx.rank != 0:
        store.clear()
        gc.collect()
        ctx.peers.say("closed", to=[0])
    else:
        ctx.peers.hear("closed", ctx.world_size - 1, CLOSING)
        store.clear()  # its own client part closes before its server part
        gc.collect()


def judge(world: World[RendezvousTimes], expect: Expect) -> Iterator[Found]:
    yield from stalls.diagnose(world, SIGNATURES)
    if len(world.seen) < max(2, len(world.observations)) or any(m.trouble for m in world.distinct):
        return
    longest = max(m.waited for m in world.distinct)
    if not any(longest - m.waited >= SECONDS_LATE or _slow(m) for m in world.distinct):
        return
    met = [*world.each()]
    late = [(here, longest - m.waited) for here, m in met if longest - m.waited >= SECONDS_LATE]
    # in a crowd of late ones nobody is late: then one was early, and alone
    if late and len(late) * 2 <= len(met):
        yield Found(
            "rank-late",
            tuple(here for here, _ in late),
            saw=_how_late(world, late),
            expected=f"all ranks within {duration(SECONDS_LATE)}",
            confidence=Confidence.LIKELY,
        )
        return
    slow = [(h, m.store) for h, m in met if _slow(m) and 0 not in h.ranks]
    if slow and not late:
        yield Found(
            "store-slow",
            tuple(here for here, _ in slow),
            saw=" · ".join(
                f"{_rank_name(world, h)}: {duration(s or 0.0)} in TCPStore" for h, s in slow[:4]
            ),
            expected="milliseconds: rank 0 was there",
            confidence=Confidence.LIKELY,
        )


def _slow(meeting: RendezvousTimes) -> bool:
    return (meeting.store or 0.0) >= SECONDS_LATE


def _how_late(world: World[RendezvousTimes], late: list[tuple[Subject, float]]) -> str:
    """Who came how late; the ranks of one node come together."""
    keys = [_key(here) for here, _ in late]
    if len(keys) > 1 and humanize.whole_node(world, keys):
        longest = max(seconds for _, seconds in late)
        return f"{humanize.ranks_of(world, keys)} came up to {duration(longest)} after the first"
    return " · ".join(
        f"{_rank_name(world, h)} came {duration(s)} after the first" for h, s in late[:4]
    )


def _key(subject: Subject) -> str:
    return key_of(subject.node, subject.ranks[0])


def _rank_name(world: World[RendezvousTimes], subject: Subject) -> str:
    return humanize.ranks_of(world, [_key(subject)])


def measured(world: World[RendezvousTimes]) -> Measured:
    told = [m for m in world.distinct if m.trouble is None]
    if not told:
        return Measured()
    store = max(m.store or 0.0 for m in told)
    trip = max(m.round_trip or 0.0 for m in told)
    init = max(m.init or 0.0 for m in told)
    first = min(told, key=lambda m: m.waited)
    last = next(here for here, m in world.each() if m is first)
    met = len(world.told(lambda m: True if m.trouble is None else None))
    text = f"{met}/{len(world.observations)} ranks · store {duration(store)} · "
    text += f"init {duration(init)}" + (
        f" · {_rank_name(world, last)} arrived last" if met > 1 else ""
    )
    values = {"store_s": store, "round_trip_s": trip, "init_s": init, "last_rank": last.name}
    return Measured(text, values)
