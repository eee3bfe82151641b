"""Runs in a job of a real SLURM cluster: as the job's own step, and from the batch script."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from faults.world import LIGHT, PORT, line
from lab import faults, slurm
from lab.running import Ended, Running
from lab.slurm import Cluster
from support.pace import slower

pytestmark = pytest.mark.root

PREFLIGHT = str(Path(sys.executable).with_name("preflight"))
NODES = ("n1", "n2", "n3", "n4")
TORCH = ("--only", "env.identity,rdzv.reach,rdzv.store,world.gloo")
QUICK = ("--level", "quick", "--only", "host.limits")
WITHIN = 110.0


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    if why := slurm.missing("ss", "nft"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.fixture(scope="module")
def cluster(_possible: None) -> Iterator[Cluster]:
    """One for all that leaves it whole."""
    with Cluster(nodes=4) as made:
        yield made


def srun(cluster: Cluster, options: Sequence[str], *args: str) -> Ended:
    return cluster.run(["srun", "-Q", *options, PREFLIGHT, *args], timeout=WITHIN)


def begun(cluster: Cluster, *words: str, tasks: str = "1") -> Running:
    """What a user types in a job of four nodes."""
    job = ["salloc", "-Q", "-N4", f"--ntasks-per-node={tasks}"]
    return cluster["ctl"].begin([*job, *words], cwd="/tmp")


def ended(running: Running) -> Ended:
    found = running.wait(WITHIN)
    running.end()
    return found


def document(done: Ended) -> dict[str, Any]:
    assert done.out.startswith("{"), (done.code, done.out[-2000:], done.err[-2000:])
    found: dict[str, Any] = json.loads(done.out)
    return found


def says(report: dict[str, Any]) -> str:
    return "\n".join(line(f) for f in report["findings"])


def agents(cluster: Cluster, name: str) -> list[int]:
    """The processes of agents there, without what srun and a shell are called with."""
    found = cluster[name].processes()
    return [pid for pid, args in found.items() if re.search(r"python\S* \S.*preflight", args)]


def everywhere(cluster: Cluster) -> None:
    """Wait until agents run on all nodes and have met."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        met = cluster["n1"].sh(f"ss -Htn state established 'sport = :{PORT}'")
        if len(met.splitlines()) >= len(NODES) - 1:
            return
        time.sleep(0.05)
    raise AssertionError("the agents did not meet")


def left(cluster: Cluster, *names: str) -> list[str]:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = [name for name in names or NODES if agents(cluster, name)]
        if not found:
            break
        time.sleep(0.1)
    return found


# --- as a step of the job ---


@pytest.mark.torch
def test_a_task_a_rank(cluster: Cluster) -> None:
    done = srun(cluster, ["-N4", "--ntasks-per-node=2"], "run", *TORCH, "-o", "json")
    assert done.code == 0, (done.out, done.err)
    report = document(done)
    assert (report["verdict"], report["world"]["source"]) == ("ready", "SLURM")
    assert (report["world"]["size"], report["world"]["met"]) == (8, 8)
    rows = {row["id"]: row["by_subject"] for row in report["checks"]}
    assert list(rows["rdzv.reach"]) == list(NODES), "one agent speaks for a node"
    assert len(rows["world.gloo"]) == 8


def test_a_task_a_node(cluster: Cluster) -> None:
    args = ("run", "--nproc", "2", *LIGHT, "-o", "json")
    report = document(srun(cluster, ["-N4", "--ntasks-per-node=1"], *args))
    assert (report["verdict"], report["world"]["met"]) == ("ready", 8), says(report)
    assert [node["ranks"] for node in report["world"]["nodes"]] == [
        [2 * n, 2 * n + 1] for n in range(4)
    ]


