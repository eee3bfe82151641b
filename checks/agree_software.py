"""Do all nodes have the same torch, NCCL, Python and driver?

Level        standard
Looks at     torch's version, its commit and the CUDA it is built for; the NCCL that torch loads, as
             it reports its version itself, with its file and why it is loaded; the Python; the
             NVIDIA driver's version
Fails if     NCCL differs in any digit (it refuses to start), torch in its release (2.6 and 2.7), or
             a CPU build is mixed with a CUDA build where there are GPUs; a node has no torch while
             others have; a node is not as expected (--expect) while others are
Warns if     torch differs in a patch level or its build, NCCL without a GPU anywhere, Python in its
             release, the driver
Undecided    a node could not be checked, or its torch can't be imported (host.software)
Not covered  other packages, cuDNN, the kernel, the image; NCCL's plugins
Seen as      "Mismatched NCCL version detected", "Message truncated : received 256 bytes instead of
             4", ncclInvalidUsage in the first collective, a hang in init_process_group
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from preflight.check import Check, Context, Level, Requirement, Scope, Stage, status_of
from preflight.domains.gpu import nccl_library, nvml
from preflight.expect import Expect, numbers
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import parties
from preflight.inference import consensus
from preflight.model import (
    Blame,
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

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MEETING,
    budget=10.0,
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    torch=True,
    blame=Blame.JOB,
    explains=("world.*", "rdzv.store"),
)

TEXT = 200
"""Characters kept of a version or a path."""

SHOWN = 4
"""Values that a line shows."""

FOREIGN = (nccl_library.PRELOAD, nccl_library.SEARCH)
FAIL, WARN = Status.FAIL, Status.WARN
CERTAIN, LIKELY, POSSIBLE = Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE

FINDINGS = {
    "torch-differs": FindingType(
        headline="torch differs on {where}: {seen}",
        who="image author",
        cause="an environment that is not activated there, an older image, or a package in "
        "~/.local",
        means="another release uses a different protocol: init_process_group hangs, or the first "
        "collective fails; another build or patch level may only round differently",
        text="use the same image or environment on all nodes; with ssh or pdsh, activate it in "
        "the remote command itself",
        commands=(
            Command("python -c 'import torch; print(torch.__version__, torch.__file__)'", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
    ),
    "torch-absent": FindingType(
        headline="{where} has no torch, other nodes have",
        who="image author",
        cause="an environment that is not activated there, or another image",
        means="'No module named torch' on this node; the others wait for its ranks until they "
        "time out",
        text="use the same image or environment on all nodes",
        commands=(Command("command -v python; python -m pip show torch", "{node}"),),
    ),
    "nccl-differs": FindingType(
        headline="NCCL differs on {where}: {seen}",
        who="image author",
        cause="a different libnccl from LD_LIBRARY_PATH or LD_PRELOAD, or a package that was "
        "upgraded",
        means="NCCL compares the whole version when it starts: 'Mismatched NCCL version detected' "
        "and ncclInvalidUsage; older ones hang or say 'Message truncated'",
        now="unset LD_LIBRARY_PATH LD_PRELOAD",
        text="use one NCCL on all nodes: the one that torch was built with",
        commands=(Command("pip list | grep nvidia-nccl", "{node}"),),
        status=(Status.FAIL, Status.WARN),
        # which warns of an NCCL that is not torch's own: that may be how they came to differ
        explains=("world.nccl", "world.bandwidth", "host.software"),
    ),
    "python-differs": FindingType(
        headline="Python differs on {where}: {seen}",
        who="image author",
        cause="an environment that is not activated there, or the system Python",
        means="functions and classes pickled on one node can't be unpickled on another "
        "(all_gather_object, a checkpoint); torch itself works",
        text="use the same image or environment on all nodes",
        commands=(Command("command -v python; python --version", "{node}"),),
        status=Status.WARN,
        explains=(),
    ),
    "driver-differs": FindingType(
        headline="the NVIDIA driver differs on {where}: {seen}",
        cause="a node that missed the last update, or was the only one updated",
        means="usually nothing; but a bug of one driver version only affects these nodes",
        text="install the same driver on all nodes",
        commands=(Command("cat /proc/driver/nvidia/version", "{node}"),),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.NODE,
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class NodeSoftware:
    """What has to be alike. Empty: it is not there, or does not tell.

    absent     torch is not installed; broken: it can't be imported, which host.software reports
    nccl       the version that counts: the loaded one, else the one that torch was built with
    """

    python: str
    executable: str
    absent: bool = False
    broken: bool = False
    torch: str = ""
    git: str = ""
    cuda: str = ""
    folder: str = ""
    nccl: str = ""
    nccl_built: str = ""
    nccl_path: str = ""
    nccl_origin: str = ""
    driver: str = ""
    gpus: bool = False

    @property
    def foreign(self) -> bool:
        """Whether the environment brings another NCCL than the one that torch was built with."""
        own = numbers(self.nccl_built)[:3]
        return self.nccl_origin in FOREIGN and bool(own) and own != numbers(self.nccl)[:3]


def observe(host: Host, ctx: Context) -> NodeSoftware:
    import sys

    torch = ctx.preloaded.get("torch")
    imported = torch is not None and not (torch.absent or torch.error)
    facts: dict[str, Any] = _torch() if imported else {}
    ctx.mark("NCCL")
    folders = {folder: nccl_library.PACKAGE for _, folder in nccl_library.nccl_packages().values()}
    loaded = nccl_library.loaded_nccl(host, nccl_library.libraries(host, folders=folders))
    # a loaded one that does not tell its version is not what torch was built with
    version = loaded.version if loaded.path else facts.get("nccl_built", "")
    return NodeSoftware(
        python=sys.version.split()[0][:TEXT],
        executable=sys.executable[:TEXT],
        absent=torch is not None and torch.absent,
        broken=not imported and not (torch is not None and torch.absent),
        nccl=version,
        nccl_path=loaded.path[:TEXT],
        nccl_origin=loaded.origin,
        driver=nvml.module_version(host),
        gpus=bool(host.gpu_files()),
        **facts,
    )


def _torch() -> dict[str, Any]:
    """What the loaded torch says of itself, without a call that starts CUDA."""
    import os

    import torch

    version, core = getattr(torch, "version", None), getattr(torch, "_C", None)
    compiled = torch.cuda.nccl.version() if hasattr(core, "_nccl_version") else ()
    return {
        "torch": str(getattr(torch, "__version__", ""))[:TEXT],
        "git": str(getattr(version, "git_version", "") or "")[:TEXT],
        "cuda": str(getattr(version, "cuda", "") or "")[:TEXT],
        "folder": os.path.dirname(getattr(torch, "__file__", None) or "")[:TEXT],
        "nccl_built": ".".join(str(part) for part in compiled[:3]),
    }


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that is compared.

    value    what should be equal; a node where it is empty stays out of the comparison
    breaks   what of it must be equal for training to work, where there are GPUs or not
    keys     the expectations about it, with what they are about
    """

    name: str
    code: str
    value: Callable[[NodeSoftware], str]
    shown: Callable[[NodeSoftware], str]
    breaks: Callable[[NodeSoftware, bool], str] = lambda seen, gpus: ""
    keys: Mapping[str, Callable[[NodeSoftware], str]] = field(default_factory=dict)

    def unmet(self, expect: Expect, seen: NodeSoftware) -> str:
        """The expectation that a node does not meet."""
        for key, value in self.keys.items():
            if not expect.admits(key, value(seen)):
                return f"{key} {expect.text(key)}{expect.aside(key)}"
        return ""


