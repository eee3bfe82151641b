"""Is every GPU of the job healthy (ECC, temperature, PCIe, NVSwitch) and idle?

Looks at     NVML, call by call: uncorrectable memory errors, rows to remap and pages to retire, the
             recovery that the driver asks for, clock throttle reasons, temperature of GPU and
             memory, PCIe width, power limit, ECC mode and application clock, VBIOS, corrected
             errors, NVSwitch fabric and NVLink domain, memory in use, processes on it; in
             /dev/kmsg, where readable, Xids, SXids of NVSwitches and errors of PCIe links. AMD:
             amdsmi, where it is installed, /sys, and failed resets in /dev/kmsg; IMEX channels in
             /dev, NCCL_MNNVL_ENABLE, NCCL_CUMEM_ENABLE
Fails if     a call about a GPU hangs, or the GPU is lost meanwhile; the driver requests a reset, a
             reboot or the like; a row remap or a page retirement is pending or has failed; memory
             errors could not be corrected; a critical Xid was logged in the last hour and nothing
             shows that it is over, or a fatal SXid; the fabric is not up or routes through it are
             unhealthy; most memory of a GPU is in use by others, or one of them holds it in
             exclusive mode; a node may open no IMEX channel, and its NVLink domain reaches over
             several nodes of the job; pages of an AMD GPU are waiting to be retired, or its reset
             failed
Warns if     a GPU has a different power limit, clock, ECC mode, PCIe generation or memory size from
             most of its model, here and on all nodes; GPUs of one model and board have different
             VBIOS versions; one has a hundred times as many corrected errors as its peers in the
             box; a GPU, or one node of several, is not in the NVLink domain of the others; power
             brake, heat or another hardware slowdown throttles a GPU; it has reached its slowdown
             temperature, or its memory the driver's limit, or 95 °C and 20 more than that of its
             peers; it uses fewer PCIe lanes than it could; the fabric has reduced bandwidth; other
             processes use its memory; a GPU that no rank uses is faulty; in the last hour NVLink or
             PCIe had errors, or an NVSwitch non-fatal ones; an AMD GPU had uncorrectable errors
             since its driver was loaded
Undecided    NVML crashes or is not permitted; there was no time to query a GPU; NVML errors that
             say nothing about the GPU; the fabric is still starting after boot; amdsmi is not
             installed, or belongs to a different ROCm
Not covered  the kernel log where it is not readable (said in the row); Fabric Manager before
             Hopper; PCIe generation and throttling under load; persistence mode is only shown
             (gpu.visible says what it costs); driver, masks, compute mode, MIG: gpu.visible; links:
             gpu.links. Seen with a fake NVML and a fake amdsmi only, not yet on these GPUs
Seen as      "uncorrectable ECC error encountered", "CUDA error: an illegal memory access" on one
             rank only, "Error 802: system not yet initialized", "NVRM: Xid", "GPU is lost", "GPU
             requires reset", "CUDA out of memory" at the first allocation, one rank slower than the
             others, "HIP error: an illegal memory access", "amdgpu: GPU reset(2) failed"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from preflight.check import Check, Context, Scope, Stage
from preflight.domains import kernel_log, pci
from preflight.domains.gpu import nvml, vendor, vital_outliers, xid
from preflight.domains.gpu.commands import AMD_KERNEL_LOG, KERNEL_LOG, REBOOT, RESET
from preflight.domains.gpu.nvml import DeviceMasks, VisibleDevices
from preflight.domains.gpu.vitals import (
    AMD_THROTTLE_REASONS,
    INFOROM,
    THROTTLE_REASONS,
    VGPU,
    NvSwitchFabric,
    Resets,
    Vitals,
    VitalsListing,
)
from preflight.domains.gpu.xid import RECENT, Xid, XidLog
from preflight.domains.params import strtoll
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.domains.system import container
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import GIB, duration, plural, size
from preflight.inference import consensus
from preflight.model import (
    Blame,
    Cause,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=30.0,
    quick_budget=6.0,
    needs=("gpu.visible",),
    drains=True,
    blame=Blame.NODE,
    explains=("gpu.links", "gpu.p2p", "gpu.compute", "world.nccl", "world.bandwidth"),
)

# the rest of the budget is for one call that takes long, and for the way back
ASKING, LOG_SECONDS = 0.55, 0.5
INIT = "nvmlInit"
# corrected errors cost a retry each: some a day are usual, hundreds in the log are a bad contact
FLOOD = 200
# NVIDIA's fabric manager brings a fabric of eight GPUs up in a minute or two after boot
FABRIC_PATIENCE = 600.0
# of others on a GPU: CUDA contexts that do nothing have up to half of it
BUSY = 1 * GIB
# with nobody to be seen on it: what the driver keeps for itself counts as used and is up to 1 GiB
BUSY_BY_NOBODY, BUSY_SHARE = 2 * GIB, 0.05
# what is left then is too little for the job that was given the whole GPU
FULL = 0.75

# nvml.h, NVML_GPU_RECOVERY_ACTION_*
RECOVERY = {
    1: "a reset of the GPU",
    2: "a reboot",
    3: "a drain of its peer-to-peer users",
    4: "a drain and a reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot",
}
IMEX = 5
# nvml.h, nvmlGpuFabricState_t
NOT_STARTED, IN_PROGRESS, COMPLETED = range(1, 4)
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: shift, width, the values that are bad, what they mean
BROKEN = (
    (4, 0x3, (1,), "a route is unhealthy"),
    (6, 0x3, (1,), "it recovers from an access timeout"),
    (2, 0x3, (1,), "a route is being recovered"),
    (8, 0xF, tuple(range(2, 16)), "it is configured wrongly"),
)
WEAK = (
    (0, 0x3, (1,), "bandwidth is degraded"),
    (12, 0x3, (2,), "no partition is assigned"),
    (14, 0x3, (2,), "the fabric manager is disconnected"),
)
AMD_MARKS = ("amdsmi", "import of amdsmi", "/sys/class/kfd", "ras of /sys")
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
CHANNELS_ASKED = 16
"""One that may be opened is enough; a driver offers up to 2048."""
UNHEALTHY, LIMITED = 2, 3
"""nvml.h, NVML_GPU_FABRIC_HEALTH_SUMMARY_*."""

AMD = vendor.AMD
# compute trays whose NVSwitches stand in trays of their own
TRAY = re.compile("GB[23]00")
FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
QUERY = Command("nvidia-smi -q -i {index}", "the node")
AMD_RESET = Command(
    "amd-smi reset --gpureset -g {bus}", "the node, as root", "all jobs on that GPU"
)

FINDINGS = {
    "nvml-hangs": FindingType(
        headline="NVML hangs on {at}",
        cause="a GPU that is stuck, or one that is busy correcting memory errors",
        means="CUDA hangs at its start or in the middle of the job, and so does nvidia-smi",
        text="drain the node, read the kernel log (dmesg -T), then reboot it",
        commands=(KERNEL_LOG, REBOOT),
    ),
    "nvml-crashes": FindingType(
        headline="NVML crashes on {at}",
        cause="a driver library that does not match the kernel module, or a bug in it",
        means="the health of the GPUs is unknown",
        text="run nvidia-smi -q there; if it crashes as well, reinstall the driver",
        commands=(Command("nvidia-smi -q", "the node"),),
        status=Status.UNDECIDED,
    ),
    "health-unknown": FindingType(
        headline="the health of {at} is unknown: {seen}",
        who="whoever runs this node",
        cause="a missing permission, an old driver, or NVML that is too slow to query all GPUs",
        means="the health of these GPUs is unknown",
        now="preflight run --only gpu.health --timeout gpu.health=30s",
        text="re-run it alone, with more time, or as root",
        commands=(Command("nvidia-smi -q || amd-smi metric", "the node"),),
        status=Status.UNDECIDED,
        was=("not-told",),
    ),
    "gpu-lost": FindingType(
        headline="{at} is lost: it has fallen off the bus",
        cause="the GPU has fallen off the bus or stopped while it was queried (Xid 79)",
        means="'GPU is lost' or 'unspecified launch failure' on one rank, the others wait for it",
        text="drain the node and power-cycle it; if the GPU is lost again, replace it",
        commands=(KERNEL_LOG,),
        was=("gpu-gone",),
    ),
    "rows-exhausted": FindingType(
        headline="{at} has broken memory and no spare rows left",
        cause="defective memory in more rows than the GPU has spare ones",
        means="'uncorrectable ECC error encountered' on one rank, the others wait for it",
        text="exclude this node; replace the GPU: a reset does not repair it",
        commands=(Command("nvidia-smi -q -d ROW_REMAPPER,ECC -i {index}", "the node"),),
        was=("memory-worn",),
    ),
    "remap-pending": FindingType(
        headline="{at} has broken memory: a row remap waits for a reset",
        cause="a memory error: the row is only remapped at the next reset of the GPU",
        means="'uncorrectable ECC error encountered' hours into the job, when that memory is used "
        "again",
        text="exclude this node; reset the GPU while nothing uses it, else reboot; with NVSwitch "
        "reset all GPUs at once",
        commands=(RESET,),
    ),
    "memory-errors": FindingType(
        headline="{at} has {seen}",
        cause="failing memory of the GPU",
        means="'uncorrectable ECC error encountered' on one rank, the others wait for it",
        text="exclude this node; reset the GPU and run NVIDIA's diagnostics; if errors come back, "
        "replace it",
        commands=(RESET, Command("dcgmi diag -r 3", "the node", "all jobs on its GPUs")),
        status=(Status.FAIL, Status.WARN),
    ),
    "recovery-needed": FindingType(
        headline="{at} needs recovery: {seen}",
        cause="an error after which the driver requires the GPU to be recovered",
        means="the first CUDA call of one rank fails, or the job hangs hours later",
        text="exclude this node; carry out the recovery that the driver asks for while nothing "
        "uses the GPU",
        commands=(QUERY, RESET),
        status=(Status.FAIL, Status.WARN),
    ),
    "xid": FindingType(
        headline="{at} logged {seen}",
        cause="an error of the GPU, its memory, firmware or bus that the driver logged",
        means="the next process on this GPU fails or hangs as the last one did",
        text="exclude this node; reset the GPU, look up the number in NVIDIA's Xid catalogue",
        commands=(KERNEL_LOG, RESET),
        status=(Status.FAIL, Status.WARN),
    ),
    "nvlink-errors": FindingType(
        headline="{at} logged NVLink errors: {seen}",
        cause="a failing NVLink, bridge or NVSwitch, or a job that died while using it",
        means="NCCL hangs or ends with 'unhandled cuda error'; or nothing, if the link recovered",
        text="check the error counters of the links; if they grow, have GPU and baseboard examined",
        commands=(Command("nvidia-smi nvlink -e -i {index}", "the node"), KERNEL_LOG),
        status=Status.WARN,
        explains=("gpu.links",),
    ),
    "nvswitch-errors": FindingType(
        headline="{at} logged {seen}",
        cause="a failing NVSwitch or one of its links",
        means="NVLink traffic stalls: CUDA ends with Xid 45 or hangs, NCCL waits forever",
        text="exclude this node; reset all GPUs and NVSwitches together, or reboot; if it comes "
        "back, have the baseboard examined",
        commands=(KERNEL_LOG, Command("nvidia-smi -r", "the node, as root", "all jobs there")),
        status=(Status.FAIL, Status.WARN),
    ),
    "pcie-errors": FindingType(
        headline="the PCIe link of {at} has errors: {seen}",
        cause="a card, riser, retimer or slot with poor contact",
        means="copies to and from this GPU are slow, or it falls off the bus (Xid 79)",
        text="reseat the card; if errors come back, replace the riser or the board",
        commands=(
            Command("lspci -vv -s {bus} | grep -E 'LnkSta|UESta|CESta'", "the node, as root"),
            KERNEL_LOG,
        ),
        status=Status.WARN,
        explains=(),
    ),
    "clocks-throttled": FindingType(
        headline="{at} is throttled: {seen}",
        cause="insufficient power or cooling, or a faulty sensor",
        means="this GPU runs at a fraction of its speed, and every step waits for it",
        text="check power supplies, fans and airflow of the node",
        commands=(
            Command("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER || amd-smi metric", "the node"),
        ),
        status=Status.WARN,
        explains=(),
        was=("clocks-braked",),
    ),
    "too-hot": FindingType(
        headline="{at} is too hot: {seen}",
        cause="a fan, airflow or coolant problem, or dust; of memory alone an old thermal pad",
        means="the GPU slows down under load, or shuts off; every step waits for it",
        text="check the cooling of the node; where one GPU is hotter than the others, its own",
        commands=(
            Command("nvidia-smi -q -d TEMPERATURE,PERFORMANCE || amd-smi metric", "the node"),
        ),
        status=Status.WARN,
        explains=(),
    ),
    "pcie-downgraded": FindingType(
        headline="the PCIe link of {at} is downgraded: {seen}",
        cause="a card, riser or retimer with poor contact, or a failing lane",
        means="copies to and from this GPU take twice as long or more; every step waits for it",
        text="reseat the card; compare it with the others",
        commands=(Command("lspci -vv -s {bus} | grep -E 'LnkCap|LnkSta'", "the node, as root"),),
        status=Status.WARN,
        explains=(),
        was=("pcie-narrow",),
    ),
    "settings-differ": FindingType(
        headline="{at} has different settings from the others of its model: {seen}",
        cause="a setting made on one GPU only, or lost at a reset; a different kind of slot",
        means="this GPU computes or copies slower, or holds less; every step waits for it",
        text="set it as on the others: nvidia-smi -pl, -e, -rac; the PCIe generation depends on "
        "the slot",
        commands=(Command("nvidia-smi -q -i {index} -d POWER,ECC,CLOCK", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "memory-differs": FindingType(
        headline="{at} has not as much memory as the others of its model: {seen}",
        cause="a share of a GPU (vGPU) in place of a whole one, memory that failed and was "
        "switched off, or a variant of the card with the same name",
        means="'CUDA out of memory' on this rank only, or the smallest memory limits the batch "
        "size of all ranks",
        text="check MIG and vGPU; if it is a whole GPU, reset it while nothing uses it, and have "
        "it examined if its memory stays as it is",
        commands=(Command("nvidia-smi -q -i {index} -d MEMORY,ECC,ROW_REMAPPER", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "vbios-differs": FindingType(
        headline="GPUs of one model have different VBIOS versions: {seen}",
        who="cluster administrator",
        cause="a GPU or baseboard that was replaced, or a node that missed the last update",
        means="usually nothing; but power limits, clocks and known bugs depend on the VBIOS",
        text="install the same firmware bundle on all nodes of one kind",
        commands=(
            Command("nvidia-smi --query-gpu=index,name,vbios_version --format=csv", "the node"),
        ),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.UNKNOWN),
        explains=(),
    ),
    "corrected-errors": FindingType(
        headline="{at} has {seen}",
        cause="a weak row or channel of its memory",
        means="nothing today: ECC corrects them; they often precede uncorrectable ones",
        text="look at the count again in an hour; if it grows, run NVIDIA's diagnostics",
        commands=(Command("nvidia-smi -q -d ECC,ROW_REMAPPER -i {index}", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "nvlink-domain-differs": FindingType(
        headline="the NVLink domain differs within the job: {seen}",
        who="cluster administrator",
        cause="a tray in another partition, one that did not join its rack's domain, or a node "
        "of another rack",
        means="NCCL uses the network between them in place of NVLink: slower collectives",
        text="compare the partitions on the switch trays (nmx-controller) and the IMEX domain; "
        "request nodes of one rack, e.g. with SLURM's topology/block",
        commands=(
            Command("nvidia-smi -q | grep -E 'ClusterUUID|CliqueId'", "the node"),
            Command("nvidia-imex-ctl -N", "the node"),
        ),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.UNKNOWN),
        explains=("world.bandwidth",),
    ),
    "imex-channel-missing": FindingType(
        headline="{at} is in an NVLink domain without an IMEX channel: {seen}",
        who="cluster administrator",
        cause="the driver loaded without NVreg_CreateImexChannel0=1, or a container that was "
        "started without the channel",
        means="NCCL stops: 'MNNVL (cliqueSize …) is available but not working on this system. "
        "Check the IMEX channel configuration'",
        now="export NCCL_MNNVL_ENABLE=0   slow, over the network in place of NVLink",
        text="create the channel at boot (options nvidia NVreg_CreateImexChannel0=1) and give the "
        "job access; docker: --device /dev/nvidia-caps-imex-channels/channel0; pod: a "
        "ComputeDomain of NVIDIA's DRA driver",
        commands=(
            Command("ls -l /dev/nvidia-caps-imex-channels; grep imex /proc/devices", "the node"),
            Command("nvidia-imex-ctl -N", "the node"),
        ),
        blame=(Blame.NODE, Blame.JOB),
        explains=("world.nccl", "world.bandwidth"),
    ),
    "fabric-down": FindingType(
        headline="the NVSwitch fabric of {at} is not up",
        cause="NVIDIA's fabric manager not running, or its version different from the driver's",
        means="'Error 802: system not yet initialized': CUDA finds no GPU although nvidia-smi does",
        text="exclude this node; start a fabric manager of the driver's version; just after boot "
        "wait a few minutes",
        commands=(
            Command("systemctl status nvidia-fabricmanager", "the node"),
            Command("systemctl restart nvidia-fabricmanager", "the node", "all jobs there"),
        ),
        status=(Status.FAIL, Status.WARN, Status.UNDECIDED),
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "nvlink-domain-down": FindingType(
        headline="{at} has not joined its NVLink domain",
        cause="the controller of the NVLink switches not running, or this tray in no partition",
        means="'Error 802: system not yet initialized', or NCCL without NVLink between trays",
        text="check the fabric manager of the rack on the switch trays (nmx-controller and its "
        "partitions), then the IMEX service of this node",
        commands=(
            Command("nvidia-smi -q | grep -A 9 Fabric", "the node"),
            Command("systemctl status nvidia-imex; nvidia-imex-ctl -N", "the node"),
        ),
        status=(Status.FAIL, Status.WARN, Status.UNDECIDED),
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "fabric-unhealthy": FindingType(
        headline="{at}: {seen}",
        cause="a failing NVLink or NVSwitch, or a misconfigured fabric",
        means="NCCL fails with a CUDA error, hangs at its start, or is much slower",
        text="read the fabric manager's log and check the links of these GPUs",
        commands=(
            Command("nvidia-smi -q | grep -A 9 Fabric", "the node"),
            Command("nvidia-smi nvlink -s", "the node"),
        ),
        status=(Status.FAIL, Status.WARN),
        was=("fabric-unwell",),
    ),
    "gpu-busy": FindingType(
        headline="{at} is in use by another process: {seen}",
        who="whoever runs these programs",
        cause="another job on the same GPU, or processes left behind by one that ended",
        means="'CUDA out of memory' at the first allocation or in NCCL's start; slow steps; in "
        "exclusive mode 'all CUDA-capable devices are busy or unavailable'",
        text="stop those processes, or configure the scheduler to give a GPU to one job at a time",
        commands=(
            Command("fuser -v /dev/nvidia* /dev/dri/renderD*", "the node, as root"),
            Command("kill {pid}", "the node", "ends that process"),
        ),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.UNKNOWN,
    ),
    "inforom-corrupt": FindingType(
        headline="the InfoROM of {at} is corrupt",
        cause="corruption in the GPU's memory for settings and error counts",
        means="its memory errors are no longer counted and repaired: they come back",
        text="ask the vendor to examine the GPU",
        commands=(QUERY,),
        status=Status.WARN,
        explains=(),
        was=("inforom",),
    ),
    # AMD
    "amdsmi-hangs": FindingType(
        headline="amdsmi hangs on {at}",
        cause="a GPU that is stuck, or is being reset again and again",
        means="HIP hangs at its start or in the middle of the job, and so does amd-smi",
        text="drain the node, read the kernel log (dmesg -T), then reboot it",
        commands=(AMD_KERNEL_LOG, REBOOT),
    ),
    "amdsmi-unavailable": FindingType(
        headline="the health of {at} is only partly known: {seen}",
        who="whoever made the environment",
        cause="a Python environment without ROCm's package amdsmi, or with the one of another ROCm",
        means="temperature, throttling and processes on the GPUs are unknown; errors are taken "
        "from /sys",
        text="install the package that ships with ROCm, or the one on PyPI in ROCm's version",
        commands=(Command("pip install /opt/rocm/share/amd_smi", "the environment of the job"),),
        status=Status.UNDECIDED,
        was=("amdsmi-untold",),
    ),
    "ras-errors": FindingType(
        headline="{at} has {seen}",
        cause="failing memory or another failing part of the GPU; the driver resets it each time",
        means="'Memory access fault by GPU node' or 'HIP error' on one rank; the others wait",
        text="check the counts per block and the bad pages; if they grow, replace the GPU",
        commands=(
            Command("amd-smi metric --ecc --ecc-blocks -g {bus}", "the node"),
            AMD_KERNEL_LOG,
        ),
        status=Status.WARN,
        explains=(),
    ),
    "bad-pages": FindingType(
        headline="{at}: {seen}",
        cause="defective memory that could not yet be retired",
        means="'Memory access fault by GPU node' hours into the job, when that memory is used "
        "again",
        text="exclude this node; reset the GPU while nothing uses it, else reboot; if the pages "
        "stay, replace it",
        commands=(Command("amd-smi bad-pages -g {bus}", "the node, as root"), AMD_RESET),
        status=(Status.FAIL, Status.WARN),
    ),
    "reset-failed": FindingType(
        headline="{at} did not come back from a reset",
        cause="a GPU that did not come back from a reset after an error",
        means="the first HIP call of one rank fails or hangs, the others wait for it",
        text="reboot the node; if it happens again, replace the GPU",
        commands=(AMD_KERNEL_LOG, REBOOT),
    ),
}

NO_RESETS = Resets()


@dataclass(frozen=True, slots=True)
class Health:
    """What was seen of the GPUs here.

    uptime   of the machine in seconds; None where nothing says so
    bus      the PCI addresses of the vendor's GPUs in /sys
    mask     CUDA_VISIBLE_DEVICES; job: SLURM_JOB_GPUS; tasks: how many have an environment each
    above    of each of them the PCI bridges between it and the CPU, where a link had errors
    make     the vendor; of AMD mask and first are as in kfd.masks(), and resets stand for the log
    channels IMEX channels that this process may open; None where no GPU is in an NVLink domain, or
             NCCL is set not to use it between nodes; forced: it is set to use it in any case
    inside   the kind of container that this is, or empty
    """

    told: VitalsListing
    log: XidLog
    uptime: float | None
    bus: tuple[str, ...]
    mask: str | None
    job: str
    tasks: int
    make: str = vendor.NVIDIA
    first: str | None = None
    resets: Resets = NO_RESETS
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    channels: int | None = None
    forced: bool = False
    inside: str = ""


def observe(host: Host, ctx: Context) -> Health:
    ctx.mark("/sys/bus/pci")
    make = vendor.detect(host)
    on_bus, amd = make.gpus_on_pci(host), make.NAME == vendor.AMD
    if not (host.live or on_bus):
        raise NotApplicable("no NVIDIA GPU or driver here")
    log, resets = XidLog(), NO_RESETS
    if amd:
        from preflight.domains.gpu import amdsmi

        told = amdsmi.read_vitals(host, ctx.mark, ASKING * ctx.seconds)
    else:
        from preflight.domains.gpu import nvml_health

        told = nvml_health.read_vitals(host, ctx.mark, ASKING * ctx.seconds)
    if not told.count:
        raise NotApplicable("no AMD GPU is given to this job" if amd else "NVML lists no GPU")
    ctx.mark(kernel_log.KMSG)
    if amd:
        resets = amdsmi.failed_resets(host, LOG_SECONDS)
    else:
        log = xid.read_xids(host, LOG_SECONDS)
    domain = any(g.fabric and g.fabric.cluster for g in told.gpus)
    if domain:
        ctx.mark(IMEX_CHANNELS)
    multinode = nccl_setting(host, "NCCL_MNNVL_ENABLE")
    masks = make.masks(host.environ)
    return Health(
        told=told,
        log=log,
        uptime=kernel_log.uptime(host),
        above={gpu.bus: pci.bridges(host, gpu.bus) for gpu in on_bus} if log.links else {},
        bus=tuple(gpu.bus for gpu in on_bus),
        mask=masks.mask,
        job=nvml.env_text(host.environ, "SLURM_JOB_GPUS") or "",
        tasks=nvml.tasks_here(host.environ),
        make=make.NAME,
        first=masks.first,
        resets=resets,
        channels=_channels(host) if domain and _may_use_domain(host, multinode) else None,
        forced=strtoll(multinode)[0] == 1,
        inside=container.kind(host) if domain else "",
    )


def _may_use_domain(host: Host, multinode: str) -> bool:
    """NCCL: MNNVL needs memory of the cuMem API, and may be switched off (src/mnnvl.cc)."""
    by_handles = nccl_setting(host, "NCCL_CUMEM_ENABLE")
    return not any(value and strtoll(value)[0] == 0 for value in (multinode, by_handles))


def _channels(host: Host) -> int:
    names = host.listdir(IMEX_CHANNELS)
    return sum(not host.refused(f"{IMEX_CHANNELS}/{name}") for name in names[:CHANNELS_ASKED])


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU of a node, and its ranks where they are known. `used`: by a rank of this job."""

    vitals: Vitals
    node: str
    ranks: tuple[int, ...]
    used: bool

    @property
    def name(self) -> str:
        return f"GPU {self.vitals.index}"

    @property
    def subject(self) -> Subject:
        """What it is in the report."""
        return Subject(Kind.GPU, self.node, self.name, self.ranks)


