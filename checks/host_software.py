"""Is torch installed and working, built for these GPUs and this driver, with its own NCCL?

Level        standard
Looks at     the import of torch (time, error, folder and its file system), torch's versions,
             architectures and backends, every libnccl on the search path and the one that is
             loaded, the packages nvidia-nccl-cu*, the NVIDIA driver and the GPUs' capabilities
Fails if     torch is installed, but can't be imported, or its import hangs; a file of the job's is
             imported in place of torch or of a module of Python's; a different or older NCCL lacks
             a symbol that torch needs; the driver is too old for torch's CUDA, or torch has no code
             for the GPUs; torch has no GPU support where a launcher's job has GPUs; it lacks
             torch.distributed or the NCCL backend; a version is not the expected one (--expect);
             torch is built for another vendor's GPUs than a launcher's job has; this torch refuses
             PYTORCH_CUDA_ALLOC_CONF
Warns if     the import took longer than 20 s; NCCL is not the one that torch was built with; NCCL
             for two CUDA versions is installed; the user has no name, but torch.compile needs one
             (torch before 2.13); PYTORCH_CUDA_ALLOC_CONF is refused, but no GPU needs it
Undecided    torch is built for the CPU only, started by hand on a machine with GPUs: they were not
             tested; torch is older than 2.4, so the checks that need it are not run; torch was not
             imported, or its import was killed from outside; the driver hangs
Not covered  whether nodes agree (agree.software); other packages; CUDA itself, which is not started
Seen as      "undefined symbol: ncclCommRegister", "CUDA driver version is insufficient for CUDA
             runtime version", "no kernel image is available for execution on the device", "Torch
             not compiled with CUDA enabled", "Distributed package doesn't have NCCL built in",
             "getpwuid(): uid not found", "module 'torch' has no attribute", "cannot import name …
             from 'random'", "libcudart.so: cannot
             open shared object file", "Unrecognized CachingAllocator option", "Unrecognized key …
             in Accelerator allocator config", "Index out of bounds in ConfigTokenizer"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from preflight.check import OLDEST_TORCH, Check, Context, Level, Scope, Stage
from preflight.domains.gpu import nccl_library, nvml, vendor
from preflight.domains.system import container
from preflight.expect import Expect, numbers
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, plural
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
)
from preflight.sanitize import encodable

TRAINING = ("world.*", "rdzv.*")

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=20.0,
    level=Level.STANDARD,
    torch=True,
    reports_torch=True,
    blame=Blame.JOB,
    explains=("gpu.compute", "gpu.p2p", "world.nccl", "world.bandwidth"),
)

# 1.1 s from a warm cache, 4.6 s from a cold local disk
SLOW_IMPORT = 20.0
# torch names its cache by the user; before 2.13 it fails where there is none (pytorch#184208)
NAMELESS_FROM = (2, 13)
TEXT = 2000
"""Characters kept of a traceback: its end."""

# in the order in which torch takes them: the first that is set counts
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

NETWORK = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "afs", "wekafs", "panfs"),
    *("pvfs2", "glusterfs", "fuse.glusterfs", "fuse.ceph", "fuse.sshfs", "fuse.juicefs"),
    *("fuse.gcsfuse", "fuse.s3fs", "fuse.mountpoint-s3", "fuse.rclone", "fuse.blobfuse2"),
)
IMPORT = "import torch"
NOT_TORCH = "what is imported as torch is not torch: "
# what Python says of a name that a module lacks, with the module's file; 3.13 knows the cause
LACKS_NAME = re.compile(
    r"cannot import name .{1,200}? from (?:partially initialized module )?'(\w+)'"
    r"(?: \([^()]*\))? \(([^()]+\.py)\)"
)
RENAME = re.compile(r"\(consider renaming '([^']+)' since it has the same name as")
# the folders of Python's own modules and of installed packages
OWN = re.compile(r"/lib(64)?/python\d|/(site|dist)-packages/")
FAIL, WARN = Status.FAIL, Status.WARN

FINDINGS = {
    "torch-broken": FindingType(
        headline="import torch fails on {at}: {seen}",
        who="image author",
        cause="packages that don't match each other, or a file of yours called torch",
        means="every rank ends with this traceback before it contacts the others",
        text="reinstall torch and its nvidia-* packages in a fresh environment",
        commands=(Command("python -c 'import torch'", "the job's environment"),),
        explains=TRAINING,
    ),
    "module-shadowed": FindingType(
        headline="a file of yours is imported in place of {module} on {at}: {file}",
        who="job author",
        cause="a file or folder with the name of a module, in the working directory, beside the "
        "script or in PYTHONPATH",
        means="every rank ends with '{error}' before it contacts the others",
        text="give {file!s} another name, and delete __pycache__ beside it",
        commands=(Command("ls -l {file}", "the node"),),
        explains=TRAINING,
    ),
    "allocator-refused": FindingType(
        headline="torch on {at} refuses {variable}: {seen}",
        who="job author",
        cause="a key of another torch release, an invalid value, or = instead of :",
        means="'Unrecognized CachingAllocator option' when a rank first uses CUDA, or import torch "
        "ends with SIGABRT",
        now="unset {variable}",
        text="write it as key:value,key:value, with the keys of this torch release",
        status=(Status.FAIL, Status.WARN),
        explains=(*TRAINING, "gpu.compute", "gpu.p2p"),
    ),
    "torch-import-hangs": FindingType(
        headline="import torch hangs on {at}",
        cause="a file system with the Python environment that does not respond",
        means="the job prints nothing; ranks on other nodes wait for this one until they time out",
        text="put the environment into the image or on a local disk; check the mount",
        commands=(Command("python -X importtime -c 'import torch'", "the node"),),
        blame=Blame.UNKNOWN,
        explains=TRAINING,
    ),
    "torch-import-killed": FindingType(
        headline="import torch was killed on {at}",
        who="job author",
        cause="a memory limit too small for torch: the kernel kills the process that imports it",
        means="a rank ends with exit code 137 before it prints anything, the others wait for it",
        text="ask for more memory: sbatch --mem, resources.limits.memory, docker --memory",
        commands=(Command("dmesg -T | grep -i 'killed process'", "the node"),),
        status=Status.UNDECIDED,
    ),
    "torch-slow-import": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="thousands of small files on a shared file system, read by all ranks at once",
        means="slow starts; with many nodes the rendezvous times out before the last one arrives",
        text="put the environment into the image or unpack it on a local disk; "
        "compile it once (python -m compileall)",
        status=Status.WARN,
        explains=(),
    ),
    "python-unusable": FindingType(
        headline="the job's Python can't be used on {at}: {seen}",
        who="job author",
        cause="a Python named by --python, torchrun or PATH that is too old, broken or not Python",
        means="the job may run; preflight can't tell, because its checks that need torch did not "
        "run",
        text="name the job's interpreter with --python PATH, or install preflight into the "
        "environment of its torch",
        status=Status.UNDECIDED,
    ),
    "torch-too-old": FindingType(
        headline="{seen} on {at} is too old: preflight needs {oldest}",
        who="image author",
        cause="an image or environment from before July 2024",
        means="the job may run; preflight can't tell, because its checks that need torch did not "
        "run",
        text="update torch to {oldest} or later",
        status=Status.UNDECIDED,
    ),
    "two-nccl": FindingType(
        headline="{at} loads a different NCCL from the one torch was built with",
        who="image author",
        cause="a different libnccl from LD_LIBRARY_PATH, LD_PRELOAD or a package",
        means="'undefined symbol: nccl…', or an older NCCL: slow, or a hang beside newer nodes",
        now="unset LD_LIBRARY_PATH LD_PRELOAD",
        text="keep one NCCL: the one that torch was built with",
        commands=(Command("pip list | grep nvidia-nccl", "the job's environment"),),
        status=(Status.WARN, Status.FAIL),
        explains=("world.nccl", "world.bandwidth"),
    ),
    "nccl-too-old": FindingType(
        headline="the NCCL that {at} loads lacks a symbol that torch needs: {seen}",
        who="image author",
        cause="an NCCL package that another package or requirements file has pinned",
        means="import torch fails: 'undefined symbol: nccl…'",
        text="install torch again, and with it the NCCL that it asks for: pip install "
        "--force-reinstall torch==VERSION of this image; no longer pin nvidia-nccl",
        commands=(Command("pip check; pip list | grep nvidia-nccl", "the job's environment"),),
        explains=("world.nccl", "world.bandwidth"),
    ),
    "driver-too-old": FindingType(
        headline="the NVIDIA driver of {at} is too old for this torch: {seen}",
        cause="an image with a newer CUDA than the node's driver supports",
        means="'CUDA driver version is insufficient for CUDA runtime version'; is_available() is "
        "False and the job silently runs on the CPU",
        text="update the driver to {minimum} or later, or use a torch for an older CUDA",
    ),
    "arch-missing": FindingType(
        headline="torch has no code for the GPU of {at}: {seen}",
        who="image author",
        cause="a GPU that is newer or older than this build of torch supports",
        means="'no kernel image is available for execution on the device'",
        text="install a build of torch for compute capability {capability}",
    ),
    "uid-unknown": FindingType(
        headline="the user of {at} has no name: {seen}",
        who="job author",
        cause="a pod's runAsUser or `--user` with a uid that the image has no user for",
        means="torch.compile, and everything that imports torch._inductor, fails with "
        "'getpwuid(): uid not found: {uid}'",
        now="export USER=job",
        text="set USER in the image (ENV) or in the pod's env; torch 2.13 no longer needs a name",
        commands=(Command("id; python -c 'import getpass; getpass.getuser()'", "the container"),),
        status=Status.WARN,
        explains=(),
        was=("user-nameless",),
    ),
    "cpu-build": FindingType(
        headline="torch is a CPU build, but there are GPUs on {at}: {seen}",
        who="image author",
        cause="a torch installed from the CPU index, or for the wrong platform",
        means="'Torch not compiled with CUDA enabled', or the job silently runs on the CPU",
        text="install torch from the CUDA index: pip install torch --index-url "
        "https://download.pytorch.org/whl/cu128; to test on the CPU set CUDA_VISIBLE_DEVICES=",
        status=(Status.FAIL, Status.UNDECIDED),
        explains=(
            *("gpu.compute", "gpu.p2p", "world.nccl", "world.bandwidth"),
            *(f"{check}:not-observable" for check in ("gpu.compute", "gpu.p2p", "world.nccl")),
        ),
    ),
    "other-vendor": FindingType(
        headline="torch is built for another vendor's GPUs: {seen}",
        who="image author",
        cause="torch from another vendor's index: CUDA on AMD's GPUs or ROCm on NVIDIA's",
        means="'No HIP GPUs are available', 'Found no NVIDIA driver', or the job silently runs on "
        "the CPU",
        text="install torch for these GPUs: pip install torch --index-url "
        "https://download.pytorch.org/whl/rocm6.3 (AMD) or …/cu128 (NVIDIA)",
        status=(Status.FAIL, Status.WARN),
    ),
    "no-distributed": FindingType(
        headline="torch on {at} has no torch.distributed",
        who="image author",
        cause="a torch built with USE_DISTRIBUTED=0",
        means="module 'torch.distributed' has no attribute 'init_process_group'",
        text="use an official build of torch",
        status=(Status.FAIL, Status.WARN),
        explains=TRAINING,
    ),
    "no-backend": FindingType(
        headline="{seen}",
        who="image author",
        cause="a torch built without NCCL or Gloo",
        means='"Distributed package doesn\'t have NCCL built in"',
        text="use an official build of torch",
        status=(Status.FAIL, Status.WARN),
        explains=("world.nccl",),
    ),
    "unexpected-version": FindingType(
        headline="{at} does not have the expected {what}: {seen}",
        who="job author",
        cause="a different image, environment or node from the intended one",
        means="nodes that don't agree, or a bug that the expected version does not have",
        text="use {what!s} {expected!s}",
        blame=(Blame.JOB, Blame.NODE),
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """What torch says of itself; empty where it is not there. `other` is what it is built for in
    place of CUDA: hip, xpu."""

    version: str = ""
    git: str = ""
    cuda: str = ""
    other: str = ""
    folder: str = ""
    file_system: str = ""
    architectures: tuple[str, ...] = ()
    distributed: bool = True
    nccl: bool = False
    gloo: bool = False
    nccl_version: str = ""


@dataclass(frozen=True, slots=True)
class GpuArch:
    """A GPU and its compute capability, e.g. 9.0."""

    name: str
    capability: str


@dataclass(frozen=True, slots=True)
class TorchSoftware:
    """absent: torch is not installed; error: why it can't be imported (end of the traceback).

    driver    version of the loaded NVIDIA module; cards: the GPUs that NVML shows this process
    compat    a cuda-compat library on the search path: newer CUDA on an older driver
    nameless  the user's number where the user has no name: see container.nameless()
    no_gpu    CUDA_VISIBLE_DEVICES says that no GPU is wanted
    amd_gpus  how many GPUs of AMD this process may open, where there are none of NVIDIA
    found_by  what names this Python, where torch is another one's than preflight's own
    cpu_wait  of `seconds` those in which the import only waited for a CPU
    allocator a variable for its allocator that this torch refuses, and its words; else empty
    """

    python: str
    executable: str
    absent: bool
    error: str
    seconds: float
    build: TorchBuild
    loaded: nccl_library.LoadedNccl
    packages: Mapping[str, str]
    libraries: tuple[nccl_library.Library, ...]
    driver: str
    compat: str
    no_gpu: bool
    cards: tuple[GpuArch, ...]
    nameless: int | None = None
    amd_gpus: int = 0
    found_by: str = ""
    allocator: tuple[str, str] = ("", "")
    cpu_wait: float = 0.0


def observe(host: Host, ctx: Context) -> TorchSoftware:
    import sys

    torch = ctx.preloaded.get("torch")
    if torch is None:
        raise CannotObserve("torch was not imported in this process")
    ctx.mark("packages")
    packages = nccl_library.nccl_packages()
    folders = {folder: nccl_library.PACKAGE for _, folder in packages.values()}
    libraries = nccl_library.libraries(host, folders=folders)
    build, error = TorchBuild(), "" if torch.absent else torch.error
    if not (torch.absent or error):
        build, error = _build(host, ctx)
    compat = (x.path for x in nccl_library.libraries(host, "libcuda.so.1") if "compat" in x.path)
    driver = nvml.module_version(host)
    ctx.mark("user database")
    nameless = container.nameless(host)
    ctx.mark("allocator settings")
    return TorchSoftware(
        python=sys.version.split()[0],
        executable=sys.executable,
        absent=torch.absent,
        error=error[-TEXT:],
        seconds=torch.seconds,
        cpu_wait=torch.cpu_wait,
        build=build,
        loaded=nccl_library.loaded_nccl(host, libraries),
        packages={name: version for name, (version, _) in packages.items()},
        libraries=libraries,
        driver=driver,
        compat=next(compat, ""),
        nameless=nameless,
        amd_gpus=_amd_gpus(host),
        found_by="" if torch.absent else torch.note,
        no_gpu=nvml.all_hidden(host.environ),
        allocator=_refused_by_allocator(host) if build.cuda else ("", ""),
        # last, since the driver may hang
        cards=_cards(host, ctx) if driver else (),
    )


def _amd_gpus(host: Host) -> int:
    """How many GPUs of AMD this process may open, where there are none of NVIDIA."""
    if vendor.detect(host).NAME != vendor.AMD:
        return 0
    from preflight.domains.gpu import kfd

    return len(kfd.openable_nodes(host))


def _cards(host: Host, ctx: Context) -> tuple[GpuArch, ...]:
    try:
        found = nvml.list_gpus(host, ctx.mark, ctx.seconds * 0.8)
    except CannotObserve:
        return ()  # gpu.visible says so
    return tuple(GpuArch(gpu.name, gpu.capability) for gpu in found.gpus)


def _build(host: Host, ctx: Context) -> tuple[TorchBuild, str]:
    """What the loaded torch says, without a call that starts CUDA; and what is wrong with what was
    loaded under that name."""
    import os

    import torch

    # a folder without __init__.py has no file; the environment may lie behind a link
    folder = os.path.dirname(os.path.realpath(getattr(torch, "__file__", None) or "/?/?"))
    version = str(getattr(torch, "__version__", ""))[:TEXT]
    facts, core = getattr(torch, "version", None), getattr(torch, "_C", None)
    if not version or facts is None or core is None:
        where = getattr(torch, "__file__", None) or [*getattr(torch, "__path__", ()), folder][0]
        return TorchBuild(), NOT_TORCH + encodable(str(where))
    distributed = ctx.preloaded.get("torch.distributed")
    if distributed is not None and distributed.error:
        return TorchBuild(version=version, folder=folder), distributed.error
    import torch.distributed as dist

    there = bool(dist.is_available())
    # torch.cuda.is_available() and get_arch_list() begin with cuInit, this does not
    flags = core._cuda_getArchFlags() if hasattr(core, "_cuda_getArchFlags") else None
    compiled = torch.cuda.nccl.version() if hasattr(core, "_nccl_version") else ()
    ctx.mark("mount of torch")
    try:
        mount = host.mount_of(folder)
    except CannotObserve:
        mount = None
    build = TorchBuild(
        version=version,
        git=str(getattr(facts, "git_version", "") or "")[:TEXT],
        cuda=str(getattr(facts, "cuda", "") or "")[:TEXT],
        other=" ".join(n for n in ("hip", "xpu", "musa") if getattr(facts, n, None)),
        folder=folder[:TEXT],
        file_system=mount.fstype if mount else "",
        architectures=tuple((flags or "").split()[:64]),
        distributed=there,
        nccl=there and bool(dist.is_nccl_available()),
        gloo=there and bool(dist.is_gloo_available()),
        nccl_version=".".join(str(part) for part in compiled[:3]),
    )
    return build, ""


def _refused_by_allocator(host: Host) -> tuple[str, str]:
    """The variable that this torch's allocator refuses, and its words: its own parser is asked,
    which starts no CUDA. It took the same value at its import, so that nothing changes."""
    import torch

    variable = next((name for name in ALLOCATOR if host.environ.get(name)), "")
    # the first since 2.9
    names = "_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"
    parse = next((getattr(torch._C, name) for name in names if hasattr(torch._C, name)), None)
    if not variable or parse is None:
        return "", ""
    try:
        parse(host.environ[variable])
    except (RuntimeError, ValueError) as error:
        words = (str(error).strip().splitlines() or ["no reason was given"])[0]
        return variable, encodable(words[:TEXT])
    return "", ""


def judge(world: World[TorchSoftware], expect: Expect) -> Iterator[Found]:
    yield from _never_imported(world)

    def of_node(here: Subject, seen: TorchSoftware) -> Iterator[Found]:
        torch = _torch(here)
        if seen.error:
            yield _import_failed(torch, seen)
        elif not seen.absent:
            yield from _import(torch, seen)
            yield from _too_old(torch, seen)
            yield from _allocator(torch, seen)
            yield from _nccl(torch, seen)
            yield from _driver_and_gpus(torch, seen, world)
            yield from _backends(torch, seen, world.topology.size > 1)
            yield from _nameless_user(torch, seen)
        yield from _expected(torch, seen, expect)

    yield from world.found(of_node)


def _torch(here: Subject) -> Subject:
    return replace(here, kind=Kind.SOFTWARE, name="torch")


# as preflight says of an interpreter that was named, or found, and gave no answer
UNUSABLE = re.compile(r"^(.*) can't be used as the job's Python")
# what the parser of PYTORCH_CUDA_ALLOC_CONF ends the import of torch with (2.9 and later)
ALLOCATOR_ABORTS = re.compile("ConfigTokenizer|AllocatorConfig")
# by SIGKILL, SIGTERM or SIGXCPU: from outside, which says nothing of torch
KILLED = re.compile(r"with exit code -(9|15|24)\b")


def _never_imported(world: World[TorchSoftware]) -> Iterator[Found]:
    """The process that imports torch hung or died in it."""
    for key, missing in world.missing(Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED).items():
        if missing.last_mark != IMPORT:
            continue
        if unusable := UNUSABLE.match(missing.detail):
            first, *more = missing.detail[unusable.end() :].strip(" :\n").splitlines() or [""]
            yield Found(
                "python-unusable",
                (replace(world.subject(key), kind=Kind.SOFTWARE, name="python"),),
                saw=" · ".join([unusable[1], first[:200], *(line[:200] for line in more[-1:])]),
                expected="an interpreter, Python 3.10 or later",
            )
            continue
        hangs = missing.cause is not Cause.CRASHED
        if not hangs and KILLED.search(missing.detail):
            yield Found(
                "torch-import-killed",
                (_torch(world.subject(key)),),
                saw=f"{IMPORT}: its process was killed after {duration(missing.seconds)}",
                expected="an import in a few seconds",
                confidence=Confidence.POSSIBLE,
                alternatives=("the kernel's OOM killer", "a limit on CPU time", "a manual kill"),
            )
            continue
        if not hangs and ALLOCATOR_ABORTS.search(missing.detail):
            yield Found(
                "allocator-refused",
                (_torch(world.subject(key)),),
                saw=f"{IMPORT} ended with SIGABRT in the parser of its allocator's settings",
                expected="settings that this torch knows",
                confidence=Confidence.LIKELY,
                fields={"variable": ALLOCATOR[0]},
            )
            continue
        shadow = None if hangs else _shadowed(missing.detail)
        if shadow is not None:
            yield _shadows(_torch(world.subject(key)), *shadow, missing.detail)
            continue
        fate = "no end" if hangs else "its process died"
        saw = f"{IMPORT}: {fate} after {duration(missing.seconds)}"
        saw += "".join(f" · {line[:200]}" for line in missing.detail.strip().splitlines()[-1:])
        yield Found(
            "torch-import-hangs" if hangs else "torch-broken",
            (_torch(world.subject(key)),),
            saw,
            "an import in a few seconds",
            confidence=Confidence.LIKELY,
        )


def _shadowed(error: str) -> tuple[str, str] | None:
    """(module, file) of the one that is there in place of torch or of a module of Python's own."""
    if NOT_TORCH in error:
        file = error.rpartition(NOT_TORCH)[2].strip()
        # what pip has left there is a broken installation
        return None if OWN.search(file) else ("torch", file)
    if found := RENAME.search(error):
        return found[1].rpartition("/")[2].removesuffix(".py"), found[1]
    for found in LACKS_NAME.finditer(error):
        # a package has an __init__.py, wherever it is installed
        if found[2].endswith(f"/{found[1]}.py") and not OWN.search(found[2]):
            return found[1], found[2]
    return None


