"""Python stacks from outside, by py-spy where it is installed: of interpreters that our hook could
not get into. It reads another process's memory, which the kernel allows to root, to CAP_SYS_PTRACE
and, under most settings of kernel.yama.ptrace_scope, to the parent. Without pausing anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from preflight.domains.job.record import FRAMES, Frame
from preflight.rehearsal.client import LIBRARIES, LIMIT
from preflight.sanitize import one_line

SECONDS = 3.0
"""For all of them together."""
MOST = 64


def find_pyspy() -> str:
    """Where py-spy is: beside this interpreter, or on the PATH; empty when it is nowhere."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy") or ""


def stacks(
    pids: Sequence[int], seconds: float = SECONDS
) -> tuple[dict[int, tuple[Frame, ...]], str]:
    """pid -> the main thread's frames, the innermost first; and why some can't be had."""
    program = find_pyspy()
    if not program:
        return {}, "py-spy is not installed"
    until = time.monotonic() + seconds
    running = {}
    for pid in pids[:MOST]:
        running[pid] = subprocess.Popen(
            [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    found: dict[int, tuple[Frame, ...]] = {}
    problem = ""
    for pid, process in running.items():
        try:
            told, said = process.communicate(timeout=max(0.05, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(
                    1.0
                )  # one that can't be killed ends with this worker's group, or never
            problem = f"py-spy gave no answer in {seconds:g} s"
            continue
        if process.returncode == 0 and (frames := parse_dump(told[:LIMIT], pid)) is not None:
            found[pid] = frames
        else:
            problem = one_line(f"py-spy: {said[-400:].decode(errors='replace')}")
    return found, problem


def parse_dump(told: bytes, pid: int) -> tuple[Frame, ...] | None:
    """The main thread's, of what `py-spy dump --json` prints."""
    try:
        threads = json.loads(told)
    except (ValueError, RecursionError):
        return None
    if not isinstance(threads, list):
        return None
    for thread in threads[:4096]:
        if isinstance(thread, dict) and thread.get("os_thread_id") == pid:
            frames = thread.get("frames")
            sane = [_frame(f) for f in (frames if isinstance(frames, list) else [])[:200]]
            return tuple(f for f in sane if f is not None)[:FRAMES]
    return None


def _frame(told: object) -> Frame | None:
    match told:
        case {"filename": str(file), "line": int(line), "name": str(name)}:
            own = not LIBRARIES.search(file)
            return Frame(one_line(file), line, one_line(name, 80), own)
    return None
