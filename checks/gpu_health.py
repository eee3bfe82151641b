"""Is each GPU of the job well: its memory, heat, slot and fabric, and is it free?

Looks at     NVML, call by call: uncorrectable memory errors, rows to remap and pages to retire, the
             recovery that the driver asks for, what brakes the clocks, temperature, PCIe width,
             NVSwitch fabric, memory in use, programs on it; Xids in /dev/kmsg, where readable.
             AMD: amdsmi, where it is installed, /sys, and failed resets in /dev/kmsg
Fails if     a call about a GPU hangs, or the GPU is lost meanwhile; the driver wants a reset, a
             reboot or the like; a row remap or a page retirement is pending or has failed; memory
             errors could not be corrected; a critical Xid came in the last hour and nothing says
             that it is over; the fabric is not up or routes through it are unhealthy; nearly all
             memory of a GPU is in use by others; pages of an AMD GPU wait to be put out of use, or
             its reset has failed
Warns if     power brake, heat or another brake of the hardware slows a GPU down; it is as hot as
             its slowdown temperature; it runs on fewer PCIe lanes than it could; the fabric has
             less bandwidth; other programs use its memory; a GPU that no rank uses is unwell;
             errors of an AMD GPU could not be corrected since its driver was loaded
Undecided    NVML crashes or is refused; a GPU was not asked for want of time; errors of NVML that
             say nothing of the GPU; the fabric comes up just after boot; amdsmi is not installed,
             or not that of this ROCm
Not covered  the kernel log where it is not readable (said in the row); Fabric Manager before
             Hopper; corrected errors; PCIe generation and brakes under load; persistence mode is
             told only (gpu.visible says what it costs); driver, masks, compute mode, MIG:
             gpu.visible; links: gpu.links. Seen with a fake NVML and a fake amdsmi only, not yet on
             these GPUs
Seen as      "uncorrectable ECC error encountered", "CUDA error: an illegal memory access" on one
             rank only, "Error 802: system not yet initialized", "NVRM: Xid", "GPU is lost", "GPU
             requires reset", "CUDA out of memory" at the first allocation, one rank slower than the
             others, "HIP error: an illegal memory access", "amdgpu: GPU reset(2) failed"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.check import Check, Context, Scope, Stage
from preflight.domains.gpu import amdsmi as amdhealth
from preflight.domains.gpu import nvml as nvidia
from preflight.domains.gpu import nvml_health as health
from preflight.domains.gpu import vendor, xid
from preflight.domains.gpu.amdsmi import Resets
from preflight.domains.gpu.nvml import Masks, Shown
from preflight.domains.gpu.nvml_health import Told, Vitals
from preflight.domains.gpu.xid import Log, Xid
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import GIB, duration, plural, size
from preflight.model import (
    Advice,
    Blame,
    Cause,
    Command,
    Confidence,
    Finding,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = Check(scope=Scope.NODE, stage=Stage.MACHINE, budget=5.0, needs=("gpu.visible",))

# the rest of the budget is for one call that takes long, and for the way back
ASKING, LOG_SECONDS = 0.55, 0.5
# a GPU that was reset or came back says nothing of it in the log: older Xids tell no present state
RECENT = 3600.0
# NVIDIA's fabric manager brings a fabric of eight GPUs up in a minute or two after boot
FABRIC_PATIENCE = 600.0
# of others on a GPU: CUDA contexts that do nothing have up to half of it
BUSY = 1 * GIB
# with nobody to be seen on it: what the driver keeps for itself counts as used and is up to 1 GiB
BUSY_BY_NOBODY, BUSY_SHARE = 2 * GIB, 0.05
FULL = 0.9

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
BRAKES_OF_AMD = {bit: name for bit, (_, name) in amdhealth.BRAKES.items()}
UNHEALTHY, LIMITED = 2, 3
"""nvml.h, NVML_GPU_FABRIC_HEALTH_SUMMARY_*."""

AMD = vendor.AMD.NAME
FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
FOLLOWS = ("gpu.links", "gpu.p2p", "gpu.compute", "world.nccl", "world.bandwidth")
RESET = Command("nvidia-smi --gpu-reset -i {index}", "the node", "all jobs on that GPU")
LOG = Command("dmesg -T | grep -E 'NVRM|Xid'", "the node, as root")
QUERY = Command("nvidia-smi -q -i {index}", "the node")
AMD_LOG = Command("dmesg -T | grep amdgpu", "the node, as root")
AMD_RESET = Command(
    "amd-smi reset --gpureset -g {bus}", "the node, as root", "all jobs on that GPU"
)

ADVICE = {
    "nvml-hangs": Advice(
        who="cluster administrator",
        cause="a GPU that is stuck, or one so busy with corrected memory errors that it can't talk",
        means="CUDA hangs at its start or in the middle of the job, nvidia-smi too",
        now="take the node out of the job",
        text="drain the node, look into the kernel log, reboot it",
        commands=(LOG, Command("systemctl reboot", "the node", "ENDS ALL JOBS THERE")),
    ),
    "nvml-crashes": Advice(
        who="cluster administrator",
        cause="a driver's library that does not fit the kernel module, or a fault of its own",
        means="nothing is known of how well the GPUs are",
        text="run nvidia-smi -q there; if it crashes as well, install the driver anew",
        commands=(Command("nvidia-smi -q", "the node"),),
    ),
    "not-told": Advice(
        who="whoever runs this node",
        cause="a permission, an old driver, or no time: NVML was too slow for all GPUs",
        means="nothing is known of how well these GPUs are",
        text="run it again, alone or with more time (--timeout gpu.health=30s), or as root",
        commands=(Command("nvidia-smi -q || amd-smi metric", "the node"),),
    ),
    "gpu-gone": Advice(
        who="cluster administrator",
        cause="the GPU has fallen off the bus or stopped while it was asked (Xid 79)",
        means="'GPU is lost' or 'unspecified launch failure' on one rank, the others wait for it",
        now="take the node out of the job",
        text="drain the node and cycle its power; when it comes back lost, replace the GPU",
        commands=(LOG,),
    ),
    "memory-worn": Advice(
        who="cluster administrator",
        cause="memory that is broken in more rows than the GPU has spare ones",
        means="'uncorrectable ECC error encountered' on one rank, the others wait for it",
        now="take the node out of the job",
        text="have the GPU replaced: no reset repairs it",
        commands=(Command("nvidia-smi -q -d ROW_REMAPPER,ECC -i {index}", "the node"),),
    ),
    "remap-pending": Advice(
        who="cluster administrator",
        cause="a memory error: the row is put out of use at the next reset of the GPU only",
        means="'uncorrectable ECC error encountered' hours into the job, when it is touched again",
        now="take the node out of the job",
        text="reset the GPU while nothing uses it, else reboot; with NVSwitch all GPUs at once",
        commands=(RESET,),
    ),
    "memory-errors": Advice(
        who="cluster administrator",
        cause="memory of the GPU that fails",
        means="'uncorrectable ECC error encountered' on one rank, the others wait for it",
        now="take the node out of the job",
        text="reset the GPU, run NVIDIA's diagnosis; when errors come again, replace it",
        commands=(RESET, Command("dcgmi diag -r 3", "the node", "all jobs on its GPUs")),
    ),
    "recovery-needed": Advice(
        who="cluster administrator",
        cause="an error after which the driver doesn't trust the GPU until it is recovered",
        means="the first CUDA call of one rank fails, or it hangs hours into the job",
        now="take the node out of the job",
        text="do what the driver asks for while nothing uses the GPU",
        commands=(QUERY, RESET),
    ),
    "xid": Advice(
        who="cluster administrator",
        cause="an error of the GPU, its memory, firmware or bus that the driver has logged",
        means="the next program on this GPU fails or hangs as the last one did",
        now="take the node out of the job",
        text="reset the GPU, look the number up in NVIDIA's catalogue of Xids",
        commands=(LOG, RESET),
    ),
    "clocks-braked": Advice(
        who="cluster administrator",
        cause="a power supply or cooling that is not enough, or a sensor that says so",
        means="this GPU computes at a fraction of its speed, and every step waits for it",
        text="look at power supplies, fans and airflow of the node",
        commands=(
            Command("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER || amd-smi metric", "the node"),
        ),
    ),
    "too-hot": Advice(
        who="cluster administrator",
        cause="fans, airflow, coolant, or dust",
        means="the GPU slows down under load, or shuts off; every step waits for it",
        text="look at the cooling of the node",
        commands=(
            Command("nvidia-smi -q -d TEMPERATURE,PERFORMANCE || amd-smi metric", "the node"),
        ),
    ),
    "pcie-narrow": Advice(
        who="cluster administrator",
        cause="a card, riser or retimer that has bad contact, or a lane that fails",
        means="copies to and from this GPU take twice as long or more; every step waits for it",
        text="reseat the card; compare with its peers",
        commands=(Command("lspci -vv -s {bus} | grep -E 'LnkCap|LnkSta'", "the node, as root"),),
    ),
    "fabric-down": Advice(
        who="cluster administrator",
        cause="NVIDIA's fabric manager does not run, or in another version than the driver",
        means="'Error 802: system not yet initialized': CUDA finds no GPU though nvidia-smi does",
        now="take the node out of the job",
        text="start it, in the driver's version; just after boot wait for some minutes",
        commands=(
            Command("systemctl status nvidia-fabricmanager", "the node"),
            Command("systemctl restart nvidia-fabricmanager", "the node", "all jobs there"),
        ),
    ),
    "fabric-unwell": Advice(
        who="cluster administrator",
        cause="an NVLink or NVSwitch that fails, or a fabric that was set up wrongly",
        means="NCCL fails with a CUDA error or hangs at its start, or is far slower",
        text="look at the fabric manager's log and at the links of these GPUs",
        commands=(
            Command("nvidia-smi -q | grep -A 9 Fabric", "the node"),
            Command("nvidia-smi nvlink -s", "the node"),
        ),
    ),
    "gpu-busy": Advice(
        who="whoever runs these programs",
        cause="another job on the same GPU, or what an ended one has left behind",
        means="'CUDA out of memory' at the first allocation or in NCCL's start; slow steps",
        text="end them, or let the scheduler give GPUs to one job at a time",
        commands=(
            Command("fuser -v /dev/nvidia* /dev/dri/renderD*", "the node, as root"),
            Command("kill {pid}", "the node", "ends that program"),
        ),
    ),
    "inforom": Advice(
        who="cluster administrator",
        cause="the GPU's store of settings and error counts is corrupt",
        means="errors of its memory are no longer counted and repaired: they come back",
        text="have it looked at by the vendor",
        commands=(QUERY,),
    ),
    # AMD
    "amdsmi-hangs": Advice(
        who="cluster administrator",
        cause="a GPU that is stuck, or is being reset again and again",
        means="HIP hangs at its start or in the middle of the job, amd-smi too",
        now="take the node out of the job",
        text="drain the node, look into the kernel log, reboot it",
        commands=(AMD_LOG, Command("systemctl reboot", "the node", "ENDS ALL JOBS THERE")),
    ),
    "amdsmi-untold": Advice(
        who="whoever made the environment",
        cause="a Python environment without ROCm's package amdsmi, or with that of another ROCm",
        means="heat, brakes and programs on the GPUs are not known; errors only as /sys has them",
        text="install the one that lies beside ROCm; the index has it too, in ROCm's version",
        commands=(Command("pip install /opt/rocm/share/amd_smi", "the environment of the job"),),
    ),
    "ras-errors": Advice(
        who="cluster administrator",
        cause="memory or another part of the GPU that fails; the driver resets it each time",
        means="'Memory access fault by GPU node' or 'HIP error' on one rank; the others wait",
        text="look at the counts by block and at the bad pages; when they grow, replace the GPU",
        commands=(Command("amd-smi metric --ecc --ecc-blocks -g {bus}", "the node"), AMD_LOG),
    ),
    "bad-pages": Advice(
        who="cluster administrator",
        cause="memory that is broken and could not yet be put out of use",
        means="'Memory access fault by GPU node' hours into the job, when it is touched again",
        now="take the node out of the job",
        text="reset the GPU while nothing uses it, else reboot; when pages stay so, replace it",
        commands=(Command("amd-smi bad-pages -g {bus}", "the node, as root"), AMD_RESET),
    ),
    "reset-failed": Advice(
        who="cluster administrator",
        cause="a GPU that did not come back from the reset that an error had made necessary",
        means="the first HIP call of one rank fails or hangs, the others wait for it",
        now="take the node out of the job",
        text="reboot the node; when it happens again, replace the GPU",
        commands=(AMD_LOG, Command("systemctl reboot", "the node", "ENDS ALL JOBS THERE")),
    ),
}


NO_RESETS = Resets()


@dataclass(frozen=True, slots=True)
class Health:
    """What was seen of the GPUs here.

    uptime   of the machine in seconds; None where nothing says so
    bus      the PCI addresses of the vendor's GPUs in /sys
    mask     CUDA_VISIBLE_DEVICES; job: SLURM_JOB_GPUS; tasks: how many have an environment each
    make     the vendor; of AMD mask and first are as in amd.masks(), and resets stand for the log
    """

    told: Told
    log: Log
    uptime: float | None
    bus: tuple[str, ...]
    mask: str | None
    job: str
    tasks: int
    make: str = vendor.NVIDIA.NAME
    first: str | None = None
    resets: Resets = NO_RESETS


def observe(host: Host, ctx: Context) -> Health:
    ctx.mark("/sys/bus/pci")
    make = vendor.found(host)
    pci, amd = make.on_pci(host), make is vendor.AMD
    if not (host.live or pci):
        raise NotApplicable("no NVIDIA GPU or driver here")
    told = (amdhealth if amd else health).ask(host, ctx.mark, ASKING * ctx.seconds)
    if not told.count:
        raise NotApplicable("no AMD GPU is given to this job" if amd else "NVML lists no GPU")
    ctx.mark(xid.KMSG)
    masks = make.masks(host.environ)
    return Health(
        told=told,
        log=Log() if amd else xid.logged(host, LOG_SECONDS),
        uptime=xid.uptime(host),
        bus=tuple(gpu.bus for gpu in pci),
        mask=masks.mask,
        job=nvidia.variable(host.environ, "SLURM_JOB_GPUS") or "",
        tasks=max(nvidia.number(host.environ, name) or 0 for name in nvidia.TASKS),
        make=make.NAME,
        first=masks.first,
        resets=amdhealth.failed_resets(host, LOG_SECONDS) if amd else NO_RESETS,
    )


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU with the subject that it is in the report. `used`: by a rank of this job."""

    vitals: Vitals
    subject: Subject
    used: bool


