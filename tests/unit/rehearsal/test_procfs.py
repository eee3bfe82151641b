"""What the kernel says of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from preflight.rehearsal import procfs


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("os.abort()", -6)])
def test_how_a_process_ended_that_somebody_else_has_waited_for(code: str, status: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os\n{code}"])
    descriptor = os.pidfd_open(process.pid)
    try:
        process.wait(20)
        release = tuple(int(part) for part in os.uname().release.split(".")[:2])
        assert procfs.reaped_status(descriptor) == (status if release >= (6, 15) else None)
    finally:
        os.close(descriptor)


def test_a_zombie_tells_its_status() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = procfs.stat(process.pid)
    assert found is not None
    assert (found.ended, procfs.exit_status(found.code)) == (True, 3)
    process.wait()
    assert procfs.stat(process.pid) is None


def test_how_long_a_process_was_on_a_cpu_and_waited_for_one() -> None:
    before = procfs.on_cpu(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    now = procfs.on_cpu(os.getpid())
    assert now[0] == before[0] == 0.0 or now[0] - before[0] > 0.05  # not all kernels count
    assert now[1] >= before[1]
    assert procfs.on_cpu(1 << 22) == (0.0, 0.0)
