"""A rehearsal over several machines: an agent on each watches its own part of the command, and they
meet when it is over."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from faults.world import PORT, machines
from lab.host import ENVIRONMENT, Command, Ended, Lab
from lab.probe import possible

pytestmark = [pytest.mark.root, pytest.mark.torch]

SECONDS = 140.0
FOR = "60s"
"""Far more than any of them takes."""
SCRIPT = """
import sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(20):
    if rank == 1 and step == 12:
        {fault}
    dist.all_reduce(torch.ones(8))
    time.sleep(0.05)
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    possible("nft", "ss", "ps")


def rehearsed(fault: str) -> tuple[dict[str, Ended], dict[str, Any]]:
    """Two machines with a rank each; the report of the one that hosts the meeting."""
    tools = Path(sys.executable).parent
    commands = {}
    for number in range(2):
        ours = [
            str(tools / "preflight"),
            "rehearse",
            "--stuck",
            "5s",
            "--for",
            FOR,
            "-o",
            "json=report.json",
        ]
        where = ["--nodes", "2", "--node-rank", str(number), "--meet", f"n1:{PORT}"]
        job = [str(tools / "torchrun"), "--nnodes", "2", "--nproc-per-node", "1"]
        job += ["--node-rank", str(number), "--master-addr", "n1", "--master-port", str(PORT)]
        argv = [*ours, *where, "--", *job, "train.py"]
        commands[f"n{number + 1}"] = Command(argv, ENVIRONMENT)
    with Lab(*machines(2)) as lab:
        for host in lab:
            host.sh(f"cat > train.py <<'END'\n{SCRIPT.format(fault=fault)}\nEND")
        ended = lab.run_all(commands, timeout=SECONDS)
        left = [text for host in lab for text in host.processes().values() if "train.py" in text]
        report = json.loads(lab["n1"].sh("cat report.json"))
    assert left == []
    return ended, report


def test_both_parts_of_a_healthy_command_are_one_report() -> None:
    ended, report = rehearsed("pass")
    assert {name: e.code for name, e in ended.items()} == {"n1": 0, "n2": 0}, ended["n1"].err
    rows = {row["id"]: row for row in report["checks"]}
    assert rows["job.ranks"]["by_subject"] == {"n1/0": "pass", "n2/1": "pass"}
    assert rows["job.collectives"]["status"] == "pass"


@pytest.mark.parametrize(
    ("fault", "check", "code"),
    [
        ("time.sleep(600)", "job.collectives", "rank-stuck"),
        pytest.param(
            *("raise ValueError('no such shard')", "job.ranks", "rank-raised"),
            marks=pytest.mark.at_length,
        ),
    ],
)
def test_the_rank_of_the_other_machine_is_named(fault: str, check: str, code: str) -> None:
    ended, report = rehearsed(fault)
    assert {name: e.code for name, e in ended.items()} == {"n1": 3, "n2": 3}, ended["n1"].err
    (found,) = [f for f in report["findings"] if f["status"] == "fail"]
    assert (found["check"], found["code"]) == (check, code)
    subject = found["subjects"][0]
    assert (subject["node"], subject["ranks"]) == ("n2", [1])
    assert "train.py:10" in found["saw"]
    # the agents have told each other that all ranks stand, and did not wait for --for
    *_, seconds, unit = report["settings"]["rehearsed"]["value"].split()
    assert unit == "s"
    assert float(seconds) < 40
