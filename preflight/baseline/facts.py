"""What a report says of each node, by name: software, variables, limits, addresses. Pure.

It reads the observations as they were saved: a report of another version has other fields, and what
is not there, or is of another kind, is no fact. A test holds the names of the fields against the
checks of today.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from preflight.domains.net import interface_rules
from preflight.humanize import count, size
from preflight.model import Observation, Report, Seen
from preflight.packed import plain

Name = tuple[str, str]
"""The part that a fact belongs to, and what it is called there."""

SOFTWARE, GPUS, VARIABLES, LIMITS, ADDRESSES = "software", "GPUs", "variables", "limits", "network"

KEPT = 512
"""Facts that are kept of one check on one node: real ones have a few dozen."""


def at(value: object, path: str) -> object:
    """What stands at `build.version` in an observation; None where there is no such place."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: object, path: str) -> str:
    found = at(value, path)
    return found if isinstance(found, str) else ""


def number(value: object, path: str) -> float | None:
    found = at(value, path)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def whole(value: object, path: str) -> int | None:
    found = number(value, path)
    return found if isinstance(found, int) else None


def entries(value: object, path: str) -> list[Any]:
    found = at(value, path)
    return found[:KEPT] if isinstance(found, list) else []


def seen(report: Report, check: str) -> Mapping[str, object]:
    """What one check saw on each node that it could look at."""
    by_key: Mapping[str, Observation] = report.observations.checks.get(check, {})
    return {key: plain(o.value) for key, o in by_key.items() if isinstance(o, Seen)}


def nccl_of(value: object) -> str:
    """The NCCL that counts: the loaded one, else what torch was built with."""
    return text(value, "loaded.version") or text(value, "build.nccl_version")


def gpu_names(value: object) -> tuple[str, ...]:
    """The models of the GPUs, sorted."""
    return tuple(sorted(text(gpu, "name") for gpu in entries(value, "answer.gpus")))


def _software(value: object) -> Iterator[tuple[Name, str]]:
    for name, path in (
        ("torch", "build.version"),
        ("torch from", "build.folder"),
        ("CUDA of torch", "build.cuda"),
        ("NVIDIA driver", "driver"),
        ("Python", "python"),
    ):
        yield (SOFTWARE, name), text(value, path)
    yield (SOFTWARE, "NCCL"), nccl_of(value)
    yield (SOFTWARE, "NCCL from"), text(value, "loaded.path")


def _gpus(value: object) -> Iterator[tuple[Name, str]]:
    names = gpu_names(value)
    models = [f"{names.count(name)} x {name or 'no answer'}" for name in dict.fromkeys(names)]
    yield (GPUS, "models"), ", ".join(models)
    memory = {m for gpu in entries(value, "answer.gpus") if (m := whole(gpu, "memory"))}
    yield (GPUS, "memory"), ", ".join(size(m) for m in sorted(memory))
    yield (GPUS, "CUDA of the driver"), text(value, "answer.cuda")


def _alike(texts: Iterable[str]) -> str:
    """`7 x 18, 1 x 16`: how often each text is there, the commonest first."""
    counts = Counter(texts)
    return ", ".join(f"{n} x {t}" for t, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])))


def _sum(numbers: Iterable[int | None]) -> str:
    """A sum; empty where nobody told any."""
    known = [n for n in numbers if n is not None]
    return str(sum(known)) if known else ""


def _vitals(value: object) -> Iterator[tuple[Name, str]]:
    """What stays as it is on a good day. Errors since the driver was loaded, heat and programs do
    not: the check judges them."""
    gpus = entries(value, "told.gpus")
    widths = [whole(gpu, "width") for gpu in gpus]
    yield (GPUS, "PCIe lanes"), _alike(f"x{width}" for width in widths if width)
    yield (GPUS, "memory errors ever"), _sum(whole(gpu, "aggregate") for gpu in gpus)
    # rows of NVIDIA's memory, pages of AMD's
    yield (GPUS, "memory put out of use"), _sum(whole(gpu, "rows") for gpu in gpus)
    modes = [at(gpu, "persistent") for gpu in gpus]
    words = ["on" if mode else "off" for mode in modes if isinstance(mode, bool)]
    yield (GPUS, "persistence mode"), _alike(words)
    fabric = [state for gpu in gpus if (state := whole(gpu, "fabric.state"))]
    yield (GPUS, "in an NVSwitch fabric"), _sum(int(state == 3) for state in fabric)