def judge(world: World[Health], expect: Expect) -> Iterator[Found]:
    yield from _hangs_and_crashes(world)
    for here, seen, gpus in world.once(_all_gpus):
        for gpu in gpus:
            yield from _faults(gpu, seen.log) if seen.make != AMD else _amd_faults(gpu, seen.resets)
        yield from _vanished(here, seen)
        yield from _switch_errors(here, seen)
        yield from _link_errors(here, seen, gpus)
        found = [
            f
            for gpu in gpus
            for f in (*_slow(gpu, seen.make == AMD), *_fabric(gpu, seen), *_busy(gpu))
        ]
        yield from _merge_alike(found)
        yield from _merge_alike([*_not_readable(here, seen, gpus)])
    yield from _merge_alike([*_unlike_their_model(world)])
    yield from _unlike_their_peers(world)
    yield from _without_channel(world)


def _hangs_and_crashes(world: World[Health]) -> Iterator[Found]:
    """A call that never returned, or with which the worker died: its mark is the last one."""
    causes = (Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED)
    for key, missing in world.missing(*causes).items():
        last = missing.marks[-1] if missing.marks else None
        if last is None or not last.name.startswith(("nvml", *AMD_MARKS)):
            continue  # it was not the driver
        amd = last.name.startswith(AMD_MARKS)
        here = world.subject(key)
        found = re.search(r"^(\S+) of GPU ([0-9]+)$", last.name)
        driver = f"{AMD if amd else vendor.NVIDIA} driver"
        subject = replace(here, kind=Kind.SOFTWARE, name=driver)
        if found:
            subject = Subject(Kind.GPU, here.node, f"GPU {found[2]}")
        if missing.cause is Cause.CRASHED:
            if "Traceback" in missing.detail:
                continue  # our own fault, not the library's
            why = f"{last.name}: {(missing.detail.strip().splitlines() or ['it died'])[-1][:160]}"
            code = "amdsmi-unavailable" if amd else "nvml-crashes"
            yield Found(code, (subject,), why, confidence=Confidence.POSSIBLE)
            continue
        unkillable = missing.cause is Cause.UNKILLABLE
        facts = [f"{last.name} did not return in {duration(max(0, missing.seconds - last.at))}"]
        if last.name == INIT and not unkillable and missing.seconds < nvml.SLOWEST_INIT:
            # gpu.visible had its answer just now: GPUs that fall asleep in between wake slowly
            slow = Confidence.POSSIBLE
            yield Found("health-unknown", (subject,), facts[0], confidence=slow)
            continue
        facts += ["SIGKILL has no effect"] * unkillable
        yield Found(
            "amdsmi-hangs" if amd else "nvml-hangs",
            (subject,),
            " · ".join(facts),
            expected="an answer in less than 0.1 s",
            confidence=Confidence.CERTAIN if unkillable else Confidence.LIKELY,
        )


