"""A real SLURM cluster on machines of the lab, up in about a second.

    with Cluster(nodes=4, conf={"PrologFlags": "Alloc"}) as cluster:
        cluster.run(["srun", "-N4", "hostname"], timeout=20).out
        cluster.state("n1")                                      # ("idle", "")
        cluster["n1"].break_(drop_port(29500))

`ctl` has munged and slurmctld, n1, n2, … a slurmd each. What they keep is in a temporary folder,
which the machines share as they do all of /tmp; they die with the lab. There is no accounting, no
cgroup and no queue worth the name: a job runs as soon as its nodes are idle. Only root can have
one: slurmd sets the groups of its tasks.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import host
from lab.host import ENVIRONMENT, Host, Lab, Machine
from lab.running import Ended, Running

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "scontrol")
UP_SECONDS = 60.0
ASK_SECONDS = 20.0
PAUSE = 0.05

CONTROLLER = "ctl"
CONFIGURATION = {
    "ClusterName": "lab",
    "SlurmUser": "root",
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    "MpiDefault": "none",
    "MailProg": "/bin/true",
    # the defaults of these want cgroups, or more cores than there are
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "AccountingStorageType": "accounting_storage/none",
    "SwitchType": "switch/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "SchedulerType": "sched/builtin",
    "SchedulerParameters": "batch_sched_delay=0",
    # a node may claim more than the machine has
    "SlurmdParameters": "config_overrides",
    "ReturnToService": "2",
    "MessageTimeout": "10",
    "KillWait": "2",
    "CompleteWait": "0",
    "MinJobAge": "300",
    # so that a test may drop all other ports and leave SLURM alive
    "SrunPortRange": "60001-61000",
    "SlurmctldPidFile": "/run/slurmctld.pid",
    "SlurmdPidFile": "/run/slurmd.pid",
}
"""What every cluster has; a test may say otherwise."""


class Cluster:
    """`nodes` nodes of 4 CPUs and `gpus` GPUs, which are character devices like /dev/null; `conf`
    more lines of slurm.conf, `machine` how each machine is to be (see Machine)."""

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 0,
        conf: Mapping[str, str] | None = None,
        **machine: Any,
    ) -> None:
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.gpus = gpus
        self.daemons: dict[str, Running] = {}
        """`munged`, `slurmctld`, and under the name of each node its slurmd."""
        self._conf = {**CONFIGURATION, **(conf or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="preflight-slurm-"))
        # /etc/slurm is one folder on all of them: a health check gets no SLURM_CONF
        etc = self.folder / "etc"
        share = f"mkdir -p /etc/slurm; mount --bind {etc} /etc/slurm\n"
        setup = share + machine.pop("setup", "")
        self.lab = Lab(*(Machine(n, setup=setup, **machine) for n in (CONTROLLER, *self.nodes)))

    def __getitem__(self, name: str) -> Host:
        return self.lab[name]

    def __enter__(self) -> Cluster:
        try:
            for name in ("etc", "state", "spool", "dev"):
                (self.folder / name).mkdir()
            self.folder.chmod(0o755)  # users other than root read slurm.conf there
            self.lab.__enter__()
            self._write()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.lab.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what can be done with it ---

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        at: str = CONTROLLER,
        user: int = 0,
        cwd: str = "/tmp",
    ) -> Ended:
        """A command on ctl, in a folder that all nodes have. What has not ended in time is killed
        with all below it, and its code is None; a job that it began may go on."""
        running = self.lab[at].begin(argv, env, cwd=cwd, user=user)
        running.wait(timeout)
        ended = running.ended()
        running.end()
        return ended

    def state(self, node: str) -> tuple[str, str]:
        """Of a node as SLURM has it: `idle`, `drained` and the like, and the reason, or nothing."""
        said = self._ask("scontrol", "show", "node", "-o", node)
        state = re.search(r" State=(\S+)", said)
        reason = re.search(r" Reason=(.*) \[\w+@[\dT:-]+\]", said)
        assert state, said
        return _word(state[1]), reason[1] if reason else ""

    def settled(self, node: str, *words: str, timeout: float = 20.0) -> tuple[str, str]:
        """Its state once that is one of these words, or whatever it is when time is up."""
        until = time.monotonic() + timeout
        while (found := self.state(node))[0] not in words and time.monotonic() < until:
            time.sleep(PAUSE)
        return found

    def resume(self, *nodes: str, timeout: float = 30.0) -> None:
        """Take them back into service, whatever was wrong with them, and wait until they idle."""
        for node in nodes or self.nodes:
            if self.state(node)[0] != "idle":
                # refused where a node is in service: then it has only to become idle
                self.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], timeout=20)
            found = self.settled(node, "idle", timeout=timeout)
            logs = (self.log(CONTROLLER)[-2000:], self.log(node)[-2000:])
            assert found[0] == "idle", (node, found, *logs)

    def submit(self, script: str, *options: str, env: Mapping[str, str] | None = None) -> int:
        """A batch job; its number."""
        path = self.folder / "job.sh"
        path.write_text("#!/bin/sh\n" + script)
        argv = ["sbatch", "--parsable", *options, str(path)]
        ended = self.run(argv, timeout=ASK_SECONDS, env=env)
        assert ended.code == 0, ended
        return int(ended.out)

    def job(self, number: int) -> tuple[str, str]:
        """Its state and the reason for that: ("PENDING", "launch_failed_requeued_held")."""
        said = self._ask("scontrol", "show", "job", "-o", str(number))
        found = re.search(r" JobState=(\S+) Reason=(\S+)", said)
        assert found, said
        return found[1], found[2]

    def ended(self, number: int, *words: str, timeout: float) -> tuple[str, str]:
        """Its state once that is one of these words, or whatever it is when time is up."""
        wanted = words or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until = time.monotonic() + timeout
        while (found := self.job(number))[0] not in wanted and time.monotonic() < until:
            time.sleep(PAUSE)
        return found

    def cancel(self) -> None:
        """All jobs that there are."""
        self.run(["scancel", "--full", "--state=PENDING"], timeout=ASK_SECONDS)
        self.run(["scancel", "--full", "--state=RUNNING"], timeout=ASK_SECONDS)

    def log(self, name: str) -> str:
        """What the slurmd of a node has written, or slurmctld under `ctl`."""
        file = "slurmctld.log" if name == CONTROLLER else f"slurmd.{name}.log"
        try:
            return (self.folder / file).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    # --- up ---

    def _write(self) -> None:
        folder, lines = self.folder, dict(self._conf)
        lines["SlurmctldHost"] = f"{CONTROLLER}({self.lab[CONTROLLER].address})"
        lines.setdefault("AuthInfo", f"socket={folder}/munge.sock")
        lines["StateSaveLocation"] = f"{folder}/state"
        lines["SlurmdSpoolDir"] = f"{folder}/spool/%n"
        lines["SlurmctldLogFile"] = f"{folder}/slurmctld.log"
        lines["SlurmdLogFile"] = f"{folder}/slurmd.%n.log"
        text = [f"{key}={value}" for key, value in lines.items()]
        has = f"CPUs=4 RealMemory=4000{f' Gres=gpu:{self.gpus}' if self.gpus else ''}"
        if self.gpus:
            text.append("GresTypes=gpu")
            for number in range(self.gpus):
                device = folder / "dev" / f"nvidia{number}"
                os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            files = f"{folder}/dev/nvidia[0-{self.gpus - 1}]"
            gres = f"NodeName={','.join(self.nodes)} Name=gpu Count={self.gpus} File={files}\n"
            (folder / "etc/gres.conf").write_text(gres)
        for node in self.nodes:
            where = f"NodeAddr={self.lab[node].address} NodeHostname={node}"
            text.append(f"NodeName={node} {where} {has} State=UNKNOWN")
        text.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        (folder / "etc/slurm.conf").write_text("\n".join(text) + "\n")

    def _start(self) -> None:
        folder, ctl = self.folder, self.lab[CONTROLLER]
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munged = ["munged", "-F", "--force", "--num-threads=2", f"--key-file={key}"]
        munged += [f"--socket={folder}/munge.sock", f"--seed-file={folder}/munge.seed"]
        munged += [f"--log-file={folder}/munged.log", "--pid-file=/run/munged.pid"]
        self.daemons["munged"] = ctl.begin(munged)
        until = time.monotonic() + UP_SECONDS
        while not (folder / "munge.sock").exists():
            self._alive("munged", until)
        self.daemons["slurmctld"] = ctl.begin(["slurmctld", "-D", "-c"])
        for node in self.nodes:
            self.start(node)
        while self._idle() != len(self.nodes):
            self._alive("slurmctld", until)

    def start(self, node: str) -> None:
        """The slurmd of a node; `daemons[node].kill()` ends it."""
        # a folder that is not the machine's scratch: tasks of other users begin there
        self.daemons[node] = self.lab[node].begin(["slurmd", "-D", "-N", node], cwd="/tmp")

    def _idle(self) -> int:
        ended = self.run(["sinfo", "-h", "-N", "-o", "%t"], timeout=ASK_SECONDS)
        return ended.out.split().count("idle") if ended.code == 0 else 0

    def _alive(self, name: str, until: float) -> None:
        daemon = self.daemons[name]
        if daemon.over or time.monotonic() > until:
            logs = "".join(self.log(each)[-1500:] for each in (CONTROLLER, *self.nodes))
            raise RuntimeError(f"the cluster did not come up: {daemon.ended()}\n{logs}")
        time.sleep(PAUSE)

    def _ask(self, *argv: str) -> str:
        ended = self.run(argv, timeout=ASK_SECONDS)
        assert ended.code == 0, (argv, ended)
        return ended.out.strip()


def _word(state: str) -> str:
    """IDLE+DRAIN is what sinfo calls drained, and so on; `*`: slurmctld hasn't heard of it yet."""
    words = state.rstrip("*~#!%$@^-").split("+")
    silent = "*" * ("NOT_RESPONDING" in words or state.endswith("*"))
    if "DRAIN" in words:
        over = words[0] in ("IDLE", "DOWN") and "COMPLETING" not in words
        return ("drained" if over else "draining") + silent
    return ("completing" if "COMPLETING" in words else words[0]).lower() + silent


def missing(*tools: str) -> str:
    """Why there can be no cluster here; empty when there can be one."""
    if os.geteuid():
        return "a SLURM cluster needs root: slurmd sets the groups of its tasks"
    return host.missing(*DAEMONS, *tools)


__all__ = ["CONTROLLER", "ENVIRONMENT", "Cluster", "missing"]
