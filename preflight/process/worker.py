"""The other end of the pipe: a fork server, and what a forked worker does.

pool.py forks one of the agent itself for the light checks, and starts `python bootstrap.py FD` for
those that need torch: it imports torch (its preload) and runs nothing, so that a fork of it is a
process with torch loaded for the price of a fork. Where our Python has no torch, that process
becomes the job's Python first (interpreter.py). A server can fork a further server that loads more
(op "server"), without keeping its own callers waiting.

Control socket, JSON lines. To the server, with file descriptors attached:
    {"op": "fork", "id": 7, "target": "module:function", "args": …, "seconds": 5.0, "env": {…}}
    (with "args_follow" they are the first line on the worker's answer socket: {"args": …})
    {"op": "server", "id": 8, "preload": […]}      {"op": "release", "pid": 1234}
    {"op": "afterwards", "target": "module:function", "args": …}: called when it leaves
From the server:
    {"ready": {"torch": {"seconds": 0.8, "error": "", "absent": false, "version": …}}}
    {"python": "/opt/conda/bin/python"}: it becomes that one; "": it has
    {"forked": 7, "pid": 1234}      {"exited": 1234, "code": 0}
An ended worker stays a zombie until it is released: its pid can't be another's when it is killed.

Answer socket of a worker, JSON lines: {"mark": name, "at": s}, {"say": topic, "value": …} and at
last {"value": …} or {"raised": {"kind", "message", "traceback"}}; in: {"args": …} and {"heard",
"rank", "value"}, or in place of what is heard parts of a stream: the length of each as a line, then
its bytes, and 0 at the end, or -1 where it could not be made.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from preflight.cpu_wait import cpu_wait
from preflight.process import scratch
from preflight.process.refused import why_refused

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

LINE_LIMIT = 1 << 20
TEXT_LIMIT = 8192
CHUNK = 1 << 18

FORK_PATIENCE = 3.0
"""Seconds for which a fork that a limit on processes refuses is tried again while others of ours
are there, whose end makes room: below pool.FORK_LIMIT."""
RETRY_SECONDS = 0.05


class Channel:
    """A worker's line to the parent."""

    def __init__(self, line: socket.socket, rank: int) -> None:
        self._line = line
        self._rank = rank
        self._began = time.monotonic()
        self._rest = b""
        self._heard: dict[str, dict[int, Any]] = {}

    def fileno(self) -> int:
        """Readable when the parent has said something: for select and poll."""
        return self._line.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        self._line.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def args(self) -> Any:
        """The arguments, where they follow the request."""
        pieces: list[bytes] = []
        while not pieces or b"\n" not in pieces[-1]:
            chunk = self._line.recv(CHUNK)
            if not chunk:
                raise EOFError("the arguments never came")
            pieces.append(chunk)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return json.loads(line)["args"]

    def parts(self) -> Iterator[bytes]:
        """What follows the arguments, as it comes; EOFError where it breaks off."""
        while length := int(self._next_line()):
            if length < 0:
                raise EOFError("it could not be made")
            while length:
                part, self._rest = self._rest[:length], self._rest[length:]
                length -= len(part)
                if part:
                    yield part
                if length:
                    self._rest = self._more()

    def _next_line(self) -> bytes:
        while b"\n" not in self._rest:
            self._rest += self._more()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _more(self) -> bytes:
        chunk = self._line.recv(CHUNK)
        if not chunk:
            raise EOFError("it broke off")
        return chunk

    def mark(self, name: str) -> None:
        self.send({"mark": name[:200], "at": round(time.monotonic() - self._began, 4)})

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        if to is None or self._rank in to:
            self._heard.setdefault(topic, {})[self._rank] = value
        message = {"say": topic, "value": value}
        self.send(message if to is None else {**message, "to": list(to)})

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        until = time.monotonic() + seconds
        while len(self._heard.get(topic, {})) < count:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._line], [], [], left)[0]:
                break
            chunk = self._line.recv(65536)
            if not chunk:
                break
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                told = json.loads(line)
                self._heard.setdefault(told["heard"], {})[told["rank"]] = told["value"]
        return dict(self._heard.get(topic, {}))


LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    LIBC.prctl(option, value, 0, 0, 0)


def resolve(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def work(request: Mapping[str, Any], channel: Channel, preloaded: Mapping[str, Any]) -> NoReturn:
    """In the fork: call the target and answer. Never returns into the server's code."""
    try:
        args = channel.args() if request.get("args_follow") else request["args"]
        answer: dict[str, Any] = {"value": resolve(request["target"])(args, channel, preloaded)}
    except BaseException as error:  # noqa: BLE001  everything that a check can do is an answer
        text = "".join(traceback.format_exception(error))
        answer = {
            "raised": {
                "kind": type(error).__name__,
                "message": str(error)[:TEXT_LIMIT],
                "traceback": text[-TEXT_LIMIT:],
            }
        }
    try:
        channel.send(answer)
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, OSError):
            os._exit(1)
        channel.send(
            {"raised": {"kind": "InvalidAnswer", "message": str(error)[:500], "traceback": ""}}
        )
    sys.stderr.flush()
    os._exit(0)


class Server:
    """Forks workers, reports their ends, reaps them when told to."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.preloaded: dict[str, Any] = {}
        self.note = ""
        self.alive: set[int] = set()
        self.ended: set[int] = set()
        self.rest = b""
        self.descriptors: deque[int] = deque()
        self.refused: list[tuple[Mapping[str, Any], int, int, float]] = []
        self.afterwards: list[tuple[Callable[[Any], object], Any]] = []

    def tell(self, message: Mapping[str, Any]) -> None:
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.quit()

    def preload(self, names: list[str]) -> None:
        for name in names:
            began, waited = time.monotonic(), cpu_wait()
            error = version = ""
            absent = False
            try:
                version = str(getattr(importlib.import_module(name), "__version__", ""))[:64]
            except BaseException as problem:  # noqa: BLE001  a broken torch can raise anything
                error = "".join(traceback.format_exception(problem))[-TEXT_LIMIT:]
                absent = isinstance(problem, ModuleNotFoundError) and problem.name == name
            self.preloaded[name] = {
                "seconds": round(time.monotonic() - began, 4),
                "cpu_wait": round(cpu_wait() - waited, 4),
                "error": error,
                "absent": absent,
                "version": version,
                "note": self.note if name == names[0] else "",
            }
        if names:
            gc.collect()  # only after imports: to look through the heap of a fork is to copy it
        gc.freeze()
        self.tell({"ready": self.preloaded})

    def serve(self, wake: int) -> NoReturn:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(1000 * RETRY_SECONDS if self.refused else None):
                if descriptor == wake:
                    try:
                        os.read(wake, 4096)
                    except BlockingIOError:
                        pass
                elif not self.receive():
                    self.quit()
            self.notice_ends()
            self.fork_refused()

    def receive(self) -> bool:
        """Handle what came over the control socket; False when the parent is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.control, 65536, 16)
        except OSError:
            return False
        self.descriptors.extend(fds)
        if not data:
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["op"] == "fork":
                self.fork(request)
            elif request["op"] == "server":
                self.fork_server(request)
            elif request["op"] == "release":
                self.release(request["pid"])
            elif request["op"] == "afterwards":
                self.afterwards.append((resolve(request["target"]), request["args"]))
        return True

    def fork(self, request: Mapping[str, Any]) -> None:
        answer, output = self.descriptors.popleft(), self.descriptors.popleft()
        self._fork(request, answer, output, time.monotonic() + FORK_PATIENCE)

    def _fork(self, request: Mapping[str, Any], answer: int, output: int, until: float) -> None:
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # a limit on processes: that is an answer, not our end
            ours = self.alive | self.ended
            if error.errno == errno.EAGAIN and ours and time.monotonic() < until:
                self.refused.append((request, answer, output, until))  # till one of ours has ended
            else:
                self._refuse(request["id"], answer, output, why_refused(error))
            return
        if pid == 0:
            os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != server:
                os._exit(1)
            for _, *others, _ in self.refused:
                for descriptor in others:
                    os.close(descriptor)
            self._become_worker(output)
            os.environ.update(request.get("env") or {})
            for name in request.get("unset") or ():
                os.environ.pop(name, None)
            self._dump_stack_before(request["seconds"])
            channel = Channel(socket.socket(fileno=answer), request.get("rank") or 0)
            work(request, channel, self.preloaded)
        self._joined(pid, request["id"], (answer, output))

    def fork_refused(self) -> None:
        """Try again those that could not be forked while others were there."""
        again, self.refused = self.refused, []
        for request, answer, output, until in again:
            self._fork(request, answer, output, until)

    def fork_server(self, request: Mapping[str, Any]) -> None:
        control, output = self.descriptors.popleft(), self.descriptors.popleft()
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(control)  # which says that it is gone
            os.close(output)
            return
        if pid == 0:
            os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != server:
                os._exit(1)
            preloaded = self.preloaded
            self._become_worker(output)
            main_loop(socket.socket(fileno=control), request["preload"], preloaded)
        self._joined(pid, request["id"], (control, output))

    def _refuse(self, request_id: int, answer: int, output: int, why: str) -> None:
        """Answer for a worker that there is not."""
        raised = {"kind": "CannotObserve", "message": why, "traceback": ""}
        os.write(answer, json.dumps({"raised": raised}).encode() + b"\n")
        os.close(answer)
        os.close(output)
        self.tell({"forked": request_id, "pid": 0})

    def _joined(self, pid: int, request_id: int, descriptors: tuple[int, int]) -> None:
        """In the server, after a fork."""
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # the child did it itself, or is gone already
        for descriptor in descriptors:
            os.close(descriptor)
        self.alive.add(pid)
        self.tell({"forked": request_id, "pid": pid})

    def _become_worker(self, output: int) -> None:
        """Drop what is the server's; both standard streams go to the parent's pipe."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self.control.close()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)

    @staticmethod
    def _dump_stack_before(seconds: float) -> None:
        """Just before the deadline the Python stacks of all threads go to the tail of stderr."""
        faulthandler.enable(2)
        try:
            faulthandler.dump_traceback_later(max(0.05, seconds - 0.1), file=2)
        except RuntimeError:  # it takes a thread, and a limit may leave none: then without it
            pass

    def notice_ends(self) -> None:
        for pid in list(self.alive):
            try:
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self.alive.discard(pid)
                continue
            if found is not None:
                code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
                self.alive.discard(pid)
                self.ended.add(pid)
                self.tell({"exited": pid, "code": code})

    def release(self, pid: int) -> None:
        if pid in self.ended:
            self.ended.discard(pid)
            os.waitpid(pid, 0)

    def quit(self, *_: object) -> NoReturn:
        """The parent is gone or done: nothing of ours stays, not even orphans of our workers
        (they were handed to us, see PR_SET_CHILD_SUBREAPER), nor what was to be cleared away."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in self.alive | self.ended:
            _kill(os.killpg, pid)
        until = time.monotonic() + 0.1
        while (children := _children()) and time.monotonic() < until:
            for pid in children:
                _kill(os.kill, pid)
            time.sleep(0.001)  # the end of one may hand us the next
            _reap()
        if self.afterwards:
            close_from(3)  # where few may be open, what follows needs all of them
        for target, args in self.afterwards:
            try:
                target(args)
            except BaseException:  # noqa: BLE001  nobody is there to be told
                continue
        os._exit(0)