def _graded(fails: bool) -> dict[str, Any]:
    """The status of a code that fails or warns; a warning causes no other failures."""
    return {"status": FAIL} if fails else {"status": WARN, "explains": ()}


def _all_gpus(world: World[Health]) -> list[tuple[Subject, Health, list[_Gpu]]]:
    return [(here, seen, _gpus(here, seen)) for here, seen in world.each()]


def _gpus(here: Subject, seen: Health) -> list[_Gpu]:
    """The GPUs that NVML let us look at, each with its rank where every local rank has one."""
    uuids = {gpu.index: gpu.uuid for gpu in seen.told.gpus}
    listed = [uuids.get(i, "") for i in range(seen.told.count)]
    mask = vendor.visible_devices(DeviceMasks(mask=seen.mask, first=seen.first), listed)
    ours = _job_gpus(seen, mask)
    users: dict[int, tuple[int, ...]] = {}
    if seen.tasks < 2 and len(here.ranks) <= len(mask.indexes):
        # zip: more GPUs than ranks are no fault
        users = {i: (r,) for i, r in zip(mask.indexes, sorted(here.ranks), strict=False)}
    made = [
        _Gpu(vitals, here.node, users.get(vitals.index, ()), vitals.index in ours)
        for vitals in seen.told.gpus
    ]
    # one that may not be opened is somebody else's
    return [g for g in made if "nvmlDeviceGetHandleByIndex" not in g.vitals.refused]