def judge(world: World[Health], expect: Expect) -> Iterator[Finding]:
    yield from _stuck(world)
    for here, seen in world.each():
        gpus = _gpus(here, seen)
        for gpu in gpus:
            yield from _unwell(gpu, seen.log) if seen.make != AMD else _unwell_amd(gpu, seen.resets)
        yield from _vanished(here, seen)
        found = [
            f
            for gpu in gpus
            for f in (*_slow(gpu, seen.make == AMD), *_fabric(gpu, seen), *_busy(gpu))
        ]
        yield from _together(found)
        yield from _together([*_untold(here, seen, gpus)])


def _stuck(world: World[Health]) -> Iterator[Finding]:
    """A call that never returned, or with which the worker died: its mark is the last one."""
    causes = (Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED)
    for key, missing in world.missing(*causes).items():
        last = missing.marks[-1] if missing.marks else None
        if last is None or not last.name.startswith(("nvml", *AMD_MARKS)):
            continue  # it was not the driver
        amd = last.name.startswith(AMD_MARKS)
        here = world.subject(key)
        found = re.search(r"^(\S+) of GPU ([0-9]+)$", last.name)
        driver = f"{AMD if amd else vendor.NVIDIA.NAME} driver"
        subject = replace(here, kind=Kind.SOFTWARE, name=driver)
        if found:
            subject = Subject(Kind.GPU, here.node, f"GPU {found[2]}")
        if missing.cause is Cause.CRASHED:
            if "Traceback" in missing.detail:
                continue  # our own fault, not the library's
            why = f"{last.name}: {(missing.detail.strip().splitlines() or ['it died'])[-1][:160]}"
            code = "amdsmi-untold" if amd else "nvml-crashes"
            yield _finding(code, UNDECIDED, subject, why, blame=Blame.UNKNOWN)
            continue
        unkillable = missing.cause is Cause.UNKILLABLE
        facts = [f"{last.name} did not return in {duration(max(0, missing.seconds - last.at))}"]
        facts += ["SIGKILL has no effect"] * unkillable
        yield _finding(
            "amdsmi-hangs" if amd else "nvml-hangs",
            FAIL,
            subject,
            " · ".join(facts),
            expected="an answer in less than 0.1 s",
            confidence=Confidence.CERTAIN if unkillable else Confidence.LIKELY,
        )


