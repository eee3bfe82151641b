"""`preflight rehearse`: the user's command runs for a moment under watch, then the checks of the
group job say what was seen of it, like those of any run.

The watch and everything that touches a file or a process of the command is done by workers; the
parent starts the command, passes signals on and keeps the time.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from preflight import console, redact
from preflight.config.resolve import seconds_of
from preflight.domains.job.record import (
    ARGUMENTS,
    Calls,
    Life,
    RehearsalRecord,
    Rehearsed,
    WatchedCommand,
)
from preflight.engine import agent, setup
from preflight.engine.agent import Ending, Wish
from preflight.engine.plan import Watch
from preflight.engine.setup import wait
from preflight.frozen import dataclass
from preflight.humanize import plural
from preflight.model import PreflightError
from preflight.output import terminal
from preflight.process.call import Told
from preflight.process.pool import Call, Returned, Workers
from preflight.process.signals import Interrupt
from preflight.rehearsal import gpu_looks, nccl_logs, watcher, workdir
from preflight.rehearsal.command import Running, variables
from preflight.rehearsal.job_checks import (
    GRACE,
    RECORD_LIMIT,
    SERVER,
    call_worker,
    configured,
    with_record,
    working_folder,
)
from preflight.rehearsal.workdir import OVER, VARIABLE
from preflight.serde import decode

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
OF_TEXT = re.compile("-[a-zA-Z]*c")
"""-c, -lc, -ec …: the next word is what the shell runs."""
ENOUGH = 5
"""Steps of every rank that show that it trains: with --stop-when-ok."""
BEAT, BEAT_IN_PIPE = 5.0, 10.0
"""Seconds between two lines about a command that goes on. They are lines, never rewritten: the
terminal is the command's, too."""
LAST_LOOK = 3.0
"""Seconds for what the ranks say when the command is interrupted, before it gets the signal."""
GPUS = "gpus"
"""The group of the call that looks at the node's GPUs."""
LOOKS_END, LOOKS_KILLED = 0.5, 2.0
"""Seconds for it to end by itself, and for the pool to kill it or to leave it behind."""
HOLD, TICK = 5.0, 0.1
"""Seconds for which a part of a command is left as it is when its watch is over: agents of other
nodes may have begun that much later, and their ranks should not lose their peers before."""


@dataclass(frozen=True, slots=True)
class Terms:
    """For how long, how patiently, and when it is enough."""

    argv: tuple[str, ...]
    seconds: float = 120.0
    stuck: float = 20.0
    steps: int = 0
    alone: bool = True
    """No other agent watches ranks of this job."""


def terms(
    argv: list[str], for_: str | None, steps: int | None, stuck: str | None, stop_when_ok: bool
) -> Terms:
    """What the flags say; PreflightError where they make no sense."""
    if not argv[0]:
        raise PreflightError("CMD is an empty word")
    base = Terms(tuple(argv))
    return replace(
        base,
        seconds=base.seconds if for_ is None else seconds_of(for_, "--for"),
        stuck=base.stuck if stuck is None else seconds_of(stuck, "--stuck"),
        steps=steps or (ENOUGH if stop_when_ok else 0),
    )


