"""Faults of the machine: network, limits, storage, CPUs."""

from __future__ import annotations

from faults.gpu_health import SAYS
from faults.inject import Fault
from lab.host import NOBODY, Machine

TRACKED = """
for file in count max; do : > tracked-$file; done
echo {} > tracked-count; echo 262144 > tracked-max
for file in count max; do
    mount --bind tracked-$file /proc/sys/net/netfilter/nf_conntrack_$file
done
"""
"""So many connections in the kernel's table."""

CLOCK = (
    "mkdir -p clocks/clocksource0; cd clocks/clocksource0; echo {} > current_clocksource; "
    "echo '{}' > available_clocksource; cd ../..\n"
    "mount --bind clocks /sys/devices/system/clocksource\n"
)
"""The clock that the kernel reads, and those that it could read."""
EDAC = (
    "for d in /sys/devices/system/*; do mkdir -p system/${{d##*/}}; "
    "mount --bind $d system/${{d##*/}}; done\n"
    "mkdir -p edac/mc/mc0/dimm0; cd edac/mc/mc0; echo {} > ue_count; echo {} > ce_count; "
    "echo CPU_SrcID#0_MC#0_Chan#1_DIMM#0 > dimm0/dimm_label; echo {} > dimm0/dimm_ue_count; "
    "cd ../../..\n"
    "mkdir -p system/edac; mount --bind edac system/edac\n"
    "mount --rbind system /sys/devices/system\n"
)
"""How many errors of the host's memory were not corrected, how many were, and how many of the first
kind one DIMM had."""
LEFT = (
    "mkdir -p x/fused_adam; touch x/fused_adam/build.ninja x/fused_adam/lock; "
    "touch -d '3 hours ago' x/fused_adam/* x/fused_adam\n"
)
"""The folder of an extension that a build has left three hours ago."""
LUSTRE = (
    "mkdir -p scratch; mount -t tmpfs 10.77.9.4@tcp:/scratch scratch\n"
    "mount -t tmpfs debugfs /sys/kernel/debug\n"
    "state() {{ at=/sys/kernel/debug/lustre/osc/scratch-$1-osc-ffff9d6153c91000; mkdir -p $at; "
    "echo current_state: $2 > $at/state; echo state_history: >> $at/state; shift 2; "
    'while [ $# -gt 0 ]; do echo " - [ $(($(date +%s) - $1)), $2 ]" >> $at/state; shift 2; '
    "done; }}\n"
    "state OST0000 FULL 9000 FULL\n"
    "state OST0001 {0} 9000 FULL {1} DISCONN 60 CONNECTING 50 {0}\n"
)
"""A Lustre file system on two servers; the state of the connection to the second one, and how many
seconds ago it was lost."""
SILENT = SAYS.format("nfs: server {} not responding, still trying")

LO_DROPPED = """table inet strict {
chain input {
type filter hook input priority 0
iifname "lo" drop
}
}"""

NETWORK = (
    Fault(
        "lo is down",
        "net.interface",
        "loopback-down",
        "n1 · lo",
        setup="ip link set lo down",
        seconds=9,
    ),
    Fault(
        "a firewall drops what goes over lo",
        "net.interface",
        "loopback-down",
        "n1 · lo",
        says="no connection arrives",
        setup=f"nft -f - <<'END'\n{LO_DROPPED}\nEND\n",
        needs=("nft",),
        seconds=9,
    ),
    Fault(
        "/etc/hosts can be read by root alone",
        "net.name",
        "names-unreadable",
        setup="chmod 600 /etc/hosts\n",
        user=NOBODY,
        env={"MASTER_ADDR": "n1"},
    ),
    Fault(
        "2 ephemeral ports",
        "net.port",
        "ports-few",
        setup="echo 50000 50001 > /proc/sys/net/ipv4/ip_local_port_range",
    ),
    Fault(
        "the connection tracking table has room for four more",
        "net.port",
        "conntrack-full",
        status="warn",
        exit=0,
        says="262140 of 262144 entries",
        setup=TRACKED.format(262140),
    ),
    Fault(
        "the kernel has dropped packets for a full connection tracking table",
        "net.port",
        "conntrack-full",
        status="warn",
        exit=0,
        says="table full, dropping packet",
        setup="printf '%s\\n' \"4,9,$(cut -d. -f1 /proc/uptime)000000,-;"
        'nf_conntrack: nf_conntrack: table full, dropping packet" >> /dev/kmsg\n',
    ),
)

