"""Whether there is a network plugin that NCCL could load: only one gives a network of another name
than IB and Socket.

src/plugin/net.cc and plugin_open.cc: of each name in NCCL_NET_PLUGIN NCCL opens the name itself and
libnccl-net-NAME.so, of `none` nothing, and libnccl-net.so where it is not set. A bare name is
looked for as the dynamic linker does, also where the library that opens it lies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from preflight.domains.gpu.nccl_library import PACKAGE, libraries, nccl_packages
from preflight.host import Host
from preflight.sanitize import quoted

NONE, DEFAULT = "none", "libnccl-net.so"
BUILT_IN = "STATIC_PLUGIN"
"""NCCL's name for one that is linked into the program, or any beginning of it."""
FOLDERS_MOST = 64
"""Folders of Python packages that are looked at; a torch with CUDA brings about 20."""


def no_plugin_because(host: Host, named: str) -> str:
    """Why NCCL has no network plugin to load with this value of NCCL_NET_PLUGIN, empty where it is
    not set; empty where NCCL may load one. Whether that one also works, nobody knows before."""
    if named.lower() == NONE:
        return "NCCL_NET_PLUGIN is none"
    names = [name for name in named.split(",") if name] or [DEFAULT]
    if any(_may_be_there(host, name) for name in names):
        return ""
    return f"no plugin {quoted(named)} is found" if named else f"no {DEFAULT} is found"


def _may_be_there(host: Host, name: str) -> bool:
    if BUILT_IN.startswith(name.upper()):
        return True
    if "/" in name:
        # a relative path is relative to wherever the ranks will run
        return not name.startswith("/") or host.exists(name)
    folders = dict.fromkeys(_beside_nccl(host), PACKAGE)
    return any(
        library.path.endswith(f"/{file}")
        for file in (name, f"libnccl-net-{name}.so")
        for library in libraries(host, file, folders)
    )


def _beside_nccl(host: Host) -> Iterator[str]:
    """Where torch's own libraries and NCCL may lie, in this Python and in the one of the shell."""
    for library in libraries(host, "libnccl.so"):
        yield library.path.rpartition("/")[0]
    prefixes = [sys.prefix if host.live else ""]
    prefixes += [host.environ.get(name, "") for name in ("CONDA_PREFIX", "VIRTUAL_ENV")]
    for prefix in filter(None, prefixes):
        lib = f"{prefix.rstrip('/')}/lib"
        yield lib
        pythons = [name for name in host.listdir(lib) if name.startswith("python3")]
        for python in pythons[:4]:
            yield from _of_packages(host, f"{lib}/{python}/site-packages")
    for _, folder in nccl_packages().values() if host.live else ():
        yield from _of_packages(host, folder.removesuffix("/nvidia/nccl/lib"))


def _of_packages(host: Host, site: str) -> Iterator[str]:
    yield f"{site}/torch/lib"
    for package in host.listdir(f"{site}/nvidia")[:FOLDERS_MOST]:
        yield f"{site}/nvidia/{package}/lib"
