"""The records of several backends are one history, and what nobody recorded is said."""

from __future__ import annotations

import json
import pickle
import sys
from types import SimpleNamespace as Made
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_flight_recorder as recorder


def entry(group: str, seq: int, op: str, retired: bool = True) -> dict[str, Any]:
    sizes = {"input_sizes": [[8]], "input_dtypes": ["Float"], "timeout_ms": 1000}
    names = {"process_group": (group, "x"), "profiling_name": op, "collective_seq_id": seq}
    return sizes | names | {"retired": retired}


def dumps(*entries: dict[str, Any]) -> Any:
    """What a backend's recorder answers, as pickle and as JSON."""
    groups = {e["process_group"][0]: e["collective_seq_id"] for e in entries}
    status = {
        name: {"last_enqueued_collective": str(n), "last_completed_collective": str(n)}
        for name, n in groups.items()
    }
    whole = pickle.dumps({"entries": list(entries)})
    return (lambda *_: whole), (lambda *_: json.dumps({"pg_status": status}))


def binding(**recorders: tuple[Any, Any]) -> Made:
    made = {}
    for name, (whole, counts) in recorders.items():
        made |= {f"_dump_{name}_trace": whole, f"_dump_{name}_trace_json": counts}
    return Made(**made)


class ProcessGroup:
    """With the count of calls that a group keeps of itself."""

    def __init__(self, number: int) -> None:
        self.number = number

    def size(self) -> int:
        return 2

    def _get_sequence_number_for_group(self) -> int:
        return self.number


def world(config: str, number: int = 3) -> Made:
    group = ProcessGroup(number)
    ranks = {group: {0: 0, 1: 1}}
    known = Made(pg_names={group: "0"}, pg_backend_config={group: config}, pg_group_ranks=ranks)
    return Made(_world=known)


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Made(__version__="2.6.0", xpu=Made()))
    monkeypatch.setattr(recorder.Recorder, "backends", {})
    monkeypatch.setattr(recorder.Recorder, "calls", {})
    monkeypatch.setattr(recorder.Recorder, "problem", "")
    monkeypatch.setattr(recorder.Recorder, "members", {})
    monkeypatch.setattr(recorder.Recorder, "labels", {})
    monkeypatch.setattr(recorder.Recorder, "numbered", {"nccl": {"0": "0"}})
    monkeypatch.setattr(recorder.Recorder, "asks_again", 0.0)
    monkeypatch.setattr(recorder.Recorder, "counted", {})
    monkeypatch.setattr(recorder.Recorder, "order", [])
    monkeypatch.setattr(recorder.Recorder, "offset", None)
    monkeypatch.setattr(recorder.Recorder, "presumed", set())


GLOO = dumps(entry("0", 1, "gloo:all_reduce"), entry("0", 2, "gloo:barrier", retired=False))
NCCL = dumps(entry("0", 1, "nccl:broadcast"))
NOTHING = dumps()


def ops(c10d: Made, bound: Made) -> dict[str, list[str]]:
    found = recorder.recorded(c10d, bound, lambda frames: None)
    return {name: [call["op"] for call in calls] for name, calls in found.items()}


def test_gloos_calls_are_found_beside_an_empty_record_of_nccl() -> None:
    bound, c10d = binding(fr=GLOO, nccl=NOTHING), world("cpu:gloo,cuda:gloo")
    assert ops(c10d, bound) == {"0": ["all_reduce", "barrier"]}
    assert recorder.counts(c10d, bound) == {"0": [2, 2]}
    assert recorder.members(c10d) == {"0": [0, 1]}
    assert recorder.unrecorded(c10d, bound, recorder.counts(c10d, bound)) == ""


def test_a_group_with_two_backends_has_two_histories() -> None:
    bound, c10d = binding(fr=GLOO, nccl=NCCL), world("cpu:gloo,cuda:nccl,xpu:xccl")
    assert ops(c10d, bound) == {"0 nccl": ["broadcast"], "0 gloo": ["all_reduce", "barrier"]}
    assert recorder.members(c10d) == {"0 nccl": [0, 1], "0 gloo": [0, 1]}


