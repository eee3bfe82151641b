"""Sets of host names: folded for people and for SLURM, expanded, and compared."""

from __future__ import annotations

import time

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.nodeset import (
    expand,
    foldable,
    folded,
    hostlist,
    others_than,
    same_host,
    tasks_on,
)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ((), ""),
        (("gpu1",), "gpu1"),
        (("gpu-b07", "gpu-b19", "gpu-b08"), "gpu-b[07-08,19]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n1", "head", "n2"), "n[1-2],head"),
        (("r1n1", "r2n1", "r3n1", "r3n2"), "r[1-3]n1,r3n2"),
        (("a1.x2.y", "a2.x2.y"), "a[1-2].x2.y"),
        (("10.0.0.1", "10.0.0.2"), "10.0.0.[1-2]"),
        (("n1", "n1", "n2"), "n[1-2]"),
        # what could mean something else in a set, or to a shell, stands for itself
        (("gpu1", "gpu1#2", "gpu2#2"), "gpu1,gpu1#2,gpu2#2"),
        (("n[1-3]", "n[1-4]"), "n[1-3],n[1-4]"),
        (("@all", "@1", "@2"), "@all,@1,@2"),
        (("a,b1", "a,b2", "c!1", "c!2"), "a,b1,a,b2,c!1,c!2"),
        (("-n1", "-n2"), "-n1,-n2"),
        (("n1234567890", "n1234567891"), "n1234567890,n1234567891"),
    ],
    ids=str,
)
def test_names_are_folded(names: tuple[str, ...], wanted: str) -> None:
    assert folded(names) == wanted


a_name = st.from_regex(r"[a-c]{1,2}-?[0-9]{1,3}([a-b][0-9]{1,2})?(\.x[0-9])?", fullmatch=True)


@settings(deadline=None)
@given(names=st.sets(a_name, min_size=1, max_size=30))
def test_a_set_stands_for_its_names(names: set[str]) -> None:
    """As ClusterShell, which knows SLURM's syntax, reads it."""
    assert all(map(foldable, names))
    assert set(NodeSet(folded(sorted(names)), resolver=RESOLVER_NOGROUP)) == names


def test_what_slurm_cannot_read_is_left_out_of_a_hostlist() -> None:
    assert hostlist(["gpu-b11", "gpu-b07", "gpu-b08"]) == "gpu-b[07-08,11]"
    assert hostlist(["$(reboot)", "a b", "n1"]) == "n1"
    # "Invalid hostlist" to it with anything but a bracket behind a bracket
    assert hostlist(["r1n1", "r2n1", "a1.x", "a2.x"]) == "r1n1,r2n1,a1.x,a2.x"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu-[007-009,012]", ["gpu-007", "gpu-008", "gpu-009", "gpu-012"]),
        ("b1,a[2-3]", ["b1", "a2", "a3"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n1", ["n1"]),
        ("n[1-999999999]", []),
        ("n[1-9999]m[1-9999]", []),
        ("@all", []),
        ("n[1-4]!n2", []),
        ("n[3-1]", []),
        ("n[1", []),
        ("", []),
        ("n" * 70_000, []),
    ],
)
def test_expand(text: str, hosts: list[str]) -> None:
    assert list(expand(text)) == hosts


def test_others_than() -> None:
    names = ["GPU1", "gpu2.a", "gpu2.b", "gpu11", "login"]
    assert others_than(names, ["gpu1.cluster.example.", "gpu2.b", "nowhere"]) == [
        "gpu2.a",
        "gpu11",
        "login",
    ]
    many = [f"gpu{number:05}" for number in range(12500)]
    began = time.process_time()
    assert others_than(many, many[:6000]) == many[6000:]
    assert time.process_time() - began < 5.0, "each was compared with each"


def test_same_host() -> None:
    assert same_host("GPU1", "gpu1.cluster.example.")
    assert not same_host("gpu1.a", "gpu1.b")
    assert not same_host("gpu1", "gpu11")


@pytest.mark.parametrize(
    ("listed", "counts"),
    [
        ("4(x2),3", [4, 4, 3, 0]),
        ("2,1(x2)", [2, 1, 1, 0]),
        ("8", [8, 8]),
        ("a100:4", [0]),
        ("", [0]),
        ("4(x", [0]),
    ],
)
def test_tasks_of_each_node_of_a_step(listed: str, counts: list[int]) -> None:
    assert [tasks_on(listed, place) for place in range(len(counts))] == counts