def ending_of(
    wish: Wish,
    asked: Terms,
    workers: Workers,
    interrupt: Interrupt,
    watch: Watch,
    quiet: bool,
) -> Ending:
    """Everything between the flags and the report. Raises NotStarted where CMD can't be."""
    wish, chosen = configured(wish)
    workers.fork(SERVER)
    here = setup.world(workers, replace(chosen, nproc=1), lambda: bool(interrupt.name))
    asked = replace(asked, alone=not setup.meets(chosen, here))
    with working_folder(workers) as folder:
        added = variables(os.environ, folder, VARIABLE)
        logged = _nccl_logging(workers, asked.argv, folder)
        added |= logged.get("set", {})
        if not quiet:
            shown = " ".join(f"{name}={value}" for name, value in added.items())
            console.say(f" preflight: watched for at most {asked.seconds:g} s; set for it: {shown}")
            for name, value in logged.get("kept", {}).items():
                console.say(f" preflight: {name}={value} is kept: NCCL's own log is not read")
        record = _rehearsed(workers, asked, folder, added, interrupt, quiet)
        left = call_worker(workers, workdir.end_all, {"folder": folder})
        for one in left or ():  # what can't be killed
            console.say(f" preflight: left behind: {one}")
        ended = record.ranks[0].life.command
        script: dict[str, Any] = {"script": script_of(asked.argv), "cwd": _cwd()}
        script |= {"argv": list(asked.argv), "exit": ended.exit}
        # agents of other nodes may watch theirs to the end of the time
        more = asked.seconds + GRACE - ended.seconds
        # it has ended the command; the next signal ends the checks
        wish = replace(wish, interrupted=interrupt.take())
        adjusted = with_record(wish, workers, folder, record, script, added, max(0.0, more))
        return agent.ending_of(adjusted, workers, interrupt, watch)


def _nccl_logging(workers: Workers, argv: tuple[str, ...], folder: str) -> Mapping[str, Any]:
    """nccl_logs.offered; nothing where the worker gives no answer."""
    environ = {
        name: os.environ[name] for name in os.environ if name.startswith("NCCL_") or name == "HOME"
    }
    args = {"argv": list(argv[:ARGUMENTS]), "folder": folder, "environ": environ}
    return call_worker(workers, nccl_logs.offered, args) or {}