def _shadows(torch: Subject, module: str, file: str, error: str) -> Found:
    line = (error.strip().splitlines() or [""])[-1].strip()
    error_name = "AttributeError" if NOT_TORCH in line else line.partition(":")[0]
    return Found(
        "module-shadowed",
        (torch,),
        saw=line[-300:],
        expected=f"{IMPORT} finds the installed {module}",
        confidence=Confidence.LIKELY,
        fields={"module": module, "file": file, "error": error_name[:80]},
    )


def _import_failed(torch: Subject, seen: TorchSoftware) -> Found:
    lines = [line.strip() for line in seen.error.splitlines() if line.strip()]
    saw = lines[-1][-300:] if lines else "no reason was given"
    goal = f"{IMPORT} succeeds"
    if shadow := _shadowed(seen.error):
        return _shadows(torch, *shadow, seen.error)
    foreign = (nccl_library.PRELOAD, nccl_library.SEARCH)
    culprits = [f"{x.path} ({x.origin})" for x in seen.libraries if x.origin in foreign]
    if len(seen.packages) > 1:
        culprits += [f"{name} {version}" for name, version in seen.packages.items()]
    lacks = re.search(r"undefined symbol: p?nccl[A-Z]", seen.error)
    if lacks and not culprits and seen.packages:
        alone = [f"{name} {version}" for name, version in seen.packages.items()]
        words = " · ".join([saw, *alone])
        return Found("nccl-too-old", (torch,), words, goal, confidence=Confidence.LIKELY)
    if culprits and lacks:
        return Found(
            "two-nccl",
            (torch,),
            " · ".join([saw, *culprits[:4]]),
            goal,
            status=FAIL,
            confidence=Confidence.LIKELY,
            explains=TRAINING,
        )
    return Found("torch-broken", (torch,), saw, goal)