def _finding(
    code: str, status: Status, subjects: Subject | Sequence[Subject], saw: str, **more: Any
) -> Finding:
    """A finding that blames the node; a failure is the cause of what else fails on its GPUs."""
    of = (subjects,) if isinstance(subjects, Subject) else tuple(subjects)
    usual: dict[str, Any] = {"blame": Blame.NODE, "explains": FOLLOWS if status is FAIL else ()}
    usual["confidence"] = Confidence.POSSIBLE if status is UNDECIDED else Confidence.CERTAIN
    return Finding(code, status, of, saw, **(usual | more))


def _gpus(here: Subject, seen: Health) -> list[_Gpu]:
    """The GPUs that NVML let us look at, each with its rank where every local rank has one."""
    uuids = {gpu.index: gpu.uuid for gpu in seen.told.gpus}
    listed = [uuids.get(i, "") for i in range(seen.told.count)]
    mask = vendor.shown(Masks(mask=seen.mask, first=seen.first), listed)
    ours = _ours(seen, mask)
    users: dict[int, tuple[int, ...]] = {}
    if seen.tasks < 2 and len(here.ranks) <= len(mask.indexes):
        # zip: more GPUs than ranks are no fault
        users = {i: (r,) for i, r in zip(mask.indexes, sorted(here.ranks), strict=False)}
    made = [
        _Gpu(
            vitals,
            Subject(Kind.GPU, here.node, f"GPU {vitals.index}", users.get(vitals.index, ())),
            vitals.index in ours,
        )
        for vitals in seen.told.gpus
    ]
    # one that may not be opened is somebody else's
    return [g for g in made if "nvmlDeviceGetHandleByIndex" not in g.vitals.refused]


