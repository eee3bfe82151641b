"""Tells whether this is a container and of which kind, and whether its user has a name."""

from __future__ import annotations

import os

from preflight.host import Host
from preflight.model import CannotObserve

SIGNS = ("/.dockerenv", "/run/.containerenv")
"""What Docker and Podman put into the root folder."""

DISKS = ("ext2", "ext3", "ext4", "xfs", "f2fs")
"""File systems that no container has as its root, but a machine that was installed from an image
with one of the signs in it."""

KUBERNETES, OTHER = "kubernetes", "container"

SHM_SIZE = "docker, podman: --shm-size=8g; pod: emptyDir with medium Memory at /dev/shm"
"""FindingType of all checks for which /dev/shm is too small."""

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""The variables in which getpass.getuser() looks for the user's name, in its order."""


def kind(host: Host) -> str:
    """`kubernetes`, `container`, or empty outside of any that has a network, limits and devices of
    its own. Apptainer and enroot are not counted: there all of these are the node's."""
    if host.environ.get("SLURM_SCRIPT_CONTEXT", "").endswith("_slurmd"):
        return ""  # a hook of slurmd: what it sees is the node itself, however that was made
    if host.environ.get("KUBERNETES_SERVICE_HOST"):  # in every pod, whatever it asks for
        return KUBERNETES
    if not any(host.exists(path) for path in SIGNS):
        return ""
    try:
        root = host.mount_of("/")
    except CannotObserve:
        return OTHER
    return OTHER if root is None or root.fstype not in DISKS else ""


def network_kind(host: Host) -> str:
    """What kind() says; a container also where the network here is another one than the first
    process has: a namespace made by hand, or by a tool that leaves none of the signs."""
    mine, first = (host.readlink(f"/proc/{pid}/ns/net") for pid in ("self", "1"))
    return kind(host) or (OTHER if mine and first and mine != first else "")


def nameless(host: Host) -> int | None:
    """The number of a user who has no name: no variable says one and the user database has no
    entry, as where a pod or `--user` takes any number. None where there is a name."""
    if not host.live or any(host.environ.get(name) for name in NAMES):
        return None
    import pwd

    uid = os.getuid()
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return uid
    return None
