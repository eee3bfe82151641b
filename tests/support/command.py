"""The command line as a user has it: `python -m preflight` in a process of its own, with an
environment that holds nothing but what the test says. Also copies of the package with checks
planted in it, and what processes of a run are still there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.render import json as as_json

REPOSITORY = Path(__file__).parents[2]
TAG = "RUN_OF_A_TEST"
"""Every process of a run has it in its environment, whatever its group or session."""

# the machine's own names need not resolve here, and no test may depend on a port of its own
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
}
LIMITS = ("--only", "host.limits")
"""The quickest run that there is: one light check."""


PROGRESS = re.compile(r"^ preflight: \d+ s, .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float
    left: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The one line of an error."""
        return self.errors.strip()

    @property
    def errors(self) -> str:
        """Its standard error without how far it was, which a slow machine sees of a quick run."""
        return PROGRESS.sub("", self.err)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON report that was printed."""
        import json

        found: dict[str, Any] = json.loads(self.out)
        return found

    def row(self, check_id: str) -> dict[str, Any]:
        (row,) = (r for r in self.document["checks"] if r["id"] == check_id)
        return dict(row)

    def findings(self, check_id: str) -> list[dict[str, Any]]:
        return [f for f in self.document["findings"] if f["check"] == check_id]


@dataclass
class Running:
    """A command that is still at work."""

    process: subprocess.Popen[bytes]
    tag: str
    began: float = field(default_factory=time.monotonic)

    def listening(self) -> Running:
        """Once it takes SIGTERM: until then Python is still coming up."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            mask = int(status.partition("SigCgt:")[2].split()[0], 16)
            if mask & 1 << (signal.SIGTERM - 1):
                return self
        raise AssertionError("SIGTERM is not handled")

    def end(self, within: float = 30.0) -> Done:
        """Wait for it, killing it when that takes too long; then see what it has left."""
        try:
            out, err = self.process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        seconds = time.monotonic() - self.began
        code = self.process.returncode
        # the JSON answer has bytes that are no text only if we are wrong
        texts = [stream.decode(errors="replace") if stream else "" for stream in (out, err)]
        return Done(code, *texts, seconds, tuple(left(self.tag)))


def start(
    *args: str | bytes,
    env: Mapping[str, str] | None = None,
    package: Path | None = None,
    python: tuple[str, ...] = (sys.executable,),
    unset: tuple[str, ...] = (),
    **more: Any,
) -> Running:
    """Start `PYTHON -m preflight ARGS`; `package` is a folder with a preflight of its own."""
    tag = uuid.uuid4().hex
    folder = package or REPOSITORY
    environ = {**ENVIRONMENT, "PYTHONPATH": str(folder), TAG: tag, **(env or {})}
    for name in unset:
        environ.pop(name, None)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*python, "-m", "preflight", *args]
    process = subprocess.Popen(command, env=environ, **(streams | {"cwd": "/tmp"} | more))
    return Running(process, tag)


def preflight(*args: str | bytes, within: float = 30.0, **more: Any) -> Done:
    """Run it to its end; nothing of it may be left."""
    done = start(*args, **more).end(within)
    assert not done.left, f"left behind: {done.left}"
    return done


def left(tag: str, within: float = 2.0) -> list[str]:
    """The processes of a run that are still there after `within` seconds. Zombies that wait for an
    init to reap them do not count."""
    until = time.monotonic() + within
    while found := list(_carrying(tag)):
        if time.monotonic() > until:
            return found
        time.sleep(0.02)
    return []


def _carrying(tag: str) -> Iterator[str]:
    mark = f"{TAG}={tag}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                yield f"{folder.name} {(folder / 'cmdline').read_bytes()!r}"
        except OSError:
            continue


def report(done: Done) -> Any:
    """The report that was printed, as the program reads it back."""
    return as_json.parse(done.out)


# --- a package with planted checks ---

CHECK = '''"""Is this planted?

Looks at     nothing
Fails if     never
Warns if     never
Undecided    never
Not covered  all
Seen as      nothing
"""

from dataclasses import dataclass

from preflight.check import Check, Level, Requirement, Scope, Stage
from preflight.model import (
    FindingType, Blame, CannotObserve, Confidence, Found, Measured, NotApplicable, Status, Subject
)

CHECK = Check(scope=Scope.NODE, stage=Stage.MACHINE, budget=0.5, drains=True)
FINDINGS = {"bad": FindingType(who="nobody", cause="planted", means="nothing", now="nothing")}


@dataclass(frozen=True, slots=True)
class Answer:
    value: int = 1


def observe(host, ctx) -> Answer:
    return Answer()


def judge(world, expect):
    return ()


def measured(world):
    return Measured("planted")
'''


def observes(body: str) -> str:
    """A planted check whose observe() is `body`."""
    inner = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    head, tail = CHECK.split("    return Answer()\n")
    return f"{head}{inner}\n{tail}"


def judges(body: str) -> str:
    """A planted check whose judge() is `body`."""
    inner = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return CHECK.replace("    return ()\n", f"{inner}\n")


def planted(folder: Path, **checks: str) -> Path:
    """A copy of the package below `folder` with these modules in its checks (`planted_hang=…` is
    the check planted.hang), for `package=` of start()."""
    cache = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "preflight", folder / "preflight", symlinks=True, ignore=None)
    link = folder / "preflight" / "checks"
    link.unlink()
    shutil.copytree(REPOSITORY / "checks", link, ignore=cache)
    for name, text in checks.items():
        (link / f"{name}.py").write_text(text)
    return folder
