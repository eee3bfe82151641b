"""The looks at the node's GPUs, with a driver's library that is none, and whose GPU is which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lab import amd, nvml

from preflight.domains.job.gpu_use import GpuLook, WatchedGpu
from preflight.rehearsal import gpu_looks
from preflight.rehearsal.gpu_looks import FILE, gpu_of, read_looks

LOOK = """
import sys
from preflight.host import Host
from preflight.rehearsal import gpu_looks

class Channel:
    left = 3
    def hear(self, topic, count, seconds):
        Channel.left -= 1
        return {-1: 0.0} if Channel.left < 0 else {}

machine = Host(sys.argv[2] or "/")
machine.live = True  # the files of the tree, but the libraries of this machine
gpu_looks.Host = lambda: machine
print(gpu_looks.look_until_over({"folder": sys.argv[1]}, Channel(), None))
"""
"""Three looks, without the time between them."""


def started(folder: Path, environ: Mapping[str, str], root: str = "") -> subprocess.Popen[str]:
    paths = [environ.get("PYTHONPATH", ""), str(nvml.TESTS.parent)]
    return subprocess.Popen(
        [sys.executable, "-c", LOOK, str(folder), root],
        env={**os.environ, **environ, "PYTHONPATH": ":".join(p for p in paths if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def looked(folder: Path, environ: Mapping[str, str], root: str = "") -> str:
    process = started(folder, environ, root)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out.strip()


def scenario(folder: Path, count: int = 2, **changes: object) -> dict[str, str]:
    lines = {name.replace("__", "."): value for name, value in changes.items()}
    return nvml.environment(nvml.settings(count, lines), folder / "scenario")


def test_nvml_is_asked_and_what_it_says_is_read(tmp_path: Path) -> None:
    environ = scenario(tmp_path, gpu1__busy=95, gpu1__clock_now=1755, gpu1__power=650_000)
    assert looked(tmp_path, environ) == "3"
    idle, busy = read_looks(str(tmp_path))
    assert (idle.index, idle.name, idle.bus) == (0, "NVIDIA H100 80GB HBM3", "0000:18:00.0")
    assert busy.uuid == "GPU-1a2b3c01-5f9e-4c1d-8a3b-0123456789ab"
    assert busy.memory == 85520809984
    assert [look.busy for look in idle.looks] == [0.0] * 3
    assert {(x.busy, x.clock, x.used, x.power) for x in busy.looks} == {
        (0.95, 1755, 524288000, 650)
    }


def test_what_one_gpu_does_not_tell_costs_the_others_nothing(tmp_path: Path) -> None:
    assert looked(tmp_path, scenario(tmp_path, 3, gpu1__error=15, busy=50)) == "3"
    assert [gpu.index for gpu in read_looks(str(tmp_path))] == [0, 2]


def test_a_gpu_that_is_lost_meanwhile(tmp_path: Path) -> None:
    assert looked(tmp_path, scenario(tmp_path, gpu1__lost_after=9, busy=50)) == "3"
    _, lost = read_looks(str(tmp_path))
    assert lost.looks[0].busy == 0.5
    assert lost.looks[-1].busy is None


def test_a_driver_that_does_not_start_gives_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, scenario(tmp_path, error__nvmlInit=999))
    process.communicate(timeout=60)
    assert read_looks(str(tmp_path)) == ()


def test_without_a_gpu_nobody_looks(tmp_path: Path) -> None:
    assert looked(tmp_path, {}, root=str(tmp_path)) == "0"


def test_of_a_driver_that_hangs_the_looks_before_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "scenario"
    environ = scenario(tmp_path, busy=50)
    environ |= {"FAKE_NVML": str(file)}
    with file.open("a") as more:
        more.write("gpu0.hang.nvmlDeviceGetPowerUsage = 1\n")
    process = started(tmp_path, environ)
    try:
        until = time.monotonic() + 60
        while not (tmp_path / FILE).exists() and time.monotonic() < until:
            time.sleep(0.05)
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=1.0)
    finally:
        process.kill()
        process.communicate()
    assert [gpu.looks for gpu in read_looks(str(tmp_path))] == [(), ()]


def test_amdsmi_is_asked_where_there_is_no_nvml(tmp_path: Path) -> None:
    board = amd.Board(gpus=2)
    changes = {
        0: {"amdsmi_get_gpu_activity": {"gfx_activity": 88}},
        1: {"amdsmi_get_gpu_activity": {"gfx_activity": "N/A"}, "amdsmi_get_power_info": "N/A"},
    }
    packages = amd.package(tmp_path / "python", {"gpus": amd.gpus(board, changes)})
    root = amd.machine(tmp_path / "root", board)
    assert looked(tmp_path, {"PYTHONPATH": str(packages)}, root=str(root)) == "3"
    busy, untold = read_looks(str(tmp_path))
    assert (busy.name, busy.bus, busy.memory >> 30) == ("AMD Instinct MI300X", amd.bus(0), 191)
    assert {(x.busy, x.clock, x.used, x.power) for x in busy.looks} == {(0.88, 132, 283 << 20, 750)}
    assert {(x.busy, x.power) for x in untold.looks} == {(None, None)}


def test_without_amdsmi_nobody_looks(tmp_path: Path) -> None:
    root = amd.machine(tmp_path / "root", amd.Board(gpus=2))
    assert looked(tmp_path, {}, root=str(root)) == "0"


# --- whose is which ---

UUIDS = [f"GPU-{0x1A2B3C00 + n:08x}-5f9e-4c1d-8a3b-0123456789ab" for n in range(4)]
FOUR = [WatchedGpu(n, "H100", UUIDS[n], f"0000:{0x18 + 0x10 * n:02x}:00.0") for n in range(4)]
MIXED = [*FOUR[:3], WatchedGpu(3, "L4", UUIDS[3], "0000:48:00.0")]


@pytest.mark.parametrize(
    ("device", "gpus", "index"),
    [
        ({"number": 0, "uuid": UUIDS[2].removeprefix("GPU-"), "mask": "0"}, FOUR, 2),
        ({"number": 1, "bus": "0000:48:00.0"}, FOUR, 3),
        ({"number": 1, "mask": None}, FOUR, 1),
        ({"number": 1, "mask": "3,2"}, FOUR, 2),
        ({"number": 0, "mask": UUIDS[3]}, FOUR, 3),
        ({"number": 0, "mask": "MIG-8a1b"}, FOUR, None),
        ({"number": 2, "mask": "3,2"}, FOUR, None),
        ({"number": 0, "mask": "0,0"}, FOUR, None),
        # CUDA counts the fastest first, the driver by the bus
        ({"number": 1, "mask": None}, MIXED, None),
        ({"number": 1, "uuid": UUIDS[3].removeprefix("GPU-")}, MIXED, 3),
        # of another kind than the driver's, such as a part of a GPU
        ({"number": 0, "uuid": "8a1b0000-0000-0000-0000-000000000000"}, FOUR, None),
        ({"number": "0"}, FOUR, None),
        ({"number": -1, "mask": None}, FOUR, None),
        ({}, FOUR, None),
        ({"number": 0}, [], None),
    ],
)
def test_the_gpu_that_torch_means(
    device: Mapping[str, Any], gpus: list[WatchedGpu], index: int | None
) -> None:
    found = gpu_of(device, gpus)
    assert (found.index if found else None) == index


# --- what the command may have written there ---


def written(folder: Path, *lines: object) -> tuple[WatchedGpu, ...]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / FILE).write_text("\n".join([*texts, ""]))
    return read_looks(str(folder))


GPU = {"gpus": [[0, "H100", "GPU-1", "0000:18:00.0", 80 << 30]]}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        [],
        {"at": "soon", "looks": [[0.5, 1, 2, 3]]},
        {"at": 1.0},
        {"at": -1, "looks": [[0.5, 1, 2, 3]]},
        {"at": 1.0, "looks": {"a": 1}},
    ],
)
def test_a_line_that_is_none(tmp_path: Path, line: object) -> None:
    (gpu,) = written(tmp_path, GPU, line)
    assert gpu.looks == ()


def test_numbers_that_are_none(tmp_path: Path) -> None:
    (gpu,) = written(
        tmp_path,
        GPU,
        {"at": 1.0, "looks": [[7.0, True, -5, 1e300]]},
        '{"at": 2.0, "looks": [[NaN, 1, 2, 3]]}',
        {"at": 3.0, "looks": ["x"]},
    )
    assert gpu.looks == (GpuLook(1.0, busy=1.0), GpuLook(3.0))


def test_texts_are_of_one_line(tmp_path: Path) -> None:
    (gpu,) = written(tmp_path, {"gpus": [[0, "H100\x1b[31m\nFAIL", "u", "b", 1]]})
    assert "\n" not in gpu.name
    assert "\x1b" not in gpu.name


@pytest.mark.parametrize("first", ["", "[]", '{"gpus": 3}', '{"gpus": [3]}', "x" * 5000])
def test_a_head_that_is_none(tmp_path: Path, first: str) -> None:
    assert all(gpu.index < 0 for gpu in written(tmp_path, first))


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    assert read_looks(str(tmp_path)) == ()


def test_looks_are_rarer_the_longer_it_takes() -> None:
    """An hour has at most a thousand of them."""
    seconds, count = 0.0, 0
    while seconds < 3600:
        count += 1
        seconds += gpu_looks.EVERY * 2 ** (count // gpu_looks.HALVED)
    assert count < 1000