@pytest.mark.parametrize(
    ("bound", "number", "wanted"),
    [
        (binding(nccl=NOTHING), 200, "torch 2.6.0: no flight recorder for gloo, and preflight"),
        (binding(fr=NOTHING), 200, "torch 2.6.0: the flight recorder for gloo is empty"),
        # it has joined and called nothing: that is known
        (binding(nccl=NOTHING), 0, ""),
    ],
)
def test_calls_that_nobody_recorded_are_told(bound: Made, number: int, wanted: str) -> None:
    told = recorder.unrecorded(world("cpu:gloo", number), bound, {})
    assert told.startswith(wanted)
    assert bool(told) == bool(wanted)


P2P, ALL = ["send"], ["send", "broadcast_"]


def sent(at: float, retired: bool) -> dict[str, Any]:
    """What is recorded here of a call between two ranks."""
    made = entry("0", 1, "preflight:send 0->1", retired)
    return made | {"is_p2p": True, "p2p_seq_id": 1, "time_created_ns": at * 1e9}


def recorded_here(*entries: dict[str, Any]) -> dict[str, Any]:
    done = sum(one["retired"] for one in entries)
    group = Made(names=P2P, roots=(), counts=lambda: [len(entries), done])
    return {"GROUPS": {"0": ("0", group)}, "entries": lambda of: entries, "ALL": ALL}


def test_what_gloos_recorder_leaves_out_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    known = recorded_here(sent(7.0, True), sent(9.0, False))
    monkeypatch.setattr(recorder.Recorder, "calls", known)
    whole = [entry("0", n, "gloo:barrier") | {"time_created_ns": n * 8e9} for n in (1, 2)]
    bound, c10d = binding(fr=dumps(*whole)), world("cpu:gloo")
    assert ops(c10d, bound) == {"0": ["send 0->1", "barrier", "send 0->1", "barrier"]}
    assert recorder.counts(c10d, bound) == {"0": [4, 3]}


def broadcast(at: float, op: str = "broadcast") -> dict[str, Any]:
    return {"op": op, "at": at}


@pytest.mark.parametrize(
    ("calls", "noted", "roots"),
    [
        # one was entered just after it was noted
        (
            [broadcast(1.1), broadcast(2.1)],
            [(1.0, "broadcast", 3), (2.0, "broadcast", 0)],
            [3, 0],
        ),
        # older ones than were noted, and others in between
        (
            [
                broadcast(0.5),
                broadcast(1.1),
                broadcast(1.2, "all_reduce"),
                broadcast(2.1, "gather"),
            ],
            [(1.0, "broadcast", 3), (2.0, "gather", 1)],
            [None, 3, None, 1],
        ),
        # what compiled code calls does not pass by where they are noted
        ([broadcast(1.1), broadcast(1.5)], [(1.0, "broadcast", 3)], [3, None]),
        ([broadcast(2.5)], [(1.0, "broadcast", 3), (2.4, "reduce", 1)], [None]),
        ([broadcast(9.0)], [(1.0, "broadcast", 3)], [None]),
        ([], [(1.0, "broadcast", 3)], []),
    ],
)
def test_roots_are_told_to_what_was_called(
    calls: list[dict[str, Any]], noted: list[tuple[float, str, int]], roots: list[int | None]
) -> None:
    recorder.tell_roots(calls, noted)
    assert [one.get("root") for one in calls] == roots


@pytest.mark.parametrize(
    ("files", "thread"),
    [
        (("train.py", "threading.py"), True),
        (("threading.py", "train.py"), False),
        (("train.py",), False),
        ((), False),
    ],
)
def test_calls_of_another_thread_are_known(files: tuple[str, ...], thread: bool) -> None:
    frames = [{"filename": f"/usr/lib/{name}", "line": 1, "name": "f"} for name in files]
    made = recorder.call(entry("0", 1, "gloo:barrier") | {"frames": frames}, lambda frames: None)
    assert made["thread"] is thread


