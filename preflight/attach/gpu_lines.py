"""Whether a process of which the stack alone is known stands where it waits for its GPU: native
code has no frame, so the line of the source has to say it. Only in a worker: this reads files."""

from __future__ import annotations

import os
import re

from preflight.domains.job.record import Frame
from preflight.rehearsal import procfs
from preflight.rehearsal.history import COPYING, SYNCHRONISING

METHODS = "|".join(sorted({*SYNCHRONISING, *COPYING, "synchronize"}))
WAITING = re.compile(rf"\.({METHODS})\s*\(")
"""Methods of a tensor, an event or a stream that wait for all that a GPU still has to do."""
SOURCE = 4 << 20
"""Bytes of a file that are looked at."""


def gpu_wait(pid: int, innermost: Frame) -> str:
    """The call by which it waits, such as `.item()`; empty where its line has none, or it has not
    loaded the driver's library."""
    found = WAITING.search(_source_line(pid, innermost))
    return f".{found[1]}()" if found is not None and procfs.has_cuda(pid) else ""


def _source_line(pid: int, frame: Frame) -> str:
    """As the process sees the file, which may live in a container."""
    path = frame.file
    if not os.path.isabs(path):
        path = os.path.join(f"/proc/{pid}/cwd", path)
    else:
        path = f"/proc/{pid}/root{path}"
    lines = procfs.read_regular(path, SOURCE).split(b"\n", frame.line)
    return lines[frame.line - 1].decode(errors="replace") if 0 < frame.line <= len(lines) else ""
