"""`preflight attach` as a user has it, and the processes of the jobs that it looks at."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from preflight.rehearsal import procfs


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def running(argv: list[str], **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A process and all that it starts, until the end of the test."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environ},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in list(
            procfs.descendants(process.pid)
        ):  # torchrun puts its ranks into groups of their own
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.communicate()


def lines_of(process: subprocess.Popen[str], count: int) -> list[str]:
    """Its first lines; the timeout of the test bounds the wait."""
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def attach(pid: int, bare: Mapping[str, str] | None = None) -> dict[str, Any]:
    environ = {**os.environ, **(bare or {})}
    python = environ.pop("python", sys.executable)
    ended = subprocess.run(
        [python, "-m", "preflight", "attach", str(pid), "-q", "-o", "json"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
        check=False,
    )
    assert ended.stdout, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def findings(report: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    return [
        (f["code"], f["status"], [r for s in f["subjects"] for r in s["ranks"]])
        for f in report["findings"]
        if f["status"] != "info"
    ]


def watched(report: Mapping[str, Any]) -> set[str]:
    return {o["ok"]["watched"] for o in report["observations"]["job.ranks"].values()}
