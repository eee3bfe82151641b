"""Whatever a worker does, the call ends in time with the right one of four results."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import misbehave

from preflight.cpu_wait import ready_since
from preflight.model import NO_PROCESS
from preflight.process import call as calls
from preflight.process import pool, worker
from preflight.process.call import Call
from preflight.process.pool import Died, Raised, Returned, Stream, TimedOut, Workers

TESTS = str(Path(__file__).parents[2])


@pytest.fixture(params=["started", "forked"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Both kinds of fork server: an interpreter of its own, and a fork of this process."""
    made = Workers()
    open_light(made, request.param)
    yield made
    made.close()


def open_light(made: Workers, kind: str = "started") -> None:
    if kind == "forked":
        made.fork("light")
    else:
        made.open("light", env={"PYTHONPATH": TESTS})


def until_ended(workers: Workers, seconds: float) -> list[Any]:
    """run() until nothing is in flight: it also returns when a server becomes ready."""
    until = time.monotonic() + seconds
    ended = []
    while workers.busy and time.monotonic() < until:
        ended += workers.run(until)
    return ended


def result(workers: Workers, name: str, args: Any = None, seconds: float = 5.0) -> Any:
    workers.call("light", getattr(misbehave, name), args, seconds=seconds)
    (ended,) = until_ended(workers, 20)
    return ended.result


