"""An agent that another place has started (`preflight agent`, see launch.py): its orders come over
stdin, and what it has to say leaves over stdout as parcels.

stdin stays open as long as somebody waits for this agent: when it ends, whatever the reason (that
place was interrupted or killed, ssh lost its connection), the run ends with what it has seen.
"""

from __future__ import annotations

import io
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from preflight import __version__, console
from preflight.engine import agent
from preflight.engine.agent import Ending, Wish
from preflight.engine.plan import Progress
from preflight.meeting import connection
from preflight.model import PreflightError
from preflight.output.exit_codes import OUTPUT
from preflight.process.pool import Workers
from preflight.process.signals import Interrupt
from preflight.remote import protocol
from preflight.remote.protocol import Orders
from preflight.serde import encode

STDIN, STDOUT = 0, 1
ORDERS_SECONDS = 20.0
"""For the orders to come: they were sent before this process was started."""
DELIVERY_SECONDS = 20.0
"""For the parcel to be taken, of which a reader that is there takes no more than one."""
CHUNK = 4096
"""Bytes of one write."""
PROGRESS_PAUSE = 1.0
PREFIX = "PREFLIGHT_"
"""Of variables that stand for flags. Those of this machine are not of the place that ordered."""


def serve(interrupt: Interrupt) -> int:
    """Run as ordered; the exit code: 0 where the parcel is on its way, whatever is in it."""
    given = _read_orders(time.monotonic() + ORDERS_SECONDS)
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    if given.token:
        os.environ["PREFLIGHT_TOKEN"] = given.token
    with agent.session(interrupt) as workers:
        _end_with_stdin(workers)
        wish = Wish(given.flags, root=given.root, config=given.config)
        ended = agent.ending_of(wish, workers, interrupt, _Progress(given.flags.node_rank))
        return _deliver(protocol.pack(_parcel_content(given, ended)))


def _read_orders(until: float) -> Orders:
    """The orders from stdin; PreflightError when none come."""
    data = b""
    while b"\n" not in data and len(data) <= protocol.LIMIT:
        left = until - time.monotonic()
        if left <= 0 or not select.select([STDIN], [], [], left)[0]:
            raise PreflightError("no orders came over stdin")
        piece = os.read(STDIN, 1 << 16)
        if not piece:
            raise PreflightError(
                "stdin ended before any orders came: what starts an agent has to pass it on, "
                "as `ssh` and `kubectl exec -i` do"
            )
        data += piece
    line, _, _ = data.partition(b"\n")
    given = protocol.parse_orders(line)
    if given.version != __version__:
        console.say(f"preflight: {__version__} here, {given.version[:40]} where this was started")
    return given


def _end_with_stdin(workers: Workers) -> None:
    """See the end of stdin, and take it for SIGTERM, or for the signal that was named there."""
    number = signal.SIGTERM
    line = io.FileIO(STDIN, closefd=False)

    def heard(events: int) -> None:
        nonlocal number
        try:
            more = line.read(1 << 16)
        except OSError:
            more = b""
        if more:  # the last word: by which signal that place is being ended
            number = signal.SIGINT if b"SIGINT" in more else signal.SIGTERM
        else:
            workers.unwatch(line)
            signal.raise_signal(number)

    try:
        workers.watch(line, connection.READ, heard)
    except PermissionError:
        pass  # a regular file: orders given by hand


class _Progress:
    """Tells that place how far the run is: the first agent does, which most likely leads it."""

    def __init__(self, node_rank: int | None) -> None:
        rank = os.environ.get("SLURM_NODEID", "0") if node_rank is None else node_rank
        self._silent = str(rank) != "0"
        self._due = 0.0

    def __call__(self, progress: Callable[[], Progress]) -> None:
        now = time.monotonic()
        if self._silent or now < self._due or not select.select([], [STDOUT], [], 0)[1]:
            return  # nobody is made to wait for this
        self._due = now + PROGRESS_PAUSE
        now_at = progress()
        short = replace(now_at, waiting_for=now_at.waiting_for[:99], rows=())
        _deliver([protocol.progress(encode(short))])


def _parcel_content(given: Orders, ended: Ending) -> dict[str, object]:
    """What goes into the parcel. An agent whose part the meeting's host has says only that."""
    content: dict[str, object] = {
        "place": given.place or os.environ.get("SLURMD_NODENAME", ""),
        "host": os.uname().nodename,
        "pid": os.getpid(),  # of two that are alike otherwise each has a parcel of its own
        "exit": ended.exit_code,
        "whole": ended.report is not None and not ended.part,
    }
    if ended.report is not None:
        from preflight.render import json as as_json

        content["report"] = as_json.document(ended.report)
    return content


def _deliver(lines: Iterable[str]) -> int:
    """Write them to stdout, in bounded time; the exit code."""
    until = time.monotonic() + DELIVERY_SECONDS
    os.set_blocking(STDOUT, False)
    data = "".join(lines).encode()
    while data:
        left = until - time.monotonic()
        if left <= 0 or not select.select([], [STDOUT], [], left)[1]:
            console.say(f"preflight: nobody took what was to be told within {DELIVERY_SECONDS:g} s")
            return OUTPUT
        try:
            data = data[os.write(STDOUT, data[:CHUNK]) :]
        except BlockingIOError:
            time.sleep(0.01)  # a socket that takes less than this at once
        except OSError as error:
            console.say(f"preflight: stdout: {error.strerror}")
            return OUTPUT
    return 0