def _import(torch: Subject, seen: TorchSoftware) -> Iterator[Found]:
    if seen.seconds - seen.cpu_wait > SLOW_IMPORT:  # a busy node is no slow file system
        remote = seen.build.file_system in NETWORK
        kind = "the network file system " if remote else ""
        saw = f"{IMPORT} took {duration(seen.seconds)} from {seen.build.folder[:120]}"
        saw += f" on {kind}{seen.build.file_system or 'an unknown file system'}"
        sure = Confidence.CERTAIN if remote else Confidence.LIKELY
        goal = f"less than {duration(SLOW_IMPORT)}"
        yield Found("torch-slow-import", (torch,), saw, goal, confidence=sure)


def _too_old(torch: Subject, seen: TorchSoftware) -> Iterator[Found]:
    if numbers(seen.build.version) and numbers(seen.build.version) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        saw, goal = f"torch {seen.build.version}", f"torch {oldest} or later"
        yield Found("torch-too-old", (torch,), saw, goal, fields={"oldest": oldest})


def _allocator(torch: Subject, seen: TorchSoftware) -> Iterator[Found]:
    variable, words = seen.allocator
    if variable:
        yield Found(
            "allocator-refused",
            (torch,),
            f"torch {seen.build.version}: {words[:200]}",
            "settings that this torch knows",
            status=FAIL if seen.cards and not seen.no_gpu else WARN,
            fields={"variable": variable},
        )


