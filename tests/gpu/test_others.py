"""GPUs that somebody else has, in part or in whole, and GPUs that are not there."""

from __future__ import annotations

import re
import sys

import pytest
from gpu.machine import Machine, script
from gpu.running import DEADLINE, Ran, run, taken

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

SLOWER = {"gpu-busy", "gpu-slow", "bus-slow", "copy-slow"}
"""What may be warned of where another program computes on a GPU."""
OF_GPUS = ("gpu.", "world.")
MIB = 1 << 20


def everywhere(machine: Machine, *args: str, **more: object) -> Ran:
    return run("run", "--nproc", str(len(machine.gpus)), *args, **more)  # type: ignore[arg-type]


def test_a_gpu_that_is_kept_busy_is_a_warning_that_names_who_does(machine: Machine) -> None:
    # more than contexts that do nothing have, and than the driver may keep for itself
    count = max(5 << 30, machine.gpus[0].memory // 8)
    with taken(0, "take", min(count, machine.gpus[0].memory // 2), "busy") as pid:
        ran = everywhere(machine, "--level", "standard")
    assert ran.code == 0, ran.shown()
    assert ran.seconds < DEADLINE, ran.shown()
    assert not ran.findings("fail", "undecided"), ran.shown()
    assert {f["code"] for f in ran.findings() if f["check"].startswith(OF_GPUS)} <= SLOWER, (
        ran.shown()
    )
    (busy,) = (f for f in ran.findings() if f["code"] == "gpu-busy")
    assert busy["subjects"][0]["name"] == "GPU 0", busy
    # in a container whose driver keeps the programs of others to itself nobody can be named
    assert str(pid) in busy["saw"] or "by no program that can be seen" in busy["saw"], busy
    assert not ran.left, ran.left


def test_a_gpu_whose_memory_is_full_is_no_place_for_a_job(machine: Machine) -> None:
    with taken(0, "leave", 128 * MIB) as pid:
        ran = everywhere(machine, "--level", "quick")
    assert ran.code == 3, ran.shown()
    (full,) = ran.findings("fail")
    assert (full["check"], full["code"]) == ("gpu.health", "gpu-busy"), ran.shown()
    assert str(pid) in full["saw"] or "by no program that can be seen" in full["saw"], full
    assert not ran.told["exclude"], "it is not known to be the node's fault"


@pytest.mark.parametrize("left", [128 * MIB, 600 * MIB], ids=["128 MiB", "600 MiB"])
def test_what_can_not_be_computed_for_want_of_memory_is_undecided(
    left: int, machine: Machine
) -> None:
    with taken(0, "leave", left):
        # without the check that would name who has it
        ran = run("run", "--nproc", "1", "--only", "gpu.compute", "--skip", "gpu.health")
    row = ran.row("gpu.compute")
    assert (ran.code, row["status"]) == (4, "undecided"), ran.shown(str(row))
    said = f"{row['reason']} {row['text']} {ran.out}"
    assert re.search(r"are free|out of memory|ALLOC_FAILED", said), ran.shown(str(row))
    assert not ran.findings("fail"), ran.shown()


def test_a_mask_that_names_no_gpu_of_this_machine(machine: Machine) -> None:
    ran = everywhere(machine, "--level", "standard", env={"CUDA_VISIBLE_DEVICES": "99"})
    assert ran.code == 3, ran.shown()
    codes = [(f["check"], f["code"]) for f in ran.findings("fail")]
    assert codes == [("gpu.visible", "mask-empty")], ran.shown()
    assert not ran.told["exclude"], "the job did that, no node"


def test_a_mask_that_hides_all_is_a_warning(machine: Machine) -> None:
    ran = everywhere(machine, "--level", "standard", env={"CUDA_VISIBLE_DEVICES": ""})
    assert ran.code == 0, ran.shown()
    codes = [(f["check"], f["code"]) for f in ran.findings()]
    assert codes == [("gpu.visible", "mask-empty")], ran.shown()
    assert ran.row("world.nccl")["status"] == "skip", ran.shown()


def test_more_ranks_than_gpus(machine: Machine) -> None:
    ran = run("run", "--level", "standard", "--nproc", str(len(machine.gpus) + 1))
    assert not ran.findings("undecided"), ran.shown()
    codes = [(f["check"], f["code"]) for f in ran.findings("warn", "fail")]
    assert ("gpu.visible", "too-few-gpus") in codes, ran.shown()
    assert [check for check, _ in codes if check.startswith(OF_GPUS)] == ["gpu.visible"], (
        ran.shown()
    )
    assert ran.row("world.nccl")["status"] == "skip", ran.shown()


def test_a_gate_leaves_the_gpu_to_the_command(machine: Machine) -> None:
    command = (sys.executable, script("uses"))
    ran = run("gate", "--level", "quick", "--nproc", "1", then=command)
    assert ran.code == 0, ran.shown()
    assert "sum 8.0" in ran.out, ran.shown()
