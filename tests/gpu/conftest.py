"""The GPUs that the tests marked `gpu` are about. Where there are none these tests fail: who asks
for them wants to know what they say. Nobody gets them unasked (pyproject.toml deselects them)."""

from __future__ import annotations

import pytest
from gpu import machine as asking
from gpu.machine import Machine
from gpu.running import Ran, run


@pytest.fixture(scope="session", autouse=True)
def machine() -> Machine:
    """The machine before anything was done to it."""
    try:
        there = asking.asked()
        asking.torch()  # what reads it for the first time is slow, and no matter of ours
        return there
    except asking.NoGpu as error:
        why = str(error)
    pytest.fail(why, pytrace=False)


@pytest.fixture
def several(machine: Machine) -> int:
    """How many GPUs there are, for tests that one is not enough for."""
    if len(machine.gpus) < 2:
        pytest.skip("needs 2 GPUs: there is 1")
    return len(machine.gpus)


@pytest.fixture(scope="session")
def quick(machine: Machine) -> Ran:
    return run("run", "--level", "quick", "--nproc", str(len(machine.gpus)))


@pytest.fixture(scope="session")
def standard(machine: Machine) -> Ran:
    """The run that most tests look at, with all that its processes did."""
    return run("run", "--level", "standard", "--nproc", str(len(machine.gpus)), watched=True)


@pytest.fixture(scope="session")
def deep(machine: Machine) -> Ran:
    return run("run", "--level", "deep", "--nproc", str(len(machine.gpus)))