def _nccl(torch: Subject, seen: TorchSoftware) -> Iterator[Found]:
    """Another NCCL than torch's own is loaded. A newer one by package is an upgrade, and one that
    only lies on the search path harms nobody."""
    own, loaded = numbers(seen.build.nccl_version)[:3], numbers(seen.loaded.version)[:3]
    foreign = seen.loaded.origin in (nccl_library.PRELOAD, nccl_library.SEARCH)
    if own and loaded and own != loaded and (foreign or loaded < own):
        saw = f"NCCL {seen.loaded.version} from {seen.loaded.path[:160]} ({seen.loaded.origin})"
    elif len(seen.packages) > 1 and seen.build.cuda:
        # both put their library into nvidia/nccl/lib: the one that was installed last is there
        saw = " and ".join(f"{name} {version}" for name, version in sorted(seen.packages.items()))
    else:
        return
    goal = f"NCCL {seen.build.nccl_version or '?'}, with which torch was built, and no other"
    yield Found("two-nccl", (torch,), saw, goal)


def _vendor(torch: Subject, seen: TorchSoftware, world: World[TorchSoftware]) -> Iterator[Found]:
    """torch for ROCm where the GPUs are NVIDIA's, and any other torch where they are AMD's."""
    build, for_rocm = seen.build, "hip" in seen.build.other.split()
    wrong = len(seen.cards) if for_rocm else seen.amd_gpus
    if build.version and wrong and not seen.no_gpu:
        built = f"CUDA {build.cuda}" if build.cuda else build.other or "the CPU"
        saw = f"torch {build.version} is built for {'ROCm' if for_rocm else built}"
        saw += f" · {plural(wrong, 'NVIDIA GPU' if for_rocm else 'AMD GPU')}"
        goal = "a torch for the GPUs that are here"
        status, sure = _if_launched(world), Confidence.LIKELY
        yield Found("other-vendor", (torch,), saw, goal, status=status, confidence=sure)


