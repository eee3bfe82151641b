"""Lists NVIDIA's GPUs by NVML, PCI bus and driver, and knows CUDA's rules for masks and versions.

Nothing here starts CUDA. Whatever asks NVML may hang forever in a sick driver: only in a worker.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from preflight.domains.gpu import nccl_library
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve
from preflight.nodeset import tasks_on
from preflight.sanitize import clip

T = TypeVar("T")

TEXT = 200
"""Characters kept of any text that a driver or an environment gives."""

MASK = 4096
"""Characters kept of a mask: 64 UUIDs have 2624."""

TASKS = (
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    "JSM_NAMESPACE_LOCAL_SIZE",
)
"""Variables of launchers that give every process of a node an environment of its own."""

NAME = "NVIDIA"
VENDOR = 0x10DE
VGA = 0x0300
DISPLAY = (VGA, 0x0302)
"""PCI classes of GPUs, VGA and 3D controllers; the file `class` has one more byte at its end."""

SLOWEST_INIT = 25.0
"""Seconds; without persistence mode nvmlInit of a healthy node with eight GPUs takes 4 to 15."""

AFTER_INIT = 1.0
"""Seconds for the GPUs once NVML has started, however long that took: a healthy one answers in
milliseconds."""

INSTANCES_MAX = 64
"""MIG devices of one GPU that are looked for; an H100 has 7."""
DEVICES_MAX = 1024
"""More than any machine has; a listing beyond it is cut."""

MIG = "MIG-"
"""With what the name of a MIG device begins."""
BY_ADDRESS = "PCI_BUS_ID"
"""CUDA_DEVICE_ORDER, without which CUDA counts the fastest GPU first (CUDA C++ Programming Guide,
"CUDA Environment Variables")."""
UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""Of a GPU that sleeps the driver's files in /proc have question marks."""

# nvml.h, nvmlReturn_t: answers that only say "this GPU, driver or user can't tell"
UNTOLD = frozenset((2, 3, 4, 6, 13, 21, 25, 26))
NOT_FOUND = 6
NO_PERMISSION, NOT_LOADED, NO_LIBRARY, LOST, RESET, MISMATCH = 4, 9, 12, 15, 16, 18
# nvml.h, nvmlComputeMode_t
PROHIBITED, EXCLUSIVE = 2, 3