def _release(version: str) -> str:
    return ".".join(map(str, numbers(version)[:2])) or version


def _torch_shown(seen: NodeSoftware) -> str:
    build = f" for CUDA {seen.cuda[:20]}" if seen.cuda and "+" not in seen.torch else ""
    commit = f" ({seen.git[:8]})" if seen.git else ""
    return f"torch {seen.torch[:60]}{build}{commit} from {seen.folder[:120]}"


def _nccl_shown(seen: NodeSoftware) -> str:
    where = f" from {seen.nccl_path[:120]} ({seen.nccl_origin[:40]})" if seen.nccl_path else ""
    return f"NCCL {seen.nccl[:40]}{where}"


TORCH = Part(
    "torch",
    "torch-differs",
    lambda seen: f"{seen.torch} {seen.cuda} {seen.git}" if seen.torch else "",
    _torch_shown,
    lambda seen, gpus: f"{_release(seen.torch)} {gpus and bool(seen.cuda)}",
    {"torch": lambda seen: seen.torch, "cuda": lambda seen: seen.cuda},
)
NCCL = Part(
    "NCCL",
    "nccl-differs",
    lambda seen: seen.nccl,
    _nccl_shown,
    # nobody starts it without a GPU
    lambda seen, gpus: seen.nccl if gpus else "",
    {"nccl": lambda seen: seen.nccl},
)
PYTHON = Part(
    "Python",
    "python-differs",
    lambda seen: _release(seen.python),
    lambda seen: f"Python {seen.python[:40]} at {seen.executable[:120]}",
)
DRIVER = Part(
    "NVIDIA driver",
    "driver-differs",
    lambda seen: seen.driver,
    lambda seen: f"driver {seen.driver[:40]}",
    keys={"driver": lambda seen: seen.driver},
)