def gone(pid: int, within: float = 2.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_returned(workers: Workers) -> None:
    found = result(workers, "double", 21)
    assert isinstance(found, Returned)
    assert found.value == 42
    assert [m.name for m in found.marks] == ["doubling"]


@pytest.mark.parametrize("name", ["hang", "ignore_term", "stop"])
def test_killed_at_the_deadline(workers: Workers, name: str) -> None:
    began = time.monotonic()
    found = result(workers, name, seconds=0.5)
    assert isinstance(found, TimedOut)
    assert found.left_behind is None
    assert found.marks
    assert time.monotonic() - began < 0.5 + pool.TERM_GRACE + pool.KILL_GRACE + 1


@pytest.mark.parametrize(("name", "least", "most"), [("starve", 0.5, 1.0), ("stop", 0.0, 0.3)])
def test_how_long_it_had_no_cpu(workers: Workers, name: str, least: float, most: float) -> None:
    """As parts of its time: a process that is stopped does not wait for one."""
    found = result(workers, name, seconds=3.0)
    assert isinstance(found, TimedOut)
    assert least <= found.cpu_wait / found.seconds <= most


def test_a_deadline_waits_for_whoever_waits_for_a_cpu_and_for_nobody_else() -> None:
    """How long it had none is counted once it gets one."""
    busy, asleep = (
        subprocess.Popen([sys.executable, "-S", "-c", code])
        for code in ("while True: pass", "import time; time.sleep(60)")
    )
    try:
        deadline = time.monotonic() + 20
        while ready_since(busy.pid) is None or ready_since(asleep.pid) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        call = Call("1", "", "", {}, 1.0, pid=busy.pid)
        assert pool._starves(call, 100.0), "it may be without a CPU at this moment"
        ran = ready_since(busy.pid)
        while ready_since(busy.pid) == ran:
            time.sleep(0.02)
        assert not pool._starves(call, 100.1), "it has run: it does not answer, though it could"
        call.starved = 100.0, ready_since(busy.pid) or 0
        assert not pool._starves(call, 100.0 + pool.STARVED_MOST + 0.1), "whatever it waits for"
        assert not pool._starves(Call("2", "", "", {}, 1.0, pid=asleep.pid), 100.0)
    finally:
        for process in (busy, asleep):
            process.kill()
            process.wait()
    assert ready_since(busy.pid) is None


def test_a_hang_leaves_its_stack(workers: Workers) -> None:
    assert "in hang" in result(workers, "hang", seconds=0.5).stderr


def test_died_of_a_signal(workers: Workers) -> None:
    found = result(workers, "segfault")
    assert isinstance(found, Died)
    assert found.code == -signal.SIGSEGV
    assert found.marks[-1].name == "about to crash"


def test_died_without_an_answer(workers: Workers) -> None:
    found = result(workers, "leave")
    assert isinstance(found, Died)
    assert found.code == 0
    assert "leaving without an answer" in found.stderr


def test_a_grandchild_does_not_keep_us_and_does_not_stay(workers: Workers) -> None:
    began = time.monotonic()
    found = result(workers, "fork")
    assert isinstance(found, Returned)
    assert time.monotonic() - began < 3
    assert gone(found.value)


def test_a_grandchild_that_left_the_group_ends_with_the_server(workers: Workers) -> None:
    found = result(workers, "escape")
    workers.close()
    workers.__init__()  # type: ignore[misc]  the fixture closes once more
    assert gone(found.value)


def test_chatter_is_cut_to_its_end(workers: Workers) -> None:
    found = result(workers, "chatty", seconds=20)
    assert isinstance(found, Returned)
    assert len(found.stderr) <= calls.TAIL
    assert "199999" in found.stderr


@pytest.mark.parametrize("name", ["flood", "nonsense", "nested", "not_json"])
def test_an_answer_that_is_none(workers: Workers, name: str) -> None:
    began = time.monotonic()
    found = result(workers, name)
    assert isinstance(found, Raised)
    assert found.kind == "InvalidAnswer"
    assert time.monotonic() - began < 4


def test_raised(workers: Workers) -> None:
    found = result(workers, "fail")
    assert (found.kind, found.message) == ("RuntimeError", "on purpose")
    assert "misbehave.py" in found.traceback


def test_system_exit_is_an_answer_too(workers: Workers) -> None:
    assert result(workers, "exit_three").kind == "SystemExit"


def test_a_function_that_no_worker_can_find_is_refused(workers: Workers) -> None:
    def inside(args: Any, channel: Any, preloaded: Any) -> None:
        pass

    for target in (inside, lambda args, channel, preloaded: None):
        with pytest.raises(ValueError, match="at the top of no module"):
            workers.call("light", target, None, seconds=1)


def test_a_module_that_no_worker_can_import(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("not_there")
    exec("def go(args, channel, preloaded): ...", vars(module))
    monkeypatch.setitem(sys.modules, "not_there", module)
    workers.open("other")
    workers.call("other", module.go, None, seconds=5)
    (ended,) = until_ended(workers, 20)
    assert ended.result.kind == "ModuleNotFoundError"


def test_arguments_as_large_as_a_report_arrive(workers: Workers) -> None:
    text = "é\n" * (8 << 20)
    large = workers.call("light", misbehave.double, {"text": text}, seconds=60)
    counted = workers.call("light", misbehave.count, [text, "more"], seconds=60)
    small = workers.call("light", misbehave.double, 21, seconds=20)
    first, *_ = until_ended(workers, 90)
    assert first is small, "the server was kept"
    assert isinstance(small.result, Returned)
    assert isinstance(counted.result, Returned)
    assert counted.result.value == [len(text), 4]
    assert isinstance(large.result, Raised), "a dict can't be doubled"
    assert large.result.kind == "TypeError"


def test_who_ends_without_its_arguments_has_died(workers: Workers) -> None:
    text = "x" * (32 << 20)
    call = workers.call("light", misbehave.count, [text], seconds=60)
    while not call.pid:
        list(workers.run(time.monotonic() + 0.001))
    os.kill(call.pid, signal.SIGKILL)
    until_ended(workers, 20)
    assert isinstance(call.result, Died)
    assert result(workers, "double", 21).value == 42


@pytest.mark.parametrize("length", [1, 100_000])
def test_ranks_hear_each_other(workers: Workers, length: int) -> None:
    words = [letter * length for letter in "abc"]
    for rank, word in enumerate(words):
        workers.call("light", misbehave.meet, word, seconds=20, group="g", rank=rank)
    answers = [c.result.value for c in until_ended(workers, 30)]  # type: ignore[union-attr]
    assert answers == [[list(pair) for pair in enumerate(words)]] * 3


def test_hearing_nobody_ends(workers: Workers) -> None:
    assert result(workers, "wait_for_nobody").value == []


def test_a_killed_server_ends_its_calls(workers: Workers) -> None:
    workers.call("light", misbehave.hang, None, seconds=20)
    workers.call("light", misbehave.kill_server, None, seconds=20)
    began = time.monotonic()
    ended = until_ended(workers, 15)
    assert [type(c.result) for c in ended] == [Died, Died]
    assert time.monotonic() - began < 3
    assert all(gone(c.pid) for c in ended)
    late = workers.call("light", misbehave.double, 1, seconds=1)
    assert until_ended(workers, 1) == [late]
    assert isinstance(late.result, Died)


def test_a_stopped_server_does_not_stop_us(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FORK_LIMIT", 0.5)
    # it may stop before it says that it has forked: then that call is the one that times out
    found = [result(workers, "stop_server"), result(workers, "double", 1)]
    assert any(isinstance(f, TimedOut) for f in found)


def refusing_more_than(most: int) -> Callable[[], int]:
    """fork() where a limit lets no process but this one have more than `most` children."""
    fork, mine = os.fork, os.getpid()

    def limited() -> int:
        if os.getpid() != mine:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            if len(children) >= most:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    return limited


def test_what_a_limit_refuses_is_started_when_another_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fork", refusing_more_than(2))
    with_limit = Workers()
    with_limit.fork("light")
    for number in range(9):
        with_limit.call("light", misbehave.double, number, seconds=5)
    answers = [c.result.value for c in until_ended(with_limit, 20)]
    with_limit.close()
    assert sorted(answers) == [2 * number for number in range(9)]


def test_what_a_limit_refuses_for_good_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "FORK_PATIENCE", 0.3)
    monkeypatch.setattr(os, "fork", refusing_more_than(1))
    with_limit = Workers()
    with_limit.fork("light")
    hanging = with_limit.call("light", misbehave.hang, None, seconds=2)
    refused = with_limit.call("light", misbehave.double, 1, seconds=5)
    ended = until_ended(with_limit, 20)
    with_limit.close()
    assert ended == [refused, hanging]
    assert isinstance(refused.result, Raised)
    assert refused.result.kind == "CannotObserve"
    assert refused.result.message.startswith(NO_PROCESS)
    assert isinstance(hanging.result, TimedOut)


def test_a_preload_that_fails_is_told(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "brokenlib.py").write_text("raise ImportError('libfoo.so.1: cannot open')\n")
    workers.open("heavy", preload=("brokenlib", "nosuchlib"), env={"PYTHONPATH": str(tmp_path)})
    assert workers.preloaded("heavy") is None
    until_ended(workers, 10)
    preloaded = workers.preloaded("heavy")
    assert preloaded is not None
    assert "libfoo.so.1" in preloaded["brokenlib"]["error"]
    assert not preloaded["brokenlib"]["absent"]
    assert preloaded["nosuchlib"]["absent"]


def test_a_preload_that_hangs_ends(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "slowlib.py").write_text("import time; time.sleep(600)\n")
    path = f"{TESTS}:{tmp_path}"
    preload = ("slowlib", "preflight.model")
    workers.open("heavy", preload=preload, seconds=0.5, env={"PYTHONPATH": path})
    call = workers.call("heavy", misbehave.double, 1, seconds=5)
    began = time.monotonic()
    assert until_ended(workers, 10) == [call]
    assert time.monotonic() - began < 3
    assert "importing slowlib did not end" in workers.preloaded("heavy")[""]["error"]  # type: ignore[index]


@pytest.mark.parametrize(("python", "says"), [("/bin/true", "exit code 0"), ("/none", "No such")])
def test_a_python_that_is_none_is_told(workers: Workers, python: str, says: str) -> None:
    workers.open("heavy", preload=("json",), seconds=30, python=python)
    call = workers.call("heavy", misbehave.double, 1, seconds=5)
    assert until_ended(workers, 40) == [call]
    lost = workers.preloaded("heavy")[""]["error"]  # type: ignore[index]
    assert lost.startswith(f"{python} (--python) can't be used as the job's Python: ")
    assert says in lost


def test_another_python_is_taken(workers: Workers, tmp_path: Path) -> None:
    """Here our own by another name."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env = {"PYTHONPATH": TESTS}
    workers.open("heavy", preload=("json",), seconds=30, python=str(python), env=env)
    call = workers.call("heavy", misbehave.double, 4, seconds=5)
    assert until_ended(workers, 40) == [call]
    assert call.result.value == 8  # type: ignore[union-attr]
    assert workers.preloaded("heavy")["json"]["note"] == "--python"  # type: ignore[index]


def test_a_server_forked_from_a_server(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "firstlib.py").write_text("import time; time.sleep(0.2)\n")
    (tmp_path / "secondlib.py").write_text("import firstlib\n")
    path = f"{TESTS}:{tmp_path}"
    workers.open("one", preload=("firstlib",), env={"PYTHONPATH": path})
    workers.open("two", preload=("secondlib",), parent="one")
    call = workers.call("two", misbehave.double, 4, seconds=5)
    assert until_ended(workers, 10) == [call]
    assert call.result.value == 8  # type: ignore[union-attr]
    assert set(workers.preloaded("two") or {}) == {"firstlib", "secondlib"}


def test_environment_of_one_call(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    workers.call(
        "light",
        misbehave.environment,
        ["RANK", "PYTHONPATH"],
        seconds=5,
        env={"RANK": "3"},
        unset=("PYTHONPATH",),
    )
    (ended,) = until_ended(workers, 5)
    assert ended.result.value == ["3", None]  # type: ignore[union-attr]


PARENT = """
import sys, time, json
sys.path.insert(0, sys.argv[1])
from support import misbehave
from preflight.process.pool import Workers
workers = Workers()
workers.open("light", env={"PYTHONPATH": sys.argv[1]})
calls = [workers.call("light", misbehave.hang, None, seconds=600) for _ in range(3)]
while not all(c.pid for c in calls):
    list(workers.run(time.monotonic() + 0.1))
print(json.dumps([c.pid for c in calls] + [s.pid for s in workers._servers.values()]), flush=True)
time.sleep(600)
"""


def test_nothing_survives_a_killed_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, TESTS], stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            pids = json.loads(parent.stdout.readline())
            assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
        finally:
            parent.kill()
    assert len(pids) == 4
    assert all(gone(pid) for pid in pids)


def test_close_ends_what_still_runs(workers: Workers) -> None:
    call = workers.call("light", misbehave.ignore_term, None, seconds=600)
    while not call.pid:
        list(workers.run(time.monotonic() + 0.1))
    began = time.monotonic()
    assert workers.close() == ()
    assert time.monotonic() - began < 1.5
    assert gone(call.pid)
    workers.__init__()  # type: ignore[misc]


def test_no_descriptor_is_lost() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        workers = Workers()
        workers.open("light", env={"PYTHONPATH": TESTS})
        for name in ("double", "segfault", "leave"):
            result(workers, name, 1)
        workers.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_said_goes_to_who_takes_it(workers: Workers) -> None:
    """And to nobody else: also what would be too long for one line of others."""
    said = ["a", "ä" * 700_000, None]
    took: list[Any] = []
    call = workers.call("light", misbehave.say_each, said, seconds=5.0, takes=took.append)
    until_ended(workers, 20)
    assert isinstance(call.result, Returned)
    assert (took, call.result.value) == (said, 3)
    assert workers.heard == []


# --- a stream besides the arguments ---

FAST = 1e9


def streamed(
    workers: Workers, name: str, parts: Iterator[bytes], pause: float = 0.0, rate: float = FAST
) -> Call:
    stream = Stream(parts, rate)
    args = {"pause": pause}
    call = workers.call("light", getattr(misbehave, name), args, seconds=1.0, stream=stream)
    until_ended(workers, 20)
    return call


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_stream_comes_whole(workers: Workers, count: int) -> None:
    parts = [bytes([n]) * (300_000 * n) for n in range(count)]  # the first one is empty
    found = streamed(workers, "read_parts", iter(parts)).result
    assert isinstance(found, Returned)
    whole = b"".join(parts)
    assert found.value == [len(whole), hashlib.sha256(whole).hexdigest()]


def test_what_makes_a_stream_may_take_longer_than_the_worker_has(workers: Workers) -> None:
    def slowly() -> Iterator[bytes]:
        for _ in range(4):
            time.sleep(0.5)
            yield b"part"

    found = streamed(workers, "read_parts", slowly()).result
    assert isinstance(found, Returned)
    assert found.value[0] == 16


def test_a_worker_that_takes_nothing_more_ends_in_time(workers: Workers) -> None:
    """As on a file system that is dead: it has its second, and that of the bytes it has taken."""
    made = []

    def parts() -> Iterator[bytes]:
        for number in range(1000):
            made.append(number)
            yield bytes(1 << 20)

    began = time.monotonic()
    found = streamed(workers, "read_parts", parts(), pause=60.0).result
    assert isinstance(found, TimedOut)
    assert time.monotonic() - began < 8.0
    assert len(made) < 5, "a part is made when the one before was taken"


def test_a_worker_that_wants_no_more_of_it(workers: Workers) -> None:
    made = []

    def parts() -> Iterator[bytes]:
        for number in range(1000):
            made.append(number)
            yield bytes(1 << 20)

    found = streamed(workers, "take_no_more", parts()).result
    assert isinstance(found, Returned)
    assert found.value == "enough"
    assert len(made) < 5


def test_a_stream_that_can_not_be_made(workers: Workers) -> None:
    def parts() -> Iterator[bytes]:
        yield b"part"
        raise KeyError("a bug")

    call = streamed(workers, "read_parts", parts())
    assert isinstance(call.result, Raised)
    assert call.result.kind == "EOFError"
    assert isinstance(call.broken, KeyError)