def _job_gpus(seen: Health, mask: VisibleDevices) -> frozenset[int]:
    """The GPUs of this job. The mask is the first task's only where every task has its own: then
    SLURM's list of the whole job counts, else all."""
    everything = frozenset(range(seen.told.count))
    if mask.mig or not (mask.indexes or mask.off):
        return everything
    if seen.tasks < 2:
        return frozenset(mask.indexes)
    listed = {int(n) for n in seen.job.split(",")[:256] if re.fullmatch("[0-9]{1,4}", n)}
    return frozenset(listed) if listed and listed <= everything else everything


# --- one GPU that is faulty ---


def _faults(gpu: _Gpu, log: XidLog) -> Iterator[Found]:
    """All that speaks against one GPU is one finding: errors of its memory, what the driver wants
    done and the Xid have one cause."""
    one = gpu.vitals
    if not (log.xids or one.failed or any(_troubles(one))):
        return  # as of most of a hundred thousand
    recent = [x for x in log.xids if x.bus == one.bus and x.age < RECENT]
    facts = [*_facts(one)]
    if not (facts or recent or one.failed):
        return
    # the gravest gives the finding its code
    code, fails, confidence = "", True, Confidence.CERTAIN
    if one.gone:
        code = "gpu-lost"
    elif one.remap_failed:
        code = "rows-exhausted"
    elif one.remap_pending or one.pages_pending:
        code = "remap-pending"
    elif one.recovery:
        code = "recovery-needed"
        confidence = Confidence.CERTAIN if one.recovery in RECOVERY else Confidence.LIKELY
    elif one.volatile:
        code = "memory-errors"
        # the driver has put it out of use and asks for nothing
        fails = one.recovery != 0
    xids = [x for x in recent if x.code in xid.CRITICAL]
    facts += [_xid_text(x) for x in recent]
    if xids and not code:
        code, confidence = "xid", Confidence.LIKELY
        fails = not all(_recovered_since(x, one) for x in xids)
    if code:
        domain = code == "recovery-needed" and one.recovery == IMEX
        untold = code == "xid" and fails and one.recovery is None
        reset = ("the GPU was reset since then, which this driver does not report",)
        yield Found(
            code,
            (gpu.subject,),
            " · ".join(facts),
            **_graded(fails and gpu.used),
            blame=Blame.UNKNOWN if domain else None,
            confidence=confidence,
            fields=_fields(one),
            alternatives=reset if untold else (),
        )
    elif recent:  # errors of NVLink alone
        saw = " · ".join(facts)
        likely = Confidence.LIKELY
        yield Found("nvlink-errors", (gpu.subject,), saw, confidence=likely, fields=_fields(one))
    if INFOROM in one.failed.values():
        saw = f"{one.bus}: NVML calls its InfoROM corrupt"
        yield Found("inforom-corrupt", (gpu.subject,), saw, fields=_fields(one))


