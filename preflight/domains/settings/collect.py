"""The settings of NCCL, torch and Gloo as one machine has them: environment, nccl.conf, hardware.

collect() looks; the functions at the end are pure and say which of NCCL's ways are switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace

from preflight.domains.params import NVLINKED, c10d_bool, strtoll, switched_on
from preflight.domains.settings.nccl_conf import (
    VALUE_KEPT,
    Variable,
    conf_lines,
    conf_problem,
    file_flaws,
    file_problems,
    graph_gpus,
    log_folder_missing,
)
from preflight.domains.settings.variables import (
    SLIPS,
    TORCH_FAMILIES,
    known_variables,
    unknown_name,
    unread_names,
)
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.redact import redact
from preflight.sanitize import clip

PREFIXES = ("NCCL_", "GLOO_", "UCX_", "FI_", *TORCH_FAMILIES)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
OTHERS = (
    *("CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_HIP_ALLOC_CONF", "ACCELERATE_USE_CPU"),
)
KEPT = 400
"""Variables and lines that are kept; the largest known recipe has about 60."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set, in the order in which NCCL takes it (the first of a name counts), bounded and
    without secrets, and the hardware that some of it is about.

    left_out     variables beyond those kept
    conf_problem why NCCL_CONF_FILE can't be read; empty when it can, or is not set
    file_problems  variable that names a file -> why NCCL can't read it
    file_flaws     variable that names a file -> with what it begins, where NCCL's parser ends there
    graph_gpus   of how many GPUs NCCL_GRAPH_FILE speaks, by the highest number; 0: of none
    models       the GPUs' names, where the driver tells
    no_plugin why NCCL has no network plugin to load, where NCCL_NET names a network of one, or
              NCCL_NET_PLUGIN a plugin
    nccl         the version of the NCCL that torch will load, where NCCL_ALGO is set and a Python
                 package or the name of the library tells
    log_folder   of NCCL_DEBUG_FILE, where it is not there
    comm_id      why rank 0 could not listen at NCCL_COMM_ID here
    preloads     files that LD_PRELOAD names and that are not there
    infiniband, ethernet   active RDMA ports by link layer, as `mlx5_0:1`
    """

    variables: tuple[Variable, ...]
    left_out: int = 0
    conf_problem: str = ""
    file_problems: Mapping[str, str] = field(default_factory=dict)
    file_flaws: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    graph_gpus: int = 0
    models: tuple[str, ...] = ()
    amd: bool = False
    no_plugin: str = ""
    nccl: str = ""
    log_folder: str = ""
    comm_id: str = ""
    preloads: tuple[str, ...] = ()
    infiniband: tuple[str, ...] = ()
    ethernet: tuple[str, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)

    @property
    def rdma(self) -> tuple[str, ...]:
        """All active RDMA ports."""
        return (*self.infiniband, *self.ethernet)


def collect_settings(
    host: Host, mark: Callable[[str], None], rdma_ports: Iterable[tuple[str, str]] = ()
) -> Settings:
    """What is set here; `mark` gets what comes next. `rdma_ports`: (device:port, link layer) of the
    active ones."""
    environ = host.environ
    mine = sorted(
        (n for n in environ if _concerns(n)), key=lambda n: (n not in known_variables(), n)
    )
    variables = [Variable(clip(n, 80), redact(n, environ[n], VALUE_KEPT)) for n in mine[:KEPT]]
    mark("nccl.conf")
    lines = list(_conf_lines(host))
    mark("hardware")
    gpus, models, amd = _gpus(host)
    ports = tuple(rdma_ports)
    mark("files that NCCL is told to read")
    return Settings(
        variables=(*variables, *lines[:KEPT]),
        left_out=len(mine[KEPT:]) + len(lines[KEPT:]),
        conf_problem=conf_problem(host),
        file_problems=file_problems(host),
        file_flaws=file_flaws(host),
        graph_gpus=graph_gpus(host),
        log_folder=clip(log_folder_missing(host), VALUE_KEPT),
        gpus=gpus,
        models=models,
        amd=amd,
        infiniband=tuple(port for port, layer in ports if layer == "InfiniBand"),
        ethernet=tuple(port for port, layer in ports if layer == "Ethernet"),
        proxies={n: redact(n, v) for n, v in environ.items() if n.lower() in PROXIES},
    )


def _concerns(name: str) -> bool:
    first = name.partition("_")[0]
    return (
        name.startswith(PREFIXES)
        or name in OTHERS
        or name in known_variables()
        or name in unread_names()
        or (first in SLIPS and unknown_name(name) is not None)
        or (first != first.upper() and first.upper() in ("NCCL", "GLOO"))
    )


def _conf_lines(host: Host) -> Iterator[Variable]:
    """The lines of nccl.conf that are about variables of ours, clipped and without secrets."""
    for line in conf_lines(host):
        bare = line.name.strip().removeprefix("export ").strip()
        if _concerns(bare.partition(" ")[0]):
            value = redact(bare, line.value, VALUE_KEPT)
            yield replace(line, name=clip(line.name, 80), value=value)


def _gpus(host: Host) -> tuple[int, tuple[str, ...], bool]:
    """How many NVIDIA GPUs this environment has, their names, and whether there are AMD's."""
    files = host.gpu_files()
    nvidia = [f for f in files if f.removeprefix("/dev/nvidia").isdecimal()]
    top = "/proc/driver/nvidia/gpus"
    cards = host.listdir(top)[:64]
    models = set()
    for card in cards:
        for line in (host.read_or_none(f"{top}/{card}/information") or "").splitlines():
            if line.startswith("Model:"):
                models.add(clip(line.partition(":")[2].strip(), 80))
    # /proc shows the machine's GPUs also where a container was given none
    count = len(nvidia) or (0 if host.live else len(cards))
    return count, tuple(sorted(models)), "/dev/kfd" in files


