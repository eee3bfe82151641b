"""host.limits: small limits are named, generous ones are silent."""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import host_limits
from preflight.checks.host_limits import FullTable
from preflight.domains.kernel_log import MemoryFailure
from preflight.domains.system.edac import UncorrectedErrors
from preflight.host import Host
from preflight.humanize import GIB, MIB
from preflight.model import NO_PROCESS, Blame, CannotObserve, Cause, Missing, Status

conforms(host_limits)

FINE = host_limits.ProcessLimits(
    memlock=-1,
    files=1 << 20,
    shm_size=64 * GIB,
    shm_free=63 * GIB,
    shm_problem="",
    shm_leftovers=0,
    threads_left=None,
    threads_limit="",
    memory_left=200 * GIB,
    memory_limit="MemAvailable",
    rdma=("mlx5_0",),
)


TWO_NODES = topology(4, size=8)
MANY = topology(8, size=1024)
# what a container sees of its host's fabric without being given any of it
WITHOUT_RDMA = {"verbs": False, "fabric": ("mlx5_0:1",), "gpus": True, "inside": "kubernetes"}


DIMM = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"
UE = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)"


def but(**changes: object) -> host_limits.ProcessLimits:
    return dataclasses.replace(FINE, **changes)


CASES = (
    Case("generous", FINE),
    Case("64 KiB of memlock matter to nobody without RDMA", but(memlock=65536, rdma=())),
    Case("memlock with RDMA", but(memlock=8 * MIB), "memlock-low", Status.FAIL, subject="n1"),
    Case(
        "TCP buffers that were meant as kilobytes",
        but(buffers={"net.ipv4.tcp_rmem": 2304, "net.ipv4.tcp_wmem": 4 * MIB}),
        "tcp-buffers-low",
        Status.WARN,
        topology=TWO_NODES,
        subject="n1",
    ),
    Case("which one node does not need", but(buffers={"net.ipv4.tcp_rmem": 2304})),
    Case(
        "TCP buffers of the kernel",
        but(buffers={"net.ipv4.tcp_rmem": 6 * MIB, "net.ipv4.tcp_wmem": 4 * MIB}),
        topology=TWO_NODES,
    ),
    Case(
        "an ARP table that was full",
        but(full=(FullTable("ipv4", 12, 180.0, 1024),)),
        "arp-table-full",
        Status.WARN,
        subject="n1",
    ),
    Case(
        "a table of IPv6 that was full, seen from a container",
        but(full=(FullTable("ipv6", 1, 3599.0),)),
        "arp-table-full",
        Status.WARN,
    ),
    Case(
        "a DIMM with an uncorrectable error",
        but(memory_errors=(UncorrectedErrors("mc0", 1, {DIMM: 1}),)),
        "memory-ecc-uncorrected",
        Status.WARN,
        subject="n1",
    ),
    Case(
        "uncorrectable errors of which it is not known where",
        but(memory_errors=(UncorrectedErrors("mc1", 3),)),
        "memory-ecc-uncorrected",
        Status.WARN,
        subject="n1",
    ),
    Case("counters that are at 0", but(memory_errors=(UncorrectedErrors("mc0", 0),))),
    Case(
        "a process that was killed for its memory, while the counters are at 0",
        but(memory_log=(MemoryFailure("", "Memory failure: 0x5f: Sending SIGBUS", 60.0),)),
    ),
    Case("an ARP table that was full hours ago", but(full=(FullTable("ipv4", 9, 3601.0, 1024),))),
    Case("CAP_IPC_LOCK makes memlock void", but(memlock=65536, memlock_binds=False)),
    Case(
        "docker's 64 KiB matter to nobody who may not open the host's RDMA devices",
        but(memlock=65536, verbs=False, inside="container"),
    ),
    Case(
        "RDMA that the container was not given",
        but(**WITHOUT_RDMA),
        "rdma-not-exposed",
        Status.WARN,
        topology=TWO_NODES,
        subject="n1",
    ),
    Case(
        "RDMA whose device files this user may not open",
        but(**{**WITHOUT_RDMA, "inside": "", "closed": True}),
        "rdma-permission-denied",
        Status.WARN,
        topology=TWO_NODES,
        subject="n1",
    ),
    Case(
        "RDMA that another node's ranks use",
        {"n1": but(**WITHOUT_RDMA), "n2": but(fabric=("mlx5_0:1",), gpus=True)},
        "rdma-not-exposed",
        Status.FAIL,
        topology=TWO_NODES,
        subject="n1",
    ),
    Case(
        "RDMA that another node's ranks use, and this user may not open here",
        {
            "n1": but(**{**WITHOUT_RDMA, "inside": "", "closed": True}),
            "n2": but(fabric=("mlx5_0:1",), gpus=True),
        },
        "rdma-permission-denied",
        Status.FAIL,
        topology=TWO_NODES,
        subject="n1",
    ),
    Case("nor does it mind their mode", but(**{**WITHOUT_RDMA, "closed": True})),
    Case("one node needs no fabric", but(**WITHOUT_RDMA)),
    Case("nor do CPUs", but(**{**WITHOUT_RDMA, "gpus": False}), topology=TWO_NODES),
    Case(
        "a cloud's Ethernet card that could do RDMA",
        but(**{**WITHOUT_RDMA, "fabric": ()}),
        topology=TWO_NODES,
    ),
    Case(
        "RDMA that it was given",
        but(**{**WITHOUT_RDMA, "verbs": True}),
        topology=TWO_NODES,
    ),
    Case(
        "the runtime's default beside RDMA devices that were given",
        but(memlock=65536, inside="container"),
        "memlock-container",
        Status.FAIL,
    ),
    Case("memlock floor", but(memlock=GIB, rdma=()), "memlock-low", expect={"memlock_gib": 2}),
    Case("no /dev/shm", but(shm_size=None, shm_free=None), "shm-unusable", Status.FAIL),
    Case("unwritable", but(shm_problem="/dev/shm: Read-only"), "shm-unusable", Status.FAIL),
    Case("full", but(shm_free=20 * MIB, shm_leftovers=7), "shm-full", Status.FAIL),
    Case(
        "docker's 64 MiB for four ranks",
        but(shm_size=64 * MIB, shm_free=64 * MIB),
        "shm-small",
        Status.WARN,
    ),
    Case("shm floor", but(), "shm-small", Status.FAIL, expect={"shm_gib": 128}),
    Case("1024 files do for four ranks", but(files=1024)),
    Case("150 files", but(files=150), "nofile-low", Status.WARN),
    Case("256 files for 4 ranks", but(files=256), "nofile-low", Status.WARN),
    Case("1024 files for 4 ranks", but(files=1024)),
    Case("1024 files for 1024 ranks", but(files=1024), "nofile-low", Status.FAIL, topology=MANY),
    Case("4096 files for 1024 ranks", but(files=4096), "nofile-low", Status.WARN, topology=MANY),
    Case(
        "8 threads of 8 sockets for each connection of NCCL",  # NVIDIA/nccl#550
        but(files=1024, gpus=True, rdma=(), sockets=64),
        "nofile-low",
        Status.WARN,
        topology=topology(8, size=16),
    ),
    Case(
        "of no matter with RDMA",
        but(files=1024, gpus=True, sockets=64),
        topology=topology(8, size=16),
    ),
    Case(
        "nor on one machine",
        but(files=1024, gpus=True, rdma=(), sockets=64),
        topology=topology(8, size=8),
    ),
    Case("1024 files for 32 ranks", but(files=1024), topology=topology(8, size=32)),
    Case(
        "1024 files for 32 ranks in one communicator more",  # goodfire-ai/spd#957
        but(files=1024, files_hard=1 << 20, groups=(32,)),
        "nofile-low",
        Status.WARN,
        topology=topology(8, size=32),
    ),
    Case(
        "1024 files do for small groups",
        but(files=1024, groups=(2, 4)),
        topology=topology(8, size=32),
    ),
    Case("64 files", but(files=64), "nofile-low", Status.FAIL),
    Case("files floor", but(files=1024), "nofile-low", Status.FAIL, expect={"nofile": 65536}),
    Case("pids", but(threads_left=100, threads_limit="pids.max"), "threads-low", Status.FAIL),
    Case("memory", but(memory_left=GIB), "memory-low", Status.FAIL),
    Case(
        "no process",
        Missing(Cause.CANNOT_OBSERVE, f"{NO_PROCESS}: pids.max is 3, and 3 are there"),
        "fork-refused",
        Status.FAIL,
    ),
    Case("no /proc", Missing(Cause.CANNOT_OBSERVE, "/proc/self/limits: No such file")),
    Case("ten minutes of CPU time", but(cpu_seconds=600), "cpu-time-low", Status.FAIL),
    Case("a day of CPU time", but(cpu_seconds=86400), "cpu-time-low", Status.WARN),
    Case("a month of CPU time", but(cpu_seconds=30 * 86400)),
    Case("20 GiB of addresses do without CUDA", but(addresses=20 * GIB)),
    Case(
        "20 GiB of addresses beside GPUs",
        but(addresses=20 * GIB, gpus=True),
        "address-space-low",
        Status.FAIL,
    ),
    Case(
        "what a queue gives each job as h_vmem, beside GPUs",
        but(addresses=512 * GIB, gpus=True),
        "address-space-low",
        Status.WARN,
    ),
    Case("2 GiB of addresses", but(addresses=2 * GIB), "address-space-low", Status.WARN),
    Case("half a GiB of addresses", but(addresses=GIB // 2), "address-space-low", Status.FAIL),
    Case("4 GiB of data", but(data=4 * GIB)),
    Case("2 GiB of data", but(data=2 * GIB), "data-size-low", Status.WARN),
    Case("half a GiB of data", but(data=GIB // 2), "data-size-low", Status.FAIL),
    Case("2 GiB of data beside GPUs", but(data=2 * GIB, gpus=True), "data-size-low", Status.WARN),
    Case("16 GiB of data beside GPUs", but(data=16 * GIB, gpus=True)),
    Case("files of 100 MiB", but(file_bytes=100 * MIB), "file-size-low", Status.WARN),
    Case("files of 1 MiB", but(file_bytes=MIB), "file-size-low", Status.FAIL),
    Case("files of 1 TiB", but(file_bytes=1024 * GIB)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(host_limits, case)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"shm_problem": "/dev/shm: Permission denied"}, "shm-unusable"),
        ({**WITHOUT_RDMA, "inside": ""}, "rdma-not-exposed"),
    ],
)
def test_what_a_container_was_started_with_is_not_its_nodes_fault(
    changes: dict[str, object], code: str
) -> None:
    for inside, blame in (("", Blame.NODE), ("container", Blame.JOB), ("kubernetes", Blame.JOB)):
        saw = but(**changes | {"inside": inside})
        (finding,) = judged(host_limits, Case("", saw, topology=TWO_NODES))
        assert (finding.code, finding.blame) == (code, blame)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"shm_problem": "/dev/shm: No space left on device"}, "shm-full"),
        ({"shm_problem": "/dev/shm: Disk quota exceeded"}, "shm-full"),
        ({"shm_free": MIB}, "shm-full"),
        ({"threads_left": 100, "threads_limit": "pids.max"}, "threads-low"),
        ({"memory_left": GIB}, "memory-low"),
    ],
)
def test_what_jobs_use_up_drains_no_node(changes: dict[str, object], code: str) -> None:
    (finding,) = judged(host_limits, Case("", but(**changes)))
    assert (finding.code, finding.status, finding.blame) == (code, Status.FAIL, Blame.JOB)