def _amd_faults(gpu: _Gpu, resets: Resets) -> Iterator[Found]:
    """The same of an AMD GPU. Errors alone are a warning: after each of them the driver has reset
    the GPU and put the page out of use."""
    one = gpu.vitals
    failed = [r for r in resets.failed if r.bus == one.bus and r.age < RECENT]
    facts = [f"its reset failed {_time_ago(r.age)}" for r in failed]
    facts += ["memory pages are waiting to be retired"] * bool(one.pages_pending)
    facts += ["memory pages could not be retired"] * bool(one.remap_failed)
    if one.volatile:
        facts.append(f"{plural(one.volatile, 'uncorrectable error')} since the driver was loaded")
    if facts:
        serious = "bad-pages" if one.pages_pending or one.remap_failed else ""
        serious = "reset-failed" if failed else serious
        yield Found(
            serious or "ras-errors",
            (gpu.subject,),
            " · ".join(facts),
            **_graded(bool(serious) and gpu.used),
            confidence=Confidence.LIKELY,
            fields=_fields(one),
        )


_troubles = attrgetter("remap_failed", "remap_pending", "pages_pending", "volatile", "recovery")


def _facts(one: Vitals) -> Iterator[str]:
    if one.gone:
        call = next(call for call, code in one.failed.items() if code == one.gone)
        what = "lost" if one.gone == nvml.LOST else "in want of a reset"
        yield f"NVML calls it {what} ({one.gone}) in {call}"
    if one.remap_failed:
        yield "row remapping has failed"
    if one.remap_pending:
        yield "a row remap is pending"
    if one.pages_pending:
        yield "pages are to be retired at the next reset"
    if one.volatile:
        yield f"{plural(one.volatile, 'uncorrectable memory error')} since the driver was loaded"
    if one.recovery:
        yield f"the driver wants {RECOVERY.get(one.recovery, f'recovery action {one.recovery}')}"


