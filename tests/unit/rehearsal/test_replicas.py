"""What the injected files tell of models and backends is hostile."""

from __future__ import annotations

from preflight.domains.job.backends import StridedCall
from preflight.domains.job.draws import Draw
from preflight.domains.job.frame import Frame
from preflight.domains.job.labels import Labels
from preflight.domains.job.record import CALLS, End
from preflight.domains.job.shared_data import Samples, Sharer, Shares
from preflight.domains.job.step_parts import Backward, Sent, StepPart, Timed
from preflight.rehearsal.replicas import (
    DEALT,
    LATEST,
    LOOPS,
    backends_of,
    dealt_of,
    parts_of,
    replicas_of,
    shares_of,
)

TOLD = {
    "kind": "ddp",
    "frame": ["train.py", 3, "main", True],
    "device": "cuda",
    "size": 40,
    "names": ["a", "b"],
    "paths": ["net.a", "net.b", "net.c"],
    "shapes": ["[2] float32", "[3] float32"],
    "trained": "10",
    "had": "01",
    "options": {"static_graph": True, "find_unused_parameters": False},
    "rates": [0.1, None, float("nan")],
    "seed": 7,
    "hooks": ["allreduce_hook"],
    "unfrozen": [[1, 5], [2, 5], [0, -1], ["x", 1], 3],
    "replaced": [[0, 7], [9, 7]],
    "unreduced": [0, 4, "x", -1],
    "stepped": ["train.py", 9, "main", True],
    "buffers": ["mask"],
    "placed": ["steps [] int64", "mask [2] float32"],
    "held": [[0, "1", "2"], [0, 1, 2]],
    "graded": [[0, "3", "4"], [1, "3", "4 5"], 7],
    "touched": True,
    "checks": [[0, "1 -", "2 -"], [1, "1", "1 2"], ["x"], [-1, "1", "1"]],
}


def test_a_model_is_read() -> None:
    (found,) = replicas_of({"models": [TOLD]})
    assert (found.names, found.trained, found.had) == (("a", "b"), (True, False), (False, True))
    assert found.paths == ("net.a", "net.b")
    assert (found.options, found.rates, found.hooks) == (
        ("static_graph",),
        (0.1,),
        ("allreduce_hook",),
    )
    assert [(c.step, c.sums) for c in found.checks] == [(0, (1.0, None))]
    assert found.unused == ("a",)
    assert (found.unfrozen, found.unreduced) == (((1, 5),), (0, 4))
    assert found.replaced == ((0, 7),)
    assert found.stepped is not None
    assert found.stepped.line == 9
    assert found.placed == ("steps [] int64", "mask [2] float32")
    assert (found.buffers, [c.sums for c in found.held]) == (("mask",), [(1.0,)])
    assert [(c.step, c.sums, c.sizes) for c in found.graded] == [(0, (3.0,), (4.0,))]


def test_marks_of_inputs_are_read() -> None:
    told = {"marks": [[0, 7], [1, 1 << 70], [-1, 3], ["x", 3], [2], 5]}
    assert parts_of({"parts": told}).marks == ((0, 7),)
    assert len(parts_of({"parts": {"marks": [[0, 7]] * 9000}}).marks) < 100


def test_labels_and_draws_are_read() -> None:
    labels = [[0, 3, 8], [1, 9, 8], ["x", 1, 2], [2, -1, 3], 5]
    draws = [[0, 7, 20, None, 0], [1, 8, 20, 9, 4], [2, 1, "x", None, 0], [3, -1, 0, None, 0], {}]
    contents = [[0, 4, 5], [1, -1, 5], [2, 4, None], "x"]
    known = {"labels": labels, "contents": contents, "threads": 8}
    found = parts_of({"parts": known, "draws": draws})
    assert found.contents == ((0, 4, 5),)
    assert found.labels == (Labels(0, 3, 8),)
    assert found.draws == (Draw(0, 7, 20), Draw(1, 8, 20, 9, 4))
    assert found.threads == 8
    many = parts_of({"parts": {"labels": labels[:1] * 900, "threads": 1 << 40}, "draws": 3})
    assert (len(many.labels), many.draws) == (48, ())
    assert many.threads == 1 << 16


