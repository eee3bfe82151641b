"""Jobs on several machines with nothing wrong: READY, exit code 0 of every agent, no finding."""

from __future__ import annotations

import json
import time

import pytest
from faults.at_length import HEALTHY_AT_LENGTH, TORCH_AT_LENGTH
from faults.healthy_worlds import LATE, WITH_TORCH, WORLDS, alarms
from faults.world import LIGHT, WorldFault, lacking, run
from lab.host import ENVIRONMENT, Command, Lab, Machine


@pytest.mark.root
@pytest.mark.parametrize(
    "world", [world for world in WORLDS if world.name not in HEALTHY_AT_LENGTH], ids=str
)
def test_ready(world: WorldFault) -> None:
    if why := lacking(world):
        pytest.skip(why)
    assert not alarms(run(world))


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.parametrize(
    "world", [world for world in WITH_TORCH if world.name not in TORCH_AT_LENGTH], ids=str
)
def test_ready_with_torch(world: WorldFault) -> None:
    if why := lacking(world):
        pytest.skip(why)
    assert not alarms(run(world))


def test_what_is_left_to_make_faults_is_in_its_catalogue() -> None:
    assert {world.name for world in WORLDS} >= HEALTHY_AT_LENGTH
    assert {world.name for world in WITH_TORCH} >= TORCH_AT_LENGTH


@pytest.mark.root
@pytest.mark.parametrize("late", [None, 0, 1], ids=["at once", "rank 0 is late", "rank 1 is late"])
def test_an_agent_a_rank(late: int | None) -> None:
    """As mpirun or srun start them: two on each of two machines."""
    if why := lacking(WORLDS[0]):
        pytest.skip(why)
    job = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    commands = {}
    for rank in range(4):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % 2)}
        argv = ["preflight", "run", *LIGHT, "-o", f"json={rank}.json"]
        commands[f"n{rank // 2 + 1}/{rank}"] = Command(argv, {**ENVIRONMENT, **job, **own})
    with Lab(Machine("n1"), Machine("n2")) as lab:
        begun = {key: lab[key[:2]].begin(c.argv, c.env) for key, c in commands.items()}
        if late is not None:
            begun[f"n1/{late}"].stop()
            time.sleep(LATE)
            begun[f"n1/{late}"].cont()
        ended = {key: running.wait(60) for key, running in begun.items()}
        report = json.loads(lab["n1"].sh("cat 0.json"))
    assert {e.code for e in ended.values()} == {0}, "".join(e.err[-1000:] for e in ended.values())
    assert (report["verdict"], report["findings"]) == ("ready", [])
