"""Does the GPU driver answer in time, and does every rank see a GPU?

Looks at     NVML (count, name, UUID, PCI address, capability, memory, compute mode and MIG mode of
             every GPU), NVIDIA's GPUs on the PCI bus, /proc/driver/nvidia, /dev/nvidia*,
             CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, the UUIDs of MIG devices where that names
             any, SLURM_GPUS_ON_NODE, NVIDIA_VISIBLE_DEVICES,
             LOCAL_RANK, LOCAL_WORLD_SIZE, the libcuda in LD_LIBRARY_PATH, recent Xids in the
             kernel's log, for a driver that hangs; of AMD's GPUs what KFD lists in /sys, /dev/kfd,
             /dev/dri/renderD*, ROCR_ and HIP_VISIBLE_DEVICES
Fails if     NVML hangs, fails or has another version than the kernel module; its library is empty
             or not exposed to a container that has the devices, or CUDA's is not; a cuda-compat
             library that this driver or these GPUs don't support or one of CUDA's stubs comes first
             in LD_LIBRARY_PATH; a driver is installed, but its module is not loaded; a GPU is lost
             or has an error; there are fewer GPUs than expected (--expect gpus_per_node, SLURM) or
             than ranks (of all MIG instances CUDA shows a process one, of a GPU without any none);
             the mask hides all GPUs of a job that asked for some, or of one node while others show
             theirs, or names MIG instances where MIG is off or one instance for several ranks, or
             devices that are not there, so that too few are left; a GPU that a rank needs is in MIG
             mode without an instance; no GPU has the number LOCAL_RANK; a GPU of the job prohibits
             compute; /dev/nvidia-uvm is missing; a job that asked for GPUs has no permission for
             /dev/kfd or a render node
Warns if     NVML is slow; a GPU that no rank uses is lost; a mask entry names no device and hides
             those after it; every task sees only one GPU; compute mode is exclusive and MPS does
             not run, or its daemon has ended; MIG is on with several ranks; there are GPUs, but no
             driver for them, or no permission to open them; the ranks of a node have to use GPUs of
             several models, or get a smaller one of another model while there are enough alike;
             with several models and no CUDA_DEVICE_ORDER the mask means other GPUs to CUDA than to
             nvidia-smi
Undecided    nvidia-ml-py is not installed; NVML crashes; it has not answered by the end of a quick
             run, and no nvidia-persistenced keeps the GPUs awake; NVIDIA_VISIBLE_DEVICES asks a
             container's runtime for no GPU
Not covered  ECC, clocks, links, other processes; masks of other tasks (agree.env); Intel's GPUs;
             partitions of AMD's. AMD: tested with copied file trees only, not yet on such GPUs
Seen as      "Failed to initialize NVML: Driver/library version mismatch", "GPU is lost", "No
             devices were found", "CUDA error: invalid device ordinal", "no CUDA-capable device is
             detected", "all CUDA-capable devices are busy or unavailable", "Duplicate GPU
             detected", "Failed to initialize NVML: Unknown Error", nvidia-smi that never returns,
             "Unable to open /dev/kfd read-write: Permission denied", "No HIP GPUs are available",
             "CUDA driver is a stub library" (34), "system has unsupported display driver / cuda
             driver combination" (803), "forward compatibility was attempted on non supported HW"
             (804)
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from preflight.check import Check, Context, Scope, Stage, status_of
from preflight.domains import kernel_log
from preflight.domains.gpu import nccl_library, nvml, vendor, xid
from preflight.domains.gpu.commands import AMD_KERNEL_LOG, KERNEL_LOG, REBOOT, RESET
from preflight.domains.gpu.mps import SHARE, MpsDaemon, daemon, share
from preflight.domains.gpu.nvml import DeviceMasks, GpuListing, ListedGpu, PciGpu, VisibleDevices
from preflight.expect import Expect, numbers
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, parties, plural, size
from preflight.model import (
    Blame,
    Cause,
    Command,
    Confidence,
    Device,
    FindingType,
    Found,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)
from preflight.sanitize import encodable

FOLLOWS = ("gpu.*", "world.nccl", "world.bandwidth")

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=30.0,
    quick_budget=8.0,
    drains=True,
    blame=Blame.NODE,
    explains=FOLLOWS,
)

# the rest of the budget is for one call that takes long, and for the way back
ASKING = 0.6
# healthy nodes answer in 0.3 s, with persistence mode off each GPU adds a second or more
SLOW = 2.0

NO_DAEMON = "no nvidia-persistenced"
"""A mark, since it must outlive the observation: without the daemon a slow start is likelier."""

LOG_SECONDS = 0.2
XID, XIDS = re.compile(r"xid ([0-9]{1,4}) ([0-9a-f:.]{7,16})$", re.ASCII), 4
"""A mark for each of the newest critical Xids: its code and the GPU's PCI address. Where NVML hangs
no other check can say what the kernel has logged of it."""

SEARCH_KEPT = 2000
"""Characters kept of LD_LIBRARY_PATH."""
ABSENT = (nvml.NOT_LOADED, nvml.NO_LIBRARY)
NOTHING = "no NVIDIA GPU or driver here"
PROC = "/proc/driver/nvidia"
AMD = vendor.AMD
AMD_MARKS = ("/sys/class/kfd", f"open {vendor.KFD}", f"open {vendor.DRI}")
FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
WAKING = "GPUs that wake slowly because persistence mode is off: nvidia-smi -pm 1"
CROWDED = frozenset(("too-few-gpus", "mask-empty", "mask-invalid", "mig-empty"))
"""Of these MIG is a part or a consequence."""
OWN_MASKS = "every rank has its own mask (torchrun --virtual-local-rank)"

# what can't look either where NVML gives no answer
UNASKED = (
    *("host.software:crashed", "host.software:no-answer", "agree.hardware:crashed"),
    *(
        f"{check}:{code}"
        for check in ("gpu.health", "gpu.links", "gpu.p2p", "gpu.compute", "world.nccl")
        for code in ("crashed", "no-answer", "not-observable", "nvml-crashes", "health-unknown")
    ),
)

FINDINGS = {
    "nvml-crashes": FindingType(
        headline="NVML crashes on {at}: {seen}",
        cause="a libnvidia-ml that does not match the kernel module, or a bug in it",
        means="nvidia-smi crashes as well; whether the job can use the GPUs is unknown",
        text="run nvidia-smi -q there; if it crashes as well, reinstall the driver",
        commands=(Command("nvidia-smi -q", "the node"),),
        status=Status.UNDECIDED,
    ),
    "driver-hangs": FindingType(
        headline="the NVIDIA driver of {at} hangs: {seen}",
        cause="a faulty GPU or a driver that is stuck",
        means="every CUDA program on this node hangs at its start, and so does nvidia-smi",
        text="read the kernel log; if nvidia-smi hangs too, drain the node and reboot it: a GPU "
        "reset will most likely hang as well",
        commands=(KERNEL_LOG, Command("time timeout 60 nvidia-smi -L", "the node"), REBOOT),
        explains=(*FOLLOWS, "host.software"),
    ),
    "driver-mismatch": FindingType(
        headline="the NVIDIA driver of {at} and its library have different versions",
        cause="a driver update without a reboot, or an image that contains its own driver library",
        means="'Failed to initialize NVML: Driver/library version mismatch', CUDA finds no device",
        text="exclude this node; reboot, or unload and load the modules; remove libnvidia-* from "
        "the image",
        commands=(
            Command("cat /proc/driver/nvidia/version; ldconfig -p | grep libnvidia-ml", "the node"),
            REBOOT,
        ),
    ),
    "driver-missing": FindingType(
        headline="the NVIDIA driver of {at} is not loaded: {seen}",
        cause="no NVIDIA driver installed, its module not built for this kernel, or nouveau, the "
        "kernel's own driver, loaded in its place",
        means="'Found no NVIDIA driver on your system'; the job runs on the CPU or not at all",
        text="install the driver; after a kernel update rebuild it with dkms, then load it; keep "
        "nouveau from loading (blacklist nouveau, also in the initramfs)",
        commands=(Command("modprobe nvidia; dmesg -T | tail", "the node, as root"),),
        status=(Status.WARN, Status.FAIL),
    ),
    "gpus-not-exposed": FindingType(
        headline="{at} does not see its GPUs: the container was started without them",
        who="job author",
        cause="a container that was started without its GPUs",
        means="'Found no NVIDIA driver on your system', though the host has one",
        text="expose the GPUs: docker: --gpus all; apptainer: --nv; pod: resources.limits "
        "nvidia.com/gpu; on the host itself: install driver libraries that match the kernel module",
        status=(Status.WARN, Status.FAIL, Status.UNDECIDED),
        blame=Blame.JOB,
        was=("gpus-not-given",),
    ),
    "nvml-not-exposed": FindingType(
        headline="{at} has its GPUs, but not NVML: {seen}",
        who="job author",
        cause="a container whose NVIDIA_DRIVER_CAPABILITIES leaves out utility",
        means="NCCL fails with 'Failed to open libnvidia-ml.so.1'; no nvidia-smi there",
        text="set it to compute,utility where the container is started: docker run -e "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility, ENV of the image, or env of the pod",
        status=(Status.WARN, Status.FAIL),
        blame=Blame.JOB,
    ),
    "cuda-not-exposed": FindingType(
        headline="{at} has its GPUs and NVML, but not CUDA: {seen}",
        who="job author",
        cause="a container whose NVIDIA_DRIVER_CAPABILITIES leaves out compute",
        means="nvidia-smi works, but torch finds no GPU: 'Found no NVIDIA driver on your system'",
        text="set it to compute,utility where the container is started: docker run -e "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility, ENV of the image, or env of the pod",
        commands=(Command("ldconfig -p | grep libcuda.so", "the container"),),
        blame=Blame.JOB,
    ),
    "compat-misplaced": FindingType(
        headline="cuda-compat hides the driver's libcuda on {at}: {seen}",
        who="image author",
        cause="an LD_LIBRARY_PATH in the image with a cuda-compat folder, whatever the node's "
        "driver",
        means="CUDA does not start: error 803 where the driver is newer than that library, 804 on "
        "GPUs other than data-centre ones; torch silently runs on the CPU",
        now="export LD_LIBRARY_PATH={without}",
        text="remove cuda-compat from LD_LIBRARY_PATH: the NVIDIA container toolkit adds it where "
        "it is needed",
        commands=(Command("ls -l {path}; cat /proc/driver/nvidia/version", "the container"),),
        blame=Blame.JOB,
    ),
    "libcuda-stub": FindingType(
        headline="a stub hides the driver's libcuda on {at}: {seen}",
        who="image author",
        cause="an LD_LIBRARY_PATH with CUDA's folder of stubs, which are there for linking only",
        means="'CUDA driver is a stub library' (error 34); torch silently runs on the CPU",
        now="export LD_LIBRARY_PATH={without}",
        text="remove the folder of stubs from LD_LIBRARY_PATH of the image; a build names it with "
        "-L or LIBRARY_PATH",
        commands=(Command("ls -l {path}", "the container"),),
        blame=Blame.JOB,
    ),
    "nvml-unusable": FindingType(
        headline="NVML can't be loaded on {at}: {seen}",
        cause="an empty or wrong libnvidia-ml.so.1: an image committed from a container with GPUs "
        "keeps empty files in place of the driver's",
        means="NCCL fails with 'Failed to open libnvidia-ml.so.1'; no nvidia-smi there",
        text="remove libnvidia-* and libcuda.so* from the image, the container runtime mounts the "
        "driver's; on a host reinstall the driver's libraries",
        commands=(
            Command("ldconfig -p | grep libnvidia-ml; ls -lL /usr/lib*/*/libnvidia-ml*", "there"),
        ),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.UNKNOWN,
    ),
    "no-access": FindingType(
        headline="{at} lost access to its GPUs: {seen}",
        cause="a container that lost its device permissions when systemd was reloaded on the host",
        means="'Failed to initialize NVML: Unknown Error', CUDA finds no device",
        text="restart the container; configure the runtime to use CDI or the cgroupfs driver, or "
        "pass /dev/nvidia* with --device",
        commands=(Command("ls -l /dev/nvidia*", "the container"),),
    ),
    "gpu-permission-denied": FindingType(
        headline="{at} has no permission to open its GPUs: {seen}",
        who="whoever runs this node",
        cause="/dev/nvidiactl and /dev/nvidia* that are open to a group only (often video), and a "
        "user who is not in it",
        means="'Failed to initialize NVML: Insufficient Permissions', CUDA finds no device",
        text="join the group that owns the devices, then log in again; container: --group-add "
        "with its number; or give them their default mode again, 0666 (NVreg_DeviceFileMode of the "
        "module nvidia, udev rules)",
        commands=(
            Command("id; stat -c '%n %a %g %G' /dev/nvidia*", "the node"),
            Command("grep DeviceFile /proc/driver/nvidia/params", "the node"),
        ),
        blame=Blame.JOB,
    ),
    "uvm-missing": FindingType(
        headline="CUDA can't start on {at}: /dev/nvidia-uvm is missing",
        cause="the module nvidia_uvm not loaded, or a container started without its device",
        means="nvidia-smi works, but CUDA fails with 'unknown error' (999)",
        text="load it at boot; in a container pass /dev/nvidia-uvm too",
        commands=(Command("nvidia-modprobe -u -c=0", "the host, as root"),),
    ),
    "gpu-lost": FindingType(
        headline="{at} is lost: {seen}",
        cause="the GPU has fallen off the bus (Xid 79): power, heat, a loose card or the GPU "
        "itself",
        means="'GPU is lost' or 'unspecified launch failure' on one rank, the others wait for it",
        text="drain the node and power-cycle it; if the GPU is lost again, replace it",
        commands=(KERNEL_LOG,),
        status=(Status.FAIL, Status.WARN),
    ),
    "gpu-error": FindingType(
        headline="{at} has an error: {seen}",
        cause="a GPU that needs a reset, lacks power or is failing",
        means="the first CUDA call of one rank fails, the others wait for it",
        text="exclude this node; reset the GPU while nothing uses it, else reboot",
        commands=(RESET,),
    ),
    "gpu-count": FindingType(
        headline="{at} has fewer GPUs than expected: {seen}",
        cause="a GPU that did not come up at boot, or a job that got fewer than it asked for",
        means="'CUDA error: invalid device ordinal' on the last ranks, the others wait for them",
        text="compare lspci with nvidia-smi; request all GPUs from the scheduler or in the pod",
        commands=(
            Command("lspci -d 10de: ; lspci -d 1002: ; ls /dev/nvidia* /dev/dri", "the node"),
        ),
        blame=(Blame.NODE, Blame.JOB),
    ),
    "gpu-model": FindingType(
        headline="{at} is another GPU model than expected: {seen}",
        who="job author",
        cause="a job that landed on another kind of node",
        means="out of memory or 'no kernel image is available', or one slow node",
        text="ask for the model: sbatch --gres=gpu:MODEL:N or --constraint, a pod's nodeSelector",
    ),
    "too-few-gpus": FindingType(
        headline="{at} has more ranks than GPUs: {seen}",
        who="job author",
        cause="more processes than GPUs, or a mask that leaves too few of them visible",
        means="'CUDA error: invalid device ordinal', or 'Duplicate GPU detected' in NCCL",
        text="start no more than {count} of them on this node (torchrun --nproc-per-node=gpu), or "
        "request more GPUs (SLURM: --gpus-per-node); to test on the CPU set CUDA_VISIBLE_DEVICES=",
        blame=Blame.JOB,
    ),
    "mask-empty": FindingType(
        headline="no GPU is visible on {at}: {seen}",
        who="job author",
        cause="CUDA_VISIBLE_DEVICES or a similar variable empty, -1, NoDevFiles, or naming no "
        "device here",
        means="'no CUDA-capable device is detected'; torch silently runs on the CPU",
        now="unset {variable}",
        text="find out what sets {variable}: the job script, the image, a SLURM job without "
        "--gpus, or Ray, for a task or actor without num_gpus",
        status=(Status.FAIL, Status.WARN),
        blame=Blame.JOB,
    ),
    "mask-duplicate": FindingType(
        headline="{variable} on {at} names a GPU twice, so CUDA sees none",
        who="job author",
        cause="two lists that were joined, or one list for all tasks that was extended per task",
        means="'no CUDA-capable device is detected'; torch silently runs on the CPU",
        now="export {variable}={once}",
        text="name every GPU once; start at most one rank per GPU",
        blame=Blame.JOB,
    ),
    "mask-invalid": FindingType(
        headline="{variable} on {at} names devices that do not exist: {seen}",
        who="job author",
        cause="a mask that was written for another node or outside the container",
        means="CUDA ignores everything after the first unknown device",
        text="name only devices that exist here (nvidia-smi -L, amd-smi list)",
        status=(Status.FAIL, Status.WARN),
        blame=Blame.JOB,
    ),
    "mask-order": FindingType(
        headline="{variable} on {at} selects different GPUs in CUDA than in nvidia-smi: {seen}",
        who="job author",
        cause="GPUs of several models, and no CUDA_DEVICE_ORDER: CUDA numbers the fastest first, "
        "nvidia-smi goes by the PCI address",
        means="ranks run on other GPUs than intended, next to another job or out of memory",
        now="export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        text="set CUDA_DEVICE_ORDER=PCI_BUS_ID where the mask is set, or name the GPUs by UUID "
        "(nvidia-smi -L)",
        status=Status.WARN,
        blame=Blame.JOB,
        explains=(),
    ),
    "models-mixed": FindingType(
        headline="ranks on {where} get GPUs of different models: {seen}",
        who="job author",
        cause="GPUs of different models in one machine",
        means="every step takes as long as on the slowest GPU; the smallest memory limits the "
        "batch size of all ranks",
        now="export {variable}={better}",
        text="use GPUs of one model (CUDA_VISIBLE_DEVICES, or --gres=gpu:MODEL:N), or give the "
        "slower ones less work",
        commands=(
            Command("nvidia-smi --query-gpu=index,uuid,name,memory.total --format=csv", "{node}"),
        ),
        status=Status.WARN,
        blame=Blame.JOB,
        explains=(),
    ),
    "mask-per-task": FindingType(
        headline="each task on {at} sees only one GPU, as number 0: {seen}",
        who="job author",
        cause="srun --gpus-per-task or --gpu-bind, which show every task one GPU, as number 0",
        means="'invalid device ordinal' where code uses LOCAL_RANK; no peer-to-peer copies where "
        "cgroups separate the tasks",
        text="request GPUs per node: --gpus-per-node=N --gpu-bind=none; or "
        "torch.cuda.set_device(0), where each task has a different GPU (agree.env compares the "
        "masks)",
        status=Status.WARN,
        blame=Blame.JOB,
    ),
    "compute-mode": FindingType(
        headline="the compute mode of {at} does not allow several processes",
        cause="compute mode PROHIBITED, or EXCLUSIVE_PROCESS: one process per GPU",
        means="'all CUDA-capable devices are busy or unavailable'",
        text="call torch.cuda.set_device(LOCAL_RANK) before anything else uses CUDA, or set the "
        "default mode",
        commands=(Command("nvidia-smi -c DEFAULT", "the node, as root", "nobody"),),
        status=(Status.FAIL, Status.WARN),
    ),
    "mps-share-limited": FindingType(
        headline="MPS gives each rank on {at} {percent} % of its GPU only",
        who="job author",
        cause="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of a job that shares its GPUs, in the environment "
        "of one whose ranks have a GPU each",
        means="no error at all: every kernel gets {percent} % of the GPU's multiprocessors, and "
        "training is slower by as much",
        now="unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        text="unset it for ranks with a GPU of their own; where several share one, set it to what "
        "each of them may use",
        commands=(Command("echo get_server_list | nvidia-cuda-mps-control", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "mps-daemon-gone": FindingType(
        headline="MPS does not run in {folder}, and {at} allows one process only",
        cause="a control daemon of MPS that was ended, crashed, or was never started on this node",
        means="CUDA goes on without MPS and says nothing: the first process gets each GPU, every "
        "other one 'all CUDA-capable devices are busy or unavailable'",
        now="CUDA_MPS_PIPE_DIRECTORY={folder} nvidia-cuda-mps-control -d",
        text="start MPS before the job, or set the default compute mode: ranks with a GPU of their "
        "own each need no MPS",
        commands=(
            Command("echo get_server_list | nvidia-cuda-mps-control", "the node"),
            Command("nvidia-smi -c DEFAULT", "the node, as root", "nobody"),
        ),
        status=Status.WARN,
    ),
    "mig-mode": FindingType(
        headline="{at} is partitioned by MIG",
        who="job author",
        cause="GPUs partitioned into MIG instances",
        means="a process sees one instance only, and NCCL can't connect two instances of one GPU",
        text="request whole GPUs and start one rank per GPU",
        status=Status.WARN,
        blame=Blame.JOB,
    ),
    "local-rank-invalid": FindingType(
        headline="{at} has no GPU of the number LOCAL_RANK: {seen}",
        who="job author",
        cause="LOCAL_RANK taken from the rank in the whole job (RANK, SLURM_PROCID)",
        means="'CUDA error: invalid device ordinal' in torch.cuda.set_device(LOCAL_RANK)",
        text="set LOCAL_RANK to the number of the rank on its node: $SLURM_LOCALID, "
        "$OMPI_COMM_WORLD_LOCAL_RANK; torchrun sets it by itself",
        blame=Blame.JOB,
        explains=(*FOLLOWS, "env.identity:local-rank-differs"),
    ),
    "mig-empty": FindingType(
        headline="{at} is in MIG mode without an instance: {seen}",
        who="cluster administrator",
        cause="MIG switched on and never divided, or left on by an earlier job",
        means="CUDA leaves that GPU out and renumbers the others: 'invalid device ordinal' on "
        "the last rank",
        text="switch MIG off, which takes a reset of the GPU, or create instances for a job that "
        "uses them",
        commands=(
            Command("nvidia-smi mig -lgi", "{node}, as root"),
            Command("nvidia-smi -i {empty} -mig 0", "{node}, as root, with nothing running there"),
        ),
        blame=Blame.JOB,
    ),
    "nvml-slow": FindingType(
        headline="the GPUs of {at} answer slowly: {seen}",
        cause="persistence mode off: the driver initialises every GPU again on each use",
        means="every process spends seconds in its first CUDA call, the slowest rank delays all",
        text="start nvidia-persistenced at boot; where there was no answer, re-run with more time",
        commands=(
            Command("nvidia-smi -pm 1", "the node, as root"),
            Command("preflight run --only gpu.visible --timeout gpu.visible=40s", "the node"),
        ),
        status=(Status.WARN, Status.UNDECIDED),
    ),
    # AMD
    "amdgpu-hangs": FindingType(
        headline="the AMD driver of {at} hangs: {seen}",
        cause="a faulty GPU, or one that is being reset and does not come back",
        means="every HIP program on this node hangs at its start, and so does amd-smi",
        text="drain the node and reboot it",
        commands=(AMD_KERNEL_LOG, REBOOT),
        explains=(*FOLLOWS, "host.software"),
    ),
    "amdgpu-missing": FindingType(
        headline="the AMD driver of {at} is not loaded: {seen}",
        cause="the module amdgpu not loaded, or not built for this kernel",
        means="'No HIP GPUs are available'; the job runs on the CPU or not at all",
        text="install the driver; after a kernel update rebuild it with dkms, then load it",
        commands=(Command("modprobe amdgpu; dmesg -T | tail", "the node, as root"),),
        status=Status.WARN,
    ),
    "kfd-not-exposed": FindingType(
        headline="{at} does not see its GPUs: the container was started without them",
        who="job author",
        cause="a container that was started without its GPUs, or with only part of their devices",
        means="'No HIP GPUs are available', though the host has them",
        text="expose the GPUs: docker: --device=/dev/kfd --device=/dev/dri --group-add video "
        "--group-add render; apptainer: --rocm; pod: resources.limits amd.com/gpu",
        status=(Status.FAIL, Status.WARN),
        blame=Blame.JOB,
        was=("kfd-not-given",),
    ),
    "kfd-permission-denied": FindingType(
        headline="{at} has no permission to open its GPUs: {seen}",
        who="job author",
        cause="a user who is not in the groups video and render, on the host or inside the "
        "container, where a group may have a different number",
        means="'Unable to open /dev/kfd read-write: Permission denied', HIP finds no device",
        text="join the groups video and render; container: --group-add with the number of the "
        "group that owns the device; host: ask the administrator for both groups, then log in "
        "again",
        commands=(
            Command("id; stat -c '%n %a %g %G' /dev/kfd /dev/dri/renderD*", "where the job runs"),
            Command("usermod -a -G video,render USER", "the host, as root"),
        ),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.JOB,
        was=("kfd-refused",),
    ),
}


@dataclass(frozen=True, slots=True)
class Visible:
    """What there is of GPUs here. None: nothing says so.

    module     version of the loaded kernel module, empty: none
    withheld   GPUs on the bus that others may have, but not this process
    unlisted   GPUs on the bus that it may open, but that NVML doesn't list
    nodes      names in /dev that begin with nvidia; libraries: libnvidia-ml.so.* (on mismatch)
    mask       CUDA_VISIBLE_DEVICES; image: NVIDIA_VISIBLE_DEVICES; slurm: SLURM_GPUS_ON_NODE
    tasks      processes that srun or mpirun started here, each with an environment of its own
    make       the vendor. AMD: answer.code is an errno; nodes are render nodes of /dev/dri;
               mask_name and first: see kfd.masks()
    capabilities  NVIDIA_DRIVER_CAPABILITIES: what of the driver a container is given
    no_cuda    they leave out CUDA, and no libcuda lies where the linker looks
    driver_library  a libcuda before the driver's own, and its version: see nvml.cuda_driver();
               search: LD_LIBRARY_PATH without its folder
    image_empty  NVIDIA_VISIBLE_DEVICES is set, to nothing
    order      CUDA_DEVICE_ORDER
    local      LOCAL_RANK and LOCAL_WORLD_SIZE of a rank that is started already; local_rank: the
               first of them, whatever the other is
    mps        NVIDIA's MPS runs here, or the job says where it will: its server alone holds the
               GPUs, for all programs; mps_daemon: where, and what is wrong there; share: the
               percentage of a GPU that MPS gives a program of this environment
    """

    answer: GpuListing
    module: str
    pci: tuple[PciGpu, ...]
    withheld: int
    unlisted: tuple[PciGpu, ...]
    nodes: tuple[str, ...]
    makes_nodes: bool
    libraries: tuple[str, ...]
    mask: str | None
    image: str
    slurm: int | None
    tasks: int
    make: str = vendor.NVIDIA
    mask_name: str = "CUDA_VISIBLE_DEVICES"
    first: str | None = None
    mps: bool = False
    mps_daemon: MpsDaemon | None = None
    share: float = 100.0
    capabilities: str = ""
    no_cuda: bool = False
    image_empty: bool = False
    local: tuple[int, int] | None = None
    local_rank: int | None = None
    driver_library: tuple[str, str] = ("", "")
    search: str = ""
    order: str = ""


def observe(host: Host, ctx: Context) -> Visible:
    # the driver answers for its files in /proc and may hang there as well
    ctx.mark(PROC if host.exists(PROC) else "/sys/bus/pci")
    make = vendor.detect(host)
    pci, module = make.gpus_on_pci(host), make.module_version(host)
    slurm = nvml.env_number(host.environ, "SLURM_GPUS_ON_NODE")
    if not (host.live or pci or module):
        raise NotApplicable(NOTHING)
    of_nvidia = make.NAME == vendor.NVIDIA
    if of_nvidia and not any(
        host.exists(f"{run}/nvidia-persistenced/socket") for run in ("/run", "/var/run")
    ):
        ctx.mark(NO_DAEMON)
    if of_nvidia and pci:
        ctx.mark(kernel_log.KMSG)
        for one in xid.recent_critical(host, LOG_SECONDS)[-XIDS:]:
            ctx.mark(f"xid {one.code} {one.bus}")
    answer = make.list_gpus(host, ctx.mark, ASKING * ctx.seconds)
    if of_nvidia and answer.code in ABSENT and not (pci or module or slurm):
        raise NotApplicable(NOTHING)
    withheld, unlisted = (0, ()) if answer.code else make.not_listed(host, ctx.mark, answer, pci)
    # a folder that the job names: no fault of the driver's where that hangs
    ctx.mark("folder of MPS")
    mps = daemon(host) if of_nvidia else None
    masks = make.masks(host.environ)
    capabilities = nvml.env_text(host.environ, "NVIDIA_DRIVER_CAPABILITIES") or ""
    without = of_nvidia and bool(capabilities) and not _names(capabilities) & {"compute", "all"}
    ctx.mark(nccl_library.SEARCH)
    driver_library = nvml.cuda_driver(host) if of_nvidia and module else ("", "")
    folder, prefix = ("/dev", "nvidia") if of_nvidia else (vendor.DRI, "renderD")
    return Visible(
        answer=answer,
        module=module,
        pci=pci,
        withheld=withheld,
        unlisted=unlisted,
        nodes=tuple(n for n in host.listdir(folder) if n.startswith(prefix))[:256],
        # libcuda calls it (setuid) for the device nodes that it lacks
        makes_nodes=host.exists("/usr/bin/nvidia-modprobe"),
        libraries=nvml.libraries(host) if of_nvidia and answer.code == nvml.MISMATCH else (),
        mask=masks.mask,
        image=nvml.env_text(host.environ, "NVIDIA_VISIBLE_DEVICES") or "",
        slurm=slurm,
        tasks=_tasks(host.environ),
        make=make.NAME,
        mask_name=masks.name,
        first=masks.first,
        mps=mps is not None and not mps.problem,
        mps_daemon=mps,
        share=share(host.environ),
        capabilities=capabilities,
        no_cuda=without and not nccl_library.libraries(host, "libcuda.so.1"),
        image_empty=host.environ.get("NVIDIA_VISIBLE_DEVICES") == "",
        # a run that starts ranks of its own says itself how many
        local=_local(host.environ) if ctx.local_world_size == 1 else None,
        local_rank=_local_rank(host.environ) if ctx.local_world_size == 1 else None,
        driver_library=driver_library,
        search=_search_path_without(host, driver_library[0]),
        order=(nvml.env_text(host.environ, "CUDA_DEVICE_ORDER") or "")[:40],
    )


def _search_path_without(host: Host, library: str) -> str:
    """LD_LIBRARY_PATH less the folder of a library."""
    folders = host.environ.get(nccl_library.SEARCH, "")[:SEARCH_KEPT].split(":") if library else []
    kept = [f for f in folders if f.rstrip("/") != library.rpartition("/")[0]]
    return encodable(":".join(kept))


def _local(environ: Mapping[str, str]) -> tuple[int, int] | None:
    rank, size = _local_rank(environ), nvml.env_number(environ, "LOCAL_WORLD_SIZE")
    return None if rank is None or size is None or rank >= size else (rank, size)


def _local_rank(environ: Mapping[str, str]) -> int | None:
    if any(not environ.get(name) for name in ("RANK", "WORLD_SIZE")):
        return None
    return nvml.env_number(environ, "LOCAL_RANK")


def _names(capabilities: str) -> set[str]:
    return {word.strip() for word in capabilities.split(",")}


def _tasks(environ: Mapping[str, str]) -> int:
    """How many processes of this node have an environment of their own; 0 when nothing says so.
    What torchrun starts shares its."""
    shared = "TORCHELASTIC_RUN_ID" in environ
    said = 0 if shared else nvml.env_number(environ, "LOCAL_WORLD_SIZE") or 0
    return max(nvml.tasks_here(environ), said)


def judge(world: World[Visible], expect: Expect) -> Iterator[Found]:
    yield from _hangs(world)
    wanted = int(expect.number("gpus_per_node") or 0)
    source = expect.source("gpus_per_node") or "SLURM_GPUS_ON_NODE"
    for key, missing in world.missing(Cause.NOT_APPLICABLE).items():
        if wanted:
            goal = f"{plural(wanted, 'GPU')} ({source})"
            yield Found("gpu-count", (world.subject(key),), missing.detail, goal)
    for here, seen in world.each():
        asked = wanted or seen.slurm or 0
        if seen.answer.code:
            no_answer = _no_answer_of_amd if seen.make == AMD else _no_answer
            yield from no_answer(here, seen, asked > 0)
            continue
        mask = vendor.visible_devices(
            DeviceMasks(mask=seen.mask, first=seen.first), _uuids(seen.answer)
        )
        apart = _own_gpu_per_task(seen, len(mask.indexes))
        gpus = _subject_of_gpu(here, mask, apart)
        faults = [*_lost_gpus(here, seen, mask, gpus)]
        # a GPU too few is what a lost one looks like, a rank without one what a GPU too few is
        if not _any_failure(faults):
            faults += _too_few_gpus(here, seen, asked, f"{plural(asked, 'GPU')} ({source})", apart)
        if not _any_failure(faults) and seen.answer.count:
            faults += _mask_faults(world, here, seen, mask, apart, asked > 0)
        if not (_any_failure(faults) or apart or mask.mig or mask.off):
            faults += _no_gpu_of_that_number(here, seen, mask)
        yield from faults
        if not _any_failure(faults) and not expect.text("gpu_model"):
            yield from _several_models(here, seen, mask, apart, gpus)
        crowded = any(found.code in CROWDED for found in faults)
        for found in _compute_and_mig_modes(here, seen, mask, gpus):
            if not (crowded and found.code == "mig-mode"):
                yield found
        yield from _surroundings(here, seen)
        if seen.answer.count and not mask.off:
            yield from _driver_library(here, seen)
        model = expect.text("gpu_model") or ""
        named = [g for g in seen.answer.gpus if model and g.name]
        if odd := [g for g in named if model.casefold() not in g.name.casefold()]:
            saw = ", ".join(sorted({g.name for g in odd}))
            goal = f"{model} ({expect.source('gpu_model')})"
            yield Found("gpu-model", tuple(gpus(g.index) for g in odd), saw, goal)


def _using(world: World[Visible]) -> Set[str]:
    """The nodes of the job that do see GPUs."""
    return {here.node for here, seen in world.each() if _uses_gpus(seen)}


def _uses_gpus(seen: Visible) -> bool:
    """Whether the job's processes see GPUs there."""
    if seen.answer.code or not seen.answer.count:
        return False
    masks = DeviceMasks(mask=seen.mask, first=seen.first)
    return bool(vendor.visible_devices(masks, _uuids(seen.answer)).indexes)


def _any_failure(findings: Sequence[Found]) -> bool:
    return any(status_of(FINDINGS, finding) is FAIL for finding in findings)


def _hangs(world: World[Visible]) -> Iterator[Found]:
    causes = (Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED)
    for key, missing in world.missing(*causes).items():
        last = missing.marks[-1] if missing.marks else None
        of_nvml = ("nvml", "device ")
        of_nvidia = (PROC, *of_nvml, "open /dev/nvidia")
        if last is None or not last.name.startswith((*of_nvidia, *AMD_MARKS)):
            continue  # it was not the driver that took the time
        if missing.cause is Cause.CRASHED:
            if last.name.startswith(of_nvml) and "Traceback" not in missing.detail:
                yield _crashed(world.subject(key), last.name, missing.detail)
            continue
        of_amd = any(mark.name.startswith(AMD_MARKS) for mark in missing.marks)
        unkillable = missing.cause is Cause.UNKILLABLE
        waking = last.name.startswith(of_nvml) and missing.seconds < nvml.SLOWEST_INIT
        daemon = of_amd or not any(mark.name == NO_DAEMON for mark in missing.marks)
        facts = [f"{last.name} did not return in {duration(max(0, missing.seconds - last.at))}"]
        facts += ["SIGKILL has no effect"] * unkillable
        facts += [line[:160] for line in missing.detail.strip().splitlines()[-1:]]  # after a stack
        failed = sorted(
            {(told[2], int(told[1])) for m in missing.marks if (told := XID.match(m.name))}
        )
        facts += [
            f"Xid {code} ({xid.CRITICAL.get(code, 'critical')}) of GPU {bus}"
            for bus, code in failed
        ]
        if waking and not (daemon or unkillable or failed):
            yield Found(
                "nvml-slow",
                (_driver(world.subject(key)),),
                f"{facts[0]} · nvidia-persistenced is not running",
                f"an answer; without persistence mode within {duration(nvml.SLOWEST_INIT)}",
                status=Status.UNDECIDED,
                confidence=Confidence.POSSIBLE,
                alternatives=("a driver that hangs",),
                explains=UNASKED,
            )
            continue
        buses = sorted({bus for bus, _ in failed})
        sure = (unkillable and daemon) or bool(failed)
        yield Found(
            "amdgpu-hangs" if of_amd else "driver-hangs",
            (
                _driver(world.subject(key), AMD if of_amd else vendor.NVIDIA),
                *(Subject(Kind.GPU, world.subject(key).node, bus) for bus in buses),
            ),
            " · ".join(facts),
            "an answer in less than 1 s",
            confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
            alternatives=() if daemon or failed else (WAKING,),
        )