def test_whose_locked_memory_it_is() -> None:
    for inside, blame in (("", Blame.NODE), ("container", Blame.JOB)):
        saw = but(memlock=65536, inside=inside)
        (finding,) = judged(host_limits, Case("", saw))
        assert finding.blame is blame


def test_observe_reads_this_machine() -> None:
    seen = host_limits.observe(Host(), context())
    assert seen.shm_size is None or seen.shm_size > 0
    assert seen.memory_left
    round_trips(seen)


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              600                  unlimited            seconds
Max file size             104857600            104857600            bytes
Max data size             4294967296           unlimited            bytes
Max address space         21474836480          unlimited            bytes
Max processes             unlimited            unlimited            processes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
"""


def test_observe_takes_the_least_of_all_cgroups(tmp_path: Path) -> None:
    proc = tmp_path / "proc/self"
    proc.mkdir(parents=True)
    (proc / "limits").write_text(LIMITS)
    (proc / "cgroup").write_text("0::/slice/job\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4194304 kB\n")
    for folder, limit in (("slice", "1073741824"), ("slice/job", "max")):
        group = tmp_path / "sys/fs/cgroup" / folder
        group.mkdir(parents=True, exist_ok=True)
        (group / "memory.max").write_text(limit + "\n")
        (group / "memory.current").write_text("536870912\n")
        (group / "memory.stat").write_text("anon 1\ninactive_file 268435456\n")
        (group / "pids.max").write_text("300\n" if folder == "slice" else "max\n")
        (group / "pids.current").write_text("250\n")
    (tmp_path / "dev/shm").mkdir(parents=True)
    (tmp_path / "dev/shm.statvfs").write_text("67108864 60000000 1000 1000")
    (tmp_path / "dev/shm/nccl-a1b2c3").touch()

    seen = host_limits.observe(Host(str(tmp_path)), context())

    assert seen.memlock == 8 * MIB
    assert seen.memory_left == 1073741824 - 536870912 + 268435456
    assert seen.memory_limit == "/sys/fs/cgroup/slice/memory.max"
    assert (seen.threads_left, seen.threads_limit) == (50, "/sys/fs/cgroup/slice/pids.max")
    assert seen.shm_leftovers == 1
    assert (seen.cpu_seconds, seen.file_bytes, seen.addresses) == (600, 100 * MIB, 20 * GIB)
    assert seen.data == 4 * GIB
    round_trips(seen)


def test_what_may_be_committed_where_the_kernel_does_not_overcommit(tmp_path: Path) -> None:
    proc = tmp_path / "proc/self"
    proc.mkdir(parents=True)
    (proc / "limits").write_text(LIMITS)
    (tmp_path / "proc/meminfo").write_text(
        "MemAvailable: 99000000 kB\nCommitLimit: 8000000 kB\nCommitted_AS: 7000000 kB\n"
    )
    vm = tmp_path / "proc/sys/vm"
    vm.mkdir(parents=True)
    left = {}
    for mode in ("0", "1", "2"):
        (vm / "overcommit_memory").write_text(f"{mode}\n")
        left[mode] = host_limits.observe(Host(str(tmp_path)), context()).memory_left
    assert left == {"0": 99000000 << 10, "1": 99000000 << 10, "2": 1000000 << 10}


@pytest.mark.parametrize(
    ("capabilities", "users", "binds"),
    [
        ("000001ffffffffff", "0 0 4294967295", False),
        ("00000000a80425fb", "0 0 4294967295", True),  # a container's root
        ("000001ffffffffff", "0 1000 1", True),  # root of a user namespace only
    ],
)
def test_the_capability_to_lock_memory(
    tmp_path: Path, capabilities: str, users: str, binds: bool
) -> None:
    proc = tmp_path / "proc/self"
    proc.mkdir(parents=True)
    (proc / "limits").write_text(LIMITS)
    (proc / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    (proc / "uid_map").write_text(f"         {users}\n")
    assert host_limits.observe(Host(str(tmp_path)), context()).memlock_binds is binds


def infiniband(root: Path, layer: str = "InfiniBand", state: str = "4: ACTIVE") -> Host:
    """A container's view of a node that has one RDMA port."""
    port = root / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (port / "link_layer").write_text(f"{layer}\n")
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "limits").write_text(LIMITS)
    (root / "dev").mkdir()
    (root / "dev/nvidia0").touch()
    return Host(str(root), {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})