def _ours(seen: Health, mask: Shown) -> frozenset[int]:
    """The GPUs of this job. The mask is the first task's only where every task has its own: then
    SLURM's list of the whole job counts, else all."""
    everything = frozenset(range(seen.told.count))
    if mask.mig or not (mask.indexes or mask.off):
        return everything
    if seen.tasks < 2:
        return frozenset(mask.indexes)
    listed = {int(n) for n in seen.job.split(",")[:256] if re.fullmatch("[0-9]{1,4}", n)}
    return frozenset(listed) if listed and listed <= everything else everything


# --- one GPU that is unwell ---


def _unwell(gpu: _Gpu, log: Log) -> Iterator[Finding]:
    """All that speaks against one GPU is one finding: errors of its memory, what the driver wants
    done and the Xid have one cause."""
    one = gpu.vitals
    facts = [*_facts(one)]
    # the gravest gives the finding its code
    code, status, confidence = "", FAIL, Confidence.CERTAIN
    if one.gone:
        code = "gpu-gone"
    elif one.remap_failed:
        code = "memory-worn"
    elif one.remap_pending or one.pages_pending:
        code = "remap-pending"
    elif one.recovery:
        code = "recovery-needed"
        confidence = Confidence.CERTAIN if one.recovery in RECOVERY else Confidence.LIKELY
    elif one.volatile:
        code = "memory-errors"
        # the driver has put it out of use and asks for nothing
        status = WARN if one.recovery == 0 else FAIL
    xids = [x for x in log.xids if x.bus == one.bus and x.age < RECENT]
    facts += [_words(x) for x in xids]
    if xids and not code:
        code, confidence = "xid", Confidence.LIKELY
        status = WARN if all(_over(x, one) for x in xids) else FAIL
    if code:
        domain = code == "recovery-needed" and one.recovery == IMEX
        reset = ("the GPU was reset since, which this driver does not tell",)
        found = _finding(
            code,
            status if gpu.used else WARN,
            gpu.subject,
            " · ".join(facts),
            blame=Blame.UNKNOWN if domain else Blame.NODE,
            confidence=confidence,
            fields=_fields(one),
        )
        untold = code == "xid" and status is FAIL and one.recovery is None
        yield found.with_(alternatives=reset) if untold else found
    if health.INFOROM in one.failed.values():
        saw = f"{one.bus}: NVML calls its InfoROM corrupt"
        yield _finding("inforom", WARN, gpu.subject, saw, fields=_fields(one))


