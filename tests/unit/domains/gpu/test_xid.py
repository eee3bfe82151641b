"""xid: NVIDIA's errors in the kernel's log, whatever else stands in it."""

from __future__ import annotations

from pathlib import Path

from lab.gpu_machines import UP, record, xid

from preflight.domains.gpu.xid import KEPT, XidLog, read_xids
from preflight.host import Host


def log_of(root: Path, text: bytes, uptime: str = f"{UP} 1\n") -> XidLog:
    (root / "dev").mkdir(exist_ok=True)
    (root / "proc").mkdir(exist_ok=True)
    (root / "dev/kmsg").write_bytes(text)
    (root / "proc/uptime").write_text(uptime)
    return read_xids(Host(str(root)), 5.0)


def test_a_hostile_log(tmp_path: Path) -> None:
    lines = [
        xid(5, 9999),
        xid(5, 79, "zz:00:00"),
        xid(5, 79).replace(";", ""),
        record(5, "x" * 100_000 + xid(5, 79)),
        "9" * 400 + ",1,1,-;NVRM: Xid (PCI:0000:38:00): 79",
        *(xid(5, 79, f"0000:{n % 256:02x}:{n // 256:02x}") for n in range(1000)),
    ]
    log = log_of(tmp_path, "\n".join(lines).encode() + b"\xff\xfe\0no end")
    assert len(log.xids) == KEPT
    assert not log.refused
    assert log_of(tmp_path, b"", "soon\n").refused
    assert log_of(tmp_path, b"") == XidLog()


def asks(ago: float, before: str, after: str) -> str:
    """What the driver writes when it wants something else done with GPU 2 than before."""
    words = f"GPU recovery action changed from {before} to {after}"
    return record(ago, f"NVRM: Xid (PCI:0000:38:00): 154, pid=0, name=N/A, {words}") + "\n"


NOTHING, RESET, REBOOT = "0x0 (None)", "0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"


def test_what_the_driver_wants_done(tmp_path: Path) -> None:
    log = log_of(tmp_path, (asks(9, NOTHING, RESET) + asks(5, RESET, REBOOT)).encode())
    assert [(x.code, x.bus, x.count, x.age) for x in log.xids] == [(154, "0000:38:00.0", 2, 5.0)]
    done = asks(9, NOTHING, RESET) + asks(5, RESET, NOTHING)
    assert log_of(tmp_path, done.encode()) == XidLog()
    again = log_of(tmp_path, (done + asks(3, NOTHING, RESET)).encode())
    assert [x.count for x in again.xids] == [1]
    assert log_of(tmp_path, (xid(5, 154) + "\n").encode()) == XidLog()


def test_a_log_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("5.0 1\n")
    assert read_xids(Host(str(tmp_path)), 1.0).refused == "/dev/kmsg: No such file or directory"


def test_the_time_of_a_later_boot_is_not_taken_for_an_age(tmp_path: Path) -> None:
    """A clock of the log that is ahead: it has only just come."""
    log = log_of(tmp_path, (xid(-100, 119) + "\n").encode())
    assert [x.age for x in log.xids] == [0.0]
