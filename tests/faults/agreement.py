"""What has to be the same on all machines and is not: settings, software, hardware, clocks. And two
faults at once, of which each has to be named.

On three machines two outvote the third; on two nobody can tell which one differs, and both have
to be named.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from faults.torchruns import torchrun
from faults.world import PORT, WorldFault, machines
from lab import nvml
from lab.faults import (
    Break,
    close_other_ports,
    drop_port,
    mtu,
    name_is,
    name_unknown,
    own_name_is,
    reset_port,
    resolver,
)
from lab.host import Machine

from preflight.checks.rdzv_reach import NOBODYS_NAME

WILDCARD = [f"{name}.corp.example=10.99.9.9" for name in ("n1", "n3", NOBODYS_NAME)]
SEARCHES = Break("a search domain", "echo search corp.example >> /etc/resolv.conf")

PRIVATE = "192.168.0.0/16"
SOFTWARE = ("--only", "env.identity,agree.software,host.software,rdzv.reach")

NVML_FOLDER, NVML_FILE = "/run/nvml", "/run/gpus"
NVML = {"LD_LIBRARY_PATH": NVML_FOLDER, "FAKE_NVML": NVML_FILE}


def but_the_third(**changes: object) -> tuple[Machine, ...]:
    """Three machines, of which the last is different."""
    return (*machines(2), Machine("n3", **changes))  # type: ignore[arg-type]


def gpus(count: int, *lines: str) -> str:
    """Setup: device files of GPUs, and the fake NVML for who finds it; `lines` of its scenario."""
    source = Path(nvml.__file__).with_name("fake_nvml.c")
    said = " ".join(f"'{line}'" for line in lines)
    return f"""
        for number in $(seq 0 {count - 1}) ctl; do : > /dev/nvidia$number; done
        mkdir {NVML_FOLDER}; printf '%s\n' 'count = {count}' {said} > {NVML_FILE}
        gcc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o {NVML_FOLDER}/libnvidia-ml.so.1 {source}
    """


def torch_says(old: str, new: str) -> Break:
    """Another torch, as its own version.py has it."""
    found = find_spec("torch")
    version = Path(found.origin).with_name("version.py") if found and found.origin else Path("/")
    return Break(
        f"torch is {new}",
        f"sed 's/{old}/{new}/' {version} > version.py; mount --bind version.py {version}",
        f"umount {version}",
    )


def nccl_conf(line: str) -> Break:
    return Break(f"nccl.conf: {line}", f"echo '{line}' > /etc/nccl.conf", "rm /etc/nccl.conf")


# what a file of another machine's venv would be: not to be compiled where all share one
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
OTHER_PYTHON = Break(
    "another Python",
    'mkdir other; echo \'import sys; sys.version = "3.9.2 (" + sys.version.partition("(")[2]\''
    " > other/sitecustomize.py",
)

GPU_FILE = ": > /dev/nvidia0\n"
FILES = ("--only", "env.identity,rdzv.reach,host.limits")
HEALTH = ("--only", "env.identity,rdzv.reach,gpu.visible,gpu.health,agree.*")


CHANNEL = "mkdir -p /dev/nvidia-caps-imex-channels; : > /dev/nvidia-caps-imex-channels/channel0\n"


def tray(clique: int, cluster: str = "rack-7", channel: str = CHANNEL) -> str:
    """Setup: four GPUs of GB200 in an NVLink domain, with an IMEX channel."""
    return channel + gpus(
        4,
        "name = NVIDIA GB200",
        "fabric_state = 3",
        f"fabric_cluster = {cluster}",
        f"fabric_clique = {clique}",
    )


SETTINGS = (
    WorldFault(
        "one node has another NCCL_ALGO",
        *("agree.env", "setting-differs", "n3 · NCCL_ALGO"),
        status="warn",
        env={"NCCL_ALGO": "Ring"},
        on={"n3": {"NCCL_ALGO": "Tree"}},
        says="'Tree'",
        exit=0,
    ),
    WorldFault(
        "one of three nodes with GPUs has NCCL_PROTO",
        *("agree.env", "setting-differs", "n2 · NCCL_PROTO"),
        machines=machines(3, setup=gpus(1)),
        env=NVML,
        on={"n2": {"NCCL_PROTO": "Simple"}},
        needs=("gcc",),
    ),
    WorldFault(
        "an nccl.conf is left on one of three nodes with GPUs",
        *("agree.env", "conf-leftover", "n2 · NCCL_P2P_DISABLE"),
        machines=machines(3, setup=gpus(1)),
        env=NVML,
        breaks={"n2": [nccl_conf("NCCL_P2P_DISABLE=1")]},
        needs=("gcc",),
    ),
    WorldFault(
        "one node has TORCH_DISTRIBUTED_DEBUG",
        *("agree.env", "setting-differs", "n2 · TORCH_DISTRIBUTED_DEBUG"),
        on={"n2": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
        also=("env.vars debug-detail",),
    ),
    WorldFault(
        "of two nodes one has TORCH_DISTRIBUTED_DEBUG",
        *("agree.env", "setting-differs", "n1 · TORCH_DISTRIBUTED_DEBUG"),
        subjects=("n2 · TORCH_DISTRIBUTED_DEBUG",),
        machines=machines(2),
        on={"n2": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
        also=("env.vars debug-detail",),
        confidence="possible",
    ),
    WorldFault(
        "one node has another OMP_NUM_THREADS",
        *("agree.env", "setting-uneven", "n3 · OMP_NUM_THREADS"),
        status="warn",
        env={"OMP_NUM_THREADS": "1"},
        on={"n3": {"OMP_NUM_THREADS": "2"}},
        exit=0,
    ),
    WorldFault(
        "one node is sent to an interface that it does not have",
        *("net.interface", "ifname-unmatched", "n3*"),
        machines=but_the_third(
            setup="ip link set eth0 down; ip link set eth0 name ens3; "
            "ip link set ens3 up; ip route add default via 10.77.255.254"
        ),
        env={"GLOO_SOCKET_IFNAME": "eth0"},
    ),
    WorldFault(
        "one node counts another node more",
        *("rdzv.reach", "size-differs", "n3"),
        nodes={"n3": 4},
    ),
    WorldFault(
        "one node has another WORLD_SIZE",
        *("env.identity", "world-differs", "n3 · rank 2"),
        env={"WORLD_SIZE": "3"},
        on={"n3": {"WORLD_SIZE": "4"}},
    ),
    WorldFault(
        "one node has another MASTER_PORT",
        *("env.identity", "world-differs", "n3 · rank 2"),
        on={"n3": {"MASTER_PORT": "29600"}},
        arrive=6,
    ),
    WorldFault(
        "one node has the second one as MASTER_ADDR",
        *("env.identity", "master-differs", "n3 · rank 2"),
        on={"n3": {"MASTER_ADDR": "n2"}},
        arrive=6,
    ),
)

MACHINES = (
    WorldFault(
        "one node has another release of torch",
        *("agree.software", "torch-differs", "n3 · torch"),
        breaks={"n3": [torch_says("2[.]1[0-9][.]", "2.7.")]},
        on={"n3": NO_BYTECODE},
        args=SOFTWARE,
    ),
    WorldFault(
        "of two nodes one has another Python",
        *("agree.software", "python-differs", "n1 · Python"),
        subjects=("n2 · Python",),
        status="warn",
        machines=machines(2),
        breaks={"n2": [OTHER_PYTHON]},
        on={"n2": {"PYTHONPATH": "other"}},
        args=SOFTWARE,
        confidence="possible",
        exit=0,
    ),
    WorldFault(
        "one node has a GPU less",
        *("agree.hardware", "gpus-differ", "n3"),
        status="warn",
        machines=(*machines(2, setup=gpus(2)), Machine("n3", setup=gpus(1))),
        env=NVML,
        needs=("gcc",),
        exit=0,
    ),
    WorldFault(
        "1024 open files for 32 ranks that FSDP joins once more",
        *("host.limits", "nofile-low", "n3"),
        status="warn",
        confidence="likely",
        says="soft limit; the hard limit is 8192",
        machines=machines(4, setup=GPU_FILE, limits={"nofile": "1024:8192"}),
        nproc=8,
        env={"PARALLELISM_CONFIG_DP_SHARD_SIZE": "32", "PARALLELISM_CONFIG_TP_SIZE": "1"},
        args=FILES,
        exit=0,
    ),
    WorldFault(
        "CUDA_VISIBLE_DEVICES is empty on one node",
        *("gpu.visible", "mask-empty", "n2"),
        machines=machines(3, setup=gpus(2)),
        env=NVML,
        on={"n2": {"CUDA_VISIBLE_DEVICES": ""}},
        nproc=2,
        args=HEALTH,
        needs=("gcc",),
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "the GPUs of one of three nodes have other VBIOS",
        *("gpu.health", "vbios-differs", "n3"),
        status="warn",
        machines=(
            *machines(2, setup=gpus(2, "vbios = 96.00.A5.00.01")),
            Machine("n3", setup=gpus(2, "vbios = 96.00.74.00.1A")),
        ),
        env=NVML,
        args=HEALTH,
        needs=("gcc",),
        exit=0,
    ),
    WorldFault(
        "one GPU of one of three nodes has other VBIOS, as after a repair",
        *("gpu.health", "vbios-differs", "n2 · GPU 1"),
        status="warn",
        machines=(
            Machine("n1", setup=gpus(2, "vbios = 96.00.A5.00.01")),
            Machine("n2", setup=gpus(2, "vbios = 96.00.A5.00.01", "gpu1.vbios = 96.00.74.00.1A")),
            Machine("n3", setup=gpus(2, "vbios = 96.00.A5.00.01")),
        ),
        env=NVML,
        args=HEALTH,
        needs=("gcc",),
        exit=0,
    ),
    WorldFault(
        "one tray of GB200 is in another clique than the others of its rack",
        *("gpu.health", "nvlink-domain-differs", "n3"),
        status="warn",
        machines=(*machines(2, setup=tray(1)), Machine("n3", setup=tray(2))),
        env=NVML,
        args=HEALTH,
        needs=("gcc",),
        exit=0,
    ),
    WorldFault(
        "one of two trays of a rack has no IMEX channel",
        *("gpu.health", "imex-channel-missing", "n2"),
        machines=(Machine("n1", setup=tray(1)), Machine("n2", setup=tray(1, channel=""))),
        env=NVML,
        args=HEALTH,
        needs=("gcc",),
    ),
    WorldFault(
        "one of two nodes has no NVLink",
        *("gpu.links", "nvlink-down", "n2 · GPU 0"),
        status="warn",
        machines=(Machine("n1", setup=gpus(4)), Machine("n2", setup=gpus(4, "links = 0"))),
        env=NVML,
        args=("--only", "env.identity,rdzv.reach,gpu.visible,gpu.links"),
        needs=("gcc",),
        exit=0,
    ),
    WorldFault(
        "of two trays of one rack each is in a clique of its own",
        *("gpu.health", "nvlink-domain-differs", "n1"),
        status="warn",
        subjects=("n2",),
        confidence="possible",
        machines=(Machine("n1", setup=tray(1)), Machine("n2", setup=tray(2))),
        env=NVML,
        args=HEALTH,
        needs=("gcc",),
        exit=0,
    ),
    WorldFault(
        "one node has another precision than accelerate launch gave the others",
        *("agree.env", "setting-differs", "n2 · ACCELERATE_MIXED_PRECISION"),
        status="warn",
        on={name: {"ACCELERATE_MIXED_PRECISION": "bf16"} for name in ("n1", "n3")},
        exit=0,
    ),
    WorldFault(
        "FSDP of an earlier launch is left over on one node",
        *("agree.env", "setting-differs", "n3 · ACCELERATE_USE_FSDP"),
        status="warn",
        on={"n3": {"ACCELERATE_USE_FSDP": "true"}},
        exit=0,
    ),
    WorldFault(
        "each node has chosen a port of its own",
        *("env.identity", "world-differs", "n2 · rank 1"),
        subjects=("n3 · rank 2",),
        on={f"n{n}": {"MASTER_PORT": p} for n, p in ((1, "29511"), (2, "30417"), (3, "31288"))},
        arrive=6,
    ),
    WorldFault(
        "one node's interface has another MTU",
        *("agree.hardware", "mtu-differs", "n3 · eth0"),
        status="warn",
        breaks={"n3": [mtu(1400)]},
        exit=0,
    ),
    WorldFault(
        "one node speaks IPv6 alone, and the first one both",
        *("agree.hardware", "address-families-differ", "n3"),
        machines=(
            Machine("n1"),
            Machine("n2", versions=(4,)),
            Machine("n3", versions=(6,)),
            Machine("n4", versions=(4,)),
        ),
        named=(4, 6),
    ),
    WorldFault(
        "one node has little shared memory",
        *("host.limits", "shm-small", "n2"),
        status="warn",
        machines=(Machine("n1"), Machine("n2", shm="64m"), Machine("n3")),
        exit=0,
    ),
    WorldFault(
        "one node locks little memory",
        *("host.limits", "memlock-low", "n3"),
        machines=but_the_third(limits={"memlock": "65536"}),
        flags={f"n{n}": ("--expect", "memlock_gib=0.001") for n in (1, 2, 3)},
    ),
    WorldFault(
        "one node may open few files",
        *("host.limits", "nofile-low", "n2"),
        machines=(Machine("n1"), Machine("n2", limits={"nofile": "100"}), Machine("n3")),
    ),
    WorldFault(
        "one node's TCP buffers were meant as kilobytes",
        *("host.limits", "tcp-buffers-low", "n2"),
        status="warn",
        exit=0,
        breaks={"n2": [Break("buffers", "sysctl -qw net.ipv4.tcp_rmem='2304 2304 2304'")]},
    ),
    WorldFault(
        "one node's clock is 90 s ahead",
        *("agree.clock", "clock-skew-large", "n3"),
        status="warn",
        exit=0,
        machines=but_the_third(clock=90),
    ),
    WorldFault(
        "the clock of the first node is 12 s behind, and torchrun meets by c10d",
        *("agree.clock", "clock-skew-large", "n1"),
        nproc=0,
        env=torchrun(3),
        machines=(Machine("n1", clock=-12), *machines(3)[1:]),
    ),
    WorldFault(
        "one node's clock is 3 s ahead",
        *("agree.clock", "clock-skew", "n2"),
        status="warn",
        machines=(Machine("n1"), Machine("n2", clock=3), Machine("n3")),
        exit=0,
    ),
    WorldFault(
        "the clocks of two nodes are 30 s apart",
        *("agree.clock", "clock-skew-large", "n1"),
        subjects=("n2",),
        status="warn",
        exit=0,
        machines=(Machine("n1"), Machine("n2", clock=30)),
        confidence="possible",
    ),
)

PAIRS = (
    WorldFault(
        "two at once: a clock and a firewall",
        *("agree.clock", "clock-skew-large", "n2"),
        second=("net.mesh", "inbound-closed", "n3"),
        nproc=0,
        env=torchrun(4),
        machines=(Machine("n1"), Machine("n2", clock=90), Machine("n3"), Machine("n4")),
        breaks={"n3": [close_other_ports(PORT)]},
    ),
    WorldFault(
        "two at once: a setting and an own name",
        *("agree.env", "setting-differs", "n1 · TORCH_DISTRIBUTED_DEBUG"),
        second=("net.name", "hostname-loopback", "n3"),
        subnet=PRIVATE,
        on={"n1": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
        breaks={"n3": [own_name_is()]},
        also=("env.vars debug-detail",),
    ),
    WorldFault(
        "two at once: a name that leads elsewhere and a firewall at MASTER_PORT",
        *("rdzv.reach", "address-elsewhere", "n2"),
        second=("rdzv.reach", "dropped-here", "n3"),
        breaks={"n2": [name_is("n1", "10.77.0.99")], "n1": [drop_port(PORT, "10.77.0.3")]},
        machines=machines(4),
        arrive=6,
    ),
    WorldFault(
        "few files on one node, and another one is absent",
        *("rdzv.reach", "absent", "rank 2"),
        status="missing",
        machines=(Machine("n1"), Machine("n2", limits={"nofile": "100"}), Machine("n3")),
        absent=("n3",),
        also=("host.limits nofile-low",),
    ),
    WorldFault(
        "two at once: an MTU and a clock",
        *("agree.hardware", "mtu-differs", "n3 · eth0"),
        second=("agree.clock", "clock-skew", "n2"),
        status="warn",
        machines=(Machine("n1"), Machine("n2", clock=-3), Machine("n3")),
        breaks={"n3": [mtu(1400)]},
        exit=0,
    ),
    WorldFault(
        "two at once: a firewall that resets MASTER_PORT and a setting",
        *("rdzv.reach", "refused-here", "n3"),
        second=("agree.env", "setting-differs", "n2 · TORCH_DISTRIBUTED_DEBUG"),
        breaks={"n1": [reset_port(PORT, "10.77.0.3")]},
        machines=machines(4),
        on={"n2": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
        also=("env.vars debug-detail",),
        arrive=6,
    ),
    WorldFault(
        "all names below a search domain of n3 lead to another machine",
        *("rdzv.reach", "address-elsewhere", "n3"),
        says="by the search domain corp.example of /etc/resolv.conf",
        breaks={"n3": [name_unknown("n1"), resolver("0", *WILDCARD), SEARCHES]},
        innocent=("n1", "n2"),
        arrive=6,
    ),
    WorldFault(
        "all names below a search domain of n2 lead to another machine, and rank 0 is not there",
        *("rdzv.reach", "search-domain", "n2"),
        says="n1.corp.example is 10.99.9.9, as any name below corp.example",
        machines=machines(2),
        absent=("n1",),
        breaks={"n2": [name_unknown("n1"), resolver("0", *WILDCARD), SEARCHES]},
        arrive=4.5,
    ),
    WorldFault(
        "two at once: another MASTER_PORT and a silent name server",
        *("env.identity", "world-differs", "n2 · rank 1"),
        second=("net.name", "resolver-silent", "n3"),
        on={"n2": {"MASTER_PORT": "29600"}},
        breaks={"n3": [name_unknown("n1"), resolver("silent")]},
        arrive=6,
    ),
)

TWO_GPUS = "for n in 0 1; do : > /dev/nvidia$n; done\n" + (
    "mount --bind /dev/null /dev/nvidia0; mount --bind /dev/zero /dev/nvidia1\n"
)
"""Files of two GPUs that may be opened, as far as their numbers go."""


def listed(*models: str) -> str:
    """Setup: what the driver says of these two GPUs in /proc."""
    files = ""
    for number, (model, minor) in enumerate(zip(models, (3, 5), strict=True), 1):
        folder = f"/proc/driver/nvidia/gpus/0000:{number}8:00.0"
        uuid = f"GPU-{number}d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
        told = f"Model: {model}\\nGPU UUID: {uuid}\\nDevice Minor: {minor}\\n"
        files += f"mkdir -p {folder}; printf '{told}' > {folder}/information\n"
    return f"{TWO_GPUS}mount -t tmpfs none /proc/driver\n{files}"


TWO_H100 = listed("NVIDIA H100", "NVIDIA H100")
OF_TASK = "$(set -- %s; shift $SLURM_LOCALID; echo $1)"
"""A mask for each task."""

OF_SRUN = """
node=$8 p=$1; shift 8
export SLURM_JOB_ID=7 SLURM_NNODES=2 SLURM_NTASKS=4 SLURM_NODEID=$node SLURM_JOB_NODELIST='n[1-2]'
export SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE='2(x2)'
export SLURM_STEP_NODELIST='n[1-2]' SLURM_TASKS_PER_NODE='2(x2)'
task() {
    export SLURM_LOCALID=$1 SLURM_PROCID=$(($node * 2 + $1)); shift
    CUDA_VISIBLE_DEVICES=%s exec $p run "$@"
}
(task 1 "$@") & other=$!
(task 0 "$@"); code=$?
wait $other; exit $code
"""
"""Two tasks of srun on each of two nodes, with this mask, in place of one agent a node."""


BY_OTHERS = """
node=$8 p=$1; shift 8
task() {
    n=$1; shift
    %s
    exec $p run "$@"
}
(task 1 "$@") & other=$!
(task 0 "$@"); code=$?
wait $other; exit $code
"""
"""Two tasks, n, on each of two nodes, with what another launcher sets."""

OF_PALS = (
    "export PALS_RANKID=$(($node * 2 + $n)) PALS_NODEID=$node PALS_LOCAL_RANKID=$n"
    " PALS_LOCAL_SIZE=2 PALS_APID=1 PMI_LOCAL_RANK=$n PMI_LOCAL_SIZE=2 PMI_SIZE=4"
    " PMI_RANK=$(($node * 2 + $n)) CUDA_VISIBLE_DEVICES=%s"
)
# srun --het-group=0 … & srun --het-group=1 …: each step counts its own tasks
OF_TWO_STEPS = (
    "export SLURM_HET_SIZE=2 SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1"
    " SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 SLURM_PROCID=$n SLURM_LOCALID=$n"
    " SLURM_STEP_NODELIST=n$(($node + 1)) LOCAL_RANK=$n WORLD_SIZE=4 RANK=%s"
)
OF_SKYPILOT = """
node=$8 p=$1; shift 8
export SKYPILOT_NODE_IPS='n1
n2' SKYPILOT_NODE_RANK=$node SKYPILOT_NUM_NODES=2 SKYPILOT_NUM_GPUS_PER_NODE=2
unset MASTER_ADDR MASTER_PORT
exec $p run "$@"
"""


UNNUMBERED = (
    "export PMI_LOCAL_SIZE=2 WORLD_SIZE=4 RANK=$(($node + 2 * $n)) LOCAL_WORLD_SIZE=2"
    " CUDA_VISIBLE_DEVICES=%s"
)


def by(setting: str) -> tuple[str, ...]:
    return ("sh", "-c", BY_OTHERS % setting, "sh")


def tasks(mask: str) -> tuple[str, ...]:
    return ("sh", "-c", OF_SRUN % mask, "sh")


BY_SRUN = (
    # as in submitit#1704: the mask of the shell that calls srun
    WorldFault(
        "tasks of srun that all have the first GPU's mask",
        *("agree.env", "gpu-shared", "n1 · rank 0"),
        subjects=("n1 · rank 1", "n2 · rank 2", "n2 · rank 3"),
        says="CUDA_VISIBLE_DEVICES is '0' for 2 tasks",
        machines=machines(2, setup=TWO_GPUS),
        wrap=tasks("0"),
    ),
    # a wrapper that gives task 0 the GPU that it found idle, by its UUID
    WorldFault(
        "a task has GPU 1 by its UUID, another one by its number",
        *("agree.env", "gpu-shared", "n1 · rank 0"),
        subjects=("n1 · rank 1", "n2 · rank 2", "n2 · rank 3"),
        says="GPU-2d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77 of n1 for each",
        machines=machines(2, setup=TWO_H100),
        wrap=tasks(OF_TASK % "GPU-2d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77 1"),
    ),
    WorldFault(
        "a task has GPU 0 by its UUID, another one by the beginning of it",
        *("agree.env", "gpu-shared", "n1 · rank 0"),
        subjects=("n1 · rank 1", "n2 · rank 2", "n2 · rank 3"),
        says="CUDA_VISIBLE_DEVICES=GPU-1d5b on n1",
        machines=machines(2, setup=TWO_H100),
        wrap=tasks(OF_TASK % "GPU-1d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77 GPU-1d5b"),
    ),
    # export LOCAL_RANK=$SLURM_LOCALID in the batch script, before srun
    WorldFault(
        "LOCAL_RANK=0 for all tasks of srun, which see both GPUs",
        *("agree.env", "local-rank-shared", "n1 · rank 0"),
        subjects=("n1 · rank 1", "n2 · rank 2", "n2 · rank 3"),
        says="LOCAL_RANK=0 for 2 tasks on each of n[1-2]",
        status="warn",
        exit=0,
        machines=machines(2, setup=TWO_GPUS),
        env={"LOCAL_RANK": "0"},
        wrap=tasks("0,1"),
    ),
    # with ranks that go round the nodes, rank % device_count is one GPU, too
    WorldFault(
        "LOCAL_RANK=1 for all tasks, which their launcher does not number",
        *("agree.env", "local-rank-shared", "n1 · rank 0"),
        subjects=("n1 · rank 2", "n2 · rank 1", "n2 · rank 3"),
        machines=machines(2, setup=TWO_GPUS),
        env={"LOCAL_RANK": "1"},
        wrap=by(UNNUMBERED % "0,1"),
    ),
    # export WORLD_SIZE=$((SLURM_NNODES * GPUS)) in a batch script with half as many tasks
    WorldFault(
        "WORLD_SIZE of the batch script is not the number of srun's tasks",
        *("env.identity", "world-size-mismatch", "n1 · rank 0"),
        subjects=("n2 · rank 3",),
        status="warn",
        exit=0,
        machines=machines(2, setup=TWO_GPUS),
        env={"WORLD_SIZE": "8"},
        wrap=tasks("$SLURM_LOCALID"),
    ),
)
BY_OTHER_LAUNCHERS = (
    # as in radical.pilot#3022, on Polaris
    WorldFault(
        "ranks of PALS that all have the first GPU's mask",
        *("agree.env", "gpu-shared", "n1 · rank 0"),
        subjects=("n1 · rank 1", "n2 · rank 2", "n2 · rank 3"),
        says="CUDA_VISIBLE_DEVICES is '0' for 2 tasks",
        machines=machines(2, setup=TWO_GPUS),
        wrap=by(OF_PALS % "0"),
    ),
)
FAULTS = (*SETTINGS, *BY_SRUN, *BY_OTHER_LAUNCHERS, *MACHINES, *PAIRS)
