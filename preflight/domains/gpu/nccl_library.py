"""Finds NCCL libraries: on the search path, among Python packages, and in this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from preflight.frozen import dataclass
from preflight.host import Host
from preflight.sanitize import clip

TEXT = 500
"""Characters kept of a path."""

ENTRIES = 64
"""Entries of a search path that are looked at; real ones have a dozen."""

PRELOAD, SEARCH, PACKAGE, SYSTEM = "LD_PRELOAD", "LD_LIBRARY_PATH", "package", "system"
PACKAGES = tuple(f"nvidia-nccl-cu{major}" for major in (11, 12, 13))
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the dynamic linker may find, and what lets it: PRELOAD, SEARCH, PACKAGE (of
    Python) or SYSTEM (ld.so.cache and the usual folders)."""

    path: str
    origin: str


@dataclass(frozen=True, slots=True)
class LoadedNccl:
    """The NCCL in this process, as the library itself says; empty where there is none."""

    path: str = ""
    version: str = ""
    origin: str = ""


def nccl_packages() -> dict[str, tuple[str, str]]:
    """NCCL's Python packages: name -> version and the folder of the library."""
    from importlib import metadata

    found = {}
    for name in PACKAGES:
        try:
            package = metadata.distribution(name)
            found[name] = str(package.version), str(package.locate_file("nvidia/nccl/lib"))
        except (metadata.PackageNotFoundError, OSError):
            continue
    return found


def expected_version(host: Host) -> str:
    """The version of the NCCL that a process started here will load, `2.26.2`, without loading it:
    of the Python package, or by the library's file name; empty where nothing tells."""
    packages = nccl_packages() if host.live else {}
    folders = {folder: PACKAGE for _, folder in packages.values()}
    first = next(iter(libraries(host, folders=folders)), None)
    if first is None:
        return ""
    if first.origin == PACKAGE:
        versions = {version for version, _ in packages.values()}
        return clip(versions.pop(), TEXT) if len(versions) == 1 else ""
    try:
        name = host.path(first.path).resolve().name
    except (OSError, RuntimeError, ValueError):
        return ""
    found = re.fullmatch(r"libnccl\.so\.([0-9]{1,3}(?:\.[0-9]{1,3}){1,2})", name)
    return found[1] if found else ""


def absent_preloads(host: Host) -> tuple[str, ...]:
    """Entries of LD_PRELOAD that are paths to nothing; the linker goes on without them. `$LIB` and
    the like it fills in itself, and names without a / it looks for."""
    paths = (path for path in _preloads(host) if path.startswith("/") and "$" not in path)
    return tuple(clip(path, TEXT) for path in paths if not host.exists(path))


def _preloads(host: Host) -> list[str]:
    """ld.so(8): it is parted by colons and spaces."""
    return re.split("[: ]+", host.environ.get(PRELOAD, "")[: TEXT * ENTRIES])[:ENTRIES]


def libraries(
    host: Host, name: str = "libnccl.so", folders: Mapping[str, str] | None = None
) -> tuple[Library, ...]:
    """Where a library lies, each path once, in the linker's order. `folders` -> origin are looked
    at after LD_LIBRARY_PATH."""
    found: dict[str, Library] = {}
    for path, origin in _candidates(host, name, folders or {}):
        # bytes that are no UTF-8 come as lone surrogates, which no report can hold
        readable = clip(path, TEXT)
        found.setdefault(path, Library(readable, origin))
    return tuple(found.values())[:ENTRIES]


def _candidates(host: Host, name: str, more: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for path in _preloads(host):
        if path.rpartition("/")[2].startswith(name):
            yield path, PRELOAD
    search = host.environ.get(SEARCH, "")[: TEXT * ENTRIES].split(":")[:ENTRIES]
    folders = [(folder.rstrip("/"), SEARCH) for folder in search if folder.startswith("/")]
    for folder, origin in (*folders, *more.items()):
        yield from _within(host, folder, name, origin)
    # the cache keeps names and paths as strings that end in a zero byte
    for text in (host.read_or_none("/etc/ld.so.cache") or "").split("\0"):
        if text.startswith("/") and text.rpartition("/")[2].startswith(name):
            yield text, SYSTEM
    for folder in FOLDERS:
        yield from _within(host, folder, name, SYSTEM)


def _within(host: Host, folder: str, name: str, origin: str) -> Iterator[tuple[str, str]]:
    return ((f"{folder}/{n}", origin) for n in host.listdir(folder) if n.startswith(name))


def loaded_path(host: Host, name: str) -> str:
    """Where this process has loaded a library such as `libnccl.so` from, links resolved; empty when
    it has not."""
    for line in host.lines("/proc/self/maps", most=1 << 16):
        path = "/" + line.rstrip("\n").partition("/")[2]
        if re.fullmatch(re.escape(name) + "[.0-9]*", path.rpartition("/")[2]):
            return path
    return ""


def loaded_nccl(host: Host, known: tuple[Library, ...]) -> LoadedNccl:
    """The NCCL that this process has loaded. Only it knows its version: torch says the one that it
    was compiled with. ncclGetVersion starts nothing."""
    import ctypes

    path = loaded_path(host, "libnccl.so")
    if not path:
        return LoadedNccl()
    # the kernel shows paths with their links resolved
    origin = next((x.origin for x in known if os.path.realpath(x.path) == path), SYSTEM)
    code = ctypes.c_int(0)
    try:
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(code))
    except (OSError, AttributeError):
        return LoadedNccl(path[:TEXT], "", origin)
    # nccl.h, NCCL_VERSION: 2804 up to 2.8, 20903 from 2.9 on
    unit = 10000 if code.value >= 10000 else 1000
    version = (code.value // unit, code.value % unit // 100, code.value % 100)
    return LoadedNccl(path[:TEXT], ".".join(map(str, version)), origin)
