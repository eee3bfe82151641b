"""Machines made of namespaces, to break one and see what preflight says of it.

    with Lab(Machine("n1"), Machine("n2", clock=90)) as lab:
        lab["n1"].break_(drop_port(29500))                       # faults.py has what can be broken
        ended = lab["n2"].run(["preflight", "run"], timeout=20)
        ended.code, ended.out, ended.seconds

A machine is one process of ours with a network, a host name, mounts, IPC and processes of its own.
It has eth0 on a switch that all machines of the lab share, and of its own: /proc, /sys, /dev,
/dev/shm, /etc (a copy), /run, a boot id, and SCRATCH, a folder in memory that everybody may write.
It reads from a pipe whose other end we alone hold: when we end, however we do, it ends, and the
kernel with it all its processes, interfaces and mounts. Nothing has a name outside, so labs don't
meet. Without root all this is in a user namespace, where there is no other user than root.
"""

from __future__ import annotations

import functools
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from lab.library import built
from lab.machine import ENVIRONMENT, HOSTS, NAMESPACES, NO_DNS, NOBODY, SWITCH, Host, Machine
from lab.net import Network, Station, port
from lab.running import Command, Ended

__all__ = ["ENVIRONMENT", "HOSTS", "NOBODY", "Command", "Ended", "Host", "Lab", "Machine"]

SCRIPT = Path(__file__).with_name("machine.sh")
TOOLS = ("unshare", "nsenter", "setpriv", "prlimit", "mount", "ip")
UP_SECONDS = 20.0
USER = ("--user", "--preserve-credentials")
"""How nsenter gets into the user namespace of a lab that was made without root."""


