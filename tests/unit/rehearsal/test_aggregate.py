"""From the histories of processes to the record."""

from __future__ import annotations

import random

import pytest

from preflight.domains.job.record import TEXT, Frame, HeldStore, Joins
from preflight.rehearsal import aggregate
from preflight.rehearsal.history import History, ProcessSample


def test_a_rank_that_is_seen_from_outside_is_in_the_call_of_its_stack() -> None:
    history = History(1, 0.0, inside=False)
    file = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    stack = [[file, 9, "all_reduce", False], ["/job/t.py", 4, "f", True]]
    history.add_sample(ProcessSample(1.0, 0.0, 0, pulse={"stack": stack}))
    (group,) = aggregate.groups_of(history, {}, 1.0)
    assert group.open is not None
    assert (group.open.op, group.open.frame) == ("all_reduce", Frame("/job/t.py", 4, "f", True))


@pytest.mark.parametrize(
    ("root", "known"), [(1, 7), (0, 3), (2, None), (-1, None), ("1", None), (None, None)]
)
def test_a_root_is_a_rank_of_the_whole_job(root: object, known: int | None) -> None:
    entry = {"seq": 1, "op": "broadcast", "root": root, "thread": True}
    dump = {"recorded": {"1": [entry]}, "members": {"1": [3, 7]}}
    (group,) = aggregate.groups_of(History(1, 0.0), dump, 1.0)
    assert (group.calls[0].root, group.calls[0].thread) == (known, True)


def test_which_calls_a_gpu_has_started() -> None:
    for told, started in ((True, True), (False, False), (1, False), (None, False)):
        dump = {"recorded": {"1": [{"seq": 1, "op": "all_reduce", "started": told}]}}
        (group,) = aggregate.groups_of(History(1, 0.0), dump, 1.0)
        assert group.calls[0].started is started


@pytest.mark.parametrize(
    ("seconds", "enqueued", "where", "done"),
    [
        (9.0, 6, "all_reduce", False),
        (9.0, 7, "all_reduce", True),  # it is counted: what is done is known
        (1.0, 6, "all_reduce", True),  # the count may lag
        (9.0, 6, "train", True),
        (9.0, 3, "all_reduce", True),
    ],
)
def test_a_call_in_which_nccl_connects_the_ranks_has_not_ended(
    seconds: float, enqueued: int, where: str, done: bool
) -> None:
    history = History(1, 0.0)
    file = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    inner = [[file, 9, where, False]] if where == "all_reduce" else []
    stack = [*inner, ["/job/t.py", 4, "f", True]]
    groups = {"0": [enqueued, enqueued]}
    history.add_sample(ProcessSample(1.0, 0.0, 0, pulse={"stack": stack, "groups": groups}))
    dump = {"recorded": {"0": [{"seq": n, "op": "all_reduce", "done": True} for n in (6, 7)]}}
    (group,) = aggregate.groups_of(history, dump, 1.0 + seconds)
    assert [call.done for call in group.calls] == [True, done]


def test_what_a_process_gives_back_at_its_end_is_not_counted() -> None:
    history = History(1, 0.0)
    for at, (steps, mib) in enumerate([(1, 300), (2, 320), (3, 340), (4, 200), (4, 90)]):
        told = {"stack": [], "steps": steps}
        history.add_sample(ProcessSample(float(at), 0.0, mib << 20, pulse=told))
    for ended, kept in ((True, [300, 320, 340]), (False, [300, 320, 340, 200, 90])):
        growth = aggregate.growth_of(history, 0.0, (1 << 40, 1 << 39), 1, ended=ended)
        assert [rss >> 20 for _, _, rss, _ in growth.samples] == kept


@pytest.mark.parametrize(("steps", "mean"), [([20] * 4, 9.0), ([20, 23, 26, 29], 1.0)])
def test_looks_after_the_last_step_are_none_of_a_usual_one(steps: list[int], mean: float) -> None:
    """A rank that waits for a program after its steps is not slower in every step."""
    history = History(1, 0.0)
    for at, done in enumerate(steps):
        told = {"stack": [["/job/t.py", 4, "f", True]], "steps": done}
        history.add_sample(ProcessSample(3.0 * at, 0.0, 0, pulse=told))
    dump = {"durations": [[n, 0.02] for n in range(20)]}
    assert aggregate.pace_of(history, dump).mean == pytest.approx(mean)