def _xid_text(one: Xid) -> str:
    times = _times(one.count)
    return (
        f"Xid {one.code} ({xid.CRITICAL.get(one.code, 'NVLink error')}) {times}{_time_ago(one.age)}"
    )


def _time_ago(age: float) -> str:
    return f"{duration(age)} ago"


def _recovered_since(one: Xid, vitals: Vitals) -> bool:
    """Whether something says that the GPU was recovered since: the driver wants nothing done; the
    count of memory errors, which a reset sets to 0, is 0; it is back on the bus."""
    return (
        vitals.recovery == 0
        or one.code == xid.LOST_BUS
        or (one.code in xid.MEMORY and vitals.volatile == 0)
    )


def _vanished(here: Subject, seen: Health) -> Iterator[Found]:
    """A GPU that fell off and is not even on the bus any more: nothing else would miss it."""
    if not seen.log.xids:
        return
    there = {gpu.bus for gpu in seen.told.gpus} | set(seen.bus)
    asked_all = len(seen.told.gpus) == seen.told.count and all(g.bus for g in seen.told.gpus)
    for one in seen.log.xids if seen.bus and asked_all else ():
        if one.code == xid.LOST_BUS and one.age < RECENT and one.bus not in there:
            subject = Subject(Kind.GPU, here.node, one.bus)
            saw = f"{_xid_text(one)} · it is no longer on the PCI bus"
            yield Found("gpu-lost", (subject,), saw, confidence=Confidence.LIKELY)


def _switch_errors(here: Subject, seen: Health) -> Iterator[Found]:
    """What the NVSwitches of this node have logged. After a fatal error the driver wants its GPUs
    reset, where it says such things."""
    if not seen.log.switches:
        return
    well = all(gpu.recovery == 0 for gpu in seen.told.gpus)
    untold = any(gpu.recovery is None for gpu in seen.told.gpus)
    reset = ("GPUs and NVSwitches were reset since then, which this driver does not report",)
    for one in seen.log.switches:
        if one.age < RECENT:
            yield Found(
                "nvswitch-errors",
                (replace(here, name=f"NVSwitch {one.bus}"),),
                f"{one.words} · {_times(one.count)}{_time_ago(one.age)}",
                **_graded(one.fatal and not well),
                confidence=Confidence.LIKELY,
                alternatives=reset if one.fatal and untold else (),
            )


def _link_errors(here: Subject, seen: Health, gpus: Sequence[_Gpu]) -> Iterator[Found]:
    """Errors of the PCIe links of the job's GPUs, also of the bridges above them."""
    for one in seen.log.links:
        mine = one.bus, *(bus for bus, above in seen.above.items() if one.bus in above)
        behind = tuple(g for g in gpus if g.used and g.vitals.bus in mine)
        flood = one.count >= FLOOD or not one.words.startswith("corrected")
        if behind and flood and one.age < RECENT:
            yield Found(
                "pcie-errors",
                tuple(g.subject for g in behind),
                f"{one.bus}: {one.words} · {_times(one.count)}{_time_ago(one.age)}",
                confidence=Confidence.LIKELY,
                fields={"bus": one.bus},
            )


def _times(count: int) -> str:
    return f"{count} times, last " if count > 1 else ""


def _fields(one: Vitals) -> Mapping[str, str]:
    return {"index": str(one.index), "bus": one.bus or "PCI-ADDRESS"}


# --- slower than it should be ---


def _slow(gpu: _Gpu, amd: bool) -> Iterator[Found]:
    one = gpu.vitals
    if one.brakes:
        amd_names = {bit: name for bit, (_, name) in AMD_THROTTLE_REASONS.items()}
        names = amd_names if amd else THROTTLE_REASONS
        bits = [name for bit, name in names.items() if one.brakes & bit]
        saw = f"clock throttle reasons: {', '.join(bits)}"
        yield Found("clocks-throttled", (gpu.subject,), saw, fields=_fields(one))
    hot, limit = one.temperature, one.slowdown_at
    if hot is not None and limit and hot >= limit:
        saw = f"{hot} °C · it {'is critical' if amd else 'slows down'} at {limit} °C"
        yield Found("too-hot", (gpu.subject,), saw, fields=_fields(one))
    hot, limit = one.memory_temperature, one.memory_max
    if hot is not None and limit and hot >= limit:
        saw, goal = f"its memory has {hot} °C", f"less than {limit} °C, the driver's limit for it"
        yield Found("too-hot", (gpu.subject,), saw, goal, fields=_fields(one))
    # with Grace the data go over NVLink-C2C; a virtual slot says nothing of the real one
    real = not one.coherent and one.virtual != VGPU
    if real and one.width and one.width_max and one.width < one.width_max:
        saw, goal = f"PCIe x{one.width}", f"x{one.width_max}"
        yield Found("pcie-downgraded", (gpu.subject,), saw, goal, fields=_fields(one))


