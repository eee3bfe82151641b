"""Python stacks from outside, by py-spy where it is installed: of interpreters that our hook could
not get into. It reads another process's memory, which the kernel allows to root, to CAP_SYS_PTRACE
and, under most settings of kernel.yama.ptrace_scope, to the parent. Without pausing anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import takewhile

from preflight.domains.job.record import FRAMES, NO_PTRACE, NO_PYSPY, Frame
from preflight.rehearsal.client import LIBRARIES, LIMIT, innermost_and_own, parse_json
from preflight.sanitize import one_line

NAME = "py-spy"
SECONDS = 3.0
"""For all of them together."""
MOST = 64
TRIES = 3
"""A process that runs meanwhile may change its stack while py-spy reads it."""
CALLS: Mapping[str, Mapping[str, str]] = {
    "_create_c10d_store": {n: n for n in ("hostname", "port", "rank", "world_size")},
    "_new_process_group_helper": {
        **{"group_rank": "rank", "group_size": "world_size"},
        **{"group_name": "name", "global_ranks_in_group": "members"},
    },
    "init_process_group": {"init_method": "url", "rank": "rank", "world_size": "world_size"},
    "_wrap": {"i": "index"},  # of torch.multiprocessing.spawn: which process it is
    "send": {"dst": "dst"},
    "recv": {"src": "src"},
    # of a group of its own torch counts the root there
    **{name: {"src": "root", "group_src": "root"} for name in ("broadcast", "scatter")},
    **{name: {"dst": "root", "group_dst": "root"} for name in ("reduce", "gather")},
    "wrapper": {"kwargs": "given"},  # of all collectives: as they were called
}
"""Functions of torch.distributed, and what each of their variables is called by us."""
OF_TORCH = re.compile(r"/torch/(?:distributed|multiprocessing)/")
GIVEN_GROUP = '"group": <'
SHUTDOWN = ("/threading.py", "_shutdown")
"""Where a program that is over waits for its threads."""
WORKER_LOOP = "_worker_loop"
"""Of a DataLoader's worker: the user's code that it calls is inside of it."""


def find_pyspy() -> str:
    """Where py-spy is: beside this interpreter, on the PATH, or where pip has put it with --user
    or --target; empty when it is nowhere."""
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    if _may_run(beside):
        return beside
    return shutil.which(NAME) or next(filter(_may_run, _installed()), "")


def _installed() -> Iterator[str]:
    """Where the package says that its program is. With --target that is not where it lies."""
    try:
        package = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        return
    for file in package.files or ():
        if file.name == NAME:
            yield str(file.locate())
    yield os.path.join(str(package.locate_file("")), "bin", NAME)


def _may_run(path: str) -> bool:
    return os.access(path, os.X_OK)


def stacks(
    pids: Sequence[int], seconds: float = SECONDS
) -> tuple[dict[int, tuple[Frame, ...]], str]:
    """pid -> the main thread's frames, the innermost first; and why some can't be had."""
    told, problem = _dumps(pids, seconds)
    found = {pid: parse_dump(text, pid) for pid, text in told.items()}
    return {pid: frames for pid, frames in found.items() if frames is not None}, problem


def samples(pids: Sequence[int], seconds: float = SECONDS) -> dict[int, Frame]:
    """pid -> the user's line in which a DataLoader's worker is at a sample or a batch; nothing for
    one that waits for the next."""
    told, _ = _dumps(pids, seconds)
    found: dict[int, Frame] = {}
    for pid, text in told.items():
        frames = _frames(_main_thread(text, pid))
        inner = tuple(takewhile(lambda f: f.function != WORKER_LOOP, frames))
        place = next((f for f in inner if f.own), None)
        # one that is forked has the frames of the program outside of its loop
        if place is not None and len(inner) < len(frames):
            found[pid] = place
    return found


def arguments(pids: Sequence[int], seconds: float = SECONDS) -> dict[int, dict[str, str]]:
    """pid -> what its main thread has called torch.distributed with: variables of torch's own
    functions, and of no others."""
    told, _ = _dumps(pids, seconds, "--locals")
    return {pid: parse_arguments(text, pid) for pid, text in told.items()}


def _dumps(pids: Sequence[int], seconds: float, *options: str) -> tuple[dict[int, bytes], str]:
    """pid -> what `py-spy dump --json` prints; and why some can't be had."""
    program = find_pyspy()
    if not program:
        return {}, NO_PYSPY
    until = time.monotonic() + seconds
    found: dict[int, bytes] = {}
    problem = ""
    for _ in range(TRIES):
        left = [pid for pid in pids[:MOST] if pid not in found]
        if left and time.monotonic() < until:
            more, problem = _dump_each(program, left, until, options)
            found |= more
        if problem.startswith(NO_PTRACE):
            break
    return found, problem