def _unwell_amd(gpu: _Gpu, resets: Resets) -> Iterator[Finding]:
    """The same of an AMD GPU. Errors alone are a warning: after each of them the driver has reset
    the GPU and put the page out of use."""
    one = gpu.vitals
    failed = [r for r in resets.failed if r.bus == one.bus and r.age < RECENT]
    facts = [f"its reset failed {_ago(r.age)}" for r in failed]
    facts += ["pages of its memory wait to be put out of use"] * bool(one.pages_pending)
    facts += ["pages of its memory could not be put out of use"] * bool(one.remap_failed)
    if one.volatile:
        facts.append(f"{plural(one.volatile, 'uncorrectable error')} since the driver was loaded")
    if facts:
        code, status = "ras-errors", WARN
        if failed:
            code, status = "reset-failed", FAIL
        elif one.pages_pending or one.remap_failed:
            code, status = "bad-pages", FAIL
        yield _finding(
            code,
            status if gpu.used else WARN,
            gpu.subject,
            " · ".join(facts),
            confidence=Confidence.LIKELY,
            fields=_fields(one),
        )


def _facts(one: Vitals) -> Iterator[str]:
    if one.gone:
        call = next(call for call, code in one.failed.items() if code == one.gone)
        what = "lost" if one.gone == nvidia.LOST else "in want of a reset"
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


