"""A machine with NVIDIA GPUs that aren't there: the fake NVML (fake_nvml.c says what it can do).

The library is found by name, so what asks it runs in a process of its own:

    gpus = settings(8, {"gpu2.error": 15})
    seen = observed("gpu.visible", gpus, root=tree, environ={"CUDA_VISIBLE_DEVICES": "0,1"})
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.library import built

from preflight.registry import answer_type, imported
from preflight.serde import decode

TESTS = Path(__file__).parent.parent
NUMBERS = itertools.count()

# what the process runs: the observation as one JSON line, its marks on stderr as they come
OBSERVE = """
import json, sys
from support.cases import context
from preflight import check, host, model, registry
from preflight import serde as document

name, root, environ, changes = json.loads(sys.argv[1])
machine = host.Host(root, environ)
machine.live = True  # the files of the tree, but the processes and libraries of this machine
marks = lambda name: print(name, file=sys.stderr, flush=True)
made = {k: {n: check.Preloaded(**p) for n, p in v.items()} if k == "preloaded" else v
        for k, v in changes.items()}
try:
    seen = registry.imported(name).observe(machine, context(mark=marks, **made))
    print(json.dumps({"seen": document.encode(seen)}))
except (model.NotApplicable, model.CannotObserve) as error:
    print(json.dumps({"raised": type(error).__name__, "why": str(error)}))
"""


@dataclass(frozen=True)
class Observed:
    """What observe() did in its process: `value`, or what it raised, and the marks it reached."""

    value: Any
    raised: str
    marks: tuple[str, ...]


def folder() -> Path:
    """A folder that holds libnvidia-ml.so.1, built once a test process."""
    return built("fake_nvml.c", "libnvidia-ml.so.1").parent


def settings(count: int, changes: Mapping[str, object] | None = None) -> dict[str, object]:
    """The lines of a scenario: `count` healthy H100s, and what is different."""
    return {"count": count, **(changes or {})}


def environment(scenario: Mapping[str, object], file: Path) -> dict[str, str]:
    """Variables under which a process finds the fake library, playing this scenario."""
    file.write_text("".join(f"{key} = {value}\n" for key, value in scenario.items()))
    return {"LD_LIBRARY_PATH": str(folder()), "FAKE_NVML": str(file)}


def start(
    check_id: str,
    scenario: Mapping[str, object] | None,
    root: Path | str = "/",
    environ: Mapping[str, str] | None = None,
    python_path: Path | str = "",
    **changes: Any,
) -> subprocess.Popen[str]:
    """The observation of a check in a process of its own. Without a scenario there is no NVML;
    `environ` is the job's, `changes` are for its Context."""
    variables = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR")}
    # what is in python_path comes before the installed packages
    paths = [str(python_path), str(TESTS), str(TESTS.parent)]
    variables["PYTHONPATH"] = ":".join(p for p in paths if p)
    if scenario is not None:
        variables |= environment(scenario, folder() / f"{next(NUMBERS)}.gpus")
    asked = json.dumps([check_id, str(root), dict(environ or {}), changes])
    return subprocess.Popen(
        [sys.executable, "-c", OBSERVE, asked],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def observed(
    check_id: str, scenario: Mapping[str, object] | None, timeout: float = 60, **more: Any
) -> Observed:
    """The observation, decoded as the runner would."""
    process = start(check_id, scenario, **more)
    try:
        out, marks = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == 0, marks
    answer = json.loads(out)
    kind = answer_type(imported(check_id))
    value = decode(kind, answer["seen"]) if "seen" in answer else None
    return Observed(value, answer.get("raised", ""), tuple(marks.splitlines()))


def pci_device(
    root: Path,
    bus: str,
    *,
    kind: str = "0x030200",
    vendor: str = "0x10de",
    driver: str = "nvidia",
    minor: int | None = None,
) -> None:
    """A device of /sys/bus/pci; with `minor` NVIDIA's driver shows it to us as /dev/nvidiaN."""
    device = root / "sys/bus/pci/devices" / bus
    device.mkdir(parents=True)
    for name, text in (("class", kind), ("vendor", vendor), ("device", "0x2330")):
        (device / name).write_text(text + "\n")
    if driver:
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    if minor is not None:
        shown = root / "proc/driver/nvidia/gpus" / bus
        shown.mkdir(parents=True)
        (shown / "information").write_text(
            f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 120\nDevice Minor: \t {minor}\n"
        )


def machine(root: Path, gpus: int, version: str = "550.54.15", nodes: bool = True) -> None:
    """The /sys, /proc and /dev of a node with this many GPUs, where the fake library puts its."""
    (root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
    (root / "proc/driver/nvidia/version").write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Mar  5 22:23:56 UTC 2024\n"
    )
    (root / "run/nvidia-persistenced").mkdir(parents=True, exist_ok=True)
    (root / "run/nvidia-persistenced/socket").touch()
    (root / "dev").mkdir(exist_ok=True)
    for number in range(gpus):
        pci_device(root, f"0000:{0x18 + 0x10 * number:02x}:00.0", minor=number)
    for name in (*(str(n) for n in range(gpus)), "ctl", "-uvm") if nodes else ():
        (root / f"dev/nvidia{name}").touch()