def test_whatever_else_is_told_is_no_model() -> None:
    for told in (None, 3, "x", [1, None], [{}], [{"names": 3, "checks": {}, "rates": "x"}]):
        for one in replicas_of({"models": told}):
            assert one.names == ()
            assert one.checks == ()


DEALS = {"steps": 8, "replicas": 2, "rank": 1, "seed": 3, "epoch": 1, "shuffle": True} | {
    "length": 256,
    "frame": ["train.py", 9, "main", True],
}


def test_how_data_is_dealt_out_is_read() -> None:
    (found,) = dealt_of({"dealt": [DEALS]})
    assert (found.steps, found.replicas, found.rank, found.length) == (8, 2, 1, 256)
    assert (found.order, str(found.frame)) == ((True, 4), "train.py:9")
    assert len(dealt_of({"dealt": [DEALS] * 100})) == DEALT


def test_whatever_else_is_told_deals_nothing_out() -> None:
    wrong = [{"rank": 2}, {"rank": -1}, {"replicas": 0}, {"seed": 1 << 64}, {"epoch": 0.5}]
    wrong += [{"steps": -1}, {"length": "256"}, {"shuffle": 1}, {"seed": None}]
    assert dealt_of({"dealt": [DEALS | one for one in wrong]}) == ()
    for told in (None, 3, "x", {"rank": 1}, [None, 1, [], {}]):
        assert dealt_of({"dealt": told}) == ()


def test_backends_are_read() -> None:
    dump = {"backends": {"0": {"cpu": "gloo"}, "x": 3}, "members": {"0": [0, 1]}, "models": [TOLD]}
    dump["labels"] = {"0": "default_pg", "x": 3}
    end = End("raised", 1.0, text="RuntimeError: no")
    found = backends_of(1, dump, {"backend": "gloo", "frame": ["t.py", 1, "f", True]}, end)
    assert (found.asked, found.called, found.failed) == ("gloo", True, "RuntimeError: no")
    assert (found.text, found.models) == ("gloo", ("cuda",))
    assert found.groups[0].called == "world"
    assert backends_of(None, {"backends": []}, None, None).text == ""


def test_views_with_gaps_are_read() -> None:
    line = ["t.py", 3, "f", True]
    one = ["all_reduce", "0", [32, 8], [64, 1], 30, line]
    nonsense = [["all_reduce", "0", [32], [64, 1], 30, line], [*one[:4], 0, line], one[:3], 7]
    dump = {"backends": {"0": {"cpu": "gloo"}, "1": {"cpu": "mpi"}}}
    dump["strided"] = [one, ["all_reduce", "1", *one[2:]], *nonsense]  # type: ignore[assignment]
    found = backends_of(1, dump, None, None).strided
    frame = Frame("t.py", 3, "f", own=True)
    assert found == (StridedCall("all_reduce", (32, 8), (64, 1), 30, frame),)
    assert found[0].text == "[32, 8] with strides [64, 1]"
    for told in (None, 3, {"0": one}):
        assert backends_of(1, {**dump, "strided": told}, None, None).strided == ()


def test_settings_are_read() -> None:
    told = {"NCCL_ALGO": "Tree\n" * 40, "NCCL_SOCKET_IFNAME": "eth0", "GLOO_X": "1", 7: None}
    found = backends_of(1, {}, {"settings": told}, None)
    assert [name for name, _ in found.settings] == ["NCCL_ALGO"]
    assert "\n" not in found.settings[0][1]
    assert len(found.settings[0][1]) <= 80
    for other in (None, 3, ["NCCL_ALGO"], {"NCCL_ALGO": None}):
        assert len(backends_of(1, {}, {"settings": other}, None).settings) < 2


