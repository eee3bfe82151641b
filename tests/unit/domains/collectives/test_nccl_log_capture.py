"""What world.nccl hears of NCCL while it works: the job's own log is left alone, nothing stays
behind. CUDA and NCCL are a stand-in's (nccl_stand_in.py)."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support import nccl_stand_in
from support.ranks import run_ranks

from preflight.checks import world_nccl
from preflight.checks.world_nccl import SIZES, GpuSums
from preflight.domains.collectives import nccl_log_capture
from preflight.domains.collectives.nccl_log import NcclLog
from preflight.domains.collectives.nccl_log_capture import NcclLogCapture
from preflight.domains.collectives.nccl_transport import NcclReport, RdmaPorts
from preflight.host import Host

CAPTURES = Path(__file__).parents[3] / "data/nccl_logs"


def test_the_fabric_is_read_from_sysfs(tmp_path: Path) -> None:
    def port(device: str, state: str, layer: str, rate: str, driver: str) -> None:
        top = tmp_path / "sys/class/infiniband" / device
        (top / "ports/1").mkdir(parents=True)
        (top / "device").mkdir()
        (top / "device/driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        for name, text in (("state", state), ("link_layer", layer), ("rate", rate)):
            (top / "ports/1" / name).write_text(text + "\n")

    port("mlx5_0", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)", "mlx5_core")
    port("mlx5_1", "1: DOWN", "InfiniBand", "10 Gb/sec (4X SDR)", "mlx5_core")
    port("mlx5_2", "4: ACTIVE", "Ethernet", "25 Gb/sec (1X EDR)", "mlx5_core")
    port("rdmap0s6", "4: ACTIVE", "Unknown", "100 Gb/sec (4X EDR)", "efa")
    host = Host(str(tmp_path), {"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "WARN"})
    assert nccl_log_capture.nccl_report(host, NcclLog()) == NcclReport(
        NcclLog(),
        RdmaPorts(("mlx5_0:1",), ("mlx5_2:1",), ("rdmap0s6:1",), 25, (400,)),
        ("NCCL_IB_DISABLE=1",),
    )
    assert nccl_log_capture.nccl_report(Host(str(tmp_path / "none"), {}), NcclLog()) == NcclReport(
        NcclLog()
    )


def write(text: str) -> None:
    with open(os.environ["NCCL_DEBUG_FILE"], "w") as file:
        file.write(text)


def test_the_job_s_own_log_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "nccl.log"
    own.write_text("the job's")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(own))
    monkeypatch.setenv("NCCL_DEBUG", "VERSION")
    monkeypatch.delenv("NCCL_DEBUG_SUBSYS", raising=False)
    with NcclLogCapture() as ear:
        assert os.environ["NCCL_DEBUG"] == "INFO"
        write("h:1:1 [0] NCCL INFO Using network IB\n")
        assert ear.log(0).network == "IB"
    assert own.read_text() == "the job's"
    assert (os.environ["NCCL_DEBUG_FILE"], os.environ["NCCL_DEBUG"]) == (str(own), "VERSION")
    assert "NCCL_DEBUG_SUBSYS" not in os.environ
    assert [path.name for path in tmp_path.iterdir()] == ["nccl.log"]


def test_of_a_long_log_the_two_ends_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log_capture, "HEAD", 400)
    monkeypatch.setattr(nccl_log_capture, "TAIL", 100)
    with NcclLogCapture() as ear:
        write(
            "h:1:1 [0] NCCL INFO Using network IB\n"
            + "x" * 5000
            + "\nh:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1\n"
        )
        assert (ear.log(0).network, ear.log(0).nodes) == ("IB", 2)


def test_where_there_is_no_memory_file_there_is_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise PermissionError(name)

    monkeypatch.setattr(os, "memfd_create", refuse)
    before = dict(os.environ)
    with NcclLogCapture() as ear:
        assert dict(os.environ) == before
        assert ear.log(0) == NcclLog()


def test_a_warning_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that hangs is killed, and its log is gone with it."""
    monkeypatch.setattr(nccl_log_capture, "EVERY", 0.01)
    # not capfd: what is written while it is read, as a thread may, is lost to it
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with NcclLogCapture():
        write("h:1:1 [0] NCCL INFO quiet\nh:1:1 [0] x.cc:7 NCCL WARN the sky is falling\n")
        for _ in range(500):
            if "falling\n" in stderr.getvalue():
                break
            threading.Event().wait(0.01)
    assert stderr.getvalue() == "h:1:1 [0] x.cc:7 NCCL WARN the sky is falling\n"


def test_nobody_listens_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log_capture, "EVERY", 0.01)
    before = set(threading.enumerate())
    with NcclLogCapture():
        (ear,) = set(threading.enumerate()) - before
    ear.join(5.0)
    assert not ear.is_alive()


def test_the_diagnostics_that_the_job_asked_for_are_read(
    monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """They go to stdout, through the C library's buffer; and there they must come out, too."""
    libc = ctypes.CDLL(None)
    monkeypatch.setenv("NCCL_RUN_DIAGNOSTICS", "1")
    with NcclLogCapture() as ear:
        libc.puts(
            b"h:1 NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification"
        )
        assert ear.log(0).diagnosed == (
            "p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
        )
    libc.puts(b"after")
    libc.fflush(None)
    told = capfd.readouterr().out
    assert [line.rpartition(" ")[2] for line in told.splitlines()] == ["verification", "after"]


@pytest.mark.parametrize("value", ["0", "", " "])
def test_without_diagnostics_stdout_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: Any, value: str
) -> None:
    monkeypatch.setenv("NCCL_RUN_DIAGNOSTICS", value)
    with NcclLogCapture():
        os.write(1, b"at once")
        assert capfd.readouterr().out == "at once"


def played(rank: int, name: str) -> dict[int, dict[str, str]]:
    return {rank: {"STAND_IN_LOG": str(CAPTURES / f"{name}.log")}}


@pytest.mark.torch
def test_what_nccl_logs_comes_with_the_sums(tmp_path: Path) -> None:
    """With a stand-in for CUDA and NCCL: not a GPU, but all of observe()."""
    seen = run_ranks(
        "world.nccl",
        2,
        target=nccl_stand_in.perform,
        env={"NCCL_DEBUG_FILE": str(tmp_path / "own"), "NCCL_IB_DISABLE": "1"},
        env_of=played(0, "a100-socket-2.18") | played(1, "a100-socket-2.18"),
    )
    values: list[GpuSums] = list(seen.seen.values())
    assert [(v.trouble, [r.bytes for r in v.reduced]) for v in values] == [(None, list(SIZES))] * 2
    assert values[0].heard is not None
    assert values[0].heard.log.network == "Socket"
    assert values[0].heard.told == ("NCCL_IB_DISABLE=1",)
    assert list(tmp_path.iterdir()) == [], "the job's own log is not begun"
    assert "transport NET/Socket + P2P/IPC" in world_nccl.measured(seen).text


@pytest.mark.torch
def test_ranks_with_different_networks_do_not_wait_for_each_other() -> None:
    seen = run_ranks(
        "world.nccl",
        2,
        nodes=("n1", "n2"),
        target=nccl_stand_in.perform,
        env_of=played(0, "h100-ib-2.27") | played(1, "a100-socket-2.18"),
    )
    values: list[GpuSums] = list(seen.seen.values())
    assert [(v.trouble, v.reduced) for v in values] == [(None, ())] * 2
    (finding,) = world_nccl.judge(seen, {})  # type: ignore[arg-type]
    assert finding.code == "nets-differ"
    assert str(finding.subjects[0]) == "job"
