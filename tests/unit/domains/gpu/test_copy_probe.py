"""Copies between stand-ins of GPUs, with faults in the copying: each is seen and named, and nothing
is where there is none."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support.cases import Case, judged
from support.copies_stand_in import (
    SMALL,
    Cuda,
    Fault,
    Killed,
    Machine,
    Rigged,
    blocks,
    cut,
    hangs,
    nothing,
    one_bit,
    poisons,
    raises,
    shifted,
    stale,
    swapped,
    too_many,
    zeros,
)

from preflight.checks import gpu_p2p
from preflight.domains.gpu import copy_probe, copy_results, nvlink
from preflight.domains.gpu.nvlink import GpuTopology, Lane, LinkedGpu
from preflight.humanize import GIB, MIB
from preflight.model import CannotObserve, Cause, Mark, Missing, NotApplicable, Status
from preflight.process.call import MARKS_LIMIT

torch = pytest.importorskip("torch")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


# --- nothing is wrong ---


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_healthy_gpus(machine: Machine, count: int) -> None:
    seen = machine.observe(count)
    assert not judged(gpu_p2p, Case("", seen))
    pairs = [copy.pair for copy in seen.copies]
    assert sorted(pairs) == list(itertools.permutations(range(count), 2))
    assert all(copy.exact and copy.peer and copy.rate for copy in seen.copies)
    once = [f"copy {c}" for c in seen.copies]
    assert [m for m in machine.marks if m.startswith("copy")] == 2 * once


def test_slow_ones(machine: Machine) -> None:
    assert not machine.findings(4, rates=lambda source, target: 0.6e9)


def test_nccl_that_does_without(machine: Machine) -> None:
    """Who has taken the way out may start; what goes through the host's memory must be right."""
    environ = {"NCCL_P2P_DISABLE": "1"}
    (finding,) = machine.findings(4, {(1, 0): zeros}, environ=environ)
    assert (finding.code, finding.status) == ("copy-wrong", Status.WARN)
    assert finding.saw.endswith(" · NCCL is told to do without")
    (finding,) = machine.findings(4, {(1, 0): hangs}, environ=environ)
    assert (finding.code, finding.status) == ("copy-hangs", Status.WARN)
    for changes in ({"environ": {"NCCL_P2P_DISABLE": "0"}}, {"peers": lambda one, other: False}):
        (finding,) = machine.findings(4, {(1, 0): zeros}, **({"environ": environ} | changes))
        assert finding.status is Status.FAIL
    machine.marks.clear()
    with pytest.raises(Killed):
        machine.observe(2, {(1, 0): blocks}, environ=environ)
    marks = tuple(Mark(name, 2.0) for name in machine.marks)
    (finding,) = judged(gpu_p2p, Case("", Missing(Cause.TIMED_OUT, seconds=60.0, marks=marks)))
    assert (finding.code, finding.status) == ("copy-hangs", Status.WARN)


def test_sockets_that_differ(machine: Machine) -> None:
    def rates(source: int, target: int) -> float:
        return 25e9 if source // 2 == target // 2 else 8e9 if source < target else 5e9

    assert not machine.findings(4, rates=rates)


def test_without_peer_access(machine: Machine) -> None:
    seen = machine.observe(3, peers=lambda one, other: False)
    assert not judged(gpu_p2p, Case("", seen))
    assert {copy.peer for copy in seen.copies} == {False}


def test_the_speed_is_measured(machine: Machine) -> None:
    seen = machine.observe(2, rates=lambda source, target: 10e9 if source else 40e9)
    rates = {copy.pair: copy.rate for copy in seen.copies}
    assert rates[0, 1] == pytest.approx(40e9, rel=0.02)
    assert rates[1, 0] == pytest.approx(10e9, rel=0.02)


def test_a_disturbance_does_not_count(machine: Machine) -> None:
    """Something slows a pair down while it is timed first."""

    def rates(source: int, target: int) -> float:
        return 1e9 if source and copy_probe.AGAIN not in machine.marks else 20e9

    assert not machine.findings(2, rates=rates)