def _children() -> list[int]:
    """All that are ours now; proc(5) warns that some are missed while others are just ending."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def _kill(how: Any, pid: int) -> None:
    try:
        how(pid, signal.SIGKILL)
    except OSError:
        pass


def main_loop(
    control: socket.socket,
    preload: list[str],
    preloaded: Mapping[str, Any] | None = None,
    note: str = "",
) -> NoReturn:
    """Serve until the parent is gone."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    server = Server(control)
    server.note = note
    server.preloaded.update(preloaded or {})
    signal.signal(signal.SIGTERM, server.quit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if folder := os.environ.pop(scratch.VARIABLE, ""):
        server.afterwards.append((scratch.remove, folder))
        scratch.redirect(folder)
    server.preload(preload)
    server.serve(read)


def become_server(control: socket.socket, output: int, parent: int) -> NoReturn:
    """In a fork of the parent itself: let go of all that is the parent's, then serve."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(0)
        signal.set_wakeup_fd(-1)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nowhere, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        kept = os.dup2(control.fileno(), 3, inheritable=False) if control.fileno() != 3 else 3
        control.detach()
        close_from(4)
        main_loop(socket.socket(fileno=kept), [])
    finally:
        os._exit(1)  # whatever goes wrong: never back into the parent's code


def close_from(lowest: int) -> None:
    """Close all descriptors from this one on. By /proc, since a kernel before 5.9 would be asked
    for each number up to the limit, which may be 2^30."""
    try:
        opened = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        os.closerange(lowest, 1 << 16)
        return
    for descriptor in opened:
        if descriptor >= lowest:
            try:
                os.close(descriptor)
            except OSError:
                pass  # that of listdir() itself


def main() -> NoReturn:
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    control = socket.socket(fileno=int(sys.argv[1]))
    if os.getppid() != int(sys.argv[2]):
        os._exit(0)  # the parent died before the line above could tie us to it
    preload = [name for name in sys.argv[3].split(",") if name]
    wanted, note, nvml = sys.argv[4:7]
    if wanted:
        note = become_job_python(control, wanted, preload[0])
    elif note:
        _tell_python(control, "")
        sys.meta_path.append(OurNvml(nvml))
    main_loop(control, preload, note=note)


def become_job_python(control: socket.socket, wanted: str, module: str) -> str:
    """Go on as the interpreter that has the job's torch. Returns where that is this one, with a
    note for the report."""
    from preflight.process.interpreter import job_python

    python, note = job_python(wanted, module, os.geteuid() == 0)
    if python:
        _tell_python(control, f"{python} ({note})")
        nvml = importlib.util.find_spec("pynvml")
        rest = ["", note, nvml.origin or "" if nvml is not None else ""]
        try:
            os.execv(python, [python, *sys.argv[:4], *rest])
        except OSError as error:
            sys.exit(f"{python}: {error.strerror}")
    return note


def _tell_python(control: socket.socket, python: str) -> None:
    control.sendall(json.dumps({"python": python}).encode() + b"\n")


class OurNvml:
    """Finds pynvml, which is one file for any Python, where the job's Python has none."""

    def __init__(self, file: str) -> None:
        self.file = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != "pynvml" or not self.file:
            return None
        return importlib.util.spec_from_file_location(name, self.file)
