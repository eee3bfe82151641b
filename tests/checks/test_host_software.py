"""host.software: a torch that is broken, foreign or built for another machine; else silence."""

from __future__ import annotations

import json
import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from lab import nvml
from support import amd_cases
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import Preloaded, conforms
from preflight.checks import host_software
from preflight.domains.gpu import nccl_library
from preflight.host import Host
from preflight.model import Blame, CannotObserve, Cause, Mark, Missing, Node, Status, Topology
from preflight.serde import encode

conforms(host_software)

FAIL, WARN = Status.FAIL, Status.WARN
TORCHRUN = topology(4, launcher="torchrun")

CPU = host_software.TorchBuild(
    version="2.13.0+cpu",
    folder="/opt/venv/lib/python3.11/site-packages/torch",
    file_system="ext4",
    gloo=True,
)
CUDA = replace(
    CPU,
    version="2.11.0+cu130",
    cuda="13.0",
    architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"),
    nccl=True,
    nccl_version="2.28.9",
)
PACKAGE = nccl_library.LoadedNccl("/opt/venv/nvidia/nccl/lib/libnccl.so.2", "2.28.9", "package")
H100 = host_software.GpuArch("NVIDIA H100 80GB HBM3", "9.0")
LAPTOP = host_software.TorchSoftware(
    python="3.11.9",
    executable="/opt/venv/bin/python",
    absent=False,
    error="",
    seconds=1.1,
    build=CPU,
    loaded=nccl_library.LoadedNccl(),
    packages={},
    libraries=(),
    driver="",
    compat="",
    no_gpu=False,
    cards=(),
)
NODE = replace(
    LAPTOP,
    build=CUDA,
    loaded=PACKAGE,
    packages={"nvidia-nccl-cu13": "2.28.9"},
    libraries=(nccl_library.Library(PACKAGE.path, "package"),),
    driver="580.65.06",
    cards=(H100,) * 4,
)


def but(**changes: object) -> host_software.TorchSoftware:
    return replace(NODE, **changes)


def built(**changes: object) -> host_software.TorchSoftware:
    return replace(NODE, build=replace(CUDA, **changes))


def broken(last: str, **changes: object) -> host_software.TorchSoftware:
    error = f'Traceback (most recent call last):\n  File "torch/__init__.py", line 9\n{last}\n'
    return but(
        build=host_software.TorchBuild(), loaded=nccl_library.LoadedNccl(), error=error, **changes
    )


def silent(cause: Cause, detail: str, *marks: str) -> Missing:
    return Missing(cause, detail, 60.0, tuple(Mark(mark, 0.0) for mark in marks))


def allocator(seen: host_software.TorchSoftware) -> host_software.TorchSoftware:
    words = "Unrecognized key 'foo' in Accelerator allocator config."
    return replace(seen, allocator=("PYTORCH_CUDA_ALLOC_CONF", words))


SEARCHED = nccl_library.Library("/opt/hpc/nccl/lib/libnccl.so.2", "LD_LIBRARY_PATH")
OLD = nccl_library.LoadedNccl(SEARCHED.path, "2.21.5", "LD_LIBRARY_PATH")
SYMBOL = "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister"
TWO_CUDAS = {"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.28.9"}
ABSENT = replace(LAPTOP, absent=True, build=host_software.TorchBuild())
L40S = host_software.GpuArch("NVIDIA L40S", "8.9")
T400 = host_software.GpuArch("NVIDIA T400", "7.5")
B200 = host_software.GpuArch("NVIDIA B200", "10.0")

RTX_4090 = host_software.GpuArch("NVIDIA GeForce RTX 4090", "8.9")

