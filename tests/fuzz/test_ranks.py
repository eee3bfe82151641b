"""What the processes of a rehearsed or an attached job answer, and what py-spy, torch's debug
server and NCCL's RAS say of them: anything may stand there. It costs the rank that says it at most,
and what is kept can be written, read and judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import world
from support.fuzzing import EXAMPLES
from support.hostile import BIG, DEEP, VALUES, changed, damaged, text_of

from preflight.attach import debug_server, ras_client
from preflight.checks import job_collectives, job_memory, job_pace, job_ranks
from preflight.domains.job.nccl_ras import unchanged, with_ranks
from preflight.domains.job.record import RehearsalRecord, WatchedCommand
from preflight.expect import Expect
from preflight.rehearsal import aggregate, client, pyspy
from preflight.rehearsal.conclusion import Watched, record_of
from preflight.rehearsal.history import History, ProcessSample, all_stuck
from preflight.serde import decode, encode, parsed

FRAME = ["/job/train.py", 12, "main", True]
IN_TORCH = ["/x/site-packages/torch/distributed/distributed_c10d.py", 99, "all_reduce", False]
CALL = {
    "seq": 5,
    "op": "all_reduce",
    "shape": "[8] float",
    "frame": FRAME,
    "p2p": False,
    "done": False,
    "timeout": 600.0,
    "bytes": 32,
}
CAUGHT = {"text": "no", "raised": FRAME, "handler": FRAME, "times": 2, "now": True}
LOADER = {"length": 9, "given": 3, "exhausted": True, "workers": 2, "sampler": "RandomSampler"}
DUMP: dict[str, Any] = {
    "rank": 1,
    "world": 2,
    "joined": True,
    "by_node": False,
    "raised": False,
    "unrecorded": "",
    "groups": {"0": [5, 4]},
    "steps": 7,
    "batches": 3,
    "stack": [IN_TORCH, FRAME],
    "loader": LOADER,
    "gpu": [1 << 20, 1 << 30],
    "recorded": {"0": [{**CALL, "seq": 4, "done": True}, CALL]},
    "members": {"0": [0, 1]},
    "durations": [[float(at), 0.1] for at in range(9)],
    "waits": [[float(at), 0.01] for at in range(9)],
    "caught": [CAUGHT],
    "leaving": False,
    "store": {"keys": ["ready"], "ends": 90.0},
    "sleeps": 70.5,
}
END = {"how": "raised", "at": 100.5, "text": "ValueError: no", "frames": [FRAME], "index": 1}
RAISED = "Traceback\n" + '  File "/job/train.py", line 3, in main\n' + "ValueError: no"
TRACE = {**END, "of": 1, "trace": RAISED}
JOINS = {
    "how": "env://",
    "host": "10.0.0.1",
    "port": 29500,
    "path": "",
    "rank": 1,
    "world": 2,
    "frame": FRAME,
    "file": [9, 3.5],
    "at": 100.5,
}
COMMAND = WatchedCommand(("torchrun", "train.py"), 1, "stuck", 30.0, 1130.0)


def told(document: Any) -> Any:
    """As it comes over a socket."""
    return client.parse_json(text_of(document))


def judge(record: RehearsalRecord) -> None:
    """What becomes of it: written by the watch, read by the parent, judged as a whole."""
    written = json.dumps(encode(record), allow_nan=False).encode()
    ranks = decode(RehearsalRecord, parsed(written)).ranks
    for module, part in (
        (job_ranks, "life"),
        (job_collectives, "calls"),
        (job_pace, "pace"),
        (job_memory, "growth"),
    ):
        check = module.__name__.rpartition(".")[2].replace("_", ".", 1)
        seen = world(check, {f"n1/{n}": getattr(rank, part) for n, rank in enumerate(ranks)})
        list(module.judge(seen, Expect({})))
        module.measured(seen)


def changed_often(document: Any, times: int = 4) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from([document]).flatmap(changed) | VALUES, max_size=times)


def by_each(*documents: Any) -> Callable[[Any], Any]:
    """Each of them as an example for each of the four."""

    def wrap(test: Any) -> Any:
        for document in documents:
            test = example([document], END, JOINS, "")(test)
            test = example([DUMP], document, document, "")(test)
        return test

    return wrap


@given(
    changed_often(DUMP),
    st.sampled_from([END, TRACE]).flatmap(changed) | VALUES,
    st.sampled_from([JOINS]).flatmap(changed) | VALUES,
    st.text(max_size=20)
    | st.sampled_from([RAISED, f"Thread 0x1 (most recent call first):\n{RAISED}"]),
)
@by_each(
    {**DUMP, "groups": {"0": [10**400, 1]}, "gpu": [1, 10**400]},
    {**DUMP, "recorded": {"0": [{**CALL, "timeout": float("inf")}]}},
    {**DUMP, "recorded": {"0": [{**CALL, "timeout": 10**400, "bytes": 10**400}]}},
    {**DUMP, "durations": [[float("nan"), 0.1]] * 9, "waits": [[10**400, 0.1]] * 9},
    {**DUMP, "stack": [["\ud800", 10**400, "f", True]]},
    {**END, "at": True, "frames": [[1, 2, 3, 4]]},
    {**JOINS, "file": [1, float("nan")], "at": 1.5},
    {**JOINS, "file": [1, 10**400], "at": float("inf")},
)
@EXAMPLES
def test_a_rank(answers: list[Any], end: Any, joins: Any, crash: str) -> None:
    history = History(11, 1.0)
    dumps: dict[int, Any] = {}
    for second, answer in enumerate(answers):
        pulse = told(answer)
        if not isinstance(pulse, dict):
            continue
        history.add_sample(ProcessSample(2.0 + second, second * 0.5, 1 << 20, "S", pulse=pulse))
        dumps[11] = pulse
    other = History(12, 1.0)
    other.add_answer(2.0, {**DUMP, "rank": 0})
    words, joined = (
        {11: word} if isinstance(word, dict) else {} for word in (told(end), told(joins))
    )
    all_stuck([history, other], (), 60.0, 20.0)
    record = record_of(
        Watched(
            command=COMMAND,
            pid=10,
            began=1.0,
            over=30.0,
            wall=1100.0,
            cut=False,
            ranks=(history, other),
            starting=(),
            known={11: history, 12: other},
            parents={11: 1, 12: 1},
            ends={11: (29.0, 1)},
            dumps={**dumps, 12: DUMP},
            words=words,
            joins=joined,
            refused={},
            uncaught=dict(zip([13], words.values(), strict=False)),
            crashes={11: crash},
            cpus={11: 2},
            problem="",
            oom_kills=0,
            memory=(1 << 30, 1 << 29),
            shm=0,
            shm_free=1 << 30,
            nccl={},
        )
    )
    judge(record)


SPY = [
    {"os_thread_id": 9, "frames": []},
    {
        "os_thread_id": 11,
        "frames": [
            {
                "filename": "/x/torch/distributed/distributed_c10d.py",
                "line": 3,
                "name": "init_process_group",
                "locals": [
                    {"name": "init_method", "repr": "'tcp://[::1]:29500'"},
                    {"name": "rank", "repr": "1"},
                    {"name": "kwargs", "repr": '{"group": <x>}'},
                ],
            },
            {"filename": "/job/train.py", "line": 9, "name": "main", "locals": None},
        ],
    },
]


@given(st.sampled_from([SPY]).flatmap(changed).map(text_of).flatmap(damaged))
@example(text_of([{**SPY[1], "frames": [{"filename": "a", "line": 10**4000, "name": "f"}]}]))
@example(b'[{"os_thread_id": 11, "frames": [' + DEEP.encode() + b"]}]")
@EXAMPLES
def test_pyspy(output: bytes) -> None:
    frames = pyspy.parse_dump(output, 11)
    found = pyspy.parse_arguments(output, 11)
    pyspy.describe_failure(output.decode(errors="replace"))
    written = json.dumps([encode(frames), found], allow_nan=False).encode()
    parsed(written)


RECORD = {
    "version": "2.5",
    "pg_status": {
        "0": {"last_enqueued_collective": "5", "last_completed_collective": "4"},
        "1": {"last_enqueued_collective": -1, "last_completed_collective": 3},
    },
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [
        {
            "process_group": ["0", "default_pg"],
            "is_p2p": False,
            "collective_seq_id": 5,
            "profiling_name": "gloo:all_reduce",
            "input_sizes": [[8]],
            "input_dtypes": ["Float"],
            "state": "scheduled",
            "retired": False,
            "timeout_ms": 600000,
            "time_created_ns": 17,
        }
    ],
}


@given(st.lists(st.sampled_from([RECORD]).flatmap(changed) | VALUES, max_size=3), st.integers(0, 3))
@example([{**RECORD, "entries": [{**RECORD["entries"][0], "time_created_ns": 10**400}]}], 2)
@example([{**RECORD, "pg_config": {"0": {"ranks": "[" + "٣" * 8 + "]"}}}], 2)
@EXAMPLES
def test_a_debug_server(parts: list[Any], ranks: int) -> None:
    stack = client.frames_from_json([IN_TORCH, FRAME], 12)
    made = [debug_server.flight_record_of([told(p)], stack, ranks) for p in parts]
    records = dict(enumerate(made))
    debug_server.infer_members(records, dict.fromkeys(records, False), len(records))
    lives = []
    for rank, flight in records.items():
        history = History(rank + 1, 1.0, inside=False)
        history.served = True
        pulse = {"stack": [IN_TORCH, FRAME], "groups": flight.groups, "joined": True}
        history.add_sample(ProcessSample(2.0, 0.5, 1 << 20, "S", pulse=pulse))
        lives.append((history, {"recorded": flight.recorded, "members": flight.members}))
    for history, dump in lives:
        calls = aggregate.calls_of(history, dump, "", "stuck", 30.0, 1.0)
        written = json.dumps(encode(calls), allow_nan=False).encode()
        seen = world("job.collectives", {"n1/0": decode(type(calls), parsed(written))})
        list(job_collectives.judge(seen, Expect({})))


RAS = {
    "nccl_version": "2.28.9",
    "communicators": [
        {
            "hash": "0xc0ffee",
            "size": 2,
            "ranks": [
                {"rank": 0, "pid": 11, "host": "n1", "collective_counts": {"AllReduce": 42}},
                {
                    "rank": 1,
                    "pid": 12,
                    "host": "n1",
                    "collective_counts": {"AllReduce": 41},
                    "status": {"unresponsive": False, "considered_dead": True},
                },
            ],
            "missing_ranks": [{"rank": 1, "pid": 12, "host": "n1", "status": {}}],
        }
    ],
}
RAS_TEXT = """\
NCCL version 2.28.9 compiled with CUDA 12.9

