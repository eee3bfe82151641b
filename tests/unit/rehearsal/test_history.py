"""When a command is stuck and when it is only slow; looks are data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.domains.job.record import ChildProcess, Frame
from preflight.rehearsal.aggregate import pace_of
from preflight.rehearsal.history import (
    LOADER_WORKER,
    SAMPLES,
    History,
    Moved,
    ProcessSample,
    activity,
    all_stuck,
    leaves,
)

C10D = ["/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3252]
WAITING = [[*C10D, "all_reduce", False], ["/job/train.py", 8, "step", True]]
INIT = [[*C10D, "init_process_group", False], ["/job/train.py", 3, "main", True]]
LOADING = [
    ["/usr/lib/python3.11/multiprocessing/connection.py", 900, "wait", False],
    ["/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1285, "_try", False],
    ["/job/train.py", 6, "epoch", True],
]
BACKWARD = [
    ["/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 824, "_engine_run", False],
    ["/job/train.py", 7, "step", True],
]
CLOSING_DOWN = [
    [*C10D, "destroy_process_group", False],
    ["/job/train.py", 22, "main", True],
]
SLEEP = [["/job/train.py", 20, "tokenise", True]]


ASKS = [["/usr/lib/python3.11/http/client.py", 286, "_read_status", False], *SLEEP]
RUNS = [["/usr/lib/python3.11/subprocess.py", 2011, "_wait", False], *SLEEP]


def pulse(stack: list[Any], *, steps: int = 0, groups: Any = None, **more: Any) -> dict[str, Any]:
    return {"stack": stack, "steps": steps, "batches": 0, "groups": groups or {}, "rank": 0, **more}


def seen(*looks: tuple[float, Any], cpu: float = 0.0) -> History:
    """A process after these looks; `cpu` is what it uses of one."""
    history = History(1, 0.0)
    for at, told in looks:
        history.add_sample(ProcessSample(at, at * cpu, 1 << 20, "S", pulse=told))
    return history


def standing(stack: list[Any], *, until: float = 10.0, cpu: float = 0.0, **more: Any) -> History:
    """One that shows the same at every look."""
    looks = [(at / 2, pulse(stack, **more)) for at in range(int(2 * until) + 1)]
    return seen(*looks, cpu=cpu)


def test_one_waits_and_the_other_stands_still_in_its_own_code() -> None:
    ranks = [standing(WAITING, groups={"0": [6, 5]}), standing(SLEEP, groups={"0": [5, 5]})]
    assert all_stuck(ranks, (), 10.0, 6.0)
    assert not all_stuck(ranks, (), 10.0, 20.0)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(standing(SLEEP, cpu=0.9), id="computes"),
        pytest.param(standing(SLEEP, until=10.0, cpu=0.06), id="works a little, as one that reads"),
        pytest.param(
            seen(*((t / 2, pulse([["/job/train.py", t, "f", True]])) for t in range(21))),
            id="goes on from line to line",
        ),
        pytest.param(
            seen(*((t / 2, pulse(WAITING, groups={"1": [t, t]})) for t in range(21))),
            id="does collectives in another group",
        ),
        pytest.param(
            seen(*((t / 2, pulse(SLEEP, batches=t)) for t in range(21))), id="gets batches"
        ),
    ],
)
def test_nobody_is_called_stuck_while_one_does_something(other: History) -> None:
    assert not all_stuck([standing(WAITING), other], (), 10.0, 6.0)


def test_a_poll_that_is_answered_goes_on_and_one_that_is_not_does_not() -> None:
    """Its main thread sleeps at every look."""
    answered = seen(*((t / 2, pulse(SLEEP, answers=t // 2)) for t in range(21)))
    silent = seen(*((t / 2, pulse(SLEEP, answers=3)) for t in range(21)))
    assert not all_stuck([standing(WAITING), answered], (), 10.0, 6.0)
    assert all_stuck([standing(WAITING), silent], (), 10.0, 6.0)


def test_all_in_their_own_code_is_no_hang() -> None:
    assert not all_stuck([standing(SLEEP), standing(SLEEP)], (), 10.0, 6.0)


LIBRARY = "/venv/lib/python3.11/site-packages"


def test_copies_to_a_gpu_are_counted() -> None:
    """They wait for it, and are no synchronisation that a program could leave out."""
    for calls, counted in (("to", True), ("cuda", True), ("item", False), ("", False)):
        history = standing(SLEEP, steps=9, calls=calls)
        assert history.copied == (history.looks if counted else 0)
        assert bool(history.synced) == (calls == "item")


@pytest.mark.parametrize(
    ("stack", "calls", "how"),
    [
        (SLEEP, "item", ".item()"),
        (SLEEP, "cpu", ".cpu()"),
        (SLEEP, "float", "float() of a tensor"),
        (SLEEP, "test", "a test of a tensor (if, while, and, not)"),
        (SLEEP, "items", ""),
        (SLEEP, "", ""),
        (
            [[f"{LIBRARY}/torch/cuda/__init__.py", 1040, "synchronize", False], *SLEEP],
            "",
            "synchronize()",
        ),
        (
            [[f"{LIBRARY}/torch/cuda/streams.py", 220, "synchronize", False], *SLEEP],
            "",
            "synchronize()",
        ),
        ([["/job/tools.py", 9, "synchronize", True], *SLEEP], "", ""),
        ([[f"{LIBRARY}/torch/_tensor_str.py", 99, "_str", False], *SLEEP], "", "print of a tensor"),
        # a library reads the value for the user's line
        ([[f"{LIBRARY}/torchmetrics/metric.py", 9, "compute", False], *SLEEP], "item", ".item()"),
    ],
)
def test_what_waits_for_a_gpu(stack: list[Any], calls: str, how: str) -> None:
    history = standing(stack, steps=9, calls=calls, device={"number": 0, "reserved": 5})
    line = Frame("/job/train.py", 20, "tokenise", True)
    if "/job/tools.py" in str(stack):
        assert not history.synced
    else:
        assert dict(history.synced) == ({(how, line): history.looks} if how else {})
    assert history.reserved == 5


@pytest.mark.parametrize(
    ("stack", "calls", "gpu", "how"),
    [
        (SLEEP, "cuda", True, ".cuda()"),
        (SLEEP, "to", True, ".to()"),
        (SLEEP, "item", True, ".item()"),
        (SLEEP, "items", True, ""),
        (SLEEP, "to", False, ""),  # a copy on the CPU
        (
            [[f"{LIBRARY}/torch/cuda/__init__.py", 9, "synchronize", False], *SLEEP],
            "",
            False,
            "synchronize()",
        ),
    ],
)
def test_by_what_call_a_rank_waits_for_its_gpu(
    stack: list[Any], calls: str, gpu: bool, how: str
) -> None:
    more = {"gpu": [5 << 30, 80 << 30]} if gpu else {}
    assert standing(stack, calls=calls, **more).gpu_wait == how


@pytest.mark.parametrize("device", [None, 3, {"reserved": -1}, {"reserved": "much"}])
def test_a_device_that_is_none(device: Any) -> None:
    assert standing(SLEEP, steps=9, device=device, calls=["item"]).reserved == 0


def test_a_gpu_that_spins_in_a_collective_is_waiting() -> None:
    """NCCL's waiting costs a whole CPU."""
    gpu = [5 << 30, 80 << 30]
    ranks = [standing(WAITING, cpu=1.0, groups={"0": [6, 5]}, gpu=gpu), standing(SLEEP)]
    assert all_stuck(ranks, (), 10.0, 6.0)