def test_variables_of_an_earlier_mpi_launch(cluster: Cluster) -> None:
    """A shell of `srun --mpi=pmi2 --pty` leaves PMI_RANK=0 of 1 to all that is typed in it."""
    env = {**os.environ, "PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "9"}
    job = ["srun", "-Q", "-N4", "--ntasks-per-node=2", PREFLIGHT, "run", *LIGHT, "-o", "json"]
    report = document(cluster.run(job, timeout=WITHIN, env=env))
    assert (report["world"]["source"], report["world"]["met"]) == ("SLURM", 8), says(report)
    (found,) = report["findings"]
    assert (found["code"], found["status"]) == ("launcher-disagrees", "warn"), says(report)
    assert "PMI_SIZE='1' · SLURM_PROCID='1'" in found["saw"]


PTY = "import pty, sys; pty.spawn(sys.argv[1:])"


def test_typed_in_a_shell_that_is_a_task(cluster: Cluster, tmp_path: Path) -> None:
    """One of four: the other three have no terminal, and nobody will type it there."""
    kept = tmp_path / "report.json"
    typed = shlex.join([PREFLIGHT, "run", "--nproc", "2", *LIGHT, "-o", f"json={kept}"])
    shell = ["srun", "-Q", "-N4", "--ntasks-per-node=1", "--pty", "bash", "--norc", "-i"]
    words = shlex.join([sys.executable, "-c", PTY, *shell])
    # an end of file would end the terminal
    script = f"(echo {shlex.quote(typed)}; echo 'touch {kept}.over; exit'; sleep 60) | {words} & "
    script += f"while ! [ -e {kept}.over ]; do sleep 0.1; done; kill $(jobs -p)"
    done = ended(cluster["ctl"].begin(["timeout", "60", "bash", "-c", script], cwd="/tmp"))
    assert kept.exists(), (done.code, done.out[-2000:], done.err[-2000:])
    report = json.loads(kept.read_bytes())
    assert (report["verdict"], report["world"]["size"]) == ("ready", 2), says(report)
    assert report["world"]["source"] == "local"
    row = next(r for r in report["checks"] if r["id"] == "env.identity")
    assert "this machine alone, of a job of 4 nodes" in row["text"]


REHEARSED = """
import os, time
import torch
import torch.distributed as dist
rank, world = (int(os.environ[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS"))
os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "n1"}
os.environ["MASTER_PORT"] = "29611"
dist.init_process_group("gloo")
for step in range(1000):
    if rank == 2 and step == 9:
        time.sleep(600)
    dist.all_reduce(torch.ones(4))
    time.sleep(0.02)
"""


@pytest.mark.torch
def test_a_rehearsal_with_a_task_a_rank(cluster: Cluster, tmp_path: Path) -> None:
    """Each agent watches its own rank only: who keeps the others waiting shows when they meet."""
    script = tmp_path / "train.py"
    script.write_text(REHEARSED)
    lasts = f"{22 * slower():.0f}s"
    how = ("rehearse", "--stuck", "4s", "--for", lasts, "-o", "json", "--", sys.executable)
    done = srun(cluster, ["-N2", "--ntasks-per-node=2"], *how, str(script))
    assert done.code == 3, (done.out, done.err)
    (found,) = [f for f in document(done)["findings"] if f["status"] == "fail"]
    assert (found["check"], found["code"]) == ("job.collectives", "rank-stuck")
    assert [(s["node"], s["ranks"]) for s in found["subjects"]] == [("n2", [2])]
    assert "train.py:11" in found["saw"]


@pytest.mark.torch
def test_a_job_that_hangs_is_looked_at_from_outside(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REHEARSED.replace("rank == 2", "rank == 1"))
    step = ["srun", "-Q", "-N1", "-w", "n1", "-n2", sys.executable, str(script)]
    running = cluster["ctl"].begin(step, cwd="/tmp")
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not _asleep(cluster, "train.py"):
            time.sleep(0.5)
        (job,) = cluster["ctl"].sh("squeue -h -o %A").split()
        argv = [PREFLIGHT, "attach", "--job", job, "-o", "json"]
        done = cluster["n1"].run(argv, timeout=40)
        report = document(done)
        (found,) = [f for f in report["findings"] if f["status"] == "fail"]
        assert (found["code"], found["subjects"][0]["ranks"]) == ("rank-stuck", [1])
        assert "train.py:11" in found["saw"]
    finally:
        running.end()
        cluster.cancel()


def _asleep(cluster: Cluster, script: str) -> bool:
    """Whether the ranks have come to where one of them sleeps."""
    pids = [pid for pid, args in cluster["n1"].processes().items() if args.endswith(script)]
    waits = [cluster["n1"].sh(f"cat /proc/{pid}/wchan; true") for pid in pids]
    return "hrtimer_nanosleep" in waits and len(pids) >= 2


def test_a_node_that_dies_in_between_is_named() -> None:
    """Its slurmd and its task, killed at once."""
    with Cluster(nodes=4) as cluster:
        args = ("run", "--nproc", "2", *LIGHT, "-o", "json=/tmp/part.json", "-o", "human")
        folder = cluster.folder / "parts"
        folder.mkdir()
        command = ["srun", "-Q", "-N4", "--kill-on-bad-exit=0", PREFLIGHT, *args]
        command = [word.replace("/tmp/part", f"{folder}/part") for word in command]
        running = cluster["ctl"].begin(command, cwd="/tmp")
        everywhere(cluster)
        cluster.daemons["n3"].kill()
        cluster["n3"].sh(f"kill -9 {' '.join(map(str, agents(cluster, 'n3')))} || true")
        until = time.monotonic() + 60
        while not (folder / "part.json").exists() and time.monotonic() < until:
            time.sleep(0.1)
        running.end()
        report = json.loads((folder / "part.json").read_text())
    assert report["verdict"] == "not_ready"
    assert "fail rdzv.reach lost [n3]" in says(report)
    assert {s["node"] for f in report["findings"] for s in f["subjects"]} == {"n3"}


# --- from the batch script ---


def test_from_the_batch_script(cluster: Cluster) -> None:
    """With as many ranks as the job has tasks, and the report where the script runs."""
    file = cluster.folder / "report.json"
    words = shlex.join([PREFLIGHT, "run", "--slurm", *LIGHT, "-o", f"json={file}"])
    script = f"{words} > {cluster.folder}/said 2>&1\n"
    job = cluster.submit(script, "-N4", "--ntasks-per-node=2")
    assert cluster.ended(job, timeout=WITHIN) == ("COMPLETED", "None"), (
        cluster.folder / "said"
    ).read_text()
    report = json.loads(file.read_text())
    assert (report["verdict"], report["world"]["met"]) == ("ready", 8)
    assert report["settings"]["nproc"] == {"value": 2, "from": "env SLURM_NTASKS_PER_NODE"}
    assert report["settings"]["slurm"]["value"] is True
    assert "READY" in (cluster.folder / "said").read_text()
    assert left(cluster) == []


def test_the_environment_asks_for_it_once(cluster: Cluster) -> None:
    """PREFLIGHT_SLURM is that of the batch script: no agent starts agents of its own."""
    words = ["env", "PREFLIGHT_SLURM=1", PREFLIGHT, "run", *QUICK, "-o", "json"]
    report = document(ended(begun(cluster, *words)))
    assert (report["verdict"], len(report["world"]["nodes"])) == ("ready", 4)
    done = srun(cluster, ["-N1"], "run", "--slurm", *QUICK)
    assert done.code == 2
    assert "srun has started this already" in done.err


def test_gate_before_the_jobs_own_srun(cluster: Cluster) -> None:
    words = [PREFLIGHT, "gate", "--slurm", "-q", *QUICK, "--", "srun", "-Q", "hostname"]
    done = ended(begun(cluster, *words))
    assert done.code == 0, done.err
    assert "READY" in done.out
    assert sorted(word for word in done.out.split() if word in NODES) == list(NODES), done.out


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_a_job_network_that_is_broken(node: str, cluster: Cluster) -> None:
    """SLURM's own ports are open: every part comes, and all of them are one report. On n1 the
    meeting can't be reached by anybody; n3 can't send there."""
    broken = faults.drop_port(PORT) if node == "n1" else faults.drop_out(port=PORT)
    with cluster[node].broken(broken):
        words = [PREFLIGHT, "run", "--slurm", "--nproc", "2", "--arrive", "6s", *LIGHT]
        done = ended(begun(cluster, *words, "-o", "json"))
    assert done.code == 3, (done.out, done.err)
    report = document(done)
    assert report["world"]["met"] == 8
    (finding,) = report["findings"]
    assert finding["check"] == "rdzv.reach"
    assert finding["subjects"][0]["node"] == node
    assert left(cluster) == []


def test_who_started_them_is_killed(cluster: Cluster) -> None:
    running = begun(cluster, PREFLIGHT, "run", "--slurm", "--nproc", "2", *LIGHT)
    everywhere(cluster)
    found = cluster["ctl"].processes()
    pid = min(p for p, args in found.items() if re.match(r"\S*python\S* .*run --slurm", args))
    cluster["ctl"].sh(f"kill -9 {pid}")
    assert left(cluster) == []
    assert ended(running).out == ""


def test_a_node_that_can_not_be_launched_on_is_left_out_and_named() -> None:
    """Its slurmd is dead: srun gives up all nodes, and is started again without that one."""
    with Cluster(nodes=4) as cluster:
        folder = cluster.folder
        words = shlex.join([PREFLIGHT, "run", "--slurm", "--nproc", "2", *LIGHT, "-o", "json"])
        waits = f"until [ -e {folder}/dead ]; do sleep 0.1; done; exec {words}"
        running = begun(cluster, "sh", "-c", waits)
        time.sleep(1)
        cluster.daemons["n3"].kill()
        (folder / "dead").touch()
        done = ended(running)
    assert done.code == 5, (done.out, done.err)
    report = document(done)
    assert "missing rdzv.reach not-launched [n3]" in says(report)
    assert "failed on node n3: Communication connection failure" in says(report)
    assert (report["world"]["size"], report["world"]["met"]) == (8, 6)
    rows = {row["id"]: row for row in report["checks"]}
    assert rows["net.mesh"]["status"] == "pass", "the others were looked at all the same"


def test_a_machine_that_crashes_in_between_is_named_in_time() -> None:
    """srun would wait for it without an end."""
    with Cluster(nodes=4) as cluster:
        words = [PREFLIGHT, "run", "--slurm", "--nproc", "2", *LIGHT, "-o", "json"]
        running = begun(cluster, *words)
        everywhere(cluster)
        cluster["n3"].crash()
        done = ended(running)
        assert left(cluster, "n1", "n2", "n4") == []
    assert done.code == 3, (done.code, done.out, done.err)
    assert "fail rdzv.reach lost [n3]" in says(document(done))
    assert done.seconds < 60
