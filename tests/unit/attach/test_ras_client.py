"""NCCL's RAS service, asked by `preflight attach`: a stand-in that speaks as NCCL's documentation
and source say, in numbers of our own. No real NCCL was asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.attaching import attach, findings, free_port, lines_of, running

from preflight.attach import ras_client
from preflight.domains.job.nccl_ras import (
    Member,
    Ras,
)

COUNTS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def member(rank: int, pid: int, reduced: int, host: str = "127.0.0.1") -> dict[str, Any]:
    return {
        "rank": rank,
        "host": host,
        "pid": pid,
        "cuda_dev": rank,
        "nvml_dev": rank,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
        },
        "collective_counts": dict.fromkeys(COUNTS, 0) | {"AllReduce": reduced},
    }


def lost(rank: int, pid: int, *, dead: bool, silent: bool = True) -> dict[str, Any]:
    status = {"unresponsive": silent, "considered_dead": dead}
    return {"rank": rank, "host": "10.0.0.9", "pid": pid, "status": status}


def answer(*ranks: dict[str, Any], missing: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    communicator = {
        "hash": "0x5a5a",
        "secondary_hash": "0x1:0x2",
        "size": len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": list(ranks),
        "missing_ranks": list(missing),
    }
    return {
        "nccl_version": "2.28.9",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-22 06:00:00",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.002, "timeouts_count": 0},
    }


TEXT = """NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       3-4         8         7   RUNNING  INCOMPLETE,MISMATCH

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 8104 on node 10.0.0.2 managing GPU 3

#0-0 (0000000000005a5a) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 8104 on node 10.0.0.2

Warnings
========

#0-0 (0000000000005a5a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  5 ranks have launched up to operation 912
  Rank 2 has launched up to operation 911 -- GPU 2 managed by process 7102 on node 10.0.0.1
  Rank 6 has not launched any operations -- GPU 2 managed by process 8103 on node 10.0.0.2

  Communicator ranks have different Broadcast operation counts
  5 ranks have launched up to operation 3
  2 ranks have launched up to operation 4
  Rank 2 -- GPU 2 managed by process 7102 on node 10.0.0.1
  Rank 3 -- GPU 3 managed by process 7103 on node 10.0.0.1

"""


def test_the_text_of_older_ones_is_read() -> None:
    found = ras_client.parse_text_status(TEXT)
    assert found is not None
    assert found.version == "2.24.3"
    assert found.lost == (Member(-1, 8104, "10.0.0.2", state="dead"),)
    (one,) = found.communicators
    assert (one.size, one.usual) == (8, (("AllReduce", 912), ("Broadcast", 3)))
    assert one.odd == (
        Member(7, 8104, "10.0.0.2", state="silent"),
        Member(2, 7102, "10.0.0.1", (("AllReduce", 911), ("Broadcast", 4))),
        Member(6, 8103, "10.0.0.2", (("AllReduce", 0),)),
        Member(3, 7103, "10.0.0.1", (("Broadcast", 4),)),
    )


@pytest.mark.parametrize(
    ("reduced", "usual", "odd"),
    [
        ([42, 42, 42, 42], None, []),
        ([42, 42, 41, 42], 42, [2]),
        ([42, 43, 42, 42], 42, [1]),
        ([42, 41, 41, 42], 42, [1, 2]),  # in a tie those are late that have launched less
    ],
)
def test_who_is_unlike_most(reduced: list[int], usual: int | None, odd: list[int]) -> None:
    told = answer(*(member(r, 100 + r, n) for r, n in enumerate(reduced)))
    found = ras_client.parse_json_status(told, {101})
    assert found is not None
    if usual is None:
        assert found.communicators == ()
        return
    (one,) = found.communicators
    assert one.usual == (("AllReduce", usual),)
    assert [m.rank for m in one.odd] == odd
    assert {op for m in one.odd for op, _ in m.counts} == {"AllReduce"}


def test_lost_processes_are_kept_and_such_as_have_left_are_not() -> None:
    here = [member(r, 100 + r, 42) for r in range(2)]
    gone = (lost(2, 500, dead=True), lost(3, 501, dead=False))
    found = ras_client.parse_json_status(answer(*here, missing=gone), {100})
    assert found is not None
    assert [(m.rank, m.state) for m in found.communicators[0].odd] == [(2, "dead"), (3, "silent")]
    left = lost(2, 500, dead=False, silent=False)
    found = ras_client.parse_json_status(answer(*here, missing=(left,)), {100})
    assert found == Ras("2.28.9")


def test_the_answer_of_another_job_is_none() -> None:
    assert ras_client.parse_json_status(answer(member(0, 100, 4), member(1, 101, 3)), {999}) is None


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"nccl_version": 3, "communicators": []},
        {"nccl_version": "2", "communicators": {}},
        {"nccl_version": "2", "communicators": [None, {}, {"ranks": 1, "missing_ranks": [None]}]},
        {"nccl_version": "2", "communicators": [{"size": "x", "ranks": [{"pid": True}] * 5000}]},
    ],
)
def test_a_hostile_answer_does_no_harm(told: object) -> None:
    assert ras_client.parse_json_status(told, {1}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 100_000,
        "NCCL version 2.24.3\n" + "#0-0 (5a) MISMATCH\n" * 1000,
        "NCCL version 2.24.3\n#0-0 (5a) MISMATCH\n  Rank 1 -- x\n  9 ranks have launched\n",
        "NCCL version 2.24.3\nDEAD\n" + "  Process 1 on node \x1b[2J managing GPU 1\n" * 9000,
    ],
)
def test_hostile_text_does_no_harm(text: str) -> None:
    found = ras_client.parse_text_status(text)
    if found is not None:
        assert len(found.lost) <= ras_client.MEMBERS
        assert "\x1b" not in repr([m.host for m in found.lost])


SERVICE = """
import mmap, os, socket, sys, threading, time
folder, form, body, greeting = sys.argv[1:5]
if form != "no-nccl":
    with open(os.path.join(folder, "libnccl.so.2"), "w+b") as file:
        file.write(b"x" * 4096)
        file.flush()
        kept = mmap.mmap(file.fileno(), 4096)