def test_one_that_would_go_on_if_it_were_given_a_cpu_is_not_stuck() -> None:
    history = standing(WAITING)
    history.add_sample(ProcessSample(9.0, 0.0, 0, "R", pulse=pulse(WAITING)))
    assert not all_stuck([history, standing(SLEEP)], (), 10.0, 6.0)


def test_where_all_are_on_their_way_in_more_time_is_given() -> None:
    assert not all_stuck([standing(INIT), standing(INIT)], (), 10.0, 6.0)
    assert all_stuck([standing(INIT, until=20.0), standing(INIT, until=20.0)], (), 20.0, 6.0)
    assert all_stuck([standing(INIT), standing(SLEEP)], (), 10.0, 6.0)


@pytest.mark.parametrize(
    ("ranks", "places", "stuck"),
    [
        ((0, 1), ([29500, ""], [29501, ""]), True),
        ((0, 1), ([0, "/a"], [0, "/b"]), True),
        ((0, 1), ([29500, ""], [29500, ""]), False),
        ((0, 1), ([29500, ""], None), False),
        ((0, 1), ([0, ""], [29500, ""]), False),
        ((0, 1), ("29500", ["29501", 3]), False),
        ((0, 0), ([29500, ""], [29501, ""]), False),  # two jobs
    ],
)
def test_ranks_that_look_for_each_other_at_two_places_are_given_no_more_time(
    ranks: tuple[int, int], places: tuple[Any, Any], stuck: bool
) -> None:
    both = [
        standing(INIT, **({"rank": rank, "meets": place}))
        for rank, place in zip(ranks, places, strict=True)
    ]
    assert all_stuck(both, (), 10.0, 6.0) is stuck
    assert not all_stuck(both, (), 10.0, 20.0)


