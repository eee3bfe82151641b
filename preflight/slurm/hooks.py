"""Each hook from its environment to its exit code; slurm.py is the command line to it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from preflight import console
from preflight.config.resolve import Flags
from preflight.engine import agent
from preflight.engine.agent import Wish
from preflight.frozen import dataclass
from preflight.model import PreflightError, Report, Verdict
from preflight.output import terminal
from preflight.process.pool import Workers
from preflight.process.signals import Interrupt
from preflight.render import json as as_json
from preflight.slurm import messages, node_check

DRAINED = 3
"""The one exit code upon which the script around a hook lets slurmd drain the node."""

AFTERWARDS = 1.0
"""Seconds for slurmctld, syslog and the kept report together, once the verdict is there."""
LEFTOVERS = 4.0
READING = 1.0


@dataclass(frozen=True, slots=True)
class Hook:
    """Where and for what a hook was called. `node` and `job` are empty where SLURM did not say
    them, as when somebody tries it by hand: then nothing is drained."""

    name: str
    node: str
    job: str
    folder: str
    config_file: str | None
    root: str

    @property
    def title(self) -> str:
        return f"{self.name} job {self.job}" if self.job else self.name


def hook_here(name: str, config_file: str | None, root: str, folder: str) -> Hook:
    """This hook, and the environment without what is the job's. It leaves the working directory,
    which is slurmd's and may be anywhere."""
    node_check.forget_the_job(os.environ)
    os.chdir("/")
    node = messages.node_name(os.environ.get("SLURMD_NODENAME", ""))
    job = messages.job_number(os.environ.get("SLURM_JOB_ID", ""))
    return Hook(name, node, job, folder, config_file, root)


def prolog(hook: Hook, workers: Workers) -> int:
    """Look at the node before a job: DRAINED where it must not begin here."""
    report = _check_node(hook, workers)
    if code := _drain(hook, workers, report):
        return code
    after = _report_blind_checks(hook, report)
    if hook.job:
        after["keep"] = {"path": _kept_report(hook), "text": as_json.render(report)}
    node_check.call_workers(workers, AFTERWARDS, **after)
    return 0


def healthcheck(hook: Hook, workers: Workers) -> int:
    """Look at the node now and then: drain it, or take it back where it was drained by us for what
    is whole again."""
    report = _check_node(hook, workers)
    if code := _drain(hook, workers, report):
        return code
    after = _report_blind_checks(hook, report)
    if hook.node and report.verdict is Verdict.READY:
        passed = messages.passed_checks(report.rows)
        after["resume"] = {"node": hook.node, "passed": passed, "folder": hook.folder}
    undone = node_check.call_workers(workers, AFTERWARDS, **after).get("resume")
    if undone:
        text = f"{messages.PREFIX}back in service, healthy again; it was drained for: {undone}"
        console.say(text)
        node_check.call_workers(workers, AFTERWARDS, log={"text": text, "bad": False})
    return 0


def epilog(hook: Hook, workers: Workers) -> int:
    """Say what a job has left behind. Never more than that: what it left is no fault of the node,
    and a failed epilog drains it."""
    uid = os.environ.get("SLURM_JOB_UID", "")
    if not (hook.job and messages.job_number(uid)):
        raise PreflightError("slurm epilog wants SLURM_JOB_ID and SLURM_JOB_UID, as slurmd sets")
    args = {"root": hook.root, "job": hook.job, "uid": int(uid)}
    forget = {"path": _kept_report(hook)}
    found = node_check.call_workers(workers, LEFTOVERS, left=args, forget=forget).get("left")
    if found is None:
        console.say(f"{messages.PREFIX}could not look what job {hook.job} has left")
    elif text := messages.leftovers(found, hook.job, int(uid)):
        console.say(text)
        node_check.call_workers(workers, AFTERWARDS, log={"text": text, "bad": False})
    return 0


def task_prolog(
    report_file: str | None, workers: Workers, interrupt: Interrupt, folder: str
) -> int:
    """One line for the job's own output: what the prolog saw here, or a quick look as its user."""
    job = messages.job_number(os.environ.get("SLURM_JOB_ID", ""))
    path = report_file or os.path.join(folder, f"job-{job or 'none'}.json")
    report = _read_report(path, workers)
    if report is None:
        wish = Wish(
            Flags(level="quick", deadline=f"{node_check.DEADLINE:g}s"), node_check.config_of(None)
        )
        report = agent.ending_of(wish, workers, interrupt, lambda progress: None).report
    if report is not None:
        terminal.write(f"print {messages.PREFIX}{messages.summary(report)}\n")
    return 0


def _check_node(hook: Hook, workers: Workers) -> Report:
    node = hook.node or os.uname().nodename
    return node_check.check_node(workers, node, hook.config_file, hook.root)


def _drain(hook: Hook, workers: Workers, report: Report) -> int:
    """DRAINED and all that goes with it where the node is at fault, else 0."""
    found = messages.drain_findings(report, report.observations.topology.nodes[0].name)
    if not found:
        return 0
    text = messages.drain_reason(found, hook.title)
    console.say(text)
    path = os.path.join(hook.folder, "bad.json")
    after: dict[str, Mapping[str, object]] = {
        "log": {"text": text, "bad": True},
        "keep": {"path": path, "text": as_json.render(report)},
    }
    if hook.node:
        after["drain"] = {"node": hook.node, "reason": text, "folder": hook.folder}
    told = node_check.call_workers(workers, AFTERWARDS, **after)
    if hook.node and (why := told.get("drain", "no answer of scontrol in time")):
        console.say(f"{messages.PREFIX}no reason set: {why}")
    return DRAINED


def _report_blind_checks(hook: Hook, report: Report) -> dict[str, Mapping[str, object]]:
    """What is said of checks that could not look: not to see a fault is no health."""
    unseen = messages.blind_checks(report)
    if not unseen:
        return {}
    text = f"{messages.PREFIX}could not look: {unseen} [{hook.title}]"
    console.say(text)
    return {"log": {"text": text, "bad": False}}


def _kept_report(hook: Hook) -> str:
    """Where the prolog keeps its report for the task prolog, until the epilog."""
    return os.path.join(hook.folder, f"job-{hook.job}.json")


def _read_report(path: str, workers: Workers) -> Report | None:
    args = {"path": path, "limit": as_json.LIMIT}
    text = node_check.call_workers(workers, READING, kept=args).get("kept", {}).get("text", "")
    try:
        return as_json.parse(text) if text else None
    except PreflightError:
        return None
