"""Runs preflight on a machine with GPUs as a user would, and keeps what came of it: the report, and
where it is watched, what its processes did meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu.machine import Peak, environment, memory_watched, script
from support import command

DEADLINE = 90.0
"""Seconds of a run, by itself."""
WITHIN = 150.0
"""Seconds after which a run is killed."""

TORCHS = "torchinductor_"
"""A folder of its own that torch makes in TMPDIR, as soon as anybody has an optimizer."""

ROUND, WALK = 0.05, 0.25
"""Seconds from one look at the parent to the next, and at all processes of the run."""

LIBRARIES = ("libcuda", "libcudart", "libnvidia-", "libnccl", "libtorch", "libamdhip")
"""What the parent must never have in its memory."""
CUDA = "libcuda.so"


@dataclass(frozen=True)
class Ran:
    """A run that has ended. `told` is its report, empty without one; `litter` are files that it
    left in its TMPDIR and in /dev/shm.

    mapped   libraries of CUDA in the parent's memory, and in the workers': without any there, that
             there are none here says nothing
    beyond   bytes on each GPU at most, beyond what was used before
    memory   bytes of the machine's memory of all its processes together, at most
    """

    code: int
    told: Mapping[str, Any]
    out: str
    err: str
    seconds: float
    left: tuple[str, ...]
    litter: tuple[str, ...]
    mapped: tuple[str, ...] = ()
    mapped_by_workers: tuple[str, ...] = ()
    beyond: tuple[int, ...] = ()
    memory: int = 0

    def row(self, check: str) -> dict[str, Any]:
        rows = [row for row in self.told.get("checks", ()) if row["id"] == check]
        assert len(rows) == 1, self.shown(f"no row of {check}")
        return dict(rows[0])

    def seen(self, check: str) -> dict[str, Any]:
        """Its observations that came, by place."""
        made = self.told["observations"].get(check, {})
        return {place: one["ok"] for place, one in made.items() if "ok" in one}

    def findings(self, *statuses: str) -> list[dict[str, Any]]:
        """Those with one of these statuses; all without any."""
        return [f for f in self.told.get("findings", ()) if not statuses or f["status"] in statuses]

    def shown(self, why: str = "") -> str:
        """All that a test which fails has to say: nobody may be there to run it again."""
        findings = json.dumps(self.told.get("findings", []), indent=1, ensure_ascii=False)
        return "\n".join(
            (
                f"{why}\nexit {self.code} after {self.seconds:.1f} s",
                self.out[-8000:],
                f"findings: {findings[:8000]}",
                f"stderr: {self.err[-4000:]}",
            )
        )


@dataclass
class Watched:
    """What was seen of the processes of a run."""

    tag: str
    parent: int
    mapped: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    memory: int = 0

    def look(self) -> None:
        self.mapped |= set(_libraries(self.parent))

    def walk(self) -> None:
        pids = [int(line.split()[0]) for line in command.left(self.tag, within=0.0)]
        self.memory = max(self.memory, sum(map(_memory, pids)))
        if not any(name.startswith(CUDA) for name in self.workers):
            for pid in pids:
                self.workers |= set(_libraries(pid)) if pid != self.parent else set()


def _libraries(pid: int) -> Iterator[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name = line.rpartition("/")[2]
        if name.startswith(LIBRARIES):
            yield name


def _memory(pid: int) -> int:
    """Its share of what it holds, where pages that it has in common with others are divided."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return int(found[0]) * 1024 if found else 0


def run(
    *args: str,
    env: Mapping[str, str] | None = None,
    within: float = WITHIN,
    watched: bool = False,
    then: Sequence[str] = (),
) -> Ran:
    """`preflight ARGS -o human -o json=FILE [-- THEN]` to its end."""
    with tempfile.TemporaryDirectory(prefix="preflight-gpu-") as name:
        folder = Path(name)
        report, scratch = folder / "report.json", folder / "tmp"
        scratch.mkdir()
        shared = _shared()
        environ = {**environment(), "TMPDIR": str(scratch), "COLUMNS": "100", **(env or {})}
        words = [*args, "-o", "human", "-o", f"json={report}", *(["--", *then] if then else [])]
        peak = memory_watched() if watched else nullcontext(Peak())
        with peak as beyond, (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            running = command.start(*words, env=environ, stdout=out, stderr=err, cwd=folder)
            seen = Watched(running.tag, running.process.pid)
            if watched:
                _watch(running, seen, within)
            done = running.end(within)
        return Ran(
            code=done.code,
            told=json.loads(report.read_bytes()) if report.exists() else {},
            out=(folder / "out").read_text(errors="replace"),
            err=(folder / "err").read_text(errors="replace"),
            seconds=done.seconds,
            left=done.left,
            litter=(
                *(p.name for p in scratch.iterdir() if not p.name.startswith(TORCHS)),
                *sorted(_shared() - shared),
            ),
            mapped=tuple(sorted(seen.mapped)),
            mapped_by_workers=tuple(sorted(seen.workers)),
            beyond=beyond.bytes,
            memory=seen.memory,
        )


def _watch(running: command.Running, seen: Watched, within: float) -> None:
    """Look at it until it has ended, or has taken too long."""
    walked = 0.0
    while running.process.poll() is None and time.monotonic() < running.began + within:
        seen.look()
        if time.monotonic() - walked > WALK:
            seen.walk()
            walked = time.monotonic()
        time.sleep(ROUND)


def _shared() -> frozenset[str]:
    try:
        return frozenset(os.listdir("/dev/shm"))
    except OSError:
        return frozenset()


def torchrun(ranks: int, name: str, *args: str) -> tuple[str, ...]:
    """The command that starts a script of scripts/ on so many ranks of this machine."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    return (*launcher, f"--nproc-per-node={ranks}", script(name), *args)


@contextmanager
def taken(*args: object) -> Iterator[int]:
    """A GPU that another program has: scripts/occupy.py with these arguments. Its pid."""
    with subprocess.Popen(
        [sys.executable, script("occupy"), *map(str, args)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            said = program.stdout.readline()
            assert said == "ready\n", f"it says {said!r}, and more on stderr"
            yield program.pid
            assert program.poll() is None, f"it has ended by itself: {program.returncode}"
        finally:
            program.kill()