host, _, port = os.environ["NCCL_RAS_ADDR"].rpartition(":")

def serve(line):
    with line, line.makefile("rwb", buffering=0) as file:
        for asked in file:
            asked = asked.strip().decode()
            print("asked", asked, flush=True)
            if asked.startswith("CLIENT PROTOCOL "):
                file.write(greeting.encode().decode("unicode_escape").encode())
            elif asked.startswith("TIMEOUT "):
                file.write(b"OK\\n")
            elif asked == "SET FORMAT json":
                file.write(b"OK\\n" if form == "json" else b"ERROR: Unknown command\\n")
            elif asked == "VERBOSE STATUS":
                with open(body, "rb") as told:
                    file.write(told.read())
                return

there = socket.create_server((host, int(port)))
def listen():
    while True:
        threading.Thread(target=serve, args=(there.accept()[0],), daemon=True).start()
threading.Thread(target=listen, daemon=True).start()
print("pid", os.getpid(), flush=True)

def spin():
    while True:
        pass

spin() if form == "json" else time.sleep(600)
"""


LAUNCHER = """
import os, subprocess, sys
service = sys.argv[1:]
late = [sys.executable, "-c", "import time\\nprint('there', flush=True)\\ntime.sleep(600)"]
def start(rank, argv):
    return subprocess.Popen(argv, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
one = start(1, late)
print("pid", one.pid, flush=True)
start(0, service).wait()
"""


def service(
    folder: Path, form: str, body: Path, greeting: str = "SERVER PROTOCOL 2\\n"
) -> list[str]:
    return [sys.executable, "-c", SERVICE, str(folder), form, str(body), greeting]


@pytest.mark.timeout(240)
def test_a_rank_that_launched_less_is_named_by_what_nccl_says(tmp_path: Path) -> None:
    """Rank 0 burns a CPU, as one does that waits for its GPU: no stack says that it waits."""
    body = tmp_path / "answer"
    argv = [sys.executable, "-c", LAUNCHER, *service(tmp_path, "json", body)]
    with running(argv, NCCL_RAS_ADDR=f"127.0.0.1:{free_port()}") as launcher:
        words = [line.split() for line in lines_of(launcher, 3)]
        pids = [int(word[1]) for word in words if word[0] == "pid"]
        body.write_text(json.dumps(answer(member(0, pids[1], 42), member(1, pids[0], 41))))
        report = attach(launcher.pid)
    assert findings(report) == [("rank-stuck", "fail", [1])]
    saw: str = report["findings"][0]["saw"]
    told = f"NCCL's RAS: rank 1 (pid {pids[0]} on 127.0.0.1) has launched 41 AllReduce, the others "
    assert saw.startswith(f"{told}42 AllReduce, unchanged for ")
    assert saw.endswith(" · rank 1 is at <string>:3 in <module>")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("form", "greeting", "asked"),
    [
        ("json", "SERVER PROTOCOL 2\\n", ["CLIENT", "TIMEOUT", "SET", "VERBOSE"]),
        ("text", "SERVER PROTOCOL 2\\n", ["CLIENT", "TIMEOUT", "SET", "VERBOSE"]),
        ("json", "HTTP/1.1 400 Bad Request\\n", ["CLIENT"]),
        ("json", "", ["CLIENT"]),
        ("no-nccl", "SERVER PROTOCOL 2\\n", []),
    ],
)
def test_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, greeting: str, asked: list[str]
) -> None:
    monkeypatch.setattr(ras_client, "SECONDS", 3.0)
    body = tmp_path / "answer"
    argv = service(tmp_path, form, body, greeting)
    with running(argv, NCCL_RAS_ADDR=f"127.0.0.1:{free_port()}") as process:
        pid = int(lines_of(process, 1)[0].split()[1])
        assert pid == process.pid
        told: Mapping[str, Any] = answer(member(0, pid, 9), member(1, 5, 8))
        body.write_text(json.dumps(told) if form == "json" else TEXT)
        found = ras_client.query_job([pid])
        process.terminate()
        assert process.stdout is not None
        heard = process.stdout.read().splitlines()
    assert [line.split()[1] for line in heard] == asked
    if len(asked) < 4:
        assert found is None
    else:
        assert found is not None
        assert found.version == ("2.28.9" if form == "json" else "2.24.3")
