"""A fault of a job on several machines of the lab; what preflight says of it; and whether that is
right. What inject.py is for one machine.

Every machine runs `preflight run`, as `srun` would have it. The host of the meeting has the report;
the agents that could not get in write their parts, and what counts is all of them merged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lab.faults import Break
from lab.host import ENVIRONMENT, Command, Ended, Host, Lab, Machine, missing

from preflight.expect import Expect
from preflight.judge.merge import merge
from preflight.judge.verdict import judge as judge_again
from preflight.model import PreflightError
from preflight.registry import load
from preflight.render import json as as_json

KILLED_AFTER = 110.0
"""Seconds; beyond any deadline of a run."""
PORT = 29500
ARRIVE = 6.0
"""Seconds for which the agents of a fault wait for each other, where it is about those that do not
come: long enough for a busy machine, short enough for a test."""
LIGHT = (
    *("--only", "env.*,host.limits,net.name,net.interface,net.port,rdzv.reach,rdzv.torchrun"),
    *("--only", "agree.env,agree.names,agree.clock,agree.hardware,net.mesh,net.payload,net.speed"),
)
"""All that needs no torch: 3 s instead of 12."""
WHOLE: tuple[str, ...] = ()
"""Everything, as a user has it."""

Act = Callable[[Lab, Mapping[str, Any]], None]


def machines(count: int, **changes: Any) -> tuple[Machine, ...]:
    return tuple(Machine(f"n{number}", **changes) for number in range(1, count + 1))


@dataclass(frozen=True, slots=True)
class WorldFault:
    """What is wrong, how it gets there, and what the merged report must say.

    machines  that take part, in the order of their node ranks
    breaks    machine -> what is broken there before anybody starts
    subnet    of the lab; Gloo's choice of who dials depends on it
    nproc     ranks a machine; 0: the variables say that, and which machine it is
    env       variables of all; on: machine -> variables that only it has (None: it lacks it)
    node_rank machine -> another number than its own; absent: machines that start no agent
    nodes     machine -> another number of nodes than there are
    flags     machine -> flags that only it has
    act       done to the running agents (lab, name -> Running) after `after` seconds
    args      of `preflight run`
    wrap      what the command is started by, e.g. in a network namespace of the machine

    check, code, status     of the root finding that names the culprit; `alike` are other codes of
              the same check that say it as well
    subject   that it must name, as it is shown: `n3`, `n1->n2`, `rank 5`, `n3 · rank 5`, or a
              pattern; `subjects`: more that must be among those of the same finding
    second    (check, code, subject) of the other one, where two faults come together
    says      part of what it saw
    exit      of the host, or of the part of whoever could not get in
    also      `check code` of other root findings that are no false alarms here
    slower    seconds that it may take beyond a healthy run of the same world
    innocent  machines that no finding may name
    """

    name: str
    check: str = ""
    code: str = ""
    subject: str = ""
    status: str = "fail"
    alike: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    second: tuple[str, str, str] = ("", "", "")
    confidence: str = ""
    says: str = ""
    exit: int = 3
    also: tuple[str, ...] = ()
    innocent: tuple[str, ...] = ()
    slower: float = 10.0
    missed: str = ""
    machines: tuple[Machine, ...] = machines(3)
    breaks: Mapping[str, Sequence[Break]] = field(default_factory=dict)
    subnet: str = "10.77.0.0/16"
    named: tuple[int, ...] = (4,)
    nproc: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    on: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    node_rank: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    user: int = 0
    master: str = "n1"
    act: Act | None = None
    after: float = 1.5
    args: tuple[str, ...] = LIGHT
    wrap: tuple[str, ...] = ()
    arrive: float = 0.0
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it: how every agent ended, and the report of all their parts."""

    ended: Mapping[str, Ended]
    report: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]]
    left: tuple[str, ...]
    trouble: str = ""

    @property
    def findings(self) -> list[Mapping[str, Any]]:
        return list(self.report.get("findings", ()))

    @property
    def seconds(self) -> float:
        return max((e.seconds for e in self.ended.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How right preflight was. `problems` is empty when it was right in everything."""

    detected: bool
    named: bool
    false_alarms: tuple[str, ...]
    problems: tuple[str, ...]


def lacking(fault: WorldFault) -> str:
    """Why it can't be injected here; empty when it can."""
    return missing("nft", *fault.needs)


def needs_torch(fault: WorldFault) -> bool:
    return fault.args != LIGHT


def commands(fault: WorldFault) -> dict[str, Command]:
    """What every machine runs."""
    preflight = str(Path(sys.executable).with_name("preflight"))
    made = {}
    for number, machine in enumerate(fault.machines):
        name = machine.name
        if name in fault.absent:
            continue
        argv = [*fault.wrap, preflight, "run"]
        if fault.nproc:
            argv += ["--nproc", str(fault.nproc)]
            argv += ["--nodes", str(fault.nodes.get(name, len(fault.machines)))]
            argv += ["--node-rank", str(fault.node_rank.get(name, number))]
        if fault.arrive or fault.absent:
            argv += ["--arrive", f"{fault.arrive or ARRIVE}s"]
        argv += [*fault.args, *fault.flags.get(name, ()), "-o", "json=part.json"]
        given = {"MASTER_ADDR": fault.master, "MASTER_PORT": str(PORT), **fault.env}
        own = {**ENVIRONMENT, **given, **fault.on.get(name, {})}
        env = {key: value for key, value in own.items() if value is not None}
        made[name] = Command(argv, env, user=fault.user)
    return made


def run(fault: WorldFault) -> Seen:
    """Inject it and look."""
    with Lab(*fault.machines, subnet=fault.subnet, named=fault.named) as lab:
        for name, breaks in fault.breaks.items():
            lab[name].break_(*breaks)
        begun = {
            name: lab[name].begin(c.argv, c.env, user=c.user) for name, c in commands(fault).items()
        }
        began = time.monotonic()
        if fault.act is not None:
            time.sleep(fault.after)
            fault.act(lab, begun)
        until = began + KILLED_AFTER
        ended = {name: r.wait(max(0.1, until - time.monotonic())) for name, r in begun.items()}
        left = tuple(
            f"{host.machine.name}: {text}"
            for host in lab
            for text in host.processes().values()
            if "preflight" in text and "part.json" in text
        )
        parts = {host.machine.name: _part(host) for host in lab}
    return _seen(ended, {name: part for name, part in parts.items() if part}, left)


def _part(host: Host) -> Mapping[str, Any]:
    """What it wrote; nothing where somebody else has the report."""
    text = host.sh("cat part*.json 2>/dev/null || true")
    found = json.loads(text) if text.strip() else {}
    assert isinstance(found, dict)
    return found


def _seen(
    ended: Mapping[str, Ended], parts: Mapping[str, Mapping[str, Any]], left: tuple[str, ...]
) -> Seen:
    """The report of the host where all met; else all parts merged and judged again."""
    if len(parts) == 1:
        return Seen(ended, next(iter(parts.values())), parts, left)
    try:
        read = [as_json.parse(json.dumps(part)).observations for part in parts.values()]
        whole = judge_again(merge(read, load().of_meeting), load(), Expect())
    except PreflightError as error:
        return Seen(ended, {}, parts, left, str(error))
    return Seen(ended, as_json.document(whole), parts, left)


def shown(subject: Mapping[str, Any]) -> str:
    """A subject as the screen shows it."""
    name = subject.get("name", "")
    name = f"rank {name}" if subject["kind"] == "rank" and name else name
    where = subject.get("node", "")
    if subject["kind"] == "link":
        where, name = f"{where}->{subject.get('to', '')}", ""
    return " · ".join(part for part in (where, name) if part) or "job"


def line(finding: Mapping[str, Any]) -> str:
    about = ", ".join(shown(s) for s in finding["subjects"])
    head = f"{finding['status']} {finding['check']} {finding['code']} [{about}]"
    folded = f" explains {', '.join(finding['explains'])}" if finding["explains"] else ""
    return f"{head} ({finding['confidence']}): {finding['saw'][:240]}{folded}"


def judge(fault: WorldFault, seen: Seen, healthy: float) -> Verdict:
    """Whether the report names the culprit, and nobody else; `healthy`: seconds of a run of the
    same world with nothing wrong."""
    problems = [f"left behind: {text}" for text in seen.left]
    if seen.trouble:
        problems.append(f"the parts make no report: {seen.trouble}")
    codes = {name: e.code for name, e in seen.ended.items()}
    if fault.exit not in codes.values():
        said = "\n".join(e.err[-500:] for e in seen.ended.values())
        problems.append(f"exit codes {codes}, none is {fault.exit}: {said}")
    waited = fault.arrive or (ARRIVE if fault.absent else 0.0)
    if seen.seconds > healthy + waited + fault.slower:
        problems.append(f"took {seen.seconds:.1f} s, a healthy world {healthy:.1f}")
    wanted = [(fault.check, (fault.code, *fault.alike), fault.subject, fault.status)]
    if fault.second[0]:
        wanted.append((fault.second[0], (fault.second[1],), fault.second[2], fault.status))
    mine: list[Mapping[str, Any]] = []
    named = True
    for check, known, subject, status in wanted:
        right = [f for f in seen.findings if f["check"] == check and f["code"] in known]
        mine += right
        if not any(_names(f, subject, status) for f in right):
            named = False
            problems.append(f"no {status} {check} {'/'.join(known)} of {subject!r}")
    first = [f for f in mine if f["check"] == fault.check]
    problems += [
        f"{subject!r} is not among those that it names"
        for subject in fault.subjects
        if not any(_names(f, subject, fault.status) for f in first)
    ]
    if fault.says and not any(fault.says in f["saw"] for f in first):
        problems.append(f"it does not say {fault.says!r}")
    if fault.confidence and not any(f["confidence"] == fault.confidence for f in first):
        problems.append(f"it is not {fault.confidence}")
    alarms = tuple(
        line(f)
        for f in seen.findings
        if (f not in mine and f"{f['check']} {f['code']}" not in fault.also)
        or _accuses(f, fault.innocent)
    )
    if alarms:
        problems.append("false alarms")
    if problems:
        problems += ["the findings are:", *(line(f) for f in seen.findings)]
    return Verdict(bool(mine), named, alarms, tuple(problems))


def _names(finding: Mapping[str, Any], subject: str, status: str) -> bool:
    return finding["status"] == status and any(
        fnmatchcase(shown(s), subject) for s in finding["subjects"]
    )


def _accuses(finding: Mapping[str, Any], innocent: Sequence[str]) -> bool:
    return any(s.get("node") in innocent for s in finding["subjects"])


def healthy_twin(fault: WorldFault, count: int) -> WorldFault:
    """A world like it with nothing wrong: what a fault's time is compared with."""
    return WorldFault(
        f"healthy {count} x {fault.nproc}",
        machines=machines(count),
        nproc=fault.nproc,
        args=fault.args,
        exit=0,
    )
