"""The port of a torchrun that is yet to be started, as `gate` does: of one node, where nobody
meets, it may be another than all ranks' MASTER_PORT.

Without a port one node takes a free one from torch 2.12 on, 29500 before that
(torch/distributed/run.py). With c10d and an endpoint on this machine torchrun opens its store
there; where a store is already, it joins that one (c10d_rendezvous_backend.py), which works unless
both have the same --rdzv-id.
"""

from __future__ import annotations

import importlib.util
import os
import re

from preflight.domains.rendezvous.torchrun_names import endpoint_of
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.identity.addresses import loopback
from preflight.identity.launcher_options import launcher_options
from preflight.identity.launchers import (
    OPTIONS,
    is_host,
    leaves_port_open,
    numbers_nodes,
    one_node,
)

FREE_SINCE = (2, 12)
DEFAULT = 29500
VERSION = re.compile(r"^__version__ = '(\d{1,3})\.(\d{1,3})", re.ASCII | re.MULTILINE)
NO_ID = "none"
"""torchrun's --rdzv-id where nobody gives one."""


@dataclass(frozen=True, slots=True)
class TorchrunPort:
    """older  it is the port only of a torchrun whose torch is older than FREE_SINCE: whether the
              one beside preflight is, None without one there
    run       the --rdzv-id with c10d; empty: its rendezvous is static
    several   it is one of several nodes
    """

    port: int
    older: bool | None = True
    run: str = ""
    several: bool = False


def torchrun_port(host: Host, node: str) -> TorchrunPort | None:
    """None where no such torchrun is to come, it takes a free port, or it meets elsewhere."""
    environ = host.environ
    if OPTIONS not in environ:
        return None
    if leaves_port_open(environ):
        torch = _torch_beside(host)
        older = torch < FREE_SINCE if torch else None
        return None if older is False else TorchrunPort(DEFAULT, older)
    if not numbers_nodes(environ):
        return None
    if environ.get("PET_RDZV_BACKEND", "").strip() != "c10d":
        return None
    name, port = endpoint_of(environ.get("PET_RDZV_ENDPOINT", ""))
    several = not one_node(environ)
    here = name in ("localhost", node) or loopback(name)
    if not (here or several) or is_host(environ.get("PET_RDZV_CONF", "")) is False:
        return None
    number = int(port) if port.isdecimal() and len(port) < 6 else 0
    run = environ.get("PET_RDZV_ID", "") or NO_ID
    found = TorchrunPort(number, run=run[:255], several=several)
    return found if 0 < number < 65536 else None


def run_of(host: Host, pid: int) -> str | None:
    """The --rdzv-id of a process that is a torchrun with c10d; None of another, where it can't be
    read, and of one that is stopped (Ctrl-Z), whose store answers nobody."""
    stat = host.read_or_none(f"/proc/{pid}/stat") or ""
    if stat.rpartition(")")[2].split()[:1] in (["T"], ["t"]):
        return None

    def strings(name: str) -> list[str]:
        return (host.read_or_none(f"/proc/{pid}/{name}") or "").split("\0")[:-1]

    pairs = (word.partition("=") for word in strings("environ") if word.startswith("PET_RDZV_"))
    options = launcher_options(strings("cmdline"), {name: value for name, _, value in pairs})
    return options.run_id if options and options.backend == "c10d" and not options.alone else None


def _torch_beside(host: Host) -> tuple[int, ...]:
    """Major and minor version of the torch that this Python would import, which takes seconds;
    empty without one."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return ()
    folder = os.path.dirname(found.origin or "") if found else ""
    text = host.read_or_none(f"{folder}/version.py") if folder else None
    version = VERSION.search(text or "")
    return (int(version[1]), int(version[2])) if version else ()
