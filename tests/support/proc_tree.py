"""A machine made of files, any of which may be damaged: as gVisor, lxcfs or a copy may be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from support.hcas import gpus, hca
from support.hostile import damaged

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             95000                95000                processes
Max open files            1024                 1048576              files
Max locked memory         8388608              8388608              bytes
"""
STATUS = """\
Name:\tpython
Uid:\t1000\t1000\t1000\t1000
CapEff:\t0000000000000000
Seccomp:\t2
Cpus_allowed_list:\t0-3,64-127
Mems_allowed_list:\t0-1
voluntary_ctxt_switches:\t12
"""
MEMINFO = "MemTotal:       263000000 kB\nMemFree:  1000 kB\nMemAvailable:   200000000 kB\n"
MOUNTS = """\
24 30 0:22 / /proc rw,nosuid - proc proc rw
30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 30 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k
32 30 0:26 / /home\\040of rw - nfs4 server:/home rw,hard
"""
ROUTE = """\
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0100000A 0003 0 0 100 00000000 0 0 0
eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""
ZERO, ONE = "0" * 32, "fe80" + "0" * 27 + "1"
ROUTE6 = f"{ZERO} 00 {ZERO} 00 {ONE} 00000400 00000001 00000000 00000003     eth0\n"
TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
"""
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1
   1: 0700000A:9C40 0800000A:733C 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1
"""
LUSTRE = "sys/kernel/debug/lustre/osc/scratch-OST0003-osc-ffff9d6153c91000"
CONF = "# of the cluster\nNCCL_SOCKET_IFNAME=eth0\nNCCL_IB_HCA==mlx5_0\nNCCL_DEBUG = INFO\n"
KMSG = (
    "6,100,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"
    " SUBSYSTEM=pci\n"
    "4,101,6000000,-;pcieport 0000:00:01.0: AER: Corrected error received: 0000:1b:00.0\n"
    "0,101,6500000,-;EDAC MC0: 1 UE on mc#0csrow#0channel#0 (csrow:0 channel:0)\n"
    "3,101,6600000,-;mlx5_core 0000:18:00.0 eth0: TX timeout detected\n"
    "0,101,6700000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [python:4242]\n"
    "3,102,7000000,-;mlx5_core 0000:81:00.0: print_health_info:1 Fatal error 1 detected\n"
)
FILES: Mapping[str, str] = {
    "proc/self/limits": LIMITS,
    "proc/self/status": STATUS,
    "proc/self/cgroup": "12:memory:/job\n0::/job/step\n",
    "proc/self/mountinfo": MOUNTS,
    "proc/self/uid_map": "         0          0 4294967295\n",
    "proc/self/maps": "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libnccl.so.2\n",
    "proc/meminfo": MEMINFO,
    "proc/uptime": "1000.50 2000.10\n",
    "proc/loadavg": "3.25 2.00 1.00 4/900 1234\n",
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse\n",
    "proc/cmdline": "quiet iommu=pt\n",
    "proc/thread-self/schedstat": "100 200 3\n",
    "proc/net/route": ROUTE,
    "proc/net/ipv6_route": ROUTE6,
    "proc/net/fib_trie": TRIE,
    "proc/net/if_inet6": f"{ONE} 02 40 20 80     eth0\n",
    "proc/net/tcp": TCP,
    "proc/net/tcp6": TCP.replace("00000000:733C", f"{ZERO}:733C"),
    "proc/sys/kernel/osrelease": "5.15.0-1053-generic\n",
    "proc/sys/kernel/hostname": "n1\n",
    "proc/sys/kernel/random/boot_id": "8e4c2a7e-0000-4000-8000-000000000000\n",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "proc/sys/net/ipv4/ip_local_reserved_ports": "29500,30000-30010\n",
    "proc/sys/net/ipv4/tcp_mtu_probing": "0\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05\n",
    "proc/driver/nvidia/params": "ModifyDeviceFiles: 1\n",
    "sys/class/net/lo/flags": "0x9\n",
    "sys/class/net/lo/ifindex": "1\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "sys/class/net/lo/mtu": "65536\n",
    "sys/class/net/eth0/flags": "0x1003\n",
    "sys/class/net/eth0/ifindex": "2\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/eth0/mtu": "1500\n",
    "sys/class/net/eth0/speed": "100000\n",
    "sys/devices/system/cpu/online": "0-63\n",
    "sys/devices/system/cpu/present": "0-127\n",
    "sys/devices/system/node/node0/cpulist": "0-31\n",
    "sys/devices/system/node/node1/cpulist": "32-63\n",
    f"{LUSTRE}/state": "current_state: DISCONN\nstate_history:\n - [ 1799999000, DISCONN ]\n",
    f"{LUSTRE}/ost_server_uuid": "scratch-OST0003_UUID\tDISCONN\n",
    "sys/devices/system/edac/mc/mc0/ue_count": "1\n",
    "sys/devices/system/edac/mc/mc0/mc_name": "F19h_M10h\n",
    "sys/devices/system/edac/mc/mc0/rank0/dimm_ue_count": "1\n",
    "sys/devices/system/edac/mc/mc0/rank0/dimm_label": "mc#0csrow#0channel#0\n",
    "sys/fs/cgroup/job/step/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/job/step/memory.max": "1073741824\n",
    "sys/fs/cgroup/job/step/memory.current": "1000000\n",
    "sys/fs/cgroup/job/step/memory.stat": "anon 5\ninactive_file 7\n",
    "sys/fs/cgroup/job/step/pids.max": "max\n",
    "sys/fs/cgroup/job/pids.max": "4096\n",
    "sys/fs/cgroup/job/pids.current": "12\n",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 256\nlocation_id 768\ndomain 0\n",
    "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "4711\n",
    "etc/nccl.conf": CONF,
    "etc/hosts": "127.0.0.1 localhost\n10.0.0.7 n1.example n1\n",
    "etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
    "dev/kmsg": KMSG,
    "dev/shm.statvfs": "67108864 67108864 1000 1000\n",
    "tmp.statvfs": "67108864 67108864 1000 1000\n",
}


def build(root: Path) -> dict[str, bytes]:
    """The machine; path -> content of each of its files."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    hca(root)
    gpus(root, 2)
    found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(found)}


@contextmanager
def with_changes(
    root: Path, files: Mapping[str, bytes], changes: Mapping[str, bytes | None]
) -> Iterator[None]:
    """The same with other contents of some files: None is one that is not there, and in its place a
    folder."""
    try:
        for name, content in changes.items():
            (root / name).unlink()
            if content is None:
                (root / name).mkdir()
            else:
                (root / name).write_bytes(content)
        yield
    finally:
        for name in changes:
            path = root / name
            if path.is_dir():
                shutil.rmtree(path)
            path.write_bytes(files[name])


NUMBERS = (
    "-1",
    "0x",
    "",
    "9" * 30,
    "1" * 5000,
    "٣",
    "nan",
    "1e9",
    "max",
    "0-",
    "5-3",
    "0-99999999999",
)


@st.composite
def contents(draw: st.DrawFn, content: bytes) -> bytes | None:
    """What may stand there in its place."""
    words = content.split()
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(st.none() | st.binary(max_size=40))
    if kind < 3 and words:
        word = draw(st.sampled_from(words))
        return content.replace(
            word, draw(st.sampled_from(NUMBERS)).encode(), draw(st.integers(1, 3))
        )
    return draw(damaged(content))


@st.composite
def changes(draw: st.DrawFn, files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Other contents of one to four files."""
    names = draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=4, unique=True))
    return {name: draw(contents(files[name])) for name in names}