def _crashed(here: Subject, call: str, detail: str) -> Found:
    """NVML took its caller with it: NVIDIA's fault, whatever else asks NVML dies alike."""
    why = (detail.strip().splitlines() or ["it died"])[-1][:160]
    return Found(
        "nvml-crashes",
        (_driver(here),),
        f"{call}: {why}",
        "an answer, or an error code",
        explains=UNASKED,
    )


def _driver(here: Subject, make: str = vendor.NVIDIA) -> Subject:
    return replace(here, kind=Kind.SOFTWARE, name=f"{make} driver")


def _no_answer(here: Subject, seen: Visible, wanted: bool) -> Iterator[Found]:
    """NVML could not start. A container on a GPU node that was meant to have none stays silent."""
    code, status, lost = "no-access", FAIL, False
    saw = f"nvmlInit: {seen.answer.text} ({seen.answer.code})"
    saw += f" · kernel module {seen.module or 'not loaded'}"
    if seen.answer.code == nvml.MISMATCH:
        code = "driver-mismatch"
        saw += "".join(f" · {name}" for name in seen.libraries)
    elif seen.answer.code == nvml.NO_PERMISSION:
        code = "gpu-permission-denied"
    elif seen.answer.code in ABSENT and not seen.module:
        # what vfio-pci holds was handed to a virtual machine
        own = sum(gpu.driver != "vfio-pci" for gpu in seen.pci)
        # its libraries are there: a driver was installed, and no module was built for this kernel
        # (with nouveau in its place the machine may be meant to have none)
        unheld = any(gpu.driver not in ("vfio-pci", "nouveau") for gpu in seen.pci)
        lost = unheld and seen.answer.code == nvml.NOT_LOADED
        code, status = "driver-missing", FAIL if wanted or lost else WARN
        saw += f" · {plural(own, 'NVIDIA GPU')} on the PCI bus"
        nouveau = sum(gpu.driver == "nouveau" for gpu in seen.pci)
        saw += f", nouveau has {nouveau}" if nouveau else ""
        if not (own or wanted):
            return
    elif seen.answer.code == nvml.NO_LIBRARY and (code := _library_fault(seen)):
        # NCCL asks NVML, a single rank may do without
        status = FAIL if wanted or len(here.ranks) > 1 else WARN
        if seen.capabilities:
            saw += f" · NVIDIA_DRIVER_CAPABILITIES={seen.capabilities[:80]!r}"
    elif seen.answer.code in ABSENT:
        code, status = "gpus-not-exposed", FAIL if wanted else WARN
        given = "nvidiactl" in seen.nodes
        saw += f" · /dev/nvidiactl is {'there' if given else 'not there'}"
        if seen.image or seen.image_empty:
            saw += f" · NVIDIA_VISIBLE_DEVICES={seen.image[:80]!r}"
        if not (wanted or given or seen.image not in ("", "void", "none")):
            if not (seen.image or seen.image_empty):
                return
            # the runtime was told to give none: a job that needs no GPU is told so, too
            status = UNDECIDED
    certain = code == "driver-mismatch" or (code == "driver-missing" and lost)
    sure = Confidence.CERTAIN if certain else Confidence.LIKELY
    found = Found(code, (_driver(here),), saw, status=status, confidence=sure)
    yield found.with_(explains=UNASKED) if status is UNDECIDED else found


