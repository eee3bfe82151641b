"""The lab of many hosts: they find each other and are apart, commands run, nothing stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import faults
from lab.host import NOBODY, Command, Lab, Machine
from lab.probe import (
    N1,
    N2,
    OPEN,
    ask,
    four,
    possible,
    probe,
    python,
    said,
)

MEET = """
import socket, sys, time
others = [a for a in (f"10.77.0.{n}" for n in range(1, 33)) if a != sys.argv[1]]
server, kept = socket.create_server(("", 9), backlog=64), []
for other in others:
    while True:
        try:
            kept.append(socket.create_connection((other, 9), 5))
            break
        except ConnectionRefusedError:  # it does not listen yet
            time.sleep(0.02)
kept += [server.accept() for _ in others]
print("met")
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    possible("nft", "tc", "ps")


@pytest.fixture(scope="module")
def lab(_possible: None) -> Iterator[Lab]:
    with four() as made:
        yield made


# --- machines ---


def test_four_are_up_at_once() -> None:
    def seconds() -> float:
        began = time.monotonic()
        with Lab(*(Machine(f"n{n}") for n in range(4))):
            return time.monotonic() - began

    # 0.15 s where nothing else runs; the best of some, as others may be at work here
    assert min(seconds() for _ in range(3)) < 1


def test_they_know_each_other_by_name_and_address(lab: Lab) -> None:
    names = [machine.sh("hostname; cat /etc/hostname").split() for machine in lab]
    assert names == [[f"n{n}"] * 2 for n in (1, 2, 3, 4)]
    assert [machine.address for machine in lab] == [f"10.77.0.{n}" for n in (1, 2, 3, 4)]
    for machine in lab:
        found, backwards, *connected = probe(
            machine,
            ("look_up", "n2"),
            ("reverse", "::ffff:" + N2),
            ("connect", "n2", OPEN),
            ("connect", N1, OPEN),
            ("connect", "fd77::1", OPEN),
        )
        assert found[0] == [N2]
        assert backwards == "n2.lab"
        assert connected == ["ok"] * 3


def test_each_is_a_machine_of_its_own(lab: Lab) -> None:
    identities = "cat /etc/machine-id /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net"
    said = [machine.sh(identities).split() for machine in lab]
    assert len({word for words in said for word in words}) == 3 * 4
    assert all(len(words[0]) == 32 for words in said)
    with pytest.raises(RuntimeError, match="Read-only"):
        lab["n1"].sh("cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness")


def test_machines_that_are_different() -> None:
    with Lab(
        Machine("n1", nics=2, mtu=9000, limits={"nofile": "77"}, resolv="nameserver 10.9.9.9\n"),
        Machine("n2", nics=2, mtu=9000, hostname="n1", shm="1m", setup=faults.DOCKER),
        Machine("n3", address="192.168.50.77", versions=(4,)),
        subnet="192.168.50.0/24",
    ) as lab:
        assert lab["n1"].sh("ulimit -n").strip() == "77"
        assert lab["n2"].sh("hostname").strip() == "n1"
        assert lab["n2"].sh("df --output=size /dev/shm | tail -1").strip() == "1024"
        assert lab["n2"].sh("ls /sys/class/net").split() == ["docker0", "eth0", "eth1", "lo"]
        assert lab["n3"].sh("ls /proc/net/if_inet6; cat /proc/net/if_inet6").split()[1:] == []
        assert [m.address for m in lab] == ["192.168.50.1", "192.168.50.2", "192.168.50.77"]
        assert "::ffff:" not in lab["n1"].sh("cat /etc/hosts")
        lab["n2"].break_(faults.echo_server(OPEN))
        seconds = probe(lab["n1"], *(("echo", f"192.168.{n}.2", OPEN, 60000) for n in (50, 51)))
        assert all(isinstance(each, float) for each in seconds)
        assert lab["n1"].sh("cat /sys/class/net/eth1/mtu").strip() == "9000"


def test_ipv6_only() -> None:
    with Lab(*(Machine(name, versions=(6,)) for name in ("n1", "n2")), named=(6, 4)) as lab:
        lab["n2"].break_(faults.echo_server(OPEN))
        assert lab["n2"].address == "fd77::2"
        found, connected = probe(lab["n1"], ("look_up", "n2"), ("connect", "n2", OPEN))
        assert (found[0], connected) == (["fd77::2"], "ok")
        assert "10.77" not in lab["n1"].sh("ip addr")


def test_clocks_differ() -> None:
    with Lab(Machine("n1"), Machine("n2", clock=90), Machine("n3", clock=-3600.5)) as lab:
        read = {m.machine.name: (ask(m, "clocks"), time.time(), time.monotonic()) for m in lab}
        ahead = {name: said[0] - ours for name, (said, ours, _) in read.items()}
        assert ahead == pytest.approx({"n1": 0, "n2": 90, "n3": -3600.5}, abs=10)
        assert all(said[1] == pytest.approx(ours, abs=10) for said, _, ours in read.values())
        assert int(lab["n2"].sh("date +%s")) == pytest.approx(time.time() + 90, abs=10)
        assert "LD_PRELOAD" not in lab["n2"].sh("env")


def test_thirty_two_machines() -> None:
    """More than the kernel's one table of neighbours has room for when all talk to all."""
    with Lab(*(Machine(f"n{n}") for n in range(1, 33))) as lab:
        ended = lab.run_all(
            {m.machine.name: Command(python(MEET, m.address)) for m in lab}, timeout=30
        )
        assert {"met\n"} == {each.out for each in ended.values()}, ended


