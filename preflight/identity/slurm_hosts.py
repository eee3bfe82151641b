"""Which hosts a job has been given, and which ranks each of them should bring. Pure.

SLURM says it in a node list (`gpu-[007-009,012]`, read by ClusterShell's NodeSet) and a list of
tasks (`4(x2),3`). Of other launchers nothing is known: they leave no list in the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from preflight.frozen import dataclass
from preflight.nodeset import expand

STEP, JOB = "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"


def first_host(nodelist: str) -> str:
    """The first host of a SLURM node list: `gpu-[007-009,012]` begins with gpu-007."""
    found = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodelist)
    return "".join(part or "" for part in found.groups()) if found else ""


@dataclass(frozen=True, slots=True)
class ExpectedHost:
    """A host that should bring ranks; no ranks: which ones is not known."""

    host: str
    ranks: tuple[int, ...] = ()


def expected_hosts(environ: Mapping[str, str], own: int, size: int) -> tuple[ExpectedHost, ...]:
    """The hosts of this job step with their ranks. `own`: the ranks of the agent that asks, `size`:
    those of the job. The list of a whole job counts only if its numbers are those of this run: a
    run may well use a part of its job's nodes."""
    for names, tasks in (
        (STEP, "SLURM_STEP_TASKS_PER_NODE"),
        (JOB, "SLURM_TASKS_PER_NODE"),
    ):
        if hosts := expand(environ.get(names, "")):
            counts = _counts(environ.get(tasks, ""), len(hosts))
            way = re.split(r"[:,]", environ.get("SLURM_DISTRIBUTION", "block"))[0]
            if (
                sum(counts) != size
            ):  # not a task per rank: then one agent a node, its ranks in a row
                counts = (own,) * len(hosts) if own * len(hosts) == size else ()
                way = "block" if way == "cyclic" else way
            if counts and way in ("block", "cyclic", "*", ""):
                return tuple(map(ExpectedHost, hosts, _distributed(counts, way == "cyclic")))
            return tuple(map(ExpectedHost, hosts)) if names == STEP else ()
    return ()


def _counts(text: str, hosts: int) -> tuple[int, ...]:
    """`4(x2),3` as (4, 4, 3); empty when it is not for so many hosts."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:\(x(\d{1,7})\))?", part.strip())
        if match is None or int(match[2] or 1) > hosts - len(found):
            return ()
        found += [int(match[1])] * int(match[2] or 1)
    return tuple(found) if len(found) == hosts else ()


def _distributed(counts: Sequence[int], cyclic: bool) -> list[tuple[int, ...]]:
    """The ranks of each host: one host after the other, or one rank for each in turn."""
    if not cyclic:
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        return [tuple(range(end - n, end)) for n, end in zip(counts, ends, strict=True)]
    hands: list[list[int]] = [[] for _ in counts]
    ranks = iter(range(sum(counts)))
    for turn in range(max(counts)):
        for hand, most in zip(hands, counts, strict=True):
            if turn < most:
                hand.append(next(ranks))
    return [tuple(hand) for hand in hands]