def _library_fault(seen: Visible) -> str:
    """What is wrong with libnvidia-ml alone, where the devices are there; empty: nothing is."""
    if "nvidiactl" not in seen.nodes:
        return ""
    if "No such file" not in seen.answer.text:
        return "nvml-unusable"
    without = seen.capabilities and not _names(seen.capabilities) & {"utility", "all"}
    return "nvml-not-exposed" if without else ""


def _no_answer_of_amd(here: Subject, seen: Visible, wanted: bool) -> Iterator[Found]:
    """HIP will not start. The same silence where no GPU was meant to be here."""
    status, saw = FAIL if wanted else WARN, seen.answer.text
    if not seen.module:
        own = sum(gpu.driver != "vfio-pci" for gpu in seen.pci)
        code = "amdgpu-missing"
        saw += f" · {plural(own, 'AMD GPU')} on the PCI bus"
        if not (own or wanted):
            return
    elif seen.answer.code == errno.EACCES:
        code = "kfd-permission-denied"
    else:
        code = "kfd-not-exposed"
        saw += f" · {plural(seen.answer.count, 'GPU')} could be opened in {vendor.DRI}"
        if not (wanted or seen.answer.count):
            return
    likely = Confidence.LIKELY
    yield Found(code, (_driver(here, AMD),), saw, status=status, confidence=likely)


