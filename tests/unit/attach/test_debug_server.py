"""`preflight attach` asks what a job itself offers: torch's worker server in its ranks, and NCCL's
RAS service. The jobs with torch's are real ones, of torchrun and Gloo; RAS is a stand-in that says
what NCCL's documentation shows, in numbers of our own: no real NCCL was asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.attaching import attach, findings, free_port, lines_of, running, watched
from support.command import REPOSITORY

from preflight.attach import debug_server, ras_client, snapshot
from preflight.attach.debug_server import FlightRecord, flight_record_of, infer_members
from preflight.rehearsal.client import parse_faulthandler
from preflight.rehearsal.history import History

STARTS = 240.0
"""Until all ranks of a job are there: torch's import alone takes long on a busy machine."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """An interpreter beside which there is no py-spy, none on its PATH, and no package of it."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    config = Path(sys.prefix) / "pyvenv.cfg"
    if config.exists():
        (folder / "pyvenv.cfg").write_text(config.read_text())
    packages = folder / "packages"
    packages.mkdir()
    for place in (p for p in sys.path if p.endswith("-packages")):
        for entry in os.scandir(place):
            if not entry.name.startswith("py_spy") and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry.path)
    found = [str(REPOSITORY), str(packages)]
    environ = {"PATH": str(folder), "PYTHONPATH": os.pathsep.join(found)}
    python = str(folder / "bin" / "python")
    code = "from preflight.rehearsal import pyspy; print(repr(pyspy.find_pyspy()))"
    told = subprocess.run(
        [python, "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout == "''\n"
    return {"python": python, **environ}


# --- torch's worker server ---

HEAD = """
import os, sys, time
import torch, torch.distributed as dist
from torch.distributed.debug import start_debug_server
dist.init_process_group("gloo")
start_debug_server(port=int(os.environ["FRONTEND"]))
rank, data = dist.get_rank(), torch.ones(8)
for _ in range(3):
    dist.all_reduce(data)
pair = dist.new_group([0, 1])
os.write(1, b"there\\n")  # whole, also beside that of another rank
"""

DIFFERS = """
if rank == 2:
    dist.broadcast(data, 0)
else:
    dist.all_reduce(data)
"""

LATE = """
def tokenise():
    time.sleep(600)

if rank == 2:
    tokenise()
dist.all_reduce(data)
"""

GOES = """
while True:
    dist.all_reduce(data)
    if rank < 2:
        dist.all_reduce(data, group=pair)
    time.sleep(0.2)
"""

PAIR = """
def tokenise():
    time.sleep(600)

if rank == 1:
    tokenise()
dist.all_reduce(data, group=pair) if rank == 0 else dist.all_reduce(data)
"""


@contextmanager
def job(folder: Path, body: str) -> Iterator[tuple[int, list[str]]]:
    """A job of three ranks that hangs, and the lines of its script."""
    script = folder / "train.py"
    script.write_text(HEAD + body)
    torchrun = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node", "3"]
    port = f"--master-port={free_port()}"
    with running([*torchrun, port, str(script)], FRONTEND=str(free_port())) as launcher:
        assert lines_of(launcher, 3) == ["there"] * 3
        time.sleep(1.0)
        yield launcher.pid, script.read_text().splitlines()


def line_of(lines: list[str], text: str) -> int:
    return next(n for n, line in enumerate(lines, 1) if text in line)


@pytest.mark.timeout(STARTS + 300)
@pytest.mark.parametrize("spied", [pytest.param(True, marks=pytest.mark.at_length), False])
def test_calls_that_differ_are_named_as_in_a_rehearsal(
    tmp_path: Path, bare: Mapping[str, str], spied: bool
) -> None:
    with job(tmp_path, DIFFERS) as (pid, lines):
        report = attach(pid, None if spied else bare)
    assert findings(report) == [("collective-mismatch", "fail", [2])]
    found = report["findings"][0]
    script = tmp_path / "train.py"
    odd, usual = line_of(lines, "dist.broadcast"), len(lines)
    assert found["saw"] == (
        f"rank 2: broadcast [8] Float at {script}:{odd}; "
        f"ranks 0-1: all_reduce [8] Float at {script}:{usual}, number 4"
    )
    assert found["confidence"] == "certain"
    assert watched(report) == {"server"}


@pytest.mark.timeout(STARTS + 300)
@pytest.mark.parametrize(
    ("body", "late"),
    [
        pytest.param(LATE, 2, id="all"),
        pytest.param(PAIR, 1, id="pair", marks=pytest.mark.at_length),
    ],
)
def test_a_rank_in_its_own_code_is_named_without_pyspy(
    tmp_path: Path, bare: Mapping[str, str], body: str, late: int
) -> None:
    with job(tmp_path, body) as (pid, lines):
        report = attach(pid, bare)
    assert findings(report) == [("rank-stuck", "fail", [late])], report["findings"]
    place = f"{tmp_path / 'train.py'}:{line_of(lines, 'time.sleep')} in tokenise"
    assert place in report["findings"][0]["saw"]


@pytest.mark.timeout(STARTS + 300)
def test_a_job_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    with job(tmp_path, GOES) as (pid, _):
        report = attach(pid)
    assert (findings(report), report["exit_code"]) == ([], 0)
    assert watched(report) == {"server"}


SERVES = """
import os, socket, sys, time
from torch._C._distributed_c10d import _WorkerServer
others = [socket.create_server(("", 0), backlog=5) for _ in range(2)]
where = sys.argv[1]
server = _WorkerServer(where, 0) if where == "::" else _WorkerServer(where)
print(server.port if where == "::" else where, *(o.getsockname()[1] for o in others), flush=True)
for other in others:
    other.setblocking(False)
end = time.monotonic() + 600
while time.monotonic() < end:
    for other in others:
        try:
            other.accept()
        except BlockingIOError:
            continue
        print("touched", flush=True)
    time.sleep(0.05)
"""


@pytest.mark.timeout(STARTS + 60)
@pytest.mark.parametrize("unix", [False, True])
def test_only_the_server_itself_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unix: bool
) -> None:
    where = str(tmp_path / "w.sock") if unix else "::"
    with running([sys.executable, "-c", SERVES, where]) as process:
        at, *_ = lines_of(process, 1)[0].split()
        time.sleep(0.5)
        servers = debug_server.find_servers([process.pid])
        assert servers.known == {process.pid: at if unix else ("127.0.0.1", int(at))}
        assert "ping" in servers.handlers[process.pid]
        told = servers.ask({process.pid: 1})[process.pid]
        assert [f[2] for f in told["stack"]] == ["<module>"]
        process.send_signal(signal.SIGSTOP)  # it can't answer, and is not asked a second time
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)  # a busy machine stops it later
        before = time.monotonic()
        assert servers.ask({process.pid: 1}) == {}
        assert servers.ask({process.pid: 1}) == {}
        assert time.monotonic() - before < 3 * debug_server.SECONDS
        process.send_signal(signal.SIGCONT)
        # what was asked meanwhile is answered to nobody, and does no harm
        assert debug_server.find_servers([process.pid]).ask({process.pid: 1}).keys() == {
            process.pid
        }
        # where the kernel does not tell who accepts: which of the three it is can't be known
        monkeypatch.setattr(debug_server, "ACCEPT", {})
        assert debug_server.address_of(process.pid) is None
        os.kill(process.pid, signal.SIGTERM)
        rest = process.stdout.read() if process.stdout else ""
    assert "touched" not in rest