def _links(value: object) -> Iterator[tuple[Name, str]]:
    gpus, pairs = entries(value, "joined.gpus"), entries(value, "joined.pairs")
    up = [[lane for lane in entries(g, "lanes") if at(lane, "active") is True] for g in gpus]
    wire = "XGMI links" if text(value, "make") == "AMD" else "NVLink lanes"
    yield (GPUS, f"{wire} per GPU"), _alike(str(len(lanes)) for lanes in up)
    buses = {text(gpu, "bus") for gpu in gpus} - {""}
    between = Counter(
        (text(gpu, "bus"), remote)
        for gpu, lanes in zip(gpus, up, strict=True)
        for lane in lanes
        if (remote := text(lane, "remote")) in buses and text(gpu, "bus") < remote
    )
    yield (GPUS, f"{wire} per pair"), _alike(str(n) for n in between.values())
    read_write = [(whole(pair, "read"), whole(pair, "write")) for pair in pairs]
    may = [both == (0, 0) for both in read_write if None not in both]
    yield (GPUS, "pairs with P2P"), f"{sum(may)} of {len(may)}" if may else ""
    yield (GPUS, "IOMMU"), _alike(kind for gpu in gpus if (kind := text(gpu, "iommu")))


def _rdma(value: object) -> Iterator[tuple[Name, str]]:
    for port in entries(value, "ports"):
        name, layer = text(port, "device"), text(port, "layer")
        if name and layer:
            state = "active" if whole(port, "state") == 4 else "not active"
            rate, mtu = number(port, "rate") or 0, whole(port, "mtu") or 0
            parts = [f"{rate:g} Gb/s", text(port, "width"), layer, f"MTU {mtu}" * bool(mtu), state]
            told = " ".join(part for part in parts if part)
            yield (ADDRESSES, f"{name}:{whole(port, 'number')}"), told
            yield (ADDRESSES, f"{name} firmware"), text(port, "firmware")
    peering = at(value, "peering")
    words = ("no", "yes")[peering] if isinstance(peering, bool) else ""
    yield (ADDRESSES, "HCAs reach into GPU memory"), words


def _limits(value: object) -> Iterator[tuple[Name, str]]:
    for name, path, written in (
        ("locked memory", "memlock", size),
        ("open files", "files", count),
        ("/dev/shm", "shm_size", size),
    ):
        found = whole(value, path)
        yield (LIMITS, name), "" if found is None else written(found)


def _cpus(value: object) -> Iterator[tuple[Name, str]]:
    for name, path in (("CPUs", "online"), ("CPUs given", "usable"), ("CPU quota", "quota")):
        found = number(value, path)
        yield (LIMITS, name), "" if found is None else f"{found:g}"


def _interfaces(value: object) -> Iterator[tuple[Name, str]]:
    """Those with an address, without those that end on the host: containers come and go."""
    for nic in entries(value, "interfaces"):
        name, addresses = text(nic, "name"), _addresses(nic)
        if (
            name
            and addresses
            and at(nic, "loopback") is False
            and not interface_rules.isolated(name)
        ):
            mtu, state = whole(nic, "mtu"), "up" if at(nic, "running") is True else "down"
            yield (ADDRESSES, name), " ".join([*addresses, f"MTU {mtu}", state])


def _addresses(nic: object) -> list[str]:
    """IPv6 where there is no IPv4 only: hosts take a new one for themselves every day."""
    by_family = {
        family: [
            f"{text(a, 'ip')}/{whole(a, 'prefix')}"
            for a in entries(nic, "addresses")
            if whole(a, "family") == family
        ]
        for family in (4, 6)
    }
    return sorted(by_family[4] or by_family[6])


def _speeds(value: object) -> Iterator[tuple[Name, str]]:
    found = at(value, "speeds")
    for name in list(found)[:KEPT] if isinstance(found, dict) else []:
        if not interface_rules.isolated(name):
            yield (ADDRESSES, f"{name} speed"), f"{number(found, name)} Mbit/s"


def _variables(value: object) -> Iterator[tuple[Name, str]]:
    for variable in entries(value, "variables"):
        file = text(variable, "file")
        name = text(variable, "name") + (f" in {file}" if file else "")
        yield (VARIABLES, name), repr(text(variable, "value"))
    proxies = at(value, "proxies")
    for name in list(proxies)[:KEPT] if isinstance(proxies, dict) else []:
        yield (VARIABLES, name), repr(text(proxies, name))


READERS: Mapping[str, Callable[[object], Iterator[tuple[Name, str]]]] = MappingProxyType(
    {
        "host.software": _software,
        "gpu.visible": _gpus,
        "gpu.health": _vitals,
        "gpu.links": _links,
        "net.rdma": _rdma,
        "env.vars": _variables,
        "host.limits": _limits,
        "host.cpu": _cpus,
        "net.interface": _interfaces,
        "agree.hardware": _speeds,
    }
)
"""Check -> what its observation of one node says."""


def facts(check: str, value: object) -> dict[Name, str]:
    """What one observation says, without what it leaves empty."""
    found: dict[Name, str] = {}
    for name, said in READERS[check](value):
        if len(found) >= KEPT:
            break
        if said:
            found[name] = said
    return found


def version(value: str) -> str:
    """The leading numbers of a version, as a condition takes them; empty where there are none."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9}){0,3}", value, re.ASCII)
    return found[0] if found else ""