def _words(one: Xid) -> str:
    times = f"{one.count} times, last " if one.count > 1 else ""
    return f"Xid {one.code} ({xid.CRITICAL.get(one.code, 'critical')}) {times}{_ago(one.age)}"


def _ago(age: float) -> str:
    return f"{duration(age)} ago"


def _over(one: Xid, vitals: Vitals) -> bool:
    """Whether something says that the GPU was recovered since: the driver wants nothing done; the
    count of memory errors, which a reset sets to 0, is 0; it is back on the bus."""
    return (
        vitals.recovery == 0
        or one.code == xid.LOST_BUS
        or (one.code in xid.MEMORY and vitals.volatile == 0)
    )


def _vanished(here: Subject, seen: Health) -> Iterator[Finding]:
    """A GPU that fell off and is not even on the bus any more: nothing else would miss it."""
    there = {gpu.bus for gpu in seen.told.gpus} | set(seen.bus)
    asked_all = len(seen.told.gpus) == seen.told.count and all(g.bus for g in seen.told.gpus)
    for one in seen.log.xids if seen.bus and asked_all else ():
        if one.code == xid.LOST_BUS and one.age < RECENT and one.bus not in there:
            subject = Subject(Kind.GPU, here.node, one.bus)
            saw = f"{_words(one)} · it is no longer on the PCI bus"
            likely = Confidence.LIKELY
            yield _finding("gpu-gone", FAIL, subject, saw, confidence=likely)