FABRIC = """
mkdir -p tree/infiniband/mlx5_0/ports/1 tree/net
echo 4: ACTIVE > tree/infiniband/mlx5_0/ports/1/state
mkdir net; mount --rbind /sys/class/net net
mount --rbind tree /sys/class; mount --rbind net /sys/class/net
mkdir dev shm; mount -t tmpfs tmpfs dev; mkdir -p dev/upper/infiniband dev/work
mknod -m 666 dev/upper/infiniband/uverbs0 c 1 3
mount --rbind /dev/shm shm
mount -t overlay overlay -o lowerdir=/dev,upperdir=dev/upper,workdir=dev/work /dev
mount --rbind shm /dev/shm
"""
"""An InfiniBand port, as far as /sys/class shows it, and a device that can be opened."""

LIMITS = (
    Fault("64 open files", "host.limits", "nofile-low", wrap=("prlimit", "--nofile=64")),
    Fault(
        "160 open files",
        "host.limits",
        "nofile-low",
        status="warn",
        exit=0,
        wrap=("prlimit", "--nofile=160"),
    ),
    Fault(
        "256 open files, as macOS and old profiles have it",
        "host.limits",
        "nofile-low",
        status="warn",
        exit=0,
        says="256 files (soft limit; the hard limit is 4096)",
        wrap=("prlimit", "--nofile=256:4096"),
    ),
    Fault(
        "the kernel had no room for another neighbour in its ARP table a moment ago",
        "host.limits",
        "arp-table-full",
        status="warn",
        exit=0,
        says="the ARP table was full (2 times",
        setup=2 * SAYS.format("neighbour: arp_cache: neighbor table overflow!"),
    ),
    Fault(
        "a DIMM of the host has had an uncorrectable error",
        "host.limits",
        "memory-ecc-uncorrected",
        status="warn",
        exit=0,
        says="1 error of memory controller mc0 at DIMM CPU_SrcID#0_MC#0_Chan#1_DIMM#0, last ",
        setup=EDAC.format(1, 7, 1)
        + SAYS.format("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
    ),
    Fault(
        "64 KiB of locked memory beside InfiniBand",
        "host.limits",
        "memlock-low",
        setup=FABRIC,
        wrap=("prlimit", "--memlock=65536"),
        user=NOBODY,
    ),
    Fault(
        "64 open files, with torch",
        "host.limits",
        "nofile-low",
        wrap=("prlimit", "--nofile=64"),
        args=("--level", "standard"),
        seconds=30,
    ),
    Fault(
        "ten minutes of CPU time for each process",
        "host.limits",
        "cpu-time-low",
        says="use 10 min of CPU time",
        wrap=("prlimit", "--cpu=600"),
    ),
    Fault(
        "a login node's day of CPU time, which sbatch has carried along",
        "host.limits",
        "cpu-time-low",
        status="warn",
        exit=0,
        wrap=("prlimit", "--cpu=86400"),
    ),
    Fault(
        "files of at most 100 MiB",
        "host.limits",
        "file-size-low",
        status="warn",
        exit=0,
        wrap=("prlimit", "--fsize=104857600"),
    ),
    Fault(
        "20 GiB of address space beside GPUs",
        "host.limits",
        "address-space-low",
        wrap=("prlimit", "--as=21474836480"),
        setup=": > /dev/nvidia0\n",
        args=("--level", "quick", "--only", "host.limits"),
    ),
    Fault(
        "the kernel does not overcommit, and half a GiB is left to be promised",
        "host.limits",
        "memory-low",
        says="vm.overcommit_memory=2",
        setup="echo 2 > mode; mount --bind mode /proc/sys/vm/overcommit_memory\n"
        "sed -e 's/^CommitLimit:.*/CommitLimit: 8000000 kB/' "
        "-e 's/^Committed_AS:.*/Committed_AS: 7500000 kB/' /proc/meminfo > left\n"
        "mount --bind left /proc/meminfo\n",
    ),
    Fault(
        "/dev/shm has no inodes left",
        "host.limits",
        "shm-full",
        setup="mount -t tmpfs -o size=2g,nr_inodes=3,mode=1777 shm /dev/shm\n"
        "touch /dev/shm/a /dev/shm/b\n",
    ),
    Fault("/dev/shm of 1 MiB", "host.limits", "shm-full", machine=Machine(shm="1m")),
    Fault(
        "/dev/shm of 64 MiB, docker's default",
        "host.limits",
        "shm-small",
        status="warn",
        exit=0,
        machine=Machine(shm="64m"),
    ),
    Fault(
        "/dev/shm is full of what ended jobs left",
        "host.limits",
        "shm-full",
        says="2 segments of NCCL",
        machine=Machine(shm="80m"),
        setup="head -c 40m /dev/zero > /dev/shm/nccl-a; head -c 39m /dev/zero > /dev/shm/torch_b",
    ),
    Fault(
        "/dev/shm is read-only",
        "host.limits",
        "shm-unusable",
        says="Read-only",
        setup="mount -o remount,ro /dev/shm",
    ),
    Fault(
        "/dev/shm is not there",
        "host.limits",
        "shm-unusable",
        setup="umount /dev/shm; rmdir /dev/shm",
    ),
    Fault("pids.max of 100", "host.limits", "threads-low", says="pids.max", cgroup=("pids", "100")),
    Fault(
        "pids.max of 8",
        "host.limits",
        "threads-low",
        says="pids.max",
        cgroup=("pids", "8"),
    ),
    Fault(
        "pids.max of 2: no process of preflight can be forked",
        "host.limits",
        "fork-refused",
        says="pids.max is 2",
        cgroup=("pids", "2"),
    ),
    Fault(
        "pids.max of 30, with torch",
        "host.limits",
        "threads-low",
        says="pids.max",
        cgroup=("pids", "30"),
        args=("--level", "standard"),
        seconds=40,
    ),
    Fault(
        "ulimit -u 120", "host.limits", "threads-low", user=NOBODY, wrap=("prlimit", "--nproc=120")
    ),
    Fault(
        "ulimit -u 2",
        "host.limits",
        "fork-refused",
        says="ulimit -u is 2",
        user=NOBODY,
        wrap=("prlimit", "--nproc=2"),
    ),
    Fault(
        "no /proc: nothing can be said of the limits",
        "host.limits",
        "not-observable",
        status="undecided",
        exit=4,
        setup="mount -t tmpfs none /proc",
    ),
    Fault(
        "300 MiB of memory for 4 ranks",
        "host.limits",
        "memory-low",
        says="/sys/fs/cgroup",
        cgroup=("memory", str(300 << 20)),
    ),
    Fault(
        "100 MiB of memory, with torch",
        "host.limits",
        "memory-low",
        says="/sys/fs/cgroup",
        cgroup=("memory", str(100 << 20)),
        args=("--level", "standard"),
        seconds=30,
    ),
)

STORAGE = (
    Fault(
        "a build of an extension was killed and has left its lock",
        "host.storage",
        "build-lock-stale",
        status="warn",
        exit=0,
        says="fused_adam/lock is 3 h old, and nothing has changed beside it for 3 h",
        setup=LEFT,
        env={"TORCH_EXTENSIONS_DIR": "{here}/x"},
    ),
    Fault(
        "TMPDIR does not exist",
        "host.storage",
        "tmpdir-missing",
        status="warn",
        exit=0,
        env={"TMPDIR": "/scratch/48121"},
    ),
    Fault(
        "TMPDIR is read-only",
        "host.storage",
        "unwritable",
        status="warn",
        exit=0,
        says="Read-only",
        env={"TMPDIR": "{here}/t"},
        setup="mkdir t; mount -t tmpfs -o ro t t",
    ),
    Fault(
        "TRITON_CACHE_DIR is read-only",
        "host.storage",
        "cache-unwritable",
        status="warn",
        exit=0,
        says="Read-only",
        env={"TRITON_CACHE_DIR": "{here}/t"},
        setup="mkdir t; mount -t tmpfs -o ro t t",
    ),
    # as in pytorch#91005 and pytorch#123054
    Fault(
        "TMPDIR is mounted noexec",
        *("host.storage", "cache-noexec"),
        status="warn",
        exit=0,
        says="/t is mounted noexec (tmpfs",
        env={"TMPDIR": "{here}/t"},
        setup="mkdir t; mount -t tmpfs -o noexec t t",
    ),
    # as in nf-core/proteinfold#463
    Fault(
        "HOME is read-only, on a machine with GPUs",
        *("host.storage", "home-unwritable"),
        status="warn",
        exit=0,
        says="Read-only",
        env={"HOME": "{here}/t"},
        setup="mkdir t; mount -t tmpfs -o ro t t; : > /dev/nvidia0",
        args=("--only", "host.storage"),
    ),
    # as in foundation-model-stack/fms-hf-tuning#367
    Fault(
        "Triton's cache in HOME was made by another user",
        *("host.storage", "home-unwritable"),
        status="warn",
        exit=0,
        says="/.triton/cache: Permission denied",
        env={"HOME": "{here}/t"},
        setup="mkdir -p t/.triton/cache; chmod 755 t t/.triton t/.triton/cache; : > /dev/nvidia0",
        user=65534,
        args=("--only", "host.storage"),
    ),
    Fault(
        "HOME does not exist",
        "host.storage",
        "home-missing",
        status="warn",
        exit=0,
        env={"HOME": "/home/ada"},
    ),
    Fault(
        "`ulimit -d` of half a GiB",
        "host.limits",
        "data-size-low",
        wrap=("prlimit", "--data=536870912"),
    ),
    Fault(
        "TMPDIR is full",
        "host.storage",
        "full",
        env={"TMPDIR": "{here}/t"},
        setup="mkdir t; mount -t tmpfs -o size=80m t t; head -c 79m /dev/zero > t/core",
    ),
    Fault(
        "TMPDIR is too long for a socket",
        "host.storage",
        "tmpdir-too-long",
        env={"TMPDIR": "{here}/" + "p" * 60},
        setup="mkdir " + "p" * 60,
    ),
    Fault(
        "the checkpoint directory is read-only",
        "host.storage",
        "unwritable",
        says="checkpoint",
        args=("--level", "quick", "--checkpoint-dir", "{here}/ckpt"),
        setup="mkdir ckpt; mount -t tmpfs -o ro ckpt ckpt",
    ),
    Fault(
        "the checkpoint directory is another machine's",
        "host.storage",
        "checkpoint-missing",
        status="warn",
        exit=0,
        args=("--level", "quick", "--checkpoint-dir", "/lustre/project/run7"),
    ),
    Fault(
        "the file system of the checkpoints never answers",
        "host.storage",
        "stalled",
        says="no answer in",
        args=("--level", "quick", "--checkpoint-dir", "{here}/nfs/ckpt"),
        setup="mkdir nfs",
        beside="fuse {here}/nfs",
        seconds=8,
        needs=("/dev/fuse",),
    ),
    Fault(
        "the NFS server of a mount that is not the job's does not respond",
        "host.storage",
        "nfs-not-responding",
        status="warn",
        exit=0,
        says="filer not responding, still trying",
        setup="mkdir nfs\n"
        + SILENT.format("filer")
        + SAYS.format("INFO: task python:4242 blocked for more than 120 seconds."),
        beside="fuse {here}/nfs hang filer:/data",
        seconds=8,
        needs=("/dev/fuse",),
    ),
    Fault(
        "a server of a mounted Lustre is lost",
        "host.storage",
        "lustre-disconnected",
        status="warn",
        exit=0,
        says="scratch-OST0001 (state DISCONN, for 5 min",
        setup=LUSTRE.format("DISCONN", 300),
    ),
    Fault(
        "the working directory was removed",
        "host.storage",
        "workdir-gone",
        wrap=("sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh"),
    ),
    Fault(
        "the working directory was removed, with torch",
        "host.storage",
        "workdir-gone",
        wrap=("sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh"),
        args=("--level", "standard"),
        seconds=15,
    ),
    Fault(
        "the file system of TMPDIR never answers",
        "host.storage",
        "stalled",
        says="no answer in",
        env={"TMPDIR": "{here}/nfs"},
        setup="mkdir nfs",
        beside="fuse {here}/nfs",
        seconds=8,
        needs=("/dev/fuse",),
    ),
    Fault(
        "the file system of HOME never answers",
        "host.storage",
        "stalled",
        says="HOME",
        env={"HOME": "{here}/nfs"},
        setup="mkdir nfs",
        beside="fuse {here}/nfs",
        seconds=12,
        needs=("/dev/fuse",),
    ),
    Fault(
        "the file system of HOME never answers, not root",
        "host.storage",
        "stalled",
        says="HOME",
        env={"HOME": "{here}/nfs"},
        setup="mkdir nfs",
        beside="fuse {here}/nfs",
        user=NOBODY,
        seconds=15,
        needs=("/dev/fuse",),
    ),
    Fault(
        "the daemon behind the checkpoints is dead",
        "host.storage",
        "mount-broken",
        says="not connected",
        args=("--level", "quick", "--checkpoint-dir", "{here}/fs/ckpt"),
        setup="mkdir fs",
        beside="fuse {here}/fs die",
        needs=("/dev/fuse",),
    ),
    Fault(
        "the file:// init file is a leftover",
        "host.storage",
        "init-leftover",
        env={"INIT_METHOD": "file://{here}/init"},
        setup="echo stale > init",
    ),
    Fault(
        "the folder of the file:// init file is not there",
        "host.storage",
        "init-unwritable",
        env={"INIT_METHOD": "file:///shared/48121/init"},
    ),
)

CPUS = (
    Fault(
        "the kernel reads the time from hpet",
        "host.cpu",
        "clock-source-slow",
        status="warn",
        exit=0,
        says="clock source is hpet, also available: acpi_pm",
        setup=CLOCK.format("hpet", "hpet acpi_pm"),
    ),
    Fault(
        "the kernel is stuck on CPU 1 again and again",
        "host.cpu",
        "soft-lockup",
        status="warn",
        exit=0,
        says="CPU 1 for 45.0 s in python, ",
        setup="".join(
            SAYS.format(f"watchdog: BUG: soft lockup - CPU#1 stuck for {n}s! [python:4242]")
            for n in (22, 45)
        ),
    ),
    Fault(
        "all ranks on one CPU",
        "host.cpu",
        "pinned",
        status="warn",
        exit=0,
        wrap=("taskset", "-c", "0"),
    ),
    Fault(
        "a quota of 0.3 CPUs",
        "host.cpu",
        "quota-low",
        status="warn",
        exit=0,
        cgroup=("cpu", "30000"),
        seconds=12,
        nproc=2,
    ),
    Fault(
        "OMP_PROC_BIND=close for 4 ranks",
        "host.cpu",
        "omp-bound",
        status="warn",
        exit=0,
        env={"OMP_PROC_BIND": "close"},
    ),
    Fault(
        "OMP_NUM_THREADS=64 for 4 ranks",
        "host.cpu",
        "omp-many",
        status="warn",
        exit=0,
        env={"OMP_NUM_THREADS": "64"},
    ),
)

FAULTS = (*NETWORK, *LIMITS, *STORAGE, *CPUS)
