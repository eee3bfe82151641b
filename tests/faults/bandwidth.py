"""Faults of the network that all-reduces show, over Gloo: a node, or a link between two, that moves
less than the others. net.speed, which would say it first, is left out here."""

from __future__ import annotations

from typing import Any

from faults.world import WorldFault, machines
from lab.faults import Break, rate

ONLY = ("--only", "world.bandwidth")


def slow(name: str, code: str, subject: str, **more: Any) -> WorldFault:
    given = {"machines": machines(5), "status": "warn", "exit": 0, "slower": 20.0, **more}
    return WorldFault(name, "world.bandwidth", code, subject, args=ONLY, **given)


def link_rate(megabits: float, address: str) -> Break:
    """What this machine sends to one other is slow: a path that only those two take."""
    return Break(
        f"{megabits:g} Mbit/s to {address}",
        f"""
        tc qdisc replace dev eth0 root handle 1: htb default 2
        tc class add dev eth0 parent 1: classid 1:1 htb rate {round(megabits * 1000)}kbit
        tc class add dev eth0 parent 1: classid 1:2 htb rate 40gbit
        tc filter add dev eth0 parent 1: protocol ip u32 match ip dst {address}/32 flowid 1:1
        """,
        "tc qdisc del dev eth0 root",
    )


FAULTS = (
    slow(
        "all-reduces: n4 of five has 100 Mbit/s",
        "node-slow",
        "n4",
        breaks={"n4": [rate(100)]},
        innocent=("n1", "n2", "n3", "n5"),
    ),
    slow(
        "all-reduces: n2 and n5 have 20 Mbit/s with each other",
        "link-slow",
        "n2->n5",
        breaks={"n2": [link_rate(20, "10.77.0.5")], "n5": [link_rate(20, "10.77.0.2")]},
        innocent=("n1", "n3", "n4"),
    ),
    slow(
        "all-reduces: less than was expected",
        "below-expected",
        "job",
        status="fail",
        exit=3,
        machines=machines(2),
        flags=dict.fromkeys(("n1", "n2"), ("--expect", "allreduce_busbw_gbs=100")),
    ),
)