def _fields(one: Vitals) -> Mapping[str, str]:
    return {"index": str(one.index), "bus": one.bus or "PCI-ADDRESS"}


# --- slower than it should be ---


def _slow(gpu: _Gpu, amd: bool) -> Iterator[Finding]:
    one = gpu.vitals
    if one.brakes:
        names = BRAKES_OF_AMD if amd else health.BRAKES
        bits = [name for bit, name in names.items() if one.brakes & bit]
        saw = f"clocks are braked: {', '.join(bits)}"
        yield _finding("clocks-braked", WARN, gpu.subject, saw, fields=_fields(one))
    hot, limit = one.temperature, one.slowdown_at
    if hot is not None and limit and hot >= limit:
        saw = f"{hot} °C · it {'is critical' if amd else 'slows down'} at {limit} °C"
        yield _finding("too-hot", WARN, gpu.subject, saw, fields=_fields(one))
    # with Grace the data go over NVLink-C2C; a virtual slot says nothing of the real one
    real = not one.coherent and one.virtual != health.VGPU
    if real and one.width and one.width_max and one.width < one.width_max:
        goal = f"x{one.width_max}"
        saw = f"PCIe x{one.width}"
        yield _finding("pcie-narrow", WARN, gpu.subject, saw, expected=goal, fields=_fields(one))


def _fabric(gpu: _Gpu, seen: Health) -> Iterator[Finding]:
    """NVSwitch. GPUs in MIG mode have no part in it, and of a single one nobody needs it."""
    fabric = gpu.vitals.fabric
    if (
        fabric is None
        or gpu.vitals.mig
        or fabric.state not in (NOT_STARTED, IN_PROGRESS, COMPLETED)
    ):
        return
    if fabric.state == COMPLETED and fabric.status == 0:
        yield from _routes(gpu)
        return
    fresh = seen.uptime is not None and seen.uptime < FABRIC_PATIENCE
    status = FAIL if gpu.used and seen.told.count > 1 else WARN
    blame = Blame.NODE
    if fabric.state == COMPLETED:
        saw = f"its NVSwitch fabric ended with NVML error {fabric.status}"
    else:
        saw = "its NVSwitch fabric was not started"
        if fabric.state == IN_PROGRESS:
            saw = "its NVSwitch fabric is still coming up"
            saw += "" if seen.uptime is None else f" {duration(seen.uptime)} after boot"
            if fresh:
                status, blame = UNDECIDED, Blame.UNKNOWN
    sure = Confidence.POSSIBLE if status is UNDECIDED else Confidence.LIKELY
    goal = "the fabric is up (state Completed)"
    yield _finding(
        "fabric-down", status, gpu.subject, saw, expected=goal, blame=blame, confidence=sure
    )


