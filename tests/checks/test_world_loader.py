"""world.loader: batches that come are silent; why a worker dies is named."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import misbehave
from support.cases import Case, assert_case, context, world
from support.ranks import run_ranks

from preflight.check import conforms
from preflight.checks import world_loader
from preflight.checks.world_loader import LoaderRate, Loading, usable_cpus
from preflight.domains.torch.steps import Steps, Trouble
from preflight.expect import Expect
from preflight.host import Host
from preflight.model import CannotObserve, Cause, Mark, Missing, Status
from preflight.serde import decode

conforms(world_loader)

RATES = (
    LoaderRate(0, False, 380.0, 0.01),
    LoaderRate(1, False, 230.0, 0.03),
    LoaderRate(4, False, 800.0, 0.05),
)
FINE = Loading(cpus=16.0, ranks=4, advised=4, rates=RATES)


def failed(text: str, step: str = "4 workers") -> Loading:
    return dataclasses.replace(FINE, trouble=Trouble(step, "RuntimeError", text))


def ended(cause: Cause, step: str, detail: str = "no answer in 20.0 s, killed") -> Missing:
    marks = tuple(Mark(name, 0.0) for name in ("0 workers", step))
    return Missing(cause, f"Fatal Python error: …\n{detail}", 20.0, marks)


BUS = (
    "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
NO_SPACE = (
    "Caught RuntimeError in DataLoader worker process 0. RuntimeError: unable to allocate shared "
    "memory(shm) for file </torch_812_1_0>: No space left on device (28)"
)
REFUSED = "unable to open shared memory object </torch_812_1> in read-write mode: Permission denied"
PINNED = "Caught RuntimeError in pin memory thread for device 0. CUDA error: invalid argument"
KILLED = "DataLoader worker (pid 812) is killed by signal: Killed. "

CASES = (
    Case("batches", FINE),
    Case("one worker that does not pay", dataclasses.replace(FINE, advised=1, rates=RATES[:2])),
    Case("blocked", Missing(Cause.BLOCKED, by="host.limits")),
    Case("SIGBUS", failed(BUS), "shm-full", Status.FAIL, subject="n1"),
    Case("no space", failed(NO_SPACE), "shm-full", Status.FAIL),
    Case(
        "the reader's own SIGBUS", ended(Cause.CRASHED, "1 worker", "killed by SIGBUS"), "shm-full"
    ),
    Case("mode of /dev/shm", failed(REFUSED), "shm-unusable", Status.FAIL),
    Case("descriptors", failed("received 0 items of ancdata"), "files-few", Status.FAIL),
    Case("OOM", failed(KILLED), "worker-died", Status.FAIL),
    Case("gone", failed("DataLoader worker (pid(s) 8) exited unexpectedly"), "worker-died"),
    Case("slow", failed("DataLoader timed out after 5 seconds"), "worker-hung", Status.FAIL),
    Case("deadlock", ended(Cause.TIMED_OUT, "4 workers"), "worker-hung", Status.FAIL),
    Case("no start", failed("1 of 4 workers did not start within 8.0 s"), "worker-hung"),
    Case("slow imports say nothing", ended(Cause.TIMED_OUT, "imports of workers")),
    Case("pinning", failed(PINNED, "4 workers, pinned"), "pin-failed", Status.FAIL),
    Case("else", failed("a text that nobody knows"), "loader-failed", Status.FAIL),
    Case("slow without workers says nothing", ended(Cause.TIMED_OUT, "0 workers")),
    Case("CUDA hangs: gpu.visible's affair", ended(Cause.TIMED_OUT, "CUDA")),
    Case(
        "Ctrl-C",
        dataclasses.replace(ended(Cause.INTERRUPTED, "1 worker"), detail="interrupted by SIGINT"),
    ),
    Case("our bug", ended(Cause.CRASHED, "1 worker", "TypeError: ours")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(world_loader, case)


@pytest.mark.parametrize(
    ("said", "looks"),
    [
        ((), 1),
        (("DataLoader timed out after 5.0 seconds",), 2),
        (("1 of 1 worker did not start within 5.0 s",), 2),
        ((BUS,), 1),
    ],
)
def test_a_worker_that_is_late_gets_a_second_look(
    said: tuple[str, ...], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other workers and more patience; any other trouble is told at once."""
    troubles, patience = list(said), []

    def read(workers: int, pinned: bool, seconds: float) -> LoaderRate:
        patience.append(seconds)
        if troubles:
            raise RuntimeError(troubles.pop())
        return RATES[1]

    monkeypatch.setattr(world_loader, "_read_batches", read)
    ctx = context(seconds=20.0)
    steps = Steps(ctx)
    with steps.until_trouble():
        world_loader._read_patiently(ctx, steps, 1, False)
    assert len(patience) == looks
    assert patience == sorted(patience)
    assert (steps.trouble is None) == (said != (BUS,))


