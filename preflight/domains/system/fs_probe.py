"""Runs probes of paths that may never answer, each in a child process of its own.

Whoever touches a dead NFS or Lustre mount sleeps in the kernel, and not even SIGKILL ends that
before the server is back. So the process that has to report never touches such a place itself: it
forks a child for each, reads from a pipe what the child has found so far, and leaves behind the
one that does not answer. Used in workers only; a worker is not threaded where it forks.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight.frozen import dataclass

Probe = Callable[[], Iterator[tuple[str, Any]]]
"""What a child does: it yields (name, JSON data) as soon as it knows a fact. A later fact of the
same name replaces the earlier one."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a child found out. `state` is empty when it ended in time; else it is the letter of
    proc_pid_stat(5) of a child that did not (D can't be killed, R got no CPU) and `wchan` the
    function of the kernel in which it sleeps, where that is known."""

    facts: Mapping[str, Any]
    state: str = ""
    wchan: str = ""


def probe_in_children(work: Sequence[Probe], seconds: float) -> tuple[ProbeResult, ...]:
    """Runs all probes at the same time and returns within `seconds`, in the order of `work`.

    RuntimeError when a child ended before its work did; its traceback is on stderr.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # inherited from a careless parent: children would vanish and their numbers be reused
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    until = time.monotonic() + seconds
    children: dict[int, int] = {}  # reading end of its pipe -> pid
    try:
        for steps in work:
            reading, pid = _fork_child(steps)
            children[reading] = pid
        received, late = _read_pipes(children, until)
        asleep = {reading: _sleep_state(children[reading]) for reading in late}
    finally:
        statuses = [_reap(pid) for pid in children.values()]
        for reading in children:
            os.close(reading)
    for reading, status in zip(children, statuses, strict=True):
        if status and reading not in late:
            raise RuntimeError(f"a child ended early: {os.waitstatus_to_exitcode(status)}")
    return tuple(ProbeResult(_facts(received[r]), *asleep.get(r, ())) for r in children)


def _read_pipes(readings: Iterable[int], until: float) -> tuple[dict[int, bytes], set[int]]:
    """What came out of each pipe, and the pipes that were still open when the time was over."""
    received = dict.fromkeys(readings, b"")
    with selectors.DefaultSelector() as selector:
        for reading in received:
            selector.register(reading, selectors.EVENT_READ)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 1 << 16)
                received[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
        return received, {key.fd for key in selector.get_map().values()}


def _fork_child(steps: Probe) -> tuple[int, int]:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads; the child calls nothing that takes a lock
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writing)
        return reading, pid
    status = 1
    try:
        os.close(reading)
        for fact in steps():
            os.write(writing, json.dumps(fact).encode() + b"\n")
        status = 0
    finally:
        # never back into the caller's code, whatever happened
        if status:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(status)


def _facts(received: bytes) -> dict[str, Any]:
    """The complete lines of a child."""
    return dict(json.loads(line) for line in received.split(b"\n")[:-1])


def _sleep_state(pid: int) -> tuple[str, str]:
    """State and wait channel of a child; not a process of the machine that is looked at."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state, Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except (OSError, IndexError):
        return "?", ""


def _reap(pid: int) -> int | None:
    """The exit status of a child, killed if it is still there; None for one that can't be killed:
    init gets it. Until it is reaped its number can't be anybody else's."""
    os.kill(pid, signal.SIGKILL)
    for pause in (0.0, 0.001, 0.01, 0.1):  # the kernel needs a moment even for a willing one
        time.sleep(pause)
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            return status
    return None