def judge(world: World[NodeSoftware], expect: Expect) -> Iterator[Found]:
    there = [key for key, s in world.seen.items() if s.torch]
    absent = [key for key, s in world.seen.items() if s.absent and there]
    for key in absent:
        yield Found(
            "torch-absent",
            (_subject(world, key, "torch"),),
            saw=f"torch is not installed for {world.seen[key].executable[:120]}",
            expected=f"{_torch_shown(world.seen[there[0]])}, as on {parties(there)}",
            # no other node would have it if the job did not need it
            confidence=LIKELY,
            fields={"node": key},
        )
    seen = {key: s for key, s in world.seen.items() if key not in absent}
    causes: list[tuple[Part, bool]] = []
    for part in (TORCH, NCCL, PYTHON, DRIVER):
        # another torch brings another NCCL, mostly another Python too: that is one fault
        as_grave = [cause for cause, fails in causes if fails or part is PYTHON]
        if part is not DRIVER and any(_follows(seen.values(), part, one) for one in as_grave):
            continue
        found = list(_compare(world, seen, part, expect))
        yield from found
        if found:
            causes.append((part, any(status_of(FINDINGS, f) is FAIL for f in found)))


def _follows(seen: Iterable[NodeSoftware], part: Part, cause: Part) -> bool:
    """Whether one part is equal wherever the other is."""
    pairs = {(cause.value(s), part.value(s)) for s in seen if part.value(s)}
    return len(pairs) == len({first for first, _ in pairs})


def _compare(
    world: World[NodeSoftware], seen: Mapping[str, NodeSoftware], part: Part, expect: Expect
) -> Iterator[Found]:
    """By what is expected, else by majority or an outside reason; first what breaks training, then,
    among those who agree in that, the rest."""
    values = {key: s for key, s in seen.items() if part.value(s)}
    if len({part.value(s) for s in values.values()}) < 2:
        return
    unmet = {key: goal for key, s in values.items() if (goal := part.unmet(expect, s))}
    if len(unmet) < len(values):
        for keys in _grouped_by(unmet, lambda key: part.value(values[key])):
            odd = _finding(world, part, FAIL, keys, unmet[keys[0]], CERTAIN)
            # which says the same of the node alone
            declared = FINDINGS[part.code].explains
            usual = CHECK.explains if declared is None else declared
            yield odd.with_(explains=tuple(dict.fromkeys((*usual, "host.software"))))
        values = {key: s for key, s in values.items() if key not in unmet}
    gpus = any(s.gpus for s in seen.values())
    for status, value in (
        (FAIL, {key: part.breaks(s, gpus) for key, s in values.items()}),
        (WARN, {key: part.value(s) for key, s in values.items()}),
    ):
        agreed = consensus({key: value[key] for key in values})
        if agreed.tie:
            yield from _tie(world, part, status, tuple(agreed.odd.values()))
            return
        for keys in agreed.odd.values():
            yield _by_majority(world, part, status, keys, agreed.holders)
        values = {key: values[key] for key in agreed.holders}