def test_a_rank_that_has_not_come_to_torch_yet_and_works_is_waited_for() -> None:
    busy = History(2, 0.0, inside=False)
    idle = History(3, 0.0, inside=False)
    for at in range(11):
        busy.add_sample(ProcessSample(float(at), at * 0.5, 0))
        idle.add_sample(ProcessSample(float(at), 0.0, 0))
    assert not all_stuck([standing(INIT)], [busy], 10.0, 6.0)
    assert all_stuck([standing(INIT)], [idle], 10.0, 6.0)


def test_its_own_threads_bring_no_batch_to_a_rank_that_waits_for_its_workers() -> None:
    """A reporter's CPU is no sign of life there, a worker's is; without workers it loads itself."""
    worker = ChildProcess(7, LOADER_WORKER, "S")

    def loading(*children: ChildProcess, below: float = 0.0) -> History:
        history = History(1, 0.0, inside=False, rank=0, world=2)
        for at in range(11):
            look = ProcessSample(float(at), at * 0.2, 0, children=children, below=at * below)
            history.add_sample(replace(look, pulse={"stack": LOADING}))
        return history

    assert loading(worker).moved < 3.0
    assert loading(worker, below=0.2).moved == 10.0
    assert loading().moved == 10.0
    assert loading(ChildProcess(7, "python", "S")).moved == 10.0


def test_a_program_that_waits_for_its_threads_is_over() -> None:
    assert leaves([Frame("/usr/lib/python3.11/threading.py", 1590, "_shutdown")])
    assert leaves([Frame("/usr/lib/python3.11/multiprocessing/util.py", 357, "_exit_function")])
    assert not leaves([Frame("/job/util.py", 3, "_shutdown", own=True)])


def test_a_child_that_comes_or_goes_is_a_sign_of_life() -> None:
    history = standing(SLEEP, until=9.0)
    worker = ChildProcess(7, "python", "S")
    history.add_sample(ProcessSample(9.5, 0.0, 0, children=(worker,), pulse=pulse(SLEEP)))
    history.add_sample(ProcessSample(10.0, 0.0, 0, children=(), pulse=pulse(SLEEP)))
    assert history.moved == 10.0


@pytest.mark.parametrize(
    ("stack", "where"),
    [
        (WAITING, "collective"),
        (INIT, "init"),
        (LOADING, "loader"),
        (BACKWARD, "own"),
        (SLEEP, "own"),
        (CLOSING_DOWN, "own"),
    ],
)
def test_where_a_stack_is(stack: list[Any], where: str) -> None:
    assert activity(Frame(*frame) for frame in stack) == where


