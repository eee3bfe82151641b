"""What NCCL says while it works, kept from the job's own log. For workers only."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator

from preflight.domains.collectives.nccl_log import ASKED, FILE, LINE, NcclLog, parse
from preflight.domains.collectives.nccl_transport import NcclReport, RdmaPorts
from preflight.domains.net.rdma import rdma_ports
from preflight.host import Host
from preflight.redact import redact
from preflight.sanitize import clip

HEAD, TAIL = 3 << 20, 1 << 20
"""Bytes read from the two ends of the log; with 8 GPUs and 32 channels it has some 100 KiB."""

DIAGNOSTICS = "NCCL_RUN_DIAGNOSTICS"
"""From NCCL 2.31; they print to stdout. Only where the job asks for them: they also measure the
network with ib_write_bw between all nodes, for a time that we can't bound."""

CONCERNS = (
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "MELLANOX_VISIBLE_DEVICES",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
)
"""Settings that take away a way; what else is set is the affair of env.vars."""

REPEATED, EVERY = 20, 0.5
"""Lines that are repeated to stderr at most; seconds between two looks for new ones."""


class NcclLogCapture:
    """While it is entered, NCCL logs into memory of this process (a file without a name: nothing is
    left behind however it ends) and the job's own NCCL_DEBUG_FILE isn't touched. What NCCL warns of
    goes to stderr at once, since a rank that hangs is killed together with its log."""

    def __init__(self) -> None:
        self._file = self._printed = self._stdout = -1
        self._before: dict[str, str | None] = {}
        self._over = threading.Event()

    def __enter__(self) -> NcclLogCapture:
        try:
            self._file = os.memfd_create("nccl-log")
        except OSError:  # a sandbox that forbids it: then there is no log
            return self
        mine = {**ASKED, FILE: f"/proc/self/fd/{self._file}"}
        self._before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        threading.Thread(target=self._repeat, daemon=True).start()
        if os.environ.get(DIAGNOSTICS, "").strip() not in ("", "0"):
            self._printed, self._stdout = os.memfd_create("stdout"), os.dup(1)
            _flush()
            os.dup2(self._printed, 1)
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._printed >= 0:
            _flush()
            os.dup2(self._stdout, 1)
            os.write(1, os.pread(self._printed, TAIL, 0))
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def log(self, rank: int) -> NcclLog:
        """What the log tells so far."""
        if self._printed >= 0:
            _flush()
        return parse((*_lines(self._file), *_lines(self._printed)), rank)

    def _repeat(self) -> None:
        """Warnings and the network, as they come."""
        at, told = 0, 0
        while told < REPEATED and not self._over.wait(EVERY):
            data = os.pread(self._file, HEAD, at)
            whole = data.rfind(b"\n") + 1 or (len(data) if len(data) == HEAD else 0)
            at += whole
            for line in data[:whole].split(b"\n"):
                if b"NCCL WARN" in line or b"Using network" in line:
                    told += 1
                    print(line[:LINE].decode(errors="replace"), file=sys.stderr, flush=True)


def _lines(file: int) -> Iterator[str]:
    """The two ends of an open file; nothing where there is none."""
    if file < 0:
        return
    size = os.fstat(file).st_size
    data = os.pread(file, HEAD, 0)
    if size > HEAD:
        data += b"\n" + os.pread(file, TAIL, max(HEAD, size - TAIL))
    for line in data.split(b"\n"):
        yield line[:LINE].decode(errors="replace")


def _flush() -> None:
    """What Python and the C library have not yet written to stdout."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)


def nccl_report(host: Host, log: NcclLog) -> NcclReport:
    """The log beside what this machine and the job's settings offer."""
    told = (f"{n}={redact(n, host.environ[n], 40)}" for n in CONCERNS if n in host.environ)
    return NcclReport(log, _rdma_ports(host), tuple(clip(t, 80) for t in told))


def _rdma_ports(host: Host) -> RdmaPorts:
    ports: dict[str, list[str]] = {"InfiniBand": [], "Ethernet": [], "EFA": []}
    gbits: dict[str, list[int]] = {kind: [] for kind in ports}
    for port, layer in rdma_ports(host):
        device, _, number = port.partition(":")
        top = f"/sys/class/infiniband/{device}"
        # EFA has a link layer of its own, which sysfs calls Unknown (drivers/infiniband/hw/efa)
        kind = "EFA" if host.readlink(f"{top}/device/driver").endswith("/efa") else layer
        if kind not in ports:
            continue
        ports[kind].append(clip(port, 40))
        # "400 Gb/sec (4X NDR)" (Documentation/ABI/stable/sysfs-class-infiniband)
        rate = (host.read_or_none(f"{top}/ports/{number}/rate") or "").partition(" ")[0]
        gbits[kind].append(int(rate) if rate.isdecimal() and len(rate) < 8 else 0)
    kept = {kind: tuple(names[:32]) for kind, names in ports.items()}
    fastest, rates = max(gbits["Ethernet"], default=0), tuple(gbits["InfiniBand"][:32])
    return RdmaPorts(kept["InfiniBand"], kept["Ethernet"], kept["EFA"], fastest, rates)