# docs.nvidia.com/deploy/cuda-compatibility, "minor version compatibility"; with the patch level of
# the release notes, below which a driver of the same branch is no production driver
MINIMUM_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """A GPU as NVML lists it. None: it doesn't tell. `error` is the NVML code with which it
    failed, `text` its words; what it said until then stays. bus is as in /sys: 0000:18:00.0.
    instances: MIG devices of a GPU in MIG mode; mig_names: what CUDA_VISIBLE_DEVICES may call them,
    MIG-UUID or MIG-GPU-UUID/GPU instance/compute instance, where it names any."""

    index: int
    name: str = ""
    uuid: str = ""
    bus: str = ""
    minor: int | None = None
    capability: str = ""
    memory: int | None = None
    used: int | None = None
    compute_mode: int | None = None
    mig: bool | None = None
    persistent: bool | None = None
    error: int = 0
    text: str = ""
    instances: int | None = None
    mig_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class GpuListing:
    """What NVML said. `code` is its error when it could not start, 0 otherwise; `gpus` are fewer
    than `count` when there was no time for all."""

    code: int = 0
    text: str = ""
    driver: str = ""
    cuda: str = ""
    count: int = 0
    gpus: tuple[ListedGpu, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A GPU on the PCI bus. `driver` is the kernel driver that holds it, `minor` says which
    /dev/nvidiaN it is where the NVIDIA driver shows it to us."""

    bus: str
    model: str
    driver: str
    minor: int | None


def env_text(environ: Mapping[str, str], name: str) -> str | None:
    """A variable, cut. Bytes that are not UTF-8 are lone surrogates: no report can hold them."""
    value = environ.get(name)
    return None if value is None else clip(value, MASK)


def env_number(environ: Mapping[str, str], name: str) -> int | None:
    """The number that a variable begins with: SLURM writes 4(x2) for two nodes of 4."""
    found = re.match(r"[0-9]{1,6}", environ.get(name, ""))
    return int(found[0]) if found else None


def tasks_here(environ: Mapping[str, str]) -> int:
    """How many processes of this node a launcher gave an environment of its own; 0 when none did.
    SLURM says it of all nodes of a step, which need not have the same."""
    node = env_number(environ, "SLURM_NODEID") or 0
    of_step = tasks_on(environ.get("SLURM_STEP_TASKS_PER_NODE", ""), node)
    return max(of_step, *(env_number(environ, name) or 0 for name in TASKS))


def list_gpus(host: Host, mark: Callable[[str], None], seconds: float) -> GpuListing:
    """NVML's answer. No further GPU is asked once `seconds` are over, or `AFTER_INIT` of them where
    NVML has used them up with its start."""
    if why := host.no_nvml():
        return GpuListing(NO_LIBRARY, clip(why, TEXT))
    began = time.monotonic()
    of_mig = MIG in host.environ.get("CUDA_VISIBLE_DEVICES", "")
    answer = in_session(
        host, mark, lambda nvml: _list_gpus(nvml, mark, began, began + seconds, of_mig)
    )
    if isinstance(answer, NvmlFailure):
        return GpuListing(answer.code, answer.text, seconds=time.monotonic() - began)
    return answer


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """NVML could not start, or gave up: its error code (nvmlReturn_t) and its text, cut."""

    code: int
    text: str


def in_session(
    host: Host, mark: Callable[[str], None], read: Callable[[Any], T]
) -> T | NvmlFailure:
    """What `read` returns when it is called with an initialised pynvml, or how NVML failed.
    CannotObserve where its Python package is not installed."""
    try:
        import pynvml
    except ImportError:
        raise CannotObserve("the package nvidia-ml-py is not installed") from None
    mark("nvmlInit")
    answers: list[T] = []
    try:
        with host.nvml() as nvml:
            answers.append(read(nvml))
    except pynvml.NVMLError as error:
        # an answer outlives an error of nvmlShutdown
        if not answers:
            return NvmlFailure(int(error.value), str(error)[:TEXT])
    return answers[0]


def _list_gpus(
    nvml: Any, mark: Callable[[str], None], began: float, until: float, of_mig: bool
) -> GpuListing:
    mark("nvmlDeviceGetCount")
    count = nvml.nvmlDeviceGetCount()
    until = max(until, time.monotonic() + AFTER_INIT)
    driver = _call_or_none(nvml, nvml.nvmlSystemGetDriverVersion) or ""
    cuda = _call_or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion) or 0
    gpus: list[ListedGpu] = []
    while len(gpus) < min(count, DEVICES_MAX) and time.monotonic() < until:
        mark(f"device {len(gpus)}")
        gpus.append(_describe(nvml, len(gpus), of_mig))
    return GpuListing(
        driver=str(driver)[:TEXT],
        # 12040 is 12.4
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        count=count,
        gpus=tuple(gpus),
        seconds=time.monotonic() - began,
    )


def _call_or_none(nvml: Any, question: Callable[..., Any], *about: Any) -> Any:
    """An answer of NVML, None where it can't tell; an error that means trouble comes as it is."""
    try:
        return question(*about)
    except nvml.NVMLError as error:
        if error.value in UNTOLD:
            return None
        raise


def _describe(nvml: Any, index: int, of_mig: bool) -> ListedGpu:
    known: dict[str, Any] = {}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if pci := _call_or_none(nvml, nvml.nvmlDeviceGetPciInfo, handle):
            known["bus"] = bus_id(pci.busId)
        for field, question in (
            ("name", nvml.nvmlDeviceGetName),
            ("uuid", nvml.nvmlDeviceGetUUID),
            ("minor", nvml.nvmlDeviceGetMinorNumber),
            ("compute_mode", nvml.nvmlDeviceGetComputeMode),
        ):
            value = _call_or_none(nvml, question, handle)
            if value is not None:
                known[field] = value[:TEXT] if isinstance(value, str) else value
        if capability := _call_or_none(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle):
            known["capability"] = "{}.{}".format(*capability)
        if memory := _call_or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle):
            known["memory"], known["used"] = memory.total, memory.used
        if mig := _call_or_none(nvml, nvml.nvmlDeviceGetMigMode, handle):
            known["mig"] = bool(mig[0])
            if mig[0]:
                devices, all_told = _mig_devices(nvml, handle)
                # without a permission for an instance it is as if there were none
                known["instances"] = len(devices) if devices or all_told else None
                known["mig_names"] = (
                    _mig_names(nvml, devices, known) if of_mig and all_told else None
                )
        persistent = _call_or_none(nvml, nvml.nvmlDeviceGetPersistenceMode, handle)
        if persistent is not None:
            known["persistent"] = bool(persistent)
    except nvml.NVMLError as error:
        known |= {"error": int(error.value), "text": str(error)[:TEXT]}
    return ListedGpu(index, **known)