def test_what_torch_records_itself_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder.Recorder, "calls", recorded_here(sent(7.0, True)))
    bound = binding(fr=dumps(sent(7.0, True) | {"profiling_name": "gloo:send 0->1"}))
    assert ops(world("cpu:gloo"), bound) == {"0": ["send 0->1"]}


@pytest.mark.parametrize(
    ("args", "more", "members"),
    [
        ((2, 0, [3, 1], "gloo", None, "2"), {}, {"2": [1, 3]}),
        ((2, 0, [3, 1], "gloo", None), {"group_name": "2"}, {"2": [1, 3]}),
        ((2, None, [3, 1], "gloo", None, "2"), {}, {}),  # this rank is not in it
        ((2, 0, [], "gloo", None, "0"), {}, {}),
        ((), {}, {}),
    ],
)
def test_a_group_in_the_making_is_told(
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[Any, ...],
    more: dict[str, Any],
    members: dict[str, Any],
) -> None:
    monkeypatch.setattr(recorder.Recorder, "members", {})
    monkeypatch.setattr(recorder.Recorder, "making", recorder.in_the_making(args, more))
    c10d = Made(_world=Made(pg_names={}, pg_group_ranks={}))
    assert recorder.members(c10d) == members


def test_counts_go_by_number_and_are_told_by_name() -> None:
    """Of three groups that this rank is not all in, the third is the second that it has made; and
    the first was made once more."""
    calls = [
        entry(name, seq, "gloo:all_reduce") | {"pg_id": number}
        for name, number, seq in (("0", 0, 7), ("2", 1, 5), ("0", 2, 3))
    ]
    status = {
        str(one["pg_id"]): {
            "last_enqueued_collective": str(one["collective_seq_id"]),
            "last_completed_collective": "1",
        }
        for one in calls
    }
    reads: list[tuple[bool, ...]] = []

    def whole(*args: bool) -> bytes:
        reads.append(args)
        return pickle.dumps({"entries": calls})

    bound = binding(fr=(whole, lambda *_: json.dumps({"pg_status": status})))
    c10d = world("cpu:gloo")
    for _ in range(3):
        assert recorder.counts(c10d, bound) == {"0": [3, 1], "2": [5, 1]}
    assert reads == [(True, False, False)]  # once, without the frames of the calls


