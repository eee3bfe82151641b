"""What the checks that train together share while they observe: the way through the steps, and a
process group apart from the job's own port.

torch is imported inside the functions. They change the worker's environment and torch's settings
freely: the process ends with the observation.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from preflight.check import Context
from preflight.domains.net.dns import (
    addresses,
    c10d_order,
    is_local,
    is_loopback,
    look_up,
    source_of,
)
from preflight.domains.torch.steps import TEXT, Steps
from preflight.host import Host
from preflight.model import NotApplicable

GIVE_UP = 0.7
"""Part of the budget after which torch is told to give up. Often it does not: a connecting Gloo
waits five times as long, the client of a silent store for ever."""

BEYOND = 10
"""A timeout of so many budgets is never met."""

CLOSING = 2.0
"""Seconds for which a rank that is through waits for the others before it closes its sockets."""

LOOPBACK = "127.0.0.1"

OBSTACLE = "obstacle"


def without_dns(host: Host, *names: str) -> None:
    """Keep this worker off the name server when `names` and the host's name need none. c10d
    looks up the name of every peer's address and waits 10 s for a name server that is silent, at
    every connection: net.name judges that, here it would pass for ranks that do not meet."""
    listed = {
        word
        for line in (host.read_or_none("/etc/hosts") or "").splitlines()
        for word in line.partition("#")[0].split()
    }
    if all(_numeric(name) or name in listed for name in (*names, host.hostname())):
        # glibc reads this at the first lookup; with no attempt at all the lookup fails at once
        os.environ["RES_OPTIONS"] = "attempts:0"


def _numeric(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def decided_by_rank_0(
    ctx: Context, topic: str, value: Any, decide: Callable[[Mapping[int, Any]], Any]
) -> Any:
    """What rank 0 makes of what all ranks say: the same on all of them, None where rank 0 has said
    nothing. Everybody tells rank 0 and rank 0 tells everybody: 2 W lines through the meeting, not
    W x W."""
    ctx.peers.say(topic, value, to=[0])
    if ctx.rank != 0:
        # longer than rank 0 waits for its last one
        return ctx.peers.hear(f"{topic} of all", 1, ctx.seconds / 3).get(0)
    made = decide(ctx.peers.hear(topic, ctx.world_size, ctx.seconds / 4))
    ctx.peers.say(f"{topic} of all", made)
    return made


def on_all_ranks(ctx: Context, topic: str, mine: bool) -> bool:
    """Whether it is so on every rank of the world: all must go the same way."""

    def all_of(told: Mapping[int, Any]) -> bool:
        return len(told) == ctx.world_size and all(told.values())

    return decided_by_rank_0(ctx, topic, mine, all_of) is True


def agree(ctx: Context, obstacle: str) -> None:
    """Every rank says what keeps it from this check, nothing if it can; NotApplicable on all of
    them if one has something to say: nobody must start what another can't join."""
    if obstacle:
        decline(ctx, obstacle)
        raise NotApplicable(obstacle)

    def first(told: Mapping[int, Any]) -> str:
        return next((f"rank {r}: {why}"[:TEXT] for r, why in sorted(told.items()) if why), "")

    if why := decided_by_rank_0(ctx, OBSTACLE, "", first):
        raise NotApplicable(str(why)[:TEXT])


def decline(ctx: Context, obstacle: str) -> None:
    """Say in agree()'s place that this rank can't take part, and wait for nobody."""
    if ctx.rank == 0:
        ctx.peers.say(f"{OBSTACLE} of all", f"rank 0: {obstacle}"[:TEXT])
    else:
        ctx.peers.say(OBSTACLE, obstacle, to=[0])


def join(host: Host, ctx: Context, steps: Steps, backend: str, device: Any = None) -> None:
    """Make the ranks of this check a process group that meets on a free port of rank 0, wherever
    the other nodes are. NCCL connects at once, to the GPU that is `device`, not in the first
    collective."""
    import torch.distributed as dist

    nccl = "nccl" in backend
    if nccl:
        # its watchdog would abort the ranks that wait, and leave the guilty one: only the deadline
        # of this check, which every rank meets with its marks, may end them
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    without_dns(host, ctx.master_ip or ctx.master_addr or LOOPBACK)
    seconds = ctx.seconds * GIVE_UP
    timeout = timedelta(seconds=seconds)
    steps.at("TCPStore")
    leads = ctx.rank == 0
    address, port = (_own_address(host, ctx), 0) if leads else _store_address(ctx, seconds)
    store = dist.TCPStore(
        (ctx.master_ip or address) if address == ctx.master_addr else address,
        port,
        ctx.world_size,
        is_master=leads,
        timeout=timeout,
        wait_for_workers=False,  # else rank 0 can't say the port that its clients wait for
    )
    if leads:
        ctx.peers.say("port", [address, store.port])
    steps.at("init_process_group")
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("default_pg", store),
        rank=ctx.rank,
        world_size=ctx.world_size,
        timeout=timedelta(seconds=ctx.seconds * BEYOND) if nccl else timeout,
        **({"device_id": device} if nccl else {}),
    )


def _own_address(host: Host, ctx: Context) -> str:
    """Where rank 0 is for the others: MASTER_ADDR as it is written, which each of them looks up for
    itself. Where that leads to another machine (a launcher's store) or to none (a service's address
    that passes MASTER_PORT on, and no other), the address from which rank 0 would talk to it."""
    name = ctx.master_addr or LOOPBACK
    ips = c10d_order(look_up(name, lambda: addresses(host, name), ctx.seconds / 4).found)
    if not ips or any(is_local(host, ip) for ip in ips):
        return name
    return next(filter(None, (source_of(host, ip) for ip in ips)), name)


def _store_address(ctx: Context, seconds: float) -> tuple[str, int]:
    """Where rank 0 says that its store is. An operator of Kubernetes calls rank 0's pod localhost
    there, and by its service's name elsewhere: then it is where MASTER_ADDR leads here."""
    match ctx.peers.hear("port", 1, seconds).get(0):
        case [str(address), int(port)] if 0 < port < 1 << 16:
            itself = address == "localhost" or is_loopback(address)
            elsewhere = itself and 0 not in ctx.topology.ranks_of(ctx.node)
            return (ctx.master_addr if elsewhere else address[:255]), port
    raise TimeoutError("timed out waiting for the port of rank 0's store")


def leave(ctx: Context, steps: Steps) -> None:
    """Wait until all ranks are through: Gloo lets a rank go on whose peers are still connecting to
    it or reading from it, and they fail when it leaves. A rank that gave up doesn't wait. Each
    tells rank 0, and rank 0 tells all once it has heard of all."""
    ctx.peers.say("through", to=[0])
    if steps.trouble is not None:
        return
    if ctx.rank != 0:
        ctx.peers.hear("all through", 1, CLOSING)
    elif len(ctx.peers.hear("through", ctx.world_size, CLOSING)) >= ctx.world_size:
        ctx.peers.say("all through")
