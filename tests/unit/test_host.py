"""host: small trees below a root are read like a machine; the live one is touched without trace."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.host import (
    CPUS_MAX,
    READ_LIMIT,
    UNLIMITED,
    Address,
    Host,
    Limit,
    Mount,
    Route,
    Space,
    cpulist,
)
from preflight.model import CannotObserve

LIVE = Host()


@pytest.fixture
def tree(tmp_path: Path) -> Any:
    """tree({path: text}) -> Host of a machine that has these files."""

    def planted(files: dict[str, str | bytes], environ: dict[str, str] | None = None) -> Host:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return Host(str(tmp_path), environ)

    return planted


# --- files ---


def test_reading(tree: Any) -> None:
    host = tree({"/proc/a": "1\n", "/proc/hex": "0x10", "/proc/word": "x", "/proc/raw": b"\xff"})
    assert host.read("/proc/a") == "1\n"
    assert host.read("/proc/raw") == "�"
    assert [host.read_int(f"/proc/{n}") for n in ("a", "hex", "word", "none")] == [
        1,
        16,
        None,
        None,
    ]
    assert host.read_or_none("/proc/none") is None
    assert host.listdir("/proc") == ("a", "hex", "raw", "word")
    assert host.listdir("/none") == ()
    assert host.exists("/proc/a")
    assert not host.exists("/proc/b")
    with pytest.raises(CannotObserve, match="/proc/none: No such file or directory"):
        host.read("/proc/none")
    with pytest.raises(CannotObserve, match="/proc: Is a directory"):
        host.read("/proc")


def test_reading_is_bounded(tree: Any) -> None:
    host = tree({"/big": "x" * (READ_LIMIT + 5), "/lines": "a\nb\nc\n"})
    assert len(host.read("/big")) == READ_LIMIT
    assert list(host.lines("/lines", 2)) == ["a\n", "b\n"]
    assert [len(line) for line in host.lines("/big", 9)] == [READ_LIMIT, 5]
    assert list(host.lines("/none", 2)) == []


def test_links(tree: Any, tmp_path: Path) -> None:
    host = tree({"/sys/file": ""})
    (tmp_path / "sys" / "link").symlink_to("../devices/pci0")
    assert host.readlink("/sys/link") == "../devices/pci0"
    assert host.readlink("/sys/file") == host.readlink("/none") == ""


def test_a_copied_tree_brings_its_environment(tree: Any) -> None:
    host = tree({"/proc/self/environ": "A=1\0B=x=y\0nothing\0"})
    assert host.environ == {"A": "1", "B": "x=y"}
    assert tree({}, {"C": "2"}).environ == {"C": "2"}
    assert Host().environ is os.environ


def test_what_only_a_live_machine_can_tell(tree: Any) -> None:
    host = tree({})
    assert not host.is_root()
    for question in (
        lambda: host.resolve("localhost"),
        lambda: host.full_name("localhost"),
        lambda: host.name_of("127.0.0.1"),
        lambda: host.can_bind("127.0.0.1"),
        lambda: host.reaches_itself("127.0.0.1", 1.0),
        lambda: host.source_of("127.0.0.1"),
        host.fqdn,
        lambda: host.nvml().__enter__(),
        host.limits,
        host.affinity,
        lambda: host.interfaces,
    ):
        with pytest.raises(CannotObserve):
            question()


# --- space and scratch files ---


def test_space(tree: Any) -> None:
    assert tree({"/dev/shm.statvfs": "64 32 10 20"}).space("/dev/shm/") == Space(64, 32, 10, 20)
    with pytest.raises(CannotObserve):
        tree({}).space("/none")
    live = LIVE.space("/tmp")
    assert 0 < live.free <= live.size
    with pytest.raises(CannotObserve, match="No such file or directory"):
        LIVE.space("/no/such/folder")


def test_a_scratch_file_never_has_a_name(tmp_path: Path) -> None:
    with LIVE.scratch(str(tmp_path)) as file:
        os.write(file, b"x")
        assert os.fstat(file).st_size == 1
        assert list(tmp_path.iterdir()) == []
    assert LIVE.unwritable(str(tmp_path)) == ""
    assert list(tmp_path.iterdir()) == []
    assert "No such file or directory" in LIVE.unwritable(str(tmp_path / "absent"))
    (tmp_path / "file").write_text("")
    assert LIVE.unwritable(str(tmp_path / "file")).endswith("Not a directory")


def test_a_scratch_file_where_the_file_system_has_no_o_tmpfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    with LIVE.scratch(str(tmp_path)) as file:
        os.write(file, b"x")
        assert list(tmp_path.iterdir()) == []


MOUNTINFO = r"""
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 21 0:20 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 0:21 / /home/a\040b rw shared:1 - tmpfs tmpfs rw
32 21 0:22 / /home ro - lustre mgs@o2ib:/fs rw
this is no line
"""


def test_mounts(tree: Any) -> None:
    host = tree({"/proc/self/mountinfo": MOUNTINFO})
    assert len(host.mounts()) == 4
    assert host.mount_of("/home/a b/c") == Mount("/home/a b", "tmpfs", "tmpfs", "rw")
    assert host.mount_of("/home/x") == Mount("/home", "lustre", "mgs@o2ib:/fs", "ro"), "the later"
    assert host.mount_of("/homes").point == "/"
    assert host.mount_of("/").fstype == "ext4"
    assert tree({"/proc/self/mountinfo": ""}).mount_of("/") is None


# --- limits ---

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max processes             1024                 2048                 processes
Max locked memory         65536                unlimited            bytes
"""