def _dump_each(
    program: str, pids: Sequence[int], until: float, options: Sequence[str]
) -> tuple[dict[int, bytes], str]:
    """The same, tried once, until that time."""
    running = {}
    for pid in pids:
        running[pid] = subprocess.Popen(
            [program, "dump", "--nonblocking", "--json", *options, "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    found: dict[int, bytes] = {}
    problem = ""
    for pid, process in running.items():
        try:
            told, said = process.communicate(timeout=max(0.05, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            # what can't be killed ends with this worker's group, or never
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            problem = "py-spy gave no answer in time"
            continue
        if process.returncode == 0 and told:
            found[pid] = told[:LIMIT]
        else:
            problem = describe_failure(said[-4000:].decode(errors="replace"))
    return found, problem


def describe_failure(said: str) -> str:
    """Why py-spy could not, in a line; its own backtrace is left out."""
    lines = [line for line in said.splitlines() if line.strip()]
    first = one_line(lines[0].removeprefix("Error: ") if lines else "no word", 200)
    if re.search(r"[Pp]ermission denied|Operation not permitted|EPERM", said):
        return f"{NO_PTRACE}: {first}"
    return f"py-spy: {first}"


def parse_dump(told: bytes, pid: int) -> tuple[Frame, ...] | None:
    """The main thread's, of what `py-spy dump --json` prints. Where that waits for the program's
    threads to end, those of the one thread that is in the user's code come first."""
    main = _main_thread(told, pid)
    if main is None:
        return None
    frames = innermost_and_own(_frames(main), FRAMES)
    if any(f.function == SHUTDOWN[1] and f.file.endswith(SHUTDOWN[0]) for f in frames):
        others = [_frames(t.get("frames")) for t in _threads(told) if t.get("frames") != main]
        others = [thread for thread in others if any(f.own for f in thread)]
        if len(others) == 1:  # which of several is no daemon can't be told from outside
            frames = (*innermost_and_own(others[0], max(0, FRAMES - len(frames))), *frames)
    return frames


def parse_arguments(told: bytes, pid: int) -> dict[str, str]:
    """Of the innermost functions of torch.distributed in which the main thread is: of
    init_process_group and what it calls hostname, port, rank and world_size, of the group of all
    ranks alone; of a collective its `root`, and its `group` where one was given, of send and recv
    the other end."""
    found: dict[str, str] = {}
    for frame in _main_thread(told, pid) or ():
        match frame:
            case {"filename": str(file), "name": str(name), "locals": list(told_locals)}:
                names = CALLS.get(_plain(name), {}) if OF_TORCH.search(file) else {}
                for one in told_locals[:200]:
                    match one:
                        case {"name": str(variable), "repr": str(value)} if variable in names:
                            text = one_line(value.strip("\"'"), 300)
                            if text not in ("", "None", "-1", "{}"):
                                found.setdefault(names[variable], text)
    if GIVEN_GROUP in found.pop("given", ""):
        found["group"] = "given"
    if url := re.fullmatch(r"tcp://(\[[^]]+\]|[^:/?]+):(\d{1,5}).*", found.pop("url", "")):
        found |= {"host": url[1].strip("[]"), "port": url[2]}
    return found


def _threads(told: bytes) -> list[dict[str, object]]:
    threads = parse_json(told)
    known = threads[:4096] if isinstance(threads, list) else []
    return [thread for thread in known if isinstance(thread, dict)]


def _frames(told: object) -> tuple[Frame, ...]:
    known = told[:200] if isinstance(told, list) else []
    return tuple(f for f in map(_frame, known) if f is not None)


def _main_thread(told: bytes, pid: int) -> list[object] | None:
    if parse_json(told) is None:
        return None
    known = _threads(told)
    main = [thread for thread in known if thread.get("os_thread_id") == pid]
    if not main and all(thread.get("os_thread_id") is None for thread in known):
        # before Python 3.11 it can't tell; the newest thread stands first
        main = [t for t in known if t.get("thread_name") == "MainThread"] or known[-1:]
    if not main:
        return None
    frames = main[0].get("frames")
    return frames[:200] if isinstance(frames, list) else []


def _frame(told: object) -> Frame | None:
    match told:
        case {"filename": str(file), "line": int(line), "name": str(name)}:
            own = not LIBRARIES.search(file)
            return Frame(one_line(file), line, one_line(_plain(name), 80), own)
    return None


def _plain(name: str) -> str:
    """A function's name, as Python's stacks have it: from 0.4.3 on py-spy says the qualified
    one, such as `_exception_logger.<locals>.wrapper`."""
    return name.rpartition(".")[2]
