"""One machine of the lab: how it is to be, and what can be done with it while it is up."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lab.faults import Break
from lab.net import LOCALHOST
from lab.running import Ended, Running, end

if TYPE_CHECKING:
    from lab.host import Lab

BREAK_SECONDS = 20.0
BESIDE_SECONDS = 60.0
"""Until a program is ready, torch's among them on a busy machine."""
NOBODY = 65534
SWITCH = "switch"

# a resolver that asks nobody: names are in /etc/hosts or they are not there
HOSTS = LOCALHOST
NO_DNS = "# none\n"

ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:"
    "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PREFLIGHT_SITECUSTOMIZE": "keep",  # stand-ins and sabotage come as one
}
"""What a command finds: nothing of the environment in which the tests run."""

NAMESPACES = ("--net", "--uts", "--mount", "--ipc", "--pid")
MORTAL = ("setpriv", "--pdeathsig", "KILL", "--")
"""Starts what dies with whoever started it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """How one machine is to be.

    name      by which the lab calls it, and its host name where `hostname` is not another one
    setup     shell (`sh -eu`) that it runs as root, in its scratch folder, once its network is up
    hosts     its /etc/hosts, less the names of the lab's machines
    resolv    its /etc/resolv.conf; without one, and among others, its /etc/hosts answers reverse
              lookups, too
    shm       the size of its /dev/shm
    nics      how many interfaces it has: ethN is on switch N, in a subnet of its own
    versions  of IP that it speaks
    mtu       of its interfaces and of the switch's ports for them
    address   of its eth0, where it is not to be the next one of the lab's subnet
    clock     by how many seconds its time of day is ahead (lab/skew.c says what of it)
    limits    of each command: {"nofile": "1024"}, as prlimit(1) calls and writes them
    """

    name: str = "n1"
    setup: str = ""
    shm: str = "2g"
    hosts: str = HOSTS
    resolv: str = NO_DNS
    hostname: str = ""
    nics: int = 1
    versions: tuple[int, ...] = (4, 6)
    mtu: int = 1500
    address: str = ""
    clock: float = 0.0
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Host:
    """A machine that is up. `process` is in all its namespaces but the one of processes, into which
    only its children are born; `user` says how nsenter gets into its user namespace. `address` is
    by which the others call it, `port` its eth0 on the switch."""

    machine: Machine
    address: str
    scratch: str
    process: subprocess.Popen[str]
    user: Sequence[str] = ()
    port: str = ""
    lab: Lab | None = None
    beside: list[subprocess.Popen[str]] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    broken_by: dict[Break, list[subprocess.Popen[str]]] = field(default_factory=dict)

    def command(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = "", user: int = 0
    ) -> list[str]:
        """`argv` as something that runs there, and dies when what runs it here is killed."""
        pid = self.process.pid
        enter = [*MORTAL, "nsenter", f"--target={pid}", *self.user, *NAMESPACES[:-1]]
        enter += [f"--pid=/proc/{pid}/ns/pid_for_children", "--"]
        become = ["setpriv", "--pdeathsig", "KILL"]
        if user:
            become += [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        become.append("--")
        if limits := self.machine.limits:
            become += ["prlimit", *(f"--{name}={value}" for name, value in limits.items()), "--"]
        variables = [f"{name}={value}" for name, value in env.items()]
        return [*enter, *become, "env", "-i", "-C", cwd or self.scratch, *variables, *argv]

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
            process.kill()  # nsenter: it is stopped where the command is
            out, err = process.communicate()
            code = None
        return Ended(code, out, err, time.monotonic() - began)

    def begin(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        cwd: str = "",
        user: int = 0,
    ) -> Running:
        """Begin a command, to look after it while it runs."""
        env = ENVIRONMENT if env is None else env
        running = Running.begun(self.command(argv, env, cwd, user), ENVIRONMENT)
        self.running.append(running)
        return running

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

    def sh(self, script: str) -> str:
        """Run shell there as root, in the scratch folder; what it said. It has to succeed."""
        ended = self.run(["sh", "-euc", script], timeout=BREAK_SECONDS)
        if ended.code != 0:
            raise RuntimeError(f"{self.machine.name}: {script}: {ended.out}{ended.err}")
        return ended.out

    def break_(self, *breaks: Break) -> None:
        """Break it."""
        assert self.lab is not None
        for item in breaks:
            self.broken_by[item] = []
            for host, shell, beside in (
                *((host, item.everywhere, ()) for host in self.lab),
                (self, item.shell, item.beside),
                (self.lab[SWITCH], item.switch, item.switch_beside),
            ):
                if shell:
                    host.sh(shell.replace("{port}", self.port))
                if beside:
                    argv = [word.replace("{port}", self.port) for word in beside]
                    host.start(argv, ready=BESIDE_SECONDS)
                    self.broken_by[item].append(host.beside[-1])

    def mend(self, item: Break) -> None:
        """Undo what break_ did."""
        assert self.lab is not None
        for process in self.broken_by.pop(item):
            end(process)
        if item.switch_undo:
            self.lab[SWITCH].sh(item.switch_undo.replace("{port}", self.port))
        if item.undo:
            self.sh(item.undo)

    @contextmanager
    def broken(self, *breaks: Break) -> Iterator[None]:
        """Break it for a while."""
        self.break_(*breaks)
        try:
            yield
        finally:
            for item in reversed(breaks):
                self.mend(item)

    def processes(self) -> dict[int, str]:
        """The command lines of all that runs there, by process id as it sees them: the two of the
        machine itself, of what runs beside, of commands and of what these have left behind."""
        rows = [line.split(None, 1) for line in self.sh("exec ps -e -o pid=,args=").splitlines()]
        return {int(pid): args for pid, args in rows if not args.startswith("ps -e -o")}

    def crash(self) -> None:
        """As when its power fails, but its kernel still closes its connections."""
        self.process.kill()
        self.process.wait(10)

    def release(self) -> None:
        """Let go of it, so that it ends."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def close(self) -> None:
        """End the machine and wait until it is gone."""
        self.release()
        # first, as the machine waits for all that is in it, and nobody waits for what is stopped
        for running in self.running:
            running.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        for process in self.beside:
            process.kill()
            process.communicate(timeout=5)
