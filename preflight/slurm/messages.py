"""What the hooks say and decide: lines for logs and users, SLURM's words for a node. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from preflight.frozen import dataclass
from preflight.humanize import plural, size
from preflight.model import Blame, Confidence, Finding, Report, Row, Status, Verdict
from preflight.nodeset import folded
from preflight.render.layout import cut
from preflight.sanitize import legible

PREFIX = "preflight: "
"""How a drain reason of ours begins. What begins otherwise is somebody else's and stays."""

WHAT_LENGTH, LINE_LENGTH = 120, 220

NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
OURS = re.compile(r"preflight: ([a-z]+\.[a-z0-9]+) .*?(?: \(also ([a-z0-9., ]+)\))? \[[a-z0-9 ]+\]")

SAID_BY = re.compile(r" Reason=(.*) \[[^\s@\]]+@(?:\d{4}-[\dT:-]+|Unknown|None)\]")
"""A reason, as far as the last [user@time]: it may have brackets of its own."""


def node_name(name: str) -> str:
    """`name` where it can be one node and nothing else: SLURM takes `n[1-9]` and ALL for several.
    Else nothing."""
    return name if NODE_NAME.fullmatch(name) and name.upper() != "ALL" else ""


def job_number(text: str) -> str:
    """The digits of a job id; nothing for anything else. It becomes part of a file's name."""
    return text if text.isascii() and text.isdecimal() and len(text) < 20 else ""


# --- what a report means for a node ---


def drain_findings(report: Report, node: str) -> tuple[Finding, ...]:
    """What this node is drained for: failures that are blamed on itself and on nothing else. Who
    names an alternative is not sure enough."""
    if node not in report.exclude:
        return ()
    return tuple(
        f
        for f in report.findings
        if f.status is Status.FAIL
        and f.blame is Blame.NODE
        and f.confidence is not Confidence.POSSIBLE
        and not f.alternatives
        and f.subjects[0].node == node
    )


def drain_reason(found: tuple[Finding, ...], hook: str) -> str:
    """`preflight: gpu.visible GPU 5 on n1 is lost [prolog job 48130]`: one line of ASCII. It begins
    with the check, by which may_resume() knows it again."""
    ids = dict.fromkeys(f.check for f in found[1:] if f.check != found[0].check)
    also = f" (also {', '.join(ids)})" if ids else ""
    return f"{PREFIX}{found[0].check} {headline(found[0])}{also} [{hook}]"


def headline(finding: Finding) -> str:
    """The finding's sentence, fit for SLURM."""
    text = legible(finding.headline, ascii_only=True)
    # double quotes end the value for some readers of SLURM's output
    return cut(text.replace('"', "'"), WHAT_LENGTH, "...")


def summary(report: Report) -> str:
    """`READY 5 checks 0.1s (n1)`, or what is wrong: one line for whoever reads the job's output."""
    where = folded(n.name for n in report.observations.topology.nodes)
    verdict = str(report.verdict).upper().replace("_", " ")
    if report.verdict is Verdict.READY or not report.findings:
        passed = sum(row.status in (Status.PASS, Status.WARN) for row in report.rows)
        met, ranks = report.observations.topology.met, report.observations.topology.size
        known = report.observations.topology.launcher != "local" or ranks > 1
        parts = [verdict, plural(passed, "check")]
        parts += [f"{met}/{ranks} ranks"] if known else []
        parts += [f"{report.observations.seconds:.1f}s", f"({where})"]
        text = " ".join(parts)
    else:
        worst = _worst(report.findings)
        text = f"{verdict} {worst.name} {headline(worst)} ({where})"
    return cut(legible(text, ascii_only=True), LINE_LENGTH, "...")


def _worst(findings: Iterable[Finding]) -> Finding:
    return max(findings, key=lambda f: list(Status).index(f.status))


def blind_checks(report: Report) -> str:
    """The checks that should have said something of this node and could not; nothing when all
    did."""
    blind = (Status.UNDECIDED, Status.MISSING)
    return ", ".join(row.id for row in report.rows if row.status in blind)


# --- what slurmctld says ---


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as slurmctld has it: the words of its state, and the reason without who set it."""

    words: frozenset[str]
    reason: str = ""

    @property
    def drained(self) -> bool:
        return bool({"DRAIN", "DRAINED", "DRAINING"} & self.words)


def state_of(text: str) -> NodeState | None:
    """What `scontrol show node -o` says; None where that is no such answer."""
    found = re.search(r"(?:^|\s)State=([A-Z_+*~#!%$@^-]+)", text)
    if found is None:
        return None
    why = SAID_BY.search(text) or re.search(r" Reason=(.*\S)", text)
    words = (word.strip("*~#!%$@^-") for word in found[1].split("+"))
    return NodeState(frozenset(words), why[1] if why else "")


def may_drain(state: NodeState) -> bool:
    """Not what is drained already, whoever did it, nor where somebody has left a reason."""
    return not state.drained and (not state.reason or state.reason.startswith(PREFIX))


def may_resume(state: NodeState, passed: Iterable[str]) -> bool:
    """Whether the node is drained by us, for checks that have now looked and `passed`, and for
    nothing else: a check that was not made says nothing of what it once found."""
    ours = OURS.fullmatch(state.reason)
    if not state.drained or ours is None:
        return False
    ids = {ours[1], *(ours[2] or ours[1]).split(", ")}
    return ids <= set(passed)


def passed_checks(rows: Iterable[Row]) -> list[str]:
    """The checks that have looked and found nothing that ends a job."""
    return [row.id for row in rows if row.status in (Status.PASS, Status.WARN)]


# --- what a job has left ---


def leftovers(found: Mapping[str, list[Mapping[str, object]]], job: str, uid: int) -> str:
    """One line about them; nothing when there are none. `found` as leftovers.py has it."""
    parts = []
    for process in found["processes"]:
        holds = [f"/dev/{name}" for name in _texts(process["gpus"])]
        holds += [f"port {port}" for port in _texts(process["ports"])]
        parts.append(f"pid {process['pid']} {process['name']} holds {', '.join(holds)}")
    if files := found["files"]:
        bytes_ = sum(int(str(file["bytes"])) for file in files)
        names = ", ".join(str(file["name"]) for file in files[:3]) + ", ..." * (len(files) > 3)
        parts.append(f"{plural(len(files), 'file')} ({size(bytes_)}) in /dev/shm: {names}")
    if not parts:
        return ""
    return legible(f"{PREFIX}uid {uid} left {'; '.join(parts)} [epilog job {job}]", ascii_only=True)


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []
