"""Why the kernel refuses a process: which limit, and how far it is used."""

from __future__ import annotations

import errno
import os

from preflight.host import Host
from preflight.model import NO_PROCESS

NEARLY = 8
"""Processes that a cgroup may have left and still be the one that refused: others end meanwhile."""


def why_refused(error: OSError) -> str:
    """Of a fork() that failed, begun with NO_PROCESS. What it reads are files of the kernel in
    memory, so the agent itself may."""
    limit = _limit() if error.errno == errno.EAGAIN else ""
    return f"{NO_PROCESS}: {limit or error}"


def _limit() -> str:
    own = ""
    for name, most, used in Host().process_limits():
        if used is None:
            own = f"{name} is {most} for user {os.getuid()}"
        elif most - used <= NEARLY:
            return f"{name} is {most}, and {used} are there"
    return own
