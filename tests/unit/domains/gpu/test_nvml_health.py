"""nvml_health: whose program is on a GPU. What NVML tells is in the tests of gpu.health."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from preflight.domains.gpu.nvml_health import ancestors, cgroup_job, classify_programs
from preflight.domains.gpu.vitals import GpuProcess
from preflight.host import Host


def process(root: Path, pid: int | str, name: str, cgroup: str = "") -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(name + "\n")
    (folder / "cgroup").write_text(cgroup + "\n")


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_17/step_0", "job_17"),
        ("0::/kubepods/burstable/pod" + "0123abcd-" * 4, "0123abcd-" * 4),
        ("0::/docker/" + "0f" * 32, "0f" * 32),
        ("0::/user.slice", ""),
    ],
)
def test_the_job_of_a_control_group(cgroup: str, job: str, tmp_path: Path) -> None:
    process(tmp_path, "self", "python", cgroup)
    assert cgroup_job(Host(str(tmp_path)), "self") == job


def test_programs_of_others(tmp_path: Path) -> None:
    process(tmp_path, 10, "python", "0::/job_17/step_0")
    process(tmp_path, 11, "nvidia-cuda-mps", "0::/")
    process(tmp_path, 12, "stranger", "0::/job_18/step_0")
    programs = [SimpleNamespace(pid=pid, usedGpuMemory=5) for pid in (10, 11, 12, 13, 14)]
    found = classify_programs(programs, Host(str(tmp_path)), "job_17", frozenset({14}))
    uid = os.stat(tmp_path).st_uid
    others = (GpuProcess(12, "stranger", uid, 5), GpuProcess(13, memory=5))
    assert found == {"processes": others, "ours": 3, "mps": True}


def test_ancestors() -> None:
    assert {os.getpid(), os.getppid()} - {1} <= ancestors(Host())
