"""A task a rank on a real SLURM cluster, where one agent speaks for those of its node: every rank
is told of as if it had come by itself."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from faults.world import LIGHT, PORT, line
from lab import slurm
from lab.running import Ended, Running
from lab.slurm import Cluster

pytestmark = pytest.mark.root

PROGRAM = """
import os
from preflight.meeting import coordinator, neighbours
neighbours.FROM_RANKS = int(os.environ.get("FROM_RANKS", 2))
coordinator.APART = 1e9
from preflight.__main__ import main
main()
"""
"""preflight, to which nine ranks are many; and nobody is late on a machine that is slow today."""
TORCH = ("--only", "env.identity,rdzv.reach,rdzv.store,world.gloo")
WITHIN = 110.0
ARRIVE = 20.0
"""For one that never comes: meanwhile another one is killed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if why := slurm.missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    with Cluster(nodes=3) as made:
        (made.folder / "together.py").write_text(PROGRAM)
        yield made


def started(cluster: Cluster, *args: str, ranks: dict[int, str] | None = None) -> Ended:
    """Nine tasks on three nodes. `ranks`: what is put before the command of some of them."""
    running = begun(cluster, *args, ranks=ranks or {})
    try:
        return running.wait(WITHIN)
    finally:
        running.end()


def begun(cluster: Cluster, *args: str, ranks: dict[int, str]) -> Running:
    command = shlex.join([sys.executable, str(cluster.folder / "together.py"), "run", *args])
    special = "\n".join(f"{rank}) exec {what} {command};;" for rank, what in ranks.items())
    script = f"case $SLURM_PROCID in\n{special}\nesac\nexec {command}"
    how = ["srun", "-Q", "-N3", "--ntasks-per-node=3", "--kill-on-bad-exit=0"]
    return cluster["ctl"].begin([*how, "sh", "-c", script], cwd="/tmp")


def all_there(cluster: Cluster) -> bool:
    """Whether the agents of n2 and n3 have met those of n1, and the neighbours each other."""
    met = cluster["n1"].sh(f"ss -Htn state established 'sport = :{PORT}'").splitlines()
    near = [cluster[n].sh("ss -Hx state connected").count("@preflight-") for n in ("n2", "n3")]
    return len(met) == 4 and near == [2, 1]


def kill(cluster: Cluster, rank: int) -> None:
    find = f"grep -lz '^SLURM_PROCID={rank}$' /proc/[0-9]*/environ | tr -dc '0-9\n'"
    found, runs = map(int, cluster["n2"].sh(find).split()), cluster["n2"].processes()
    agent = min(pid for pid in found if "together.py" in runs.get(pid, ""))  # then its workers
    cluster["n2"].sh(f"kill -9 {agent}")


def document(done: Ended) -> dict[str, Any]:
    assert done.out.startswith("{"), (done.code, done.out[-2000:], done.err[-2000:])
    found: dict[str, Any] = json.loads(done.out)
    return found


def came(report: dict[str, Any]) -> list[tuple[str, list[int], bool]]:
    """The lines of the host's roll but its own node's: node, ranks, and whether they are lost."""
    said = [o["ok"]["roll"] for o in report["observations"]["rdzv.reach"].values() if "ok" in o]
    (roll,) = [roll for roll in said if roll["hosts"]]
    lines = [(a["node"], a["ranks"], bool(a["lost"])) for a in roll["arrivals"]]
    return sorted(one for one in lines if one[0] != "n1")


def says(report: dict[str, Any]) -> list[str]:
    return [line(f) for f in report["findings"]]


@pytest.mark.torch
def test_all_ranks_work_together_over_one_connection_a_node(cluster: Cluster) -> None:
    done = started(cluster, *TORCH, "-o", "json")
    report = document(done)
    assert (done.code, report["verdict"], report["world"]["met"]) == (0, "ready", 9), says(report)
    assert came(report) == [("n2", [3, 4, 5], False), ("n3", [6, 7, 8], False)]
    seen = {check: list(by_key) for check, by_key in report["observations"].items()}
    assert seen["rdzv.reach"] == ["n1", "n2", "n3"]
    for check in ("env.identity", "rdzv.store", "world.gloo"):
        assert seen[check] == [f"n{1 + rank // 3}/{rank}" for rank in range(9)]
    assert done.out.count('"verdict"') == 1, "of nine tasks one has the report"


