"""Which GPU a rank uses, and how that is asked from a thread that must not touch another one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from preflight.rehearsal.injected import preflight_responder
from preflight.rehearsal.injected.preflight_responder import gpu_in_use

TOTAL = 80 << 30
UUID = "1a2b3c02-5f9e-4c1d-8a3b-0123456789ab"


def of_the_current_device(*args: object) -> NoReturn:
    raise AssertionError("this makes a context on GPU 0 in every rank")


def torch_cuda(
    reserved: Mapping[int, int], devices: int = 4, **properties: object
) -> SimpleNamespace:
    """torch.cuda of a process with so many bytes on these devices."""

    def stats(device: int) -> Mapping[str, Any]:
        held = reserved.get(device, 0)
        if not held:
            return {}
        return {
            "reserved_bytes": {"all": {"current": held}},
            "allocated_bytes": {"all": {"current": held // 2}},
        }

    return SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: devices,
        get_allocator_backend=lambda: "native",
        memory_stats_as_nested_dict=stats,
        get_device_properties=lambda device: SimpleNamespace(total_memory=TOTAL, **properties),
        current_device=of_the_current_device,
        memory_allocated=of_the_current_device,
        mem_get_info=of_the_current_device,
    )


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(preflight_responder.Responder, "gpus", {})
    return lambda cuda: monkeypatch.setitem(sys.modules, "torch.cuda", cuda)


def test_the_gpu_with_most_of_its_memory_is_the_ranks(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    play(torch_cuda({0: 2 << 20, 3: 6 << 30}, uuid=UUID, pci_domain_id=0, pci_bus_id=0x48))
    told = gpu_in_use()
    assert told == {
        "number": 3,
        "reserved": 6 << 30,
        "allocated": 3 << 30,
        "total": TOTAL,
        "mask": "0,1,2,3",
        "uuid": UUID,
    }


def test_a_checkpoint_that_was_loaded_to_gpu_0_first_is_not_where_it_stays(play: Any) -> None:
    held = {0: 1 << 30}
    play(torch_cuda(held))
    first = gpu_in_use()
    held[2] = 5 << 30
    second = gpu_in_use()
    assert first is not None
    assert second is not None
    assert (first["number"], second["number"]) == (0, 2)


def test_the_place_on_the_bus(play: Any) -> None:
    play(torch_cuda({0: 1 << 30}, pci_domain_id=1, pci_bus_id=0xC4, pci_device_id=0))
    told = gpu_in_use()
    assert told is not None
    assert told["bus"] == "0001:c4:00.0"


def test_nothing_is_said_without_memory_on_a_gpu(play: Any) -> None:
    play(torch_cuda({}))
    assert gpu_in_use() is None


def test_nothing_is_asked_of_the_drivers_own_allocator(play: Any) -> None:
    cuda = torch_cuda({0: 1 << 30})
    cuda.get_allocator_backend = lambda: "cudaMallocAsync"
    cuda.memory_stats_as_nested_dict = of_the_current_device
    play(cuda)
    assert gpu_in_use() is None


def test_a_torch_that_has_not_started_cuda(play: Any) -> None:
    play(SimpleNamespace(is_initialized=lambda: False))
    assert gpu_in_use() is None
