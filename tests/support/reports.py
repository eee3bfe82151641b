"""Reports of several nodes, built by hand: rows with their marks, findings that nobody judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from preflight.model import (
    Blame,
    Finding,
    FindingType,
    Measured,
    Node,
    Observation,
    Observations,
    Report,
    Row,
    Setting,
    Status,
    Subject,
    Topology,
    Verdict,
)
from preflight.render import human
from preflight.render.human import Look

P, W, F, U, M, S = (
    Status.PASS,
    Status.WARN,
    Status.FAIL,
    Status.UNDECIDED,
    Status.MISSING,
    Status.SKIP,
)


def of_nodes(count: int, ranks: int = 4, name: str = "gpu-b") -> tuple[Node, ...]:
    return tuple(
        Node(f"{name}{i + 1:02}", tuple(range(i * ranks, (i + 1) * ranks))) for i in range(count)
    )


def each(nodes: Sequence[Node], status: Status = P, **odd: Status) -> dict[str, Status]:
    """A status for each node; `b07=F` is another one."""
    return {n.name: odd.get(n.name.rpartition("-")[2], status) for n in nodes}


def each_rank(nodes: Sequence[Node], odd: Mapping[int, Status] = {}) -> dict[str, Status]:
    return {f"{n.name}/{rank}": odd.get(rank, P) for n in nodes for rank in n.ranks}


def row(check: str, by_subject: Mapping[str, Status], **changes: object) -> Row:
    heaviest = max(by_subject.values(), default=S, key=list(Status).index)
    stage = {"world": "training", "rdzv": "meeting", "net": "fabric"}
    made = Row(
        check, stage.get(check.partition(".")[0], "machine"), "node", heaviest, 0.1, by_subject
    )
    return dataclasses.replace(made, **{"measured": Measured("8 of 8"), **changes})  # type: ignore[arg-type]


def report(
    nodes: Sequence[Node],
    *rows: Row,
    findings: Sequence[Finding] = (),
    checks: Mapping[str, Mapping[str, Observation]] | None = None,
    verdict: Verdict | None = None,
    exclude: Sequence[str] = (),
    **topology: object,
) -> Report:
    """A report of these rows; `checks` where it matters why something was skipped."""
    values = {"launcher": "SLURM", "size": sum(len(n.ranks) for n in nodes), "nodes": tuple(nodes)}
    place = {"master_addr": nodes[0].name, "master_port": 29500}
    statuses = {status for r in rows for status in r.by_subject.values()}
    failed = F in statuses or any(f.status is F for f in findings)
    if verdict is None:
        verdict = Verdict.NOT_READY if failed else Verdict.READY
    seen = Observations(
        tool={"version": "0.1.0"},
        started="",
        seconds=4.0,
        settings={"level": Setting("standard", "default")},
        topology=Topology(**(values | place | topology)),  # type: ignore[arg-type]
        checks={r.id: {} for r in rows} | dict(checks or {}),
    )
    return Report(verdict, 0, tuple(rows), tuple(findings), seen, exclude=tuple(exclude))


def lines(of: Report, width: int = 98, **look: object) -> list[str]:
    return human.render(of, Look(width=width, **look)).splitlines()  # type: ignore[arg-type]


def line(of: Report, check: str, width: int = 98, **look: object) -> str:
    return next(x for x in lines(of, width, **look) if x.startswith(f"  {check} "))


def finding(check: str, *subjects: Subject, **changes: object) -> Finding:
    advice = FindingType(who="who", cause="cause", means="it hangs", now="look there")
    made = Finding("code", F, subjects, "saw it", blame=Blame.NODE, check=check, advice=advice)
    return made.with_(**{"headline": changes.get("saw", "it is bad"), **changes})