def test_backward_waits_once_its_collective_is_open_for_long() -> None:
    assert standing(BACKWARD, until=2.0, groups={"0": [6, 5]}).at == "own"
    assert standing(BACKWARD, until=8.0, groups={"0": [6, 5]}).at == "collective"


def test_an_inside_that_gives_no_answer_is_unknown() -> None:
    history = standing(SLEEP, until=2.0)
    for at in (3.0, 4.0, 5.0, 6.0):
        history.add_sample(ProcessSample(at, 0.0, 0, "D"))
    assert (history.at, history.state) == ("unknown", "D")


def test_what_a_rank_left_at_its_end_is_no_look_at_its_pace() -> None:
    """It ended some time before the watch: to take its interpreter down takes long on a busy
    machine, and then its mean step would be far longer than its usual one."""
    history = seen(*((float(t), pulse(SLEEP, steps=t)) for t in range(4, 24)))
    history.add_answer(90.0, pulse(SLEEP, steps=24), last=True)
    pace = pace_of(history, {"durations": [[float(t), 1.0] for t in range(20)]})
    assert history.steps == 24
    assert pace.looks == 20
    assert pace.mean == pytest.approx(1.0, rel=0.1)


def test_the_thread_that_computes_most() -> None:
    line = ["t.py", 5, "report", True]

    def told(t: int) -> dict[str, Any]:
        threads = [[7, "a", 0.5 * t, line], [8, "b", 0.1 * t, None], [9, "c", -1, None], "x"]
        return pulse(SLEEP, steps=t, threads=threads)

    history = seen(*((float(t), told(t)) for t in range(4, 24)))
    thread = pace_of(history, {}).thread
    assert thread is not None
    assert (thread.name, thread.at) == ("a", Frame("t.py", 5, "report", own=True))
    assert thread.cpu == pytest.approx(0.5)
    assert set(history.threads) == {7, 8}
    assert pace_of(seen((5.0, pulse(SLEEP, steps=5, threads={}))), {}).thread is None


def test_memory_is_kept_for_any_length_of_time() -> None:
    history = seen(*((float(t), pulse(SLEEP, steps=t)) for t in range(5000)))
    assert len(history.samples) <= SAMPLES
    assert history.samples[0][0] < 100
    assert history.samples[-1][0] > 4800


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"rank": "0", "world": [], "groups": [], "stack": {}, "loader": 1},
        {"rank": -1, "steps": 1e99, "groups": {"0": ["6", None]}, "stack": [[1, 2], None, "x"]},
        {"rank": 1 << 40, "world": -5, "stack": [["f\n\x1b[2J", 1, "g", True]] * 1000},
        {"error": "ValueError: x"},
    ],
)
def test_what_a_process_tells_is_hostile(told: dict[str, Any]) -> None:
    history = seen((0.5, told), (1.0, told))
    assert history.rank is None
    assert all("\x1b" not in f.file and "\n" not in f.file for f in history.stack)
    assert len(history.stack) <= 12


def elsewhere(stack: list[Any], net: int = 0, *, gpu: int = 0, **below: float) -> History:
    """One whose stack and CPU show nothing for 10 s; `net`: bytes a second, also as `child` bytes;
    `below`: CPU of its children, their bytes over TCP (`child`), through files (`reads`), and the
    `workers` of its DataLoader."""
    history = History(1, 0.0)
    for number in range(21):
        at = number / 2
        told = pulse(stack, **({"gpu": [1, gpu]} if gpu else {}))
        told["loader"] = {"workers": int(below.get("workers", 0))}
        child, reads = int(below.get("child", 0) * at), int(below.get("reads", 0) * at)
        moved = Moved(int(net * at), reads, child, "192.0.2.7:443", reads)
        cpu = below.get("cpu", 0.0) * at
        history.add_sample(ProcessSample(at, cpu, 0, "S", pulse=told, below=cpu, moved=moved))
    return history