Job summary
===========
  Nodes  Processes         GPUs
(total)   per node  per process
      1          2            1

Communicators... (0.00s)
  Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
      #  in group  per comm  per node  per comm  in group
      0         1         1         2         2         2   RUNNING  MISMATCH

Warnings
#0-0 (c0ffee) MISMATCH
  Communicator ranks have different AllReduce operation counts
  1 ranks have launched up to operation 42
  Rank 1 has launched up to operation 41 -- GPU 1 managed by process 12 on node n1
DEAD
  Process 12 on node n1
"""


def same_twice(found: Any) -> None:
    if found is not None:
        kept = unchanged(found, found, 5.0)
        assert kept is not None
        numbered = with_ranks(kept, 2, {(11, "n1"): 0, (12, "n1"): 1})
        parsed(json.dumps(encode(numbered), allow_nan=False).encode())


@given(st.sampled_from([RAS]).flatmap(changed) | VALUES)
@example({**RAS, "communicators": [{"ranks": [{"pid": 11, "rank": 10**400}], "size": 10**400}]})
@EXAMPLES
def test_ras_in_json(answer: Any) -> None:
    same_twice(ras_client.parse_json_status(told(answer), {11, 12}))


@given(st.sampled_from([RAS_TEXT.encode()]).flatmap(damaged) | st.binary(max_size=200))
@example(RAS_TEXT.replace("42", BIG).encode())
@EXAMPLES
def test_ras_in_words(answer: bytes) -> None:
    same_twice(ras_client.parse_text_status(answer.decode(errors="replace")))
