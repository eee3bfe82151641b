"""What a worker does for launch.py: it starts the agents, with srun or over ssh, and passes on what
they say, until all have ended or the parent says so.

Everything here may wait forever (name lookups, a controller, a key agent): that is why it is in a
worker. What it starts is in its process group, and every agent ends with its stdin, so that a kill
from outside leaves nothing behind, here or there.

To the parent, by Channel.say, each about one node by the name that the job or the user has for it:
`begun` (names): these have been started now, what was said before is void; `line` (name, text): a
line of protocol.py; `over` (name, exit code or None, words): nothing more will come from there.
"""

from __future__ import annotations

import os
import re
import resource
import selectors
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight.model import PreflightError
from preflight.nodeset import hostlist
from preflight.process.worker import Channel
from preflight.remote import protocol

SSH_MOST = 4096
"""Hosts that are reached over ssh from one place: each is a process of its own here, of 5 to 10 MB.
What srun reaches is one process, however many nodes there are."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
END = "end"
"""The topic by which the parent says that it is enough."""
ENDING_SECONDS = 4.0
"""For the agents to tell what they have seen so far, and to end, when it is enough."""
KILL_SECONDS = 2.0
TICK = 0.1
LAUNCHES = 3
"""Times that srun is started: it gives up all nodes when one of them can't be had."""
KEPT_LINES, KEPT_CHARACTERS = 8, 240
"""Of what is said about a node beside its parcels: the last lines."""
UNREAD_MOST = 1 << 20
"""Bytes of a line that does not end."""

LABEL = re.compile(r"\s*(\d+): ?(.*)", re.DOTALL)
"""How srun --label begins a line: the number of the task."""
NOISE = "lacks support for cpu binding"
"""srun says so of --cpu-bind=none where there is nothing to be bound."""
FAILED_ON = re.compile(r"failed on node ([\w.-]+)")


# --- who ---


def expand(args: Mapping[str, Any], channel: Channel, preloaded: object) -> list[str]:
    """The hosts of a node set, in ClusterShell's order; `groups`: it may name groups, too
    (`@gpu`), whose sources are the administrator's and the user's to configure; `most`: of them."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    channel.mark("ClusterShell's node set, and the sources of its groups")
    try:
        found = NodeSet(args["set"], resolver=None if args["groups"] else RESOLVER_NOGROUP)
    except (NodeSetException, OSError) as error:
        raise PreflightError(str(error)) from None
    if not 0 < len(found) <= args["most"]:
        raise PreflightError(f"{len(found)} hosts; there may be 1 to {args['most']}")
    hosts = [str(host) for host in found]
    for host in hosts:
        if not NAME.fullmatch(host):
            raise PreflightError(f"{host!r:.80} is not a host name")
    return hosts


class _LastLines:
    """What is said about each node beside its parcels: the end of it."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}

    def add(self, name: str, text: str) -> None:
        for line in text.strip().splitlines():
            lines = self._lines.setdefault(name, deque(maxlen=KEPT_LINES))
            lines.append(line.strip()[:KEPT_CHARACTERS])

    def of(self, name: str) -> str:
        return "\n".join(self._lines.get(name, ()))


