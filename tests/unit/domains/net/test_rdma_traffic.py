"""rdma_traffic: what ports count during our own traffic is named, what they had counted is not."""

from __future__ import annotations

from pathlib import Path

from support.cases import topology, world
from support.hcas import hca, write

from preflight.checks import world_nccl
from preflight.domains.net.rdma_traffic import counters_before, grown_since, port_errors
from preflight.host import Host
from preflight.model import Node, Status

TWO = topology(2, nodes=(Node("n1", (0,)), Node("n2", (1,))))
EMPTY = world("world.nccl", {}, TWO)


def test_only_what_grows_is_told(tmp_path: Path) -> None:
    port = hca(tmp_path, counters={"symbol_error": 70_000, "link_downed": 14})
    write(port / "hw_counters", {"packet_seq_err": "5000", "out_of_sequence": "9"})
    host = Host(str(tmp_path), {})
    before = counters_before(host, 0)
    assert grown_since(host, before) == {}
    write(port / "hw_counters", {"packet_seq_err": "5400", "out_of_sequence": "9"})
    assert grown_since(host, before) == {"mlx5_0:1": {"packet_seq_err": 400}}


def test_one_rank_of_a_node_looks(tmp_path: Path) -> None:
    hca(tmp_path)
    host = Host(str(tmp_path), {})
    assert counters_before(host, 1) == {}
    assert grown_since(host, {}) == {}


def test_the_port_is_named() -> None:
    told = {"n1/0": {"mlx5_0:1": {"symbol_error": 1}}, "n2/1": {"mlx5_3:1": {"packet_seq_err": 80}}}
    (found,) = port_errors(EMPTY, told)
    assert [(s.node, s.name, s.port) for s in found.subjects] == [("n2", "mlx5_3", 1)]
    assert found.saw == "mlx5_3:1 of n2 packet_seq_err +80"
    assert world_nccl.FINDINGS[found.code].status is Status.WARN


def test_noise_and_nothing_are_no_finding() -> None:
    quiet = {"n1/0": {"mlx5_0:1": {"packet_seq_err": 9, "symbol_error": 2}}}
    assert not [*port_errors(EMPTY, quiet)]
    assert not [*port_errors(EMPTY, {})]


def test_a_link_that_went_down_once_is_told() -> None:
    (found,) = port_errors(EMPTY, {"n1/0": {"mlx5_0:1": {"link_downed": 1}}})
    assert "link_downed +1" in found.saw
