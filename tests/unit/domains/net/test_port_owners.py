"""port_owners: who holds a port, from a fake /proc and from the live one."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from preflight.domains.net.port_owners import (
    ESTABLISHED,
    FILES_READ,
    KEPT,
    LISTEN,
    Holder,
    PeerConnection,
    Socket,
    connections_from,
    holders,
    program,
    sockets_at,
)
from preflight.host import Host

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
# 29500 is 733C in hex
LINE = "   {n}: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1\n"


def line(state: str, inode: int, local: str = "00000000:733C", uid: int = 1000) -> str:
    return LINE.format(
        n=inode, local=local, remote="0100007F:1F90", state=state, uid=uid, inode=inode
    )


def tree(root: Path, tcp: str = "", tcp6: str = "") -> Host:
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/tcp").write_text(HEAD + tcp)
    (root / "proc/net/tcp6").write_text(HEAD + tcp6)
    (root / "proc/self").mkdir()
    (root / "proc/self/status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
    (root / "proc/uptime").write_text("5000.00 9000.00\n")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n")
    return Host(str(root), {})


def process(root: Path, pid: int, inode: int, *args: str, start: int = 100_000) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_text("\0".join(args) + "\0")
    (folder / "comm").write_text("comm\n")
    (folder / "stat").write_text(f"{pid} (a) b) S " + "0 " * 18 + f"{start} 0 0\n")
    os.symlink("/dev/null", folder / "fd/0")
    os.symlink(f"socket:[{inode}]", folder / "fd/3")


def test_a_listener_and_its_process(tmp_path: Path) -> None:
    six = "0" * 32 + ":733C"
    host = tree(tmp_path, tcp=line("01", 12), tcp6=line("0A", 11, six, uid=0))
    process(tmp_path, 77, 11, "/usr/bin/python3.11", "-u", "/home/ann/train.py", "--token=s3cret")

    found = sockets_at(host, 29500)

    assert found == (
        Socket(LISTEN, "[::]:29500", 0, "11"),
        Socket(ESTABLISHED, "0.0.0.0:29500", 1000, "12"),
    )
    listener, connection = holders(host, found)
    ticks = 100_000 / os.sysconf("SC_CLK_TCK")
    assert listener == Holder(
        LISTEN, "[::]:29500", "root", False, 77, "python3.11 train.py", 5000.0 - ticks
    )
    assert connection == Holder(ESTABLISHED, "0.0.0.0:29500", "ann", True)


def test_what_is_none_of_this_port(tmp_path: Path) -> None:
    others = line("0A", 1, "00000000:733D") + line("06", 0) + "rubbish :733C\n" + "x " * 40 + "\n"
    assert sockets_at(tree(tmp_path, tcp=others), 29500) == ()


def test_without_tables_nothing_is_known(tmp_path: Path) -> None:
    assert sockets_at(Host(str(tmp_path), {}), 29500) is None


def test_odd_lines_do_no_harm(tmp_path: Path) -> None:
    host = tree(tmp_path, tcp=line("0A", 5, "zz:733C") + line("7F", 6, "0100:733C"))
    found = sockets_at(host, 29500)
    assert [(s.state, s.local) for s in found or ()] == [(LISTEN, "?:29500"), ("7F", "?:29500")]
    process(tmp_path, 9, 5, "", start=0)
    (tmp_path / "proc/9/stat").write_text("9 (x) S nonsense")
    (tmp_path / "proc/self/status").write_text("Uid:\tnobody\n")
    assert holders(host, found or ())[0].name == "comm"


def test_many_sockets_are_cut(tmp_path: Path) -> None:
    host = tree(tmp_path, tcp="".join(line("01", n + 1) for n in range(5000)))
    began = time.monotonic()
    found = sockets_at(host, 29500) or ()
    assert len(found) == 5000
    assert len(holders(host, found)) == KEPT
    assert time.monotonic() - began < 5
    assert FILES_READ >= 100_000


PROGRAMS = (
    (("python", "train.py", "--key", "s3cret"), "python train.py"),
    (("/opt/bin/python3", "-u", "-X", "dev", "/a/b/run"), "python3 run"),
    (("python", "-m", "torch.distributed.run", "t.py"), "python torch.distributed.run"),
    (("python", "-c", "password='s3cret.py'"), "python"),
    (("python",), "python"),
    (("nginx: worker s3cret",), "nginx:"),
    (("/usr/sbin/sshd", "-D"), "sshd"),
    (("x" * 5000,), "x" * 120),
)


def test_arguments_are_left_where_they_are(tmp_path: Path) -> None:
    host = tree(tmp_path)
    for pid, (args, shown) in enumerate(PROGRAMS, start=100):
        process(tmp_path, pid, pid, *args)
        assert program(host, pid) == shown


def test_this_process_on_the_live_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = holders(Host(), sockets_at(Host(), port) or ())
    assert [(h.state, h.local, h.pid, h.mine) for h in found] == [
        (LISTEN, f"127.0.0.1:{port}", os.getpid(), True)
    ]
    assert found[0].age is not None
    assert found[0].age < 1e6


def test_the_connections_with_one_address_on_the_live_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(server.getsockname()) as near:
            source = near.getsockname()[1]
            found = connections_from(Host(), {"127.0.0.1"}, most=100_000)
    assert PeerConnection(ESTABLISHED, port, "127.0.0.1", source) in found
    assert connections_from(Host(), {"192.0.2.1"}) == ()
    assert connections_from(Host(), ()) == ()