def call(at: float, size: int = 8, dtype: str = "Float", **more: object) -> dict[str, object]:
    return {"at": at, "bytes": size, "shape": f"[2] {dtype}", **more}


def test_the_calls_of_a_backward_pass_are_those_within_it() -> None:
    calls = [
        call(99.9),
        call(100.5, 16, "Double"),
        call(100.25),
        call(100.3, p2p=True),
        call(101.5),
    ]
    dump = {
        "parts": {"windows": [[100.0, 1.0], [101.0, 0.2], ["x", 1], [103.0, -1.0]], "forwards": 3},
        "recorded": {"0": calls, "1": "x", "2": [3, {"at": "x"}, {"at": float("nan")}]},
    }
    found = parts_of(dump)
    first, second, last = found.passes
    assert first == Backward(1.0, (Sent(0.25, 8, True), Sent(0.5, 16, False)))
    assert (second, last, found.forwards) == (Backward(0.2), Backward(0.0), 3)


def test_passes_from_before_the_first_known_call_are_left_out() -> None:
    calls = [call(100.0 + n) for n in range(CALLS)]
    dump = {"parts": {"windows": [[99.0, 2.0], [150.0, 1.0]]}, "recorded": {"0": calls}}
    assert [len(one.sent) for one in parts_of(dump).passes] == [2]
    # more than a pass is worth
    dump["parts"]["windows"] = [[100.0, 80.0]]  # type: ignore[index]
    assert parts_of(dump).passes == ()


def test_what_follows_the_last_collective_of_a_backward_pass_is_waiting() -> None:
    calls = [call(100.5), call(100.7), call(100.9, p2p=True), call(103.0)]
    latest = [
        ["data", 99.0, 0.25],
        ["forward", 100.0, 0.1],
        ["backward", 100.25, 0.75],
        ["backward", 101.5, 0.5],
        ["optimizer", 102.0, 1],
    ]
    rubbish = [
        ["backward", "x", 1],
        ["sleep", 1.0, 1.0],
        ["data", -1.0, 1.0],
        3,
        ["data", 1e300, 1.0],
    ]
    dump = {"parts": {"latest": latest + rubbish}, "recorded": {"0": calls, "1": 3}}
    assert parts_of(dump).latest == (
        Timed(StepPart.DATA, 99.0, 0.25),
        Timed(StepPart.FORWARD, 100.0, 0.1),
        Timed(StepPart.BACKWARD, 100.25, 0.75, 0.3),
        Timed(StepPart.BACKWARD, 101.5, 0.5),
        Timed(StepPart.OPTIMIZER, 102.0, 1.0),
    )
    assert len(parts_of({"parts": {"latest": latest * 100}}).latest) == LATEST


def test_a_rank_may_say_any_number() -> None:
    entry = {"kind": "ddp", "modes": [10**4000, 3]}
    assert replicas_of({"models": [entry]})[0].modes == (0, 0)
    assert replicas_of({"models": [dict(entry, modes=[20, 3])]})[0].modes == (20, 3)


def test_who_divides_the_samples_is_read() -> None:
    layer = {"kind": "Subset", "length": 5, "of": 10, "marks": [3, "x", -1], "span": [0, 8, 2]}
    layer["order"] = 9
    loop = {
        "frame": ["train.py", 3, "main", True],
        "trains": True,
        "sharers": [["DistributedSampler", 2, 1], ["x", 0, 0], ["y", 2], 3],
        "layers": [layer, {**layer, "span": [0, 8]}, {**layer, "of": 10**4000}, 7],
    }
    (found,) = shares_of({"shares": [loop, {**loop, "sharers": []}, 3]})
    assert found == Shares(
        found.frame,
        True,
        (Sharer("DistributedSampler", 2, 1),),
        (Samples("Subset", 5, 10, (3,), (0, 8, 2), 9),),
    )
    assert shares_of({"shares": "x"}) == shares_of({}) == ()
    assert len(shares_of({"shares": [loop] * 99})) == LOOPS
