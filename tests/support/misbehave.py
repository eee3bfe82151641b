"""Functions for workers to run: everything that a probe can do to its parent."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import sys
import time
from typing import Any


def double(args: Any, channel: Any, preloaded: Any) -> Any:
    channel.mark("doubling")
    return args * 2


def count(args: Any, channel: Any, preloaded: Any) -> Any:
    return [len(text) for text in args]


def hang(args: Any, channel: Any, preloaded: Any) -> Any:
    channel.mark("about to hang")
    time.sleep(600)


def ignore_term(args: Any, channel: Any, preloaded: Any) -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.mark("deaf")
    while True:
        time.sleep(600)


def stop(args: Any, channel: Any, preloaded: Any) -> Any:
    channel.mark("stopping")
    os.kill(os.getpid(), signal.SIGSTOP)


def starve(args: Any, channel: Any, preloaded: Any) -> Any:
    """Ready all the time, on a CPU that another process uses."""
    channel.mark("starving")
    spin_beside(600.0)


def spin_beside(seconds: float) -> None:
    """Compute for so long, at the lowest priority and beside a child that does the same at ours."""
    until, here = time.monotonic() + seconds, os.getpid()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if os.fork() == 0:
        while os.getppid() == here and time.monotonic() < until:
            pass
        os._exit(0)
    os.nice(19)  # SCHED_IDLE waits for seconds, which are counted once it runs again
    while time.monotonic() < until:
        pass


def segfault(args: Any, channel: Any, preloaded: Any) -> Any:
    channel.mark("about to crash")
    ctypes.string_at(0)


def leave(args: Any, channel: Any, preloaded: Any) -> Any:
    sys.stderr.write("leaving without an answer\n")
    sys.stderr.flush()
    os._exit(0)


def fork(args: Any, channel: Any, preloaded: Any) -> Any:
    """Answers, and leaves a grandchild that holds the pipes; its pid is the answer."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


def escape(args: Any, channel: Any, preloaded: Any) -> Any:
    """Like fork, but the grandchild has left the process group."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        os.write(write, str(pid).encode())
        os._exit(0)
    return int(os.read(read, 32))


def chatty(args: Any, channel: Any, preloaded: Any) -> Any:
    for number in range(200_000):
        os.write(2, b"line %d of very many\n" % number)
    return "done"


def flood(args: Any, channel: Any, preloaded: Any) -> Any:
    return "x" * (64 << 20)


def nonsense(args: Any, channel: Any, preloaded: Any) -> Any:
    channel._line.sendall(b"this is not JSON\n")
    time.sleep(600)


def nested(args: Any, channel: Any, preloaded: Any) -> Any:
    channel._line.sendall(b"[" * 200_000 + b"\n")
    time.sleep(600)


def not_json(args: Any, channel: Any, preloaded: Any) -> Any:
    return float("nan")


def fail(args: Any, channel: Any, preloaded: Any) -> Any:
    raise RuntimeError("on purpose")


def exit_three(args: Any, channel: Any, preloaded: Any) -> Any:
    raise SystemExit(3)


def meet(args: Any, channel: Any, preloaded: Any) -> Any:
    channel.say("here", args)
    return sorted(channel.hear("here", 3, 5.0).items())


def say_each(args: Any, channel: Any, preloaded: Any) -> Any:
    for one in args:
        channel.say("part", one)
    return len(args)


def wait_for_nobody(args: Any, channel: Any, preloaded: Any) -> Any:
    return sorted(channel.hear("here", 2, 0.2).items())


def kill_server(args: Any, channel: Any, preloaded: Any) -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def stop_server(args: Any, channel: Any, preloaded: Any) -> Any:
    time.sleep(0.2)  # the server has yet to say that it has forked us
    os.kill(os.getppid(), signal.SIGSTOP)
    return "stopped it"


def environment(args: Any, channel: Any, preloaded: Any) -> Any:
    return [os.environ.get(name) for name in args]


def read_parts(args: Any, channel: Any, preloaded: Any) -> Any:
    """How much of a stream came, and its digest. `pause`: seconds before each part is taken."""
    count, told = 0, hashlib.sha256()
    for part in channel.parts():
        time.sleep(args["pause"])
        count += len(part)
        told.update(part)
    return [count, told.hexdigest()]


def take_no_more(args: Any, channel: Any, preloaded: Any) -> Any:
    """An answer before the stream has ended."""
    next(channel.parts())
    return "enough"
