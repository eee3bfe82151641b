"""The lab: machines are apart from each other and from here, and nothing of them stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import host
from lab.host import Lab, Machine

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def _possible() -> None:
    if why := host.missing():
        pytest.skip(why)


def gone(path: Path, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while path.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return not path.exists()


def test_a_machine_of_its_own() -> None:
    ours = socket.gethostname()
    with Lab(Machine("a", setup="hostname other; touch /etc/mark; ip link set lo down")) as lab:
        seen = lab["a"].run(["sh", "-c", "hostname; ls /sys/class/net; ps -e | wc -l"], timeout=10)
        assert seen.out.split() == ["other", "eth0", "lo", "6"], seen
    assert socket.gethostname() == ours
    assert not Path("/etc/mark").exists()


def test_machines_reach_each_other() -> None:
    serve = (
        "import socket as s; x = s.create_server(('', 9)); print('ready', flush=True); x.accept()"
    )
    dial = "import socket as s; print(s.create_connection(('10.77.0.2', 9), 5).getsockname()[0])"
    with Lab(Machine("a"), Machine("b")) as lab:
        lab["b"].start([sys.executable, "-c", serve])
        assert lab["a"].run([sys.executable, "-c", dial], timeout=10).out == "10.77.0.1\n"


def test_a_command_that_does_not_end_is_ended_with_its_machine() -> None:
    began = time.monotonic()
    with Lab() as lab:
        ended = lab["n1"].run(["sh", "-c", "echo begun; sleep 100; true"], timeout=0.5)
    assert (ended.code, ended.out) == (None, "begun\n")
    assert time.monotonic() - began < 20


def test_orphans_are_reaped() -> None:
    orphan = "setsid sh -c 'sleep 0.1 & exec true'; sleep 0.5; ps -eo stat,comm"
    with Lab() as lab:
        assert "Z" not in lab["n1"].run(["sh", "-c", orphan], timeout=10).out


def test_a_setup_that_fails_is_said() -> None:
    with (
        pytest.raises(RuntimeError, match=r"n1 did not come ready: .*no-such-program"),
        Lab(Machine(setup="no-such-program")),
    ):
        pass


def test_nothing_stays_behind_whoever_dies() -> None:
    program = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from lab.host import Lab
with Lab() as lab:
    print(lab["n1"].process.pid, lab["switch"].process.pid, lab["n1"].scratch, flush=True)
    time.sleep(100)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        first, second, scratch = owner.stdout.readline().split()
        things = [Path("/proc", first), Path("/proc", second), Path(scratch).parent]
        assert all(thing.exists() for thing in things)
        os.kill(owner.pid, signal.SIGKILL)
        assert all(gone(thing) for thing in things)
    finally:
        owner.kill()
        owner.communicate(timeout=10)
