"""What workers ask slurmctld and tell syslog: either may hang, so the parent does neither.

This is where scontrol is started. Its words are parsed and judged by messages.py.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from preflight.process.worker import Channel
from preflight.slurm.messages import may_drain, may_resume, state_of

ASKED = "controller-asked"
"""A file in the state folder: not long ago slurmctld had nothing of ours against this node. Health
checks begin on all nodes in the same millisecond, and must not all ask it every time."""
ASK_AGAIN = 3600.0


def drain(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Drain `node` with `reason` where that is ours to do; why it was not done, or nothing."""
    _forget(args["folder"])
    try:
        channel.mark("scontrol show node")
        state = state_of(_scontrol("show", "node", "-o", args["node"]))
        if state is None:
            return "scontrol does not know this node"
        if not may_drain(state):
            why = f": {state.reason}" if state.reason else ""
            return f"drained already{why}" if state.drained else f"another reason is set{why}"
        channel.mark("scontrol update")
        _scontrol("update", f"NodeName={args['node']}", "State=DRAIN", f"Reason={args['reason']}")
        return ""
    except OSError as error:
        return str(error)
    finally:
        _forget(args["folder"])  # a health check may have asked in between


def resume(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Take `node` back into service where it was drained by us for checks that now have `passed`;
    the reason that stood there, or nothing where nothing was done."""
    asked = os.path.join(args["folder"], ASKED)
    try:
        if time.time() - os.stat(asked).st_mtime < ASK_AGAIN:
            return ""
    except OSError:
        pass
    channel.mark("scontrol show node")
    state = state_of(_scontrol("show", "node", "-o", args["node"]))
    if state is None:
        raise OSError("scontrol does not know this node")
    undone = ""
    if may_resume(state, args["passed"]):
        channel.mark("scontrol update")
        # unlike RESUME it clears nothing but the drain: a node that is down stays down
        _scontrol("update", f"NodeName={args['node']}", "State=UNDRAIN")
        undone = state.reason
    if undone or not state.reason.startswith("preflight: "):
        try:
            with open(asked, "w", encoding="ascii"):
                pass
        except OSError:
            pass  # without the folder it is asked every time
    return undone


def _forget(folder: str) -> None:
    try:
        os.unlink(os.path.join(folder, ASKED))
    except OSError:
        pass


def _scontrol(*words: str) -> str:
    """What it prints; OSError where it can't. It hangs where slurmctld does: then so does this
    worker, until its deadline ends both."""
    names = ("PATH", "SLURM_CONF")
    ended = subprocess.run(
        ["scontrol", *words],
        env={**{n: os.environ[n] for n in names if n in os.environ}, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if ended.returncode:
        raise OSError(f"scontrol {words[0]}: {ended.stdout.strip()[:200]}")
    return ended.stdout[:65536]


def log(args: Mapping[str, Any], channel: Channel, preloaded: object) -> None:
    """A line to syslog, `bad` or not. `text` begins with `preflight: `, which is the ident."""
    import syslog

    syslog.openlog("preflight", 0, syslog.LOG_DAEMON)
    level = syslog.LOG_ERR if args["bad"] else syslog.LOG_WARNING
    syslog.syslog(level, args["text"].removeprefix("preflight: "))
