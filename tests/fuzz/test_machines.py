"""Files of /proc, /sys and /etc that hold anything: a check looks, or says why it can't. What it
saw can be written and judged."""

from __future__ import annotations

import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import proc_tree
from support.cases import context
from support.fuzzing import EXAMPLES, look

from preflight.checks import (
    agree_env,
    agree_hardware,
    agree_names,
    agree_software,
    env_identity,
    env_vars,
    gpu_health,
    gpu_links,
    gpu_p2p,
    gpu_visible,
    host_cpu,
    host_limits,
    net_interface,
    net_port,
    net_rdma,
)
from preflight.domains import kernel_log
from preflight.domains.gpu import kfd
from preflight.domains.settings.nccl_conf import conf_lines, nccl_variables
from preflight.domains.system import container, edac, lustre
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable

CHECKS: tuple[Any, ...] = (
    agree_env,
    agree_hardware,
    agree_names,
    agree_software,
    env_identity,
    env_vars,
    gpu_health,
    gpu_links,
    gpu_p2p,
    gpu_visible,
    host_cpu,
    host_limits,
    net_interface,
    net_port,
    net_rdma,
)
ENVIRON = {
    "NCCL_IB_HCA": "mlx5_0",
    "NCCL_IB_GID_INDEX": "3",
    "HOME": "/etc",
    "MASTER_PORT": "29500",
}


@cache
def machine() -> tuple[Path, dict[str, bytes]]:
    root = Path(tempfile.mkdtemp(prefix="preflight-test-machine-"))
    return root, proc_tree.build(root)


@pytest.fixture(scope="module", autouse=True)
def _tree(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("machine")))
        patch.setattr(net_rdma, "BETWEEN", 0.0)
        machine.cache_clear()
        machine()
        yield
        machine.cache_clear()


@given(st.data())
@EXAMPLES
def test_a_machine(data: st.DataObject) -> None:
    root, files = machine()
    changed = data.draw(proc_tree.changes(files))
    with proc_tree.with_changes(root, files, changed):
        host = Host(str(root), ENVIRON)
        for module in CHECKS:
            look(module, host, context(master_port=29500))
        for ask in (
            host.mounts,
            host.limits,
            host.routes,
            lambda: host.mount_of("/home of/x"),
            lambda: host.space("/dev/shm"),
            lambda: list(conf_lines(host)),
            lambda: nccl_variables(host),
            lambda: kfd.nodes(host),
            lambda: kfd.gpus_on_pci(host),
            lambda: (container.kind(host), container.nameless(host)),
            lambda: kernel_log.read_device_errors(host, 5.0, kernel_log.pcie_errors),
            lambda: kernel_log.read_device_errors(
                host, 5.0, kernel_log.mlx5_errors, kernel_log.mlx5_power
            ),
            lambda: kernel_log.silent_nfs_servers(host, 5.0),
            lambda: kernel_log.memory_failures(host, 5.0),
            lambda: kernel_log.soft_lockups(host, 5.0),
            lambda: edac.uncorrected_errors(host),
            lambda: list(lustre.lost_targets(host, ("scratch",), 1.8e9)),
            lambda: list(kernel_log.kernel_log(host, 10.0, time.monotonic() + 5.0)),
        ):
            try:
                ask()
            except (CannotObserve, NotApplicable):
                continue
