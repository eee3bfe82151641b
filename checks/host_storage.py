"""Can the job write to its folders, and do their file systems answer?

Looks at     TMPDIR (else TEMP, TMP, /tmp), the working directory, `checkpoint_dir`, `init_file` or
             the file:// address in INIT_METHOD or DIST_URL: each is looked up, measured, written to
             (64 KiB, fsync, deleted again) by a separate process, so that a dead mount hides no
             other; HOME is only looked up, and whether ~/.triton can be written; TRITON_CACHE_DIR
             and TORCHINDUCTOR_CACHE_DIR are tried, too, with the options of their mounts; what
             /dev/kmsg, where readable, has of NFS servers from which something is mounted; as root,
             the state of the connections to Lustre servers; locks in TORCH_EXTENSIONS_DIR, else
             ~/.cache/torch_extensions, and whether a process has one open
Fails if     a file system does not respond; its mount is broken; the checkpoint directory or the
             folder of the init file can't be written, nor TMPDIR and the working directory, where
             Python's tempfile tries last; less than 64 MiB or no inode is free
             there, or less than `free_gib`; TMPDIR is too long for a socket's path; the init file
             is left over from another run, is on a local file system in a job of several nodes, or
             can't be locked; the working directory was removed
Warns if     TMPDIR does not exist, or it alone can't be written; the parent of the checkpoint
             directory does not exist; fsync takes over 2 s; the working directory is full;
             checkpoints of several nodes go to local disks; a named cache of compiled kernels can't
             be written; HOME does not exist; with GPUs: Triton can't make its cache in HOME; what
             torch.compile compiles would be loaded from a folder that is mounted noexec (no failure
             with --strict: a hardened /tmp is a site's own choice); an NFS server did not respond
             in the last hour, as the kernel's log says, and does not respond now; there has been no
             connection to a server of a mounted Lustre for 30 s; the lock of an extension build is
             there, nothing has changed beside it for 10 minutes (an hour where another node or
             container may build), and no process here has it open
Undecided    no process can be forked, or none got CPU time soon enough
Not covered  Ceph, BeeGFS and GPFS where no path of the job hangs; throughput of the storage; the
             place of the training data, unless its NFS or Lustre server is known to be lost;
             whether other nodes see the same files; as root: the permissions of the job's user
             there
Seen as      a rank that hangs at start in state D, "Stale file handle", "No space left on device",
             "Disk quota exceeded", "No usable temporary directory found", "AF_UNIX path too long",
             "Parent directory does not exist" of torch.save, "Wait timeout" of a FileStore,
             "connectFullMesh failed" with addresses of an old run, "getcwd: cannot access parent
             directories", "Intel oneMKL FATAL ERROR: Cannot load", "nfs: server filer not
             responding, still trying", "blocked for more than 120 seconds", "Lustre: … Connection
             to scratch-OST0003 was lost; in progress operations using this service will wait for
             recovery to complete", a rank that hangs in wait of torch/utils/file_baton.py
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from preflight.check import Check, Context, Scope, Stage
from preflight.domains import kernel_log
from preflight.domains.kernel_log import NfsSilence, silent_nfs_servers
from preflight.domains.system import container, lustre
from preflight.domains.system.build_locks import BuildLock, build_locks
from preflight.domains.system.directories import (
    InitFileUrl,
    ProbedPath,
    Role,
    init_file_url,
    probe_paths,
)
from preflight.domains.system.fs_probe import probe_in_children
from preflight.domains.system.lustre import LostTarget
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host, Mount
from preflight.humanize import GIB, MIB, duration, parties, size
from preflight.model import (
    Blame,
    CannotObserve,
    Command,
    Confidence,
    FindingType,
    Found,
    Measured,
    Status,
    Subject,
    World,
)
from preflight.sanitize import escaped
from preflight.serde import decode, encode

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=4.0,
    disturbs="64 KiB a place",
    drains=True,
    options={
        "checkpoint_dir": "where the job writes its checkpoints",
        "init_file": "path or file:// address given to init_process_group",
    },
    blame=Blame.JOB,
    explains=("rdzv.*", "world.*"),
)

# share of the budget in which the places must have answered; the rest is for start and report
PATIENCE = 0.75
# seconds of a time limit below which a sound file system may not have answered yet
SHORT = 1.0
LISTED, SERVERS_ASKED = 3, 8
# caches of compiled kernels, logs of torchrun and a few batches of temporary files
SPACE_LEFT = 64 * MIB
# sockets and logs of each rank
INODES_LEFT = 64
# on a sound file system 64 KiB take milliseconds
SYNC_SLOW = 2.0
# sun_path has 108 bytes with its final 0 (unix(7)); the tail is what multiprocessing appends
SOCKET_PATH = 107
SOCKET_TAIL = len("/pymp-xxxxxxxx/listener-xxxxxxxx")
# file systems that no other node can see
LOCAL = ("tmpfs", "ramfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs")
WARN = Status.WARN
FULL = ("ENOSPC", "EDQUOT")
DENIED = ("EACCES", "EPERM")
LOG_SECONDS = 0.3
# seconds for which what the kernel logged of an NFS server counts: a request that goes on trying
# says so once, and again when it is answered; one that has given up never says that the server is
# back, but those after it say so, too
LOG_RECENT, GAVE_UP_RECENT = 3600.0, 600.0
# seconds without a connection to a Lustre server: one that is lost for a moment is back in less
LUSTRE_LOST = 30.0
# share of the budget in which the kernel must have told the states of Lustre's connections
LUSTRE_SHARE = 0.1
# share of the budget in which the folders of extension builds must have answered
LOCKS_SHARE = 0.15
# seconds without a change beside it after which the lock of a build is left over: a builder has it
# open, which shows only on its own node, and a single nvcc rarely takes as long as the second
STALE, STALE_ELSEWHERE = 600.0, 3600.0
# what a mount says whose server or daemon is gone
BROKEN = ("ESTALE", "ENOTCONN", "EIO", "ETIMEDOUT", "EHOSTDOWN", "ENODEV", "ESHUTDOWN")

FINDINGS = {
    "stalled": FindingType(
        headline="{seen}, on {at}",
        cause="a dead NFS or Lustre mount: its server is down or can't be reached",
        means="a rank hangs in state D as soon as it imports, reads or saves something there; not "
        "even SIGKILL ends it, and the other ranks wait for it",
        text="exclude {node!s} or remove the path from the job; bring the server of {device!s} "
        "back, or remount {mount}",
        commands=(
            Command("timeout -s KILL 5 stat -f {mount}", "the node"),
            Command("umount -f -l {mount}", "the node", "every process that uses the mount"),
        ),
        blame=Blame.NODE,
    ),
    "nfs-not-responding": FindingType(
        headline="{at} gets no answer from an NFS server: {seen}",
        cause="an NFS server that is down or overloaded, or a network that drops the packets of "
        "this node",
        means="'nfs: server … not responding, still trying' in the kernel's log; a rank that "
        "reads its data or saves a checkpoint there hangs in state D until the server responds, "
        "and the other ranks wait for it; on a soft mount it gets 'Input/output error'",
        text="check that the server is up and that {node!s} reaches it; if the folder responds "
        "now, the job may start",
        commands=(
            Command("timeout -s KILL 5 stat -f {mount}", "the node"),
            Command("dmesg -T | grep 'nfs: server'", "the node, as root"),
        ),
        status=WARN,
        blame=Blame.UNKNOWN,
        explains=(),
    ),
    "lustre-disconnected": FindingType(
        headline="{at} has lost the connection to Lustre: {seen}",
        cause="a Lustre server that is down, restarts or fails over, or a network that loses "
        "packets between it and this node",
        means="what a rank reads or writes there waits in state D until the connection is back, "
        "and the other ranks wait for it; where the server has evicted this node, it gets "
        "'Input/output error' or 'Cannot send after transport endpoint shutdown'",
        text="check that the server is up and that {node!s} reaches it; if other nodes are "
        "connected, exclude {node!s}",
        commands=(
            Command("timeout -s KILL 20 lfs check servers", "the node, as root"),
            Command("lctl get_param osc.*.state mdc.*.state", "the node, as root"),
        ),
        status=WARN,
        blame=Blame.UNKNOWN,
        explains=(),
    ),
    "mount-broken": FindingType(
        headline="{seen}, on {at}",
        cause="an export that was recreated, a daemon behind the mount that died, or a failing "
        "disk",
        means="'Stale file handle' or 'Transport endpoint is not connected' at the first access",
        text="exclude {node!s}; remount {mount}",
        commands=(Command("umount -f -l {mount}", "the node", "every process that uses it"),),
        blame=Blame.NODE,
    ),
    "unwritable": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="a path from another machine or user, or a read-only mount",
        means="the job fails with 'Permission denied' or 'Read-only file system' when it first "
        "writes there",
        text="use a folder that this user can write to on every node",
        commands=(Command("id; ls -ld {path}", "the node"),),
        blame=(Blame.NODE, Blame.JOB),
        explains=(),
        status=(Status.FAIL, WARN),
    ),
    "cache-unwritable": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="a folder of the image or of another user, or a read-only mount",
        means="the first torch.compile or Triton kernel that is not in the cache yet fails on "
        "every rank: 'Read-only file system' or 'Permission denied'",
        text="set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to a folder that this user can "
        "write to on every node",
        commands=(Command("id; ls -ld {path}", "the node"),),
        status=WARN,
        explains=(),
    ),
    "cache-noexec": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="a hardened /tmp, or a container's --tmpfs, which docker mounts noexec",
        means="the first torch.compile or Triton kernel fails on every rank: 'failed to map "
        "segment from shared object', since both load shared objects that they have built there",
        text="set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR to a folder without noexec; docker, "
        "podman: --tmpfs /tmp:exec",
        commands=(Command("findmnt -T {path} -o TARGET,FSTYPE,OPTIONS", "the node"),),
        status=WARN,
        explains=(),
        strict=False,
    ),
    "home-unwritable": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="a HOME that is mounted read-only on compute nodes, or is / or another user's in a "
        "container that runs as another user than its image was made for",
        means="Triton kernels that are called directly (Liger, GPTQ, Mamba; not "
        "those of torch.compile) fail on every rank: \"PermissionError: … '{path}/.triton'\" or "
        "'Read-only file system'; so do downloads of Hugging Face and torch.hub, and extensions "
        "that are built at start (DeepSpeed)",
        now="export TRITON_CACHE_DIR=/tmp/triton-$(id -u)",
        text="set TRITON_CACHE_DIR, HF_HOME, TORCH_HOME and TORCH_EXTENSIONS_DIR to folders that "
        "this user can write to on every node, or HOME itself",
        commands=(Command("id; ls -ld {path} {path}/.triton", "the node"),),
        status=WARN,
        explains=(),
    ),
    "home-missing": FindingType(
        headline="{seen}, on {at}",
        cause="an automounter, a directory service or a login script that did not make it",
        means="what keeps files in ~ fails at its first use: Triton's cache (~/.triton), torch.hub "
        "and Hugging Face (~/.cache), ~/.nccl.conf is not read",
        text="mount or create {path} on {node!s}, or set HOME, TRITON_CACHE_DIR and HF_HOME to a "
        "folder that is there",
        commands=(Command("getent passwd $USER; ls -ld {path}", "the node"),),
        status=WARN,
        explains=(),
    ),
    "image-read-only": FindingType(
        headline="the container on {at} has no writable folder for temporary files",
        who="job author",
        cause="a container with a read-only root file system and no writable folder for temporary "
        "files",
        means="'No usable temporary directory found' from DataLoader workers, torchrun and "
        "compilers",
        text="mount a writable folder: docker, podman: --tmpfs /tmp:exec; pod: an emptyDir at /tmp",
        commands=(Command("mount | grep -w {path}", "the container"),),
        explains=(),
        status=(Status.FAIL, WARN),
    ),
    "workdir-gone": FindingType(
        headline="the working directory {path} no longer exists on {at}",
        who="job author",
        cause="a shell in a folder that was removed or remounted",
        means="import torch dies with 'Intel oneMKL FATAL ERROR: Cannot load libtorch_cpu.so', or "
        "the script with a FileNotFoundError of os.getcwd()",
        text="start the job from a folder that exists",
        now='cd "$PWD"',
        explains=("host.software", "rdzv.*", "world.*"),
    ),
    "full": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="files that ended jobs left behind, or a quota",
        means="'No space left on device' or 'Disk quota exceeded', often first in a checkpoint",
        text="delete files that are not needed, or use another folder",
        commands=(Command("df -h {path}; df -i {path}", "the node"),),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.JOB, Blame.NODE),
        explains=(),
    ),
    "fsync-slow": FindingType(
        headline="{seen} on {at}: slow writes",
        cause="an overloaded server or a failing disk",
        means="every checkpoint takes minutes while all GPUs wait",
        text="check dmesg for errors, and find out what else writes there",
        commands=(Command("iostat -x 1 3", "the node"),),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.UNKNOWN),
        explains=(),
    ),
    "tmpdir-missing": FindingType(
        headline="TMPDIR {path} does not exist on {at}",
        who="job author",
        cause="a TMPDIR inherited from the machine where the job was submitted",
        means="Python silently uses /tmp; nvcc, Triton's compiler or MPI may end with 'No "
        "such file or directory'",
        text="create the folder on every node, or unset TMPDIR",
        now="mkdir -p {path}",
        status=Status.WARN,
        explains=(),
    ),
    "tmpdir-too-long": FindingType(
        headline="the path of TMPDIR is too long for sockets on {at}",
        who="job author",
        cause="a TMPDIR deep inside a project or scratch folder",
        means="DataLoader workers end with 'OSError: AF_UNIX path too long'",
        now="export TMPDIR=/tmp",
        status=(Status.FAIL, Status.WARN),
        explains=("world.loader",),
    ),
    "checkpoint-missing": FindingType(
        headline="the checkpoint directory {path} does not exist on {at}",
        who="job author",
        cause="a typo, or a file system that is not mounted on this node",
        means="torch.save ends with 'Parent directory … does not exist' after hours of training, "
        "or checkpoints fill the node's own disk",
        text="create the folder, or correct the path",
        now="mkdir -p {path}",
        status=Status.WARN,
        explains=(),
    ),
    "checkpoint-not-shared": FindingType(
        headline="the checkpoint directory {path} is not shared between nodes",
        who="job author",
        cause="a folder on each node's local disk",
        means="after a restart on other nodes the job finds no checkpoint, or only part of it",
        text="use a folder on a file system that all nodes mount",
        status=Status.WARN,
        explains=(),
    ),
    "init-leftover": FindingType(
        headline="the init file {path} is left over from an earlier run",
        who="job author",
        cause="a run that crashed and did not remove its file",
        means="ranks connect to addresses of the old run ('Connection refused') or hang",
        now="rm {path}   once no job uses it",
        text="use a different path for each job, e.g. with the job ID in its name",
        explains=(),
    ),
    "build-lock-stale": FindingType(
        headline="a left-over lock blocks the build of an extension on {at}: {seen}",
        who="job author",
        cause="a build of torch.utils.cpp_extension that was killed (Ctrl-C, a time limit, a node "
        "that went down) before it removed its lock",
        means="every rank that loads this extension (DeepSpeed's ops, load() and load_inline()) "
        "hangs until the lock is removed, without an error: 'wait (torch/utils/file_baton.py)' at "
        "the top of its stack",
        now="rm {path}   once no node builds there",
        commands=(Command("ls -la --time-style=full-iso {folder}; fuser -v {path}", "the node"),),
        status=WARN,
        explains=(),
    ),
    "init-unwritable": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="a folder that does not exist on this node, or belongs to another user",
        means="init_process_group hangs silently, beyond its timeout",
        text="create the folder, or use one that this user can write to",
        now="mkdir -p {folder}",
        commands=(Command("id; ls -ld {folder} {path}", "the node"),),
        explains=(),
    ),
    "init-locks": FindingType(
        headline="the file system of the init file {path} does not support locks",
        cause="NFS mounted with nolock, Lustre without -o flock",
        means="the FileStore of init_process_group fails with 'Function not implemented' or 'No "
        "locks available', or its ranks overwrite each other's entries",
        text="use init_method='env://' with MASTER_ADDR and MASTER_PORT; or mount with -o flock "
        "(Lustre) or with lockd running (NFS)",
        blame=Blame.NODE,
        explains=(),
    ),
    "init-not-shared": FindingType(
        headline="the init file {path} is on a file system of {at} alone",
        who="job author",
        cause="a local path such as /tmp/init, which is a different file on every node",
        means="'Wait timeout': the ranks of each node wait for those of the others",
        text="use a file on a file system that all nodes mount, or init_method='env://'",
        explains=(),
    ),
    "init-url": FindingType(
        headline="the init_method URL is wrong: {seen}",
        who="job author",
        cause="two slashes instead of three: file://name",
        means="'file:// rendezvous: path missing', or torch silently uses another path",
        text="write it with three slashes: init_method='file:///absolute/path'",
        status=(Status.FAIL, Status.WARN),
        explains=(),
    ),
}


# they read ~/.nccl.conf, host.limits where there is InfiniBand
IN_HOME = ("env.vars", "net.interface", "host.limits")
# a path that looks wrong may be meant so, and a server that is only slow may come back
LIKELY = ("stalled", "checkpoint-missing", "checkpoint-not-shared", "cache-unwritable")
# most jobs compile something; who does not will not notice
USED = {
    "cache-noexec": "the job uses neither torch.compile nor Triton kernels",
    "home-unwritable": "nothing in the job keeps files in HOME",
}
# accounts of services have none (Debian's policy manual, 9.2.3)
NO_HOME = "/nonexistent"

Fault = tuple[Found, ProbedPath]
"""What is wrong, and the path that it is about, of which the advice takes its fields."""


@dataclass(frozen=True, slots=True)
class SilentServer:
    """An NFS server that did not respond, with one place where it is mounted; `answers`: it does
    respond by now."""

    point: str
    logged: NfsSilence
    answers: bool = False


@dataclass(frozen=True, slots=True)
class NodeStorage:
    """TMPDIR is the first of `places`. short_sockets: Python itself leaves a TMPDIR that is too
    long for sockets. for_other: this is root's look at what a job of another user will write.
    inside: the kind of container that this is, or empty. gpus: there are GPUs, for which Triton
    compiles; triton_elsewhere: its cache is not below HOME. nfs_silent: the NFS servers that did
    not respond, as far as the kernel's log says, and that are mounted here. lustre_lost: the
    targets of mounted Lustre file systems to which there is no connection, as root can tell.
    build_locks: locks of extension builds, where this Python would build."""

    places: tuple[ProbedPath, ...]
    init: InitFileUrl | None
    short_sockets: bool
    for_other: bool
    inside: str = ""
    gpus: bool = False
    triton_elsewhere: bool = False
    nfs_silent: tuple[SilentServer, ...] = ()
    lustre_lost: tuple[LostTarget, ...] = ()
    build_locks: tuple[BuildLock, ...] = ()


def observe(host: Host, ctx: Context) -> NodeStorage:
    if not host.live:
        raise CannotObserve("places are written to on the live machine only")
    ctx.mark("touching the places")
    found = probe_paths(host, ctx.options, PATIENCE * ctx.seconds)
    states = {place.state for place in found} - {""}
    if states == {"R"}:
        raise CannotObserve("no CPU was left to touch the places: this machine is too busy")
    if states and ctx.seconds < SHORT:
        # a child that has just been forked waits for a moment, too: that accuses no disk
        raise CannotObserve(
            f"no answer in {ctx.seconds:g} s, which says nothing: give it more time"
        )
    init = init_file_url(host, str(ctx.options.get("init_file") or ""))
    job_uid = host.environ.get("SLURM_JOB_UID", "")
    # HOME is then root's own
    for_other = host.is_root() and job_uid not in ("", "0")
    silent = _nfs_silent(host, ctx, found)
    return NodeStorage(
        places=found,
        init=init and replace(init, path=escaped(init.path)),
        # there sockets go to /tmp when TMPDIR is too long (python/cpython#132124)
        short_sockets=sys.version_info >= (3, 13, 4),
        for_other=for_other,
        inside=container.kind(host),
        gpus=bool(host.gpu_files()),
        triton_elsewhere=any(host.environ.get(n) for n in ("TRITON_CACHE_DIR", "TRITON_HOME")),
        nfs_silent=silent,
        lustre_lost=_lustre_lost(host, ctx),
        build_locks=() if states or for_other else _build_locks(host, ctx),
    )


def _build_locks(host: Host, ctx: Context) -> tuple[BuildLock, ...]:
    ctx.mark("looking for locks of extension builds")
    try:
        return build_locks(host, LOCKS_SHARE * ctx.seconds)
    except (OSError, CannotObserve):
        return ()


def _nfs_silent(
    host: Host, ctx: Context, places: tuple[ProbedPath, ...]
) -> tuple[SilentServer, ...]:
    """The log is read only where something is mounted over NFS; a server from which nothing is
    mounted any more does not concern the job. The others are asked whether they respond now: where
    no process was left waiting for the answer, the kernel has not said OK."""
    try:
        mounted = {name: m.point for m in host.mounts() if (name := _server(m))}
    except CannotObserve:
        return ()
    ctx.mark(kernel_log.KMSG)
    logged = silent_nfs_servers(host, LOG_SECONDS) if mounted else ()
    silent = [one for one in logged if one.server in mounted][-SERVERS_ASKED:]
    hang = {_server(place.mount) for place in places if place.state}
    ask = [one.server for one in silent if one.server not in hang]
    ctx.mark("asking NFS servers")
    seconds = ctx.seconds * (1 - PATIENCE if hang else PATIENCE) / 2
    work = [functools.partial(_ask, host, mounted[server]) for server in ask]
    try:
        answers = zip(ask, probe_in_children(work, seconds), strict=True)
    except OSError:
        return ()
    # state R: no CPU was left to ask
    answer = {
        server: bool(said.facts.get("answers")) or said.state == "R" for server, said in answers
    }
    return tuple(
        SilentServer(escaped(mounted[one.server]), one, answer.get(one.server, False))
        for one in silent
    )


def _ask(host: Host, point: str) -> Iterator[tuple[str, Any]]:
    """NFS keeps nothing of statfs, so that each is a question to the server."""
    try:
        host.space(point)
        yield "answers", True
    except CannotObserve:
        yield "answers", False


def _server(mount: Mount | None) -> str:
    """The server of `filer:/home` or `[fd00::7]:/home`, as the kernel names it; empty: none."""
    server, colon, _ = (mount.source if mount else "").partition(":/")
    return server.removeprefix("[").removesuffix("]") if colon else ""


def _lustre_lost(host: Host, ctx: Context) -> tuple[LostTarget, ...]:
    """In a child, since reading a state may have to wait for a lock of the kernel's; what it has
    told by the end of its time counts."""
    try:
        mounted = {name for m in host.mounts() if (name := lustre.file_system(m))}
    except CannotObserve:
        return ()
    if not mounted:
        return ()
    ctx.mark("reading the states of Lustre's connections")

    def tell() -> Iterator[tuple[str, Any]]:
        for one in lustre.lost_targets(host, mounted, time.time()):
            yield one.name, encode(one)

    try:
        (said,) = probe_in_children([tell], LUSTRE_SHARE * ctx.seconds)
    except OSError:
        return ()
    return tuple(decode(LostTarget, one) for one in said.facts.values())


def judge(world: World[NodeStorage], expect: Expect) -> Iterator[Found]:
    several = world.topology.several_nodes

    def of_node(here: Subject, storage: NodeStorage) -> Iterator[Found]:
        for found, place in _faults(here, storage, expect, several):
            sure = Confidence.LIKELY if found.code in LIKELY else Confidence.CERTAIN
            more = {"explains": (*CHECK.explains, *IN_HOME)} if place.role is Role.HOME else {}
            if found.code in USED:
                more = {"alternatives": (USED[found.code],)}
                sure = Confidence.POSSIBLE
            yield found.with_(confidence=sure, fields=_fields(here, place), **more)
        yield from _not_responding(here, storage)
        yield from _disconnected(here, storage)
        yield from _left_over_locks(here, storage)

    yield from world.found(of_node)


def _fields(here: Subject, place: ProbedPath) -> dict[str, str]:
    """What the advice of all codes takes."""
    folder = os.path.dirname(place.path) if place.role is Role.INIT else place.path
    mount = place.mount
    return {
        "node": here.node,
        "path": place.path,
        "folder": folder,
        "mount": mount.point if mount else folder,
        "device": mount.source if mount else "the file system",
    }


def _faults(here: Subject, storage: NodeStorage, expect: Expect, several: bool) -> Iterator[Fault]:
    yield from _dead_mounts(here, storage)
    for place in storage.places:
        if place.state == "R" or _dead(place):
            continue
        yield from _space(here, place, expect)
        yield from _folder(here, place, storage, several)
        if place.role is Role.INIT:
            yield from _init_file(here, place, several)
    yield from _compiled(here, storage)
    init = storage.init
    if init is not None and (not init.path or init.netloc not in ("", "localhost")):
        saw = f"{init.source} {init.text!r}: torch uses {init.path or 'no path'!r}"
        status = WARN if init.path else None
        found = Found("init-url", (here,), saw, "file:///absolute/path", status=status)
        yield found, storage.places[0]
    for place in storage.places:
        socket = place.bytes + SOCKET_TAIL
        if place.role is not Role.TMPDIR or place.gone or storage.short_sockets:
            continue
        if socket > SOCKET_PATH:
            status = WARN if expect.number("loader_workers") == 0 else None
            saw = f"{place.source} makes the path of a socket {socket} bytes long"
            goal = f"at most {SOCKET_PATH} bytes"
            yield Found("tmpdir-too-long", (here,), saw, goal, status=status), place


def _compiled(here: Subject, storage: NodeStorage) -> Iterator[Fault]:
    """Where torch.compile and Triton load what they have compiled: in a cache that is named, else
    in TMPDIR; of Triton alone also in HOME."""
    caches = [p for p in storage.places if p.role is Role.CACHE]
    for place in caches or [p for p in storage.places if p.role is Role.TMPDIR]:
        mount = place.mount
        if mount is not None and "noexec" in mount.options.split(",") and not place.problem:
            name = place.source.removeprefix("env ") if caches else place.role
            on = f"{mount.fstype} on {escaped(mount.point)}"
            saw = f"{name} {place.tested} is mounted noexec ({on})"
            yield Found("cache-noexec", (here,), saw, "a folder without noexec"), place
    home = next((p for p in storage.places if p.role is Role.HOME), None)
    alone = storage.gpus and not storage.triton_elsewhere and not storage.for_other
    if home is not None and alone and home.errno in (*DENIED, "EROFS") and home.path != NO_HOME:
        saw = f"{home.tested if home.tested != home.path else 'HOME ' + home.path}: {home.problem}"
        yield Found("home-unwritable", (here,), saw, "a folder to write in"), home


def _describe(place: ProbedPath) -> str:
    tried = f" (not there; tried {place.tested})" if place.gone else ""
    kind = f", {place.mount.fstype} from {escaped(place.mount.source)}" if place.mount else ""
    return f"{place.role} {place.path}{tried}{kind}"


def _local(place: ProbedPath) -> bool:
    return place.mount is not None and place.mount.fstype in LOCAL


def _dead(place: ProbedPath) -> bool:
    """Whether the mount is at fault. A local disk that others keep busy is slow, not dead: its
    journal makes whoever creates a file wait too."""
    slow = _local(place) and place.doing in ("creating a file", "writing")
    return (bool(place.state) and place.state != "R" and not slow) or place.errno in BROKEN


def _dead_mounts(here: Subject, storage: NodeStorage) -> Iterator[Fault]:
    """One fault a mount, however many places lie on it."""
    dead: dict[tuple[bool, str], list[ProbedPath]] = {}
    logged = {one.logged.server: one.logged for one in storage.nfs_silent}
    for place in storage.places:
        if _dead(place):
            where = place.mount.point if place.mount else place.path
            dead.setdefault((bool(place.state), where), []).append(place)
    for (silent, _), same in dead.items():
        first = next((place for place in same if place.role is Role.HOME), same[0])
        saw = " · ".join(map(_describe, same)) + f": {first.problem}"
        if silent:
            saw += f"no answer in {duration(first.waited)} while {first.doing}"
            saw += f" (state {first.state}{' in ' * bool(first.wchan)}{first.wchan})"
        code = "stalled" if silent else "mount-broken"
        found = Found(code, (here,), saw, "an answer within milliseconds")
        one = logged.get(_server(first.mount))
        told = _said_by_kernel(one) if one else ()
        told += tuple(map(_lost_words, _of_mount(storage.lustre_lost, first.mount)[:LISTED]))
        yield found.with_(evidence=told), first


def _of_mount(lost: tuple[LostTarget, ...], mount: Mount | None) -> list[LostTarget]:
    name = lustre.file_system(mount)
    return [one for one in lost if one.name.rpartition("-")[0] == name]


def _said_by_kernel(one: NfsSilence) -> tuple[str, ...]:
    words = f"in the kernel's log: nfs: server {one.server} {_words(one)}"
    return (words, *([f"after it: {one.blocked}"] if one.blocked else []))


def _words(one: NfsSilence) -> str:
    """`not responding, still trying (3 times, last 2 min ago)`."""
    ages = {"still trying": one.trying, "timed out": one.gave_up}
    says, age = min(((s, a) for s, a in ages.items() if a is not None), key=lambda e: e[1])
    times = f"{one.count} times, last " if one.count > 1 else ""
    return f"not responding, {says} ({times}{duration(age)} ago)"


def _not_responding(here: Subject, storage: NodeStorage) -> Iterator[Found]:
    """Those of which a folder of the job hangs are told of already."""
    hang = {_server(place.mount) for place in storage.places if _dead(place)}
    silent = [
        one
        for one in storage.nfs_silent
        if not one.answers
        and one.logged.server not in hang
        and (
            (one.logged.trying is not None and one.logged.trying < LOG_RECENT)
            or (one.logged.gave_up is not None and one.logged.gave_up < GAVE_UP_RECENT)
        )
    ]
    if silent:
        said = [f"{s.logged.server} {_words(s.logged)}, mounted at {s.point}" for s in silent]
        yield Found(
            "nfs-not-responding",
            (here,),
            saw=parties(said, LISTED),
            expected="'nfs: server … OK' in the kernel's log since, or an answer now",
            confidence=Confidence.LIKELY,
            fields={"node": here.node, "mount": silent[0].point},
            evidence=tuple(line for s in silent[:LISTED] for line in _said_by_kernel(s.logged)[1:]),
        )


def _disconnected(here: Subject, storage: NodeStorage) -> Iterator[Found]:
    """Those of which a folder of the job hangs are told of already."""
    hang = {lustre.file_system(place.mount) for place in storage.places if _dead(place)}
    lost = [
        one
        for one in storage.lustre_lost
        if one.seconds >= LUSTRE_LOST and one.name.rpartition("-")[0] not in hang
    ]
    if lost:
        yield Found(
            "lustre-disconnected",
            (here,),
            saw=parties([_lost_words(one) for one in lost], LISTED),
            expected=f"states FULL or IDLE, or a connection again within {LUSTRE_LOST:g} s",
            confidence=Confidence.LIKELY,
            fields={"node": here.node},
        )


def _lost_words(one: LostTarget) -> str:
    """`scratch-OST0003 at 10.1.1.5@o2ib (state DISCONN, for 2 min)`."""
    at = f" at {one.server}" * bool(one.server)
    least = "at least " * one.at_least
    return f"{one.name}{at} (state {one.state}, for {least}{duration(one.seconds)})"


def _left_over_locks(here: Subject, storage: NodeStorage) -> Iterator[Found]:
    stale = [
        lock
        for lock in storage.build_locks
        if not lock.held
        and lock.idle is not None
        and min(lock.age, lock.idle) > (STALE if _seen_whole(lock, storage) else STALE_ELSEWHERE)
    ]
    if stale:
        first, *more = stale
        saw = f"{first.path} is {duration(first.age)} old, and nothing has changed beside it for "
        saw += duration(first.idle or 0.0)
        yield Found(
            "build-lock-stale",
            (here,),
            saw=saw + f" · also {parties([lock.path for lock in more], LISTED)}" * bool(more),
            expected="no lock, or one that a process has open",
            confidence=Confidence.POSSIBLE,
            alternatives=("the job does not load this extension",),
            fields={"path": first.path, "folder": os.path.dirname(first.path)},
        )


def _seen_whole(lock: BuildLock, storage: NodeStorage) -> bool:
    """Whether a builder would have been seen: it is on this node, and in no other container."""
    local = lock.mount is not None and lock.mount.fstype in LOCAL
    return local and lock.held is False and not storage.inside


def _space(here: Subject, place: ProbedPath, expect: Expect) -> Iterator[Fault]:
    space, wanted, source, saw = place.space, SPACE_LEFT, "", ""
    status = WARN if place.role in (Role.WORK, Role.CACHE) else None
    floor = expect.number("free_gib")
    if floor is not None and place.role in (Role.TMPDIR, Role.CHECKPOINT):
        wanted, source = int(floor * GIB), expect.source("free_gib")
    if place.errno in FULL:
        saw = place.problem
    elif space is None or place.problem:
        return  # a read-only image is full by nature
    elif space.size > 0 and space.free < wanted:  # a size of 0: the file system does not tell
        saw = f"{size(space.free)} free of {size(space.size)}"
        # a small file system that is hardly used was made so on purpose
        if not source and space.free > space.size // 2:
            status = WARN
    elif space.inodes > 0 and space.inodes_free < INODES_LEFT:
        saw = f"{space.inodes_free} inodes free of {space.inodes}"
    if saw:
        # what fills a disk are files of jobs, which drain no node unless somebody said so
        local = _local(place) and place.errno != "EDQUOT"
        blame = Blame.NODE if local and floor is not None else Blame.JOB
        goal = f"at least {size(wanted)} and {INODES_LEFT} inodes {source}".strip()
        saw = f"{_describe(place)}: {saw}"
        yield Found("full", (here,), saw, goal, status=status, blame=blame), place


def _folder(
    here: Subject, place: ProbedPath, storage: NodeStorage, several: bool
) -> Iterator[Fault]:
    named, absolute = _describe(place), "a folder that exists on every node"
    checkpoint = place.role is Role.CHECKPOINT
    # NFS turns root into nobody: that says nothing about the job's user
    squashed = storage.for_other and not _local(place) and place.errno in DENIED
    if place.problem:
        if place.role in (Role.TMPDIR, Role.CHECKPOINT) and place.errno not in FULL:
            saw, goal = f"{named}: {place.problem}", "a folder to write in"
            found = Found("image-read-only", (here,), saw, goal)
            if not (storage.inside and place.errno == "EROFS" and place.role is Role.TMPDIR):
                blame = Blame.NODE if place.source == "default" else Blame.JOB
                found = Found("unwritable", (here,), saw, goal, blame=blame)
            if place.role is Role.TMPDIR and (instead := _working_directory(storage)):
                saw += f" · Python's tempfile takes {instead} instead"
                found = found.with_(saw=saw, status=Status.WARN)
            if not squashed:
                yield found, place
        elif place.role is Role.WORK and place.errno == "ENOENT":
            saw = f"{place.role} {place.path}: {place.problem}"
            yield Found("workdir-gone", (here,), saw, "a folder that exists"), place
        elif place.role is Role.CACHE and place.errno in (*DENIED, "EROFS") and not squashed:
            saw = f"{place.source.removeprefix('env ')} {place.path}: {place.problem}"
            yield Found("cache-unwritable", (here,), saw, "a folder to write in"), place
    elif place.role is Role.HOME:
        # a container has what its image has, and some daemon may make it when the user comes
        known = storage.inside or storage.for_other or place.path == NO_HOME
        if place.gone and not known:
            yield Found("home-missing", (here,), f"HOME={place.path!r} does not exist"), place
    elif place.role is Role.TMPDIR and place.gone:
        saw = f"{place.source}={place.path!r} does not exist"
        yield Found("tmpdir-missing", (here,), saw, absolute), place
    elif checkpoint and place.gone > 1:  # the last level alone most scripts make themselves
        saw = f"of {place.path} only {place.tested} exists"
        yield Found("checkpoint-missing", (here,), saw, absolute), place
    elif checkpoint and several and _local(place):
        goal = "a file system that all nodes mount"
        yield Found("checkpoint-not-shared", (here,), named, goal), place
    sync = place.waited if place.state else place.sync_s or 0.0
    if sync > SYNC_SLOW:
        saw = f"{named}: 64 KiB took {'over ' * bool(place.state)}{duration(sync)}"
        blame = Blame.NODE if _local(place) else Blame.UNKNOWN
        yield Found("fsync-slow", (here,), saw, f"under {duration(SYNC_SLOW)}", blame=blame), place


def _working_directory(storage: NodeStorage) -> str:
    """The working directory, if it can be written to: the last place where Python's tempfile tries
    (TMPDIR, TEMP, TMP, /tmp, /var/tmp, /usr/tmp), and so does torchrun."""
    places = (p for p in storage.places if p.role is Role.WORK and not p.problem and not p.state)
    return next((place.path for place in places), "")


def _init_file(here: Subject, place: ProbedPath, several: bool) -> Iterator[Fault]:
    found = []
    if place.leftover is not None and place.leftover.size:
        old = place.leftover
        saw = f"{size(old.size)}, written {old.written} by uid {old.uid}"
        found.append(("init-leftover", saw, "no such file before the job starts"))
    if place.problem and place.errno not in FULL:
        found.append(("init-unwritable", place.problem, "a folder that exists and is writable"))
    if several and _local(place):
        saw = "a local file system of this node"
        found.append(("init-not-shared", saw, "one that all nodes mount"))
    if place.locks:
        found.append(("init-locks", place.locks, "locks that are granted at once"))
    for code, saw, goal in found:
        yield Found(code, (here,), f"{_describe(place)}: {saw}", goal), place


def measured(world: World[NodeStorage]) -> Measured:
    """The least space and the slowest fsync of each role."""
    least: dict[str, int] = {}
    slowest: dict[str, float] = {}
    for storage in world.seen.values():
        for place in storage.places:
            if place.space is not None and place.space.size:
                least[place.role] = min(least.get(place.role, 1 << 62), place.space.free)
            if place.sync_s is not None:
                slowest[place.role] = max(slowest.get(place.role, 0.0), place.sync_s)
    parts = [f"{role} {size(free)} free" for role, free in least.items()]
    if slowest:
        parts.append(f"fsync {duration(max(slowest.values()))}")
    return Measured(" · ".join(parts), {"free_bytes": least, "fsync_s": slowest})
