"""products, computing, alike: what a GPU computes is known beforehand, and who is behind is found.
There is no GPU: torch's CPU stands in for one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from compute_stand_in import COUNT, Cuda, faulty
from hypothesis import given
from hypothesis import strategies as st
from support import context, topology

from preflight.domains.gpu import compute_outliers as alike
from preflight.domains.gpu import compute_probe as computing
from preflight.domains.gpu import matmul as products
from preflight.domains.gpu.matmul import KINDS, Unlike
from preflight.domains.torch.devices import Devices
from preflight.host import Host
from preflight.model import CannotObserve, Fact, Node, NotApplicable

MODEL = "NVIDIA H100 80GB HBM3"


@given(
    st.lists(st.floats(0.95, 1.05), min_size=4, max_size=64),
    st.floats(0.05, 0.75),
    st.data(),
)
def test_the_slow_one_of_any_number_is_found_and_no_other(
    spread: list[float], slow: float, data: st.DataObject
) -> None:
    sound = {f"n{n // 8}/{n}": {"bf16 of 8192": 600 * by} for n, by in enumerate(spread)}
    models = dict.fromkeys(sound, MODEL)
    assert alike.behind(sound, models, ["bf16"]) == {}
    culprit = data.draw(st.sampled_from(sorted(sound)))
    found = alike.behind(sound | {culprit: {"bf16 of 8192": 570 * slow}}, models, ["bf16"])
    # of a few that scatter, even far is not far enough
    assert set(found) <= {culprit}
    if len(spread) >= 8 and slow < 0.5:
        assert set(found) == {culprit}


def stand_in(**changes: Any) -> Devices:
    return Devices(Cuda(**changes), "cpu")


def mm(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    import torch

    monkeypatch.setattr(torch, "mm", faulty(torch.mm, fault))


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_one_wrong_bit_is_seen(kind: products.Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind.depth * kind.most**2 <= {"bf16": 2**8, "fp16": 2**11, "fp32": 2**24}[kind.name]
    assert products.exact(stand_in(), 0, kind) is None
    mm(monkeypatch, "flip")
    wrong = products.exact(stand_in(), 0, kind)
    assert wrong is not None
    assert (wrong.count, wrong.of, wrong.index) == (1, products.SIDE**2, 12345)
    assert wrong.got != wrong.wanted == int(wrong.wanted)


@pytest.mark.torch
def test_bits_that_change_once_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, unlike, times = products.repeated(stand_in(), 0, KINDS[0], 0.0)
    assert (unlike, times) == (None, products.AT_LEAST)
    mm(monkeypatch, "third")
    again, unlike, times = products.repeated(stand_in(), 0, KINDS[0], 0.0)
    assert unlike == Unlike("bf16", 1, products.SIDE**2, 3)
    assert (again, times) == (digest, 3)
    mm(monkeypatch, "third")
    _, unlike = products.timed(stand_in(), 0, KINDS[2], 100 << 20, 0.0)
    assert unlike == Unlike("fp32", 1, 512**2, 2)
    mm(monkeypatch, "flip")
    other, unlike, _ = products.repeated(stand_in(), 0, KINDS[0], 0.0)
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
    both, wrong = products.moved(gpu, 0, 100 << 20, 0.0, lambda: turns.append(1))
    assert (wrong, turns) == (None, [1])
    assert [r.kind for r in both] == ["to GPU, unpinned", "from GPU, unpinned"]
    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    _, wrong = products.moved(gpu, 0, 100 << 20, 0.0, lambda: None)
    assert wrong is not None
    assert (wrong.kind, wrong.count, wrong.index) == (products.BUS, 1, 77)


@pytest.mark.torch
def test_bits_of_what_is_no_number_are_compared() -> None:
    import torch

    nan = torch.full((4,), float("nan"), dtype=torch.bfloat16)
    assert products._unlike("bf16", nan, nan.clone(), 2) is None


@pytest.mark.torch
def test_the_pattern_is_the_same_everywhere() -> None:
    """The mixing, with Python's whole numbers, which have no width."""

    def mixed(number: int) -> int:
        for factor in (0x45D9F3B, 0x2C1B3C6D):
            number = ((number >> 16) ^ number) * factor & 0xFFFFFFFF
        return number >> 8 & 0xFFFF

    made = products.noise(20_000, 7).tolist()
    assert made == [mixed(n + 7 * 1_000_003) for n in range(20_000)]
    assert len(set(made)) > 15_000


@pytest.mark.torch
def test_a_slow_gpu_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, free = KINDS[2], 100 << 20
    fast, _ = products.timed(stand_in(), 0, kind, free, 0.0)
    mm(monkeypatch, "slow")
    slow, unlike = products.timed(stand_in(), 0, kind, free, 0.0)
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
    assert products.side(free, width) == n


def test_turns_come_to_everybody() -> None:
    for number in range(3):
        products.take_turns(number, 3)
        assert int(time.monotonic() / products.SLOT) % 3 == number
    products.take_turns(0, 1)


@pytest.mark.torch
def test_too_little_memory_is_no_verdict() -> None:
    with pytest.raises(CannotObserve, match=r"only 100 MiB are free on GPU 0: gpu.health"):
        computing.compute(Host(), context(), lambda: stand_in(free=100 << 20))


@pytest.mark.torch
def test_each_rank_takes_its_own_gpu() -> None:
    assert computing._own(context(local_rank=3), COUNT)[0] == 3
    with pytest.raises(NotApplicable, match="fewer GPUs than ranks: 2 < 4"):
        computing._own(context(local_rank=3), 2)
    # an agent of one rank of eight
    alone = replace(
        topology(1, nodes=(Node("n1", (5,), size=8),)), facts={"local_rank": Fact("5", "env")}
    )
    one = context(topology=alone, rank=5, local_world_size=1)
    assert computing._own(one, COUNT)[0] == 5
    assert computing._own(one, 1)[0] == 0, "the launcher shows each its own"


def test_who_has_other_bits() -> None:
    same = dict.fromkeys("abcdefgh", MODEL)

    def odd(kinds: Mapping[str, str]) -> list[tuple[str, str, bool, bool]]:
        """kind -> one letter for the digest of each GPU."""
        digests: dict[str, dict[str, str]] = {}
        for kind, row in kinds.items():
            for key, digest in zip("abcdefgh", row, strict=False):
                digests.setdefault(key, {})[kind] = digest
        seen = alike.odd_bits(digests, same)
        return [(" ".join(o.kinds), "".join(o.keys), o.sure, o.unclear) for o in seen]

    assert odd({"x": "1111", "y": "2222"}) == []
    assert odd({"x": "1"}) == []
    assert odd({"x": "12"}) == [("x", "ab", False, True)]
    assert odd({"x": "1112", "y": "1113"}) == [("x y", "d", True, False)]
    assert odd({"x": "11123"}) == [("x", "d", True, False), ("x", "e", True, False)]
    assert odd({"x": "11122"}) == [("x", "de", False, False)]
    assert odd({"x": "1122"}) == [("x", "abcd", False, False)]
    assert odd({"x": "1123"}) == [("x", "abcd", False, True)]
    # odd in one kind: where it is one of two, that is known
    assert odd({"x": "21", "y": "2111"}) == [("y", "a", True, False)]
    assert alike.odd_bits({"a": {"x": "1"}, "b": {"x": "2"}}, {"a": 1, "b": 2}) == []