class Lab:
    """The machines, on one switch, as a context. `named` is under which of their addresses, IPv4
    or IPv6 or both in that order, /etc/hosts has them."""

    def __init__(
        self,
        *machines: Machine,
        subnet: str = "10.77.0.0/16",
        subnet6: str = "fd77::/64",
        named: tuple[int, ...] = (4,),
    ) -> None:
        self._machines = machines or (Machine(),)
        names = [machine.name for machine in self._machines]
        if len({*names, SWITCH}) != len(names) + 1:
            raise ValueError(f"machines need different names, and none is {SWITCH}: {names}")
        stations = [
            Station(n, m.hostname or m.name, m.versions, m.nics, m.mtu, m.address)
            for n, m in enumerate(self._machines, 1)
        ]
        self.network = Network(IPv4Network(subnet), IPv6Network(subnet6), named, stations)
        self._hosts: dict[str, Host] = {}
        self._folder = ""
        self._root: subprocess.Popen[str] | None = None

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        """The machines, without the switch."""
        return (self._hosts[machine.name] for machine in self._machines)

    def __enter__(self) -> Lab:
        self._folder = tempfile.mkdtemp(prefix="preflight-lab-")
        os.chmod(self._folder, 0o755)
        try:
            if os.geteuid():
                self._root = _rooted()
            self._boot(Machine(SWITCH), None)
            for machine, station in zip(self._machines, self.network.stations, strict=True):
                self._boot(machine, station)
            for host in self._hosts.values():
                _await(host, "up")
            self._connect()
            for host in self._hosts.values():
                assert host.process.stdin is not None
                host.process.stdin.write("go\n")
                host.process.stdin.flush()
            for host in self._hosts.values():
                _await(host, "ready")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for host in self._hosts.values():
            host.release()
        for host in reversed(self._hosts.values()):
            host.close()
        self._hosts.clear()
        if self._root is not None:
            self._root.communicate(timeout=5)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run_all(self, commands: Mapping[str, Command], *, timeout: float) -> dict[str, Ended]:
        """Begin all of them at once and wait for all. A key is the name of a machine, with
        `/anything` behind it where one runs several. What has not ended in time is killed with all
        that is below it, and its code is None."""
        until = time.monotonic() + timeout
        begun = {
            key: self[key.partition("/")[0]].begin(
                command.argv, command.env, cwd=command.cwd, user=command.user
            )
            for key, command in commands.items()
        }
        while time.monotonic() < until and any(not running.over for running in begun.values()):
            time.sleep(0.005)
        ended = {key: running.ended() for key, running in begun.items()}
        for running in begun.values():
            running.end()
        return ended

    def _boot(self, machine: Machine, station: Station | None) -> None:
        """The machine with everything but its network and its setup."""
        scratch = Path(self._folder, machine.name)
        scratch.mkdir()
        alone = len(self._machines) == 1
        names = self.network.hosts(reverse=machine.resolv == NO_DNS and not alone)
        setup = machine.setup
        if 6 not in machine.versions:
            setup = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6\n" + setup
        given = [machine.hostname or machine.name, str(scratch), machine.shm, setup]
        given += [machine.hosts + names, machine.resolv, str(uuid.uuid4())]
        given += [str(built("skew.c", "skew.so")) if machine.clock else "", str(machine.clock)]
        user = [f"--target={self._root.pid}", *USER] if self._root else []
        enter = ["nsenter", *user, "--"] if user else []
        unshare = ["unshare", *NAMESPACES, "--mount-proc", "--fork", "--kill-child"]
        process = subprocess.Popen(
            [*enter, *unshare, "sh", "-eu", str(SCRIPT), *given],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        host = Host(machine, self.network.gateway(), str(scratch), process, USER if user else ())
        host.lab = self
        if station:
            host.address, host.port = self.network.primary(station), port(station.number)
        self._hosts[machine.name] = host

    def _connect(self) -> None:
        """The cables, then the addresses at both ends."""
        switch = self._hosts[SWITCH]
        _finish([_ip(switch, self.network.switch([host.process.pid for host in self]))])
        stations = zip(self, self.network.stations, strict=True)
        _finish([_ip(host, self.network.machine(station)) for host, station in stations])


def _rooted() -> subprocess.Popen[str]:
    """A user namespace in which we are root, as long as we live."""
    process = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "sh", "-c", "echo; cat"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError("no user namespace")
    return process


def _await(host: Host, word: str) -> None:
    """The machine's own word that it got there; what else it says is why it did not."""
    assert host.process.stdout is not None
    stream, said = host.process.stdout.fileno(), ""
    until = time.monotonic() + UP_SECONDS
    while (left := until - time.monotonic()) > 0 and select.select([stream], [], [], left)[0]:
        piece = os.read(stream, 1 << 16)
        said += piece.decode(errors="replace")
        if said.endswith(word + "\n"):
            return
        if not piece:
            break
    raise RuntimeError(f"{host.machine.name} did not come {word}: {said[-2000:]}")


def _ip(host: Host, lines: str) -> tuple[subprocess.Popen[str], str]:
    """These lines of ip(8) there, to be finished."""
    enter = ["nsenter", f"--target={host.process.pid}", *host.user, "--net", "--"]
    process = subprocess.Popen(
        [*enter, "ip", "-batch", "-"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return process, lines


def _finish(begun: Sequence[tuple[subprocess.Popen[str], str]]) -> None:
    for process, lines in begun:
        said, _ = process.communicate(lines, timeout=UP_SECONDS)
        if process.returncode:
            raise RuntimeError(f"ip: {said[-2000:]} in\n{lines[:2000]}")


@functools.cache
def _refused() -> str:
    """Why the kernel does not make such machines for us; empty when it does."""
    user = ["--user", "--map-root-user"] if os.geteuid() else []
    tried = subprocess.run(
        [
            "unshare",
            *user,
            *NAMESPACES,
            "--mount-proc",
            "--fork",
            "mount",
            "-t",
            "sysfs",
            "s",
            "/sys",
        ],
        capture_output=True,
        text=True,
        timeout=10,
    )
    return f"namespaces are refused here: {tried.stderr.strip()}" if tried.returncode else ""


def missing(*tools: str) -> str:
    """Why there can be no lab here, or why it lacks one of these tools; empty when it can be."""
    if sys.platform != "linux":
        return "a lab of namespaces needs Linux"
    lacking = [tool for tool in (*TOOLS, *tools) if not shutil.which(tool)]
    return f"not installed here: {', '.join(lacking)}" if lacking else _refused()