def _grouped_by(keys: Iterable[str], value: Callable[[str], str]) -> Iterable[tuple[str, ...]]:
    """The nodes that have the same."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(value(key), []).append(key)
    return [tuple(same) for same in found.values()]


def _by_majority(
    world: World[NodeSoftware],
    part: Part,
    status: Status,
    keys: tuple[str, ...],
    holders: tuple[str, ...],
) -> Found:
    goal = f"{part.shown(world.seen[holders[0]])}, as on {parties(holders)}"
    strange = tuple(key for key in holders if part is NCCL and world.seen[key].foreign)
    if not strange:
        return _finding(world, part, status, keys, goal, CERTAIN)
    other = f"the others are: {world.seen[strange[0]].nccl_origin[:40]} brings it to "
    odd = _finding(world, part, status, keys, goal, LIKELY)
    return odd.with_(alternatives=(other + parties(strange),))


def _tie(
    world: World[NodeSoftware], part: Part, status: Status, sides: tuple[tuple[str, ...], ...]
) -> Iterator[Found]:
    """No majority. A node whose environment brings another NCCL than torch's own is named all the
    same, if the rest agree; else all are named."""
    everybody = tuple(key for keys in sides for key in keys)
    strange = [key for key in everybody if part is NCCL and world.seen[key].foreign]
    rest = tuple(key for key in everybody if key not in strange)
    if strange and len({part.value(world.seen[key]) for key in rest}) == 1:
        goal = f"{part.shown(world.seen[rest[0]])}, as on {parties(rest)}"
        for keys in _grouped_by(strange, lambda key: part.value(world.seen[key])):
            own = f" · torch there was built with {world.seen[keys[0]].nccl_built[:40]}"
            odd = _finding(world, part, status, keys, goal, LIKELY)
            yield odd.with_(saw=odd.saw + own)
        return
    lines = [f"{part.shown(world.seen[keys[0]])} on {parties(keys)}" for keys in sides[:SHOWN]]
    odd = _finding(world, part, status, everybody, f"one {part.name} on all nodes", POSSIBLE)
    others = tuple(f"{parties(keys)} is the one that differs" for keys in sides[:SHOWN])
    yield odd.with_(saw=" · ".join(lines), alternatives=others)


def _finding(
    world: World[NodeSoftware],
    part: Part,
    status: Status,
    keys: tuple[str, ...],
    goal: str,
    confidence: Confidence,
) -> Found:
    return Found(
        part.code,
        tuple(_subject(world, key, part.name) for key in keys),
        saw=part.shown(world.seen[keys[0]]) + f" on {parties(keys)}" * (len(keys) > 1),
        expected=goal,
        confidence=confidence,
        fields={"node": keys[0]},
        status=status,
    )


def _subject(world: World[NodeSoftware], key: str, name: str) -> Subject:
    return Subject(Kind.SOFTWARE, key, name, ranks=world.topology.ranks_of(key))


def measured(world: World[NodeSoftware]) -> Measured:
    names = {"torch": "torch", "NCCL": "nccl", "python": "python", "driver": "driver"}
    found = {
        name: sorted({str(getattr(s, attribute)) for s in world.seen.values()} - {""})
        for name, attribute in names.items()
    }
    parts = [f"{name} {' / '.join(some[:SHOWN])}" for name, some in found.items() if some]
    return Measured(" · ".join(parts), {name.lower(): v[:64] for name, v in found.items()})