class _StopRequest:
    """Whether the parent still wants to wait."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.since = 0.0
        """When it was enough; 0 as long as it is not."""

    def look(self) -> bool:
        if not self.since and self._channel.hear(END, 1, 0.001):
            self.since = time.monotonic()
        return bool(self.since)

    @property
    def word(self) -> bytes:
        """The last thing that the agents hear, before their stdin ends: by which signal."""
        return f"{self._channel.hear(END, 1, 0.001).get(-1, '')}\n".encode()

    @property
    def over(self) -> bool:
        return bool(self.since) and time.monotonic() - self.since > ENDING_SECONDS


# --- srun ---


def by_srun(args: Mapping[str, Any], channel: Channel, preloaded: object) -> None:
    """`hosts`: the nodes of the job; `options`: more for srun; `command`, `orders`: of every agent.
    PreflightError where there is no srun."""
    hosts: list[str] = args["hosts"]
    patience = _StopRequest(channel)
    words = _LastLines()
    for _ in range(LAUNCHES):
        channel.say("begun", hosts)
        srun = _Srun(args, hosts, channel, words, patience)
        code = srun.run()
        for name, said in srun.words_of_its_own():
            words.add(name, said)
        again = [name for name in hosts if name not in srun.failed]
        if not srun.failed or not again or patience.since:
            break
        for name in srun.failed:
            channel.say("over", [name, None, words.of(name)])
        hosts = again
    for name in hosts:
        channel.say("over", [name, code, words.of(name)])


class _Srun:
    """One srun, with an agent on each of `hosts`."""

    def __init__(
        self,
        args: Mapping[str, Any],
        hosts: Sequence[str],
        channel: Channel,
        words: _LastLines,
        patience: _StopRequest,
    ) -> None:
        self.hosts, self.channel, self.words, self.patience = hosts, channel, words, patience
        self.known = frozenset(hosts)
        self.failed: set[str] = set()
        """Nodes on which no task could be launched."""
        self.own = _LastLines()
        count = str(len(hosts))
        # folded: Linux takes 128 KiB in one word, which 12,500 names may be more than
        apart = hostlist(h for h in args["hosts"] if h not in self.known)
        argv = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        argv += [f"--exclude={apart}"] if apart else []
        argv += [*args["options"], *args["command"]]
        env = {k: v for k, v in os.environ.items() if not _overrides_srun_options(k)}
        try:
            self.process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise PreflightError(f"srun can't be started: {error.strerror}") from None
        self.unsent: bytes = args["orders"].encode()
        self.selector = selectors.DefaultSelector()
        self.rest: dict[str, bytes] = {"out": b"", "err": b""}

    def run(self) -> int | None:
        """Until it has ended; its exit code."""
        process, selector = self.process, self.selector
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for stream in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, "in")
        selector.register(process.stdout, selectors.EVENT_READ, "out")
        selector.register(process.stderr, selectors.EVENT_READ, "err")
        while {key.data for key in selector.get_map().values()} & {"out", "err"}:
            for key, _ in selector.select(TICK):
                if key.data == "in":
                    self._send()
                else:
                    self._read(key.data, key.fd)
            if self.patience.look():
                self._close_stdin()
                if self.patience.over:
                    break
        self._close_stdin()
        return self._wait_for_end()

    def _send(self) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        try:
            self.unsent = self.unsent[os.write(stdin.fileno(), self.unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self.unsent = b""
        if not self.unsent:
            self.selector.unregister(stdin)  # but it stays open: the agents live by it

    def _close_stdin(self) -> None:
        """Close its stdin: it closes that of the agents, and they end with what they have seen.
        SIGTERM would make srun kill them at once."""
        stdin = self.process.stdin
        if stdin is None or stdin.closed:
            return
        if self.unsent:
            self.selector.unregister(stdin)
            self.unsent = b""
        elif self.patience.since:
            try:
                os.write(stdin.fileno(), self.patience.word)
            except OSError:  # the pipe is full, or nobody reads any more
                pass
        stdin.close()

    def _read(self, stream: str, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(descriptor)
            data = b"\n" if self.rest[stream] else b""
        *lines, rest = (self.rest[stream] + data).split(b"\n")
        self.rest[stream] = rest[:UNREAD_MOST]
        for line in lines:
            self._take(line.decode("utf-8", "replace"))

    def _take(self, line: str) -> None:
        found = LABEL.fullmatch(line)
        number = int(found[1][:9]) if found else len(self.hosts)
        if found is None or number >= len(self.hosts):
            if not line.endswith(NOISE):
                self.own.add("", line)
            self.failed |= self.known.intersection(FAILED_ON.findall(line))
        elif protocol.is_parcel_line(found[2]):
            self.channel.say("line", [self.hosts[number], found[2][: 2 * protocol.LINE_MOST]])
        else:
            self.words.add(self.hosts[number], found[2])

    def words_of_its_own(self) -> Iterator[tuple[str, str]]:
        """Each node, and what srun itself has said about it; where it names none, all that it said
        of nobody. Each line is read once: there may be ten thousand nodes."""
        about: dict[str, list[str]] = {}
        nobody: list[str] = []
        for line in self.own.of("").splitlines():
            names = _names_in(line) & self.known
            for name in names:
                about.setdefault(name, []).append(line)
            nobody += [] if names else [line]
        for name in self.hosts:
            yield name, "\n".join(about.get(name, nobody))

    def _wait_for_end(self) -> int | None:
        """Its exit code, once it has ended, which is now or soon."""
        for number in (0, signal.SIGTERM, signal.SIGKILL):  # 0 only asks whether it is there
            self.process.send_signal(number)
            try:
                return self.process.wait(KILL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        return None


def _names_in(line: str) -> set[str]:
    """All words of a line that may be names, sets of them (`n[2-3]`) expanded."""
    from preflight.nodeset import expand

    words = re.findall(r"[\w.-]+(?:\[[\d,-]+\])?[\w.-]*", line)
    return {name for word in words for name in expand(word.rstrip(".")) or (word,)}


# What srun takes from the environment as if it were an option of its own: of a batch script that is
# what its own tasks were to have. An agent is one task per node with all that the job has there.
OVERRIDES_SRUN = re.compile(
    r"SLURM_(?:NTASKS_PER_|STDINMODE|STDOUTMODE|STDERRMODE|LABELIO|UNBUFFEREDIO|GPUS_PER_|GPU_BIND|"
    r"GPU_FREQ|CPUS_PER_TASK|CPUS_PER_GPU|TRES_PER_TASK|TRES_BIND|CPU_BIND|MEM_BIND|EXACT|"
    r"EXCLUSIVE|HINT|DISTRIBUTION|THREADS_PER_CORE|IMMEDIATE|WAIT|KILL_BAD_EXIT|TASK_PROLOG|"
    r"TASK_EPILOG|PROLOG|EPILOG|ARRAY_INX|CORE_SPEC|THREAD_SPEC|THREADS$|DEBUG|TIMELIMIT|"
    r"REMOTE_CWD|WORKING_DIR|NETWORK|OPEN_MODE|RELATIVE)|SRUN_CPUS_PER_TASK$|PREFLIGHT_"
)


def _overrides_srun_options(variable: str) -> bool:
    return OVERRIDES_SRUN.match(variable) is not None


# --- ssh, or whatever leads to a host ---


def by_hosts(args: Mapping[str, Any], channel: Channel, preloaded: object) -> None:
    """`hosts`; `connect`: words with %h in them, or none for ssh; `command`: of every agent;
    `orders`: of each, in the order of the hosts; `seconds`: for ssh to connect."""
    from ClusterShell.Event import EventHandler
    from ClusterShell.Task import task_self
    from ClusterShell.Worker.Exec import ExecClient, ExecWorker
    from ClusterShell.Worker.Ssh import SshClient, WorkerSsh

    hosts: list[str] = args["hosts"]
    patience = _StopRequest(channel)
    words = _LastLines()
    ended: set[str] = set()

    class Bounded:
        """A client whose line that does not end is let go, where ClusterShell keeps all of it."""

        def _handle_read(self, sname: str) -> None:
            super()._handle_read(sname)  # type: ignore[misc]
            stream = self.streams.get(sname)  # type: ignore[attr-defined]
            if stream is not None and len(stream.rbuf) > UNREAD_MOST:
                stream.rbuf = b""

    class OverSsh(Bounded, SshClient):  # type: ignore[misc]
        pass

    class OverCommand(Bounded, ExecClient):  # type: ignore[misc]
        def _build_cmd(self) -> tuple[list[str], None]:
            """Words, not a line: no shell here takes them apart once more."""
            return _connect_command(args["connect"], str(self.key), args["command"]), None

    class Ssh(WorkerSsh):  # type: ignore[misc]
        SHELL_CLASS = OverSsh

    class Connect(ExecWorker):  # type: ignore[misc]
        SHELL_CLASS = OverCommand

    class Ears(EventHandler):  # type: ignore[misc]
        def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
            line = msg.decode("utf-8", "replace")
            if sname == worker.SNAME_STDOUT and protocol.is_parcel_line(line):
                channel.say("line", [str(node), line[: 2 * protocol.LINE_MOST]])
            else:
                words.add(str(node), line)

        def ev_hup(self, worker: Any, node: str, rc: int) -> None:
            ended.add(str(node))
            channel.say("over", [str(node), rc, words.of(str(node))])

        def ev_timer(self, timer: Any) -> None:
            already = patience.since
            if not already and patience.look():
                for worker in workers:
                    worker.write(patience.word)
                    worker.set_write_eof()
            elif patience.over:
                task.abort()

    _raise_open_files_limit(4 * len(hosts) + 64)
    task = task_self()
    task.set_info("fanout", len(hosts))  # all of them have to be there at the same time
    task.set_info("connect_timeout", args["seconds"])
    task.set_default("stdout_msgtree", False)
    task.set_default("stderr_msgtree", False)
    ears = Ears()
    kind = Connect if args["connect"] else Ssh
    channel.say("begun", hosts)
    workers = []
    for host, order in zip(hosts, args["orders"], strict=True):
        worker = kind(host, handler=ears, stderr=True, command=shlex.join(args["command"]))
        task.schedule(worker)
        worker.write(order.encode())
        workers.append(worker)
    task.timer(TICK, ears, TICK, autoclose=True)
    task.run()
    for host in hosts:
        if host not in ended:
            channel.say("over", [host, None, words.of(host)])


SHELLS_THERE = ("ssh", "rsh", "remsh", "mrsh")
"""Programs that join the words of a command and have a shell there take them apart again."""


def _connect_command(connect: Sequence[str], host: str, command: Sequence[str]) -> list[str]:
    """The whole command for a host."""
    shell = any(os.path.basename(word) in SHELLS_THERE for word in connect)
    behind: Iterable[str] = [shlex.join(command)] if shell else command
    return [*(word.replace("%h", host) for word in connect), *behind]


def _raise_open_files_limit(files: int) -> None:
    """As many open files as all these connections need, where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