def test_limits(tree: Any) -> None:
    found = tree({"/proc/self/limits": LIMITS}).limits()
    assert found["max processes"] == Limit(1024, 2048)
    assert found["max locked memory"] == Limit(65536, UNLIMITED)
    assert found["max cpu time"] == Limit(UNLIMITED, UNLIMITED)
    assert set(found) <= set(LIVE.limits())


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("\t0-1\n", {0, 1}),
        ("", set()),
        ("x,2-,4", {2, 4}),
        ("3-1", set()),
        ("0-99999999999", set(range(CPUS_MAX + 1))),
        ("9" * 50, set()),
    ],
)
def test_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert cpulist(text) == cpus


@given(st.text(alphabet="0123456789-, x", max_size=40))
def test_any_list_of_cpus_is_bounded(text: str) -> None:
    assert all(0 <= cpu <= CPUS_MAX or str(cpu) in text for cpu in cpulist(text))


def test_the_cpus_of_this_process(tree: Any) -> None:
    assert tree({"/proc/self/status": "Name:\tx\nCpus_allowed_list:\t2-3\n"}).affinity() == {2, 3}
    assert LIVE.affinity() >= os.sched_getaffinity(0)


def test_control_groups_from_the_innermost_on(tree: Any) -> None:
    two = tree(
        {
            "/proc/self/cgroup": "0::/job/step\n",
            "/sys/fs/cgroup/job/step/memory.max": "max\n",
            "/sys/fs/cgroup/job/memory.max": "100\n",
            "/sys/fs/cgroup/memory.max": "200\n",
        }
    )
    assert list(two.cgroup_files("memory", "memory.max")) == [
        ("/sys/fs/cgroup/job/step/memory.max", "max"),
        ("/sys/fs/cgroup/job/memory.max", "100"),
        ("/sys/fs/cgroup/memory.max", "200"),
    ]


def test_control_groups_of_the_first_version(tree: Any) -> None:
    one = tree(
        {
            "/proc/self/cgroup": "5:pids:/a\n4:memory,cpu:/docker/123\n",
            "/sys/fs/cgroup/memory/limit": "7",
            "/sys/fs/cgroup/pids/a/pids.max": "9",
        }
    )
    assert list(one.cgroup_files("memory", "limit")) == [("/sys/fs/cgroup/memory/limit", "7")]
    assert list(one.cgroup_files("pids", "pids.max")) == [("/sys/fs/cgroup/pids/a/pids.max", "9")]
    assert list(one.cgroup_files("cpuset", "x")) == []


