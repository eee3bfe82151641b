"""A fault, put into a machine of the lab; what preflight says of it; and whether that is right."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lab import cgroup
from lab.host import ENVIRONMENT, Ended, Lab, Machine, missing
from support.pace import slower

HERE = Path(__file__).parent
SABOTAGE = str(HERE / "sabotage")
KILLED_AFTER = 110.0
"""Seconds; beyond any fault's own bound, below the time limit of a test."""


PLAIN = Machine()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, how it gets there, and what the report must say.

    `{here}` in setup, env, args and subject stands for the machine's scratch folder, `{tests}` for
    the folder of the tests.

    setup    shell, run as root on the machine before anything else
    beside   a program of beside.py that runs all the while, with its arguments
    env      variables of the job, beside PATH, HOME and LANG
    without  which of these three it has not
    wrap     what the command is started by: prlimit, taskset …
    user     who runs it
    cgroup   (controller, limit) of a control group that it is put into
    args     of `preflight run`
    scenario of the fake NVML (lab/nvml.py), on a machine with `gpus` GPUs
    cuda     what torch.cuda over this machine's CPU makes of them (stand_in/fake_cuda.py)
    needs    tools of the system beyond those of the lab

    check, code, subject, status     of the root finding that names the culprit; the subject may
             have wildcards where it is one of several to blame that is named
    says     part of what it saw; without a code, of the line on stderr (exit code 2) or of why
             checks were not run
    exit     the exit code
    seconds  within which the command must have ended
    also     `check code` of other root findings that are no false alarms here
    missed   why preflight does not see it yet
    """

    name: str
    check: str = ""
    code: str = ""
    subject: str = "n1"
    status: str = "fail"
    says: str = ""
    exit: int = 3
    seconds: float = 5.0
    also: tuple[str, ...] = ()
    missed: str = ""
    machine: Machine = PLAIN
    setup: str = ""
    beside: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    wrap: tuple[str, ...] = ()
    user: int = 0
    cgroup: tuple[str, str] | None = None
    nproc: int | None = 4
    args: tuple[str, ...] = ("--level", "quick")
    gpus: int = 0
    scenario: Mapping[str, object] | None = None
    cuda: Mapping[str, object] | None = None
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def stand_in(self) -> str:
        """What is there in place of GPUs; empty where the fault has nothing to do with any."""
        if self.cuda is not None:
            return "NVML, torch.cuda"
        if self.scenario is not None:
            return "NVML"
        return "files of the driver" if self.gpus else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; without a report where preflight refused to run."""

    ended: Ended
    report: Mapping[str, Any]

    @property
    def findings(self) -> list[Mapping[str, Any]]:
        """The roots; what they explain is folded under them."""
        return list(self.report.get("findings", ()))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How right preflight was. `problems` is empty when it was right in everything."""

    detected: bool
    named: bool
    false_alarms: tuple[str, ...]
    problems: tuple[str, ...]


def lacking(fault: Fault) -> str:
    """Why it can't be injected here; empty when it can."""
    files = [need for need in fault.needs if need.startswith("/") and not os.path.exists(need)]
    tools = [need for need in fault.needs if not need.startswith("/")]
    if fault.scenario is not None:
        tools.append("gcc")
    if why := missing(*tools):
        return why
    if files:
        return f"not there: {', '.join(files)}"
    return cgroup.missing(fault.cgroup[0]) if fault.cgroup else ""


def needs_torch(fault: Fault) -> bool:
    return "standard" in fault.args or fault.beside.startswith("store")


def command(fault: Fault) -> list[str]:
    """The real command line."""
    nproc = ["--nproc", str(fault.nproc)] if fault.nproc else []
    preflight = str(Path(sys.executable).with_name("preflight"))
    return [*fault.wrap, preflight, "run", *nproc, *fault.args, "-o", "json"]