def _mig_devices(nvml: Any, handle: Any) -> tuple[list[Any], bool]:
    """The handles of a GPU's MIG devices, and whether these are all."""
    most = _call_or_none(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    if most is None:
        return [], False
    question = nvml.nvmlDeviceGetMigDeviceHandleByIndex
    refused: set[int] = set()
    found = []
    for index in range(min(most, INSTANCES_MAX)):
        try:
            found.append(question(handle, index))
        except nvml.NVMLError as error:
            if error.value not in UNTOLD:
                raise
            refused.add(error.value)
    return found, refused <= {NOT_FOUND}


def _mig_names(nvml: Any, devices: list[Any], known: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What a mask may call these MIG devices, in both formats (MIG user guide, "Device
    Enumeration"); None where the driver does not tell all of it."""
    names: list[str] = []
    for device in devices:
        uuid = _call_or_none(nvml, nvml.nvmlDeviceGetUUID, device)
        of_gpu = _call_or_none(nvml, nvml.nvmlDeviceGetGpuInstanceId, device)
        of_compute = _call_or_none(nvml, nvml.nvmlDeviceGetComputeInstanceId, device)
        if uuid is None or of_gpu is None or of_compute is None:
            return None
        names += [uuid[:TEXT], f"{MIG}{known.get('uuid', '')}/{of_gpu}/{of_compute}"]
    return tuple(names) if "uuid" in known else None


def bus_id(text: str | bytes) -> str:
    """A PCI address as /sys writes it: NVML's 00000000:18:00.0 has a longer domain."""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"[:TEXT]


def gpus_on_pci(host: Host) -> tuple[PciGpu, ...]:
    """NVIDIA's GPUs on the bus; empty also where /sys shows none of it (some sandboxes)."""
    found = []
    for gpu, _ in scan_pci(host, VENDOR, DISPLAY):
        told = host.read_or_none(f"/proc/driver/nvidia/gpus/{gpu.bus}/information") or ""
        minor = re.search(r"^Device Minor:\s*([0-9]{1,4})\s*$", told, re.MULTILINE)
        number = int(minor[1]) if minor else None
        found.append(PciGpu(gpu.bus, gpu.model, gpu.driver, number))
    return tuple(found[:DEVICES_MAX])


def uuids_by_number(host: Host, devices: Collection[int]) -> tuple[str, ...]:
    """The UUIDs of the GPUs with these device numbers, in the order in which CUDA counts them: by
    PCI address, as far as one can say, where they are of one model or CUDA_DEVICE_ORDER says so.
    Empty where they are not, or the driver does not tell all (it does once a GPU is awake)."""
    folder, minors = "/proc/driver/nvidia/gpus", {os.minor(number) for number in devices}
    found: dict[int, str] = {}
    models = set()
    for bus in sorted(host.listdir(folder), key=bus_id)[:DEVICES_MAX]:
        lines = (line.partition(":") for line in host.lines(f"{folder}/{bus}/information", 64))
        told = {name.strip(): value.strip()[:TEXT] for name, _, value in lines}
        minor, uuid = told.get("Device Minor", ""), told.get("GPU UUID", "")
        if minor.isdecimal() and int(minor) in minors and UUID.fullmatch(uuid):
            found[int(minor)] = uuid
            models.add(told.get("Model", ""))
    by_address = len(models) == 1 or host.environ.get("CUDA_DEVICE_ORDER") == BY_ADDRESS
    return tuple(found.values()) if by_address and len(found) == len(devices) else ()


def screen_only(host: Host) -> bool:
    """Whether NVIDIA's GPUs here are display adapters that nouveau has: a machine that was set up
    to show something, not to compute."""
    found = [(gpu.driver, kind) for gpu, kind in scan_pci(host, VENDOR, DISPLAY)]
    return bool(found) and all(one == ("nouveau", VGA) for one in found)


def scan_pci(host: Host, vendor: int, classes: Collection[int]) -> Iterator[tuple[PciGpu, int]]:
    """A vendor's devices of these PCI classes on the bus, each with its class."""
    for bus in host.listdir("/sys/bus/pci/devices")[: DEVICES_MAX * 16]:
        folder = f"/sys/bus/pci/devices/{bus}"
        kind = (host.read_int(f"{folder}/class") or 0) >> 8
        if kind in classes and host.read_int(f"{folder}/vendor") == vendor:
            model = (host.read_or_none(f"{folder}/device") or "").strip()[:TEXT]
            driver = host.readlink(f"{folder}/driver").rpartition("/")[2][:TEXT]
            yield PciGpu(bus, model, driver, None), kind


def not_listed(
    host: Host, mark: Callable[[str], None], answer: GpuListing, pci: Sequence[PciGpu]
) -> tuple[int, tuple[PciGpu, ...]]:
    """The GPUs on the bus that NVML doesn't list: how many this container or job may not open, and
    those that it may. Only NVIDIA's driver counts: what vfio-pci holds is a virtual machine's."""
    listed = {gpu.bus for gpu in answer.gpus}
    withheld, unlisted = 0, []
    for gpu in pci:
        if gpu.driver != "nvidia" or gpu.bus in listed:
            continue
        refusal = errno.ENOENT
        if gpu.minor is not None:
            mark(f"open /dev/nvidia{gpu.minor}")
            refusal = host.refused(f"/dev/nvidia{gpu.minor}")
        if refusal in (errno.ENOENT, errno.EPERM, errno.EACCES, errno.ENXIO, errno.ENODEV):
            withheld += 1
        else:
            unlisted.append(gpu)
    return withheld, tuple(unlisted)


def libraries(host: Host) -> tuple[str, ...]:
    """The versions of NVML that lie in the usual folders, as libnvidia-ml.so.570.124.06."""
    folders = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
    names = {n for f in folders for n in host.listdir(f) if n.startswith("libnvidia-ml.so.")}
    return tuple(sorted(n[:TEXT] for n in names - {"libnvidia-ml.so.1"}))[:8]


STUB = "stub"
"""In place of a version: a library to link with, which starts nothing."""


def cuda_driver(host: Host) -> tuple[str, str]:
    """The libcuda that LD_LIBRARY_PATH puts before the driver's own, and its version, or STUB;
    empty where it names none. The driver comes with a libcuda of its very version; one of another
    version is that of a cuda-compat package."""
    first = next(iter(nccl_library.libraries(host, "libcuda.so.1")), None)
    if first is None or first.origin != nccl_library.SEARCH:
        return "", ""
    target = host.readlink(first.path).rpartition("/")[2]
    found = re.fullmatch(r"libcuda\.so\.([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})", target)
    if not found and first.path.split("/")[-2:-1] == ["stubs"]:
        return first.path, STUB
    return (first.path, found[1]) if found else ("", "")


def module_version(host: Host) -> str:
    """Version of the loaded NVIDIA kernel module; empty when none is loaded (or under WSL)."""
    text = host.read_or_none("/proc/driver/nvidia/version") or ""
    found = re.search(r"^NVRM version:.*?\s([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})\s", text, re.MULTILINE)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class DeviceMasks:
    """The variable that hides GPUs from programs, by name and value. `first`: one that is applied
    before it, so that it counts what that one has left."""

    name: str = "CUDA_VISIBLE_DEVICES"
    mask: str | None = None
    first: str | None = None


def masks(environ: Mapping[str, str]) -> DeviceMasks:
    return DeviceMasks(mask=env_text(environ, "CUDA_VISIBLE_DEVICES"))


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """Which devices CUDA_VISIBLE_DEVICES leaves, by NVML's index, in CUDA's order.

    off     it names no device on purpose: empty, -1, NoDevFiles
    mig     it names MIG instances; which ones can't be told from here
    problem why it shows fewer devices than it names; empty when it does not
    once    of a mask that names a device twice and so shows none: the devices that it means
    """

    indexes: tuple[int, ...]
    off: bool = False
    mig: bool = False
    problem: str = ""
    once: tuple[int, ...] = ()


def all_hidden(environ: Mapping[str, str]) -> bool:
    """Whether CUDA_VISIBLE_DEVICES says that no GPU is wanted."""
    return visible_devices(env_text(environ, "CUDA_VISIBLE_DEVICES"), ()).off


def visible_devices(mask: str | None, uuids: Sequence[str]) -> VisibleDevices:
    """What a mask shows of the GPUs with these UUIDs. CUDA reads up to the first entry that is
    none of its devices and shows nothing when one comes twice (as torch.cuda._parse_visible_devices
    does). Indexes are NVML's only where all GPUs are of one model or CUDA_DEVICE_ORDER says so."""
    if mask is None:
        return VisibleDevices(tuple(range(len(uuids))))
    entries = [entry.strip() for entry in mask.split(",")]
    if entries[0].startswith(MIG):
        return VisibleDevices((), mig=True)
    if entries[0] == "" and any(entries):
        return VisibleDevices((), problem="its first entry is empty, and CUDA reads no further")
    if entries[0] in ("", "-1", "NoDevFiles"):
        return VisibleDevices((), off=True)
    # an empty entry and -1 end the list, which is a fault only where something comes after them
    while entries[-1] in ("", "-1"):
        entries.pop()
    found: list[int] = []
    repeated = ""
    for entry in entries:
        index, problem = _named_device(entry, entries[0].startswith("GPU-"), uuids)
        if index is None and repeated:
            break
        if index is None:
            return VisibleDevices(tuple(found), problem=problem)
        if index not in found:
            found.append(index)
        elif not repeated:
            repeated = entry[:50]
    if repeated:
        return VisibleDevices((), problem=f"it names {repeated!r} twice", once=tuple(found))
    return VisibleDevices(tuple(found))


def _named_device(entry: str, by_uuid: bool, uuids: Sequence[str]) -> tuple[int | None, str]:
    """The device that one entry of a mask names; else None, and why it names none."""
    if by_uuid:
        # the beginning of a UUID will do when only one device has it
        begins = entry.startswith("GPU-") and entry != "GPU-"
        matching = [i for i, u in enumerate(uuids) if begins and u.startswith(entry)]
        if len(matching) == 1:
            return matching[0], ""
        return None, f"{entry[:50]!r} fits {len(matching) or 'no'} GPU{'s' * bool(matching)} here"
    # like strtoul: what follows the digits is ignored
    number = re.match(r"[+-]?[0-9]{1,9}", entry)
    index = int(number[0]) if number else -1
    if 0 <= index < len(uuids):
        return index, ""
    return None, f"there is no device {entry[:50]!r} here ({len(uuids)} in all)"


def minimum_driver(cuda: str) -> str:
    """The oldest driver on which programs of this CUDA version run; empty when not known."""
    major = cuda.partition(".")[0]
    return MINIMUM_DRIVER.get(int(major), "") if re.fullmatch("[0-9]{1,3}", major) else ""


def runs_on(architectures: Sequence[str], capability: str) -> bool:
    """Whether binaries for these architectures (sm_90, sm_90a, compute_120 …) run on a GPU of
    compute capability `9.0`: machine code within its major version from an older or the same minor
    one, PTX (compute_) on anything newer; with `a` on exactly that GPU, with `f` in its family
    (CUDA C++ Programming Guide, "Compute Capabilities" and "Just-in-Time Compilation")."""
    major, _, minor = capability.partition(".")
    have = int(major), int(minor)
    for architecture in architectures:
        found = re.fullmatch(r"(sm|compute)_([0-9]{1,3})([0-9])([af]?)", architecture)
        if not found:
            continue
        built = int(found[2]), int(found[3])
        if found[4] == "a":
            fits = built == have
        elif found[1] == "sm" or found[4] == "f":
            fits = built[0] == have[0] and built[1] <= have[1]
        else:
            fits = built <= have
        if fits:
            return True
    return False
