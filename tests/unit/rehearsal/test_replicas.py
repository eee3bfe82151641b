"""What the injected files tell of models and backends is hostile."""

from __future__ import annotations

from preflight.domains.job.record import End
from preflight.rehearsal.replicas import backends_of, replicas_of

TOLD = {
    "kind": "ddp",
    "frame": ["train.py", 3, "main", True],
    "device": "cuda",
    "size": 40,
    "names": ["a", "b"],
    "shapes": ["[2] float32", "[3] float32"],
    "trained": "10",
    "had": "01",
    "options": {"static_graph": True, "find_unused_parameters": False},
    "rates": [0.1, None, float("nan")],
    "seed": 7,
    "hooks": ["allreduce_hook"],
    "checks": [[0, "1 -", "2 -"], [1, "1", "1 2"], ["x"], [-1, "1", "1"]],
}


def test_a_model_is_read() -> None:
    (found,) = replicas_of({"models": [TOLD]})
    assert (found.names, found.trained, found.had) == (("a", "b"), (True, False), (False, True))
    assert (found.options, found.rates, found.hooks) == (
        ("static_graph",),
        (0.1,),
        ("allreduce_hook",),
    )
    assert [(c.step, c.sums) for c in found.checks] == [(0, (1.0, None))]
    assert found.unused == ("a",)


def test_whatever_else_is_told_is_no_model() -> None:
    for told in (None, 3, "x", [1, None], [{}], [{"names": 3, "checks": {}, "rates": "x"}]):
        for one in replicas_of({"models": told}):
            assert one.names == ()
            assert one.checks == ()


def test_backends_are_read() -> None:
    dump = {"backends": {"0": {"cpu": "gloo"}, "x": 3}, "members": {"0": [0, 1]}, "models": [TOLD]}
    dump["labels"] = {"0": "default_pg", "x": 3}
    end = End("raised", 1.0, text="RuntimeError: no")
    found = backends_of(1, dump, {"backend": "gloo", "frame": ["t.py", 1, "f", True]}, end)
    assert (found.asked, found.called, found.failed) == ("gloo", True, "RuntimeError: no")
    assert (found.text, found.models) == ("gloo", ("cuda",))
    assert found.groups[0].called == "world"
    assert backends_of(None, {"backends": []}, None, None).text == ""