def _if_launched(world: World[TorchSoftware]) -> Status:
    """By hand it may be a try on the CPU; a launcher's job was given GPUs to use them."""
    return WARN if world.topology.launcher == "local" else FAIL


def _driver_and_gpus(
    torch: Subject, seen: TorchSoftware, world: World[TorchSoftware]
) -> Iterator[Found]:
    """torch, the driver and the GPUs. Without a GPU for this process there is nothing to fit."""
    build, cards = seen.build, seen.cards
    yield from _vendor(torch, seen, world)
    if not cards or build.other or not build.cuda:
        if cards and not build.other and not seen.no_gpu:
            saw = f"torch {build.version} has no CUDA · {plural(len(cards), 'GPU')} "
            saw += f"({cards[0].name}) · driver {seen.driver}"
            goal = "a torch for CUDA where there are GPUs"
            # by hand it may be another torch than the job's, but then its GPUs were not tried
            status = Status.UNDECIDED if world.topology.launcher == "local" else FAIL
            sure = Confidence.LIKELY
            yield Found("cpu-build", (torch,), saw, goal, status=status, confidence=sure)
        return
    minimum = nvml.minimum_driver(build.cuda)
    if numbers(seen.driver) < numbers(minimum) and not seen.compat:
        newer = any(numbers(other.driver) >= numbers(minimum) for other in world.seen.values())
        yield Found(
            "driver-too-old",
            (replace(torch, name="NVIDIA driver"),),
            f"driver {seen.driver} · torch {build.version} for CUDA {build.cuda}",
            f"driver {minimum} or later",
            # where all nodes are alike, it is the image that does not fit them
            blame=Blame.NODE if newer else None,
            fields={"minimum": minimum},
        )
    known = [card for card in cards if card.capability]
    without = [c for c in known if not nvml.runs_on(build.architectures, c.capability)]
    # a small display card beside the GPUs of the job does no harm
    needed = min(max(1, len(torch.ranks)), len(known))
    if build.architectures and without and len(known) - len(without) < needed:
        odd = without[0]
        saw = f"{odd.name} has compute capability {odd.capability} · torch {build.version} has "
        yield Found(
            "arch-missing",
            (torch,),
            f"{saw}code for {' '.join(build.architectures)[:160]}",
            "code for every GPU that the job uses",
            fields={"capability": odd.capability},
        )


