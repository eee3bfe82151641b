"""What the checks that train together share while they observe: the way through the steps, and a
process group apart from the job's own port.

torch is imported inside the functions. They change the worker's environment and torch's settings
freely: the process ends with the observation.
"""

from __future__ import annotations

import ipaddress
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from preflight.check import Context
from preflight.host import Host
from preflight.model import NotApplicable

TEXT = 300
"""Characters kept of what torch says."""

GIVE_UP = 0.7
"""Part of the budget after which torch is told to give up. Often it does not: a connecting Gloo
waits five times as long, the client of a silent store for ever."""

BEYOND = 10
"""A timeout of so many budgets is never met."""

CLOSING = 2.0
"""Seconds for which a rank that is through waits for the others before it closes its sockets."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The step at which a rank gave up, and what torch said."""

    step: str
    kind: str
    text: str


class Steps:
    """The way of one rank through an observation: every step is marked before it is taken, so that
    the marks tell who waits for whom. `seconds` holds the steps that were completed."""

    def __init__(self, ctx: Context) -> None:
        self._mark = ctx.mark
        self._now = ""
        self._since = 0.0
        self.seconds: dict[str, float] = {}
        self.trouble: Trouble | None = None

    def at(self, step: str) -> None:
        """The step before is done, this one begins."""
        self.done()
        self._mark(step)
        self._now, self._since = step, time.perf_counter()

    def done(self) -> None:
        if self._now:
            self.seconds[self._now] = round(time.perf_counter() - self._since, 6)
        self._now = ""

    @contextmanager
    def until_trouble(self) -> Iterator[None]:
        """What torch raises ends the block and is kept with its step; what else is raised is our
        bug and goes on. torch's errors of store, network and backend are all RuntimeErrors."""
        try:
            yield
        except (RuntimeError, ValueError, OSError) as error:
            kind = type(error).__name__
            self.trouble = Trouble(self._now, kind, readable(str(error)) or kind)
            self._now = ""
        self.done()


def readable(text: str) -> str:
    """An error of torch in one line, cut. NCCL's own reason comes first. Socket addresses in
    c10d's texts are dropped, in torch 2.13 they are garbage; its `(host, port)` is right, and so
    are the addresses in Gloo's texts."""
    text = text[: 100 * TEXT].partition("Exception raised from ")[0]
    head, _, reason = text.partition("Last error:")
    if reason.strip():
        text = f"{reason.strip()} ({head.strip()})"
    first, _, trace = text.partition("Original Traceback")  # of a DataLoader's worker
    if trace.strip():
        text = f"{first} {trace.strip().splitlines()[-1]}"
    text = " ".join(re.sub(r"\[(enforce fail at )?/\S+:\d+\]", " ", text).split())
    if "socket has" in text:
        text = re.sub(r"(\[[^\]\s]*\]|\b[\w.-]+):\d{1,5}\b", "…", text)
    return text[:TEXT]


def without_dns(host: Host, *names: str) -> None:
    """Keep this worker off the name server when `names` and the host's own name need none. c10d
    looks up the name of every peer's address and waits 10 s for a name server that is silent, at
    every connection: net.name judges that, here it would pass for ranks that do not meet."""
    listed = {
        word
        for line in (host.read_or_none("/etc/hosts") or "").splitlines()
        for word in line.partition("#")[0].split()
    }
    if all(_numeric(name) or name in listed for name in (*names, host.hostname())):
        # glibc reads this at the first look-up; with no attempt at all the look-up fails at once
        os.environ["RES_OPTIONS"] = "attempts:0"


def _numeric(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def agree(ctx: Context, obstacle: str) -> None:
    """Every rank says what keeps it from this check, nothing if it can; NotApplicable on all of
    them if one has something to say: nobody must start what another can't join."""
    ctx.peers.say("obstacle", obstacle)
    told = ctx.peers.hear("obstacle", ctx.world_size, ctx.seconds / 4)
    if obstacle:
        raise NotApplicable(obstacle)
    for rank, why in sorted(told.items()):
        if why:
            raise NotApplicable(f"rank {rank}: {why}")


def join(host: Host, ctx: Context, steps: Steps, backend: str, device: Any = None) -> None:
    """Make the ranks of this check a process group that meets on a free port of rank 0. NCCL
    connects at once, to the GPU that is `device`, not in the first collective."""
    import torch.distributed as dist

    nccl = "nccl" in backend
    if nccl:
        # its watchdog would abort the ranks that wait, and leave the guilty one: only the deadline
        # of this check, which every rank meets with its marks, may end them
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    address = ctx.master_addr or "127.0.0.1"
    without_dns(host, address)
    seconds = ctx.seconds * GIVE_UP
    timeout = timedelta(seconds=seconds)
    steps.at("TCPStore")
    leads = ctx.rank == 0
    port = 0 if leads else ctx.peers.hear("port", 1, seconds).get(0)
    if not isinstance(port, int):
        raise TimeoutError("timed out waiting for the port of rank 0's store")
    store = dist.TCPStore(
        address,
        port,
        ctx.world_size,
        is_master=leads,
        timeout=timeout,
        wait_for_workers=False,  # else rank 0 can't say the port that its clients wait for
    )
    if leads:
        ctx.peers.say("port", store.port)
    steps.at("init_process_group")
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("default_pg", store),
        rank=ctx.rank,
        world_size=ctx.world_size,
        timeout=timedelta(seconds=ctx.seconds * BEYOND) if nccl else timeout,
        device_id=device if nccl else None,
    )


def leave(ctx: Context, steps: Steps) -> None:
    """Wait until all ranks are through: Gloo lets a rank go on whose peers are still connecting to
    it or reading from it, and they fail when it leaves. A rank that gave up doesn't wait."""
    ctx.peers.say("through")
    if steps.trouble is None:
        ctx.peers.hear("through", ctx.world_size, CLOSING)