def _routes(gpu: _Gpu) -> Iterator[Finding]:
    fabric = gpu.vitals.fabric
    assert fabric is not None
    broken = [w for shift, mask, bad, w in BROKEN if fabric.mask >> shift & mask in bad]
    weak = [w for shift, mask, bad, w in WEAK if fabric.mask >> shift & mask in bad]
    if fabric.summary in (UNHEALTHY, LIMITED) and not (broken or weak):
        weak = ["unhealthy" if fabric.summary == UNHEALTHY else "limited capacity"]
    if broken or weak:
        saw = f"NVSwitch fabric: {', '.join(broken + weak)} (health mask {fabric.mask:#x})"
        status = FAIL if broken and gpu.used else WARN
        likely = Confidence.LIKELY
        yield _finding("fabric-unwell", status, gpu.subject, saw, confidence=likely)


# --- who else is on it ---


def _busy(gpu: _Gpu) -> Iterator[Finding]:
    one = gpu.vitals
    if not gpu.used or not one.memory or one.used is None or one.mig or one.coherent:
        return
    theirs = sum(p.memory or 0 for p in one.processes) or (one.used if one.processes else 0)
    if theirs > BUSY:
        who = [
            f"pid {p.pid} {repr(p.name) if p.name else 'of another pid namespace'}"
            + ("" if p.uid is None else f" of uid {p.uid}")
            for p in sorted(one.processes, key=lambda p: -(p.memory or 0))[:4]
        ]
        who += [f"{len(one.processes) - 4} more"] * (len(one.processes) > 4)
    elif one.used > max(BUSY_BY_NOBODY, BUSY_SHARE * one.memory) and not (
        one.processes or one.ours or one.graphics
    ):
        who = ["by no program that can be seen from here"]
    else:
        return
    full = one.used > FULL * one.memory
    # a pid of another pid namespace is somebody else's here
    pid = next((str(p.pid) for p in one.processes if p.name), "PID")
    yield _finding(
        "gpu-busy",
        FAIL if full else WARN,
        gpu.subject,
        f"{size(one.used)} of {size(one.memory)} in use: {', '.join(who)}",
        expected="the GPU is free before the job starts",
        blame=Blame.UNKNOWN,
        confidence=Confidence.LIKELY,
        fields={"pid": pid},
    )


def _together(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The same of several GPUs as one finding, with the first one's fields."""
    alike: dict[tuple[str, Status, str], list[Finding]] = {}
    for one in findings:
        alike.setdefault((one.code, one.status, one.saw), []).append(one)
    for group in alike.values():
        saw = group[0].saw + (f" · on {len(group)} GPUs" if len(group) > 1 else "")
        yield group[0].with_(subjects=tuple(s for f in group for s in f.subjects), saw=saw)


# --- what could not be seen ---


def _untold(here: Subject, seen: Health, gpus: Sequence[_Gpu]) -> Iterator[Finding]:
    """Undecided is what nobody could look at: no time, a refusal, or errors that accuse nobody.
    In MIG mode NVML keeps much from those who are not root; that is the row's to say."""
    asked, count = len(seen.told.gpus), seen.told.count
    if asked < count:
        saw = f"{asked} of {plural(count, 'GPU')} answered in the time that there was"
        yield _finding("not-told", UNDECIDED, here, saw, blame=Blame.UNKNOWN)
    if seen.told.untold:
        # errors that /sys counts were looked at
        saw = f"{seen.told.untold} · /sys tells of errors, memory and PCIe only"
        yield _finding("amdsmi-untold", UNDECIDED, here, saw, blame=Blame.UNKNOWN)
    known = {nvidia.LOST, nvidia.RESET, health.INFOROM}
    for gpu in gpus:
        one = gpu.vitals
        odd = [f"{c}: error {abs(n)}" for c, n in one.failed.items() if n not in known]
        if not one.mig:
            odd += [f"{c}: no permission" for c in one.refused]
        if odd and gpu.used and not one.gone:
            more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
            who = "amdsmi" if seen.make == AMD else "NVML"
            saw = f"{who} did not tell: {', '.join(odd[:3])}{more}"
            yield _finding("not-told", UNDECIDED, gpu.subject, saw, blame=Blame.UNKNOWN)


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