CASES = (
    Case("CPU torch on a laptop", LAPTOP),
    Case("CUDA torch on a GPU node", NODE, topology=TORCHRUN),
    Case("CUDA torch without a GPU", but(driver="", cards=())),
    Case("CUDA torch in a CPU job on a GPU node", but(driver="470.57.02", cards=())),
    Case("no torch", ABSENT),
    Case("nothing was seen", {}),
    # the import
    Case("broken", broken("ImportError: libcudart.so.13: cannot open"), "torch-broken", FAIL),
    Case(
        "a file of the job's called torch",
        broken("what is imported as torch is not torch: /job/torch.py"),
        "module-shadowed",
        FAIL,
    ),
    Case(
        "what is left of an installation",
        broken("what is imported as torch is not torch: /v/lib/python3.12/site-packages/torch"),
        "torch-broken",
        FAIL,
    ),
    Case(
        "a file of the job's called random",
        silent(
            Cause.CRASHED,
            "ImportError: cannot import name 'Random' from 'random' (/job/random.py)",
            "import torch",
        ),
        "module-shadowed",
        FAIL,
    ),
    Case(
        "the same as Python 3.13 says it",
        broken(
            "AttributeError: module 'random' has no attribute 'Random' (consider renaming "
            "'/job/random.py' since it has the same name as the standard library module named "
            "'random' and prevents importing that standard library module)"
        ),
        "module-shadowed",
        FAIL,
    ),
    Case(
        "in a circle",
        broken(
            "ImportError: cannot import name 'Random' from partially initialized module 'random' "
            "(most likely due to a circular import) (/job/random.py)"
        ),
        "module-shadowed",
        FAIL,
    ),
    Case(
        "Python's own module lacks a name",
        broken("ImportError: cannot import name 'x' from 'random' (/usr/lib/python3.11/random.py)"),
        "torch-broken",
        FAIL,
    ),
    Case(
        "a package lacks a name",
        broken("ImportError: cannot import name 'x' from 'triton' (/src/triton/__init__.py)"),
        "torch-broken",
        FAIL,
    ),
    Case("an error without words", but(error="\n\n"), "torch-broken", FAIL),
    Case(
        "it died",
        silent(Cause.CRASHED, "the server died of SIGSEGV", "import torch"),
        "torch-broken",
        FAIL,
        subject="n1 · torch",
    ),
    Case(
        "it hangs",
        silent(Cause.TIMED_OUT, "import torch did not end within 60 s", "import torch"),
        "torch-import-hangs",
        FAIL,
    ),
    Case(
        "killed from outside: can't tell by whom",
        silent(Cause.CRASHED, "the torch fork server died with exit code -9", "import torch"),
        "torch-import-killed",
        Status.UNDECIDED,
    ),
    Case(
        "no Python",
        silent(Cause.CRASHED, "/x (p) can't be used as the job's Python: died", "import torch"),
        "python-unusable",
        Status.UNDECIDED,
        subject="n1 · python",
    ),
    Case(
        "a Python that hangs",
        silent(Cause.TIMED_OUT, "/x (p) can't be used as the job's Python: no end", "import torch"),
        "python-unusable",
        Status.UNDECIDED,
    ),
    Case("its allocator refuses", allocator(NODE), "allocator-refused", FAIL),
    Case("it does, and no GPU is there", allocator(LAPTOP), "allocator-refused", WARN),
    Case(
        "it does, and no GPU is wanted",
        allocator(replace(NODE, no_gpu=True)),
        "allocator-refused",
        WARN,
    ),
    Case(
        "its allocator ends the import",
        silent(
            Cause.CRASHED, "what(): Index out of bounds in ConfigTokenizer\n#0 0x1", "import torch"
        ),
        "allocator-refused",
        FAIL,
    ),
    Case("the driver hangs: not ours", silent(Cause.TIMED_OUT, "", "packages", "nvmlInit")),
    Case("a fault of ours: can't tell", silent(Cause.CRASHED, "KeyError", "packages")),
    Case("20 s", but(seconds=20.0)),
    Case("the oldest that is supported", built(version="2.4.0a0+gitd990dad")),
    Case("older", built(version="2.3.1+cu121"), "torch-too-old", Status.UNDECIDED),
    Case("slow", but(seconds=41.0), "torch-slow-import", WARN),
    Case("a node without an idle CPU", but(seconds=41.0, cpu_wait=30.0)),
    Case("slow on it all the same", but(seconds=61.0, cpu_wait=30.0), "torch-slow-import", WARN),
    # NCCL
    Case("a symbol gone", broken(SYMBOL, libraries=(SEARCHED,)), "two-nccl", FAIL),
    Case("gone by two packages", broken(SYMBOL, packages=TWO_CUDAS), "two-nccl", FAIL),
    Case("gone, one package alone", broken(SYMBOL), "nccl-too-old", FAIL),
    Case("gone, nobody known for it", broken(SYMBOL, packages={}), "torch-broken", FAIL),
    Case("an older one is loaded", but(loaded=OLD), "two-nccl", WARN),
    Case("a newer one is preloaded", but(loaded=replace(OLD, version="2.30.7")), "two-nccl", WARN),
    Case("the same from elsewhere", but(loaded=replace(OLD, version="2.28.9"))),
    Case("the package was upgraded", but(loaded=replace(PACKAGE, version="2.29.3"))),
    Case("the image's own", but(loaded=replace(PACKAGE, origin="system"), packages={})),
    Case("another lies on the path", but(libraries=(SEARCHED, *NODE.libraries))),
    Case("can't tell which", but(loaded=replace(OLD, version=""))),
    Case("for two CUDAs", but(packages=TWO_CUDAS), "two-nccl", WARN),
    # GPUs and driver
    Case("CPU torch on a GPU node", but(build=CPU), "cpu-build", FAIL, topology=TORCHRUN),
    Case("by hand it may be another torch", but(build=CPU), "cpu-build", Status.UNDECIDED),
    Case("no GPU is wanted", but(build=CPU, no_gpu=True), topology=TORCHRUN),
    *amd_cases.software(NODE, CPU),
    Case("old driver", but(driver="550.54.15"), "driver-too-old", FAIL),
    Case(
        "old driver, compat",
        but(driver="550.54.15", compat="/usr/local/cuda/compat/libcuda.so.1"),
    ),
    Case("the oldest that will do", replace(built(cuda="12.8"), driver="525.60.13")),
    Case("a CUDA that we don't know", replace(built(cuda="99.1"), driver="525.60.13")),
    Case(
        "no code for it",
        replace(built(architectures=("sm_80", "sm_90")), cards=(B200,) * 4),
        "arch-missing",
        FAIL,
    ),
    Case("older minor version", but(cards=(L40S,) * 4)),
    Case(
        "a display card beside",
        replace(built(architectures=("sm_80", "sm_90")), cards=(H100, T400)),
        topology=topology(1),
    ),
    Case(
        "a display card for the second rank",
        replace(built(architectures=("sm_80", "sm_90")), cards=(H100, T400)),
        "arch-missing",
        topology=topology(2),
    ),
    Case("a GPU that does not tell", but(cards=(replace(H100, capability=""),) * 4)),
    Case("one GPU for each task", but(cards=(H100,)), topology=topology(4, launcher="SLURM")),
    # a user without a name
    Case("nobody's number", but(nameless=1000720000), "uid-unknown", WARN),
    Case("torch that copes", replace(built(version="2.13.0+cu130"), nameless=1000720000)),
    Case("no torch to ask for it", replace(ABSENT, nameless=1000720000)),
    # backends
    Case("no distributed", built(distributed=False), "no-distributed", FAIL),
    Case(
        "not needed by one rank",
        built(distributed=False),
        "no-distributed",
        WARN,
        topology=topology(1),
    ),
    Case("no NCCL", built(nccl=False), "no-backend", FAIL),
    Case("no Gloo", built(gloo=False), "no-backend", WARN),
    # expectations
    Case("as expected", NODE, expect={"torch": ">=2.6", "cuda": "13", "nccl": ">=2.26"}),
    Case("older torch", NODE, "unexpected-version", FAIL, expect={"torch": ">=2.12"}),
    Case("no CUDA", LAPTOP, "unexpected-version", FAIL, expect={"cuda": ">=12.4"}),
    Case("NCCL", but(loaded=OLD), "unexpected-version", expect={"nccl": ">=2.26"}),
    Case("driver", NODE, "unexpected-version", FAIL, expect={"driver": ">=590"}),
    Case("no torch", ABSENT, "unexpected-version", FAIL, expect={"torch": ">=2.6"}),
    Case("broken is enough", broken("x"), "torch-broken", expect={"torch": "2.11", "nccl": "2"}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(host_software, case)


def test_every_code_has_a_case() -> None:
    assert {c.code for c in CASES} - {None} == set(host_software.FINDINGS)


def test_software_is_never_the_nodes_fault() -> None:
    """Nobody drains a node for its torch; but a driver that is older than its peers' is one."""
    found = [f for c in CASES for f in judged(host_software, c) if f.code != "unexpected-version"]
    assert {f.blame for f in found} == {Blame.JOB, Blame.UNKNOWN}
    two = Topology(size=2, nodes=(Node("n1", (0,)), Node("n2", (1,))))
    saw = {"n1": NODE, "n2": but(driver="550.54.15")}
    (finding,) = judged(host_software, Case("", saw, topology=two))
    assert (finding.subjects[0].node, finding.blame) == ("n2", Blame.NODE)


def test_a_broken_import_is_one_finding() -> None:
    case = Case("", broken(SYMBOL, libraries=(SEARCHED,), packages=TWO_CUDAS, seconds=60.0))
    (finding,) = judged(host_software, case)
    assert SEARCHED.path in finding.saw
    assert "ncclCommRegister" in finding.saw


def test_measured() -> None:
    text = host_software.measured(world("host.software", NODE)).text
    assert text == "torch 2.11.0+cu130 · NCCL 2.28.9 · driver 580.65.06 · python 3.11.9 · " + (
        "imported in 1.1 s"
    )
    text = host_software.measured(world("host.software", ABSENT)).text
    assert text == "python 3.11.9 · torch is not installed"
    other = host_software.measured(world("host.software", but(found_by="torchrun on PATH"))).text
    assert other.startswith("torch 2.11.0+cu130 of /opt/venv/bin/python · NCCL 2.28.9 · ")


def test_observe_without_torch(tmp_path: Path) -> None:
    absent = {"torch": Preloaded(0.01, "ModuleNotFoundError", absent=True)}
    seen = host_software.observe(Host(str(tmp_path)), context(preloaded=absent))
    assert seen.absent
    assert (seen.error, seen.build, seen.driver) == ("", host_software.TorchBuild(), "")
    round_trips(seen)
    with pytest.raises(CannotObserve):
        host_software.observe(Host(str(tmp_path)), context(preloaded={}))


def test_observe_a_broken_torch(tmp_path: Path) -> None:
    """It isn't imported again; what may have broken it is listed, each path once."""
    for path in ("opt/nccl/libnccl.so.2", "opt/nccl/libnccl-net.so", "usr/lib64/libnccl.so.2.21.5"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "etc").mkdir()
    cache = b"glibc-ld.so.cache1.1\0\1\2libnccl.so.2\0/usr/local/nccl/libnccl.so.2\0/lib/libc.so\0"
    (tmp_path / "etc/ld.so.cache").write_bytes(cache + b"\xff\xfe")
    environ = {
        "LD_LIBRARY_PATH": "/opt/nccl:relative::/nowhere:/opt/nccl/",
        "LD_PRELOAD": "/opt/x/libnccl.so.2 /opt/other.so",
    }
    failed = {"torch": Preloaded(0.4, "x" * 5000 + "\nImportError: no\n")}
    seen = host_software.observe(Host(str(tmp_path), environ), context(preloaded=failed))
    assert seen.error.endswith("ImportError: no\n")
    assert len(seen.error) == host_software.TEXT
    assert [(x.path, x.origin) for x in seen.libraries] == [
        ("/opt/x/libnccl.so.2", "LD_PRELOAD"),
        ("/opt/nccl/libnccl.so.2", "LD_LIBRARY_PATH"),
        ("/usr/local/nccl/libnccl.so.2", "system"),
        ("/usr/lib64/libnccl.so.2.21.5", "system"),
    ]
    round_trips(seen)


def test_observe_survives_a_hostile_environment(tmp_path: Path) -> None:
    environ = {
        "LD_LIBRARY_PATH": "/\udcff%s{}:" * 300000,
        "LD_PRELOAD": "libnccl.so\udc80" * 100000,
    }
    absent = {"torch": Preloaded(0.01, "", absent=True)}
    seen = host_software.observe(Host(str(tmp_path), environ), context(preloaded=absent))
    assert 1 <= len(seen.libraries) <= nccl_library.ENTRIES
    json.dumps(encode(seen), ensure_ascii=False).encode()
    assert all(len(x.path) <= nccl_library.TEXT for x in seen.libraries)


FAKE_TORCH = """
    import ctypes
    import types
    from torch import version
    __version__ = "2.11.0+cu130"
    _C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_90", _nccl_version=int)
    # nothing else of torch.cuda: whoever asks for it is caught
    cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)))
    ctypes.CDLL("{library}")
"""
FAKE_DISTRIBUTED = """
    is_available = is_nccl_available = lambda: True
    is_gloo_available = lambda: False
"""


@pytest.fixture
def cuda_torch(tmp_path: Path) -> Path:
    """A folder with a torch for CUDA that loads an NCCL 2.21.5 from `lib`; no CUDA in it."""
    library = tmp_path / "lib/libnccl.so.2"
    library.parent.mkdir()
    nvml.folder()  # skips, or fails in CI, where there is no gcc
    source = tmp_path / "nccl_library.c"
    source.write_text("int ncclGetVersion(int *v) { *v = 22105; return 0; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    for name, text in (
        ("__init__", FAKE_TORCH.format(library=library)),
        ("distributed", FAKE_DISTRIBUTED),
        ("version", 'cuda, hip, git_version = "13.0", None, "abc"'),
    ):
        file = tmp_path / f"python/torch/{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    return tmp_path


TORCH = {"torch": {"seconds": 1.0}, "torch.distributed": {"seconds": 0.1}}


def test_observe_a_cuda_torch_on_a_gpu_node(cuda_torch: Path) -> None:
    root = cuda_torch / "root"
    nvml.machine(root, gpus=2)
    seen = nvml.observed(
        "host.software",
        nvml.settings(2),
        root=root,
        python_path=cuda_torch / "python",
        preloaded=TORCH,
    )
    build = seen.value.build
    assert (build.version, build.cuda, build.git) == ("2.11.0+cu130", "13.0", "abc")
    assert (build.distributed, build.nccl, build.gloo) == (True, True, False)
    assert build.architectures == ("sm_80", "sm_90")
    assert build.folder == str(cuda_torch / "python/torch")
    assert seen.value.driver == "550.54.15"
    assert seen.value.cards == (H100, H100)
    assert "nvmlInit" in seen.marks
    assert_case(host_software, Case("", seen.value, "driver-too-old", FAIL))


def test_observe_which_nccl_is_loaded(cuda_torch: Path) -> None:
    environ = {"LD_LIBRARY_PATH": str(cuda_torch / "lib")}
    seen = nvml.observed(
        "host.software",
        None,
        environ=environ,
        python_path=cuda_torch / "python",
        preloaded=TORCH,
    )
    path = str(cuda_torch / "lib/libnccl.so.2")
    assert seen.value.loaded == nccl_library.LoadedNccl(path, "2.21.5", "LD_LIBRARY_PATH")
    assert seen.value.build.nccl_version == "2.28.9"
    assert_case(host_software, Case("", seen.value, "two-nccl", WARN))


def test_observe_a_folder_that_is_called_torch(tmp_path: Path) -> None:
    (tmp_path / "python/torch").mkdir(parents=True)
    (tmp_path / "python/torch/__init__.py").touch()
    seen = nvml.observed("host.software", None, python_path=tmp_path / "python", preloaded=TORCH)
    assert str(tmp_path / "python/torch/__init__.py") in seen.value.error
    assert_case(host_software, Case("", seen.value, "module-shadowed", FAIL))


@pytest.mark.torch
def test_observe_the_torch_that_is_here() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    seen = nvml.observed("host.software", None, preloaded=TORCH)
    assert seen.value.build.version
    assert seen.value.build.distributed
    assert seen.value.build.folder.endswith("/torch")
    round_trips(seen.value)