def test_nccls_groups_are_counted_as_they_are_made_and_its_calls_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To read them asks CUDA about events while the program may capture a graph."""
    monkeypatch.setattr(recorder.Recorder, "numbered", {})
    known = recorded_here() | {"install": print, "follow_roots": print}
    monkeypatch.setattr(recorder.Recorder, "calls", known)
    monkeypatch.setitem(recorder.Recorder.calls, "RecordedGroup", lambda *_: Made(counts=list))
    status = {
        number: {"last_enqueued_collective": seq, "last_completed_collective": "1"}
        for number, seq in (("0", "7"), ("1", "5"))
    }
    bound = binding(nccl=(None, lambda *_: json.dumps({"pg_status": status})))
    c10d = world("cuda:nccl")
    made(c10d, "2")
    for group, name in c10d._world.pg_names.items():
        c10d._world.pg_backend_config[group] = "cuda:nccl"
        group.group_name, group.rank = name, lambda: 0
        recorder.record(c10d, bound, group, None, (None, None))
    monkeypatch.setattr(recorder.Recorder, "calls", {})
    assert recorder.counts(c10d, bound) == {"0": [7, 1], "2": [5, 1]}


def made(c10d: Made, *names: str) -> None:
    """Groups that the program makes, as torch knows of them from then on."""
    for name in names:
        group = ProcessGroup(1)
        c10d._world.pg_names[group] = name
        c10d._world.pg_group_ranks[group] = {0: 0, 1: 1}
        c10d._world.pg_backend_config[group] = "cpu:gloo"


def kept(c10d: Made, bound: Made) -> list[str]:
    """All that is known by the name of a group, which is the same in each."""
    recorder.counts(c10d, bound)
    here = recorder.Recorder
    assert list(here.backends) == list(here.members) == list(here.labels)
    assert list(here.backends) == list(recorder.backends(c10d)) == list(recorder.members(c10d))
    return list(here.backends)


def test_of_groups_made_and_destroyed_in_every_step_the_first_and_the_latest_are_kept() -> None:
    c10d, bound = world("cpu:gloo"), binding(fr=NOTHING)
    for step in range(1, 1000):
        made(c10d, str(step))
        last = kept(c10d, bound)
        c10d._world.pg_names.popitem()
    assert last == ["0", *(str(step) for step in range(1000 - recorder.GROUPS + 1, 1000))]


def test_groups_that_are_there_are_kept_rather_than_those_that_are_gone() -> None:
    c10d, bound = world("cpu:gloo"), binding(fr=NOTHING)
    made(c10d, "1", "2")
    for step in range(3, 200):
        made(c10d, str(step))
        last = kept(c10d, bound)
        c10d._world.pg_names.popitem()
    assert last[:3] == ["0", "1", "2"]
    assert len(last) == recorder.GROUPS


def test_of_groups_that_are_never_destroyed_the_first_and_the_latest_are_kept() -> None:
    c10d, bound = world("cpu:gloo"), binding(fr=NOTHING)
    for step in range(1, 200):
        made(c10d, str(step))
        last = kept(c10d, bound)
    assert last == ["0", *(str(step) for step in range(200 - recorder.GROUPS + 1, 200))]


class Gloo:
    """torch's recorder of Gloo's groups, each of which has had 2 calls; `hidden` are numbers of
    groups that c10d knows nothing of. Counts how often all calls are read."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.reads = 0
        self.bound = Made(_dump_fr_trace=self.calls, _dump_fr_trace_json=self.counts)

    def make(self, name: str, known: bool = True) -> None:
        self.names[str(len(self.names))] = name
        if known:
            recorder.Recorder.order.append(name)

    def calls(self, *asked: bool) -> bytes:
        self.reads += 1
        whole, _ = dumps(*({**entry(n, 2, "gloo:x"), "pg_id": i} for i, n in self.names.items()))
        return bytes(whole())

    def counts(self, *asked: bool) -> str:
        two = {"last_enqueued_collective": "2", "last_completed_collective": "2"}
        return json.dumps({"pg_status": dict.fromkeys(self.names, two)})

    def known(self) -> list[str]:
        recorder.Recorder.counted.clear()
        return list(recorder.counts_of(self.bound, "gloo", {}))


def test_a_group_in_each_step_has_its_name_without_reading_all_calls() -> None:
    gloo = Gloo()
    for name in map(str, range(50)):
        gloo.make(name)
        assert gloo.known()[-1] == name
    assert gloo.reads == 1


def test_groups_that_torch_makes_for_itself_are_read() -> None:
    gloo = Gloo()
    gloo.make("0")
    assert gloo.known() == ["0"]
    gloo.make("a helper", known=False)
    gloo.make("1")
    recorder.Recorder.asks_again = 0.0
    assert gloo.known() == ["0", "a helper", "1"]
    assert gloo.reads == 2


def test_what_was_presumed_is_read_for_the_record() -> None:
    gloo = Gloo()
    gloo.make("0")
    gloo.known()
    gloo.make("a helper", known=False)
    recorder.Recorder.order.append("1")  # made, and not called yet
    assert gloo.known() == ["0", "1"]
    gloo.make("1", known=False)
    recorder.ask_all()
    assert gloo.known() == ["0", "a helper", "1"]


def test_counts_that_take_long_to_read_are_kept_for_a_moment() -> None:
    gloo = Gloo()
    gloo.make("0")
    recorder.counts_of(gloo.bound, "gloo", {})
    until, found = recorder.Recorder.counted["gloo"]
    assert found == {"0": [2, 2]}
    recorder.Recorder.counted["gloo"] = until + 60, found
    gloo.make("1")
    assert recorder.counts_of(gloo.bound, "gloo", {}) == {"0": [2, 2]}
    recorder.ask_all()
    assert recorder.counts_of(gloo.bound, "gloo", {}) == {"0": [2, 2], "1": [2, 2]}