def test_what_a_loader_without_workers_calls_is_one_function_of_many_lines() -> None:
    fetch = ["/venv/site-packages/torch/utils/data/_utils/fetch.py", 55, "fetch", False]
    main = ["/job/train.py", 90, "main", True]

    def made(*own: tuple[int, str], loads: bool = True) -> tuple[object, float]:
        history = History(1, 0.0)
        for number in range(40):
            line, function = own[number % len(own)]
            stack = [["/job/data.py", line, function, True], *([fetch] if loads else []), main]
            told = {"stack": stack, "steps": number}
            history.add_sample(ProcessSample(float(number), 0.0, 0, pulse=told))
        pace = aggregate.pace_of(history, {})
        return pace.loading, round(pace.loading_part, 2)

    words = Frame("/job/data.py", 7, "words", own=True)
    assert made((5, "open"), (6, "words"), (7, "words"), (7, "words"), (5, "open")) == (words, 0.59)
    assert made((6, "words"), loads=False) == (None, 0)
    # all that a function calls is its time
    history, fetches = History(1, 0.0), [["/job/data.py", 30, "collate", True], fetch, main]
    for number in range(40):
        inner = [["/job/bpe.py", number, f"merge_{number % 3}", True], ["/venv/re.py", 8, "sub"]]
        told = {"stack": [*inner[: number % 2 + 1], *fetches], "steps": number}
        history.add_sample(ProcessSample(float(number), 0.0, 0, pulse=told))
    assert aggregate.pace_of(history, {}).loading == Frame("/job/data.py", 30, "collate", own=True)
    assert aggregate.pace_of(history, {}).loading_part == 1.0
    assert aggregate.pace_of(History(1, 0.0), {}).loading is None


def test_steps_with_a_pause_are_known_by_their_number() -> None:
    """The first two compile; one that is short beside the pauses is noise."""
    took = [9.0, 9.0] + [1.0 if n % 10 == 9 else 0.15 if n == 33 else 0.02 for n in range(60)]
    dump = {"durations": [[n, seconds] for n, seconds in enumerate(took)]}
    assert aggregate.pace_of(History(1, 0.0), dump).pauses == (9, 19, 29, 39, 49, 59)
    alike = {"durations": [[n, 0.02] for n in range(60)]}
    assert aggregate.pace_of(History(1, 0.0), alike).pauses == ()
    assert aggregate.pace_of(History(1, 0.0), {}).pauses == ()


def test_what_a_child_says_when_it_crashes_is_not_its_parents() -> None:
    here = (Frame("train.py", 3, "step", own=True),)
    assert aggregate.end_of(None, 1.0, -6, here).frames == here
    assert aggregate.end_of(None, 1.0, None, here).frames == here
    assert aggregate.end_of(None, 1.0, 3, here).frames == ()


def test_only_an_error_of_a_gpu_is_kept_at_length() -> None:
    """Torch names each process on the GPU before it says who has how much of the memory."""
    held = " ".join(f"Process {pid} has 1.21 GiB memory in use." for pid in range(11))
    text = f"OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. {held} 2.00 GiB is"
    end = aggregate.end_of({"how": "raised", "text": f"{text}\nx"}, 1.0, 1)
    assert (end.text, end.whole) == (f"{text[: TEXT - 1]}…", f"{text} x")
    assert (
        len(aggregate.end_of({"how": "raised", "text": text * 9}, 1.0, 1).whole) == aggregate.WHOLE
    )
    short, other = text[:TEXT], "ValueError: " + "x" * 2 * TEXT
    end = aggregate.end_of({"how": "raised", "text": short}, 1.0, 1)
    assert (end.text, end.whole) == (short, "")
    end = aggregate.end_of({"how": "raised", "text": other}, 1.0, 1)
    assert (end.text, end.whole) == (f"{other[: TEXT - 1]}…", "")


def test_where_one_was_seen_last_is_told_where_nothing_else_is() -> None:
    here = (Frame("train.py", 3, "step", own=True),)
    seen = History(7, 0.0, stack=here, answered=41.3)
    lost = aggregate.end_of(None, 1042.0, -9)
    told = aggregate.with_last_look(lost, seen, 1000.0)
    assert (told.last, told.ago) == (here, 0.7)
    assert aggregate.with_last_look(lost, None, 1000.0) == lost
    crashed = aggregate.end_of(None, 1042.0, -11, here)
    assert aggregate.with_last_look(crashed, seen, 1000.0) == crashed
    left = aggregate.end_of({"how": "exited"}, 1042.0, 0)
    assert aggregate.with_last_look(left, seen, 1000.0) == left
    gone = aggregate.end_of({"how": "raised", "at": 1042.0}, 1043.0, 1)
    assert aggregate.with_last_look(gone, seen, 1000.0) == gone
    seen.away = ((Frame("eval.py", 9, "score", own=True),), 39.5)
    told = aggregate.with_last_look(gone, seen, 1000.0)
    assert (told.last, told.ago) == (seen.away[0], 2.5)


