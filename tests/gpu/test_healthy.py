"""A machine with GPUs and nothing wrong: READY without a finding, with facts that are those of the
driver and of torch, and nothing of it is left afterwards."""

from __future__ import annotations

import time

import pytest
from gpu import machine as asking
from gpu.machine import Machine
from gpu.running import CUDA, DEADLINE, Ran

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

QUICK = 8.0
"""Seconds that a quick run takes at most, by contract."""
SETTLED, TOLERANCE = 15.0, 64 << 20
"""Until the driver has given back what programs had, and what it may keep for itself."""
ALWAYS = ("gpu.visible", "gpu.health", "gpu.links", "gpu.compute", "world.nccl")
BETWEEN = ("gpu.p2p", "world.bandwidth")
"""They need two GPUs."""


@pytest.mark.parametrize("level", ["quick", "standard", "deep"])
def test_it_is_ready_without_a_finding(level: str, request: pytest.FixtureRequest) -> None:
    ran: Ran = request.getfixturevalue(level)
    assert ran.code == 0, ran.shown()
    assert not ran.findings(), ran.shown()


@pytest.mark.parametrize("check", ALWAYS)
def test_the_check_passes(check: str, standard: Ran) -> None:
    row = standard.row(check)
    assert row["status"] == "pass", standard.shown(str(row))


@pytest.mark.parametrize("check", BETWEEN)
def test_what_needs_two_gpus_passes_or_says_that_there_is_one(
    check: str, machine: Machine, standard: Ran
) -> None:
    row = standard.row(check)
    if len(machine.gpus) > 1:
        assert row["status"] == "pass", standard.shown(str(row))
    else:
        assert row["status"] == "skip", standard.shown(str(row))
        assert row["reason"], row


def test_it_takes_no_longer_than_it_may(quick: Ran, standard: Ran) -> None:
    assert quick.seconds < QUICK, quick.shown()
    assert standard.seconds < DEADLINE, standard.shown()


def test_what_is_visible_is_what_the_driver_lists(machine: Machine, quick: Ran) -> None:
    (seen,) = quick.seen("gpu.visible").values()
    answer = seen["answer"]
    assert answer["driver"] == machine.driver, answer
    told = [(gpu["name"], gpu["memory"]) for gpu in answer["gpus"]]
    assert told == [(gpu.name, gpu.memory) for gpu in machine.gpus], answer


def test_health_is_told_and_plausible(machine: Machine, quick: Ran) -> None:
    told = quick.row("gpu.health")["measured"]
    assert told["gpus"] == len(machine.gpus), told
    assert told["uncorrectable"] == 0, told
    assert told["hottest"] is None or 5 <= told["hottest"] <= 100, told
    assert all(width in (1, 2, 4, 8, 16, 32) for width in told["pcie_widths"]), told


def test_links_are_told_of_all_pairs(machine: Machine, quick: Ran) -> None:
    told, count = quick.row("gpu.links")["measured"], len(machine.gpus)
    assert told["pairs"] == count * (count - 1) // 2, told
    assert len(told["lanes"]) >= 1, told


def test_every_gpu_computes_at_a_rate_of_a_gpu(machine: Machine, standard: Ran) -> None:
    """Bounds that every GPU keeps and that no CPU and no wrong unit does: TFLOP/s and GB/s."""
    told = standard.row("gpu.compute")["measured"]
    bounds = {
        "fp16_tflops": (3, 20_000),
        "fp32_tflops": (1, 2_000),
        "copy_gbs": (50, 50_000),
        "to_gpu": (0.5, 1_000),
        "from_gpu": (0.5, 1_000),
    }
    for kind, (least, most) in bounds.items():
        # to and from the host there may be several, with their circumstances in the name
        found = [rates for name, rates in told.items() if name.startswith(kind)]
        assert found, (kind, standard.shown(str(told)))
        assert all(len(rates) == len(machine.gpus) for rates in found), (kind, told)
        rates = [rate for own in found for rate in own.values()]
        assert all(least < rate < most for rate in rates), (kind, told)
    assert told["wrong"] == 0, told


def test_two_processes_compute_the_same_bits(standard: Ran, deep: Ran) -> None:
    """Else the comparison of GPUs with each other would be one of processes."""
    digests = [
        {place: (seen["card"]["identity"], seen["digests"]) for place, seen in made.items()}
        for made in (standard.seen("gpu.compute"), deep.seen("gpu.compute"))
    ]
    assert digests[0], standard.shown()
    assert digests[0] == digests[1]


def test_nccl_is_the_one_of_torch_and_its_log_was_read(machine: Machine, standard: Ran) -> None:
    row, version = standard.row("world.nccl"), asking.torch().nccl
    assert f"NCCL {version}" in row["text"], (version, row)
    seen = standard.seen("world.nccl").values()
    assert all(one["heard"] and one["heard"]["log"]["version"] for one in seen), seen
    assert all(one["reduced"] and not any(r.get("wrong") for r in one["reduced"]) for one in seen)


def test_torch_is_the_one_that_is_installed(standard: Ran) -> None:
    assert standard.row("host.software")["measured"]["torch"] == [asking.torch().version]


def test_nothing_of_it_is_left(machine: Machine, standard: Ran) -> None:
    assert not standard.left, standard.left
    assert not standard.litter, standard.litter
    assert not standard.told["left_behind"], standard.shown()
    until = time.monotonic() + SETTLED
    while True:
        now = asking.asked()
        more = [
            after.used - before.used
            for before, after in zip(machine.gpus, now.gpus, strict=True)
            if after.used > before.used + TOLERANCE or set(after.pids) - set(before.pids)
        ]
        if not more or time.monotonic() > until:
            break
        time.sleep(0.5)
    assert not more, f"bytes beyond what was used before: {more}; {now}"
    assert [gpu.settings for gpu in now.gpus] == [gpu.settings for gpu in machine.gpus]


def test_the_parent_has_no_library_of_cuda_in_its_memory(standard: Ran) -> None:
    assert any(name.startswith(CUDA) for name in standard.mapped_by_workers), (
        f"not even the workers have {CUDA}: it was not looked well enough. "
        f"{standard.mapped_by_workers}"
    )
    assert not standard.mapped, standard.mapped


def test_it_takes_the_memory_that_it_says(machine: Machine, standard: Ran) -> None:
    """Checks say 2 GiB at most; CUDA's contexts and libraries come on top."""
    assert len(standard.beyond) == len(machine.gpus)
    assert all(0 < used < 4 << 30 for used in standard.beyond), standard.beyond
