"""Call a function in a process with a deadline; the only kill() of the parent.

    workers = Workers()
    workers.fork("light")                                   # a fork server (see worker.py)
    call = workers.call("light", function, args, seconds=2.0)   # in a module's top level
    for ended in workers.run(until=time.monotonic() + 5): … ended.result
    left_behind = workers.close()

Every call ends in one of four results (call.py). A worker that outlives its deadline gets SIGTERM,
then SIGKILL, both to its whole process group; one that survives even that (state D, inside a driver
or a dead file system) is left behind and named, the caller goes on. Nothing here waits without
bound. Facts: subprocess.run(timeout=…) leaves grandchildren alive and waits forever for what it
killed.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from preflight.cpu_wait import cpu_wait, ready_since
from preflight.model import LeftBehind
from preflight.process.call import (
    ANSWER_LIMIT,
    TAIL,
    Call,
    Died,
    Raised,
    Result,
    Returned,
    State,
    Stream,
    Target,
    TimedOut,
    Told,
    name_of,
    unobserved,
)
from preflight.process.forkserver import ForkServer
from preflight.process.refused import why_refused

__all__ = [
    "Call",
    "Died",
    "Raised",
    "Result",
    "Returned",
    "Stream",
    "Target",
    "TimedOut",
    "Workers",
]

STARVED_PAUSE, STARVED_MOST = 0.05, 1.0
"""Seconds for which a worker that is ready at its deadline may wait for a CPU, looked at by turns:
only when it gets one the kernel tells for how long it had none."""
TERM_GRACE = 0.3
KILL_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, and between SIGKILL and giving up."""
EXIT_GRACE = 0.5
"""Seconds that a worker may take to end after it has answered."""
FORK_LIMIT = 10.0
"""Seconds within which a server that is ready must have forked what it was asked for."""
LEAVE_GRACE = 0.2
"""Seconds for a server to leave by itself at the end."""
NOT_STARTED = "can't be started"
"""What is said of a server that never was, in `preloaded()`."""
NO_PYTHON = "can't be used as the job's Python"
OURS = "preflight."
"""Our own modules are imported beside what a server is named after; nobody need know them."""
SAID_LIMIT = 16384
"""Lines that the ranks of one check may say to each other."""