LISTENS = """
import socket, sys, time
port = int(sys.argv[1])
there = socket.create_server(("", port))
print("there", flush=True)
there.accept()
print("touched", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", ["MASTER_PORT", "FRONTEND", debug_server.SOCKET])
def test_a_port_that_is_none_of_theirs_gets_no_byte(name: str) -> None:
    port = free_port()
    argv = [sys.executable, "-c", LISTENS, str(port)]
    named = {name: str(port), "RANK": "0", "WORLD_SIZE": "1", "NCCL_RAS_ADDR": f"localhost:{port}"}
    if name != "MASTER_PORT":
        del named["NCCL_RAS_ADDR"]
    with running(argv, **named) as process:
        lines_of(process, 1)
        assert debug_server.address_of(process.pid) is None
        assert ras_client.query_job([process.pid]) is None
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.read() == ""


# --- its flight record ---


def entry(seq: object, op: str, *, done: bool = False, group: str = "0", **more: object) -> object:
    return {
        "collective_seq_id": seq,
        "input_dtypes": ["Float"],
        "input_sizes": [[4, 2]],
        "is_p2p": False,
        "process_group": [group, "default_pg" if group == "0" else "undefined"],
        "profiling_name": f"gloo:{op}",
        "retired": done,
        "state": "scheduled",
        "time_created_ns": seq,
        "timeout_ms": 60000,
        **more,
    }


STACK = parse_faulthandler(
    "Thread 0x00007f0000000000 (most recent call first):\n"
    '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
    '  File "/home/u/train.py", line 7 in step\n'
)


def test_a_flight_record_is_read() -> None:
    told = {
        "entries": [entry(1, "all_reduce", done=True), entry(2, "broadcast")],
        "pg_status": {"0": {"last_enqueued_collective": "2", "last_completed_collective": "1"}},
        "pg_config": {"": {"ranks": "[]"}, "tp": {"ranks": "[0, 1]"}},
    }
    found = flight_record_of([told], STACK, 3)
    assert found.groups == {"0": [2, 1]}
    assert found.members == {"0": [0, 1, 2], "tp": [0, 1]}
    first, last = found.recorded["0"]
    assert (first["done"], first["frame"]) == (True, None)
    assert last == {
        "seq": 2,
        "op": "broadcast",
        "shape": "[4, 2] Float",
        "frame": ["/home/u/train.py", 7, "step", True],
        "p2p": False,
        "done": False,
        "timeout": 60.0,
    }


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        "x",
        {"entries": 3, "pg_status": [], "pg_config": "x"},
        {"entries": [None, {}, {"process_group": 1}, entry("2", "x"), entry(True, "x")]},
        {"entries": [entry(1, "x", timeout_ms=1e99, input_sizes={}, time_created_ns=None)]},
        {"pg_status": {"0": {"last_enqueued_collective": "9" * 4000}, "1": 7}},
        {"pg_config": {"0": {"ranks": "[-1, x, 99999999999]"}, "1": 3}},
    ],
)
def test_a_hostile_flight_record_does_no_harm(told: object) -> None:
    found = flight_record_of([told], STACK, 2)
    for calls in found.recorded.values():
        for call in calls:
            assert type(call["seq"]) is int
            assert 0 <= call["timeout"] < 1e13


def test_members_that_torch_does_not_tell_are_those_that_called() -> None:
    def of(*names: str, done: bool = False) -> FlightRecord:
        calls = {n: [{"seq": 1, "done": done, "p2p": False}] for n in names}
        return FlightRecord({n: [1, 0] for n in names}, calls, {"0": [0, 1, 2]})

    records = {0: of("0", "1"), 1: of("0"), 2: of("0", "1")}
    infer_members(records, {0: True, 1: True, 2: True}, 3)
    assert [r.members.get("1") for r in records.values()] == [[0, 2], None, [0, 2]]
    records = {0: of("0", "1"), 1: of("0"), 2: of("0")}
    infer_members(records, {0: True, 1: False, 2: True}, 3)
    assert records[0].members["1"] == [0, 1]  # the port is in use up, and not one that waits
    records = {0: of("0", "1"), 1: of("0")}
    infer_members(records, {0: True, 1: False}, 3)  # not all ranks are here
    assert "1" not in records[0].members


def test_records_count_only_where_all_ranks_have_told_theirs() -> None:
    """The number of a call in a record can't be compared with a stack, which has none."""
    histories = {pid: History(pid, 0.0, inside=False, rank=pid - 10, world=2) for pid in (10, 11)}
    servers = debug_server.Servers({}, recorded={10: FlightRecord({"0": [4, 3]}, {}, {})})
    histories[10].groups = {"0": (4, 3)}
    assert snapshot._flight_records(servers, histories) == {}
    assert (histories[10].groups, histories[10].watched) == ({}, "outside")
    servers.recorded[11] = servers.recorded[10]
    assert snapshot._flight_records(servers, histories).keys() == {10, 11}
    assert {h.watched for h in histories.values()} == {"server"}
