"""Which RDMA ports a job would use, and which of those that are down ought not to be."""

from __future__ import annotations

from typing import Any

from preflight.domains.net.hca_selection import (
    NodeRdma,
    expected_active,
    same_port,
    unused_everywhere,
    waits_for_manager,
)
from preflight.domains.net.rdma import ACTIVE, DOWN, EFA, ETHERNET, INIT, Gid, RdmaPort


def names(ports: tuple[RdmaPort, ...]) -> list[str]:
    return [port.device for port in ports]


def rail(number: int, **changes: Any) -> RdmaPort:
    return RdmaPort(f"mlx5_{number}", 1, **{"rate": 400.0, **changes})


def test_what_nccl_takes() -> None:
    ports = (rail(0), rail(1, state=DOWN), rail(2, driver=EFA), rail(3, layer="Unspecified"))
    assert names(NodeRdma(ports).taken) == ["mlx5_0"]
    assert names(NodeRdma((rail(0), rail(1)), rule="^mlx5_0").taken) == ["mlx5_1"]


def test_what_may_not_be_opened_is_not_taken_unless_that_is_all() -> None:
    assert names(NodeRdma((rail(0), rail(1, given=False))).taken) == ["mlx5_0"]
    assert names(NodeRdma((rail(0, given=False), rail(1, given=False))).taken) == [
        "mlx5_0",
        "mlx5_1",
    ]


def test_a_slow_card_is_left_alone_unless_it_is_named() -> None:
    ports = (rail(0), rail(1, rate=100.0))
    assert names(NodeRdma(ports).preferred) == ["mlx5_0"]
    assert names(NodeRdma(ports, rule="=mlx5_0,mlx5_1").preferred) == ["mlx5_0", "mlx5_1"]
    assert names(NodeRdma(ports, ours="mlx5_*").preferred) == ["mlx5_0", "mlx5_1"]


def test_ports_that_are_the_jobs_by_a_pattern() -> None:
    node = NodeRdma((rail(0), rail(1)), ours="mlx5_[1-3], mlx5_8:1,")
    assert [node.claims(port) for port in node.ports] == [False, True]


def test_whether_nccl_looks_at_rdma_at_all() -> None:
    assert NodeRdma((rail(0),), gpus=8).concerned
    assert not NodeRdma((rail(0),)).concerned
    assert not NodeRdma((rail(0),), gpus=8, off="NCCL_IB_DISABLE=1").concerned


def test_the_gid_of_a_port() -> None:
    mapped = "0000:0000:0000:0000:0000:ffff:0a00:0001"
    port = rail(0, layer=ETHERNET, gids=(Gid(1, mapped, 1), Gid(3, mapped, 2)))
    assert NodeRdma((port,), gid_index=1).gid(port) == port.gids[0]
    assert NodeRdma((port,), gid_index=2).gid(port) is None
    assert NodeRdma((port,)).gid(port) == port.gids[1]


def test_a_port_without_a_subnet_manager() -> None:
    assert waits_for_manager(rail(0, state=INIT))
    assert not waits_for_manager(rail(0, state=INIT, layer=ETHERNET))
    assert not waits_for_manager(rail(0))


def test_the_same_port_on_other_nodes() -> None:
    up, down = NodeRdma((rail(0),)), NodeRdma((rail(0, state=DOWN),))
    unknown = NodeRdma((rail(0, state=-1),))
    nodes = {"a": up, "b": up, "c": down, "d": unknown, "e": NodeRdma(())}
    assert sorted(same_port(nodes, "mlx5_0:1")) == ["a", "b", "c"]
    assert expected_active(nodes, "mlx5_0:1") == ("a", "b")
    assert expected_active({"a": up, "c": down}, "mlx5_0:1") == ()
    assert unused_everywhere({"a": down, "b": down}, "mlx5_0:1")
    assert not unused_everywhere(nodes, "mlx5_0:1")
    assert not unused_everywhere({"a": down}, "mlx5_0:1")


def test_only_the_cards_of_a_make_are_alike() -> None:
    def port(number: int, state: int = ACTIVE, card: str = "", kind: str = "cx7") -> RdmaPort:
        return RdmaPort(f"mlx5_{number}", 1, state=state, kind=kind, card=card or f"{number}")

    def few(*ports: RdmaPort) -> list[str]:
        return [p.device for p in ports if p.idle and NodeRdma(ports).few_down(p)]

    three = (port(0), port(1), port(2))
    assert few(*three, port(3, DOWN)) == ["mlx5_3"]
    assert few(*three[:2], port(3, DOWN)) == []
    assert few(*three, port(3, DOWN), port(4, DOWN)) == []
    assert few(*three, port(3, DOWN, kind="cx6")) == []
    assert few(*three, port(3, DOWN, card="2")) == []  # the other port of a card in use
