"""What ranks of world.gloo saw that got through, gave up, fell silent or died in the middle."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.domains.collectives import gloo_unreachable
from preflight.domains.collectives.stalls import FINDINGS, GLOO_UNREACHABLE, Signature, diagnose
from preflight.domains.torch.steps import Trouble
from preflight.model import (
    Cause,
    Found,
    Mark,
    Missing,
    Node,
    Observation,
    Seen,
    Topology,
)
from support.cases import world

TIMED_OUT = "Timed out waiting 14000ms for recv operation to complete"
CLOSED = "Connection closed by peer [10.1.2.3]:4567. This is typically caused by a remote worker"
KNOWN = (
    Signature("no such port", "port-taken"),
    Signature("refused", "unreachable", symptom=True),
)


@dataclass(frozen=True, slots=True)
class Tried:
    trouble: Trouble | None = None


def marked(steps: str) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in steps.split())


def fine(steps: str = "store init sum") -> Seen[Tried]:
    return Seen(Tried(), 1.0, marked(steps))


def gave_up(steps: str, text: str = TIMED_OUT) -> Seen[Tried]:
    return Seen(Tried(Trouble(steps.split()[-1], "RuntimeError", text)), 1.0, marked(steps))


def silent(steps: str) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 5.0 s, killed", 5.0, marked(steps))


def died(steps: str, detail: str = "Fatal Python error\nkilled by SIGSEGV") -> Missing:
    return Missing(Cause.CRASHED, detail, 1.0, marked(steps))


# --- several nodes, of two ranks each ---

INIT = "TCPStore init_process_group"


def nodes(*pairs: tuple[Observation, Observation]) -> Found:
    """The finding where each pair is what the two ranks of a node saw: n1 holds the meeting, n2
    came to it from 10.0.0.2."""
    seen = {f"n{n // 2 + 1}/{n}": o for n, o in enumerate(o for pair in pairs for o in pair)}
    top = Topology(
        size=len(seen),
        nodes=tuple(
            Node(f"n{n + 1}", (2 * n, 2 * n + 1), addr=f"10.0.0.{n + 1}" if n else "")
            for n in range(len(pairs))
        ),
        master_addr="10.0.0.1",
        master_port=29500,
    )
    (finding,) = diagnose(world("world.gloo", seen, top), (*KNOWN, GLOO_UNREACHABLE))
    assert finding.code in {*FINDINGS, *gloo_unreachable.FINDINGS, *(s.code for s in KNOWN)}
    return finding


def about(finding: Found) -> list[str]:
    return [str(s) for s in finding.subjects]


def both(observation: Observation) -> tuple[Observation, Observation]:
    return observation, observation


QUIET = both(silent(INIT))