def _nameless_user(torch: Subject, seen: TorchSoftware) -> Iterator[Found]:
    if seen.nameless is not None and numbers(seen.build.version) < NAMELESS_FROM:
        yield Found(
            "uid-unknown",
            (replace(torch, name="user"),),
            f"uid {seen.nameless} has no name · torch {seen.build.version}",
            "a line in /etc/passwd, or USER in the environment",
            fields={"uid": str(seen.nameless)},
        )


def _backends(torch: Subject, seen: TorchSoftware, several: bool) -> Iterator[Found]:
    build = seen.build
    if not build.distributed:
        saw = f"torch {build.version}: torch.distributed.is_available() is False"
        goal, status = "a torch with torch.distributed", FAIL if several else WARN
        yield Found("no-distributed", (torch,), saw, goal, status=status)
    elif several:
        lacks = [("NCCL", FAIL)] if build.cuda and seen.cards and not build.nccl else []
        lacks += [] if build.gloo else [("Gloo", WARN)]
        for name, status in lacks:
            saw, goal = f"torch {build.version} has no {name} backend", "NCCL for GPUs, and Gloo"
            then = (f"world.{name.lower()}",)
            yield Found("no-backend", (torch,), saw, goal, status=status, explains=then)


def _expected(torch: Subject, seen: TorchSoftware, expect: Expect) -> Iterator[Found]:
    versions = {"driver": seen.driver}
    if not seen.error:
        versions["torch"] = seen.build.version
    if seen.build.version and not seen.error:
        versions |= {"cuda": seen.build.cuda, "nccl": _version(seen)}
    for key, version in versions.items():
        if not expect.admits(key, version):
            wanted = expect.text(key) or ""
            yield Found(
                "unexpected-version",
                (replace(torch, name=key),),
                f"{key} {version or 'none'}",
                f"{key} {wanted} ({expect.source(key)})",
                blame=Blame.NODE if key == "driver" else None,
                fields={"what": key, "expected": wanted},
            )


def _version(seen: TorchSoftware) -> str:
    """The NCCL that counts: the loaded one, else what torch was built with."""
    return seen.loaded.version or seen.build.nccl_version


def measured(world: World[TorchSoftware]) -> Measured:
    values = list(world.seen.values())
    if not values:
        return Measured()
    there = [v for v in values if not v.absent]
    found = {
        "torch": sorted({v.build.version for v in there if v.build.version}),
        "NCCL": sorted({_version(v) for v in values if _version(v)}),
        "driver": sorted({v.driver for v in values if v.driver}),
        "python": sorted({v.python for v in values}),
    }
    shown = {name: ", ".join(some[:3]) for name, some in found.items() if some}
    if foreign := sorted({v.executable for v in there if v.found_by}):
        shown["torch"] += f" of {', '.join(foreign[:3])}"
    parts = [f"{name} {text}" for name, text in shown.items()]
    slowest = max((v.seconds for v in there), default=0.0)
    broken = any(v.build.version == "" for v in there)
    imported = "torch can't be imported" if broken else f"imported in {duration(slowest)}"
    parts += [imported] if there else ["torch is not installed"]
    data = {name.lower(): versions for name, versions in found.items()}
    return Measured(" · ".join(parts), {**data, "import_seconds": slowest})