@pytest.mark.parametrize(
    ("history", "works"),
    [
        pytest.param(elsewhere(ASKS, 200), True, id="asks an API, a few bytes at a time"),
        pytest.param(elsewhere(ASKS, 200, gpu=1 << 30), True, id="the same with a GPU"),
        pytest.param(elsewhere(ASKS), False, id="asks one that never answers"),
        pytest.param(elsewhere(SLEEP, 400), False, id="a tracker's thread tells that it lives"),
        pytest.param(elsewhere(SLEEP, 1 << 20), True, id="a thread uploads a checkpoint"),
        pytest.param(
            elsewhere(WAITING, 64 << 10), True, id="a large all-reduce over a slow network"
        ),
        pytest.param(
            elsewhere(LOADING, 1 << 20, workers=2), False, id="a log is sent, its workers hang"
        ),
        pytest.param(
            elsewhere(LOADING, 1 << 20, child=1 << 20, workers=2), True, id="its workers download"
        ),
        pytest.param(elsewhere(LOADING, reads=1 << 20, workers=2), True, id="its workers read"),
        pytest.param(elsewhere(LOADING, 1 << 20), True, id="reads its data itself"),
        pytest.param(elsewhere(RUNS, child=300, net=300), True, id="its child downloads"),
        pytest.param(elsewhere(RUNS, cpu=0.5), True, id="its child computes"),
        pytest.param(elsewhere(RUNS, cpu=0.5, gpu=1 << 30), True, id="the same with a GPU"),
        pytest.param(elsewhere(RUNS), False, id="its child sleeps"),
    ],
)
def test_work_that_no_stack_shows(history: History, works: bool) -> None:
    waits = standing(WAITING, groups={"0": [6, 5]})
    assert all_stuck([waits, history], (), 10.0, 3.0) is not works


@pytest.mark.parametrize(
    ("stack", "where", "wakes", "works"),
    [
        (ASKS, "unix_wait", (7, 8), True),  # an answer that comes in parts, over a Unix socket
        (ASKS, "unix_wait", (7, 7), False),
        (ASKS, "unix_wait", (0, 8), False),  # it waited for something else before
        (WAITING, "unix_wait", (7, 8), False),
        (SLEEP, "unix_wait", (7, 8), False),
        (SLEEP, "pipe_read", (7, 8), True),  # lines of a child, or files of a slow mount
        (SLEEP, "anon_pipe_read", (7, 8), True),
        (SLEEP, "pipe_read", (7, 7), False),
        (WAITING, "pipe_read", (7, 8), False),
        (SLEEP, "hrtimer_nanosleep", (7, 8), False),
    ],
)
def test_what_wakes_a_thread_at_a_socket_or_pipe(
    stack: list[Any], where: str, wakes: tuple[int, int], works: bool
) -> None:
    history = standing(stack)
    for at, count in zip((10.5, 11.0), wakes, strict=True):
        told = pulse(stack)
        history.add_sample(ProcessSample(at, 0.0, 0, "S", where, count, pulse=told))
    assert (history.worked == 11.0) is works


def test_an_answer_from_elsewhere_may_take_its_time() -> None:
    waits = standing(WAITING, groups={"0": [6, 5]})
    assert not all_stuck([waits, elsewhere(ASKS)], (), 10.0, 4.0)
    assert all_stuck([waits, elsewhere(SLEEP)], (), 10.0, 4.0)


def asking(*keys: str, **more: Any) -> dict[str, Any]:
    """The look at one that waits for keys of a store."""
    return pulse(SLEEP, store={"keys": list(keys), "ends": None} | more)


