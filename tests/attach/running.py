"""Starts one job of the catalogue, looks at it with `preflight attach`, and keeps what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attach.catalogue import REHEARSED, Row
from support.attaching import free_port, running

APPEARS = 90.0
"""Seconds in which a job on a busy machine comes to its fault."""
LOOK = 90.0


@dataclass(frozen=True)
class Told:
    """What was said of a job: the exit code of attach, its report, its screen."""

    code: int
    report: Mapping[str, Any]
    screen: str

    def findings(self, status: str = "fail") -> list[dict[str, Any]]:
        return [f for f in self.report.get("findings", ()) if f["status"] == status]


def attached(row: Row) -> Told:
    """Run the job until it hangs, and look at it."""
    with tempfile.TemporaryDirectory() as name:
        planted, report, port = Path(name, "planted"), Path(name, "report.json"), free_port()
        environ = {"PLANTED": str(planted), "PYTHONPATH": str(REHEARSED), "OMP_NUM_THREADS": "1"}
        there = {"planted": planted.exists, "port": lambda: _listens(port), "start": lambda: True}
        with running(list(_argv(row, port)), **environ) as job:
            until = time.monotonic() + APPEARS
            while not there[row.until]() and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(row.settle)
            done = subprocess.run(
                [sys.executable, "-m", "preflight", "attach", str(job.pid), "-o", f"json={report}"],
                capture_output=True,
                text=True,
                timeout=LOOK,
                check=False,
                env={**os.environ, "COLUMNS": "80"},
            )
            ended = job.poll()
        told = json.loads(report.read_bytes()) if report.exists() else {}
        screen = f"the job ended with {ended}" if ended is not None else done.stdout + done.stderr
        return Told(done.returncode, told, screen)


def wrong(row: Row, told: Told) -> Iterator[str]:
    """What is not as it should be: of a fault one finding, of the right code, with the right ranks
    and words; of what is healthy no failure."""
    found = told.findings(row.status)
    if not row.code:
        yield from (f"{f['code']}: {f['saw']}" for f in found)
        if not told.report:
            yield told.screen[-300:]
        return
    if len(found) != 1:
        yield f"{len(found)} of status {row.status}, not one: {told.screen[-1500:]}"
        return
    (one,) = found
    if (one["code"], one["check"]) != (row.code, row.check):
        yield f"{one['check']}:{one['code']}, not {row.check}:{row.code}"
    ranks = tuple(sorted(rank for subject in one["subjects"] for rank in subject["ranks"]))
    if ranks != row.ranks:
        yield f"ranks {ranks}, not {row.ranks}"
    yield from (
        f"not a word of {words!r}: {one['saw']}" for words in row.says if words not in one["saw"]
    )


def _argv(row: Row, port: int) -> Iterator[str]:
    python = Path(sys.executable)
    known = {
        "torchrun": python.with_name("torchrun"),
        "python": python,
        "nproc": row.nproc,
        "port": port,
    }
    for word in (*row.launcher, str(row.script), *row.args):
        yield word.format_map(known)


def _listens(port: int) -> bool:
    """By the kernel's table: nothing is connected to."""
    wanted = f":{port:04X} "
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"{words[1]} ".endswith(wanted):
                return True
    return False
