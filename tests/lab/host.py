"""Machines made of namespaces, to break one and see what preflight says of it.

    with Lab(Machine("n1", setup="ip link set lo down")) as lab:
        ended = lab["n1"].run(["preflight", "run"], timeout=20)
        ended.code, ended.out, ended.seconds

A machine is one process of ours with a network, a host name, mounts, IPC and processes of its own.
It has eth0 on a switch that all machines of the lab share, and of its own: /proc, /sys, /dev,
/dev/shm, /etc (a copy), /run, and SCRATCH, a folder in memory that everybody may write. It reads
from a pipe whose other end we alone hold: when we end, however we do, it ends, and the kernel with
it all its processes, interfaces and mounts. Nothing has a name outside, so labs don't meet.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("machine.sh")
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "ip")
UP_SECONDS = 20.0
NOBODY = 65534

# a resolver that asks nobody: names are in /etc/hosts or they are not there
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
NO_DNS = "# none\n"

ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:"
    "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
"""What a command finds: nothing of the environment in which the tests run."""


@dataclass(frozen=True, slots=True)
class Machine:
    """How one machine is to be. `setup` is shell (`sh -eu`) that it runs as root, in its scratch
    folder, once its network is up; `hosts` and `resolv` are its /etc/hosts, less its own name, and
    its /etc/resolv.conf."""

    name: str = "n1"
    setup: str = ""
    shm: str = "2g"
    hosts: str = HOSTS
    resolv: str = NO_DNS


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended; `code` is None for one that did not in time: then its machine was
    ended, and all that it had started with it."""

    code: int | None
    out: str
    err: str
    seconds: float


@dataclass(slots=True)
class Host:
    """A machine that is up. `process` is in all its namespaces but the one of processes, into which
    only its children are born."""

    machine: Machine
    address: str
    scratch: str
    process: subprocess.Popen[str]
    beside: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = "", user: int = 0
    ) -> list[str]:
        """`argv` as something that runs there, and dies when what runs it here is killed."""
        pid = self.process.pid
        enter = ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net"]
        enter += [f"--pid=/proc/{pid}/ns/pid_for_children", "--"]
        become = ["setpriv", "--pdeathsig", "KILL"]
        if user:
            become += [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        variables = [f"{name}={value}" for name, value in env.items()]
        return [*enter, *become, "--", "env", "-i", "-C", cwd or self.scratch, *variables, *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: int = 0,
    ) -> Ended:
        """Run a command with exactly this environment (ENVIRONMENT where none is given)."""
        began = time.monotonic()
        process = self._start(argv, env, cwd, user)
        try:
            out, err = process.communicate(timeout=timeout)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = process.communicate()
            code = None
        return Ended(code, out, err, time.monotonic() - began)

    def start(self, argv: Sequence[str], *, ready: float = 20.0, user: int = 0) -> None:
        """Start what runs beside; it has to print a line as soon as it is ready."""
        process = self._start(argv, None, "", user)
        self.beside.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        if not select.select([process.stdout], [], [], ready)[0] or not process.stdout.readline():
            process.kill()
            raise RuntimeError(f"{list(argv)!r:.200} is not ready: {process.stderr.read()[-2000:]}")

    def _start(
        self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str, user: int
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(argv, ENVIRONMENT if env is None else env, cwd, user),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the machine and wait until it is gone."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        for process in self.beside:
            process.kill()
            process.communicate(timeout=5)


class Lab:
    """The machines, on one switch, as a context."""

    def __init__(self, *machines: Machine) -> None:
        self._machines = machines or (Machine(),)
        self._hosts: dict[str, Host] = {}
        self._folder = ""

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> Lab:
        self._folder = tempfile.mkdtemp(prefix="preflight-lab-")
        os.chmod(self._folder, 0o755)
        try:
            switch = self._boot(Machine("switch"), "")
            self._go(switch, "")
            for number, machine in enumerate(self._machines, 1):
                host = self._boot(machine, str(number))
                self._plug(switch, host, number)
            for number, machine in enumerate(self._machines, 1):
                self._go(self._hosts[machine.name], str(number))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for host in reversed(self._hosts.values()):
            host.close()
        self._hosts.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _boot(self, machine: Machine, number: str) -> Host:
        """The machine with everything but its network and its setup."""
        scratch = Path(self._folder, machine.name)
        scratch.mkdir()
        own = [f"10.77.0.{number} {machine.name}\n"] if number else []
        given = [machine.name, str(scratch), machine.shm, machine.setup]
        given += [machine.hosts + "".join(own), machine.resolv]
        namespaces = ["--net", "--uts", "--mount", "--ipc", "--pid", "--mount-proc"]
        process = subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--kill-child", "sh", "-eu", str(SCRIPT), *given],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        host = Host(machine, f"10.77.0.{number}", str(scratch), process)
        self._hosts[machine.name] = host
        self._await(host, "up")
        return host

    def _go(self, host: Host, number: str) -> None:
        assert host.process.stdin is not None
        host.process.stdin.write(number + "\n")
        host.process.stdin.flush()
        self._await(host, "ready")

    @staticmethod
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

    @staticmethod
    def _plug(switch: Host, host: Host, number: int) -> None:
        """eth0 of the host, by a cable to the switch."""
        lines = f"""
            link add port{number} type veth peer name eth0 netns {host.process.pid}
            link set port{number} master br0 up
        """
        enter = ["nsenter", f"--target={switch.process.pid}", "--net", "--", "ip", "-batch", "-"]
        subprocess.run(enter, input=lines, text=True, check=True, timeout=10, env=ENVIRONMENT)


def missing(*tools: str) -> str:
    """Why there can be no lab here, or why it lacks one of these tools; empty when it can be."""
    if sys.platform != "linux" or os.geteuid():
        return "a lab of namespaces needs root on Linux"
    lacking = [tool for tool in (*TOOLS, *tools) if not shutil.which(tool)]
    if lacking:
        return f"not installed here: {', '.join(lacking)}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        timeout=10,
    )
    return f"namespaces are refused here: {tried.stderr.strip()}" if tried.returncode else ""