def of_plugin(network: str) -> bool:
    """Whether a value of NCCL_NET names a network that NCCL has not built in (strcasecmp)."""
    return bool(network) and network.lower() not in ("ib", "socket")


def watchdogs_off(counts: Mapping[str, Variable]) -> Iterator[Variable]:
    """The settings that keep torch from ending a collective that hangs. Not among them is
    TORCH_NCCL_ENABLE_MONITORING=0, which torch's own message advises: that ends a process whose
    watchdog itself is stuck, and collectives time out without it."""
    # a blocking wait ends a hang by its own means
    waits = any(
        name in counts and c10d_bool(counts[name].value)
        for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    )
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"):
        if name in counts and not waits and counts[name].value.strip() == "0":
            yield counts[name]
            break


def fast_paths_off(
    counts: Mapping[str, Variable], settings: Settings, several: bool
) -> Iterator[tuple[Variable, str]]:
    """(what is off, the hardware that has it)."""
    gpus = f"{settings.gpus} GPUs{': ' if settings.models else ''}{', '.join(settings.models)}"
    # GeForce cards have no P2P over PCIe, and switching it off is the usual cure for hangs
    peers = settings.gpus > 1 and not all("GeForce" in m for m in settings.models or ("?",))
    p2p = counts.get("NCCL_P2P_DISABLE")
    if p2p and peers and strtoll(p2p.value)[0] == 1:
        yield p2p, gpus
    level = counts.get("NCCL_P2P_LEVEL")
    if level and peers and level.value in ("LOC", "0"):
        yield level, gpus
    shm = counts.get("NCCL_SHM_DISABLE")
    # GPUs that NVLink connects all with all need no shared memory, unless P2P is off, too
    linked = bool(settings.models) and all(NVLINKED.search(m) for m in settings.models)
    needed = not linked or (p2p and switched_on(p2p.value))
    if shm and settings.gpus > 1 and needed and switched_on(shm.value):
        yield shm, gpus
    # many Ethernet cards offer RDMA that the network can't carry, and one node needs neither
    ports = settings.infiniband or (settings.ethernet if several else ())
    layer = "InfiniBand" if settings.infiniband else "RoCE"
    active = f"active {layer} ports {', '.join(ports[:8])}"
    ib, net = counts.get("NCCL_IB_DISABLE"), counts.get("NCCL_NET")
    if ib and ports and switched_on(ib.value):
        yield ib, active
    elif net and ports and net.value.lower() == "socket":
        yield net, active