def test_machines_need_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="different names"):
        Lab(Machine("n1"), Machine("n1"))


# --- commands ---


def test_commands_on_all_at_once(lab: Lab) -> None:
    def command(script: str) -> Command:
        return Command(["sh", "-c", script], {"WHO": "me", "PATH": "/usr/bin:/bin"})

    began = time.monotonic()
    ended = lab.run_all(
        {
            "n1": command("echo $WHO on $(hostname); exit 3"),
            "n2/0": command("echo begun; echo bad >&2; (sleep 98; true) & wait"),
            "n2/1": command("true"),
        },
        timeout=1.5,
    )
    assert (ended["n1"].code, ended["n1"].out) == (3, "me on n1\n")
    assert ended["n1"].seconds < 1.5
    assert (ended["n2/0"].code, ended["n2/0"].out, ended["n2/0"].err) == (None, "begun\n", "bad\n")
    assert ended["n2/1"].code == 0
    assert time.monotonic() - began < 10
    assert not [args for args in lab["n2"].processes().values() if "sleep 98" in args]


def test_a_command_that_is_stopped_and_killed(lab: Lab) -> None:
    n3 = lab["n3"]
    running = n3.begin(["sh", "-c", "echo $$; while :; do echo x; sleep 0.02; done"])
    said(running, "x\nx")
    assert running.pid == int(running.out.split()[0])
    assert running.pid in n3.processes()
    running.stop()
    time.sleep(0.1)
    before = running.out
    assert running.wait(0.2).code is None
    assert running.out == before
    running.cont()
    said(running, before + "x")
    running.stop()
    running.kill()
    assert running.wait(5).code == -signal.SIGKILL


def test_a_machine_that_crashes() -> None:
    """Whoever has a connection to it is told: that is what tells a crash from silence."""
    listen = "import socket; s = socket.create_connection(('10.77.0.2', 29500)); "
    listen += "print('up', flush=True); s.recv(1)"
    with Lab(Machine("n1"), Machine("n2")) as lab:
        lab["n2"].break_(faults.silent_server(OPEN))
        running = lab["n1"].begin(python(listen))
        said(running, "up")
        assert running.wait(0.2).code is None
        lab["n2"].crash()
        assert running.wait(10).code == 0, running.err


# --- what stays, and who may ---

# a lab with a command that runs and one that is stopped, until it is killed or told to go
PROGRAM = f"""
import json, os, sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from lab import faults, host
from lab.host import Lab, Machine
if why := host.missing("nft"):
    print(json.dumps({{"why": why}}), flush=True)
    raise SystemExit
with Lab(Machine("n1", shm="1m", clock=90), Machine("n2")) as lab:
    lab["n2"].break_(faults.drop_port(7), faults.own_name_is(), faults.rate(9))
    if os.access(os.path.realpath(sys.executable), os.X_OK):  # not when it is in /root
        lab["n2"].break_(faults.delay(1))
    lab["n1"].begin(["sleep", "97"])
    stopped = lab["n2"].begin(["sleep", "97"])
    stopped.stop()
    nets = [os.readlink(f"/proc/{{m.process.pid}}/ns/net") for m in (*lab, lab["switch"])]
    said = {{"uid": os.getuid(), "folder": os.path.dirname(lab["n1"].scratch), "nets": nets,
            "id": lab["n1"].sh("id -u").strip(), "name": lab["n2"].sh("hostname").strip(),
            "date": int(lab["n1"].sh("date +%s")), "seen": lab["n1"].sh("getent hosts n2").split(),
            "null": lab["n1"].sh("echo x > /dev/null; head -c 3 /dev/zero | wc -c").strip()}}
    print(json.dumps(said), flush=True)
    sys.stdin.readline()
"""


def as_nobody() -> list[str]:
    """What starts a command without root."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv here: nothing can be run as another user")
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


def whoever() -> list[str]:
    return []


def traces(said: dict[str, Any]) -> list[str]:
    """What is left of a lab: processes of its machines, and namespaces with interfaces in them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if said["folder"].encode() in (process / "cmdline").read_bytes():
                found.append(str(process))
            elif os.readlink(process / "ns/net") in said["nets"]:
                found.append(f"{process} {(process / 'cmdline').read_bytes()!r}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found + [said["folder"]] * os.path.exists(said["folder"])


@pytest.mark.parametrize("end", ["it is killed", "it ends"])
@pytest.mark.parametrize("who", [whoever, as_nobody])
def test_nothing_stays(who: Callable[[], list[str]], end: str) -> None:
    owner = subprocess.Popen(
        [*who(), sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        line = owner.stdout.readline()
        if not line:
            pytest.fail(owner.communicate(timeout=10)[1])
        said = json.loads(line)
        if "why" in said:
            pytest.skip(f"without root: {said['why']}")
        assert said["uid"] == (os.getuid() if who is whoever else os.getuid() or NOBODY)
        assert (said["id"], said["name"], said["null"]) == ("0", "n2", "3")
        assert said["seen"] == [N2, "n2"]
        assert said["date"] == pytest.approx(time.time() + 90, abs=10)
        assert len(traces(said)) > 5
        if end == "it is killed":
            owner.kill()
        else:
            owner.communicate("\n", timeout=20)
            assert owner.returncode == 0
        until = time.monotonic() + 10
        while (left := traces(said)) and time.monotonic() < until:
            time.sleep(0.02)
        assert not left
    finally:
        owner.kill()
        owner.communicate(timeout=10)
