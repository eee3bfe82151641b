"""Rehearses one row of the catalogue as a user would, and keeps what came of it."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import nvml
from rehearse.catalogue import LIMIT, SCRIPTS, Row
from support import command
from support.pace import slower

ARGUMENTS_ON_STDIN = b"one two"
END_SECONDS = 60.0
"""Until a rehearsal whose time is over must have ended: more than a busy machine takes."""
LONGEST = 170.0
"""Seconds of --for, below what a test may take."""


@dataclass(frozen=True)
class Told:
    """What came of a rehearsal. `after` is in seconds from the planted fault to the end of it all,
    None where no fault was planted; `load` is how many processes there were for each CPU."""

    code: int
    out: bytes
    err: str
    report: Mapping[str, Any]
    left: tuple[str, ...]
    after: float | None
    load: float
    folder: str

    def findings(self, *statuses: str) -> list[dict[str, Any]]:
        return [f for f in self.report.get("findings", ()) if f["status"] in statuses]

    @property
    def command(self) -> Mapping[str, Any]:
        """How the command itself ended, as the report has it."""
        seen = next(iter(self.report["observations"]["job.ranks"].values()))
        return dict(seen["ok"]["command"])

    def shown(self) -> str:
        """For a test that fails."""
        findings = json.dumps(self.report.get("findings"), indent=1)
        return f"exit {self.code}, {self.after} s\n{findings}\n{self.err[-3000:]}"


def rehearse(row: Row, python: Path = Path(sys.executable)) -> Told:
    """Run `preflight rehearse … -- launcher script` in a folder of its own; both by this Python."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lock").touch()
        os.mkfifo(folder / "fifo")
        (folder / "in").write_bytes(ARGUMENTS_ON_STDIN)
        planted, report = folder / "planted", folder / "report.json"
        path = [str(command.REPOSITORY), *([str(SCRIPTS / row.path)] if row.path else [])]
        environ = {"PLANTED": str(planted), "PYTHONPATH": os.pathsep.join(path)}
        if row.gpus:
            environ |= nvml.environment(dict(row.gpus), folder / "scenario")
        with (folder / "in").open("rb") as given, (folder / "out").open("wb") as out:
            # a shorter one is part of the row
            limit = min(LONGEST, row.limit * slower()) if row.limit >= LIMIT else row.limit
            running = command.start(
                "rehearse",
                *("--stuck", f"{row.stuck:g}s", "--for", f"{limit:.0f}s", "-o", f"json={report}"),
                *("--", *argv(row, folder, python)),
                python=(str(python),),
                env=environ,
                stdin=given,
                stdout=out,
                cwd=folder,
            )
            done = running.end(limit + END_SECONDS)
        return Told(
            code=done.code,
            out=(folder / "out").read_bytes(),
            err=done.err,
            report=json.loads(report.read_bytes()) if report.exists() else {},
            left=done.left,
            after=time.time() - planted.stat().st_mtime if planted.exists() else None,
            load=os.getloadavg()[0] / (os.cpu_count() or 1),
            folder=name,
        )


def argv(row: Row, folder: Path, python: Path) -> Iterator[str]:
    """The command of a row."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    known = {
        "torchrun": python.with_name("torchrun"),
        "python": python,
        "nproc": row.nproc,
        "port": port,
        "folder": folder,
    }
    for word in (*row.launcher, str(SCRIPTS / f"{row.script}.py"), *row.args):
        yield word.format_map(known)
