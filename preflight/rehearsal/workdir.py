"""The folder of one rehearsal and what is left of its processes, touched by workers only."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from preflight.process import scratch
from preflight.rehearsal import procfs
from preflight.rehearsal.command import TERM_SECONDS

PLACES = ("/tmp", "/dev/shm", "/var/tmp")
"""Short names: the path of a Unix socket has 107 bytes at most."""
INJECTED = (
    "sitecustomize.py",
    "preflight_responder.py",
    "preflight_flight_recorder.py",
    "preflight_dispatched_calls.py",
    "preflight_rendezvous.py",
    "preflight_caught.py",
    "preflight_warned.py",
    "preflight_model.py",
    "preflight_optimized.py",
    "preflight_settings.py",
    "preflight_resets.py",
    "preflight_shards.py",
    "preflight_ties.py",
    "preflight_clips.py",
    "preflight_copies.py",
    "preflight_phases.py",
    "preflight_needless.py",
    "preflight_strided.py",
    "preflight_draws.py",
    "preflight_blocked.py",
    "preflight_store_waits.py",
    "preflight_sleeps.py",
    "preflight_threads.py",
    "preflight_answers.py",
)
"""What the command's interpreters load, from rehearsal/injected/."""
VARIABLE = "PREFLIGHT_WATCHED"
"""Names the folder to the command's processes; whoever has it in its environment is one of them."""
OVER = "over"
"""The topic under which the watch learns that a signal has ended the command, and when (on the
monotonic clock)."""
KILL_SECONDS = 1.0


def make(args: object, channel: object, preloaded: object) -> str:
    """A new folder that only this user may enter, with what the command's interpreters load. What
    killed runs have left is removed before."""
    ours = Path(__file__).parent / "injected"
    for place in PLACES:
        scratch.sweep(place, INJECTED)
    problem = "no place for the folder of a rehearsal"
    for place in PLACES:
        folder = ""
        try:
            folder = tempfile.mkdtemp(prefix=scratch.PREFIX, dir=place)
            for name in INJECTED:
                shutil.copyfile(ours / name, os.path.join(folder, name))
        except OSError as error:
            problem = f"{place}: {error.strerror}"
            scratch.remove(folder)
        else:
            return folder
    raise OSError(problem)


def remove(folder: str, channel: object, preloaded: object) -> str:
    """At the end of a run."""
    scratch.remove(folder)
    return folder


def clear(folder: str) -> None:
    """After whoever started the command was killed: the kernel has sent it SIGTERM then, and it has
    as long to end as it would have had. Nothing to do where it was seen to."""
    if not os.path.isdir(folder):
        return
    own = f"{VARIABLE}={folder}"
    until = time.monotonic() + TERM_SECONDS
    while time.monotonic() < until and any(_is_of(pid, own) for pid in _pids()):
        time.sleep(0.1)
    end_all({"folder": folder}, None, None)
    scratch.remove(folder)


def end_all(args: Mapping[str, object], channel: object, preloaded: object) -> list[str]:
    """SIGKILL to every process that was started with the variable for this folder, wherever it was
    reparented to; those that are still there afterwards are told, one line each."""
    own = f"{VARIABLE}={args['folder']}"
    until = time.monotonic() + KILL_SECONDS
    while left := [pid for pid in _pids() if _is_of(pid, own)]:
        if time.monotonic() > until:
            return [_described(pid) for pid in left]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)
    return []


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _is_of(pid: int, own: str) -> bool:
    if pid in (os.getpid(), os.getppid()):
        return False
    found = procfs.stat(pid)
    if found is None or found.ended:
        return False
    return own in procfs.read(f"/proc/{pid}/environ", 1 << 20).split("\0")


def _described(pid: int) -> str:
    found = procfs.stat(pid)
    where = procfs.wchan(pid)
    return f"pid {pid}, state {found.state if found else '?'}{where and f', in {where}'}"