# --- network ---

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
eth1\t0000010A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.5
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
"""
NETWORK = {
    "/proc/net/route": ROUTES,
    "/proc/net/fib_trie": TRIE,
    "/proc/net/if_inet6": "fe80000000000000020000fffe000001 02 40 20 80     eth0\nbroken\n",
    "/sys/class/net/eth0/ifindex": "2",
    "/sys/class/net/eth0/flags": "0x1003",
    "/sys/class/net/eth0/operstate": "up",
    "/sys/class/net/eth0/mtu": "9000",
    "/sys/class/net/lo/ifindex": "1",
    "/sys/class/net/lo/flags": "0x9",
    "/sys/class/net/lo/operstate": "unknown",
    "/sys/class/net/down0/ifindex": "3",
    "/sys/class/net/down0/flags": "0x1002",
    "/sys/class/net/down0/operstate": "down",
}


def test_routes(tree: Any) -> None:
    assert tree(NETWORK).routes() == (
        Route("eth0", "0.0.0.0", 0, "10.0.0.1", 100),
        Route("eth0", "10.0.0.0", 24, "0.0.0.0", 100),
    )
    six = "0" * 32 + " 00 " + "0" * 32 + " 00 fe80" + "0" * 27 + "1 00000400 1 0 00000003 eth0\n"
    assert tree({"/proc/net/route": "", "/proc/net/ipv6_route": six}).routes() == (
        Route("eth0", "::", 0, "fe80::1", 1024),
    )


def test_interfaces_of_a_copied_tree(tree: Any) -> None:
    lo, eth0, down0 = tree(NETWORK).interfaces
    assert (lo.name, lo.loopback, lo.up, lo.running) == ("lo", True, True, True)
    assert lo.addresses == (Address("127.0.0.1", 8, 4),)
    assert (eth0.name, eth0.mtu, eth0.running) == ("eth0", 9000, True)
    assert eth0.addresses == (Address("10.0.0.5", 24, 4), Address("fe80::200:ff:fe00:1", 64, 6))
    assert (down0.up, down0.running, down0.addresses) == (False, False, ())


@pytest.mark.parametrize(
    ("flags", "state", "carrier", "running"),
    [
        ("0x1003", "down", "1", True),  # it has got its carrier within the last second
        ("0x1003", "down", "0", False),
        ("0x1003", "lowerlayerdown", "1", False),
        ("0x1003", "dormant", "1", False),
        ("0x1002", "down", "1", False),
    ],
)
def test_an_interface_that_has_just_got_its_carrier(
    tree: Any, flags: str, state: str, carrier: str, running: bool
) -> None:
    eth0 = "/sys/class/net/eth0/"
    changed = {f"{eth0}flags": flags, f"{eth0}operstate": state, f"{eth0}carrier": carrier}
    found = {i.name: i for i in tree(NETWORK | changed).interfaces}
    assert found["eth0"].running is running


def test_the_interfaces_of_this_machine() -> None:
    names = dict(socket.if_nameindex())
    assert [i.name for i in LIVE.interfaces] == [names[n] for n in sorted(names)]
    assert any(i.loopback for i in LIVE.interfaces)


def test_a_connection_of_this_machine_to_itself() -> None:
    assert LIVE.reaches_itself("127.0.0.1", 5.0) is None
    problem = LIVE.reaches_itself("192.0.2.77", 0.1)
    assert problem is not None


def test_ports_of_this_machine() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        problem = LIVE.can_bind("127.0.0.1", port)
        assert problem is not None
        assert problem.errno == errno.EADDRINUSE
    assert LIVE.can_bind("127.0.0.1", port) is None
    assert LIVE.can_bind("127.0.0.1") is None
    problem = LIVE.can_bind("192.0.2.77")
    assert problem is None or problem.errno == errno.EADDRNOTAVAIL


def test_names_of_this_machine() -> None:
    assert [found.ip for found in LIVE.resolve("127.0.0.1")] == ["127.0.0.1"]
    assert LIVE.full_name("127.0.0.1") == "127.0.0.1"
    with pytest.raises(socket.gaierror):
        LIVE.resolve("")
    assert LIVE.hostname() == socket.gethostname()
    assert LIVE.source_of("127.0.0.1") == "127.0.0.1"


# --- processes and devices ---


def test_files_of_gpus(tree: Any) -> None:
    files = ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "kfd", "null")
    assert tree({f"/dev/{name}": "" for name in files}).gpu_files() == (
        "/dev/kfd",
        "/dev/nvidia0",
        "/dev/nvidia12",
    )


def test_a_device_that_may_not_be_opened(tree: Any, tmp_path: Path) -> None:
    host = tree({"/dev/nvidia0": ""})
    assert host.refused("/dev/nvidia0") == 0
    assert host.refused("/dev/nvidia1") == errno.ENOENT
    os.mkfifo(tmp_path / "dev" / "fifo")
    assert host.refused("/dev/fifo") == 0, "which nobody writes to, and is not waited for"


def test_the_processes_of_this_machine() -> None:
    assert os.getpid() in LIVE.processes().pids()


def test_a_device_that_may_be_used_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/nvidia0")  # an open would wait for whoever writes
    host = Host(str(tmp_path), {})
    assert host.permitted_device("/dev/nvidia0") == 0
    assert host.permitted_device("/dev/nvidia1") is None
