"""vitals: a GPU's health without a vendor's library at hand."""

from __future__ import annotations

from preflight import serde
from preflight.domains.gpu.nvml import LOST, RESET
from preflight.domains.gpu.vitals import NvSwitchFabric, Vitals, VitalsListing


def test_a_gpu_is_gone_when_nvml_has_said_so() -> None:
    assert Vitals(0).gone == Vitals(0, failed={"nvmlDeviceGetName": 999}).gone == 0
    assert Vitals(0, failed={"nvmlDeviceGetName": LOST}).gone == LOST
    assert Vitals(0, failed={"a": 999, "b": RESET}).gone == RESET


def test_what_was_saved_is_read_back() -> None:
    listing = VitalsListing(2, (Vitals(0, fabric=NvSwitchFabric(3)), Vitals(1, brakes=0x80)))
    assert serde.decode(VitalsListing, serde.encode(listing)) == listing
