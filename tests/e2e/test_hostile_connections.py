"""Crowds of hostile connections, at the host of a meeting and in its place: the job meets, or ends
in time; nobody shows a traceback, and the host's memory stays small. CONNECTIONS=20000 for a crowd
as large as SECURITY.md promises."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from lab.host import ENVIRONMENT, Lab, Machine, missing

COUNT = int(os.environ.get("CONNECTIONS", "1500"))
PORT = 29500
CROWD = Path(__file__).parents[1] / "lab/crowd_of_strangers.py"
LIGHT = ("--only", "host.limits,rdzv.reach,agree.env")
MEMORY = 150 << 10
"""KiB of the host, at most."""

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def agent(number: int, *more: str) -> list[str]:
    preflight = str(Path(sys.executable).with_name("preflight"))
    words = [preflight, "run", "--nproc", "1", "--nodes", "2", "--node-rank", str(number), *LIGHT]
    return [*words, *more]


def test_a_crowd_at_the_host() -> None:
    env = {**ENVIRONMENT, "MASTER_ADDR": "n1", "MASTER_PORT": str(PORT)}
    seconds = ("--deadline", "100s", "--arrive", "90s")
    with Lab(Machine("n1"), Machine("n2"), Machine("n3")) as lab:
        host = lab["n1"].begin(agent(0, *seconds), env)
        crowd = lab["n3"].begin([sys.executable, str(CROWD), "n1", str(PORT), str(COUNT)])
        most = 0
        while not crowd.over:
            most = max(most, peak(host._born()))
            time.sleep(0.05)
        assert crowd.ended().code == 0, crowd.err
        assert str(COUNT) in crowd.out
        guest = lab["n2"].begin(agent(1, *seconds), env)
        ended = [host.wait(60.0), guest.wait(60.0)]
    assert [e.code for e in ended] == [0, 0], ended
    assert 0 < most < MEMORY
    assert f"{COUNT} strangers" in ended[0].out
    assert not any("Traceback" in e.err + e.out for e in ended)


def peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) if lines else 0


def test_a_crowd_in_its_place() -> None:
    """What answers at MASTER_ADDR is hostile: the guest gives up in time."""
    env = {**ENVIRONMENT, "MASTER_ADDR": "n1", "MASTER_PORT": str(PORT)}
    with Lab(Machine("n1"), Machine("n2")) as lab:
        lab["n1"].start([sys.executable, str(CROWD), "serve", str(PORT)])
        ended = lab["n2"].run(agent(1, "--deadline", "20s", "--arrive", "8s"), timeout=60, env=env)
    assert ended.code in (3, 4, 5), ended
    assert ended.seconds < 20 + 2 + 4
    assert "Traceback" not in ended.err + ended.out
