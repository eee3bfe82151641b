"""host.storage: places that don't answer, can't be written, are full or lie wrongly are named."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import host_storage
from preflight.checks.host_storage import SilentServer
from preflight.domains.kernel_log import NfsSilence
from preflight.domains.system.build_locks import BuildLock
from preflight.domains.system.directories import InitFileUrl, Leftover, ProbedPath, Role
from preflight.domains.system.lustre import LostTarget
from preflight.host import Host, Mount, Space
from preflight.humanize import GIB, MIB
from preflight.model import Blame, CannotObserve, Cause, Confidence, Missing, Status

conforms(host_storage)

DISK = Mount("/", "ext4", "/dev/vda", "rw")
NFS = Mount("/home", "nfs4", "filer:/home", "rw")
ROOM = Space(100 * GIB, 50 * GIB, 10**6, 2 * 10**6)
TMP = ProbedPath(
    Role.TMPDIR, "/tmp", 4, "default", "/tmp", mount=DISK, waited=3.0, space=ROOM, sync_s=0.002
)
CKPT = dataclasses.replace(
    TMP, role=Role.CHECKPOINT, path="/home/me/ck", tested="/home/me/ck", mount=NFS, source="flag"
)
INIT = dataclasses.replace(
    CKPT, role=Role.INIT, path="/home/me/init", tested="/home/me", locks="", source="env DIST_URL"
)
WORK = dataclasses.replace(TMP, role=Role.WORK, path="/work", tested="/work", source="cwd")
HOME = dataclasses.replace(WORK, role=Role.HOME, path="/home/me", tested="/home/me", mount=NFS)
CACHE = dataclasses.replace(
    WORK, role=Role.CACHE, path="/opt/cache", tested="/opt", source="env TRITON_CACHE_DIR"
)
TWO_NODES = topology(4, size=8)
LOCK = BuildLock(
    "/home/me/.cache/torch_extensions/py312_cu128/fused_adam/lock", 7300.0, 7200.0, False, DISK
)


def but(place: ProbedPath, **changes: object) -> host_storage.NodeStorage:
    """Storage that is sound but for this place."""
    changed = dataclasses.replace(place, **changes)
    places = tuple(p for p in (TMP, CKPT, INIT, WORK, HOME) if p.role is not place.role)
    return host_storage.NodeStorage((changed, *places), None, False, False)


def locked(inside: str = "", **changes: object) -> host_storage.NodeStorage:
    lock = dataclasses.replace(LOCK, **changes)
    return dataclasses.replace(but(TMP), build_locks=(lock,), inside=inside)


def inside(place: ProbedPath, **changes: object) -> host_storage.NodeStorage:
    return dataclasses.replace(but(place, **changes), inside="docker")


def gpus(place: ProbedPath, **changes: object) -> host_storage.NodeStorage:
    return dataclasses.replace(but(place, **changes), gpus=True)


def elsewhere(place: ProbedPath, **changes: object) -> host_storage.NodeStorage:
    return dataclasses.replace(gpus(place, **changes), triton_elsewhere=True)


def both(storage: host_storage.NodeStorage, place: ProbedPath) -> host_storage.NodeStorage:
    return dataclasses.replace(storage, places=(*storage.places, place))


FINE = but(TMP)
FILER = NfsSilence(
    "filer", 2, trying=120.0, blocked="INFO: task python:7 blocked for more than 120"
)
DATA = dataclasses.replace(FILER, server="data-1", count=1)


def silence(
    *servers: NfsSilence,
    storage: host_storage.NodeStorage = FINE,
    answers: bool = False,
    **changes: object,
) -> host_storage.NodeStorage:
    """What the kernel's log says of NFS servers, each of which is mounted at /mnt/NAME."""
    said = (dataclasses.replace(one, **changes) for one in servers)  # type: ignore[arg-type]
    silent = tuple(SilentServer(f"/mnt/{one.server}", one, answers) for one in said)
    return dataclasses.replace(storage, nfs_silent=silent)


SCRATCH = Mount("/scratch", "lustre", "10.1.1.4@o2ib:/scratch", "rw")
OST = LostTarget("scratch-OST0003", "DISCONN", "10.1.1.5@o2ib", 120.0)


