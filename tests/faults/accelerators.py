"""Faults of GPUs, of their driver, and of settings that matter where there are GPUs."""

from __future__ import annotations

from dataclasses import replace

from faults.gpu_health import HEALTH, SAYS
from faults.inject import Fault

CROWDED = ("host.cpu cpus-few",)
"""Few CPUs for so many GPUs: true of the machine that runs the tests."""

DGX_STATION = {
    "name": "NVIDIA A100-SXM4-40GB",
    "capability": "8.0",
    "memory": 40 << 30,
    "gpu3.name": "NVIDIA DGX Display",
    "gpu3.capability": "7.5",
    "gpu3.memory": 4 << 30,
}
"""Its fourth GPU by PCI address is the one for the display."""

ON_4 = {"nproc": 4, "gpus": 4, "also": CROWDED}

GPUS = (
    Fault(
        "the NVIDIA driver hangs",
        "gpu.visible",
        "driver-hangs",
        "n1 · NVIDIA driver",
        says="nvmlInit",
        scenario={"hang.nvmlInit": 1},
        seconds=10,
        **ON_4,
    ),
    Fault(
        "NVML takes 6 s to start, without persistence mode",
        "gpu.visible",
        "nvml-slow",
        "n1 · NVIDIA driver",
        status="warn",
        exit=0,
        setup="rm -r /run/nvidia-persistenced\n",
        scenario={"sleep_ms.nvmlInit": 6000, "persistence": 0},
        args=("--level", "standard", "--only", "gpu.visible,gpu.health"),
        seconds=25,
        **ON_4,
    ),
    Fault(
        "NVML takes longer to start than a quick run lasts",
        "gpu.visible",
        "nvml-slow",
        "n1 · NVIDIA driver",
        status="undecided",
        exit=4,
        setup="rm -r /run/nvidia-persistenced\n",
        scenario={"sleep_ms.nvmlInit": 14000},
        seconds=15,
        **ON_4,
    ),
    Fault(
        "NVML crashes at its start",
        "gpu.visible",
        "nvml-crashes",
        "n1 · NVIDIA driver",
        status="undecided",
        exit=4,
        scenario={"crash.nvmlInit": 1},
        **ON_4,
    ),
    Fault(
        "NVML crashes when a GPU is asked for its name",
        "gpu.visible",
        "nvml-crashes",
        "n1 · NVIDIA driver",
        status="undecided",
        exit=4,
        scenario={"gpu2.crash.nvmlDeviceGetName": 1},
        **ON_4,
    ),
    Fault(
        "a MIG instance is named, and MIG is off",
        "gpu.visible",
        "mask-empty",
        env={"CUDA_VISIBLE_DEVICES": "MIG-8f7c0a11-1d7a-5d21-9b61-3b1d4b1c0f0e"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "the UUID of a MIG device from before the GPUs were partitioned again",
        "gpu.visible",
        "mask-empty",
        says="no MIG device here is 'MIG-8f7c0a11-1d7a-5d21-9b61-3b1d4b1c0f0e'",
        env={"CUDA_VISIBLE_DEVICES": "MIG-8f7c0a11-1d7a-5d21-9b61-3b1d4b1c0f0e"},
        scenario={"mig": 1, "mig_devices": 2},
        **ON_4,
    ),
    Fault(
        "a MIG device by its GPU and an instance that is not there",
        "gpu.visible",
        "mask-empty",
        says="no MIG device here is 'MIG-GPU-1a2b3c01",
        env={"CUDA_VISIBLE_DEVICES": "MIG-GPU-1a2b3c01-5f9e-4c1d-8a3b-0123456789ab/13/0"},
        scenario={"mig": 1, "mig_devices": 2},
        **ON_4,
    ),
    Fault(
        "two MIG instances for two ranks of one environment",
        "gpu.visible",
        "too-few-gpus",
        env={
            "CUDA_VISIBLE_DEVICES": "MIG-1a2b3c00-5f9e-4c1d-8a3b-000000000000,"
            "MIG-1a2b3c01-5f9e-4c1d-8a3b-000000000000"
        },
        scenario={"mig": 1},
        nproc=None,
        gpus=4,
        also=CROWDED,
    ),
    Fault(
        "one GPU hangs",
        "gpu.visible",
        "driver-hangs",
        "n1 · NVIDIA driver",
        scenario={"gpu2.hang.nvmlDeviceGetMemoryInfo": 1},
        seconds=10,
        **ON_4,
    ),
    Fault(
        "a GPU has fallen off the bus",
        "gpu.visible",
        "gpu-lost",
        "n1 · GPU 2",
        scenario={"gpu2.error": 15},
        **ON_4,
    ),
    Fault(
        "all four GPUs have fallen off the bus",
        "gpu.visible",
        "gpu-lost",
        "n1 · GPU 0",
        scenario={f"gpu{number}.error": 15 for number in range(4)},
        **ON_4,
    ),
    Fault(
        "a GPU of four in MIG mode without an instance",
        "gpu.visible",
        "mig-empty",
        "n1 · GPU 2",
        says="3 of 4 GPUs visible",
        scenario={"gpu2.mig": 1, "gpu2.mig_devices": 0},
        **ON_4,
    ),
    Fault(
        "two of six GPUs are held for a virtual machine",
        "gpu.visible",
        "too-few-gpus",
        says="0000:58:00.0, 0000:68:00.0 held by vfio-pci",
        setup="".join(
            f"d=/sys/bus/pci/devices/0000:{bus}:00.0; mkdir -p $d; echo 0x030200 > $d/class; "
            "echo 0x10de > $d/vendor; echo 0x2330 > $d/device; "
            "ln -s ../../../bus/pci/drivers/vfio-pci $d/driver\n"
            for bus in (58, 68)
        ),
        scenario={},
        nproc=6,
        gpus=4,
        also=CROWDED,
    ),
    Fault(
        "a display card that nouveau has",
        "gpu.visible",
        "driver-missing",
        "n1 · NVIDIA driver",
        status="warn",
        exit=0,
        says="nouveau has 1",
        setup="rm -r /dev/nvidia*; umount /proc/driver\nd=/sys/bus/pci/devices/0000:18:00.0\n"
        "echo 0x030000 > $d/class; rm $d/driver; ln -s ../drivers/nouveau $d/driver\n",
        scenario=None,
        nproc=4,
        gpus=1,
    ),
    Fault(
        "rank 3 gets the display card of a DGX Station, by PCI address",
        "gpu.visible",
        "models-mixed",
        "n1 · GPU 3",
        status="warn",
        exit=0,
        says="GPU 3 is DGX Display",
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        scenario=DGX_STATION,
        nproc=4,
        gpus=5,
        also=CROWDED,
    ),
    Fault(
        "LOCAL_RANK is SLURM_PROCID, on nodes of one GPU",
        "gpu.visible",
        "local-rank-invalid",
        says="LOCAL_RANK=1, 1 of 1 GPU visible",
        env={
            **{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
            **{"MASTER_ADDR": "n0", "MASTER_PORT": "29500"},
            **{"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"},
            **{"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
        },
        args=("--level", "quick", "--only", "gpu.*,env.identity"),
        scenario={},
        nproc=None,
        gpus=1,
    ),
    Fault(
        "one GPU for a SLURM step of four ranks",  # as in ACEsuit/mace#435
        "gpu.visible",
        "too-few-gpus",
        says="SLURM_GPUS_ON_NODE=1",
        env={"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_GPUS": "0"},
        scenario={"count": 1},
        **ON_4,
    ),
    Fault(
        "GSP of a GPU does not answer, and NVML hangs",  # as in open-gpu-kernel-modules#446
        "gpu.visible",
        "driver-hangs",
        "n1 · NVIDIA driver",
        says="Xid 119 (GSP firmware does not answer) of GPU 0000:38:00.0",
        setup=SAYS.format("NVRM: Xid (PCI:0000:38:00): 119, pid=77, Timeout after 6s of waiting"),
        scenario={"gpu2.hang.nvmlDeviceGetMemoryInfo": 1},
        seconds=10,
        **ON_4,
    ),
    Fault(
        "an A100 among three H100",
        "gpu.visible",
        "models-mixed",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        says="GPU 2 is A100-PCIE-40GB",
        scenario={
            "gpu2.name": "NVIDIA A100-PCIE-40GB",
            "gpu2.capability": "8.0",
            "gpu2.memory": 40 << 30,
        },
        **ON_4,
    ),
    Fault(
        "a mask by number, where a display card comes first on the bus",
        "gpu.visible",
        "mask-order",
        status="warn",
        exit=0,
        env={"CUDA_VISIBLE_DEVICES": "0,1"},
        scenario={
            "name": "NVIDIA RTX A6000",
            "capability": "8.6",
            **{"gpu0.name": "NVIDIA T400 4GB", "gpu0.capability": "7.5", "gpu0.memory": 4 << 30},
        },
        nproc=2,
        gpus=4,
        also=CROWDED,
    ),
    Fault(
        "a user who may not open /dev/nvidiactl",
        "gpu.visible",
        "gpu-permission-denied",
        "n1 · NVIDIA driver",
        scenario={"error.nvmlInit": 4},
        **ON_4,
    ),
    Fault(
        "a GPU without any link, beside three with 18",
        "gpu.links",
        "nvlink-down",
        "n1 · GPU 3",
        scenario={"links": 18, "gpu3.links": 0},
        **ON_4,
    ),
    Fault(
        "NVLink switched off by an option of the driver",
        "gpu.links",
        "nvlink-disabled",
        "n1 · GPU 0",
        status="warn",
        exit=0,
        setup="echo 'NvLinkDisable: 1' > /proc/driver/nvidia/params\n",
        scenario={"links": 0},
        **ON_4,
    ),
    Fault(
        "NVLink switched off by a registry key of the driver",
        "gpu.links",
        "nvlink-disabled",
        "n1 · GPU 0",
        status="warn",
        exit=0,
        says="RMNvLinkEnable=0x0",
        setup="printf 'NvLinkDisable: 0\\nRegistryDwords: \"RMNvLinkEnable=0x0\"\\n' "
        "> /proc/driver/nvidia/params\n",
        scenario={"links": 0},
        **ON_4,
    ),
    Fault(
        "one NVLink lane of one GPU runs at half of its speed",
        "gpu.links",
        "nvlink-slow",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        says="lane 7 at 13281 of 26562 MB/s",
        scenario={"links": 18, "field.164": 26562, "gpu2.field.164.7": 13281},
        **ON_4,
    ),
    Fault(
        "no lane is up on any GPU of an SXM board",
        "gpu.links",
        "nvlink-down",
        "n1 · GPU 0",
        status="warn",
        exit=0,
        scenario={"links": 18, "link_state": 0},
        **ON_4,
    ),
    Fault(
        "the container's runtime was told to give no GPU",
        "gpu.visible",
        "gpus-not-exposed",
        "n1 · NVIDIA driver",
        status="undecided",
        exit=4,
        says="NVIDIA_VISIBLE_DEVICES='void'",
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        setup="rm -r /dev/nvidia*\n",
        **ON_4,
    ),
    Fault(
        "eight local ranks of torchrun, and four GPUs",
        "gpu.visible",
        "too-few-gpus",
        says="LOCAL_WORLD_SIZE",
        env={
            **{"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"},
            **{"MASTER_ADDR": "n1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"},
        },
        args=("--level", "quick", "--only", "gpu.visible"),
        scenario={},
        nproc=None,
        gpus=4,
        also=CROWDED,
    ),
    Fault(
        "a task of srun with one GPU, whose local rank is 2",
        "gpu.visible",
        "mask-per-task",
        status="warn",
        exit=0,
        says="LOCAL_RANK=2",
        env={
            **{"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "CUDA_VISIBLE_DEVICES": "2"},
        },
        args=("--level", "quick", "--only", "gpu.visible"),
        scenario={},
        nproc=None,
        gpus=4,
        also=CROWDED,
    ),
    Fault(
        "the driver was updated without a reboot",
        "gpu.visible",
        "driver-mismatch",
        "n1 · NVIDIA driver",
        scenario={"error.nvmlInit": 18},
        **ON_4,
    ),
    # as in nvidia-docker#419 and nvidia-container-toolkit#714
    Fault(
        "compute mode exclusive, and the daemon of MPS has ended",
        *("gpu.visible", "mps-daemon-gone", "n1 · GPU 0"),
        status="warn",
        exit=0,
        says="/mps nobody listens on its socket",
        setup="mkdir mps; python3 -c 'import socket; socket.socket(1, 5).bind(\"mps/control\")'",
        env={"CUDA_MPS_PIPE_DIRECTORY": "{here}/mps"},
        scenario={"compute_mode": 3},
        **ON_4,
    ),
    # as in k8s-device-plugin#1494
    Fault(
        "MPS runs, and gives each rank a quarter of its GPU",
        *("gpu.visible", "mps-share-limited", "n1"),
        status="warn",
        exit=0,
        says="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
        setup="mkdir mps; python3 -c 'import socket, time; s = socket.socket(1, 5); "
        's.bind("mps/control"); s.listen(); time.sleep(60)\' >/dev/null 2>&1 & '
        "for try in 1 2 3 4 5 6 7 8 9; do [ -e mps/control ] || sleep 0.2; done",
        env={
            "CUDA_MPS_PIPE_DIRECTORY": "{here}/mps",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        },
        scenario={},
        **ON_4,
    ),
    Fault(
        "compute mode exclusive, and no daemon of MPS in its folder",
        *("gpu.visible", "mps-daemon-gone", "n1 · GPU 0"),
        status="warn",
        exit=0,
        says="/mps has no socket",
        setup="mkdir mps",
        env={"CUDA_MPS_PIPE_DIRECTORY": "{here}/mps"},
        scenario={"compute_mode": 3},
        **ON_4,
    ),
    Fault(
        "a GPU in compute mode Prohibited",
        "gpu.visible",
        "compute-mode",
        "n1 · GPU 1",
        scenario={"gpu1.compute_mode": 2},
        **ON_4,
    ),
    Fault(
        "3 of 4 GPUs are listed",
        "gpu.visible",
        "gpu-lost",
        "n1 · 0000:48:00.0",
        scenario={"count": 3},
        **ON_4,
    ),
    Fault(
        "4 GPUs where 8 are expected",
        "gpu.visible",
        "gpu-count",
        scenario={},
        args=("--level", "quick", "--expect", "gpus_per_node=8"),
        **ON_4,
    ),
    Fault(
        "CUDA_VISIBLE_DEVICES is empty",
        "gpu.visible",
        "mask-empty",
        status="warn",
        exit=0,
        env={"CUDA_VISIBLE_DEVICES": ""},
        scenario={},
        **ON_4,
    ),
    Fault(
        "CUDA_VISIBLE_DEVICES=0,1,9,3",
        "gpu.visible",
        "mask-invalid",
        env={"CUDA_VISIBLE_DEVICES": "0,1,9,3"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "the UUID of another node's GPU",
        "gpu.visible",
        "mask-empty",
        env={"CUDA_VISIBLE_DEVICES": "GPU-deadbeef-0000-0000-0000-000000000000"},
        scenario={},
        nproc=1,
        gpus=4,
    ),
    Fault(
        "CUDA_VISIBLE_DEVICES=0,0,1,2",
        "gpu.visible",
        "mask-duplicate",
        says="it names '0' twice",
        env={"CUDA_VISIBLE_DEVICES": "0,0,1,2"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "4 ranks where 3 of 4 GPUs may be opened",  # one --device is missing
        "gpu.visible",
        "too-few-gpus",
        says="no permission to open GPU 1",
        setup="rm /dev/nvidia1\n",
        scenario={"gpu1.error": 4},
        **ON_4,
    ),
    Fault(
        "the container's list has 2 GPUs for 4 ranks",
        "gpu.visible",
        "too-few-gpus",
        says="NVIDIA_VISIBLE_DEVICES='0,2'",
        env={"NVIDIA_VISIBLE_DEVICES": "0,2"},
        scenario={},
        **ON_4 | {"gpus": 2},
    ),
    Fault(
        "4 ranks on the 3 GPUs of a mask",
        "gpu.visible",
        "too-few-gpus",
        env={"CUDA_VISIBLE_DEVICES": "1,2,3"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "a GPU has fallen off the bus, and the kernel said so",
        "gpu.visible",
        "gpu-lost",
        "n1 · GPU 2",
        setup=SAYS.format("NVRM: Xid (PCI:0000:38:00): 79, pid=0, GPU has fallen off the bus."),
        scenario={"gpu2.error": 15},
        **ON_4,
    ),
    Fault(
        "4 ranks of torchrun on 2 GPUs",
        "gpu.visible",
        "too-few-gpus",
        env={"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4"},
        nproc=None,
        gpus=2,
        scenario={},
        also=CROWDED,
    ),
    Fault(
        "no /dev/nvidia-uvm",
        "gpu.visible",
        "uvm-missing",
        "n1 · NVIDIA driver",
        setup="rm /dev/nvidia-uvm\n",
        scenario={},
        **ON_4,
    ),
    Fault(
        "the GPUs' driver is not loaded",
        "gpu.visible",
        "driver-missing",
        "n1 · NVIDIA driver",
        setup="rm -r /dev/nvidia*; umount /proc/driver\n",
        scenario=None,
        args=("--level", "quick", "--expect", "gpus_per_node=4"),
        nproc=4,
        gpus=4,
    ),
    Fault(
        "the container was started without its GPUs",
        "gpu.visible",
        "gpus-not-exposed",
        "n1 · NVIDIA driver",
        setup="rm -r /dev/nvidia*\n",
        scenario={"error.nvmlInit": 9},
        args=("--level", "quick", "--expect", "gpus_per_node=4"),
        nproc=4,
        gpus=4,
    ),
)

LIBRARY = Fault(
    "libnvidia-ml is an empty file",
    "gpu.visible",
    "nvml-unusable",
    "n1 · NVIDIA driver",
    says="file too short",
    setup="mkdir lib; : > lib/libnvidia-ml.so.1\n",
    env={"LD_LIBRARY_PATH": "{here}/lib"},
    scenario=None,
    **ON_4,
)
LIBRARIES = (
    LIBRARY,
    replace(
        LIBRARY,
        name="a container without the driver's CUDA",
        code="cuda-not-exposed",
        says="NVIDIA_DRIVER_CAPABILITIES='utility,video'",
        setup="",
        env={"NVIDIA_DRIVER_CAPABILITIES": "utility,video"},
        scenario={},
    ),
    replace(
        LIBRARY,
        name="a container without the driver's utilities",
        code="nvml-not-exposed",
        says="NVIDIA_DRIVER_CAPABILITIES='compute'",
        setup="",
        env={"NVIDIA_DRIVER_CAPABILITIES": "compute"},
    ),
)

SETTINGS = (
    Fault(
        "NCCL_NET=IB on a machine without RDMA",
        "env.vars",
        "network-absent",
        "n1 · NCCL_NET",
        env={"NCCL_NET": "IB"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "NCCL_GRAPH_FILE of another machine",
        "env.vars",
        "file-missing",
        "n1 · NCCL_GRAPH_FILE",
        env={"NCCL_GRAPH_FILE": "/opt/nowhere/graph.xml"},
        scenario={},
        **ON_4,
    ),
    # as in nccl#1008
    Fault(
        "nccl.conf names a graph for eight GPUs",
        *("env.vars", "graph-differs", "n1 · NCCL_GRAPH_FILE"),
        says="channels over GPUs 0-7",
        setup="echo '<graphs><graph><channel><gpu dev=\"7\"/></channel></graph></graphs>' > g.xml; "
        "echo NCCL_GRAPH_FILE=$PWD/g.xml > nccl.conf",
        env={"NCCL_CONF_FILE": "{here}/nccl.conf"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "ACCELERATE_USE_CPU=True with 4 GPUs",
        *("env.vars", "accelerate-on-cpu", "n1 · ACCELERATE_USE_CPU"),
        status="warn",
        exit=0,
        env={"ACCELERATE_USE_CPU": "True"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "NCCL_TOPO_FILE of another machine",
        "env.vars",
        "file-missing",
        "n1 · NCCL_TOPO_FILE",
        status="warn",
        exit=0,
        env={"NCCL_TOPO_FILE": "/opt/microsoft/ndv4-topo.xml"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "NCCL_P2P_DISABLE=1 with 4 GPUs",
        "env.vars",
        "fast-path-off",
        "n1 · NCCL_P2P_DISABLE",
        status="warn",
        exit=0,
        env={"NCCL_P2P_DISABLE": "1"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "NCCL_ALGO=Tree with 4 GPUs",
        "env.vars",
        "algorithm-unavailable",
        "n1 · NCCL_ALGO",
        status="warn",
        exit=0,
        says="Broadcast, Reduce, AllGather, ReduceScatter",
        env={"NCCL_ALGO": "Tree"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "CUDA_LAUNCH_BLOCKING=1 with 4 GPUs",
        "env.vars",
        "launch-blocking",
        "n1 · CUDA_LAUNCH_BLOCKING",
        status="warn",
        exit=0,
        env={"CUDA_LAUNCH_BLOCKING": "1"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "NCCL_COMM_ID of another job with 4 GPUs",
        "env.vars",
        "comm-id-elsewhere",
        "n1 · NCCL_COMM_ID",
        env={"NCCL_COMM_ID": "10.1.1.1:4444"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=5 with 4 GPUs",
        "env.vars",
        "heartbeat-short",
        "n1 · TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        status="warn",
        exit=0,
        env={"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "5"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=0 with 4 GPUs",
        "env.vars",
        "watchdog-off",
        "n1 · TORCH_NCCL_ASYNC_ERROR_HANDLING",
        status="warn",
        exit=0,
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "PYTORCH_CUDA_ALLOC_CONF with = in place of : and 4 GPUs",
        "env.vars",
        "value-refused",
        "n1 · PYTORCH_CUDA_ALLOC_CONF",
        env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb=512"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "PYTORCH_CUDA_ALLOC_CONF with true in place of True and 4 GPUs",
        "env.vars",
        "value-refused",
        "n1 · PYTORCH_CUDA_ALLOC_CONF",
        env={
            "PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8,expandable_segments:true"
        },
        scenario={},
        **ON_4,
    ),
    Fault(
        "PYTORCH_CUDA_ALLOC_CONF with blocks that are too small to be split",
        "env.vars",
        "value-refused",
        "n1 · PYTORCH_CUDA_ALLOC_CONF",
        says="20 is the smallest",
        env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:10"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "PYTORCH_ALLOC_CONF with a backend that is none",
        "env.vars",
        "value-refused",
        "n1 · PYTORCH_ALLOC_CONF",
        says="backend is 'cudaMalloc'",
        env={"PYTORCH_ALLOC_CONF": "backend:cudaMalloc"},
        scenario={},
        **ON_4,
    ),
    Fault(
        "torch for the CPU on a machine with GPUs",
        "host.software",
        "cpu-build",
        "n1 · torch",
        status="undecided",
        exit=4,
        args=("--level", "standard", "--skip", "world.*,rdzv.*"),
        scenario={},
        seconds=15,
        **ON_4,
    ),
)

RAILS = """
port() {
  there=tree/infiniband/$1; mkdir -p $there/ports/1/counters
  echo MT4129 > $there/hca_type; cd $there/ports/1
  echo "$2" > state; echo "$3" > phys_state; echo "$4" > rate; echo InfiniBand > link_layer
  mkdir pkeys; echo 0xffff > pkeys/0
  cd "$OLDPWD"
}
mkdir -p tree/net
for n in 0 1 2 3 4 5 6 7; do port mlx5_$n '4: ACTIVE' '5: LinkUp' '400 Gb/sec (4X NDR)'; done
%s
mkdir net; mount --rbind /sys/class/net net
mount --rbind tree /sys/class; mount --rbind net /sys/class/net
"""
"""Eight ports of InfiniBand, as far as /sys/class shows them, and what is wrong with them."""
PCIE_LINKS = """
for n in 0 1 2 3 4 5 6 7; do
  card=tree/infiniband/mlx5_$n/device; mkdir $card
  for which in current max; do
    echo 16 > $card/${which}_link_width; echo '32.0 GT/s PCIe' > $card/${which}_link_speed
  done
done
"""
"""What the kernel says of the PCIe links of their cards."""
ROCE_COUNTS = """
for n in 0 1 2 3 4 5 6 7; do
  here=tree/infiniband/mlx5_$n/ports/1; rm -r $here/pkeys; echo Ethernet > $here/link_layer
  mkdir -p $here/hw_counters $here/gids $here/gid_attrs/types
  echo 0000:0000:0000:0000:0000:ffff:0a4d:010$n > $here/gids/3
  echo 'RoCE v2' > $here/gid_attrs/types/3
  for c in packet_seq_err local_ack_timeout_err; do echo 4711 > $here/hw_counters/$c; done
done
lossy=/sys/class/infiniband/mlx5_3/ports/1/hw_counters
"""
"""The same ports with RoCE, and what they counted long ago."""

ONE_PORT = "rm -r tree/infiniband/mlx5_2; port mlx5_2 %s"
POLLING = "'1: DOWN' '2: Polling' '10 Gb/sec (4X SDR)'"
COUNTERS = (
    "for n in 0 1 2 3 4 5 6 7; do for name in link_downed symbol_error; do "
    "echo $((n % 3)) > tree/infiniband/mlx5_$n/ports/1/counters/$name; done; done; "
    "echo 0 > tree/infiniband/mlx5_3/ports/1/counters/link_downed"
)
INIT = "'2: INIT' '5: LinkUp' '400 Gb/sec (4X NDR)'"

NET_RDMA = (
    Fault(
        "one of eight InfiniBand ports has lost its cable",
        "net.rdma",
        "port-down",
        "n1 · mlx5_2 · port 1",
        says="mlx5_2:1 state Down, physical Polling, was up since boot",
        setup=RAILS
        % f"{ONE_PORT % POLLING}; echo 1 > tree/infiniband/mlx5_2/ports/1/counters/link_downed",
        scenario={},
        **ON_4,
    ),
    Fault(
        "a port that is down and has the address of its subnet yet",  # as in leptonai/gpud#482
        "net.rdma",
        "port-down",
        "n1 · mlx5_2 · port 1",
        says="was up since boot",
        setup=RAILS % f"{ONE_PORT % POLLING}; for f in 'lid 0x364' 'sm_lid 0x14e'; do "
        'echo ${f#* } > "tree/infiniband/mlx5_2/ports/1/${f% *}"; done',
        scenario={},
        **ON_4,
    ),
    Fault(
        "two of eight HCAs came up with half of their rate",  # as in NVIDIA/nccl#307
        "net.rdma",
        "rate-low",
        "n1 · mlx5_3 · port 1",
        status="warn",
        exit=0,
        says="mlx5_3:1 200 Gb/s",
        setup=RAILS % "for n in 3 6; do echo '200 Gb/sec (4X HDR)' "
        "> tree/infiniband/mlx5_$n/ports/1/rate; done",
        scenario={},
        **ON_4,
    ),
    Fault(
        "all HCAs came up with one lane",  # as in NVIDIA/nccl#902
        "net.rdma",
        "rate-low",
        "n1 · mlx5_0 · port 1",
        status="warn",
        exit=0,
        says="100 Gb/s (1X NDR)",
        setup=RAILS % "for n in 0 1 2 3 4 5 6 7; do echo '100 Gb/sec (1X NDR)' "
        "> tree/infiniband/mlx5_$n/ports/1/rate; done",
        scenario={},
        **ON_4,
    ),
    Fault(
        "thousands of symbol errors of one port that was never down",  # as in NVIDIA/nccl#905
        "net.rdma",
        "errors-counted",
        "n1 · mlx5_3 · port 1",
        status="warn",
        exit=0,
        says="symbol_error 48212",
        setup=RAILS
        % f"{COUNTERS}; echo 48212 > tree/infiniband/mlx5_3/ports/1/counters/symbol_error",
        scenario={},
        **ON_4,
    ),
    Fault(
        "a ninth port that is InfiniBand by mistake",  # as in dsx-ai-factory/infra-controller#3624
        "net.rdma",
        "port-never-up",
        "n1 · mlx5_9 · port 1",
        status="warn",
        exit=0,
        setup=RAILS % f"port mlx5_9 {POLLING}; echo 0xffff > tree/infiniband/mlx5_9/ports/1/lid; "
        "echo 0x0 > tree/infiniband/mlx5_9/ports/1/sm_lid",
        scenario={},
        **ON_4,
    ),
    Fault(
        "one of eight InfiniBand ports never had a cable",
        "net.rdma",
        "port-never-up",
        "n1 · mlx5_2 · port 1",
        status="warn",
        exit=0,
        says="mlx5_2:1 state Down, physical Polling, not up since boot",
        setup=RAILS % (ONE_PORT % POLLING),
        scenario={},
        **ON_4,
    ),
    Fault(
        "none of eight InfiniBand ports has a subnet manager",
        "net.rdma",
        "no-subnet-manager",
        "n1 · mlx5_0 · port 1",
        status="warn",
        exit=0,
        says="mlx5_0:1 state Init, physical LinkUp",
        setup=RAILS % "for n in 0 1 2 3 4 5 6 7; do "
        "echo '2: INIT' > tree/infiniband/mlx5_$n/ports/1/state; done",
        scenario={},
        **ON_4,
    ),
    Fault(
        "one of eight InfiniBand ports is left out by its subnet manager",
        "net.rdma",
        "port-not-swept",
        "n1 · mlx5_2 · port 1",
        status="warn",
        exit=0,
        says="mlx5_2:1 state Init, physical LinkUp",
        setup=RAILS % (ONE_PORT % INIT),
        scenario={},
        **ON_4,
    ),
    Fault(
        "the firmware of one HCA has died, and its port is shown as Active",
        "net.rdma",
        "hca-dead",
        "n1 · mlx5_5 · port 1",
        says="health compromised",
        setup=RAILS % "ln -s ../../../0000:5e:00.0 tree/infiniband/mlx5_5/device"
        + SAYS.format(
            "mlx5_core 0000:5e:00.0: poll_health:834:(pid 0): device's health compromised - "
            "reached miss count"
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "the PCIe slot of an HCA offers 27 W",
        "net.rdma",
        "slot-power-low",
        "n1 · mlx5_5 · port 1",
        status="warn",
        exit=0,
        says="insufficient power on the PCIe slot (27 W)",
        setup=RAILS % "ln -s ../../../0000:5e:00.0 tree/infiniband/mlx5_5/device"
        + SAYS.format(
            "mlx5_core 0000:5e:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power "
            "on the PCIe slot (27W)."
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "the driver of an HCA sends nothing while its port is Active",
        "net.rdma",
        "tx-timeout",
        "n1 · mlx5_5 · port 1",
        status="warn",
        exit=0,
        says="TX timeout of ibp94s0 (0000:5e:00.0)",
        setup=RAILS % "ln -s ../../../0000:5e:00.0 tree/infiniband/mlx5_5/device"
        + SAYS.format("mlx5_core 0000:5e:00.0 ibp94s0: Link up")
        + SAYS.format("mlx5_core 0000:5e:00.0 ibp94s0: TX timeout detected"),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a port in INIT beside one that never had a cable",
        "net.rdma",
        "port-not-swept",
        "n1 · mlx5_6 · port 1",
        status="warn",
        exit=0,
        setup=RAILS % f"rm -r tree/infiniband/mlx5_6; port mlx5_6 {INIT}; {ONE_PORT % POLLING}",
        scenario={},
        **ON_4 | {"also": (*CROWDED, "net.rdma port-never-up")},
    ),
    Fault(
        "NCCL_IB_HCA=mlx5_1 takes a storage HCA called mlx5_10, too",
        "net.rdma",
        "hca-by-prefix",
        "n1",
        status="warn",
        exit=0,
        says="takes mlx5_10 of 100 Gb/s",
        env={"NCCL_IB_HCA": "mlx5_0,mlx5_1"},
        setup=RAILS % "port mlx5_10 '4: ACTIVE' '5: LinkUp' '100 Gb/sec (4X EDR)'; "
        "echo MT4119 > tree/infiniband/mlx5_10/hca_type",
        scenario={},
        **ON_4,
    ),
    Fault(
        "a port that NCCL_IB_HCA names has no cable",
        "net.rdma",
        "named-port-down",
        "n1 · mlx5_9 · port 1",
        status="warn",
        exit=0,
        env={"NCCL_IB_HCA": "=mlx5_0,mlx5_9"},
        setup=RAILS % f"port mlx5_9 {POLLING}; echo MT4119 > tree/infiniband/mlx5_9/hca_type",
        scenario={},
        **ON_4,
    ),
    Fault(
        "a link of InfiniBand that went down 14 times since boot",
        "net.rdma",
        "link-flapped",
        "n1 · mlx5_4 · port 1",
        status="warn",
        exit=0,
        says="mlx5_4:1 link_downed 14",
        setup=RAILS % "for n in 0 1 2 3 4 5 6 7; do "
        "echo $((n == 4 ? 14 : n % 2)) > tree/infiniband/mlx5_$n/ports/1/counters/link_downed; "
        "done",
        scenario={},
        **ON_4,
    ),
    Fault(
        "a link of InfiniBand that makes errors",
        "net.rdma",
        "errors-growing",
        "n1 · mlx5_3 · port 1",
        status="warn",
        exit=0,
        setup=RAILS
        % "(for n in $(seq 1 400); do echo ${n}00 > tree/infiniband/mlx5_3/ports/1/counters/"
        "symbol_error; sleep 0.05; done) > /dev/null 2>&1 &",
        scenario={},
        **ON_4,
    ),
    # as in nccl#378 and nccl#306: RoCE without PFC
    Fault(
        "a port of RoCE that sends packets again all the time",
        *("net.rdma", "retransmissions", "n1 · mlx5_3 · port 1"),
        status="warn",
        exit=0,
        setup=RAILS
        % ROCE_COUNTS
        + "(for n in $(seq 1 400); do echo ${n}00 > $lossy/packet_seq_err; sleep 0.05; done) "
        "> /dev/null 2>&1 &\n",
        scenario={},
        **ON_4,
    ),
    Fault(
        "one HCA of eight has half of its PCIe lanes",
        *("net.rdma", "pcie-downgraded", "n1 · mlx5_3 · port 1"),
        status="warn",
        exit=0,
        setup=RAILS % (PCIE_LINKS + "echo 8 > tree/infiniband/mlx5_3/device/current_link_width"),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a link of InfiniBand that is Active and retrained at this moment",
        *("net.rdma", "errors-growing", "n1 · mlx5_3 · port 1"),
        says="physical LinkErrorRecovery",
        status="warn",
        exit=0,
        setup=RAILS % "echo '6: LinkErrorRecovery' > tree/infiniband/mlx5_3/ports/1/phys_state",
        scenario={},
        **ON_4,
    ),
)

BARE_METAL = """
    sed 's/ hypervisor//' /proc/cpuinfo > bare; mount --bind bare /proc/cpuinfo
"""
TRANSLATED = """
    mount -t tmpfs groups /sys/kernel
    for gpu in 18 28 38 48; do
        mkdir -p /sys/kernel/iommu_groups/$gpu
        echo DMA-FQ > /sys/kernel/iommu_groups/$gpu/type
        ln -s ../../../kernel/iommu_groups/$gpu /sys/bus/pci/devices/0000:$gpu:00.0/iommu_group
    done
"""
PCIE = {"name": "NVIDIA L40S", "topology": 20}

LINKS = (
    Fault(
        "two NVLink lanes of one GPU are down",
        "gpu.links",
        "nvlink-down",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        says="link 4, 7 down",
        scenario={"links": 18, "gpu2.link4.state": 0, "gpu2.link7.state": 0},
        **ON_4,
    ),
    Fault(
        "two of four GPUs lack six NVLink lanes",
        "gpu.links",
        "nvlink-down",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        says="GPU 3: link 0, 1, 2, 3, 4, 5 down, 12 of 18 lanes up",
        scenario={"links": 18}
        | {f"gpu{gpu}.link{link}.state": 0 for gpu in (2, 3) for link in range(6)},
        **ON_4,
    ),
    Fault(
        "a GPU without a lane to its switch",
        "gpu.links",
        "nvlink-down",
        "n1 · GPU 1",
        says="0 of 18",
        scenario={"links": 18, "gpu1.link_state": 0},
        **ON_4,
    ),
    Fault(
        "no P2P between GPUs with NVLink",
        "gpu.links",
        "nvlink-p2p-off",
        "n1 · GPU 3",
        scenario={"links": 18, "gpu3.p2p.0": 5, "gpu3.p2p.1": 5, "gpu3.p2p.2": 5},
        **ON_4,
    ),
    Fault(
        "one pair below a PCIe switch without P2P",
        "gpu.links",
        "p2p-differs",
        "n1 · GPU 0",
        status="warn",
        exit=0,
        setup=BARE_METAL,
        scenario={**PCIE, "gpu0.p2p.1": 1},
        **ON_4,
    ),
    Fault(
        "the IOMMU translates copies over PCIe",
        "gpu.links",
        "p2p-iommu",
        status="warn",
        exit=0,
        setup=BARE_METAL + TRANSLATED,
        scenario=PCIE,
        **ON_4,
    ),
    Fault(
        "NCCL_P2P_LEVEL=SYS with RTX 4090",
        "gpu.links",
        "p2p-unsupported",
        status="warn",
        exit=0,
        env={"NCCL_P2P_LEVEL": "SYS"},
        scenario={"name": "NVIDIA GeForce RTX 4090", "p2p": 1},
        **ON_4,
    ),
    Fault(
        "RTX 4090 with an early driver of branch 525",
        "gpu.links",
        "p2p-misreported",
        "n1 · GPU 0",
        status="warn",
        exit=0,
        scenario={**PCIE, "name": "NVIDIA GeForce RTX 4090", "driver": "525.60.11"},
        **ON_4,
    ),
    Fault(
        "the driver hangs when it is asked for NVLink",
        "gpu.links",
        "links-hang",
        "n1 · GPU 2",
        scenario={"gpu2.hang.nvmlDeviceGetNvLinkState": 1},
        seconds=10,
        **ON_4,
    ),
)

FAULTS = (*GPUS, *LIBRARIES, *SETTINGS, *NET_RDMA, *LINKS, *HEALTH)
