"""Images from the Dockerfile, built by buildah: without a daemon, a registry or a network.

Their base is made of this very interpreter: its standard library, what the project depends on, a
shell, and the shared libraries of all that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

TOOLS = ("buildah", "unshare", "ldd")
COMMANDS = ("sh", "rm", "env", "cat", "id", "mkdir", "chmod")
BUILD_SECONDS = 300
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = Path("usr/local/lib") / VERSION
PACKAGES = LIBRARY / "site-packages"
WHEELS = Path("wheels-of-the-test")
"""Where pip looks in the image for what the base lacks."""

# pip takes what is there and asks nobody; the inverted word is pip's own: no isolated environment
SETTINGS = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": f"/{WHEELS}",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@cache
def missing() -> str:
    """Why nothing can be built here; empty when it can."""
    lacking = [tool for tool in TOOLS if not shutil.which(tool)]
    if lacking:
        return f"not installed here: {', '.join(lacking)}"
    return "" if os.geteuid() == 0 else "needs root"


class Builder:
    """A store of images in a folder, which podman reads as well (`--root FOLDER/root`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def buildah(self, *args: str) -> str:
        """What a buildah command says; its error where it fails."""
        store = (f"--root={self.folder}/root", f"--runroot={self.folder}/run")
        ended = subprocess.run(
            ["unshare", "--mount", "--", "buildah", *store, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        return ended.stdout + ended.stderr

    def base(self, name: str, without: Sequence[str] = ()) -> str:
        """An image of this interpreter with what the project depends on, but for the packages
        `without`: these lie in it as wheels."""
        root = self.folder / name
        _interpreter(root)
        for package in _needed():
            if package not in without:
                _install(package, root / PACKAGES)
        (root / WHEELS).mkdir()
        for package in without:
            _wheel(package, root / WHEELS)
        _libraries(root)
        settings = [f"--env={key}={value}" for key, value in SETTINGS.items()]
        held = self.buildah("from", "scratch").split()[-1]
        self.buildah("add", held, str(root), "/")
        self.buildah("config", *settings, held)
        self.buildah("commit", "--rm", held, f"localhost/{name}")
        shutil.rmtree(root)
        return f"localhost/{name}"

    def build(self, context: Path, target: str, **arguments: str) -> str:
        """An image of the Dockerfile in a folder; without an OCI runtime, which a build in small
        machines does not get, and without a cache: buildah 1.28 finds nothing to bind in a stage
        that comes from there."""
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        name = f"localhost/preflight-{target}"
        self.buildah(
            *(
                "build",
                "--isolation=chroot",
                "--pull-never",
                "--layers=false",
                f"--target={target}",
            ),
            *(*given, f"--tag={name}", str(context)),
        )
        return name


def _interpreter(root: Path) -> None:
    """This interpreter below usr/local, as in Docker's own Python images."""
    (root / "usr/local/bin").mkdir(parents=True)
    program = root / "usr/local/bin" / VERSION
    shutil.copy2(Path(sys.executable).resolve(), program)
    for name in ("python", "python3"):
        program.with_name(name).symlink_to(VERSION)
    pip = program.with_name("pip")
    pip.write_text(f"#!/usr/local/bin/{VERSION}\nfrom pip._internal.cli.main import main\nmain()\n")
    pip.chmod(0o755)
    left_out = ("*-packages", "test", "tests", "__pycache__", "config-*", "idlelib", "tkinter")
    standard = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(standard, root / LIBRARY, ignore=shutil.ignore_patterns(*left_out))
    (root / PACKAGES).mkdir()
    (root / "bin").mkdir()
    for command in COMMANDS:
        shutil.copy2(Path(shutil.which(command) or command).resolve(), root / "bin" / command)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


@cache
def _needed() -> tuple[str, ...]:
    """The distributions that the project depends on, with theirs, and those that build a wheel."""
    found: dict[str, None] = {}
    ahead = ["cluster-preflight"]
    while ahead:
        for text in metadata.requires(ahead.pop()) or ():
            wanted = Requirement(text)
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if applies and wanted.name not in found:
                found[wanted.name] = None
                ahead.append(wanted.name)
    return (*found, "pip", "setuptools")


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """(path in site-packages, file) of an installed distribution; no scripts, no caches."""
    for file in metadata.distribution(package).files or ():
        path = Path(str(file.locate()))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield str(file), path


def _install(package: str, folder: Path) -> None:
    for name, path in _files(package):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _wheel(package: str, folder: Path) -> None:
    """The wheel that an installed distribution came from, as far as that can be had back."""
    about = metadata.distribution(package)
    tags = re.search(r"^Tag: (.+)$", about.read_text("WHEEL") or "", re.MULTILINE)
    name = re.sub(r"[-_.]+", "_", about.metadata["Name"])
    tag = tags[1].strip() if tags else "py3-none-any"
    with zipfile.ZipFile(folder / f"{name}-{about.version}-{tag}.whl", "w") as archive:
        for inside, path in _files(package):
            if not inside.endswith((".dist-info/INSTALLER", ".dist-info/REQUESTED")):
                archive.write(path, inside)


def _libraries(root: Path) -> None:
    """The shared libraries of all programs and modules in it, where the loader looks for them."""
    programs = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and _is_elf(p)]
    listed = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    )
    for found in set(re.findall(r"(?:=> )?(/\S+) \(0x", listed.stdout)):
        library = Path(found)
        loader = library.name.startswith("ld-")
        target = root / (found.lstrip("/") if loader else f"usr/lib/{library.name}")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.resolve(), target)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
