"""What the kernel's log says of devices: lines as kernels of several years write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.gpu_machines import UP, record

from preflight.domains.gpu.xid import read_xids, switch_errors
from preflight.domains.kernel_log import (
    BURST,
    KEPT,
    DeviceError,
    MemoryFailure,
    NfsSilence,
    SoftLockup,
    errors_by_kind,
    memory_failures,
    mlx5_errors,
    mlx5_power,
    mlx5_transmit,
    pcie_errors,
    read_device_errors,
    silent_nfs_servers,
    soft_lockups,
)
from preflight.host import Host

BUS = "0000:3b:00.0"


def machine(root: Path, *lines: str) -> Host:
    (root / "dev").mkdir()
    (root / "proc").mkdir()
    (root / "dev/kmsg").write_text("".join(f"{line}\n" for line in lines))
    (root / "proc/uptime").write_text(f"{UP} 1\n")
    return Host(str(root))


@pytest.mark.parametrize(
    ("line", "words", "fatal"),
    [
        (
            f"pcieport 0000:3a:01.0: AER: Uncorrected (Fatal) error received: {BUS}",
            "uncorrected (fatal) PCIe error",
            True,
        ),
        (
            "pcieport 0000:3a:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received "
            f"from {BUS}",
            "uncorrected (non-fatal) PCIe error",
            False,
        ),
        (
            f"pcieport 0000:3a:01.0: AER: Corrected error received: {BUS}",
            "corrected PCIe error",
            False,
        ),
        (
            f"pcieport 0000:3a:01.0: AER: Multiple Correctable error message received from {BUS}",
            "corrected PCIe error",
            False,
        ),
        (
            f"nvidia {BUS}: AER: can't recover (no error_detected callback)",
            "not recovered from an uncorrected PCIe error",
            True,
        ),
        (
            f"nvidia {BUS}: AER: aer_uncor_severity: 0x00062010",
            "uncorrected PCIe error, reported by the firmware",
            False,
        ),
        (
            f"nvidia {BUS}: device has no AER-aware driver",
            "not recovered from an uncorrected PCIe error",
            True,
        ),
    ],
)
def test_pcie(line: str, words: str, fatal: bool) -> None:
    assert pcie_errors(line) == DeviceError(BUS, words, fatal, 1, 0.0)


@pytest.mark.parametrize(
    "line",
    [
        f"pcieport {BUS}: AER: enabled with IRQ 26",
        "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability LTR]",
        "AER: Corrected error received: zz",
        f"nvidia {BUS}: AER: aer_status: 0x00000001, aer_mask: 0x00000000",
        "{1}[Hardware Error]:   aer_uncor_severity: 0x00062010",
        f"snd_hda_intel {BUS}: AER: can't recover (no error_detected callback)",
    ],
)
def test_no_error_of_pcie(line: str) -> None:
    assert pcie_errors(line) is None


@pytest.mark.parametrize(
    "words",
    [
        "poll_health:834:(pid 0): device's health compromised - reached miss count",
        "poll_health:818:(pid 0): Fatal error 1 detected",
        "wait_func_handle_exec_timeout:1066:(pid 77): CREATE_EQ: cmd[0]: CREATE_EQ(0x301) timeout. "
        "Will cause a leak of a command resource",
        "print_health_info:415:(pid 0): synd 0x1: firmware internal error",
        "mlx5_health_try_recover:338:(pid 9): health recovery failed",
    ],
)
def test_a_dead_hca(words: str) -> None:
    found = mlx5_errors(f"mlx5_core {BUS}: {words}")
    assert found is not None
    assert found.bus == BUS
    assert found.fatal
    assert not found.words.startswith(("poll_health", "print_health"))


@pytest.mark.parametrize(
    "line",
    [
        f"mlx5_core {BUS}: firmware version: 28.39.1002",
        f"mlx5_core {BUS}: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
        f"mlx5_core {BUS} enp59s0: Link up",
        f"mlx5_core {BUS}: Port module event: module 0, Cable plugged",
        f"mlx4_core {BUS}: Fatal error 1 detected",
    ],
)
def test_an_hca_at_work(line: str) -> None:
    assert mlx5_errors(line) is None


def test_an_hca_that_has_recovered_is_forgotten(tmp_path: Path) -> None:
    dead = f"mlx5_core {BUS}: poll_health:834:(pid 0): Fatal error 1 detected"
    well = f"mlx5_core {BUS}: mlx5_health_try_recover:335:(pid 9): health recovery succeeded"
    other = dead.replace("3b", "5e")
    host = machine(tmp_path, record(90, dead), record(80, other), record(70, well))
    assert [(e.bus, e.age) for e in read_device_errors(host, 5.0, mlx5_errors)] == [
        ("0000:5e:00.0", 80.0)
    ]


def test_a_log_that_may_not_be_read_says_nothing(tmp_path: Path) -> None:
    assert read_device_errors(Host(str(tmp_path)), 1.0, mlx5_errors) == ()
    assert silent_nfs_servers(Host(str(tmp_path)), 1.0) == ()
    assert memory_failures(Host(str(tmp_path)), 1.0) == ()
    assert soft_lockups(Host(str(tmp_path)), 1.0) == ()
    assert errors_by_kind(Host(str(tmp_path)), 1.0, mlx5_errors, mlx5_power) == ((), ())


POWER = f"mlx5_core {BUS}: mlx5_pcie_event:299:(pid 268269): "
LITTLE = f"{POWER}Detected insufficient power on the PCIe slot (27W)."
ENOUGH = f"{POWER}PCIe slot advertised sufficient power (75W)."
UNKNOWN = f"{POWER}PCIe slot power capability was not advertised."


def test_the_power_of_a_slot() -> None:
    few = DeviceError(BUS, "insufficient power on the PCIe slot (27 W)", False, 1, 0.0)
    assert mlx5_power(LITTLE) == few
    assert mlx5_power(ENOUGH) == mlx5_power(UNKNOWN) == DeviceError(BUS, "", False, 1, 0.0)
    assert mlx5_power(f"mlx5_core {BUS}: Port module event: module 0, Cable plugged") is None
    assert mlx5_power(LITTLE.replace("mlx5_core", "mlx4_core")) is None


@pytest.mark.parametrize("later", [ENOUGH, UNKNOWN])
def test_what_is_said_last_of_a_slot_counts(tmp_path: Path, later: str) -> None:
    dead = f"mlx5_core {BUS}: poll_health:834:(pid 0): Fatal error 1 detected"
    other = LITTLE.replace("3b", "5e")
    host = machine(
        tmp_path, record(90, LITTLE), record(85, dead), record(80, other), record(70, later)
    )
    found = read_device_errors(host, 5.0, mlx5_errors, mlx5_power, about=b"mlx5_core ")
    assert [(e.bus, e.fatal) for e in found] == [(BUS, True), ("0000:5e:00.0", False)]


TRYING = "nfs: server {} not responding, still trying"
GAVE_UP = "nfs: server {} not responding, timed out"
OK = "nfs: server {} OK"
HUNG = "INFO: task python:4242 blocked for more than 120 seconds."


def silent(root: Path, *lines: str) -> tuple[NfsSilence, ...]:
    return silent_nfs_servers(machine(root, *lines), 5.0)


def test_nfs_servers_that_do_not_respond(tmp_path: Path) -> None:
    assert silent(
        tmp_path,
        record(950, HUNG),
        record(900, TRYING.format("filer")),
        record(890, TRYING.format("10.0.0.9")),
        record(880, TRYING.format("filer")),
        record(870, OK.format("10.0.0.9")),
        record(700, HUNG),
        record(600, GAVE_UP.format("fd00::7")),
        record(500, OK.format("other")),
        record(400, GAVE_UP.format("program"), facility=1),  # a program's own words
    ) == (
        NfsSilence("filer", 2, trying=880.0, blocked=HUNG.rstrip(".")),
        NfsSilence("fd00::7", 1, gave_up=600.0),
    )


def test_an_nfs_server_that_responds_again(tmp_path: Path) -> None:
    lines = (record(90, TRYING.format("filer")), record(80, GAVE_UP.format("filer")))
    assert silent(tmp_path, *lines, record(70, OK.format("filer"))) == ()


@pytest.mark.parametrize(("apart", "known"), [(0.1, ()), (1.0, ("b",))])
def test_a_rate_limit_hides_who_is_back(
    tmp_path: Path, apart: float, known: tuple[str, ...]
) -> None:
    """Of all requests that are answered at once the kernel names the servers of ten."""
    lines = [record(90, TRYING.format("a")), record(90, TRYING.format("b"))]
    lines += [record(80 - apart * n, OK.format("a")) for n in range(BURST)]
    assert tuple(one.server for one in silent(tmp_path, *lines)) == known


def test_other_words_of_nfs(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        record(90, "lockd: server filer not responding, still trying"),
        record(80, "systemd: nfs: server filer not responding, still trying"),
        record(70, "NFS: nfs4_handle_reclaim_lease_error: unhandled error"),
    )
    assert silent_nfs_servers(host, 5.0) == ()


def test_thousands_of_servers_are_bounded(tmp_path: Path) -> None:
    lines = (record(9, TRYING.format(f"s{n}")) for n in range(3 * KEPT))
    assert len(silent(tmp_path, *lines)) == KEPT


def test_thousands_of_errors_are_counted_and_bounded(tmp_path: Path) -> None:
    lines = [
        record(9, f"mlx5_core 0000:{n % 256:02x}:{n // 256 % 32:02x}.0: Fatal error 1 detected")
        for n in range(9000)
    ]
    found = read_device_errors(machine(tmp_path, *lines), 90.0, mlx5_errors)
    assert len(found) == KEPT
    assert {e.count for e in found} <= {1, 2}


def test_an_nvswitch() -> None:
    said = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack timeout"
    assert switch_errors(said) == DeviceError(
        "0000:c1:00.0", "SXid 24007 (fatal): Link 44 sourcetrack timeout", True, 1, 0.0
    )
    weak = switch_errors(said.replace("Fatal", "Non-fatal"))
    assert weak is not None
    assert not weak.fatal
    data = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Data {0x0000002c, 0x00000000}"
    assert switch_errors(data) is None


def test_one_look_at_the_log_is_enough(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        record(90, "NVRM: Xid (PCI:0000:38:00): 74, pid=1, NVLink: fatal error detected on link 3"),
        record(80, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11012, Non-fatal, Link 7 x"),
        record(70, f"pcieport 0000:3a:01.0: AER: Corrected error received: {BUS}"),
        record(60, f"pcieport 0000:3a:01.0: AER: Corrected error received: {BUS}"),
    )
    log = read_xids(host, 5.0)
    assert [(x.bus, x.code) for x in log.xids] == [("0000:38:00.0", 74)]
    assert [(e.fatal, e.age) for e in log.switches] == [(False, 80.0)]
    assert [(e.bus, e.count, e.age) for e in log.links] == [(BUS, 2, 60.0)]


def test_memory_that_failed(tmp_path: Path) -> None:
    first = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)"
    killed = "Sending SIGBUS to python:4242 due to hardware memory corruption"
    host = machine(
        tmp_path,
        record(900, first),
        record(800, "EDAC MC1: 2 UE Multi-bit error on mc#1csrow#0channel#0"),
        record(700, "EDAC MC2: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0"),
        record(600, first.replace("Chan#1", "Chan#2")),
        record(500, f"Memory failure: 0x5f7a3c: {killed}"),
        record(400, f"program: Memory failure: 0x5f7a3c: {killed}"),
        record(300, first, facility=1),
    )
    assert memory_failures(host, 5.0) == (
        MemoryFailure("mc1", "EDAC MC1: 2 UE Multi-bit error on mc#1csrow#0channel#0", 800.0),
        MemoryFailure("mc0", first.replace("Chan#1", "Chan#2"), 600.0),
        MemoryFailure("", f"Memory failure: 0x5f7a3c: {killed}", 500.0),
    )


NETDEV = "mlx5_core 0000:9a:00.0 ibp154s0: "
STUCK = DeviceError("0000:9a:00.0", "TX timeout of ibp154s0", False, 1, 0.0)
SENDS = DeviceError("0000:9a:00.0", "", False, 1, 0.0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{NETDEV}TX timeout detected", STUCK),
        (f"{NETDEV}TX timeout on queue: 3, SQ: 0x13ae, CQ: 0x47d, SQ Cons: 0x0", STUCK),
        (f"{NETDEV}NETDEV WATCHDOG: CPU: 12: transmit queue 3 timed out 5016 ms", STUCK),
        (
            f"{NETDEV}mlx5e_safe_reopen_channels failed recovering from a tx_timeout, err(-5).",
            STUCK,
        ),
        ("mlx5_core 0000:9a:00.0 ibp154s0 (unregistering): TX timeout detected", STUCK),
        ("NETDEV WATCHDOG: ibp154s0 (mlx5_core): transmit queue 3 timed out", STUCK),
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", None),  # not here
        ("NETDEV WATCHDOG: ibp154s0 (bnxt_en): transmit queue 3 timed out", None),
        (f"{NETDEV}Link up", SENDS),
        (f"{NETDEV}Recovered 2 eqes on EQ 0x17", SENDS),
        (f"{NETDEV}Link down", None),
        ("mlx5_core 0000:9a:00.0: firmware version: 28.39.1002", SENDS),
        ("mlx5_core 0000:9a:00.0: Port module event: module 0, Cable plugged", None),
    ],
)
def test_an_interface_that_sends_nothing(text: str, found: DeviceError | None) -> None:
    assert mlx5_transmit(text, {"ibp154s0": "0000:9a:00.0"}) == found


def transmit(text: str) -> DeviceError | None:
    return mlx5_transmit(text, {})


def test_an_interface_that_sends_again_is_forgotten(tmp_path: Path) -> None:
    other = NETDEV.replace("9a", "3b")
    host = machine(
        tmp_path,
        record(900, f"{NETDEV}TX timeout detected"),
        record(890, f"{other}TX timeout detected"),
        record(880, f"mlx5_core {BUS}: poll_health:834:(pid 0): Fatal error 1 detected"),
        record(870, f"{NETDEV}Link up"),
        record(860, f"{other}Link up"),
        record(100, f"{other}TX timeout detected"),
    )
    dead, stuck = errors_by_kind(host, 5.0, mlx5_errors, transmit, about=b"mlx5_core")
    assert [one.bus for one in dead] == [BUS]
    assert stuck == (DeviceError("0000:3b:00.0", "TX timeout of ibp154s0", False, 1, 100.0),)


def test_stuck_cpus(tmp_path: Path) -> None:
    says = "watchdog: BUG: soft lockup - CPU#{} stuck for {}s! [{}:4242]"
    host = machine(
        tmp_path,
        record(900, says.format(1, 22, "kworker/1:2H")),
        record(800, "NMI watchdog: BUG: soft lockup - CPU#12 stuck for 26s!"),
        record(700, says.format(1, 44, "kworker/1:2H")),
        record(600, f"program: {says.format(2, 22, 'x')}"),
        record(500, says.format(2, 22, "x"), facility=1),
        record(400, "rcu: INFO: rcu_sched self-detected stall on CPU"),
    )
    assert soft_lockups(host, 5.0) == (
        SoftLockup(12, 26, "", 800.0),
        SoftLockup(1, 44, "kworker/1:2H", 700.0, 900.0),
    )


def test_stuck_cpus_are_bounded(tmp_path: Path) -> None:
    says = "BUG: soft lockup - CPU#{} stuck for 22s!"
    lines = (record(9, says.format(n)) for n in range(3 * KEPT))
    assert len(soft_lockups(machine(tmp_path, *lines), 5.0)) == KEPT
