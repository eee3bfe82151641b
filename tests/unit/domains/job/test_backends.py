"""Which backend carries which tensors, in words."""

from __future__ import annotations

from preflight.domains.job.backends import Backends, GroupBackends, carries, told

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


def test_groups_of_the_same_kind_are_told_together() -> None:
    many = [
        GroupBackends(str(n), (("cpu", "gloo"), ("cuda", "gloo")), label=f"mesh_d{n}")
        for n in range(6)
    ]
    assert told(many, True) == "d0, d1, d2, d3 and 2 more gloo cpu+cuda"
    assert told(many[:1], False) == "d0 gloo cpu"
    assert (
        told([GroupBackends("0", (("cuda", "nccl"),), label="default_pg")], False)
        == "world nccl cuda"
    )
    assert told([GroupBackends("0")], True) == ""