class Workers:
    """The processes of one run: fork servers and the calls in flight. Main thread only (a worker
    is tied to the thread that started its server)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._servers: dict[str, ForkServer] = {}
        self._calls: dict[int, Call] = {}
        self._ids = itertools.count(1)
        self._said: dict[str, list[Told]] = {}
        self._watched = 0
        self._woken = False
        self.heard: list[tuple[str, Told]] = []
        """(group, what was told) by workers of ours, for whoever passes it on to other agents; only
        kept while `relaying`."""
        self.relaying = False
        self._afterwards: dict[str, list[Mapping[str, Any]]] = {}
        self._left_behind: list[LeftBehind] = []
        self._finished: list[Call] = []
        self._became_ready = False
        self._wake, self.wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """wake_fd: for signal.set_wakeup_fd, so that a signal ends a wait in run()."""
        self._selector.register(self._wake, selectors.EVENT_READ)

    # --- servers ---

    def open(
        self,
        name: str,
        *,
        preload: tuple[str, ...] = (),
        seconds: float = 30.0,
        env: Mapping[str, str] | None = None,
        parent: str = "",
        python: str = "",
    ) -> None:
        """Start a fork server that imports `preload`, in an interpreter of its own, or with
        `parent` as a fork of that server once it is ready. `seconds` bounds the imports; calls
        wait for them with their own deadline stopped. `python`: another interpreter than ours, or
        interpreter.SEARCH for the job's where ours lacks the first module of `preload`."""
        server = self._add(ForkServer(name, preload=preload, eager=not preload, parent=parent))
        server.due = server.began + seconds
        if not parent:
            self._begin(server, lambda: server.start(env or {}, python))
        elif problem := server.fork_from(self._servers[parent], next(self._ids)):
            self._lose(self._servers[parent], problem)

    def fork(self, name: str) -> None:
        """Start a fork server that is a fork of this very process: no interpreter to start, nothing
        to import again. Only while this process has one thread and holds nothing of torch, CUDA or
        NVML, which is so at all times in preflight's own."""
        server = self._add(ForkServer(name, preload=(), eager=True, parent=""))
        self._begin(server, server.fork)
        for message in self._afterwards.get(name, ()):
            server.request(message)

    def afterwards(self, name: str, target: Callable[[Any], object], args: Any) -> None:
        """Have a server call `target(args)` when it leaves, as the last one: at close(), and also
        when this process is killed. It may be started later; one that never is calls nothing."""
        message = {"op": "afterwards", "target": name_of(target), "args": args}
        self._afterwards.setdefault(name, []).append(message)
        if name in self._servers and not self._servers[name].lost:
            self._servers[name].request(message)

    def _begin(self, server: ForkServer, how: Callable[[], None]) -> None:
        """A limit on processes or memory is no reason to end: its calls will say so."""
        try:
            how()
        except OSError as error:
            if error.errno == errno.EAGAIN:
                self._lose(server, why_refused(error))
            else:
                self._lose(server, f"the {server.name} fork server {NOT_STARTED}: {error}")

    def _add(self, server: ForkServer) -> ForkServer:
        self._servers[server.name] = server
        self._selector.register(server.control, selectors.EVENT_READ, server)
        self._selector.register(server.output, selectors.EVENT_READ, server)
        return server

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
            late = {"seconds": seconds, "cpu_wait": server.cpu_wait}
            return {"": {**late, "error": server.lost, "absent": False}}
        return server.ready

    def importing(self, name: str) -> tuple[float, float] | None:
        """Since when (monotonic) a server is at its imports and how many seconds it has for them;
        None where it is not."""
        server = self._servers.get(name)
        if server is None or server.lost or server.ready is not None:
            return None
        return server.began, server.due - server.began

    # --- calls ---

    def call(
        self,
        server: str,
        target: Target,
        args: Any,
        *,
        seconds: float,
        label: str = "",
        group: str = "",
        rank: int = 0,
        env: Mapping[str, str] | None = None,
        unset: tuple[str, ...] = (),
        limit: int = ANSWER_LIMIT,
        stream: Stream | None = None,
        takes: Callable[[Any], object] | None = None,
    ) -> Call:
        """Have `target(args, channel, preloaded)` called in a fork of `server`. Calls of one
        `group` hear what each other say; `limit`: bytes of its answer; `stream`: what it is to have
        besides its arguments, and `takes` has what it says, for a call of no group."""
        name = name_of(target)
        request = {
            "op": "fork",
            "id": next(self._ids),
            "target": name,
            "args": args,
            "seconds": seconds,
            "rank": rank,
            "env": dict(env or {}),
            "unset": list(unset),
        }
        call = Call(
            request["id"],
            server,
            label or name,
            request,
            seconds,
            group,
            rank,
            limit,
            stream,
            takes,
        )
        self._calls[call.id] = call
        if self._servers[server].lost:
            self._end(call)
        elif self._servers[server].eager or self._servers[server].ready is not None:
            self._ask(call)
        return call

    def tell(self, group: str, told: Told) -> None:
        """What an observer elsewhere told this group: pass it on to those of its calls that are
        meant, also to those that are forked later."""
        said = self._said.setdefault(group, [])
        if len(said) < SAID_LIMIT:
            said.append(told)
        line = told.line
        for call in self._calls.values():
            if call.group == group and call.pid and told.meant_for(call.rank):
                self._tell(call, line)

    def watch(
        self, file: socket.socket | io.FileIO, events: int, wake: Callable[[int], None]
    ) -> None:
        """Call `wake` with the events of a socket or a pipe, out of run(), which then returns."""
        if file in self._selector.get_map():
            self._selector.modify(file, events, wake)
        else:
            self._selector.register(file, events, wake)
            self._watched += 1

    def unwatch(self, file: socket.socket | io.FileIO) -> None:
        if file.fileno() >= 0 and file in self._selector.get_map():
            self._selector.unregister(file)
            self._watched -= 1

    def run(self, until: float, wake: Callable[[], bool] = lambda: False) -> Iterator[Call]:
        """Let things happen until `until` (monotonic), or until `wake()` says so, yielding each
        call when it has ended. Returns early when a server has become ready, when something came
        over a watched socket, or when nothing is in flight any more."""
        self._became_ready = self._woken = False
        while True:
            while self._finished:
                yield self._finished.pop(0)
            now = time.monotonic()
            if now >= until or wake() or self._became_ready or self._woken or not self.busy:
                return
            due = min(
                [until]
                + [c.due for c in self._calls.values()]
                + [s.due for s in self._servers.values()]
            )
            for key, events in self._selector.select(max(0.0, due - now)):
                self._receive(key, events)
            self._keep_time(time.monotonic())

    @property
    def busy(self) -> bool:
        """Whether a call is in flight or a server is still importing."""
        importing = any(server.importing for server in self._servers.values())
        return bool(self._calls or self._finished or importing or self._watched)

    @property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        """What could not be killed so far."""
        return tuple(self._left_behind)

    def close(self) -> tuple[LeftBehind, ...]:
        """End all workers and servers; what could not be killed is returned."""
        for call in self._calls.values():
            _signal_group(call.pid, signal.SIGKILL)
        until = time.monotonic() + KILL_GRACE
        # who clears away what another may still be making comes after that one
        for last in (False, True):
            servers = [s for s in self._servers.values() if (s.name in self._afterwards) is last]
            for server in servers:
                server.control.close()  # then it kills its own and leaves
            for server in servers:
                self._see_off(server, until + KILL_GRACE * last)
        for call in self._calls.values():
            while _alive(call.pid) and time.monotonic() < until:
                time.sleep(0.002)  # a busy one is seen once more before SIGKILL takes it
            self._leave_behind(_alive(call.pid))
            call.close_files()
        self._selector.close()
        os.close(self._wake)
        os.close(self.wake_fd)
        return self.left_behind

    # --- what happens ---

    def _see_off(self, server: ForkServer, until: float) -> None:
        """Wait for a server to leave, kill it when it doesn't, give up at `until`."""
        patience = KILL_GRACE if server.name in self._afterwards else LEAVE_GRACE
        gentle = time.monotonic() + patience
        killed = False
        while server.pid and _running(server):
            now = time.monotonic()
            if now > gentle and not killed:
                _signal_group(server.pid, signal.SIGKILL)
                killed = True
            if now > until:
                self._leave_behind(_alive(server.pid))
                break
            time.sleep(0.002)
        os.close(server.output)

    def _leave_behind(self, left: LeftBehind | None) -> None:
        if left is not None:
            self._left_behind.append(left)

    def _lose(self, server: ForkServer, why: str) -> None:
        """A server is gone: so are its workers (they are tied to it), and its queue."""
        if server.lost:
            return
        if (fate := server.fate()) and fate not in why:  # a dead one is also one that takes nothing
            why = f"the {server.name} fork server died {fate}"
        if server.output in self._selector.get_map():
            server.tail = self._read_output(server.output, server.tail)
        if server.python:
            why = f"{server.python} {NO_PYTHON}: {why}"
        server.lost = f"{why}\n{server.tail.decode(errors='replace').strip()}".strip()
        server.due = float("inf")
        if server.control in self._selector.get_map():
            self._selector.unregister(server.control)
        _signal_group(server.pid, signal.SIGKILL)
        for call in [c for c in self._calls.values() if c.server == server.name]:
            _signal_group(call.pid, signal.SIGKILL)
            self._end(call)
        for child in self._servers.values():
            if child.parent == server.name and child.importing:
                self._lose(child, why)

    def _receive(self, key: selectors.SelectorKey, events: int) -> None:
        owner = key.data
        if owner is None:
            os.read(self._wake, 4096)
        elif callable(owner):
            self._woken = True
            owner(events)
        elif isinstance(owner, ForkServer):
            if key.fileobj is owner.control:
                self._hear_server(owner)
            else:
                owner.tail = self._read_output(owner.output, owner.tail)
        elif key.fileobj is owner.line:
            if events & selectors.EVENT_WRITE:
                self._tell(owner)
            if events & selectors.EVENT_READ:
                self._hear(owner)
        elif owner.output >= 0:
            owner.tail = self._read_output(owner.output, owner.tail)

    def _hear_server(self, server: ForkServer) -> None:
        messages = server.messages()
        if messages is None:
            self._lose(server, f"the {server.name} fork server died")
            return
        for message in messages:
            if "ready" in message:
                server.ready = message["ready"]
                server.due = float("inf")
                self._became_ready = True
                for child in self._servers.values():
                    if child.parent == server.name and child.importing:
                        child.due += time.monotonic() - child.began  # it begins now
                for call in list(self._calls.values()):
                    if call.server == server.name and call.state is State.QUEUED:
                        self._ask(call)
            elif "python" in message:
                server.python = str(message["python"])[:TAIL]
            elif "forked" in message:
                self._forked(message["forked"], message["pid"], server)
            elif "exited" in message:
                self._exited(server, message["exited"], message["code"])

    def _forked(self, request_id: int, pid: int, server: ForkServer) -> None:
        call = self._calls.get(request_id)
        if call is None:
            children = (s for s in self._servers.values() if s.parent == server.name and not s.pid)
            if child := next(children, None):
                child.pid = pid
            return
        if not pid:  # no process could be had; the answer says why
            self._drain(call)
            self._end(call)
            return
        call.pid = pid
        if call.state is State.ASKED:
            call.state = State.RUNNING
            call.began = time.monotonic()
            call.due = call.began + call.seconds
            if call.answer is not None:  # it came by another socket, and before this message
                call.state = State.ANSWERED
                call.due = call.began + EXIT_GRACE
            for told in self._said.get(call.group, ()):
                if told.meant_for(call.rank):
                    self._tell(call, told.line)

    def _exited(self, server: ForkServer, pid: int, code: int) -> None:
        _signal_group(pid, signal.SIGKILL)  # grandchildren; the zombie still holds the pid
        call = next((c for c in self._calls.values() if c.pid == pid), None)
        if call is not None:
            call.code = code
            self._drain(call)
            self._end(call)
        if problem := server.request({"op": "release", "pid": pid}):
            self._lose(server, problem)

    def _ask(self, call: Call) -> None:
        try:
            theirs, write = call.open_files()
        except OSError as error:  # too many open files
            call.answer = unobserved(f"no process can be had: {error}")
            self._end(call)
            return
        assert call.line is not None
        self._selector.register(call.line, selectors.EVENT_READ, call)
        self._selector.register(call.output, selectors.EVENT_READ, call)
        call.state = State.ASKED
        call.began = time.monotonic()
        call.due = call.began + FORK_LIMIT
        server = self._servers[call.server]
        request, more = call.asked()
        problem = server.request(request, (theirs.fileno(), write))
        theirs.close()
        os.close(write)
        if problem:
            self._lose(server, problem)
        elif more or call.has_more:
            self._tell(call, more)

    def _tell(self, call: Call, line: bytes = b"") -> None:
        """Send to a worker what it takes now; the rest once it can be written again."""
        call.tell(line)
        if call.line is not None and call.line in self._selector.get_map():
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if call.has_more else 0)
            if events != self._selector.get_key(call.line).events:
                self._selector.modify(call.line, events, call)

    def _read_output(self, descriptor: int, tail: bytes) -> bytes:
        """Take what a process wrote to its standard streams, keeping the end of it."""
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return tail
        if not data and descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        return (tail + data)[-TAIL:]

    def _drain(self, call: Call) -> None:
        """What an ended worker had still sent: bounded by what a socket and a pipe can hold."""
        while self._hear(call):
            pass
        for _ in range(64):
            before = call.tail
            if call.output in self._selector.get_map():
                call.tail = self._read_output(call.output, call.tail)
            if call.tail == before:
                break

    def _hear(self, call: Call) -> bool:
        """Take one chunk from a worker and pass on what it says; False when there is none."""
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
        for told in call.understand(data):
            if call.takes is not None:
                call.takes(told.value)
            elif call.group:
                self.tell(call.group, told)
                if self.relaying and len(self.heard) < SAID_LIMIT:
                    self.heard.append((call.group, told))
                    self._woken = True
        if call.answer is not None and call.state is State.RUNNING:
            call.state = State.ANSWERED
            call.due = time.monotonic() + (0.0 if call.flooded else EXIT_GRACE)
        if call.flooded:
            self._selector.unregister(call.line)
        return not call.flooded

    def _keep_time(self, now: float) -> None:
        """Do what is due: SIGTERM, SIGKILL, giving up."""
        for call in list(self._calls.values()):
            if now < call.due:
                continue
            if call.state is State.ASKED:
                call.overdue = True
                self._lose(self._servers[call.server], f"no fork within {FORK_LIMIT:.0f} s")
            elif call.state is State.RUNNING and _starves(call, now):
                call.due = now + STARVED_PAUSE
            elif call.state is State.RUNNING:
                call.overdue = True
                call.cpu_wait = cpu_wait(f"/proc/{call.pid}/schedstat")
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
            if now >= server.due and server.importing:
                foreign = [name for name in server.preload if not name.startswith(OURS)]
                names = ", ".join(foreign) or "the interpreter"
                waited = now - server.began
                server.cpu_wait = cpu_wait(f"/proc/{server.pid}/schedstat")
                self._lose(server, f"importing {names} did not end within {waited:.0f} s")

    def _end(self, call: Call, left: LeftBehind | None = None) -> None:
        """Make the result and give the call to run()."""
        if call.state is State.ENDED:
            return
        call.state = State.ENDED
        self._leave_behind(left)
        seconds = time.monotonic() - call.began if call.began else 0.0
        call.result = call.conclude(seconds, left, self._servers[call.server].lost)
        for file in (call.line, call.output):
            if file is not None and file != -1 and file in self._selector.get_map():
                self._selector.unregister(file)
        call.close_files()
        self._calls.pop(call.id, None)
        self._finished.append(call)


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Only ever called with 0 (not started yet: nothing happens) or the pid of a process that we
    started and that is not reaped yet."""
    if pid:
        try:
            os.killpg(pid, number)
        except OSError:
            pass


def _running(server: ForkServer) -> bool:
    running = server.running()
    return _alive(server.pid) is not None if running is None else running


def _starves(call: Call, now: float) -> bool:
    """Whether a worker at its deadline waits for a CPU at this moment."""
    ran = ready_since(call.pid)
    since, before = call.starved or (now, -1)
    if ran is None or before not in (-1, ran) or now - since > STARVED_MOST:
        return False
    call.starved = since, ran
    return True


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
