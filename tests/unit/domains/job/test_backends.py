"""Which backend carries which tensors, in words."""

from __future__ import annotations

from preflight.domains.job.backends import Backends, GroupBackends, carries

BOTH = GroupBackends("0", (("cpu", "gloo"), ("cuda", "nccl")))
GLOO = GroupBackends("1", (("cpu", "gloo"), ("cuda", "gloo")))


def test_one_backend_is_named_once() -> None:
    assert (BOTH.text, GLOO.text) == ("cpu:gloo cuda:nccl", "gloo")
    assert (
        Backends(groups=(GLOO, BOTH, GLOO, GroupBackends("2"))).text == "gloo, cpu:gloo cuda:nccl"
    )


def test_the_first_group_is_that_of_all_ranks() -> None:
    assert [carries((BOTH, GLOO), kind) for kind in ("cpu", "cuda", "xpu")] == ["gloo", "nccl", ""]
    assert carries((), "cpu") == ""
