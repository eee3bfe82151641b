"""nccl_plugins: whether NCCL finds a network plugin, by its name and where the linker looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.gpu.nccl_plugins import no_plugin_because
from preflight.host import Host

SITE = "venv/lib/python3.12/site-packages/nvidia"


@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("", "own/libnccl-net.so"),
        ("", "usr/lib64/libnccl-net.so"),
        ("", "nccl/libnccl-net.so"),
        ("", f"{SITE}/nccl/lib/libnccl-net.so"),
        ("", "conda/lib/libnccl-net.so"),
        ("ofi", "own/libnccl-net-ofi.so"),
        ("libnccl-net-ofi.so", "own/libnccl-net-ofi.so"),
        ("gone,ofi", "own/libnccl-net-ofi.so"),
        ("/own/plugin.so", "own/plugin.so"),
        ("own/plugin.so", ""),
        ("STATIC_PLUGIN", ""),
        ("static", ""),
    ],
)
def test_it_may_be_there(tmp_path: Path, named: str, file: str) -> None:
    assert no_plugin_because(_machine(tmp_path, file), named) == ""


@pytest.mark.parametrize(
    ("named", "file", "why"),
    [
        ("", "", "no libnccl-net.so is found"),
        ("", "own/libnccl-net-ofi.so", "no libnccl-net.so is found"),
        ("", "elsewhere/libnccl-net.so", "no libnccl-net.so is found"),
        ("none", "own/libnccl-net.so", "NCCL_NET_PLUGIN is none"),
        ("None", "own/libnccl-net.so", "NCCL_NET_PLUGIN is none"),
        ("aws-ofi", "own/libnccl-net-ofi.so", "no plugin 'aws-ofi' is found"),
        ("/gone/libnccl-net.so", "", "no plugin '/gone/libnccl-net.so' is found"),
    ],
)
def test_it_is_not_there(tmp_path: Path, named: str, file: str, why: str) -> None:
    assert no_plugin_because(_machine(tmp_path, file), named) == why


def _machine(root: Path, file: str) -> Host:
    """A machine whose NCCL lies in /nccl, found by the linker's cache, and which has that file."""
    (root / "etc").mkdir()
    (root / "etc/ld.so.cache").write_bytes(b"glibc\0/nccl/libnccl.so.2\0")
    (root / SITE / "nccl/lib").mkdir(parents=True)
    if file:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    environ = {"LD_LIBRARY_PATH": "/own", "CONDA_PREFIX": "/conda", "VIRTUAL_ENV": "/venv"}
    return Host(str(root), environ)