def _uuids(answer: GpuListing) -> tuple[str, ...]:
    """By index; empty for a GPU that was not asked or has none."""
    uuids = {gpu.index: gpu.uuid for gpu in answer.gpus}
    return tuple(uuids.get(index, "") for index in range(answer.count))


def _own_gpu_per_task(seen: Visible, visible: int) -> bool:
    """Whether every task may have its own share of the GPUs: the mask and the devices that we see
    are then those of the first task only."""
    there = max(seen.slurm or 0, len(seen.pci), seen.answer.count)
    return seen.tasks > 1 and 0 < visible * seen.tasks <= there


def _subject_of_gpu(here: Subject, mask: VisibleDevices, apart: bool) -> Callable[[int], Subject]:
    """Index of a GPU -> the GPU, with its rank where every local rank has one: cuda:LOCAL_RANK."""

    def subject(index: int) -> Subject:
        users: dict[int, tuple[int, ...]] = {}
        if not apart and len(here.ranks) <= len(mask.indexes):
            # zip: more GPUs than ranks are no fault
            users = {i: (r,) for i, r in zip(mask.indexes, sorted(here.ranks), strict=False)}
        return Subject(Kind.GPU, here.node, f"GPU {index}", users.get(index, ()))

    return subject


def _lost_gpus(
    here: Subject, seen: Visible, mask: VisibleDevices, gpus: Callable[[int], Subject]
) -> Iterator[Found]:
    """GPUs that NVML can't talk to, and those on the bus that it leaves out."""
    for gpu in seen.answer.gpus:
        if gpu.error and gpu.error != nvml.NO_PERMISSION:
            used = mask.mig or gpu.index in mask.indexes
            certain = gpu.error in (nvml.LOST, nvml.RESET)
            yield Found(
                "gpu-lost" if gpu.error == nvml.LOST else "gpu-error",
                (gpus(gpu.index),),
                f"NVML says {gpu.text!r} ({gpu.error})" + (f" · {gpu.bus}" if gpu.bus else ""),
                status=FAIL if used else WARN,
                confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
                fields={"index": str(gpu.index)},
            )
    if len(seen.answer.gpus) < seen.answer.count:
        return  # not all were asked: who is not listed can't be said
    if seen.slurm and seen.answer.count == seen.slurm:
        return  # a step that was given some of the node's GPUs sees these alone
    # a GPU without an address is one of those that seem unlisted
    nameless = sum(not gpu.bus for gpu in seen.answer.gpus)
    for lost in seen.unlisted[nameless:]:
        yield Found(
            "gpu-lost",
            (Subject(Kind.GPU, here.node, lost.bus),),
            f"{lost.bus} ({lost.model}) is on the PCI bus as /dev/nvidia{lost.minor}, but NVML "
            f"lists {plural(seen.answer.count, 'other GPU')} only",
            confidence=Confidence.LIKELY,
        )