@contextmanager
def injected(fault: Fault) -> Iterator[tuple[Lab, dict[str, str], list[str]]]:
    """The machine with the fault in it, and the environment and command to run there."""
    from faults import gpus

    env, setup = dict(fault.env), fault.setup
    with gpus.driver(fault) as (variables, nodes), cgroup.made(fault.cgroup) as wrap:
        setup = nodes + setup
        if fault.user:
            setup = way_for_others() + setup
        setup = setup.replace("{here}", ".").replace("{tests}", str(HERE.parent))
        with Lab(replace(fault.machine, setup=setup)) as lab:
            host = lab["n1"]

            def filled(text: str) -> str:
                return text.replace("{here}", host.scratch).replace("{tests}", str(HERE.parent))

            if fault.beside:
                program = [sys.executable, str(HERE / "beside.py"), *filled(fault.beside).split()]
                host.start(program)
            given = {k: v for k, v in ENVIRONMENT.items() if k not in fault.without}
            env = {**given, **variables, **{k: filled(v) for k, v in env.items()}}
            yield lab, env, [*wrap, *(filled(word) for word in command(fault))]


def way_for_others() -> str:
    """Setup that lets a user other than root through closed folders above Python and preflight (a
    Python in /root): on the machine they are replaced by open ones that have the same in them."""
    closed = {
        above
        for path in (sys.prefix, sys.base_prefix, HERE)
        for above in Path(path).resolve().parents
        if not above.stat().st_mode & 1
    }
    return "".join(
        f"mkdir -p .lab/way{n}; mount --rbind '{folder}' .lab/way{n}\n"
        f"mount -t tmpfs -o mode=755 way '{folder}'\n"
        f"for e in $(ls -A .lab/way{n}); do [ ! -d .lab/way{n}/$e ] || {{ mkdir '{folder}'/$e; "
        f"mount --rbind .lab/way{n}/$e '{folder}'/$e; }}; done\n"
        for n, folder in enumerate(sorted(closed))
    )


def run(fault: Fault) -> Outcome:
    """Inject it and look."""
    with injected(fault) as (lab, env, argv):
        ended = lab["n1"].run(argv, timeout=KILLED_AFTER, env=env, user=fault.user)
    try:
        report = json.loads(ended.out)
    except ValueError:
        report = {}
    return Outcome(ended, report)


def subject(finding: Mapping[str, Any]) -> str:
    """The primary subject, as the screen shows it."""
    first = finding["subjects"][0]
    name = first.get("name", "")
    name = f"rank {name}" if first["kind"] == "rank" and name else name
    port = f"port {first['port']}" if first.get("port") is not None else ""
    return " · ".join(part for part in (first.get("node", ""), name, port) if part) or "job"


def judge(fault: Fault, outcome: Outcome) -> Verdict:
    """Whether the report names the culprit, and nobody else."""
    code, problems = outcome.ended.code, []
    if code != fault.exit:
        problems.append(f"exit code {code}, not {fault.exit}: {outcome.ended.err[-1000:]}")
    if outcome.ended.seconds > fault.seconds * slower():
        problems.append(f"took {outcome.ended.seconds:.1f} s, not {fault.seconds:g}")
    if not fault.code:
        rows = outcome.report.get("checks", ())
        said = "\n".join([outcome.ended.err, *(row["reason"] for row in rows)])
        named = bool(fault.says) and fault.says in said
        if not named:
            problems.append(f"nothing says {fault.says!r}: {said[-1000:]}")
        alarms = tuple(line(f) for f in outcome.findings)
        return Verdict(code == fault.exit, named, alarms, (*problems, *alarms))
    mine = [f for f in outcome.findings if (f["check"], f["code"]) == (fault.check, fault.code)]
    named = any(
        f["status"] == fault.status
        and fnmatchcase(subject(f), fault.subject)
        and fault.says in f["saw"]
        for f in mine
    )
    if not named:
        problems.append(f"no {fault.status} {fault.check} {fault.code} of {fault.subject!r}")
    alarms = tuple(line(f) for f in outcome.findings if f not in mine and _innocent(f, fault.also))
    if alarms:
        problems.append("false alarms")
    if problems and outcome.report:
        problems += ["the findings are:", *(line(f) for f in outcome.findings)]
    return Verdict(bool(mine), named, alarms, tuple(problems))


def _innocent(finding: Mapping[str, Any], also: tuple[str, ...]) -> bool:
    return f"{finding['check']} {finding['code']}" not in also


def line(finding: Mapping[str, Any]) -> str:
    head = f"{finding['status']} {finding['check']} {finding['code']} {subject(finding)!r}"
    folded = f" explains {', '.join(finding['explains'])}" if finding["explains"] else ""
    return f"{head} ({finding['confidence']}): {finding['saw'][:200]}{folded}"