def test_all_workers_have_to_start() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"11")
    world_loader._wait_for_start(reader, 2, 5.0)
    os.write(writer, b"1")
    with pytest.raises(RuntimeError, match="1 of 2 workers did not start"):
        world_loader._wait_for_start(reader, 2, 0.05)


def test_the_quota_counts_as_well_as_the_mask(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0-15\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    assert usable_cpus(Host(str(tmp_path))) == 16
    (group / "cpu.max").write_text("250000 100000\n")
    assert usable_cpus(Host(str(tmp_path))) == 2.5


class Starving(world_loader.Pictures):
    """Its workers have no CPU for their first item."""

    def __getitem__(self, index: int) -> object:
        misbehave.spin_beside(20.0)
        return super().__getitem__(index)


@pytest.mark.torch
def test_a_worker_that_has_no_cpu_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_loader, "Pictures", Starving)
    ctx = context(seconds=3.0)
    with pytest.raises(CannotObserve, match="too little CPU time"):
        world_loader._read_patiently(ctx, Steps(ctx), 1, False)


@pytest.mark.torch
def test_batches_come() -> None:
    seen = run_ranks("world.loader", 1)
    assert list(world_loader.judge(seen, Expect())) == []
    (loading,) = seen.seen.values()
    assert [r.workers for r in loading.rates] == sorted({0, 1, loading.advised})
    assert all(r.batches_s > 0 for r in loading.rates)
    assert "advised" in world_loader.measured(seen).text


SMALL_SHM = """
mount -t tmpfs -o size=1m tmpfs /dev/shm || exit 77
exec "$@"
"""
LOOK = """
import json, os
from support.cases import context
from preflight.checks import world_loader
from preflight.serde import encode
from preflight.host import Host
seen = encode(world_loader.observe(Host(), context(seconds=10.0)))
print(json.dumps([seen, os.listdir("/dev/shm")]))
"""


@pytest.mark.torch
@pytest.mark.root
def test_a_full_dev_shm_is_named() -> None:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to mount a small /dev/shm")
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", SMALL_SHM, "sh", sys.executable, "-c", LOOK],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ended.returncode == 77 or ended.stderr.startswith("unshare:"):
        pytest.skip("no mount namespaces here")
    assert ended.returncode == 0, ended.stderr
    told, left = json.loads(ended.stdout)
    seen = decode(Loading, told)
    (finding,) = world_loader.judge(world("world.loader", seen), Expect())
    assert finding.code == "shm-full"
    assert "with 1 worker: " in finding.saw
    assert not left, "torch creates a file, and leaves it when /dev/shm is full"


@pytest.mark.parametrize(
    ("rates", "advised"),
    [
        ((200.0, 190.0, 150.0), 0),  # items that cost nothing
        ((100.0, 95.0, 300.0), 4),
        ((100.0, 280.0, 300.0), 1),  # more of them add next to nothing
        ((0.0, 0.0, 0.0), 0),
    ],
)
def test_it_advises_what_it_has_measured(rates: tuple[float, ...], advised: int) -> None:
    seen = tuple(LoaderRate(n, False, rate, 0.1) for n, rate in zip((0, 1, 4), rates, strict=True))
    measured = world_loader.measured(world("world.loader", dataclasses.replace(FINE, rates=seen)))
    assert f"advised {advised} for each rank" in measured.text