def test_what_a_rank_says_when_it_joins() -> None:
    word = {"how": "file", "path": "/x", "rank": 1, "world": 2, "at": 1000.0, "file": [70, 600.5]}
    found = aggregate.joins_of(word, 5, 950.0, {})
    assert found == Joins(5, "file", path="/x", rank=1, world=2, stale=550.5)
    word = {"how": "tcp", "host": "n1", "port": 1, "at": 1000.0, "frame": ["a.py", 3, "f", True]}
    found = aggregate.joins_of(word, 5, 950.0, {("n1", 1): "Connection refused"})
    assert found == Joins(
        5, "tcp", "n1", 1, frame=Frame("a.py", 3, "f", True), refused="Connection refused"
    )


def test_where_the_launcher_listens() -> None:
    word = {"how": "env", "held": {"host": "n1", "port": 29500, "frame": ["a.py", 3, "f", True]}}
    found = aggregate.joins_of(word, 5, 950.0, {})
    assert found is not None
    assert found.held == HeldStore("n1", 29500, Frame("a.py", 3, "f", True))
    for held in ({"host": "n1", "port": "x", "frame": None}, {"host": "n1", "port": 0}, 7, None):
        found = aggregate.joins_of({"how": "env", "held": held}, 5, 950.0, {})
        assert found is not None
        assert found.held is None


@pytest.mark.parametrize("word", [None, [], "x"])
def test_a_word_that_is_none(word: object) -> None:
    assert aggregate.joins_of(word, 5, 950.0, {}) is None


def test_nonsense_in_such_a_word_counts_as_nothing() -> None:
    word = {"how": 7, "host": None, "port": True, "rank": -1, "file": [1, "x"], "at": "now"}
    found = aggregate.joins_of(word, 5, 950.0, {})
    assert found is not None
    assert (found.port, found.rank, found.stale, found.frame) == (0, None, 0.0, None)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. ", True),
        ("torch.distributed.DistBackendError: NCCL error: ncclUnhandledCudaError ", True),
        ("RuntimeError: Expected to have finished reduction in the prior iteration ", True),
        ("ValueError: ", False),
    ],
)
def test_an_error_whose_end_matters_is_kept_whole(text: str, whole: bool) -> None:
    text += "x" * 500
    end = aggregate.end_of({"how": "raised", "text": text, "at": 1.0}, 1.0, 1)
    assert end.whole == (text if whole else "")
    assert len(end.text) <= TEXT


def test_two_calls_of_one_line_grow_together() -> None:
    def rises(sizes: list[int]) -> float:
        call = {"op": "all_gather", "shape": "[9] Float", "frame": ["a.py", 3, "f", True]}
        dump = {"recorded": {"0": [call | {"bytes": size} for size in sizes]}}
        (payload,) = aggregate._payloads(aggregate._calls_with_bytes(dump))
        return payload.rises

    assert rises([size for size in range(100, 140) for _ in range(2)]) == 1.0
    assert rises([size for n in range(40) for size in (100 + n, 900 + n)]) == 1.0
    assert rises([size for _ in range(40) for size in (100, 200)]) < 0.6
    assert rises([100, 200, 100, 300, 100, 400, 100, 500]) < 0.6  # too few to tell
    drawn = random.Random(3)
    assert rises([drawn.randrange(1000) for _ in range(200)]) < 0.7


def test_payloads_stand_for_the_calls_that_are_not_kept() -> None:
    entries = [
        {"op": "all_gather", "shape": "[9] Byte", "frame": ["a.py", 3, "f", True], "bytes": 100 + n}
        for n in range(8)
    ]
    dump = {"recorded": {"0": entries, "1": [{"bytes": 7}]}, "groups": {"0": [80, 80], "1": "x"}}
    (payload,) = aggregate._payloads(aggregate._calls_with_bytes(dump))
    assert (payload.calls, payload.all, payload.rises) == (8, 80, 1.0)
    assert (payload.early, payload.late) == (100.5, 106.5)
    (payload,) = aggregate._payloads(aggregate._calls_with_bytes({"recorded": {"0": entries}}))
    assert payload.all == 8
