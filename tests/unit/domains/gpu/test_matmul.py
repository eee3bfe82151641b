"""matmul: what a GPU computes is known beforehand; torch's CPU stands in for a GPU."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.compute_stand_in import Cuda, faulty

from preflight.domains.gpu import matmul
from preflight.domains.gpu.matmul import KINDS, VaryingBits
from preflight.domains.torch.devices import Devices


def stand_in(**changes: Any) -> Devices:
    return Devices(Cuda(**changes), "cpu")


def mm(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    import torch

    monkeypatch.setattr(torch, "mm", faulty(torch.mm, fault))


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_one_wrong_bit_is_seen(kind: matmul.NumberType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind.depth * kind.most**2 <= {"bf16": 2**8, "fp16": 2**11, "fp32": 2**24}[kind.name]
    mm(monkeypatch, "")
    assert matmul.exact_product(stand_in(), 0, kind) is None
    monkeypatch.undo()
    mm(monkeypatch, "flip")
    wrong = matmul.exact_product(stand_in(), 0, kind)
    assert wrong is not None
    assert (wrong.count, wrong.of, wrong.index) == (1, matmul.SIDE**2, 12345)
    assert wrong.got != wrong.wanted == int(wrong.wanted)


@pytest.mark.torch
def test_bits_that_change_once_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    mm(monkeypatch, "")
    digest, unlike, times = matmul.repeated_product(stand_in(), 0, KINDS[0], 0.0)
    assert (unlike, times) == (None, matmul.AT_LEAST)
    mm(monkeypatch, "third")
    again, unlike, times = matmul.repeated_product(stand_in(), 0, KINDS[0], 0.0)
    assert unlike == VaryingBits("bf16", 1, matmul.SIDE**2, 3)
    assert (again, times) == (digest, 3)
    mm(monkeypatch, "third")
    _, unlike = matmul.timed_products(stand_in(), 0, KINDS[2], 100 << 20, 0.0)
    assert unlike == VaryingBits("fp32", 1, 512**2, 2)
    mm(monkeypatch, "flip")
    other, unlike, _ = matmul.repeated_product(stand_in(), 0, KINDS[0], 0.0)
    assert unlike is None, "the same wrong bits each time: only other GPUs can tell"
    assert other != digest


@pytest.mark.torch
def test_what_comes_back_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    honest, turns = torch.Tensor.copy_, []

    def copy(target: Any, source: Any, **named: Any) -> Any:
        honest(target, source, **named)
        target[77] += 1
        return target

    gpu = stand_in()
    both, wrong = matmul.time_host_copies(gpu, 0, 100 << 20, 0.0, lambda: turns.append(1))
    assert (wrong, turns) == (None, [1])
    assert [r.kind for r in both] == ["to GPU, unpinned", "from GPU, unpinned"]
    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    _, wrong = matmul.time_host_copies(gpu, 0, 100 << 20, 0.0, lambda: None)
    assert wrong is not None
    assert (wrong.kind, wrong.count, wrong.index) == (matmul.BUS, 1, 77)


@pytest.mark.torch
def test_bits_of_what_is_no_number_are_compared() -> None:
    import torch

    nan = torch.full((4,), float("nan"), dtype=torch.bfloat16)
    assert matmul._compare_bits("bf16", nan, nan.clone(), 2) is None


@pytest.mark.torch
def test_the_pattern_is_the_same_everywhere() -> None:
    """The mixing, with Python's whole numbers, which have no width."""

    def mixed(number: int) -> int:
        for factor in (0x45D9F3B, 0x2C1B3C6D):
            number = ((number >> 16) ^ number) * factor & 0xFFFFFFFF
        return number >> 8 & 0xFFFF

    made = matmul.noise(20_000, 7).tolist()
    assert made == [mixed(n + 7 * 1_000_003) for n in range(20_000)]
    assert len(set(made)) > 15_000


@pytest.mark.torch
def test_a_slow_gpu_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, free = KINDS[2], 100 << 20
    fast, _ = matmul.timed_products(stand_in(), 0, kind, free, 0.0)
    mm(monkeypatch, "slow")
    slow, unlike = matmul.timed_products(stand_in(), 0, kind, free, 0.0)
    assert (fast.size, slow.size, unlike) == (512, 512, None)
    assert slow.rate < 2 * 512**3 / 0.2 / 1e12 * 1.01
    assert slow.rate < fast.rate


@pytest.mark.parametrize(
    ("free", "width", "n"),
    [
        (80 << 30, 2, 8192),
        (80 << 30, 4, 4096),
        (5 << 30, 2, 4096),
        (600 << 20, 2, 1024),
        (0, 2, 512),
    ],
)
def test_the_size_fits_the_memory(free: int, width: int, n: int) -> None:
    assert matmul.side(free, width) == n


def test_turns_come_to_everybody() -> None:
    for number in range(3):
        matmul.take_turns(number, 3)
        assert int(time.monotonic() / matmul.SLOT) % 3 == number
    matmul.take_turns(0, 1)
