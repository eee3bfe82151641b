"""Machines with nothing wrong: READY, exit code 0, not one finding."""

from __future__ import annotations

import dataclasses

import pytest
from faults import computing, torch_builds
from faults.at_length import QUICK_AT_LENGTH, STANDARD_AT_LENGTH
from faults.healthy import TIMES, VARIANTS
from faults.inject import SABOTAGE, Fault, Outcome, lacking, line, run
from lab.host import ENVIRONMENT, Lab, Machine


def assert_ready(outcome: Outcome) -> None:
    alarms = [line(finding) for finding in outcome.findings]
    assert not alarms
    assert outcome.report.get("verdict") == "ready", outcome.ended.err[-2000:]
    assert outcome.ended.code == 0


@pytest.mark.root
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name not in QUICK_AT_LENGTH], ids=str)
def test_quick(variant: Fault) -> None:
    if why := lacking(variant):
        pytest.skip(why)
    for _ in range(TIMES):
        assert_ready(run(variant))


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.parametrize(
    "variant",
    [
        v
        for v in VARIANTS
        if v.args == ("--level", "quick") and v.name not in STANDARD_AT_LENGTH | QUICK_AT_LENGTH
    ],
    ids=str,
)
def test_standard(variant: Fault) -> None:
    if why := lacking(variant):
        pytest.skip(why)
    assert_ready(run(dataclasses.replace(variant, args=("--level", "standard"))))


def test_what_is_left_to_make_faults_is_in_its_catalogue() -> None:
    assert {variant.name for variant in VARIANTS} >= STANDARD_AT_LENGTH | QUICK_AT_LENGTH


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.parametrize(
    "variant",
    [*torch_builds.HEALTHY, *(v for v in computing.HEALTHY if v.name not in computing.AT_LENGTH)],
    ids=str,
)
def test_gpus_that_compute_and_copy(variant: Fault) -> None:
    if why := lacking(variant):
        pytest.skip(why)
    assert_ready(run(variant))


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.parametrize(
    "setup",
    [
        pytest.param("sed -i s/10.77.0.1/127.0.1.1/ /etc/hosts", id="own name is 127.0.1.1"),
        pytest.param(
            f"mkdir lib; sed s/21/5/ {SABOTAGE}/slow_torch.py >lib/sitecustomize.py",
            id="import torch takes 5 s",
            marks=pytest.mark.at_length,
        ),
    ],
)
def test_once_a_rank_under_torchrun(setup: str) -> None:
    """The agents of all ranks meet through torchrun's own store, which a worker asks that has
    imported torch: until then its port is no stranger's."""
    if why := lacking(VARIANTS[0]):
        pytest.skip(why)
    torchrun = ["torchrun", "--nproc-per-node", "2", "--no-python", "preflight", "run", "-q"]
    with Lab(Machine(setup=setup)) as lab:
        env = {**ENVIRONMENT, "PYTHONPATH": f"{lab['n1'].scratch}/lib"}
        quick = lab["n1"].run([*torchrun, "--level", "quick"], env=env, timeout=60)
        whole = lab["n1"].run(torchrun, env=env, timeout=90)
    assert quick.code == 0, quick.out + quick.err[-2000:]
    assert whole.code == 0, whole.out + whole.err[-2000:]
    assert " READY" in whole.out
    assert "2/2 ranks" in whole.out
    assert "NOT READY" not in whole.out
