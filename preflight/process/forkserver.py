"""Our end of a fork server (worker.py is the other): starting it, asking it, losing it.

No deadlines are kept and nothing is killed here; pool.py does that.
"""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from preflight.process import bootstrap, worker

REQUEST_SECONDS = 4.0
"""How long a server may take to take a request. Small ones fill the socket of a stopped one only;
what a rehearsal has seen of a rank is larger than a socket's buffer, and on a busy machine the
server waits for a CPU before it reads on. Peers give up who is silent for 6 s."""

REAP_SECONDS = 1.0
"""How long what was killed may take to be gone."""


def reap_orphans() -> None:
    """As process 1 we are handed what a server that died has left: take its exit status, since who
    comes after us knows nothing of it. What was killed may still be on its way out; what is not
    ours, of a script that began the container, stays."""
    until = time.monotonic() + REAP_SECONDS
    try:
        while time.monotonic() < until:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.002)
    except ChildProcessError:
        pass  # there is none


class ForkServer:
    """One fork server. `ready` says how its imports went, None before; `lost` why it is gone.

    eager   it may be asked before it is ready: its imports are few
    parent  the server that it is to be a fork of
    python  the interpreter that it is about to become, as it says; empty once it has
    """

    def __init__(self, name: str, *, preload: tuple[str, ...], eager: bool, parent: str) -> None:
        self.name = name
        self.preload = preload
        self.eager = eager
        self.parent = parent
        self.began = time.monotonic()
        self.due = float("inf")
        self.pid = 0
        self.ready: Mapping[str, Any] | None = None
        self.lost = ""
        self.cpu_wait = 0.0
        self.tail = b""
        self.python = ""
        self.control, self._theirs = socket.socketpair()
        self.output, self._write = os.pipe()
        self.control.setblocking(False)
        os.set_blocking(self.output, False)
        self._process: subprocess.Popen[bytes] | None = None
        self._unreaped = False
        self._rest = b""

    def start(self, env: Mapping[str, str], python: str) -> None:
        """As an interpreter of its own; `python`: see Workers.open()."""
        arguments = [str(self._theirs.fileno()), str(os.getpid()), ",".join(self.preload)]
        arguments += [python, "", ""]
        words = [sys.executable, bootstrap.__file__, *arguments]
        if sys.flags.no_site:  # as we run ourselves: without what PYTHONPATH injects
            words = [sys.executable, "-S", *words[1:], os.pathsep.join(sys.path)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._write,
            stderr=self._write,
            pass_fds=(self._theirs.fileno(),),
            env={**os.environ, **env},
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._hand_over()

    def fork(self) -> None:
        """As a fork of this very process."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            worker.become_server(self._theirs, self._write, parent)
        self.pid = pid
        self._unreaped = True
        self._hand_over()

    def fork_from(self, parent: ForkServer, request_id: int) -> str:
        """As a fork of another server, once that is ready. Why not, or empty."""
        message = {"op": "server", "id": request_id, "preload": list(self.preload)}
        problem = parent.request(message, (self._theirs.fileno(), self._write))
        self._hand_over()
        return problem

    def _hand_over(self) -> None:
        """Close what is the server's now."""
        self._theirs.close()
        os.close(self._write)

    def request(self, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> str:
        """Ask for something; why the server takes no requests, or empty."""
        data = json.dumps(message).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self.control.settimeout(REQUEST_SECONDS)
        try:
            sent = self.control.sendmsg([data], rights if descriptors else [])
            if sent < len(data):
                self.control.sendall(data[sent:])
        except OSError as error:
            return f"the {self.name} fork server takes no requests: {error}"
        finally:
            if self.control.fileno() >= 0:
                self.control.setblocking(False)
        return ""

    def messages(self) -> list[dict[str, Any]] | None:
        """What it said since; None when it is gone."""
        try:
            data = self.control.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    @property
    def importing(self) -> bool:
        return self.ready is None and not self.lost

    def running(self) -> bool | None:
        """Whether its process is still there, reaping it when it is our child; None when it is
        not ours to ask."""
        if self._process is not None:
            return self._process.poll() is None
        if self._unreaped:
            try:
                self._unreaped = os.waitpid(self.pid, os.WNOHANG)[0] == 0
            except ChildProcessError:
                self._unreaped = False
            return self._unreaped
        return None

    def fate(self) -> str:
        """`with exit code 1` when that can be told by now."""
        if self._process is None:
            return ""
        try:
            return f"with exit code {self._process.wait(0.2)}"
        except subprocess.TimeoutExpired:
            return ""
