"""What RDMA ports count while our own all-reduces use them: what they counted before is nobody's
fault today. Pure but for the reading of the counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.domains.net import rdma
from preflight.host import Host
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Status,
    Subject,
    World,
)

PORTS = 16
"""That a finding names."""

FINDINGS = {
    "rdma-errors": FindingType(
        headline="RDMA port {at} had errors during the all-reduces: {seen}",
        who="network administrator",
        cause="a bad cable or transceiver; with RoCE a switch without flow control (PFC, ECN), or "
        "another traffic class on some nodes",
        means="RDMA sends everything after a lost packet again: all-reduces at a fraction of their "
        "speed, or 'Got completion from peer … with status=12' after hours",
        text="run it again and see whether the same ports count; compare the counters of the "
        "switch ports; with RoCE check PFC, ECN and NCCL_IB_TC",
        commands=(
            Command(
                "grep . /sys/class/infiniband/{device}/ports/{number}/*counters/*err*",
                "the node, twice",
            ),
        ),
        status=Status.WARN,
        blame=Blame.NETWORK,
        explains=("world.bandwidth",),
    ),
}

Grown = Mapping[str, Mapping[str, int]]
"""device:port -> counter -> by how much it grew."""


def counters_before(host: Host, local_rank: int) -> dict[str, dict[str, int]]:
    """What the ports have counted so far, read by one rank of each node."""
    return rdma.counters(host) if local_rank == 0 else {}


def grown_since(host: Host, before: Grown) -> dict[str, dict[str, int]]:
    """What the ports have counted since then; those without any are left out."""
    after = rdma.counters(host) if before else {}
    grown = {name: rdma.growth(then, after.get(name, {})) for name, then in before.items()}
    return {name: counts for name, counts in grown.items() if counts}


def port_errors(world: World[Any], told: Mapping[str, Grown]) -> Iterator[Found]:
    """The ports that had errors, by rank's key -> what grew on its node; alike on all of them one
    finding."""
    bad: dict[tuple[str, str], Mapping[str, int]] = {}
    for key, ports in told.items():
        for name, grown in ports.items():
            if rdma.link_errors(grown) or rdma.lost_packets(grown):
                bad[world.subject(key).node, name] = grown
    if not bad:
        return
    said = [
        f"{device} of {node} {rdma.grown_words(grown)}"
        for (node, device), grown in list(bad.items())[: rdma.LISTED]
    ]
    more = f" and {len(bad) - rdma.LISTED} more" if len(bad) > rdma.LISTED else ""
    (_, first), _ = next(iter(bad.items()))
    device, _, number = first.partition(":")
    yield Found(
        "rdma-errors",
        tuple(_port(world, node, name) for node, name in list(bad)[:PORTS]),
        saw="; ".join(said) + more,
        expected="counters that do not grow",
        confidence=Confidence.LIKELY,
        alternatives=("other jobs' traffic on the same ports",),
        fields={"device": device, "number": number},
    )


def _port(world: World[Any], node: str, name: str) -> Subject:
    device, _, number = name.partition(":")
    ranks = world.topology.ranks_of(node)
    return Subject(Kind.NIC, node, device, ranks, port=int(number) if number.isdecimal() else None)
