"""A network that is slow on all machines alike: nothing hangs, and nothing may be called so. Where
a rank does stop on it, that is named as anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faults.world import WorldFault, machines
from lab.faults import rate

SABOTAGE = str(Path(__file__).parent / "sabotage")


def slow(name: str, count: int, megabits: float, *found: str, **more: Any) -> WorldFault:
    """`count` machines that all have this rate; it takes as long as world.gloo may, at most."""
    breaks = {machine.name: [rate(megabits)] for machine in machines(count)}
    given = {"status": "warn", "exit": 0, "slower": 20.0, "args": ("--only", "world.gloo"), **more}
    return WorldFault(name, *found, machines=machines(count), breaks=breaks, **given)


FAULTS = (
    slow(
        *("five machines with 20 Mbit/s each", 5, 20, "world.gloo", "slow", "job"),
        says="an all-reduce of 16 MiB would take ",
    ),
    slow(
        *("two machines with 5 Mbit/s each", 2, 5, "world.gloo", "slow", "job"),
        says="an all-reduce of 16 MiB would take ",
    ),
    slow(
        *("two machines with 0.3 Mbit/s each", 2, 0.3, "world.gloo", "slow", "job"),
        says="an all-reduce of 1 MiB would take ",
        # packets that wait for seconds are sent again
        also=("net.payload payload-slow",),
    ),
    slow(
        *("five machines with 20 Mbit/s each, of which net.speed says it", 5, 20),
        *("net.speed", "speed-low", "n1->n2"),
        args=("--only", "net.speed,world.gloo"),
    ),
    slow(
        *("20 Mbit/s, and rank 1 is stopped in the middle of the all-reduces", 3, 20),
        *("world.gloo", "rank-silent", "n2 · rank 1"),
        status="fail",
        exit=3,
        slower=30.0,
        env={"PYTHONPATH": SABOTAGE, "SABOTAGE": "1 all_reduce stop"},
        innocent=("n1", "n3"),
    ),
)
