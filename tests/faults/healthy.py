"""Machines on which nothing is wrong, however they look: each must be READY without a finding."""

from __future__ import annotations

from faults.accelerators import DGX_STATION, RAILS
from faults.gpu_health import SAYS
from faults.inject import Fault
from faults.node import CLOCK, EDAC, LEFT, LUSTRE, SILENT, TRACKED
from lab.host import HOSTS, NOBODY, Machine

from preflight.identity.launcher_options import as_variables
from preflight.identity.launchers import OPTIONS

TIMES = 3
"""How often each is looked at: a false alarm may be a matter of luck."""

DNS = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"

# what a job's environment has on a cluster with Slurm, modules, conda and NCCL settings that mean
# what they say, before torchrun is called
CLUSTER = {
    "USER": "ada",
    "LOGNAME": "ada",
    "SHELL": "/bin/bash",
    "TERM": "xterm-256color",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "MAIL": "/var/mail/ada",
    "OLDPWD": "/home/ada",
    "SHLVL": "2",
    "HISTCONTROL": "ignoredups",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "XDG_SESSION_ID": "c12",
    "MODULEPATH": "/opt/modulefiles",
    "LOADEDMODULES": "cuda/12.8:nccl/2.27",
    "LMOD_CMD": "/opt/lmod/libexec/lmod",
    "CUDA_HOME": "/usr/local/cuda-12.8",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CONDA_PREFIX": "/opt/conda",
    "CONDA_DEFAULT_ENV": "base",
    "CONDA_SHLVL": "1",
    "HF_HOME": "/data/hf",
    "HF_TOKEN": "hf_0123456789abcdef",
    "WANDB_API_KEY": "0123456789abcdef",
    "WANDB_MODE": "offline",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "http_proxy": "http://proxy.example:3128",
    "https_proxy": "http://proxy.example:3128",
    "no_proxy": "localhost,127.0.0.1,.example",
    "NCCL_DEBUG": "WARN",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_IB_HCA": "mlx5",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_RETRY_CNT": "7",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_CROSS_NIC": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_DISTRIBUTED_DEBUG": "OFF",
    "TORCH_CPP_LOG_LEVEL": "WARNING",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "TORCH_HOME": "/data/torch",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "UCX_TLS": "tcp",
    "FI_PROVIDER": "tcp",
    "SLURM_JOB_ID": "48121",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_NODELIST": "n1",
    "SLURM_NNODES": "1",
    "SLURM_NTASKS": "1",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_JOB_PARTITION": "batch",
    "SLURM_SUBMIT_DIR": "/home/ada",
    "SLURM_CLUSTER_NAME": "c1",
    "SLURM_CPUS_ON_NODE": "2",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
}


def healthy(name: str, **how: object) -> Fault:
    return Fault(name, exit=0, seconds=20, **how)  # type: ignore[arg-type]


def linked(*names: str) -> str:
    """Bridges as docker and libvirt make them: up, without anybody on them."""
    return "".join(
        f"ip link add {name} type bridge; ip addr add 172.{17 + n}.0.1/16 dev {name}\n"
        f"ip link set {name} up\n"
        for n, name in enumerate(names)
    )


