"""Ranks in processes of their own, as the runner has them: for tests of checks that need torch.

The process that has torch loaded is started once a session, since the import costs a second.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import time
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from support import topology, world

from preflight import _observer
from preflight.check import Scope, answer_type, imported
from preflight.document import decode, encode
from preflight.isolate import Call, Workers
from preflight.model import Observation, Seen, World, key_of
from preflight.runner import observation_of
from preflight.start import TORCH_ENV, TORCH_MODULES

NODE = "n1"

_groups = itertools.count()


@cache
def workers(preload: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Workers:
    """The fork server `torch`, ready; one for each environment that a test wants it to have."""
    made = Workers()
    variables = {**TORCH_ENV, "PYTHONPATH": str(Path(__file__).parent), **dict(env)}
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
    return _observer.perform(args, channel, preloaded)


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
    **context: Any,
) -> World[Any]:
    """What `n` ranks of a check saw, as its judge gets it: one observation a rank, or one in all
    for a check of scope NODE.

    env_of      variables of single ranks
    server_env  variables that are there when torch is imported
    absent      ranks whose process never begins with the check
    flip        ranks whose sums are wrong
    send        rank -> the mark at which it gets a signal, and which
    """
    module = imported(check_id)
    alone = module.CHECK.scope is Scope.NODE
    seconds = seconds or module.CHECK.budget
    top = topology(n, master_port=context.get("master_port") or free_port())
    pool = workers(module.CHECK.preload, tuple((server_env or {}).items()))
    group = f"{check_id} {next(_groups)}"
    calls: dict[int, Call] = {}
    for rank in range(1 if alone else n):
        given = {
            "node": NODE,
            "seconds": seconds,
            "rank": rank,
            "local_rank": rank,
            "world_size": 1 if alone else n,
            "local_world_size": n,
            "master_addr": top.master_addr,
            "master_port": top.master_port,
            **context,
        }
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(n),
            "LOCAL_WORLD_SIZE": str(n),
            "MASTER_ADDR": str(given["master_addr"]),
            "MASTER_PORT": str(given["master_port"]),
        }
        target = "ranks:flipped" if rank in flip else _observer.TARGET
        calls[rank] = pool.call(
            "torch",
            "ranks:nothing" if rank in absent else target,
            _observer.request(check_id, "/", encode(top), **given),
            seconds=seconds,
            label=key_of(NODE, None if alone else rank),
            group=group,
            rank=rank,
            env={**variables, **(env or {}), **(env_of or {}).get(rank, {})},
        )
    _run(pool, calls, dict(send or {}))
    seen = {c.label: _decoded(module, observation_of(c)) for c in calls.values()}
    return world(check_id, seen, top)


def _run(pool: Workers, calls: Mapping[int, Call], send: dict[int, tuple[str, int]]) -> None:
    while any(c.result is None for c in calls.values()):
        list(pool.run(time.monotonic() + (0.001 if send else 1.0)))
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
