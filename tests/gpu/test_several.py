"""What only a machine with several GPUs can show."""

from __future__ import annotations

import pytest
from gpu.machine import memory_watched
from gpu.running import Ran, run

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def test_every_pair_copies_exactly(several: int, standard: Ran) -> None:
    told = standard.row("gpu.p2p")["measured"]
    assert told["pairs"] == told["exact"] == several * (several - 1), standard.shown(str(told))
    (rates,) = told["gb_per_s"].values()
    assert len(rates) == told["pairs"], told
    assert all(0.5 < rate < 5_000 for rate in rates.values()), told


def test_the_transport_of_nccl_is_read(several: int, standard: Ran) -> None:
    told = standard.row("world.nccl")["measured"]
    way = told.get("transport", "")
    assert any(word in way for word in ("P2P/", "SHM", "NET/")), standard.shown(str(told))
    assert told["busbw_gbs"] > 0.1, told


def test_the_bandwidth_of_all_together(several: int, standard: Ran) -> None:
    row = standard.row("world.bandwidth")
    assert row["measured"]["busbw_gbs"] > 0.1, standard.shown(str(row))
    # a large all-reduce takes longer than a small one
    seconds = {int(count): spent for count, spent in row["measured"]["seconds"].items()}
    assert seconds[max(seconds)] > seconds[min(seconds)], row


def test_a_mask_is_kept(several: int) -> None:
    """Who is given the last GPU only leaves the first one alone."""
    mask = {"CUDA_VISIBLE_DEVICES": str(several - 1)}
    with memory_watched() as beyond:
        ran = run("run", "--level", "standard", "--nproc", "1", env=mask)
    assert ran.code == 0, ran.shown()
    assert not ran.findings(), ran.shown()
    (seen,) = ran.seen("gpu.compute").values()
    assert seen["card"]["number"] == str(several - 1), seen["card"]
    assert beyond.bytes[-1] > 64 << 20, beyond
    assert beyond.bytes[0] < 64 << 20, beyond
