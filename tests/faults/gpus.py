"""The machine of a fault that has GPUs: device files, /proc and /sys of the driver, and the fake
NVML that the job finds by LD_LIBRARY_PATH."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab import nvml

if TYPE_CHECKING:
    from faults.inject import Fault


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
        nodes = f"""
            mount --rbind {folder}/proc/driver /proc/driver
            mount --rbind {folder}/sys/bus /sys/bus
            cp -a {folder}/dev/. /dev; cp -a {folder}/run/. /run
        """
        yield variables, nodes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
