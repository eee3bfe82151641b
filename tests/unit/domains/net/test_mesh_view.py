"""What the nodes saw of the edges between them, put together by library and said in words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.cases import world

from preflight.domains.net.fault_localisation import NODE, suspects
from preflight.domains.net.interfaces import GLOO, NCCL, ListenAddress
from preflight.domains.net.mesh_probe import OK, SILENT, TIMED_OUT, WRONG, Edge
from preflight.domains.net.mesh_view import (
    Mesh,
    bad_addresses,
    describe_results,
    edge_status,
    library_mesh,
    refusing_dialler,
)
from preflight.domains.net.pairing import NodeNumber
from preflight.model import Node, Status, Topology, World

COUNT = 3


def mesh_world(
    rough: Mapping[tuple[int, int], Edge],
    ips: Mapping[int, str] | None = None,
    heard: Mapping[int, tuple[int, ...]] | None = None,
    library: str = GLOO,
) -> World[Mesh]:
    """Three nodes whose edges are good but for those in `rough`."""
    seen = {}
    for i in range(COUNT):
        mine = tuple(edge for (a, _), edge in rough.items() if a == i)
        bad = {edge.to for edge in mine if edge.result != OK}
        good = {str(j): 0.0003 for j in range(COUNT) if j != i and j not in bad}
        ip = (ips or {}).get(i, f"10.0.0.{i + 1}")
        seen[f"n{i}"] = Mesh(
            NodeNumber(i, COUNT),
            (ListenAddress(library, "eth0", ip),),
            times={library: good},
            rough=mine,
            heard=(heard or {}).get(i, ()),
        )
    topology = Topology(size=COUNT, nodes=tuple(Node(f"n{i}", (i,)) for i in range(COUNT)))
    return world("net.mesh", seen, topology)


def failing(*edges: tuple[int, int], result: str = TIMED_OUT) -> dict[tuple[int, int], Edge]:
    return {(a, b): Edge(b, GLOO, result, 3.5) for a, b in edges}


@pytest.mark.parametrize(
    ("result", "seconds", "word"),
    [
        ("timed out", 3.5, "drops"),
        ("ECONNREFUSED", 0.001, "rejects"),
        ("EHOSTUNREACH", 0.002, "ICMP"),
        ("EHOSTUNREACH", 3.05, "ARP"),
        ("closed", 0.1, "proxy"),
        ("EAFNOSUPPORT", 0.0, "IPv6"),
        ("EOWNERDEAD", 0.0, "EOWNERDEAD"),
        (WRONG, 0.0, "another machine"),
    ],
)
def test_the_words_for_a_result(result: str, seconds: float, word: str) -> None:
    assert word in describe_results([Edge(2, GLOO, result, seconds)])


def test_several_results_are_counted() -> None:
    edges = [Edge(1, GLOO, "closed", 0.1), *(Edge(n, GLOO, "timed out", 3.5) for n in (2, 3))]
    assert describe_results(edges, why=False) == (
        "2 x no answer · 1 x accepted, then closed without an answer"
    )


def test_edges_by_the_nodes_names() -> None:
    mesh = library_mesh(mesh_world(failing((0, 1))), GLOO)
    assert set(mesh.failed) == {("n0", "n1")}
    assert len(mesh.tested) == COUNT * (COUNT - 1)
    assert library_mesh(mesh_world({}), NCCL).tested == frozenset()


def test_what_was_reached_but_answered_too_late_counts_as_not_tested() -> None:
    silent = failing((0, 1), result=SILENT)
    assert set(library_mesh(mesh_world(silent), GLOO).failed) == {("n0", "n1")}
    late = library_mesh(mesh_world(silent, heard={1: (0,)}), GLOO)
    assert late.failed == {}
    assert ("n0", "n1") not in late.tested


def test_without_a_node_its_edges_are_gone() -> None:
    mesh = library_mesh(mesh_world(failing((0, 1), (2, 0))), GLOO).without(["n1"])
    assert set(mesh.failed) == {("n2", "n0")}
    assert mesh.tested == {("n0", "n2"), ("n2", "n0")}


def test_two_nodes_with_one_address() -> None:
    refused = failing((0, 1), (1, 0), result="ECONNREFUSED")
    same = mesh_world(refused, ips={0: "10.0.0.7", 1: "10.0.0.7"})
    assert list(bad_addresses(library_mesh(same, GLOO))) == [("address-duplicate", ["n0", "n1"])]


def test_a_node_that_only_its_own_kernel_stops() -> None:
    mesh = library_mesh(mesh_world(failing((0, 1), (0, 2), result="EPERM")), GLOO)
    (suspect,) = suspects(mesh.failed, mesh.tested)
    assert suspect.what == NODE
    assert refusing_dialler(mesh, suspect) == "n0"
    dropped = library_mesh(mesh_world(failing((0, 1), (0, 2))), GLOO)
    assert refusing_dialler(dropped, next(suspects(dropped.failed, dropped.tested))) == ""


def test_beside_nccl_an_edge_of_gloo_is_a_warning() -> None:
    both = mesh_world({})
    ways = (ListenAddress(NCCL, "eth0", "10.0.0.1"), ListenAddress(GLOO, "eth0", "10.0.0.1"))
    gpus = World(
        "net.mesh",
        world(
            "net.mesh",
            {"n0": Mesh(NodeNumber(0, 1), ways)},
            both.topology,
        ).observations,
        both.topology,
    )
    assert edge_status(gpus, library_mesh(gpus, GLOO), ["n0"]) is Status.WARN
    assert edge_status(gpus, library_mesh(gpus, NCCL), ["n0"]) is Status.FAIL
    assert edge_status(both, library_mesh(both, GLOO), ["n0"]) is Status.FAIL