def script_of(argv: tuple[str, ...]) -> str:
    """The Python file that a command runs; empty where it names none, or its shell several."""
    text = _shell_text(argv)
    if text is None:
        return next((word for word in argv if word.endswith(".py")), "")
    reader = shlex.shlex(text, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        found = {word for word in reader if word.endswith(".py")}
    except ValueError:  # a quote that nobody closes
        return ""
    return found.pop() if len(found) == 1 else ""


def _shell_text(argv: tuple[str, ...]) -> str | None:
    """What a shell is given by -c; None of other commands."""
    if not argv or os.path.basename(argv[0]) not in SHELLS:
        return None
    pairs = itertools.pairwise(argv)
    return next((text for option, text in pairs if OF_TEXT.fullmatch(option)), None)


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


# --- the command under watch ---

ENDED = "a SignalException of torchrun, or the like, is our doing"
"""What its last lines are, which look as if the command had failed."""


def _rehearsed(
    workers: Workers,
    asked: Terms,
    folder: str,
    added: Mapping[str, str],
    interrupt: Interrupt,
    quiet: bool,
) -> RehearsalRecord:
    """Start it, watch it, end it."""
    running = Running(list(asked.argv), {**os.environ, **added})
    workers.relaying = True
    args = {
        "folder": folder,
        "pid": running.pid,
        "seconds": asked.seconds,
        "stuck": asked.stuck,
        "steps": asked.steps,
        "alone": asked.alone,
        "argv": redact.command_line(asked.argv[:ARGUMENTS]),
    }
    call = workers.call(
        SERVER,
        watcher.watch,
        args,
        seconds=asked.seconds + GRACE,
        group=SERVER,
        limit=RECORD_LIMIT,
    )
    looks = workers.call(
        SERVER, gpu_looks.look_until_over, args, seconds=asked.seconds + GRACE, group=GPUS
    )
    lines = Lines(asked, quiet)
    passed_on = ""
    lived = 0.0
    until = running.began + asked.seconds + GRACE + 5.0
    while call.result is None and time.monotonic() < until:
        next(workers.run(time.monotonic() + 0.1, lambda: bool(interrupt.name)), None)
        for group, told in workers.heard:
            if group == SERVER and isinstance(told.value, dict):
                lines.show(told.value)
        workers.heard.clear()
        if running.exit is not None:
            lived = lived or time.monotonic() - running.began
        if interrupt.name:
            passed_on = interrupt.name
            workers.tell(SERVER, Told(-1, OVER, interrupt.at))
            wait(workers, call, LAST_LOOK)
            running.pass_on(signal.Signals[passed_on])
            break
    workers.relaying = False
    _end_looks(workers, looks)
    held = time.monotonic() + HOLD
    while not asked.alone and running.exit is None and not interrupt.name:
        if time.monotonic() >= held:
            break
        time.sleep(TICK)
    if passed_on:
        running.wait()  # a second signal would cut short what it does at the first
    ended = running.exit
    if ended is None:
        if not quiet and not passed_on:
            console.say(f" preflight: ends the command with SIGTERM: {ENDED}")
        if passed_on != "SIGTERM":  # it has had that, and its time
            running.end()
    running.close()
    seconds = round(lived or time.monotonic() - running.began, 2)
    return _recorded(call, running, ended, asked, interrupt.name, seconds)


def _end_looks(workers: Workers, looks: Call) -> None:
    """Nothing is taken from it any more. One that a driver holds is killed, and told at the end if
    it stays."""
    workers.tell(GPUS, Told(-1, OVER, time.monotonic()))
    if wait(workers, looks, LOOKS_END) is None:
        looks.due = 0.0
        wait(workers, looks, LOOKS_KILLED)


def _recorded(
    call: Call,
    running: Running,
    ended: int | None,
    asked: Terms,
    interrupted: str,
    seconds: float,
) -> RehearsalRecord:
    """What the watcher has seen, with the exit status that only a parent knows."""
    argv = tuple(redact.command_line(asked.argv[:ARGUMENTS]))
    if isinstance(call.result, Returned):
        record: RehearsalRecord = decode(RehearsalRecord, call.result.value, lax=True)
        why = record.ranks[0].life.command.why
        command = record.ranks[0].life.command
        if why == "ended":
            code = running.exit if ended is None else ended
            command = replace(command, exit=code, seconds=seconds)
        return RehearsalRecord(
            tuple(replace(r, life=replace(r.life, command=command)) for r in record.ranks)
        )
    why = "interrupted" if interrupted else "blind"
    problem = (
        "" if interrupted else f"the watch itself ended without a message: {call.result!r:.200}"
    )
    life = Life(WatchedCommand(argv, ended, why, seconds), watched="", problem=problem)
    return RehearsalRecord((Rehearsed(life, Calls(why=why, seconds=seconds)),))


class Lines:
    """What is said on stderr while it goes on."""

    def __init__(self, asked: Terms, quiet: bool) -> None:
        self._asked = asked
        self._quiet = quiet
        self._every = BEAT if terminal.is_terminal(sys.stderr) else BEAT_IN_PIPE
        self._next = time.monotonic() + self._every

    def show(self, told: Mapping[str, Any]) -> None:
        if self._quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        console.say(f" preflight: {line(told, self._asked.seconds)}")


def line(told: Mapping[str, Any], limit: float) -> str:
    """One line about how it goes: what the watcher tells, as text."""
    alive, world = told["alive"], told["world"]
    parts = [f"{told['seconds']:.0f} of {limit:g} s", f"{alive}/{world or alive} ranks"]
    if told["starting"]:
        parts.append(f"{told['starting']} starting")
    parts.append(_between(told["steps"], "step"))
    parts.append(f"{_between(told['collectives'], 'collective')}, {told['rate']:g}/s")
    parts.append(f"{told['cpu']:.1f} CPUs")
    parts.append(f"{told['rss'] / (1 << 30):.1f} GiB")
    if told["gpu"]:
        parts.append(f"{told['gpu'] / (1 << 30):.1f} GiB on GPUs")
    if told["workers"]:
        parts.append(plural(told["workers"], "loader worker"))
    if told["shm"] > 1 << 20:
        parts.append(f"/dev/shm +{told['shm'] / (1 << 20):.0f} MiB")
    if told["waiting"] and told["quiet"] > 2:
        ranks = ", ".join(str(rank) for rank in told["waiting"])
        parts.append(f"nothing for {told['quiet']:.0f} s, waiting: rank {ranks}")
    return " · ".join(parts)


def _between(span: list[int], what: str) -> str:
    least, most = span
    return plural(most, what) if least == most else f"{least}-{most} {what}s"