def test_observe_the_fabric_of_the_host(tmp_path: Path) -> None:
    host = infiniband(tmp_path)
    seen = host_limits.observe(host, context())
    assert (seen.rdma, seen.fabric) == (("mlx5_0",), ("mlx5_0:1",))
    assert (seen.verbs, seen.gpus, seen.inside) == (False, True, "kubernetes")
    round_trips(seen)
    (tmp_path / "dev/infiniband").mkdir()
    (tmp_path / "dev/infiniband/rdma_cm").touch()
    assert not host_limits.observe(host, context()).verbs
    (tmp_path / "dev/infiniband/uverbs0").touch()
    assert host_limits.observe(host, context()).verbs


@pytest.mark.parametrize(
    ("layer", "state", "fabric"),
    [
        ("Unspecified", "4: ACTIVE", ("mlx5_0:1",)),  # EFA
        ("Ethernet", "4: ACTIVE", ()),
        ("InfiniBand", "1: DOWN", ()),
    ],
)
def test_a_fabric_is_active_and_no_ethernet(
    tmp_path: Path, layer: str, state: str, fabric: tuple[str, ...]
) -> None:
    assert host_limits.observe(infiniband(tmp_path, layer, state), context()).fabric == fabric


@pytest.mark.root
@pytest.mark.parametrize("refusal", ["the folder alone", "a device that its group refuses"])
def test_a_device_that_can_not_be_opened_is_none(tmp_path: Path, refusal: str) -> None:
    """A bound /dev/infiniband shows the file; opening it is what counts: here a number that no
    driver has."""
    host = infiniband(tmp_path)
    (tmp_path / "dev/infiniband").mkdir()
    if refusal != "the folder alone":
        os.mknod(tmp_path / "dev/infiniband/uverbs0", 0o666 | stat.S_IFCHR, os.makedev(231, 192))
    assert not host_limits.observe(host, context()).verbs