OWN_NUMBERS = dict.fromkeys(range(9), "unshare --pid --fork --kill-child --mount-proc")
"""As in a container for each task: all of them are process 1, also of one node."""


def test_ranks_in_containers_of_their_own_are_told_apart(cluster: Cluster) -> None:
    done = started(cluster, *LIGHT, "-o", "json", ranks=OWN_NUMBERS)
    report = document(done)
    assert (done.code, report["verdict"], report["world"]["met"]) == (0, "ready", 9), says(report)
    assert came(report) == [("n2", [3, 4, 5], False), ("n3", [6, 7, 8], False)]
    assert processes(report) == {1}


def test_and_so_are_those_that_go_each_by_itself(cluster: Cluster) -> None:
    few = {r: f"{what} env FROM_RANKS=10" for r, what in OWN_NUMBERS.items()}
    done = started(cluster, *LIGHT, "-o", "json", ranks=few)
    report = document(done)
    assert (done.code, report["verdict"], report["world"]["met"]) == (0, "ready", 9), says(report)
    assert [ranks for _, ranks, _ in came(report)] == [[rank] for rank in range(3, 9)]
    assert processes(report) == {1}


def processes(report: dict[str, Any]) -> set[int]:
    """Their numbers, as the host has them in its roll."""
    rolls = [o["ok"]["roll"] for o in report["observations"]["rdzv.reach"].values() if "ok" in o]
    return {arrival["pid"] for roll in rolls for arrival in roll["arrivals"]}


def test_a_rank_with_settings_of_its_own_is_named(cluster: Cluster) -> None:
    odd = {5: "env TORCH_DISTRIBUTED_DEBUG=DETAIL"}
    done = started(cluster, *LIGHT, "-o", "json", ranks=odd)
    report = document(done)
    (found,) = report["findings"]
    assert (done.code, found["check"], found["code"]) == (3, "agree.env", "setting-differs")
    assert [(s["node"], s["ranks"]) for s in found["subjects"]] == [("n2", [5])]
    assert came(report) == [("n2", [3, 4, 5], False), ("n3", [6, 7, 8], False)]


def test_a_rank_that_wants_another_meeting_goes_there_alone(cluster: Cluster) -> None:
    odd = {5: "env MASTER_PORT=29511"}
    done = started(cluster, *LIGHT, "--arrive", "8s", "-o", "json=/dev/null", ranks=odd)
    assert done.code == 5, done.out
    assert "rank 5" in done.out
    assert "29511" in done.out, "it says itself where it has been"


def test_a_rank_that_never_comes_is_named_alone(cluster: Cluster) -> None:
    done = started(cluster, *LIGHT, "--arrive", "6s", "-o", "json", ranks={7: "true"})
    report = document(done)
    assert came(report) == [("n2", [3, 4, 5], False), ("n3", [6, 8], False)]
    assert named(report) == {"absent": [7]}


@pytest.mark.parametrize(
    ("rank", "roll"),
    [
        (5, [("n2", [3, 4], False), ("n2", [5], True)]),
        (3, [("n2", [3], True), ("n2", [4], False), ("n2", [5], False)]),
    ],
    ids=["one of them", "the one that speaks"],
)
def test_who_is_killed_is_named_alone(
    cluster: Cluster, rank: int, roll: list[tuple[str, list[int], bool]]
) -> None:
    how = (*LIGHT, "--arrive", f"{ARRIVE}s", "-o", "json")
    running = begun(cluster, *how, ranks={7: "true"})
    try:
        until = time.monotonic() + ARRIVE - 3.0
        while not all_there(cluster):
            assert time.monotonic() < until, running.err
            time.sleep(0.2)
        kill(cluster, rank)
        report = document(running.wait(WITHIN))
    finally:
        running.end()
    assert came(report) == [*roll, ("n3", [6, 8], False)]
    assert named(report) == {"absent": [7], "lost": [rank]}


def named(report: dict[str, Any]) -> dict[str, list[int]]:
    """The ranks that each finding of the meeting is about."""
    found = {f["code"]: f["subjects"] for f in report["findings"] if f["check"] == "rdzv.reach"}
    return {code: sorted(r for s in of for r in s["ranks"]) for code, of in found.items()}