def without(
    *targets: LostTarget, storage: host_storage.NodeStorage = FINE, **changes: object
) -> host_storage.NodeStorage:
    """No connection to these targets of Lustre."""
    lost = tuple(dataclasses.replace(one, **changes) for one in targets)  # type: ignore[arg-type]
    return dataclasses.replace(storage, lustre_lost=lost)


NOEXEC = Mount("/tmp", "tmpfs", "tmpfs", "rw,nosuid,nodev,noexec,relatime")
HANGS = {"state": "D", "wchan": "rpc_wait_bit_killable", "doing": "looking it up", "space": None}
READ_ONLY = {"problem": "Read-only file system", "errno": "EROFS", "sync_s": None}
DENIED = {"problem": "Permission denied", "errno": "EACCES", "sync_s": None}
NO_SPACE = {"problem": "No space left on device", "errno": "ENOSPC", "sync_s": None}
QUOTA = {"problem": "Disk quota exceeded", "errno": "EDQUOT", "sync_s": None}
STALE = {"problem": "Stale file handle", "errno": "ESTALE", "sync_s": None, "space": None}
NOWHERE = {"problem": "No such file or directory", "errno": "ENOENT", "sync_s": None}


def nowhere() -> host_storage.NodeStorage:
    """Neither TMPDIR nor the working directory can be written to."""
    storage = but(TMP, **READ_ONLY)
    changed = (
        dataclasses.replace(p, **READ_ONLY) if p.role is Role.WORK else p  # type: ignore[arg-type]
        for p in storage.places
    )
    return dataclasses.replace(storage, places=tuple(changed))


def room(free: int, total: int = 100 * GIB, inodes: int = 10**6) -> dict[str, Space]:
    return {"space": Space(total, free, inodes, 2 * 10**6)}


def address(text: str, netloc: str, path: str) -> host_storage.NodeStorage:
    return dataclasses.replace(FINE, init=InitFileUrl(text, "env DIST_URL", netloc, path))


