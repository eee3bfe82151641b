"""The lab's SLURM cluster: it is a real one, it comes up, and nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import slurm
from lab.host import NOBODY
from lab.slurm import Cluster

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    if why := slurm.missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.fixture(scope="module")
def cluster(_possible: None) -> Iterator[Cluster]:
    with Cluster(nodes=4, gpus=2) as made:
        yield made


def test_a_task_on_each_node(cluster: Cluster) -> None:
    ended = cluster.run(["srun", "-Q", "-N4", "hostname"], timeout=30)
    assert (ended.code, sorted(ended.out.split())) == (0, ["n1", "n2", "n3", "n4"]), ended


def test_the_devices_of_a_job(cluster: Cluster) -> None:
    task = ["srun", "-Q", "-N1", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES"]
    assert cluster.run(task, timeout=30).out == "0,1\n"


def test_a_job_of_another_user(cluster: Cluster) -> None:
    ended = cluster.run(["srun", "-Q", "-N1", "id", "-u"], timeout=30, user=NOBODY)
    assert (ended.code, ended.out) == (0, f"{NOBODY}\n"), ended


def test_a_batch_job_and_how_it_ends(cluster: Cluster) -> None:
    job = cluster.submit("exit 3\n", "-N2")
    assert cluster.ended(job, timeout=30) == ("FAILED", "NonZeroExitCode")


def test_a_node_is_drained_and_comes_back(cluster: Cluster) -> None:
    reason = "a fan [x@y]: it roars"
    update = ["scontrol", "update", "NodeName=n3", "State=DRAIN", f"Reason={reason}"]
    assert cluster.run(update, timeout=20).code == 0
    assert cluster.settled("n3", "drained") == ("drained", reason)
    cluster.resume("n3")
    assert cluster.state("n3") == ("idle", "")


def test_a_command_that_does_not_end_is_killed_alone(cluster: Cluster) -> None:
    assert cluster.run(["sleep", "96"], timeout=0.3).code is None
    assert cluster.state("n1")[0] == "idle"
    assert "sleep 96" not in " ".join(cluster["ctl"].processes().values())


PROGRAM = f"""
import json, os, sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from lab.slurm import Cluster
with Cluster(nodes=1) as cluster:
    nets = [os.readlink(f"/proc/{{m.process.pid}}/ns/net") for m in cluster.lab]
    print(json.dumps({{"folder": str(cluster.folder), "nets": nets}}), flush=True)
    sys.stdin.readline()
"""


def test_no_daemon_outlives_whoever_made_it() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    said = json.loads(owner.stdout.readline())

    def left() -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "ns/net") in said["nets"]:
                    found.append((process / "comm").read_text().strip())
            except OSError:
                continue
        return found

    assert {"munged", "slurmctld", "slurmd"} <= set(left())
    owner.kill()
    owner.communicate(timeout=10)
    until = time.monotonic() + 10
    while left() and time.monotonic() < until:
        time.sleep(0.02)
    assert left() == []
    # its folder is no process: nobody but the one that was killed could remove it
    subprocess.run(["rm", "-rf", said["folder"]], check=True)