def _unlike_their_model(world: World[Health]) -> Iterator[Found]:
    """GPUs that are set otherwise than most of their model, here and on all nodes: every step waits
    for them, and nothing else shows it."""
    models: dict[str, list[_Gpu]] = {}
    for _, _, own in world.once(_all_gpus):
        for gpu in own:
            if gpu.used and gpu.vitals.name and not gpu.vitals.mig and not gpu.vitals.gone:
                models.setdefault(gpu.vitals.name, []).append(gpu)
    # of most models all are set alike
    models = {m: gpus for m, gpus in models.items() if len({_set_to(g.vitals) for g in gpus}) > 1}
    for what, value, shown in SETTINGS:
        for gpus in models.values():
            if len({value(g.vitals) for g in gpus}) < 2:
                continue
            told = {f"{g.node} {g.name}": (g, value(g.vitals)) for g in gpus}
            agreed = consensus({key: v for key, (_, v) in told.items() if v is not None})
            usual = agreed.value
            if usual is None:
                continue
            for odd, keys in agreed.odd.items():
                others = f"{plural(len(agreed.holders), 'GPU')} of its model"
                for key in keys:
                    yield Found(
                        "memory-differs" if what == MEMORY else "settings-differ",
                        (told[key][0].subject,),
                        f"{what} {shown(odd)}",
                        f"{what} {shown(usual)}, as on {others}",
                        fields=_fields(told[key][0].vitals),
                    )


def _unlike_their_peers(world: World[Health]) -> Iterator[Found]:
    """GPUs with other firmware, in another NVLink domain or with many more corrected errors."""
    used = {
        here.node: {g.vitals.index: g for g in gpus if g.used and not g.vitals.gone}
        for here, _, gpus in world.once(_all_gpus)
    }
    nodes = {node: [gpu.vitals for gpu in gpus.values()] for node, gpus in used.items()}
    unlike = {
        "vbios-differs": vital_outliers.other_vbios(nodes),
        "nvlink-domain-differs": vital_outliers.other_domains(nodes),
    }
    for code, several in unlike.items():
        for one in several:
            unsure = one.tie or one.alternatives
            yield Found(
                code,
                tuple(
                    world.subject(node) if index is None else used[node][index].subject
                    for node, index in one.places
                ),
                one.saw,
                one.expected,
                blame=Blame.UNKNOWN if unsure else Blame.NODE,
                confidence=Confidence.POSSIBLE if unsure else Confidence.LIKELY,
                alternatives=one.alternatives,
            )
    for node, vitals in nodes.items():
        yield from _hot_memory(node, used[node])
        for gpu, usual in vital_outliers.corrected_floods(vitals):
            yield Found(
                "corrected-errors",
                (used[node][gpu.index].subject,),
                f"{gpu.corrected} corrected memory errors since the driver was loaded",
                f"about {usual}, as on the other GPUs of this node",
                confidence=Confidence.LIKELY,
                fields=_fields(gpu),
            )


def _hot_memory(node: str, gpus: Mapping[int, _Gpu]) -> Iterator[Found]:
    """Memory that is hot beside its peers', of which the driver names no limit."""
    for hot, usual in vital_outliers.hot_memory([gpu.vitals for gpu in gpus.values()]):
        yield Found(
            "too-hot",
            (gpus[hot.index].subject,),
            f"its memory has {hot.memory_temperature} °C",
            f"about {usual} °C, as on the other GPUs of {node}",
            confidence=Confidence.LIKELY,
            fields=_fields(hot),
        )


def _without_channel(world: World[Health]) -> Iterator[Found]:
    """Trays of an NVLink domain that reaches over several nodes of the job, where a process can't
    share memory with another tray's: it takes an IMEX channel (cuMemCreate in the CUDA driver API).
    """
    nodes: dict[tuple[str, int], set[str]] = {}
    trays: list[tuple[Subject, Health, tuple[str, int]]] = []
    for here, seen, gpus in world.once(_all_gpus):
        joined = [g.vitals.fabric for g in gpus if g.used and not g.vitals.mig and g.vitals.fabric]
        domain = next(((f.cluster, f.clique) for f in joined if f.cluster), None)
        if domain and all(fabric.state == COMPLETED and not fabric.status for fabric in joined):
            nodes.setdefault(domain, set()).add(here.node)
            trays.append((here, seen, domain))
    for here, seen, domain in trays:
        several = len(nodes[domain]) > 1
        forced = seen.forced and len(here.ranks) > 1
        if seen.channels == 0 and (several or forced):
            reach = f"{len(nodes[domain])} nodes of this job" if several else "one node"
            yield Found(
                "imex-channel-missing",
                (here,),
                f"no channel in {IMEX_CHANNELS} that can be opened · its domain has {reach}"
                + " · NCCL_MNNVL_ENABLE=1" * seen.forced,
                "one channel that the job may open",
                blame=Blame.JOB if seen.inside else Blame.NODE,
                confidence=Confidence.LIKELY,
            )


MEMORY = "memory"
SETTINGS: tuple[tuple[str, Callable[[Vitals], int | None], Callable[[int], str]], ...] = (
    ("power limit", lambda one: one.power_limit, lambda mw: f"{mw / 1000:g} W"),
    ("ECC", lambda one: one.ecc, lambda on: "on" if on else "off"),
    ("application clock", lambda one: one.clock, lambda mhz: f"{mhz} MHz"),
    ("PCIe generation", lambda one: one.generation_max, lambda number: f"{number} at most"),
    # some MiB of it may be kept back for spare pages
    (MEMORY, lambda one: one.memory and round(one.memory / GIB), lambda gib: f"{gib} GiB"),
)
"""What is alike on GPUs of one model: its name, and how it is read and shown."""
_set_to = attrgetter("power_limit", "ecc", "clock", "generation_max", "memory")
"""All that SETTINGS read."""


def _fabric(gpu: _Gpu, seen: Health) -> Iterator[Found]:
    """NVSwitch. GPUs in MIG mode have no part in it, and of a single one nobody needs it."""
    fabric = gpu.vitals.fabric
    if (
        fabric is None
        or gpu.vitals.mig
        or fabric.state not in (NOT_STARTED, IN_PROGRESS, COMPLETED)
    ):
        return
    if fabric.state == COMPLETED and fabric.status == 0:
        if fabric.summary in (UNHEALTHY, LIMITED) or any(_said_by(fabric.mask)):
            yield _routes(gpu, fabric)
        return
    tray = bool(TRAY.search(gpu.vitals.name))
    graded = _graded(gpu.used and seen.told.count > 1)
    sure = Confidence.LIKELY
    if fabric.state == COMPLETED:
        saw = f"its NVSwitch fabric ended with NVML error {fabric.status}"
    elif fabric.state == NOT_STARTED:
        saw = "its NVSwitch fabric was not started"
    else:
        saw = "its NVSwitch fabric is still coming up"
        saw += "" if seen.uptime is None else f" {duration(seen.uptime)} after boot"
        if seen.uptime is not None and seen.uptime < FABRIC_PATIENCE:
            graded = {"status": UNDECIDED, "blame": Blame.UNKNOWN, "explains": ()}
            sure = Confidence.POSSIBLE
    goal = "the fabric is up (state Completed)"
    code = "nvlink-domain-down" if tray else "fabric-down"
    yield Found(code, (gpu.subject,), saw, goal, confidence=sure, **graded)