def _too_few_gpus(here: Subject, seen: Visible, asked: int, goal: str, apart: bool) -> list[Found]:
    count = seen.answer.count
    if count >= asked or apart:
        return []
    lists = "KFD" if seen.make == AMD else "NVML"
    saw = f"{lists} lists {plural(count, 'GPU')} · {len(seen.pci)} on the PCI bus"
    saw += f" · {seen.withheld} of them not given to this process" if seen.withheld else ""
    held, alternatives = _held_by_others(seen, asked - count)
    return [
        Found(
            "gpu-count",
            (here,),
            saw + held,
            goal,
            blame=Blame.JOB if seen.withheld else None,
            alternatives=alternatives,
        )
    ]


def _no_gpu_of_that_number(here: Subject, seen: Visible, mask: VisibleDevices) -> list[Found]:
    """A rank whose LOCAL_RANK is more than any mask of this node could show. Whoever has a mask of
    its own of a larger node has cuda:0 alone, and most likely uses that."""
    there = max(seen.answer.count, len(seen.pci))
    if seen.local_rank is None or seen.local_rank < there or not mask.indexes:
        return []
    saw = f"LOCAL_RANK={seen.local_rank}, {len(mask.indexes)} of {plural(there, 'GPU')} visible"
    goal = f"LOCAL_RANK below {there}"
    return [Found("local-rank-invalid", (here,), saw, goal, confidence=Confidence.LIKELY)]


def _held_by_others(seen: Visible, lacking: int) -> tuple[str, tuple[str, ...]]:
    """The GPUs on the bus that another driver than NVIDIA's holds, in words; and what may be wrong
    then, where they are as many as are lacking."""
    listed = {gpu.bus for gpu in seen.answer.gpus}
    held = [g for g in seen.pci if g.driver not in ("", "nvidia", "amdgpu") and g.bus not in listed]
    if not held or seen.make == AMD:
        return "", ()
    drivers = parties(sorted({gpu.driver for gpu in held}))
    saw = f" · {parties([gpu.bus for gpu in held])} held by {drivers}"
    theirs = f"the GPUs that {held[0].driver} holds are meant for this job: bind them to nvidia"
    return saw, (theirs,) * (len(held) >= lacking)


