"""Call a function in a process with a deadline; the only kill() in the project.

    workers = Workers()
    workers.open("light")                                   # a fork server (see _worker.py)
    call = workers.call("light", "package.module:function", args, seconds=2.0)
    for ended in workers.run(until=time.monotonic() + 5): … ended.result
    left_behind = workers.close()

Every call ends in one of four results. A worker that outlives its deadline gets SIGTERM, then
SIGKILL, both to its whole process group; one that survives even that (state D, inside a driver or
a dead file system) is left behind and named, the caller goes on. Nothing here waits without bound.
Facts: subprocess.run(timeout=…) leaves grandchildren alive and waits for ever for what it killed.
"""

from __future__ import annotations

import array
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from preflight import _worker
from preflight.model import LeftBehind, Mark

ANSWER_LIMIT = 8 << 20
"""Bytes that one worker may send in all; more is no answer."""
TAIL = 8192
"""Bytes kept of the end of a worker's stderr."""
TERM_GRACE = 0.3
KILL_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, and between SIGKILL and giving up."""
EXIT_GRACE = 0.5
"""Seconds that a worker may take to end after it has answered."""
FORK_LIMIT = 10.0
"""Seconds within which a server that is ready must have forked what it was asked for."""


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any
    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Killed at its deadline; `left_behind` when even that did not end it."""

    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""
    left_behind: LeftBehind | None = None


@dataclass(frozen=True, slots=True)
class Died:
    """Ended without an answer. `code` is the exit status, negative for a signal; None: the process
    that should have forked it is gone."""

    code: int | None
    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    kind: str
    message: str
    traceback: str
    seconds: float
    marks: tuple[Mark, ...]
    stderr: str = ""


Result = Returned | TimedOut | Died | Raised


class State(Enum):
    QUEUED = "queued"  # its server is not ready yet
    ASKED = "asked"
    RUNNING = "running"
    ANSWERED = "answered"
    TERMINATED = "terminated"  # SIGTERM sent
    KILLED = "killed"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Call:
    """One function call in one process; `result` is there once it has ended."""

    id: int
    server: str
    label: str
    request: Mapping[str, Any]
    seconds: float
    group: str = ""
    rank: int = 0
    state: State = State.QUEUED
    pid: int = 0
    began: float = 0.0
    due: float = float("inf")
    marks: list[Mark] = field(default_factory=list)
    result: Result | None = None
    line: socket.socket | None = None
    output: int = -1
    answer: Mapping[str, Any] | None = None
    code: int | None = None
    received: int = 0
    rest: bytes = b""
    unsent: bytes = b""
    tail: bytes = b""
    overdue: bool = False


@dataclass(slots=True, eq=False)
class _Server:
    name: str
    control: socket.socket
    output: int
    pid: int = 0
    process: subprocess.Popen[bytes] | None = None
    forked: bool = False
    parent: str = ""
    preload: tuple[str, ...] = ()
    due: float = float("inf")
    began: float = 0.0
    eager: bool = True
    ready: Mapping[str, Any] | None = None
    lost: str = ""
    rest: bytes = b""
    tail: bytes = b""