def test_cannot_tell_without_proc(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        host_limits.observe(Host(str(tmp_path)), context())


@pytest.mark.parametrize(
    ("threads", "each", "sockets"),
    [("8", "8", 64), ("", "4", 4), ("16", "16", 64), ("99", "2", 32), ("x", "-1", 1)],
)
def test_the_sockets_of_nccl(threads: str, each: str, sockets: int, tmp_path: Path) -> None:
    given = {"NCCL_SOCKET_NTHREADS": threads, "NCCL_NSOCKS_PERTHREAD": each}
    assert host_limits._sockets(Host(str(tmp_path), given)) == sockets


def test_observe_the_communicators_that_accelerate_tells_of(tmp_path: Path) -> None:
    environ = {
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "1",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "32",
        "PARALLELISM_CONFIG_TP_SIZE": "x",
        "PARALLELISM_CONFIG_CP_SIZE": "99999999999999",
        "MEGATRON_LM_TP_DEGREE": "8",
    }
    assert host_limits._groups(Host(str(tmp_path), environ)) == (32, 8)


def test_a_full_neighbour_table_is_the_node_s_fault() -> None:
    tables = (FullTable("ipv4", 12, 180.0, 32768), FullTable("ipv6", 1, 60.0))
    (finding,) = judged(host_limits, Case("", but(full=tables)))
    assert finding.blame is Blame.NODE
    assert finding.saw == (
        "the ARP table was full (12 times, last 3 min ago, gc_thresh3 is 32768) · "
        "the neighbour table of IPv6 was full (60.0 s ago)"
    )
    advice = host_limits.FINDINGS[finding.code].filled(finding.fields)
    assert advice.now == (
        "sysctl -w net.ipv4.neigh.default.gc_thresh3=131072 "
        "net.ipv4.neigh.default.gc_thresh2=65536 net.ipv4.neigh.default.gc_thresh1=32768   as root"
    )


def test_full_neighbour_tables_are_read_from_the_kernel_s_log(tmp_path: Path) -> None:
    for folder in ("dev", "proc/sys/net/ipv4/neigh/default"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/sys/net/ipv4/neigh/default/gc_thresh3").write_text("1024\n")
    (tmp_path / "proc/uptime").write_text("9000.00 1\n")
    host = Host(str(tmp_path))
    assert host_limits._full_tables(host, context()) == ()
    lines = (
        "6,1,1000000,-;neighbour: arp_cache: neighbor table overflow!",
        "6,2,8000000000,-;neighbour: arp_cache: neighbor table overflow!",
        "6,3,8900000000,-;neighbour: ndisc_cache: neighbor table overflow!",
        "4,4,8500000000,-;ipv4: Neighbour table overflow.",
        "14,5,8990000000,-;neighbour: arp_cache: neighbor table overflow!",  # a program's words
        "4,6,8990000000,-;nf_conntrack: nf_conntrack: table full, dropping packet",
        "6,7,8990000000,-;x: symbol table overflow",
    )
    (tmp_path / "dev/kmsg").write_text("".join(f"{line}\n" for line in lines))
    found = host_limits._full_tables(host, context())
    assert found == (FullTable("ipv4", 3, 500.0, 1024), FullTable("ipv6", 1, 100.0))
    round_trips(but(full=found))


def test_the_dimm_and_the_kernel_s_words_are_named() -> None:
    errors = (UncorrectedErrors("mc0", 3, {DIMM: 2}), UncorrectedErrors("mc1", 1))
    killed = (
        "Memory failure: 0x5f7a3c: Sending SIGBUS to python:42 due to hardware memory corruption"
    )
    log = (MemoryFailure("mc0", UE, 7200.0), MemoryFailure("", killed, 60.0))
    (finding,) = judged(host_limits, Case("", but(memory_errors=errors, memory_log=log)))
    assert finding.blame is Blame.NODE
    assert finding.saw == (
        f"3 errors of memory controller mc0 at DIMM {DIMM} (2), last 2 h ago, "
        "1 error of memory controller mc1"
    )
    assert finding.evidence == (
        f"in the kernel's log 2 h ago: {UE}",
        f"in the kernel's log 60.0 s ago: {killed}",
    )


def test_the_log_is_read_only_where_an_error_was_counted(tmp_path: Path) -> None:
    for name, text in (
        ("proc/self/limits", LIMITS),
        ("proc/uptime", "9000.00 1\n"),
        ("dev/kmsg", f"0,1,8000000000,-;{UE}\n"),
        ("sys/devices/system/edac/mc/mc0/ue_count", "0\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = Host(str(tmp_path), {})
    seen = host_limits.observe(host, context())
    assert (seen.memory_errors, seen.memory_log) == ((), ())
    (tmp_path / "sys/devices/system/edac/mc/mc0/ue_count").write_text("1\n")
    seen = host_limits.observe(host, context())
    assert seen.memory_errors == (UncorrectedErrors("mc0", 1),)
    assert seen.memory_log == (MemoryFailure("mc0", UE, 1000.0),)
    round_trips(seen)