def _mask_faults(
    world: World[Visible],
    here: Subject,
    seen: Visible,
    mask: VisibleDevices,
    apart: bool,
    wanted: bool,
) -> list[Found]:
    """Fewer devices visible than ranks, or than the mask means to show."""
    # CUDA leaves out what this process may not open: a container that lacks one of the devices
    closed = [g.index for g in seen.answer.gpus if g.error == nvml.NO_PERMISSION]
    shut = [index for index in mask.indexes if index in closed]
    cut = [g for g in seen.answer.gpus if g.mig and g.index in mask.indexes and not apart]
    # without an instance a GPU in MIG mode is none to CUDA; of all instances it enumerates one
    ghosts = [g.index for g in cut if g.instances == 0 and g.index not in shut]
    others_cut = sum(g.instances != 0 and g.index not in shut for g in cut)
    visible = len(mask.indexes) - len(shut) - len(ghosts) - max(0, others_cut - 1)
    met = len(here.ranks)
    ranks = max(met, seen.local[1] if seen.local else 0)
    status, confidence = FAIL, Confidence.CERTAIN
    alternatives: tuple[str, ...] = ()
    others: Sequence[str] = ()
    subjects: tuple[Subject, ...] = (here,)
    problem, held = mask.problem, ""
    if shut and ranks > visible:
        confidence = Confidence.LIKELY
        problem = problem or f"no permission to open GPU {', '.join(map(str, shut[:8]))}"
    if cut and ranks > visible:
        named = ghosts or [gpu.index for gpu in cut]
        how = " without an instance" if ghosts else ", of which CUDA shows one instance"
        problem = problem or f"GPU {', '.join(map(str, named[:8]))} in MIG mode{how}"
    unknown = _unknown_instance(seen) if mask.mig else None
    if mask.mig:
        if all(gpu.mig is False for gpu in seen.answer.gpus):
            problem = "MIG is off on all GPUs"
        elif unknown is not None:
            # CUDA enumerates one instance for a process (MIG User Guide)
            visible = int(unknown[0] > 0)
            problem = f"no MIG device here is {unknown[1]!r}"
            confidence = Confidence.LIKELY
        else:
            visible, problem = 1, "a process sees one MIG instance only"
        if seen.tasks > 1 and visible:
            return []
    if ranks <= visible and not mask.problem and unknown is None:
        return []
    if shut and not visible and not mask.problem:
        return []  # who may open none of them was given none
    if mask.once:
        code = "mask-duplicate"
    elif not visible and not ghosts:
        code, others = "mask-empty", sorted(world.once(_using) - {here.node})
        if mask.off and not wanted:  # who wants no GPU says so this way, and on all nodes
            status, confidence = FAIL if others else WARN, Confidence.LIKELY
    elif ranks <= visible:
        code, status = "mask-invalid", WARN
    elif apart:
        code, status, confidence = "mask-per-task", WARN, Confidence.LIKELY
    elif mask.problem and not cut and ranks <= seen.answer.count - len(closed):
        code = "mask-invalid"
    elif ghosts and not mask.problem and ranks <= visible + len(ghosts):
        code, confidence, problem = "mig-empty", Confidence.LIKELY, ""
        subjects = tuple(Subject(Kind.GPU, here.node, f"GPU {index}") for index in ghosts)
    else:
        code = "too-few-gpus"
        held, alternatives = _held_by_others(seen, ranks - visible)
        if seen.slurm and seen.slurm < ranks:
            held += f" · SLURM_GPUS_ON_NODE={seen.slurm}"
        if visible == 1 and (mask.mig or seen.answer.count >= ranks):
            confidence, alternatives = Confidence.LIKELY, (OWN_MASKS, *alternatives)
        elif cut:
            confidence = Confidence.LIKELY
    what = "1 MIG instance" if mask.mig and visible else ""
    what = what or f"{visible} of {plural(seen.answer.count, 'GPU')}"
    saw = f"{what} visible, {plural(ranks, 'rank')} here"
    if seen.local and ranks > met:
        saw += f" by LOCAL_WORLD_SIZE · LOCAL_RANK={seen.local[0]}"
        if code == "too-few-gpus":
            confidence = Confidence.LIKELY
            alternatives += ("LOCAL_WORLD_SIZE is left over from another launch",)
    saw += "" if seen.first is None else f" · ROCR_VISIBLE_DEVICES={seen.first[:80]!r}"
    saw += "" if seen.mask is None else f" · {seen.mask_name}={seen.mask[:80]!r}"
    if seen.mask is None and seen.image not in ("", "all", "void", "none"):
        saw += f" · NVIDIA_VISIBLE_DEVICES={seen.image[:80]!r}"
    saw += f": {problem}" if problem else ""
    saw += held
    saw += f" · {parties(others)} {'sees' if len(others) == 1 else 'see'} GPUs" if others else ""
    by_first = seen.mask is None and seen.first is not None
    return [
        Found(
            code,
            subjects,
            saw,
            status=status,
            confidence=confidence,
            alternatives=alternatives,
            fields={
                "count": str(visible),
                "empty": ",".join(map(str, ghosts)),
                "node": here.node,
                "variable": "ROCR_VISIBLE_DEVICES" if by_first else seen.mask_name,
                # a list that is too short for the ranks is nothing to paste
                "once": ",".join(map(str, mask.once)) if len(mask.once) >= ranks else "",
            },
        )
    ]


def _unknown_instance(seen: Visible) -> tuple[int, str] | None:
    """The first entry of a mask of MIG devices that names none of this node's, and its place in
    the mask; None where each names one, or the driver does not tell the names of all."""
    gpus = seen.answer.gpus
    told = [gpu.mig_names for gpu in gpus if gpu.mig is not False]
    if len(gpus) < seen.answer.count or any(gpu.error for gpu in gpus) or None in told:
        return None
    names = [name.lower() for of_gpu in told for name in of_gpu or ()]
    for place, entry in enumerate(each.strip() for each in (seen.mask or "").split(",")):
        if entry in ("", "-1"):
            return None  # the end of the list
        if not any(name.startswith(entry.lower()) for name in names):
            return place, entry[:80]
    return None


def _several_models(
    here: Subject,
    seen: Visible,
    mask: VisibleDevices,
    apart: bool,
    gpus: Callable[[int], Subject],
) -> Iterator[Found]:
    """GPUs of several models, where the ranks have to use them, or where CUDA may take the mask
    for others of them. A display card beside GPUs of one model is neither."""
    listed = [gpu for gpu in seen.answer.gpus if gpu.name and not gpu.error and not gpu.mig]
    if len(listed) < seen.answer.count or len({gpu.name for gpu in listed}) < 2:
        return
    ours = listed if apart else [gpu for gpu in listed if gpu.index in mask.indexes]
    by_address = apart or seen.make == AMD or seen.order == nvml.BY_ADDRESS
    if not by_address and _by_index(seen.mask):
        # "fastest to slowest using a simple heuristic" (CUDA C++ Programming Guide): the newer
        # architecture, of these the larger card
        fastest = sorted(
            listed, key=lambda g: (*(-n for n in numbers(g.capability)), -(g.memory or 0))
        )
        by_speed = [fastest[index] for index in mask.indexes]
        if Counter(gpu.name for gpu in by_speed) != Counter(gpu.name for gpu in ours):
            yield Found(
                "mask-order",
                (here,),
                f"{seen.mask_name}={(seen.mask or '')[:80]!r} is {_models(ours)} by PCI address, "
                f"and {_models(by_speed)} if the fastest come first",
                "CUDA_DEVICE_ORDER=PCI_BUS_ID where the models differ",
                confidence=Confidence.POSSIBLE,
                alternatives=("the mask was written for CUDA's own order",),
                fields={"variable": seen.mask_name},
            )
            return
    models = Counter(gpu.name for gpu in ours).most_common()
    if len(models) < 2:
        return
    most = max(models, key=lambda m: (m[1], max(g.memory or 0 for g in ours if g.name == m[0])))[0]
    alike = [gpu for gpu in ours if gpu.name == most]
    odd, better = [gpu for gpu in ours if gpu.name != most], ""
    if len(here.ranks) <= len(alike):
        # enough of one model: what matters is whom the ranks get, cuda:LOCAL_RANK. In CUDA's own
        # order the slower ones come last
        taken = mask.indexes[: len(here.ranks)]
        odd = [g for g in odd if g.index in taken and (g.memory or 0) < (alike[0].memory or 0)]
        # another order numbers them differently: nothing to paste
        better = ",".join(str(gpu.index) for gpu in alike) if by_address else ""
        in_order = by_address or (seen.mask is not None and not _by_index(seen.mask))
        if apart or not odd or not in_order:
            return
    yield Found(
        "models-mixed",
        tuple(gpus(gpu.index) for gpu in odd),
        f"{_models(ours)} for {plural(len(here.ranks), 'rank')}"
        + "".join(f" · GPU {g.index} is {g.name.removeprefix('NVIDIA ')}" for g in odd[:4]),
        "GPUs of one model for the ranks of a job",
        fields={"node": here.node, "better": better, "variable": seen.mask_name},
    )