class Workers:
    """The processes of one run: fork servers and the calls in flight. Main thread only (a worker
    is tied to the thread that started its server)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._servers: dict[str, _Server] = {}
        self._calls: dict[int, Call] = {}
        self._ids = itertools.count(1)
        self._said: dict[str, list[bytes]] = {}
        self._left_behind: list[LeftBehind] = []
        self._finished: list[Call] = []
        self._became_ready = False
        self._wake, self.wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """wake_fd: for signal.set_wakeup_fd, so that a signal ends a wait in run()."""
        self._selector.register(self._wake, selectors.EVENT_READ)

    # --- what the runner uses ---

    def open(
        self,
        name: str,
        *,
        preload: tuple[str, ...] = (),
        seconds: float = 30.0,
        env: Mapping[str, str] | None = None,
        parent: str = "",
        eager: bool = False,
    ) -> None:
        """Start a fork server that imports `preload`; with `parent` as a fork of that server, once
        it is ready. `seconds` bounds the preload. Calls wait for the preload with their deadline
        stopped, unless `eager` says that it is short."""
        server, theirs, write = self._add_server(name, preload, eager or not preload, parent)
        server.due = server.began + seconds
        if parent:
            self._request(
                self._servers[parent],
                {"op": "server", "id": next(self._ids), "preload": list(preload), "name": name},
                (theirs.fileno(), write),
            )
        else:
            arguments = [str(theirs.fileno()), str(os.getpid()), ",".join(preload)]
            server.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "preflight._worker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
            server.pid = server.process.pid
        theirs.close()
        os.close(write)

    def fork(self, name: str) -> None:
        """Start a fork server that is a fork of this very process: no interpreter to start, nothing
        to import again. Only while this process has one thread and holds nothing of torch, CUDA or
        NVML, which is so at all times in preflight's own."""
        server, theirs, write = self._add_server(name, (), eager=True, parent="")
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _worker.become_server(theirs, write, parent)
        server.pid = pid
        server.forked = True
        theirs.close()
        os.close(write)

    def _add_server(
        self, name: str, preload: tuple[str, ...], eager: bool, parent: str
    ) -> tuple[_Server, socket.socket, int]:
        """A server's record, and its own ends of its control socket and its output pipe."""
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        ours.setblocking(False)
        os.set_blocking(read, False)
        server = _Server(name, ours, read, parent=parent, preload=preload, eager=eager)
        server.began = time.monotonic()
        self._servers[name] = server
        self._selector.register(ours, selectors.EVENT_READ, server)
        self._selector.register(read, selectors.EVENT_READ, server)
        return server, theirs, write

    def opened(self, name: str) -> bool:
        return name in self._servers

    def preloaded(self, name: str) -> Mapping[str, Any] | None:
        """How the imports of a server went; None while it is still at them. An entry `""` with an
        error says that the server itself was lost."""
        server = self._servers.get(name)
        if server is None:
            return None
        if server.lost:
            seconds = time.monotonic() - server.began
            return {"": {"seconds": seconds, "error": server.lost, "absent": False}}
        return server.ready

    def call(
        self,
        server: str,
        target: str,
        args: Any,
        *,
        seconds: float,
        label: str = "",
        group: str = "",
        rank: int = 0,
        env: Mapping[str, str] | None = None,
        unset: tuple[str, ...] = (),
    ) -> Call:
        """Have `target(args, channel, preloaded)` called in a fork of `server`. Calls of one
        `group` hear what each other say."""
        request = {
            "op": "fork",
            "id": next(self._ids),
            "target": target,
            "args": args,
            "seconds": seconds,
            "rank": rank,
            "env": dict(env or {}),
            "unset": list(unset),
        }
        call = Call(request["id"], server, label or target, request, seconds, group, rank)
        self._calls[call.id] = call
        if self._servers[server].lost:
            self._end(call)
        elif self._servers[server].eager or self._servers[server].ready is not None:
            self._ask(call)
        return call

    def run(self, until: float, wake: Callable[[], bool] = lambda: False) -> Iterator[Call]:
        """Let things happen until `until` (monotonic), or until `wake()` says so, yielding each
        call when it has ended. Returns early when a server has become ready, or when nothing is in
        flight any more."""
        self._became_ready = False
        while True:
            while self._finished:
                yield self._finished.pop(0)
            now = time.monotonic()
            if now >= until or wake() or self._became_ready or not self.busy:
                return
            due = min(
                [until]
                + [c.due for c in self._calls.values()]
                + [s.due for s in self._servers.values()]
            )
            for key, _ in self._selector.select(max(0.0, due - now)):
                self._receive(key)
            self._keep_time(time.monotonic())

    @property
    def busy(self) -> bool:
        """Whether a call is in flight or a server is still importing."""
        importing = any(s.ready is None and not s.lost for s in self._servers.values())
        return bool(self._calls or self._finished or importing)

    @property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        """What could not be killed so far."""
        return tuple(self._left_behind)

    def in_flight(self) -> tuple[Call, ...]:
        return tuple(self._calls.values())

    def stop(self, call: Call) -> None:
        """End a call now; it comes out of run() as TimedOut."""
        if call.state in (State.QUEUED, State.ASKED):
            call.overdue = True
            self._end(call)
        elif call.state in (State.RUNNING, State.ANSWERED):
            call.due = 0.0

    def close(self) -> tuple[LeftBehind, ...]:
        """End all workers and servers; what could not be killed is returned."""
        for call in list(self._calls.values()):
            if call.pid:
                _signal_group(call.pid, signal.SIGKILL)
        for server in self._servers.values():
            server.control.close()  # a server whose control socket closes kills its own and leaves
        until = time.monotonic() + KILL_GRACE
        for server in self._servers.values():
            self._close_server(server, until)
        for call in list(self._calls.values()):
            if call.pid and (left := _alive(call.pid)):
                self._left_behind.append(left)
            self._close_files(call)
        self._selector.close()
        os.close(self._wake)
        os.close(self.wake_fd)
        return tuple(self._left_behind)

    # --- servers ---

    def _close_server(self, server: _Server, until: float) -> None:
        """Bounded: a fifth of a second for it to leave by itself, then SIGKILL."""
        gentle = time.monotonic() + 0.2
        killed = False
        while server.pid and _running(server):
            now = time.monotonic()
            if now > gentle and not killed:
                _signal_group(server.pid, signal.SIGKILL)
                killed = True
            if now > until:
                if left := _alive(server.pid):
                    self._left_behind.append(left)
                break
            time.sleep(0.002)
        os.close(server.output)

    def _request(self, server: _Server, message: Mapping[str, Any], fds: tuple[int, ...]) -> None:
        data = json.dumps(message).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        server.control.setblocking(True)
        server.control.settimeout(1.0)
        try:
            sent = server.control.sendmsg([data], rights)
            if sent < len(data):
                server.control.sendall(data[sent:])
        except OSError as error:
            self._lose(server, f"the {server.name} fork server takes no requests: {error}")
        finally:
            if server.control.fileno() >= 0:
                server.control.setblocking(False)

    def _lose(self, server: _Server, why: str) -> None:
        """A server is gone: so are its workers (they are tied to it), and its queue."""
        if server.lost:
            return
        tail = server.tail.decode(errors="replace").strip()
        server.lost = f"{why}\n{tail}".strip()
        server.due = float("inf")
        if server.control in self._selector.get_map():
            self._selector.unregister(server.control)
        if server.pid:
            _signal_group(server.pid, signal.SIGKILL)
        for call in [c for c in self._calls.values() if c.server == server.name]:
            if call.pid:
                _signal_group(call.pid, signal.SIGKILL)
            self._end(call)
        for child in self._servers.values():
            if child.parent == server.name and child.ready is None:
                self._lose(child, why)

    def _server_spoke(self, server: _Server) -> None:
        try:
            data = server.control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(server, f"the {server.name} fork server died {_fate(server)}".strip())
            return
        *lines, server.rest = (server.rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                server.ready = message["ready"]
                self._became_ready = True
                server.due = float("inf")
                for call in list(self._calls.values()):
                    if call.server == server.name and call.state is State.QUEUED:
                        self._ask(call)
            elif "forked" in message:
                self._forked(message["forked"], message["pid"], server)
            elif "exited" in message:
                self._exited(server, message["exited"], message["code"])

    def _forked(self, request_id: int, pid: int, server: _Server) -> None:
        call = self._calls.get(request_id)
        if call is None:
            child = next((s for s in self._servers.values() if s.parent == server.name), None)
            if child is not None and not child.pid:
                child.pid = pid
            return
        call.pid = pid
        if call.state is State.ASKED:
            call.state = State.RUNNING
            call.began = time.monotonic()
            call.due = call.began + call.seconds
            for line in self._said.get(call.group, ()):
                self._tell(call, line)

    def _exited(self, server: _Server, pid: int, code: int) -> None:
        _signal_group(pid, signal.SIGKILL)  # grandchildren; the zombie still holds the pid
        call = next((c for c in self._calls.values() if c.pid == pid), None)
        if call is not None:
            call.code = code
            self._drain(call)
            self._end(call)
        self._request(server, {"op": "release", "pid": pid}, ())

    # --- calls ---

    def _ask(self, call: Call) -> None:
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        ours.setblocking(False)
        os.set_blocking(read, False)
        call.line, call.output = ours, read
        self._selector.register(ours, selectors.EVENT_READ, call)
        self._selector.register(read, selectors.EVENT_READ, call)
        call.state = State.ASKED
        call.began = time.monotonic()
        call.due = call.began + FORK_LIMIT
        self._request(self._servers[call.server], call.request, (theirs.fileno(), write))
        theirs.close()
        os.close(write)

    def _receive(self, key: selectors.SelectorKey) -> None:
        owner = key.data
        if owner is None:
            os.read(self._wake, 4096)
        elif isinstance(owner, _Server):
            if key.fileobj is owner.control:
                self._server_spoke(owner)
            else:
                owner.tail = self._read_output(owner.output, owner.tail)
        elif key.fileobj is owner.line:
            self._worker_spoke(owner)
        elif owner.output >= 0:
            owner.tail = self._read_output(owner.output, owner.tail)

    def _read_output(self, descriptor: int, tail: bytes) -> bytes:
        """Take what a process wrote to its standard streams, keeping the end of it."""
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return tail
        if not data:
            self._selector.unregister(descriptor)
        return (tail + data)[-TAIL:]

    def _drain(self, call: Call) -> None:
        """What an ended worker had still sent."""
        while call.line is not None and self._worker_spoke(call):
            pass
        for _ in range(64):
            if call.output not in self._selector.get_map():
                break
            before = call.tail
            call.tail = self._read_output(call.output, call.tail)
            if call.tail == before:
                break

    def _worker_spoke(self, call: Call) -> bool:
        """Take one chunk from a worker; False when there is none."""
        if call.line is None or call.line not in self._selector.get_map():
            return False
        try:
            data = call.line.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(call.line)
            return False
        call.received += len(data)
        if call.received > ANSWER_LIMIT:
            call.answer = _invalid(f"more than {ANSWER_LIMIT} bytes of answer")
            call.rest = b""
            call.due = 0.0
            self._selector.unregister(call.line)
            return False
        *lines, call.rest = (call.rest + data).split(b"\n")
        for line in lines:
            if call.answer is None:
                self._understand(call, line)
        return True

    def _understand(self, call: Call, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            call.answer = _invalid("its answer is not a JSON object")
        elif "mark" in message:
            if len(call.marks) < 1000:
                call.marks.append(Mark(str(message["mark"])[:200], _number(message.get("at"))))
            return
        elif "say" in message:
            told = {"heard": message["say"], "rank": call.rank, "value": message.get("value")}
            heard = json.dumps(told).encode() + b"\n"
            said = self._said.setdefault(call.group, [])
            if len(said) < 4096:
                said.append(heard)
            for other in self._calls.values():
                if other is not call and other.group == call.group and call.group and other.pid:
                    self._tell(other, heard)
            return
        else:
            call.answer = message
        if call.state is State.RUNNING:
            call.state = State.ANSWERED
            call.due = time.monotonic() + EXIT_GRACE

    def _tell(self, call: Call, line: bytes) -> None:
        """Send to a worker what fits into its socket now; a worker that doesn't read loses it."""
        if call.line is None or call.line not in self._selector.get_map():
            return
        call.unsent += line
        try:
            call.unsent = call.unsent[call.line.send(call.unsent) :]
        except OSError:
            pass
        if len(call.unsent) > ANSWER_LIMIT:
            call.unsent = b""

    def _keep_time(self, now: float) -> None:
        for call in list(self._calls.values()):
            if call.unsent:
                self._tell(call, b"")
            if now < call.due:
                continue
            if call.state in (State.QUEUED, State.ASKED):
                call.overdue = True
                self._lose(self._servers[call.server], f"no fork within {FORK_LIMIT:.0f} s")
            elif call.state is State.RUNNING:
                call.overdue = True
                call.state = State.TERMINATED
                call.due = now + TERM_GRACE
                _signal_group(call.pid, signal.SIGTERM)
            elif call.state in (State.ANSWERED, State.TERMINATED):
                call.state = State.KILLED
                call.due = now + KILL_GRACE
                _signal_group(call.pid, signal.SIGKILL)
            elif call.state is State.KILLED:
                self._drain(call)
                self._end(call, _alive(call.pid))
        for server in list(self._servers.values()):
            if now >= server.due and server.ready is None:
                names = ", ".join(server.preload) or "the interpreter"
                waited = now - server.began
                self._lose(server, f"importing {names} did not end within {waited:.0f} s")

    def _end(self, call: Call, left: LeftBehind | None = None) -> None:
        """Make the result and give the call to run()."""
        if call.state is State.ENDED:
            return
        call.state = State.ENDED
        seconds = time.monotonic() - call.began if call.began else 0.0
        marks = tuple(call.marks)
        tail = call.tail.decode(errors="replace")
        answer = call.answer
        if left is not None:
            self._left_behind.append(left)
        raised = (answer or {}).get("raised")
        if isinstance(raised, dict):
            kind, message, trace = (
                str(raised.get(k, "")) for k in ("kind", "message", "traceback")
            )
            call.result = Raised(kind, message, trace, seconds, marks, tail)
        elif answer is not None and "value" in answer:
            call.result = Returned(answer["value"], seconds, marks, tail)
        elif call.overdue or left is not None:
            call.result = TimedOut(seconds, marks, tail, left)
        else:
            lost = self._servers[call.server].lost
            call.result = Died(call.code, seconds, marks, tail or lost)
        self._close_files(call)
        self._calls.pop(call.id, None)
        self._finished.append(call)

    def _close_files(self, call: Call) -> None:
        for file in (call.line, call.output):
            if file is not None and file != -1 and file in self._selector.get_map():
                self._selector.unregister(file)
        if call.line is not None:
            call.line.close()
            call.line = None
        if call.output >= 0:
            os.close(call.output)
            call.output = -1


def _invalid(why: str) -> Mapping[str, Any]:
    return {"raised": {"kind": "InvalidAnswer", "message": why, "traceback": ""}}


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Only ever called with the pid of a process that we started and that is not reaped yet."""
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def _running(server: _Server) -> bool:
    """Whether a server's process is still there (and reap it when it is ours)."""
    if server.process is not None:
        return server.process.poll() is None
    if server.forked:
        try:
            server.forked = os.waitpid(server.pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            server.forked = False
        return server.forked
    return _alive(server.pid) is not None


def _fate(server: _Server) -> str:
    if server.process is None:
        return ""
    try:
        return f"with exit code {server.process.wait(0.2)}"
    except subprocess.TimeoutExpired:
        return ""


def _alive(pid: int) -> LeftBehind | None:
    """State and kernel wait channel of a process that is still there; None when it is gone or a
    zombie. Reads only stat and wchan: unlike cmdline they never wait for the process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None
    if state in ("Z", "X"):
        return None
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            wchan = file.read(64).strip()
    except OSError:
        wchan = ""
    return LeftBehind(pid, state, "" if wchan == "0" else wchan)