def test_who_waits_for_a_key_waits_for_others() -> None:
    ranks = [seen(*((t / 2, asking("ready")) for t in range(21))) for _ in range(2)]
    assert {(h.at, h.keys) for h in ranks} == {("store", ("ready",))}
    assert all_stuck(ranks, (), 10.0, 6.0)
    assert not all_stuck([ranks[0], standing(SLEEP, cpu=0.9)], (), 10.0, 6.0)
    goes_on = seen(*((t / 2, asking(f"batch/{t}")) for t in range(21)))
    assert not all_stuck([ranks[0], goes_on], (), 10.0, 6.0)
    # the program says itself for how long
    limited = seen(*((t / 2, asking("ready", ends=18.0)) for t in range(21)))
    assert not all_stuck([ranks[0], limited], (), 10.0, 6.0, until=60.0)
    assert all_stuck([ranks[0], limited], (), 10.0, 6.0, until=15.0)


@pytest.mark.parametrize("store", [3, {}, {"keys": "ready"}, {"keys": [], "ends": "x"}, None])
def test_keys_that_are_none(store: Any) -> None:
    assert seen((1.0, pulse(SLEEP, store=store, sleeps="x"))).at == "own"


def test_who_is_on_its_way_out_has_nothing_to_wait_for() -> None:
    ends = standing(SLEEP, leaving=True)
    assert ends.closing
    assert all_stuck([ends], (), 10.0, 6.0)
    assert not all_stuck([standing(SLEEP, leaving=True, cpu=0.5)], (), 10.0, 6.0)
    assert not all_stuck([ends, standing(SLEEP, cpu=0.5)], (), 10.0, 6.0)


def test_who_sleeps_again_and_again_at_its_exit_does_not_end() -> None:
    looks = []
    for at in range(41):
        ends = 8.0 * (at // 16 + 1)
        looks.append((at / 2, pulse(SLEEP, leaving=True, sleeps=ends)))
    assert not all_stuck([seen(*looks)], (), 20.0, 6.0, until=60.0)
    assert all_stuck([seen(*looks)], (), 20.0, 6.0, until=20.0)


def sleeping(*ends: float, until: float, stack: list[Any] = SLEEP) -> History:
    """One that sleeps until each of these times in turn, looked at twice a second."""
    looks = []
    for at in range(int(2 * until) + 1):
        left = [end for end in ends if end > at / 2]
        looks.append((at / 2, pulse(stack, sleeps=left[0] if left else None)))
    return seen(*looks)


def test_what_torch_sleeps_between_its_connects_is_not_waited_for() -> None:
    """Each rank looks for the others where nobody listens, at ever longer distances."""
    ranks = [sleeping(4.0, 12.0, 25.0, until=20.0, stack=INIT) for _ in range(2)]
    assert all_stuck(ranks, (), 20.0, 6.0, until=60.0)
    assert not all_stuck(ranks, (), 12.0, 6.0, until=60.0)  # all are on their way
    own = sleeping(4.0, 12.0, 25.0, until=20.0)
    assert not all_stuck([ranks[0], own], (), 20.0, 6.0, until=60.0)


@pytest.mark.parametrize(
    ("ends", "now", "until", "stuck"),
    [
        pytest.param((100_000.0,), 8.0, 60.0, True, id="longer than the watch"),
        pytest.param((8.0, 16.0, 24.0), 20.0, 60.0, False, id="pauses of a retry"),
        pytest.param((8.0, 16.0, 24.0), 20.0, 20.0, False, id="at the end of the watch"),
        pytest.param((8.0, 24.0), 20.0, 20.0, False, id="twice as long each time"),
        pytest.param((8.0, 90.0), 20.0, 60.0, True, id="at last much longer"),
        pytest.param((8.0,), 12.0, 60.0, False, id="just awake"),
        pytest.param((8.0,), 15.0, 60.0, True, id="awake, and nothing came of it"),
        pytest.param(tuple(n / 2 for n in range(80)), 12.0, 60.0, True, id="a poll"),
    ],
)
def test_a_sleep_that_ends_by_itself_is_waited_for(
    ends: tuple[float, ...], now: float, until: float, stuck: bool
) -> None:
    waits = standing(WAITING, until=now, groups={"0": [6, 5]})
    one = sleeping(*ends, until=now)
    assert all_stuck([waits, one], (), now, 6.0, until) is stuck