def _by_index(mask: str | None) -> bool:
    return mask is not None and not mask.strip().startswith(("GPU-", "MIG-"))


def _models(gpus: Sequence[ListedGpu]) -> str:
    """`3 x H100 80GB HBM3 80 GiB, 1 x A100-PCIE-40GB 40 GiB`."""
    kinds = Counter((gpu.name.removeprefix("NVIDIA "), gpu.memory) for gpu in gpus)
    return ", ".join(
        f"{count} x {name}" + (f" {size(memory)}" if memory else "")
        for (name, memory), count in kinds.most_common(4)
    )


def _compute_and_mig_modes(
    here: Subject, seen: Visible, mask: VisibleDevices, gpus: Callable[[int], Subject]
) -> Iterator[Found]:
    ours = [g for g in seen.answer.gpus if mask.mig or g.index in mask.indexes]
    several = len(here.ranks) > 1
    likely = Confidence.LIKELY

    def on(those: list[ListedGpu]) -> tuple[tuple[Subject, ...], str]:
        numbers = ", ".join(str(g.index) for g in those)
        return tuple(gpus(g.index) for g in those), f"on GPU {numbers}"

    if barred := [g for g in ours if g.compute_mode == nvml.PROHIBITED]:
        subjects, where = on(barred)
        yield Found("compute-mode", subjects, f"compute mode Prohibited {where}")
    if (
        several
        and not seen.mps
        and (single := [g for g in ours if g.compute_mode == nvml.EXCLUSIVE])
    ):
        subjects, where = on(single)
        saw = f"compute mode Exclusive_Process {where}"
        if seen.mps_daemon is None:
            yield Found("compute-mode", subjects, saw, status=WARN, confidence=likely)
        else:
            yield _mps_gone(seen.mps_daemon, subjects, saw)
    if seen.mps and seen.share < 100 and 0 < len(here.ranks) <= len(ours):
        yield Found(
            "mps-share-limited",
            (here,),
            f"{SHARE}={seen.share:g} · {plural(len(ours), 'GPU')} for "
            f"{plural(len(here.ranks), 'rank')}",
            "all of a GPU that no other rank uses",
            confidence=Confidence.POSSIBLE,
            alternatives=("other jobs share these GPUs, and this one is given a part of each",),
            fields={"percent": f"{seen.share:g}"},
        )
    # several ranks with one mask of instances: _mask_faults() says what is wrong
    apart = seen.tasks > 1 or not mask.mig
    if several and apart and (cut := [g for g in ours if g.mig]):
        subjects, where = on(cut)
        yield Found("mig-mode", subjects, f"MIG is enabled {where}", confidence=likely)


def _mps_gone(mps: MpsDaemon, subjects: tuple[Subject, ...], saw: str) -> Found:
    return Found(
        "mps-daemon-gone",
        subjects,
        f"{saw} · {mps.folder} {mps.problem}",
        "a running nvidia-cuda-mps-control",
        confidence=Confidence.LIKELY if mps.died else Confidence.POSSIBLE,
        alternatives=("the job starts MPS after this run",),
        fields={"folder": mps.folder},
    )


def _surroundings(here: Subject, seen: Visible) -> Iterator[Found]:
    """What CUDA needs beside NVML, and how long the driver takes."""
    count, asked = seen.answer.count, len(seen.answer.gpus)
    if seen.make == AMD:
        return
    if seen.module and count and "nvidia-uvm" not in seen.nodes and not seen.makes_nodes:
        saw = f"no /dev/nvidia-uvm · there are {', '.join(seen.nodes[:12]) or 'no /dev/nvidia*'}"
        yield Found("uvm-missing", (_driver(here),), saw, confidence=Confidence.LIKELY)
    if seen.no_cuda and count:
        saw = f"no libcuda.so.1 · NVIDIA_DRIVER_CAPABILITIES={seen.capabilities[:80]!r}"
        yield Found("cuda-not-exposed", (_driver(here),), saw, confidence=Confidence.LIKELY)
    if seen.answer.seconds > SLOW or asked < count:
        off = sum(g.persistent is False for g in seen.answer.gpus)
        saw = f"{asked} of {plural(count, 'GPU')} answered in {duration(seen.answer.seconds)}"
        yield Found(
            "nvml-slow",
            (_driver(here),),
            f"{saw} · persistence mode is off on {off}",
            f"all of them in less than {duration(SLOW)}",
            confidence=Confidence.CERTAIN if off else Confidence.LIKELY,
        )


def _driver_library(here: Subject, seen: Visible) -> Iterator[Found]:
    """A libcuda of another version than the driver's is in front of it. An older one never fits; a
    newer one fits GPUs for data centres (docs.nvidia.com/deploy/cuda-compatibility)."""
    path, version = seen.driver_library
    if version == nvml.STUB:
        yield Found(
            "libcuda-stub",
            (replace(here, kind=Kind.SOFTWARE, name="libcuda"),),
            f"{path[:160]} is searched first",
            f"the libcuda of driver {seen.module}",
            confidence=Confidence.LIKELY,
            fields={"path": path, "without": seen.search},
        )
        return
    if not version or version == seen.module:
        return
    older = numbers(version) < numbers(seen.module)
    display = [gpu.name for gpu in seen.answer.gpus if "GeForce" in gpu.name]
    if not (older or display):
        return
    saw = f"{path[:160]} of driver {version} is searched first · driver {seen.module}"
    yield Found(
        "compat-misplaced",
        (replace(here, kind=Kind.SOFTWARE, name="libcuda"),),
        saw if older else f"{saw} · {display[0]}",
        f"the libcuda of driver {seen.module}",
        confidence=Confidence.CERTAIN if older else Confidence.LIKELY,
        fields={"path": path, "without": seen.search},
    )


def measured(world: World[Visible]) -> Measured:
    answers = [seen.answer for seen in world.seen.values()]
    if not answers:
        return Measured()
    names: dict[str, int] = {}
    kinds = Counter((gpu.name, gpu.memory) for answer in answers for gpu in answer.gpus)
    for (model, held), count in kinds.items():
        memory = f" {size(held)}" if held else ""
        name = model.removeprefix("NVIDIA ") + memory if model else "GPU without an answer"
        names[name] = names.get(name, 0) + count
    models = [f"{count} x {name}" for name, count in sorted(names.items(), key=lambda n: -n[1])]
    drivers = sorted({a.driver for a in answers if a.driver})
    values = {
        "gpus": sum(a.count for a in answers),
        "drivers": drivers,
        "cuda": sorted({a.cuda for a in answers if a.cuda}),
        "seconds": round(max(a.seconds for a in answers), 3),
    }
    count = sum(answer.count for answer in answers)
    nobody = (
        f"{plural(count, 'GPU')}, none of them asked" if count else "no GPU is given to this job"
    )
    given = ", ".join(models[:3]) or nobody
    told = " · ".join([given, *(f"driver {d}" for d in drivers[:3])])
    parts = tuple(
        Device(
            Kind.GPU, node, f"GPU {gpu.index}", text=gpu.name or gpu.text, broken=bool(gpu.error)
        )
        for node, seen in (world.seen.items() if world.drawn else ())
        for gpu in seen.answer.gpus
    )
    return Measured(told, values, parts=parts)