def _routes(gpu: _Gpu, fabric: NvSwitchFabric) -> Found:
    broken, weak = map(list, _said_by(fabric.mask))
    if not (broken or weak):
        weak = ["unhealthy" if fabric.summary == UNHEALTHY else "limited capacity"]
    saw = f"NVSwitch fabric: {', '.join(broken + weak)} (health mask {fabric.mask:#x})"
    graded = _graded(bool(broken) and gpu.used)
    likely = Confidence.LIKELY
    return Found("fabric-unhealthy", (gpu.subject,), saw, confidence=likely, **graded)


@lru_cache(256)
def _said_by(mask: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is broken and what is weak by a health mask, in words: most GPUs have the same."""
    broken = tuple(w for shift, bits, bad, w in BROKEN if mask >> shift & bits in bad)
    return broken, tuple(w for shift, bits, bad, w in WEAK if mask >> shift & bits in bad)


# --- who else is on it ---


def _busy(gpu: _Gpu) -> Iterator[Found]:
    one = gpu.vitals
    if not gpu.used or not one.memory or one.used is None or one.mig or one.coherent:
        return
    theirs = 0
    if one.processes:
        theirs = sum(p.memory or 0 for p in one.processes) or one.used
    # CUDA lets nobody else in then, except through MPS
    shut = bool(one.processes) and one.compute_mode == nvml.EXCLUSIVE and not one.mps
    if shut or theirs > BUSY:
        who = [
            f"pid {p.pid} {repr(p.name) if p.name else 'of another pid namespace'}"
            + ("" if p.uid is None else f" of uid {p.uid}")
            for p in sorted(one.processes, key=lambda p: -(p.memory or 0))[:4]
        ]
        who += [f"{len(one.processes) - 4} more"] * (len(one.processes) > 4)
    elif one.used > max(BUSY_BY_NOBODY, BUSY_SHARE * one.memory) and not (
        one.processes or one.ours or one.graphics
    ):
        who = ["by a process that can't be seen from here"]
    else:
        return
    # a pid of another pid namespace is somebody else's here
    pid = next((str(p.pid) for p in one.processes if p.name), "")
    yield Found(
        "gpu-busy",
        (gpu.subject,),
        f"{size(one.used)} of {size(one.memory)} in use: {', '.join(who)}"
        + " · compute mode Exclusive_Process" * shut,
        "the GPU is free before the job starts",
        **_graded(shut or one.used > FULL * one.memory),
        confidence=Confidence.CERTAIN if shut else Confidence.LIKELY,
        fields={"pid": pid},
    )


def _merge_alike(findings: Sequence[Found]) -> Iterator[Found]:
    """The same of several GPUs as one finding, with the first one's fields."""
    alike: dict[tuple[str, Status | None, str], list[Found]] = {}
    for one in findings:
        alike.setdefault((one.code, one.status, one.saw), []).append(one)
    for group in alike.values():
        saw = group[0].saw + (f" · on {len(group)} GPUs" if len(group) > 1 else "")
        yield group[0].with_(subjects=tuple(s for f in group for s in f.subjects), saw=saw)


# --- what could not be seen ---


def _not_readable(here: Subject, seen: Health, gpus: Sequence[_Gpu]) -> Iterator[Found]:
    """Undecided is what nobody could look at: no time, a refusal, or errors that accuse nobody.
    In MIG mode NVML keeps much from those who are not root; that is the row's to say."""
    asked, count = len(seen.told.gpus), seen.told.count
    if asked < count:
        saw = f"{asked} of {plural(count, 'GPU')} answered in the time that there was"
        yield Found("health-unknown", (here,), saw, confidence=Confidence.POSSIBLE)
    if seen.told.untold:
        # errors that /sys counts were looked at
        saw = f"{seen.told.untold} · /sys reports errors, memory and PCIe only"
        yield Found("amdsmi-unavailable", (here,), saw, confidence=Confidence.POSSIBLE)
    known = {nvml.LOST, nvml.RESET, INFOROM}
    for gpu in gpus:
        one = gpu.vitals
        if not (one.failed or one.refused):
            continue
        odd = [f"{c}: error {abs(n)}" for c, n in one.failed.items() if n not in known]
        if not one.mig:
            odd += [f"{c}: no permission" for c in one.refused]
        if odd and gpu.used and not one.gone:
            more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
            who = "amdsmi" if seen.make == AMD else "NVML"
            saw = f"{who} did not tell: {', '.join(odd[:3])}{more}"
            yield Found("health-unknown", (gpu.subject,), saw, confidence=Confidence.POSSIBLE)


def measured(world: World[Health]) -> Measured:
    seen = list(world.seen.values())
    gpus = [gpu for one in seen for gpu in one.told.gpus]
    if not gpus:
        return Measured()
    heat = [g.temperature for g in gpus if g.temperature is not None]
    errors = [g.volatile for g in gpus if g.volatile is not None]
    widths = sorted({g.width for g in gpus if g.width}, reverse=True)
    off = sum(g.persistent is False for g in gpus)
    blind = sum(bool(one.log.refused or one.resets.refused) for one in seen)
    old = sum(x.age >= RECENT for one in seen for x in one.log.xids)
    words = [plural(len(gpus), "GPU")]
    words += [f"{max(heat)} °C"] if heat else []
    words += [f"ECC {sum(errors)}"] if errors else []
    words += [", ".join(f"x{w}" for w in widths[:3])] if widths else []
    words += ["kernel log unreadable"] if blind else []
    words += [f"{plural(old, 'Xid')} before the last hour"] if old else []
    words += [f"persistence off on {off}"] if off else []
    values = {
        "gpus": len(gpus),
        "hottest": max(heat, default=None),
        "uncorrectable": sum(errors),
        "uncorrectable_ever": sum(g.aggregate or 0 for g in gpus),
        "rows_remapped": sum(g.rows or 0 for g in gpus),
        "pcie_widths": widths,
        "persistence_off": off,
        "xids": sorted({x.code for one in seen for x in one.log.xids}),
        "kernel_logs_unread": blind,
    }
    return Measured(" · ".join(words), values)