def test_cuda_maps_no_more_peers(machine: Machine) -> None:
    seen = machine.observe(3, {(2, 0): too_many})
    assert not judged(gpu_p2p, Case("", seen))
    assert sum(copy.beyond for copy in seen.copies) == 1
    assert sum(copy.exact for copy in seen.copies) == 5


def test_one_gpu_has_no_pair(machine: Machine) -> None:
    with pytest.raises(NotApplicable, match="no pair"):
        machine.observe(1)


def test_cuda_that_does_not_even_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Cuda) -> int:
        raise RuntimeError("CUDA error: system not yet initialized")

    monkeypatch.setattr(Cuda, "device_count", fails)
    with pytest.raises(CannotObserve, match="not yet initialized"):
        machine.observe(2)


# --- something is ---

CONTENT = {
    nothing: "nothing arrived",
    zeros: "zeros arrived",
    shifted: "all words wrong",
    swapped: "1024 of 524288 words wrong from byte 0 on",
    stale: "all words wrong",
    one_bit: "1 of 524288 words wrong from byte 4194296 on",
    cut: "1 of 524288 words wrong from byte 4194296 on: nothing arrived",
}


@pytest.mark.parametrize("fault", CONTENT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("count", [2, 4])
def test_content(machine: Machine, fault: Fault, count: int) -> None:
    (finding,) = machine.findings(count, {(1, 0): fault})
    assert (finding.code, finding.status) == ("copy-wrong", Status.FAIL)
    assert CONTENT[fault] in finding.saw
    assert [s.name for s in finding.subjects] == ["GPU 0", "GPU 1"]
    assert any(mark.startswith("wrong 1->0: ") for mark in machine.marks)


@pytest.mark.parametrize("every", [5, 13, 22])
def test_content_that_is_wrong_now_and_then(machine: Machine, every: int) -> None:
    """The first copy of a pair is right."""
    asked = itertools.count(1)

    def now_and_then(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
        into.copy_(data)
        if next(asked) % every == 0:
            into[-1] ^= 1 << 41

    (finding,) = machine.findings(4, {(1, 0): now_and_then}, rates=lambda source, target: 1e9)
    assert finding.code == "copy-wrong"
    assert [s.name for s in finding.subjects] == ["GPU 0", "GPU 1"]


@pytest.mark.parametrize("fault", CONTENT, ids=lambda f: f.__name__)
def test_the_content_of_one_gpu_with_all(machine: Machine, fault: Fault) -> None:
    faults = {pair: fault for pair in itertools.permutations(range(4), 2) if 2 in pair}
    (finding,) = machine.findings(4, faults)
    assert finding.code == "copy-wrong"
    assert [s.name for s in finding.subjects] == ["GPU 2"]


def test_what_the_host_reads_is_compared_too(machine: Machine) -> None:
    """The GPU itself finds its memory right, and the host something else there."""

    class Lying(torch.Tensor):  # type: ignore[misc, name-defined]
        def __ne__(self, other: object) -> Any:
            return torch.zeros(1)

    def lies(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
        into.zero_()
        into.__class__ = Lying

    (finding,) = machine.findings(2, {(1, 0): lies})
    assert finding.code == "copy-wrong"
    assert "wrong when the host reads it" in finding.saw


def test_an_error_leaves_the_other_pairs(machine: Machine) -> None:
    (finding,) = machine.findings(4, {(0, 3): raises})
    assert finding.code == "copy-fails"
    assert finding.saw == "GPU 0->3, of 12 pairs: CUDA error: peer access is not supported"
    assert "failed 0->3: CUDA error: peer access is not supported" in machine.marks


def test_an_error_that_ends_cuda_accuses_nobody_else(machine: Machine) -> None:
    (finding,) = machine.findings(4, {(1, 3): poisons})
    assert finding.code == "copy-fails"
    assert [s.name for s in finding.subjects] == ["GPU 1", "GPU 3"]
    assert "6 of 12 pairs were not tried: CUDA does nothing more after 1->3" in finding.saw


def test_a_copy_that_does_not_end(machine: Machine) -> None:
    (finding,) = machine.findings(4, {(1, 3): hangs})
    assert (finding.code, finding.status) == ("copy-hangs", Status.FAIL)
    assert [s.name for s in finding.subjects] == ["GPU 1", "GPU 3"]
    assert finding.saw.startswith("the copy from GPU 1 to GPU 3 has not ended in 12.0 s · 6 of 12")


def test_a_copy_that_does_not_end_when_it_is_timed(machine: Machine) -> None:
    def later(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
        into.copy_(data)
        if copy_probe.AGAIN in machine.marks:
            hangs(rig, source, target, data, into)

    (finding,) = machine.findings(4, {(1, 3): later})
    assert finding.code == "copy-hangs"
    assert [s.name for s in finding.subjects] == ["GPU 1", "GPU 3"]


def test_a_copy_that_blocks_the_worker_when_it_is_timed(machine: Machine) -> None:
    def later(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
        into.copy_(data)
        if copy_probe.AGAIN in machine.marks:
            blocks(rig, source, target, data, into)

    with pytest.raises(Killed):
        machine.observe(4, {(1, 3): later})
    marks = tuple(Mark(name, 2.0) for name in machine.marks)
    lost = Missing(Cause.TIMED_OUT, seconds=60.0, marks=marks)
    (finding,) = judged(gpu_p2p, Case("", lost))
    assert finding.code == "copy-hangs"
    assert [s.name for s in finding.subjects] == ["GPU 1", "GPU 3"]


def test_a_copy_that_blocks_the_worker(machine: Machine) -> None:
    """All that is left of the observation are its marks."""
    with pytest.raises(Killed):
        machine.observe(4, {(1, 3): blocks, (2, 3): zeros})
    marks = tuple(Mark(name, 2.0) for name in machine.marks)
    lost = Missing(Cause.TIMED_OUT, "no answer in 60 s, killed", 60.0, marks)
    wrong, hang = judged(gpu_p2p, Case("", lost))
    assert (wrong.code, hang.code) == ("copy-wrong", "copy-hangs")
    assert "GPU 2->3, of 5 pairs: all words wrong" in wrong.saw
    assert [s.name for s in hang.subjects] == ["GPU 1", "GPU 3"]


def test_one_way_is_slow(machine: Machine) -> None:
    (finding,) = machine.findings(
        4, rates=lambda source, target: 3e9 if (source, target) == (2, 1) else 20e9
    )
    assert finding.code == "copy-slow"
    assert finding.saw == "GPU 2->1 3.0 GB/s"


def test_memory_that_is_taken(machine: Machine) -> None:
    (finding,) = machine.findings(3, memory={1: 20 * MIB})
    assert (finding.code, finding.status) == ("copies-skipped", Status.UNDECIDED)
    assert finding.saw == "only 20 MiB of its memory are free"
    assert [s.name for s in finding.subjects] == ["GPU 1"]


def test_a_gpu_that_cuda_does_not_start(machine: Machine) -> None:
    (finding,) = machine.findings(3, broken={2: "CUDA error: all devices are busy or unavailable"})
    assert finding.code == "copies-skipped"
    assert [s.name for s in finding.subjects] == ["GPU 2"]


def test_time_that_is_not_enough_is_said(machine: Machine) -> None:
    found = machine.findings(8, seconds=5.0, rates=lambda source, target: 1e9)
    (finding,) = found
    assert finding.code == "copies-skipped"
    assert "of 56 pairs were not tried: there was no time for more" in finding.saw
    # all GPUs have had their turn
    tried = [mark for mark in machine.marks if mark.startswith("copy ")]
    assert {name.split("->")[-1] for name in tried} == {str(n) for n in range(8)}


def test_memory_decides_how_large_a_block_is(machine: Machine) -> None:

    def block(**memory: int) -> int:
        """No time to use it."""
        free = dict(enumerate(memory.values()))
        return machine.observe(2, memory=free, seconds=0.0).block

    assert block(one=SMALL, other=GIB) == copy_probe.LEAST
    assert block(one=GIB, other=130 * MIB) == 16 * MIB
    assert block(one=GIB, other=2 * GIB) == copy_results.BLOCK
    assert block(one=GIB, other=20 * MIB) == copy_results.BLOCK  # the other takes no part


# --- what it stands on ---


def test_every_word_of_every_pair_differs() -> None:
    """Also from what stands in its place before, and from zero."""
    words = torch.arange(copy_results.BLOCK // copy_probe.WORD, dtype=torch.int64).mul_(
        copy_probe.MULTIPLIER
    )
    assert int(words.min()) == 0
    assert int((words[1:] <= words[:-1]).sum()) == 0  # nothing has overflowed
    salts = {copy_probe.salt_of(*pair) for pair in itertools.permutations(range(64), 2)}
    assert len(salts) == 64 * 63
    assert min(salts) > 0
    assert max(salts) < 1 << 63


@pytest.mark.parametrize("count", range(2, 17))
def test_the_first_pairs_touch_every_gpu(count: int) -> None:
    pairs = copy_probe.pair_order(range(count))
    assert sorted(pairs) == list(itertools.permutations(range(count), 2))
    assert {source for source, _ in pairs[:count]} == set(range(count))
    assert {target for _, target in pairs[:count]} == set(range(count))


def test_marks_never_overflow() -> None:
    """A mark that is lost would let an earlier copy pass for the last one."""
    gpus = next(n for n in itertools.count() if n * (n - 1) > copy_probe.MOST)
    assert 2 * copy_probe.MOST + copy_probe.TELLING + 2 * nvlink.GPUS_MAX + gpus + 8 <= MARKS_LIMIT


def linked(count: int, lanes: int, kind: int = nvlink.SWITCH) -> GpuTopology:
    gpus = tuple(
        LinkedGpu(
            n,
            "H100",
            f"GPU-{n}",
            f"0000:{n:02x}:00.0",
            mig=False,
            virtual=0,
            lanes=tuple(
                Lane(i, active=True, remote="0000:01:00.0", kind=kind) for i in range(lanes)
            ),
        )
        for n in range(count)
    )
    pairs = tuple(
        nvlink.Pair(*ends, level=nvlink.SINGLE) for ends in itertools.combinations(range(count), 2)
    )
    return GpuTopology(count=count, gpus=gpus, pairs=pairs)


def test_what_joins_two_gpus() -> None:
    assert set(copy_probe.pair_paths(linked(3, 18)).values()) == {"NVLink 18"}
    assert len(copy_probe.pair_paths(linked(3, 18))) == 6
    assert set(copy_probe.pair_paths(linked(3, 0)).values()) == {"PIX"}
    direct = copy_probe.pair_paths(linked(3, 4, kind=0))
    assert direct[0, 1] == "NVLink 4"
    assert direct[0, 2] == "PIX"
    assert copy_probe.pair_paths(GpuTopology()) == {}


def test_gpus_are_called_as_nvml_calls_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES=2,0: torch's device 0 is NVML's GPU 2."""
    monkeypatch.setattr(nvlink, "read_topology", lambda host, mark, seconds: linked(3, 18))
    seen = machine.observe(2, {(0, 1): zeros}, uuids={0: "2", 1: "0"})
    assert [party.number for party in seen.parties] == [2, 0]
    assert [str(copy) for copy in seen.copies if copy.wrong] == ["2->0"]
    assert {copy.way for copy in seen.copies} == {"NVLink 18"}
    assert "copy 2->0" in machine.marks
    # one that NVML doesn't know: two would have the same number
    seen = machine.observe(2, uuids={0: "1"})
    assert [party.number for party in seen.parties] == [0, 1]
    assert {copy.way for copy in seen.copies} == {""}
