"""Settings as torch, CUDA and NCCL take them on this machine, and as preflight says: where one rank
works nothing fails, where it does not preflight has said so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from gpu import machine as asking
from gpu.machine import script
from gpu.running import Ran, run

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BESIDE = 6
"""Settings that are tried at once."""
WITHIN = 90.0
OF_SETTINGS = ("env.vars", "gpu.visible", "net.interface")
BUSY = "gpu-busy"
"""A finding about the others that are tried meanwhile."""

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
MASK = "CUDA_VISIBLE_DEVICES"
SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"NCCL_NET": "IB"},
    {"NCCL_NET": "socket"},
    {"NCCL_NET": "AWS Libfabric"},
    {"NCCL_NET": "none"},
    {"NCCL_NET": ""},
    {"NCCL_NET_PLUGIN": "none"},
    {"NCCL_NET_PLUGIN": "aws-ofi"},
    {"NCCL_SOCKET_IFNAME": "eth9"},
    {"NCCL_SOCKET_IFNAME": "^lo"},
    {"NCCL_SOCKET_IFNAME": "lo"},
    {"NCCL_IB_HCA": "mlx5_7"},
    {"NCCL_TOPO_FILE": "/nonexistent.xml"},
    {"NCCL_TOPO_FILE": "/etc/hostname"},
    {"NCCL_GRAPH_FILE": "/nonexistent.xml"},
    {"NCCL_GRAPH_FILE": "/etc/hostname"},
    {"NCCL_ALGO": "tree2"},
    {"NCCL_ALGO": "allreduce:ring"},
    {"NCCL_PROTO": "LL256"},
    {"NCCL_BUFFSIZE": "0"},
    {"NCCL_MIN_NCHANNELS": "64", "NCCL_MAX_NCHANNELS": "2"},
    {"NCCL_NTHREADS": "100"},
    {"NCCL_P2P_LEVEL": "foo"},
    {"NCCL_CUMEM_ENABLE": "yes"},
    {"NCCL_CONF_FILE": "/nonexistent"},
    {"NCCL_COMM_BLOCKING": "0"},
    {"NCCL_COMM_BLOCKING": "1"},
    {"NCCL_COMM_BLOCKING": "0", "TORCH_NCCL_USE_COMM_NONBLOCKING": "1"},
    {"NCCL_SOCKET_FAMILY": "AF_INET7"},
    {"NCCL_DEBUG": "verbose"},
    {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    {"CUDA_DEVICE_ORDER": "pci_bus_id"},
    {"CUDA_DEVICE_ORDER": ""},
    {"CUDA_LAUNCH_BLOCKING": "1"},
    {MASK: "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"},
    {MASK: "0,0"},
    {MASK: "99,0"},
    {MASK: " 0"},
    {MASK: ",0"},
    {MASK: "0,"},
    {MASK: "0abc"},
    {MASK: "all"},
    {MASK: "GPU-"},
    {MASK: "GPU-00000000-0000-0000-0000-000000000000"},
    {MASK: "MIG-00000000-0000-0000-0000-000000000000"},
    {ALLOCATOR: "expandable_segments:True"},
    {ALLOCATOR: "expandable_segments:true"},
    {ALLOCATOR: "max_split_size_mb:10"},
    {ALLOCATOR: "max_split_size_mb=128"},
    {ALLOCATOR: "max_split_size_mb:512;expandable_segments:True"},
    {ALLOCATOR: "garbage_collection_threshold:2"},
    {ALLOCATOR: "backend:cudaMallocAsync"},
    {ALLOCATOR: "backend:cudamallocasync"},
    {ALLOCATOR: "roundup_power2_divisions:3"},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "true"},
    {"TORCH_NCCL_BLOCKING_WAIT": "true"},
    {"TORCH_NCCL_BLOCKING_WAIT": "maybe"},
    {"TORCH_NCCL_DUMP_ON_TIMEOUT": "2"},
    {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "10m"},
    {"TORCH_DISTRIBUTED_DEBUG": "foo"},
    {"TORCH_DISTRIBUTED_DEBUG": "detail"},
    {"NVIDIA_VISIBLE_DEVICES": "void"},
    {"OMP_NUM_THREADS": "abc"},
)


def name(of: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in of.items()) or "nothing"


@dataclass(frozen=True)
class Tried:
    """works: one rank got the right sum; said: what it printed last."""

    works: bool
    said: str
    ran: Ran


def tried(settings: Mapping[str, str]) -> Tried:
    ran = run("run", "--level", "quick", "--nproc", "1", env=settings, within=WITHIN)
    done = subprocess.run(
        [sys.executable, script("alone")],
        env={**asking.environment(), **settings},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    return Tried("sum 1.0" in done.stdout, f"{done.stdout}{done.stderr}"[-1500:], ran)


@pytest.fixture(scope="module")
def all_tried() -> Mapping[str, Tried]:
    with ThreadPoolExecutor(BESIDE) as pool:
        return dict(zip(map(name, SETTINGS), pool.map(tried, SETTINGS), strict=True))


@pytest.mark.parametrize("setting", [*map(name, SETTINGS)])
def test_what_works_does_not_fail_and_what_does_not_is_named(
    setting: str, all_tried: Mapping[str, Tried]
) -> None:
    one = all_tried[setting]
    found = [f for f in one.ran.findings("fail", "undecided") if f["code"] != BUSY]
    if one.works:
        assert not found, one.ran.shown(one.said)
    else:
        assert found, one.ran.shown(one.said)
        assert {f["check"] for f in found} <= set(OF_SETTINGS), one.ran.shown(one.said)
        assert one.ran.code == 3, one.ran.shown(one.said)