VARIANTS = (
    healthy("a plain machine"),
    healthy(
        "MASTER_ADDR is the host's own name", env={"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    ),
    healthy("MASTER_ADDR=localhost", env={"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}),
    healthy(
        "a worker of Ray Train's, whose port the kernel has chosen",
        env={
            **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            **{"NODE_RANK": "0", "RAY_JOB_ID": "01000000"},
            **{"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "45678"},
        },
        nproc=None,
    ),
    healthy(
        "the monitor of torch's watchdog is off",
        env={"TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1800"},
    ),
    healthy("docker0 and virbr0 are there", setup=linked("docker0", "virbr0")),
    healthy("IPv6 is switched off", setup="echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6\n"),
    healthy(
        "IPv6 only",
        setup="ip addr flush dev eth0 scope global; ip addr add fd77::1/64 dev eth0 nodad\n"
        "sed -i s/10.77.0.1/fd77::1/ /etc/hosts",
        env={"MASTER_ADDR": "n1", "MASTER_PORT": "29500"},
    ),
    healthy(
        "no network but the loopback, as in `docker run --network none`", setup="ip link del eth0"
    ),
    healthy(
        "no name server, all names in /etc/hosts",
        machine=Machine(hosts=HOSTS + "10.77.0.1 gpu-017\n"),
        env={"MASTER_ADDR": "gpu-017", "MASTER_PORT": "29500"},
    ),
    healthy(
        "the host's name resolves to 127.0.1.1, as on Debian",
        setup="sed -i s/10.77.0.1/127.0.1.1/ /etc/hosts",
    ),
    healthy(
        "the host's name resolves to 127.0.1.1, and is MASTER_ADDR",
        setup="sed -i s/10.77.0.1/127.0.1.1/ /etc/hosts",
        env={"MASTER_ADDR": "n1", "MASTER_PORT": "29500"},
    ),
    healthy(
        "the host's name resolves to another machine",
        setup="sed -i s/10.77.0.1/10.77.0.99/ /etc/hosts",
    ),
    healthy("GLOO_SOCKET_IFNAME=lo", env={"GLOO_SOCKET_IFNAME": "lo"}),
    healthy(
        "the host's name does not resolve",
        machine=Machine(resolv=DNS),
        setup="sed -i /10.77.0.1/d /etc/hosts",
        beside="dns 0",
    ),
    healthy(
        "a name server that knows the names",
        machine=Machine(resolv=DNS),
        setup="sed -i /10.77.0.1/d /etc/hosts",
        beside="dns 0.01 n1=10.77.0.1",
        env={"MASTER_ADDR": "n1", "MASTER_PORT": "29500"},
    ),
    healthy(
        "a run that has just ended left TIME_WAIT on the port",
        beside="time_wait 29500",
        env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
    ),
    healthy("the working directory is read-only", setup="mount -o remount,ro ."),
    healthy(
        "the whole image is read-only but TMPDIR",
        setup="mount -o remount,bind,ro /",
        env={"TMPDIR": "{here}"},
    ),
    healthy(
        "TMPDIR is mounted noexec, and the caches of compiled kernels are elsewhere",
        setup="mkdir t; mount -t tmpfs -o noexec t t",
        env={
            **{"TMPDIR": "{here}/t", "TORCHINDUCTOR_CACHE_DIR": "{here}/cache"},
            **{"TRITON_CACHE_DIR": "{here}/cache/triton"},
        },
    ),
    healthy(
        "HOME is read-only, with GPUs, and TRITON_CACHE_DIR is elsewhere",
        setup="mkdir t; mount -t tmpfs -o ro t t; : > /dev/nvidia0",
        env={"HOME": "{here}/t", "TRITON_CACHE_DIR": "{here}/cache"},
        args=("--only", "host.storage"),
    ),
    healthy("no /sys", setup="mount -t tmpfs none /sys"),
    healthy(
        "six busy processes beside it", setup="for n in 1 2 3 4 5 6; do while :; do :; done & done"
    ),
    healthy("no HOME, no LANG, no PATH", without=("HOME", "LANG", "PATH")),
    healthy(f"a cluster's {len(CLUSTER)} variables", env=CLUSTER),
    healthy("10,000 variables", env={f"JOB_ARRAY_ITEM_{n}": f"value {n}" for n in range(10_000)}),
    healthy("one rank on one CPU", wrap=("taskset", "-c", "1"), nproc=1),
    healthy("another user than root", user=NOBODY),
    healthy(
        "another user, who may not read /etc/nsswitch.conf, and names resolve without it",
        setup="[ ! -e /etc/nsswitch.conf ] || chmod 600 /etc/nsswitch.conf\n",
        user=NOBODY,
    ),
    healthy("the connection tracking table is half full", setup=TRACKED.format(131072)),
    healthy(
        "MASTER_PORT is in the ephemeral range, and reserved",
        env={"MASTER_ADDR": "n1", "MASTER_PORT": "40000"},
        setup="echo 40000-40010 > /proc/sys/net/ipv4/ip_local_reserved_ports\n",
    ),
    healthy("the clock of KVM", setup=CLOCK.format("kvm-clock", "kvm-clock tsc hpet acpi_pm")),
    healthy(
        "of three silent NFS servers one is back, one responds, and one is mounted no more",
        setup="mkdir a b; mount -t tmpfs filer:/a a; mount -t tmpfs data:/b b\n"
        + "".join(map(SILENT.format, ("filer", "data", "gone")))
        + SAYS.format("nfs: server filer OK"),
    ),
    healthy("a Lustre server that is back", setup=LUSTRE.format("FULL", 300)),
    healthy(
        "corrected errors of the host's memory",
        setup=EDAC.format(0, 4711, 0)
        + SAYS.format("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
    ),
    healthy(
        "a CPU that was stuck an hour ago",
        setup="printf '0,9,%s000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [x:9]\\n' "
        "$(($(cut -d. -f1 /proc/uptime) - 3600)) >>/dev/kmsg\n",
    ),
    healthy(
        "an extension is being built by a process that has its old lock open",
        setup=LEFT + "sleep 300 <x/fused_adam/lock >/dev/null 2>&1 &\n",
        env={"TORCH_EXTENSIONS_DIR": "{here}/x"},
    ),
    healthy("a short listen queue", setup="echo 128 > /proc/sys/net/core/somaxconn\n"),
    healthy(
        "WSL 2: a GPU without device files",
        nproc=1,
        scenario={"count": 1, "name": "NVIDIA GeForce RTX 4090", "capability": "8.9"},
        setup=": > /dev/dxg\n",
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,host.limits,env.vars"),
    ),
    healthy(
        "a firewall that lets in what goes over lo, and what was asked for",
        setup="nft -f - <<'END'\ntable inet strict {\nchain input {\n"
        "type filter hook input priority 0; policy drop\n"
        'iifname "lo" accept\nct state established,related accept\n}\n}\nEND\n',
    ),
    healthy(
        "idle GPUs: low clocks, and the driver says so",
        nproc=2,
        gpus=4,
        scenario={"reasons": 1, "clock_now": 210, "power": 70000},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "an RTX for the display beside two H100, and a mask",
        nproc=2,
        gpus=3,
        env={"CUDA_VISIBLE_DEVICES": "0,1"},
        scenario={"gpu2.name": "NVIDIA T400", "gpu2.capability": "7.5", "gpu2.memory": 2 << 30},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "a mask with a blank, which -1 and a comma end",
        nproc=2,
        gpus=4,
        env={"CUDA_VISIBLE_DEVICES": "2, 3,-1,"},
        scenario={},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "two ranks where three of four GPUs may be opened",
        nproc=2,
        gpus=4,
        scenario={"gpu3.error": 4},
        args=("--level", "quick", "--only", "gpu.visible"),
    ),
    healthy(
        "a GPU that was reset as the driver had asked, and another allocator",
        nproc=2,
        gpus=4,
        setup="".join(
            SAYS.format(f"NVRM: Xid (PCI:0000:28:00): 154, GPU recovery action changed {words}")
            for words in (
                "from 0x0 (None) to 0x1 (GPU Reset Required)",
                "from 0x1 (GPU Reset Required) to 0x0 (None)",
            )
        ),
        env={"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
        scenario={},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,env.vars"),
    ),
    healthy(
        "compute mode exclusive, and MPS serves",
        nproc=4,
        gpus=4,
        beside="mps {here}",
        env={"CUDA_MPS_PIPE_DIRECTORY": "{here}"},
        scenario={"compute_mode": 3},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,env.vars"),
    ),
    healthy(
        "the default compute mode, and the daemon of MPS has ended",
        nproc=4,
        gpus=4,
        setup="mkdir mps; python3 -c 'import socket; socket.socket(1, 5).bind(\"mps/control\")'",
        env={"CUDA_MPS_PIPE_DIRECTORY": "{here}/mps"},
        scenario={},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,env.vars"),
    ),
    healthy(
        "compute mode exclusive, as MPS wants it, whose pipes the job names",
        nproc=4,
        gpus=4,
        env={"CUDA_MPS_PIPE_DIRECTORY": "/run/mps", "CUDA_MPS_LOG_DIRECTORY": "/run/mps-log"},
        scenario={"compute_mode": 3},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,env.vars"),
    ),
    healthy(
        "what the image of CUDA sets, and the device plugin's void beside devices of CDI",
        nproc=2,
        gpus=2,
        env={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility", "NVIDIA_VISIBLE_DEVICES": "void"},
        scenario={},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,env.vars"),
    ),
    healthy(
        "one MIG instance by its index",
        nproc=1,
        gpus=1,
        env={"CUDA_VISIBLE_DEVICES": "0"},
        scenario={"mig": 1},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "one MIG device by its UUID",
        nproc=1,
        gpus=2,
        env={"CUDA_VISIBLE_DEVICES": "MIG-1a2b3c01-5f9e-4c1d-8a3b-000000000001"},
        scenario={"mig": 1, "mig_devices": 2},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "one MIG device by its GPU and instance",
        nproc=1,
        gpus=2,
        env={"CUDA_VISIBLE_DEVICES": "MIG-GPU-1a2b3c01-5f9e-4c1d-8a3b-0123456789ab/8/0"},
        scenario={"gpu1.mig": 1, "mig_devices": 2},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "a MIG device that a driver does not tell the names of",
        nproc=1,
        gpus=2,
        env={"CUDA_VISIBLE_DEVICES": "MIG-8f7c0a11-1d7a-5d21-9b61-3b1d4b1c0f0e"},
        scenario={"mig": 1, "error.nvmlDeviceGetMigDeviceHandleByIndex": 4},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "limits that others have as well: no core files, 8 MiB of stack, a month of CPU time",
        wrap=("prlimit", "--core=0", "--stack=8388608", "--cpu=2592000"),
    ),
    healthy(
        "a queue's 20 GiB of address space, without GPUs", wrap=("prlimit", "--as=21474836480")
    ),
    healthy(
        "the kernel does not overcommit, and there is room",
        setup="echo 2 > mode; mount --bind mode /proc/sys/vm/overcommit_memory\n"
        "sed -e 's/^CommitLimit:.*/CommitLimit: 64000000 kB/' "
        "-e 's/^Committed_AS:.*/Committed_AS: 7500000 kB/' /proc/meminfo > left\n"
        "mount --bind left /proc/meminfo\n",
    ),
    healthy(
        "the kernel overcommits, and has promised more than there is",
        setup="sed -e 's/^CommitLimit:.*/CommitLimit: 8000000 kB/' "
        "-e 's/^Committed_AS:.*/Committed_AS: 95000000 kB/' /proc/meminfo > left\n"
        "mount --bind left /proc/meminfo\n",
    ),
    healthy(
        "another user, and /proc shows him his own processes only",
        setup="mount -o remount,hidepid=2 /proc",
        user=NOBODY,
    ),
    healthy(
        "files of the job are called torch.py, json.py and checks",
        setup="mkdir checks; echo 1/0 | tee torch.py json.py types.py checks/__init__.py",
    ),
    healthy(
        "another libnccl.so.2 lies on LD_LIBRARY_PATH",
        setup="mkdir lib; echo 'int ncclGetVersion(int *v) { *v = 21805; return 0; }' |"
        " gcc -shared -fPIC -x c -o lib/libnccl.so.2 -",
        env={"LD_LIBRARY_PATH": "{here}/lib"},
        needs=("gcc",),
    ),
    healthy(
        "4 GPUs",
        nproc=2,
        gpus=4,
        scenario={},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "a box of two models of GPUs",
        nproc=2,
        gpus=4,
        scenario={
            f"gpu{n}.{key}": value
            for n in (2, 3)
            for key, value in (
                ("name", "NVIDIA A100-PCIE-40GB"),
                ("memory", 40 << 30),
                ("capability", "8.0"),
                ("power_limit", 250000),
            )
        },
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "some corrected memory errors on one GPU of four",
        nproc=2,
        gpus=4,
        scenario={"gpu2.ecc_corrected": 640},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "a tray of GB200 in an NVLink domain",
        nproc=2,
        gpus=4,
        scenario={"name": "NVIDIA GB200", "fabric_state": 3, "fabric_cluster": "rack-7"},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health"),
    ),
    healthy(
        "cards for a slot, NVLink off in their driver, and P2P over PCIe",
        nproc=4,
        gpus=4,
        setup="echo 'NvLinkDisable: 1' > /proc/driver/nvidia/params\n",
        env={"NCCL_P2P_LEVEL": "SYS"},
        scenario={"name": "NVIDIA L40S", "capability": "8.9", "memory": 48 << 30},
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "NVLink lanes that tell their speeds, a harmless registry key, Tree for all-reduce alone",
        nproc=4,
        gpus=4,
        setup="printf 'NvLinkDisable: 0\\nRegistryDwords: \"PeerMappingOverride=1;\"\\n' "
        "> /proc/driver/nvidia/params\n",
        env={"NCCL_ALGO": "ring;allreduce:tree"},
        scenario={"links": 18, "field.164": 26562, "gpu1.field.164.3": 26560},
        args=("--level", "quick", "--only", "gpu.visible,gpu.links,env.vars"),
    ),
    healthy(
        "a DGX Station whose display card the mask leaves out",
        nproc=4,
        gpus=5,
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1,2,4"},
        scenario=DGX_STATION,
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "two display cards beside two H100, as many as ranks",
        nproc=2,
        gpus=4,
        scenario={
            f"gpu{n}.{key}": value
            for n in (2, 3)
            for key, value in (
                *(("name", "NVIDIA T400"), ("capability", "7.5")),
                *(("memory", 2 << 30), ("links", 0)),
            )
        },
        args=("--level", "quick", "--only", "gpu.visible,gpu.health,gpu.links"),
    ),
    healthy(
        "a port whose cable was reseated, with the errors of that moment",
        nproc=2,
        gpus=4,
        setup=RAILS % "for n in 0 1 2 3 4 5 6 7; do for name in link_downed symbol_error; do "
        "echo 0 > tree/infiniband/mlx5_$n/ports/1/counters/$name; done; done; "
        "echo 1 > tree/infiniband/mlx5_3/ports/1/counters/link_downed; "
        "echo 65535 > tree/infiniband/mlx5_3/ports/1/counters/symbol_error",
        args=("--level", "quick", "--only", "net.rdma"),
    ),
    healthy(
        "a PCIe slot that does not tell its power to an HCA, and one that offers enough by now",
        nproc=2,
        gpus=4,
        setup=RAILS
        % "for n in 1 2; do ln -s ../../../0000:5$n:00.0 tree/infiniband/mlx5_$n/device; "
        "done"
        + "".join(
            SAYS.format(f"mlx5_core 0000:5{slot}:00.0: mlx5_pcie_event:299:(pid 7): {words}")
            for slot, words in (
                (1, "PCIe slot power capability was not advertised."),
                (2, "Detected insufficient power on the PCIe slot (27W)."),
                (2, "PCIe slot advertised sufficient power (75W)."),
            )
        ),
        args=("--level", "quick", "--only", "net.rdma"),
    ),
    healthy(
        "an HCA whose driver had a TX timeout and has recovered",
        nproc=2,
        gpus=4,
        setup=RAILS
        % "for n in 1 2; do ln -s ../../../0000:5$n:00.0 tree/infiniband/mlx5_$n/device; "
        "done"
        + "".join(
            SAYS.format(f"mlx5_core 0000:5{slot}:00.0 ibp8{slot}s0: {words}")
            for slot, words in (
                (1, "TX timeout detected"),
                (2, "TX timeout detected"),
                (1, "Recovered 1 eqes on EQ 0x17"),
                (2, "Link up"),
            )
        ),
        args=("--level", "quick", "--only", "net.rdma"),
    ),
    healthy(
        "ports whose links all went down with the switch",
        nproc=2,
        gpus=4,
        setup=RAILS % "for n in 0 1 2 3 4 5 6 7; do "
        "echo 9 > tree/infiniband/mlx5_$n/ports/1/counters/link_downed; done",
        args=("--level", "quick", "--only", "net.rdma"),
    ),
    healthy(
        "two HCAs for storage of the same make, slower, beside one for each GPU",
        nproc=2,
        gpus=8,
        setup=RAILS % "for n in 8 9; do port mlx5_$n '4: ACTIVE' '5: LinkUp' "
        "'200 Gb/sec (2X NDR)'; done",
        args=("--level", "quick", "--only", "net.rdma"),
    ),
    healthy(
        "an exact NCCL_IB_HCA beside a storage HCA",
        nproc=2,
        gpus=4,
        env={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"},
        setup=RAILS % "port mlx5_10 '4: ACTIVE' '5: LinkUp' '100 Gb/sec (4X EDR)'; "
        "echo MT4119 > tree/infiniband/mlx5_10/hca_type",
        args=("--level", "quick", "--only", "net.rdma,env.vars"),
    ),
    healthy(
        "a shell that was a job step of one task",
        env={"PMI_RANK": "0", "PMI_SIZE": "1"},
    ),
    healthy(
        "a PMIX_RANK left over in the shell",
        env={"PMIX_RANK": "3"},
    ),
    healthy(
        "8 ports of InfiniBand",
        nproc=2,
        gpus=4,
        setup=RAILS % "port mlx5_8 '1: DOWN' '3: Disabled' '10 Gb/sec (4X SDR)'; "
        "echo MT4125 > tree/infiniband/mlx5_8/hca_type",
        args=("--level", "quick", "--only", "net.rdma,host.limits,env.vars"),
    ),
    healthy(
        "gate, and a torchrun of one node that meets by c10d",
        env={
            OPTIONS: "PET_NNODES=--nnodes",
            "PET_NNODES": "1",
            "PET_NPROC_PER_NODE": "2",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "n1:29500",
        },
        nproc=None,
    ),
    healthy(
        "gate, and a torchrun of one node that takes a free port beside a run at 29500",
        env=as_variables(["torchrun", "--nproc-per-node=2", "train.py"], {}),
        beside="listen 29500",
        nproc=None,
    ),
    healthy(
        "Kubeflow's variables",
        env={
            "PET_NNODES": "1",
            "PET_NPROC_PER_NODE": "4",
            "PET_NODE_RANK": "0",
            "PET_MASTER_ADDR": "n1",
            "PET_MASTER_PORT": "29400",
        },
        nproc=None,
    ),
)
