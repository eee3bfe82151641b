"""The machine of a fault that has GPUs: device files, /proc and /sys of the driver, the fake NVML
that the job finds by LD_LIBRARY_PATH, and the torch.cuda over the CPU that its Python loads."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab import nvml

if TYPE_CHECKING:
    from faults.inject import Fault

STAND_IN = Path(__file__).parent / "stand_in"


@contextmanager
def driver(fault: Fault) -> Iterator[tuple[dict[str, str], str]]:
    """Variables for the job, and setup for the machine."""
    if not fault.gpus and fault.scenario is None:
        yield {}, ""
        return
    folder = Path(tempfile.mkdtemp(prefix="preflight-gpus-"))
    try:
        nvml.machine(folder, fault.gpus)
        (folder / "sys/bus").mkdir(parents=True, exist_ok=True)
        variables = {}
        if fault.scenario is not None:
            scenario = nvml.settings(fault.gpus, fault.scenario)
            variables = nvml.environment(scenario, folder / "scenario")
        if fault.cuda is not None:
            variables["PYTHONPATH"] = str(STAND_IN)
            variables["FAKE_CUDA"] = json.dumps({"count": fault.gpus, **fault.cuda})
        nodes = f"""
            mount --rbind {folder}/proc/driver /proc/driver
            mount --rbind {folder}/sys/bus /sys/bus
            cp -a {folder}/dev/. /dev; cp -a {folder}/run/. /run
        """
        yield variables, nodes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