CASES = (
    Case(
        "a lock that a killed build left", locked(), "build-lock-stale", Status.WARN, subject="n1"
    ),
    Case("a lock that was left 11 minutes ago", locked(age=700.0, idle=660.0), "build-lock-stale"),
    Case(
        "a lock that was left over NFS, and not all processes were seen",
        locked(mount=NFS, held=None),
        "build-lock-stale",
        Status.WARN,
    ),
    Case("a build that runs", locked(held=True)),
    Case("a build that runs on another node", locked(mount=NFS, age=5000.0, idle=3000.0)),
    Case("it may run in another container", locked("docker", age=3000.0, idle=3000.0)),
    Case("a lock of which the mount is not known", locked(mount=None, age=3000.0, idle=3000.0)),
    Case("another user's processes may build", locked(held=None, age=3000.0, idle=3000.0)),
    Case("a lock of a minute", locked(age=60.0, idle=60.0)),
    Case("an old lock, and the build writes", locked(idle=30.0)),
    Case("a lock in a folder with too much in it", locked(idle=None)),
    Case("sound", FINE),
    Case("sound, of two nodes", FINE, topology=TWO_NODES),
    Case("a read-only image as working directory", but(WORK, **READ_ONLY, **room(0, 4 * GIB))),
    Case("a foreign working directory", but(WORK, **DENIED)),
    Case("a cache that is there", but(CACHE)),
    Case("a cache that is yet to be made", but(CACHE, gone=2)),
    Case("a read-only cache", but(CACHE, **READ_ONLY), "cache-unwritable", Status.WARN),
    Case("a foreign cache", but(CACHE, **DENIED), "cache-unwritable", Status.WARN),
    Case("a full disk of the cache", but(CACHE, **NO_SPACE), "full", Status.WARN),
    Case("no HOME", but(HOME, gone=1), "home-missing", Status.WARN),
    Case("no HOME, in a container", inside(HOME, gone=1)),
    Case("an account that has none", but(HOME, path="/nonexistent", gone=1)),
    Case("a file system that tells no size", but(TMP, space=Space(0, 0, 0, 0))),
    Case("a file system without inodes", but(TMP, space=Space(GIB, GIB, 0, 0))),
    Case("nobody looked", Missing(Cause.TIMED_OUT)),
    Case("TMPDIR hangs", but(TMP, **HANGS), "stalled", Status.FAIL, subject="n1"),
    Case("working directory hangs", but(WORK, **HANGS), "stalled", Status.FAIL),
    Case("a server that never ends fsync", but(CKPT, state="D", doing="writing"), "stalled"),
    Case("a disk that never ends fsync", but(TMP, state="D", doing="writing"), "fsync-slow"),
    Case("no CPU to touch it", but(TMP, state="R", doing="starting")),
    Case("HOME hangs", but(HOME, **HANGS), "stalled", Status.FAIL),
    Case("HOME of a dead server", but(HOME, **STALE), "mount-broken", Status.FAIL),
    Case("a HOME of somebody else", but(HOME, **DENIED)),
    Case("a read-only HOME, and no GPU", but(HOME, **READ_ONLY)),
    Case("a read-only HOME", gpus(HOME, **READ_ONLY), "home-unwritable", Status.WARN),
    Case("HOME is / in a container", gpus(HOME, path="/", **DENIED), "home-unwritable"),
    Case("a read-only HOME, and TRITON_CACHE_DIR", elsewhere(HOME, **READ_ONLY)),
    Case("a service's account", gpus(HOME, path="/nonexistent", **DENIED)),
    Case("TMPDIR is noexec", but(TMP, mount=NOEXEC), "cache-noexec", Status.WARN),
    Case("TMPDIR is noexec, the cache is not", both(but(TMP, mount=NOEXEC), CACHE)),
    Case("the cache is noexec", but(CACHE, mount=NOEXEC), "cache-noexec", Status.WARN),
    Case("a working directory that is noexec", but(WORK, mount=NOEXEC)),
    Case("a checkpoint directory that is noexec", but(CKPT, mount=NOEXEC)),
    Case("nosuid and nodev alone", but(TMP, mount=Mount("/tmp", "tmpfs", "t", "rw,nosuid,nodev"))),
    Case("HOME is not there", but(HOME, **NOWHERE)),
    Case("stale", but(WORK, **STALE), "mount-broken", Status.FAIL),
    Case("no working directory", but(WORK, **NOWHERE), "workdir-gone", Status.FAIL),
    Case("TMPDIR denied", but(TMP, **DENIED), "unwritable", Status.WARN),
    Case("TMPDIR read-only", but(TMP, **READ_ONLY, **room(0)), "unwritable", Status.WARN),
    Case("no folder for tempfile", nowhere(), "unwritable", Status.FAIL),
    Case(
        "a read-only image without a /tmp",
        dataclasses.replace(nowhere(), inside="kubernetes"),
        "image-read-only",
        Status.FAIL,
    ),
    Case(
        "a read-only /tmp of an image, with a working directory to write in",
        dataclasses.replace(but(TMP, **READ_ONLY), inside="kubernetes"),
        "image-read-only",
        Status.WARN,
    ),
    Case("checkpoints denied", but(CKPT, **DENIED), "unwritable", Status.FAIL),
    Case(
        "root on NFS is nobody, the job's user is not",
        dataclasses.replace(but(CKPT, **DENIED), for_other=True),
    ),
    Case("full", but(TMP, **room(10 * MIB)), "full", Status.FAIL),
    Case("no space at all", but(CKPT, **NO_SPACE, **room(0)), "full", Status.FAIL),
    Case("quota", but(CKPT, **QUOTA), "full", Status.FAIL),
    Case("no inodes", but(TMP, **room(GIB, inodes=0)), "full", Status.FAIL),
    Case("full working directory", but(WORK, **room(MIB)), "full", Status.WARN),
    Case("a small tmpfs", but(TMP, **room(63 * MIB, 64 * MIB)), "full", Status.WARN),
    Case("floor met", FINE, expect={"free_gib": 50}),
    Case("floor", FINE, "full", Status.FAIL, {"free_gib": 51}),
    Case("slow", but(CKPT, sync_s=2.5), "fsync-slow", Status.WARN),
    Case("not slow", but(CKPT, sync_s=1.9)),
    Case("no TMPDIR", but(TMP, path="/x", gone=1, source="env TMPDIR"), "tmpdir-missing"),
    Case("no TMPDIR nor /tmp", but(TMP, path="/x", gone=2, **NOWHERE), "unwritable", Status.WARN),
    Case("75 bytes of TMPDIR", but(TMP, bytes=75)),
    Case("76 bytes of TMPDIR", but(TMP, bytes=76), "tmpdir-too-long", Status.FAIL),
    Case(
        "without workers", but(TMP, bytes=76), "tmpdir-too-long", Status.WARN, {"loader_workers": 0}
    ),
    Case("a Python that copes", dataclasses.replace(but(TMP, bytes=99), short_sockets=True)),
    Case("scripts make the last level", but(CKPT, gone=1, tested="/home/me")),
    Case("a typing error", but(CKPT, gone=3, tested="/"), "checkpoint-missing", Status.WARN),
    Case("own disk", but(CKPT, mount=DISK)),
    Case(
        "own disk of two nodes",
        but(CKPT, mount=DISK),
        "checkpoint-not-shared",
        Status.WARN,
        topology=TWO_NODES,
    ),
    Case("empty init file", but(INIT, leftover=Leftover(0, 0, "now"))),
    Case("leftover", but(INIT, leftover=Leftover(9, 7, "now")), "init-leftover", Status.FAIL),
    Case("no folder", but(INIT, **NOWHERE), "init-unwritable", Status.FAIL),
    Case("no locks", but(INIT, locks="flock: Function not implemented"), "init-locks", Status.FAIL),
    Case("init file in /tmp", but(INIT, mount=DISK)),
    Case(
        "init file in /tmp of two nodes",
        but(INIT, mount=DISK),
        "init-not-shared",
        Status.FAIL,
        topology=TWO_NODES,
    ),
    Case(
        "a server that does not respond",
        silence(DATA),
        "nfs-not-responding",
        Status.WARN,
        subject="n1",
    ),
    Case(
        "and some of its requests have given up", silence(DATA, gave_up=1e4), "nfs-not-responding"
    ),
    Case(
        "a server on which requests have given up a moment ago",
        silence(DATA, trying=None, gave_up=60.0),
        "nfs-not-responding",
        Status.WARN,
    ),
    Case("and an hour ago, of which nothing says the end", silence(DATA, trying=None, gave_up=3e3)),
    Case("a server that did not respond yesterday", silence(DATA, trying=9e4)),
    Case("a server that responds by now", silence(DATA, answers=True)),
    Case("a dead mount is told of once", silence(FILER, storage=but(CKPT, **HANGS)), "stalled"),
    Case(
        "a Lustre server that is lost",
        without(OST),
        "lustre-disconnected",
        Status.WARN,
        subject="n1",
    ),
    Case("one that has evicted this node", without(OST, state="EVICTED"), "lustre-disconnected"),
    Case("a Lustre server that fails over", without(OST, seconds=29.0)),
    Case(
        "a hanging folder on a Lustre that has lost a server is told of once",
        without(OST, storage=but(CKPT, mount=SCRATCH, **HANGS)),
        "stalled",
    ),
    Case("three slashes", address("file:///shared/init", "", "/shared/init")),
    Case("localhost", address("file://localhost/init", "localhost", "/init")),
    Case("one name", address("file://init", "init", ""), "init-url", Status.FAIL),
    Case("two slashes", address("file://sh/init", "sh", "/init"), "init-url", Status.WARN),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(host_storage, case)


def test_the_read_only_tmp_of_an_image_is_not_its_nodes_fault() -> None:
    storage = dataclasses.replace(but(TMP, **READ_ONLY), inside="container")
    (finding,) = judged(host_storage, Case("", storage))
    assert (finding.code, finding.blame) == ("image-read-only", Blame.JOB)
    (finding,) = judged(host_storage, Case("", but(TMP, **READ_ONLY)))
    assert (finding.code, finding.blame) == ("unwritable", Blame.NODE)


def test_servers_that_do_not_respond_are_named() -> None:
    other = NfsSilence("fd00::7", 1, gave_up=5.0)
    (finding,) = judged(host_storage, Case("", silence(DATA, other)))
    assert finding.saw == (
        "data-1 not responding, still trying (2 min ago), mounted at /mnt/data-1, "
        "fd00::7 not responding, timed out (5.0 s ago), mounted at /mnt/fd00::7"
    )
    assert finding.evidence == (f"after it: {DATA.blocked}",)
    round_trips(silence(DATA, other))
    assert (finding.blame, finding.fields["mount"]) == (Blame.UNKNOWN, "/mnt/data-1")
    (dead,) = judged(host_storage, Case("", silence(FILER, storage=but(CKPT, **HANGS))))
    assert dead.evidence == (
        "in the kernel's log: nfs: server filer not responding, still trying "
        "(2 times, last 2 min ago)",
        f"after it: {FILER.blocked}",
    )


def test_lost_lustre_servers_are_named() -> None:
    more = LostTarget("scratch-MDT0000", "CONNECTING", "", 400.0, at_least=True)
    (finding,) = judged(host_storage, Case("", without(OST, more)))
    assert finding.saw == (
        "scratch-OST0003 at 10.1.1.5@o2ib (state DISCONN, for 2 min), "
        "scratch-MDT0000 (state CONNECTING, for at least 6 min 40 s)"
    )
    assert (finding.blame, finding.fields["node"]) == (Blame.UNKNOWN, "n1")
    round_trips(without(OST, more))
    other = dataclasses.replace(OST, name="home-OST0000")
    hangs = but(CKPT, mount=SCRATCH, **HANGS)
    stalled, lost = judged(host_storage, Case("", without(OST, other, storage=hangs)))
    assert stalled.evidence == ("scratch-OST0003 at 10.1.1.5@o2ib (state DISCONN, for 2 min)",)
    assert (lost.code, lost.saw[:12]) == ("lustre-disconnected", "home-OST0000")


@pytest.mark.parametrize(
    ("source", "server"),
    [
        ("filer:/home", "filer"),
        ("10.0.0.9:/", "10.0.0.9"),
        ("[fd00::7]:/home", "fd00::7"),
        ("/dev/vda", ""),
        ("tmpfs", ""),
        ("host:share", ""),
    ],
)
def test_the_server_of_a_mount(source: str, server: str) -> None:
    assert host_storage._server(Mount("/x", "nfs4", source, "rw")) == server
    assert host_storage._server(None) == ""


def test_only_servers_from_which_something_is_mounted(tmp_path: Path) -> None:
    for folder in ("dev", "proc/self", "c"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/uptime").write_text("9000.00 1\n")
    lines = (
        f"5,{n},{8900 + n}000000,-;nfs: server {name} not responding, still trying\n"
        for n, name in enumerate(("filer", "gone", "fd00::7"))
    )
    (tmp_path / "dev/kmsg").write_text("".join(lines))
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.write_text(
        "36 35 0:50 / /a\\040b rw - nfs4 filer:/home rw\n37 35 0:51 / /c rw - nfs [fd00::7]:/c rw\n"
    )
    (tmp_path / "c.statvfs").write_text("9 9 9 9")
    host = Host(str(tmp_path), {})
    silent = host_storage._nfs_silent(host, context(), ())
    assert [(one.point, one.logged.trying, one.answers) for one in silent] == [
        ("/a b", 100.0, False),
        ("/c", 98.0, True),
    ]
    (tmp_path / "dev/kmsg").unlink()
    assert host_storage._nfs_silent(host, context(), ()) == ()
    mounts.unlink()
    assert host_storage._nfs_silent(host, context(), ()) == ()


def test_the_left_over_lock_is_named() -> None:
    many = tuple(dataclasses.replace(LOCK, path=f"/e/{n}/lock", age=90000.0) for n in range(4))
    seen = dataclasses.replace(but(TMP), build_locks=(LOCK, *many))
    (finding,) = judged(host_storage, Case("", seen))
    assert finding.saw == (
        f"{LOCK.path} is 2 h old, and nothing has changed beside it for 2 h "
        "· also /e/0/lock, /e/1/lock, /e/2/lock and 1 more"
    )
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.alternatives
    advice = host_storage.FINDINGS[finding.code].filled(finding.fields)
    assert advice.now == f"rm {LOCK.path}   once no node builds there"


def test_no_lock_is_looked_for_where_a_place_hangs_or_for_another_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked(*_: object) -> tuple[BuildLock, ...]:
        return (LOCK,)

    monkeypatch.setattr(host_storage, "build_locks", looked)
    place = dataclasses.replace(TMP, state="D")
    for found, locks in (((TMP,), (LOCK,)), ((TMP, place), ())):
        monkeypatch.setattr(host_storage, "probe_paths", lambda *_, found=found: found)
        seen = host_storage.observe(Host("/", {}), context(seconds=4.0))
        assert seen.build_locks == locks
    monkeypatch.setattr(host_storage, "probe_paths", lambda *_: (TMP,))
    monkeypatch.setattr(Host, "is_root", lambda _: True)
    seen = host_storage.observe(Host("/", {"SLURM_JOB_UID": "1000"}), context(seconds=4.0))
    assert seen.build_locks == ()


def test_places_on_one_dead_mount_are_one_finding() -> None:
    work = dataclasses.replace(WORK, path="/home/me", mount=NFS, **HANGS)
    storage = but(CKPT, **HANGS)
    places = tuple(work if p.role is Role.WORK else p for p in storage.places)
    (finding,) = judged(host_storage, Case("", dataclasses.replace(storage, places=places)))
    assert finding.saw == (
        "checkpoint directory /home/me/ck, nfs4 from filer:/home · working directory /home/me, "
        "nfs4 from filer:/home: no answer in 3.0 s while looking it up "
        "(state D in rpc_wait_bit_killable)"
    )
    assert (finding.blame, finding.confidence) == (Blame.NODE, Confidence.LIKELY)
    assert finding.fields["mount"] == "/home"


@pytest.mark.parametrize(
    "changes", [room(10 * MIB), room(GIB, inodes=0), {**NO_SPACE, **room(0)}], ids=str
)
def test_what_jobs_fill_drains_no_node(changes: dict[str, object]) -> None:
    """Unless somebody expects a floor of the node."""
    for expect, blame in (({}, Blame.JOB), ({"free_gib": 1}, Blame.NODE)):
        (finding,) = judged(host_storage, Case("", but(TMP, **changes), expect=expect))
        assert (finding.code, finding.status, finding.blame) == ("full", Status.FAIL, blame)


def test_a_hostile_path_stays_an_argument() -> None:
    (finding,) = judged(host_storage, Case("", but(TMP, path="/a; rm -rf ~", **DENIED)))
    assert finding.fields["path"] == "/a; rm -rf ~"
    advice = host_storage.FINDINGS[finding.code].filled(finding.fields)
    assert advice.commands[0].run == "id; ls -ld '/a; rm -rf ~'"


def test_measured_takes_the_least_and_the_slowest() -> None:
    poor = but(TMP, space=Space(GIB, GIB, 1, 1), sync_s=0.5)
    measured = host_storage.measured(world("host.storage", {"n1": FINE, "n2": poor}))
    assert measured.values["free_bytes"]["TMPDIR"] == GIB
    assert measured.text.startswith("TMPDIR 1 GiB free · ")
    assert measured.text.endswith(" · fsync 500 ms")
    assert host_storage.measured(world("host.storage", {})).text == ""


def observed(
    environ: dict[str, str], root: str = "/", seconds: float = 4.0, **options: object
) -> dict[Role, ProbedPath]:
    host = Host(root, environ)
    seen = host_storage.observe(host, context(seconds=seconds, options=options))
    round_trips(seen)
    return {place.role: place for place in seen.places}


def codes(environ: dict[str, str], root: str = "/", **options: object) -> set[str]:
    seen = host_storage.observe(Host(root, environ), context(seconds=4.0, options=options))
    return {finding.code for finding in judged(host_storage, Case("", seen))}


def test_this_machine_is_sound_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "init").touch()
    places = observed(
        {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        checkpoint_dir=str(tmp_path),
        init_file=str(tmp_path / "init"),
    )
    assert set(places) == set(Role) - {Role.CACHE}
    for place in places.values():
        assert (place.state, place.problem) == ("", "")
        assert place.mount is not None
        assert (place.sync_s is None) == (place.role is Role.HOME)
    assert places[Role.INIT].locks == ""
    assert os.listdir(tmp_path) == ["init"]
    assert codes({}) == set()


def test_a_place_that_does_not_exist_is_followed_to_one_that_does(tmp_path: Path) -> None:
    places = observed({"TMPDIR": "/no/such"}, checkpoint_dir=str(tmp_path / "a/b"))
    assert (places[Role.TMPDIR].tested, places[Role.TMPDIR].gone) == ("/tmp", 1)
    assert (places[Role.CHECKPOINT].tested, places[Role.CHECKPOINT].gone) == (str(tmp_path), 2)
    missing = {"TMPDIR": "/no/such"}
    assert codes(missing, checkpoint_dir=str(tmp_path / "a/b")) == {
        "tmpdir-missing",
        "checkpoint-missing",
    }
    assert not list(tmp_path.iterdir())


def test_a_cache_is_tried_where_it_would_be_made(tmp_path: Path) -> None:
    place = observed({"TRITON_CACHE_DIR": str(tmp_path / "a/b")})[Role.CACHE]
    assert (place.tested, place.gone, place.problem) == (str(tmp_path), 2, "")
    assert codes({"TORCHINDUCTOR_CACHE_DIR": "/sys/kernel/x"}) == {"cache-unwritable"}
    assert codes({"HOME": str(tmp_path / "gone")}) <= {"home-missing"}  # not in a container
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_places_where_nobody_can_write() -> None:
    file = str(Path(__file__))
    assert codes({"TMPDIR": "/sys/kernel"}) == {"unwritable"}  # not even root
    assert codes({}, checkpoint_dir=file) == {"unwritable"}
    assert codes({}, init_file="/no/such/init") == {"init-unwritable"}
    assert codes({}, init_file="/tmp") == {"init-unwritable"}


@pytest.mark.slow
def test_init_file_of_an_old_run(tmp_path: Path) -> None:
    (tmp_path / "init").write_text("old")
    os.utime(tmp_path / "init", (0, 0))
    url = f"file://{tmp_path}/init?rank=0&world_size=4"
    for place in (
        observed({"DIST_URL": url})[Role.INIT],
        observed({}, init_file=url)[Role.INIT],
        observed({}, init_file=f"{tmp_path}/init")[Role.INIT],
    ):
        assert place.leftover == Leftover(3, os.getuid(), "1970-01-01 00:00:00 UTC")
        assert place.path == f"{tmp_path}/init"
    assert codes({"INIT_METHOD": "tcp://10.0.0.1:29500", "DIST_URL": url}) == {"init-leftover"}
    assert codes({"INIT_METHOD": "env://"}) == set()
    assert codes({"INIT_METHOD": "file://init"}) == {"init-url"}
    assert codes({"INIT_METHOD": "file://[x"}) == {"init-url"}


def test_links_are_not_followed_and_not_left(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "loop").symlink_to("loop")
    places = observed({"TMPDIR": f"{tmp_path}/link"}, checkpoint_dir=f"{tmp_path}/loop")
    assert places[Role.TMPDIR].problem == ""
    assert places[Role.CHECKPOINT].errno == "ELOOP"
    assert not list((tmp_path / "victim").iterdir())


def test_the_limit_of_a_socket_path_is_the_kernels(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * (75 - len(str(tmp_path)) - 1))
    for name, fits in ((folder, True), (folder.with_name(folder.name + "x"), False)):
        name.mkdir()
        path = name / "pymp-xxxxxxxx/listener-xxxxxxxx"
        path.parent.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            if fits:
                listener.bind(str(path))
            else:
                with pytest.raises(OSError, match="AF_UNIX path too long"):
                    listener.bind(str(path))
        place = observed({"TMPDIR": str(name)})[Role.TMPDIR]
        assert (place.bytes + host_storage.SOCKET_TAIL <= host_storage.SOCKET_PATH) is fits


@pytest.mark.slow
def test_hostile_paths(tmp_path: Path) -> None:
    long = "/" + "a/" * (1 << 19)
    odd = {"TMPDIR": "/tmp/\udcff\n", "TEMP": long, "INIT_METHOD": "file://" + long}
    seen = observed(odd, checkpoint_dir=long, init_file=7)
    assert seen[Role.TMPDIR].path == "/tmp/\\udcff\\n"
    assert seen[Role.CHECKPOINT].errno == "ENAMETOOLONG"
    assert len(json.dumps([p.path for p in seen.values()])) < 3000
    assert "unwritable" in codes(odd, checkpoint_dir=long)
    observed({"TMPDIR": "relative"}, checkpoint_dir="a\0b", init_file=["x"])


def test_a_copied_tree_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    with pytest.raises(CannotObserve):
        observed({}, str(tmp_path))
    assert list((tmp_path / "tmp").iterdir()) == []


# A mount namespace of its own with a FUSE file system whose daemon never answers: what a dead
# server looks like to those who touch it.
DEAD_MOUNT = """
import ctypes, json, os, sys
from preflight.check import Context
from preflight.checks import host_storage
from preflight.serde import encode
from preflight.host import Host
from support.cases import context
libc = ctypes.CDLL(None, use_errno=True)
def ok(result):
    error = ctypes.get_errno()
    if result: sys.exit(77 if error in (1, 19, 38) else os.strerror(error))
ok(libc.unshare(0x20000))                                   # CLONE_NEWNS
ok(libc.mount(b"none", b"/", None, 0x44000, None))          # MS_REC | MS_PRIVATE
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
ok(libc.mount(b"filer:/dead", sys.argv[1].encode(), b"fuse", 0, options))
host = Host("/", {"TMPDIR": sys.argv[1] + "/deep"})
options = {"checkpoint_dir": sys.argv[1], "init_file": sys.argv[2]}
seen = host_storage.observe(host, context(seconds=4.0, options=options))
print(json.dumps(encode(seen)))
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs /dev/fuse")
def test_a_dead_mount_is_named_in_time_and_hides_nothing() -> None:
    # pytest's own folders are deep: TMPDIR would be too long for sockets, which is a finding, too
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
        _dead_mount(Path(folder))


def _dead_mount(tmp_path: Path) -> None:
    from preflight.serde import decode

    (tmp_path / "dead").mkdir()
    (tmp_path / "init").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", DEAD_MOUNT, str(tmp_path / "dead"), str(tmp_path / "init")],
        env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("mounts are not allowed here")
    assert done.returncode == 0, done.stderr
    seen = decode(host_storage.NodeStorage, json.loads(done.stdout))
    found = judged(host_storage, Case("", seen))
    assert [f.code for f in found] == ["stalled", "init-leftover"]
    assert found[0].saw.count("fuse from filer:/dead") == 2
    assert found[0].fields["mount"] == str(tmp_path / "dead")


def test_a_time_limit_of_milliseconds_accuses_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that has just been forked may be waiting for its own pages."""
    starting = ProbedPath(Role.TMPDIR, "/tmp", 4, "default", "/tmp", state="D", doing="starting")
    monkeypatch.setattr(host_storage, "probe_paths", lambda *_: (starting,))
    with pytest.raises(CannotObserve, match="give it more time"):
        host_storage.observe(Host(), context(seconds=0.002))
    assert host_storage.observe(Host(), context(seconds=4.0)).places == (starting,)


def test_triton_s_folder_in_home_is_asked_for_and_not_made(tmp_path: Path) -> None:
    assert observed({"HOME": str(tmp_path)})[Role.HOME].problem == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_triton_s_that_is_closed(tmp_path: Path) -> None:
    (tmp_path / ".triton/cache").mkdir(parents=True)
    (tmp_path / ".triton/cache").chmod(0o500)
    home = observed({"HOME": str(tmp_path)})[Role.HOME]
    assert (home.tested, home.errno) == (str(tmp_path / ".triton/cache"), "EACCES")
