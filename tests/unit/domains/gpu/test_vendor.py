"""vendor: whose GPUs are here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lab import amd as lab
from lab import nvml
from lab.amd import MI210, MI300X
from support.cases import context

from preflight.checks import gpu_visible
from preflight.domains.gpu import vendor
from preflight.host import Host
from preflight.model import NotApplicable


def test_whose_gpus_are_here(tmp_path: Path) -> None:
    """The display of a machine is nobody's accelerator, and NVIDIA's GPUs come first."""
    for name, board in (("amd", MI300X), ("desktop", lab.DESKTOP), ("both", MI210)):
        lab.machine(tmp_path / name, board)
    nvml.machine(tmp_path / "both", gpus=1)
    (tmp_path / "empty").mkdir()
    found = {n: vendor.detect(Host(str(tmp_path / n))).NAME for n in ("amd", "desktop", "both")}
    assert found == {"amd": "AMD", "desktop": "NVIDIA", "both": "NVIDIA"}
    assert vendor.detect(Host(str(tmp_path / "empty"))).NAME == vendor.NVIDIA
    with pytest.raises(NotApplicable):
        gpu_visible.observe(Host(str(tmp_path / "desktop")), context())


def test_no_module_of_amd_is_imported_without_such_gpus(tmp_path: Path) -> None:
    """What a quick run imports on a machine with GPUs of NVIDIA, or with none."""
    nvml.machine(tmp_path / "nvidia", gpus=1)
    (tmp_path / "empty").mkdir()
    script = (
        "import sys; from preflight.host import Host; from preflight.domains.gpu import vendor;"
        "from preflight.checks import gpu_health, gpu_links, gpu_visible, host_software;"
        "assert [vendor.detect(Host(root)).NAME for root in sys.argv[1:]] == ['NVIDIA'] * 2;"
        "names = ['kfd', 'amdsmi', 'xgmi'];"
        "print([n for n in names if f'preflight.domains.gpu.{n}' in sys.modules])"
    )
    roots = [str(tmp_path / "nvidia"), str(tmp_path / "empty")]
    done = subprocess.run(
        [sys.executable, "-c", script, *roots], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
