"""Ranks in processes of their own, as the runner has them: for tests of checks that need torch.

The process that has torch loaded is started once a session, since the import costs a second.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from preflight.check import Scope
from preflight.engine import tasks
from preflight.engine.dispatch import observation_of
from preflight.model import Node, Observation, Seen, World, key_of
from preflight.process.pool import Call, Target, Workers
from preflight.process.servers import TORCH_ENV, TORCH_MODULES
from preflight.registry import answer_type, imported
from preflight.serde import decode, encode
from support.cases import topology, world

NODE = "n1"

_groups = itertools.count()


@cache
def workers(
    preload: tuple[str, ...], env: tuple[tuple[str, str], ...], node: str = NODE
) -> Workers:
    """The fork server `torch`, ready; one for each node, and for each environment that a test wants
    it to have."""
    made = Workers()
    variables = {**TORCH_ENV, "PYTHONPATH": str(Path(__file__).parents[1]), **dict(env)}
    made.open("torch", preload=(*TORCH_MODULES, *preload), env=variables, seconds=60)
    atexit.register(made.close)
    while made.preloaded("torch") is None:
        list(made.run(time.monotonic() + 60))
    return made


def nothing(args: Any, channel: Any, preloaded: Any) -> None:
    """What a rank does that never comes."""
    time.sleep(600)


def flipped(args: Any, channel: Any, preloaded: Any) -> Any:
    """A rank whose memory changes one number of every large sum."""
    import torch.distributed as dist

    honest = dist.all_reduce

    def all_reduce(tensor: Any, *more: Any, **named: Any) -> Any:
        done = honest(tensor, *more, **named)
        if tensor.numel() > 1000:
            tensor[tensor.numel() // 2] += 1
        return done

    dist.all_reduce = all_reduce
    return tasks.perform(args, channel, preloaded)


def slowed(args: Any, channel: Any, preloaded: Any) -> Any:
    """Rank 1 of these is slow: what it adds up with the others goes at 4 MB/s."""
    import torch.distributed as dist

    honest = dist.all_reduce

    def all_reduce(tensor: Any, *more: Any, **named: Any) -> Any:
        if os.environ["RANK"] == "1":
            time.sleep(tensor.numel() * tensor.element_size() / 4e6)
        return honest(tensor, *more, **named)

    dist.all_reduce = all_reduce
    return tasks.perform(args, channel, preloaded)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(
    check_id: str,
    n: int,
    *,
    seconds: float | None = None,
    env: Mapping[str, str] | None = None,
    env_of: Mapping[int, Mapping[str, str]] | None = None,
    server_env: Mapping[str, str] | None = None,
    absent: Collection[int] = (),
    flip: Collection[int] = (),
    send: Mapping[int, tuple[str, int]] | None = None,
    nodes: Sequence[str] = (),
    target: Target = tasks.perform,
    **context: Any,
) -> World[Any]:
    """What `n` ranks of a check saw, as its judge gets it: one observation a rank, or one in all
    for a check of scope NODE.

    env_of      variables of single ranks
    server_env  variables that are there when torch is imported
    absent      ranks whose process never begins with the check
    flip        ranks whose sums are wrong
    send        rank -> the mark at which it gets a signal, and which
    nodes       rank -> its node, each with workers of its own; what they say is relayed
    target      what the processes run: a stand-in may prepare the way for the observer
    """
    module = imported(check_id)
    alone = module.CHECK.scope is Scope.NODE
    seconds = seconds or module.CHECK.budget
    top = topology(n, master_port=context.get("master_port") or free_port())
    home = dict(enumerate(nodes or [NODE] * n))
    met = {
        name: Node(name, tuple(r for r in range(n) if home[r] == name))
        for name in dict.fromkeys(home.values())
    }
    pools = {
        name: workers(module.CHECK.preload, tuple((server_env or {}).items()), name) for name in met
    }
    group = f"{check_id} {next(_groups)}"
    calls: dict[int, Call] = {}
    for rank in range(1 if alone else n):
        node = met[home[rank]]
        here = replace(top, nodes=(node,))
        given = {
            "node": node.name,
            "seconds": seconds,
            "rank": rank,
            "local_rank": node.ranks.index(rank),
            "world_size": 1 if alone else n,
            "local_world_size": len(node.ranks),
            "master_addr": top.master_addr,
            "master_port": top.master_port,
            **context,
        }
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(given["local_rank"]),
            "WORLD_SIZE": str(n),
            "LOCAL_WORLD_SIZE": str(len(node.ranks)),
            "MASTER_ADDR": str(given["master_addr"]),
            "MASTER_PORT": str(given["master_port"]),
        }
        runs = flipped if rank in flip else target
        calls[rank] = pools[node.name].call(
            "torch",
            nothing if rank in absent else runs,
            tasks.request(check_id, "/", encode(here), **given),
            seconds=seconds,
            label=key_of(node.name, None if alone else rank),
            group=group,
            rank=rank,
            env={**variables, **(env or {}), **(env_of or {}).get(rank, {})},
        )
    _run(pools, calls, dict(send or {}))
    seen = {c.label: _decoded(module, observation_of(c)) for c in calls.values()}
    return world(check_id, seen, replace(top, nodes=tuple(met.values())))


def _run(
    pools: Mapping[str, Workers], calls: Mapping[int, Call], send: dict[int, tuple[str, int]]
) -> None:
    seconds = 0.001 if send or len(pools) > 1 else 1.0
    while any(c.result is None for c in calls.values()):
        for pool in pools.values():
            pool.relaying = len(pools) > 1
            list(pool.run(time.monotonic() + seconds))
            for other in pools.values():
                for group, told in pool.heard if other is not pool else ():
                    other.tell(group, told)
            pool.heard.clear()
        for rank, (mark, number) in list(send.items()):
            if any(m.name == mark for m in calls[rank].marks):
                os.kill(calls[rank].pid, number)
                del send[rank]


def _decoded(module: Any, observation: Observation) -> Observation:
    if not isinstance(observation, Seen):
        return observation
    value = decode(answer_type(module), observation.value)
    assert encode(value) == observation.value, "the observation does not survive JSON"
    return Seen(value, observation.seconds, observation.marks)
