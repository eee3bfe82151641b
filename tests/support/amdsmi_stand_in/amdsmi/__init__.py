"""Stands in for ROCm's package amdsmi: its names and the shape of its answers, from its Python API
reference and its own interface module of ROCm 7.0; the values come from scenario.json beside it.

    gpus      bus -> what differs from HEALTHY, by call
    errors    call -> amdsmi_status_t with which it fails; `call@bus` for one GPU
    hangs     a call, or call@bus, that never returns
    import    an error of the import: "OSError: no libamd_smi.so"
    missing   functions that this version does not have
"""

from __future__ import annotations

import json
import time
from enum import IntEnum
from pathlib import Path
from typing import Any

PLAY: dict[str, Any] = json.loads((Path(__file__).parent.parent / "scenario.json").read_text())

if "import" in PLAY:
    raise {"OSError": OSError, "KeyError": KeyError}[PLAY["import"].partition(":")[0]](
        PLAY["import"].partition(": ")[2]
    )


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | AMDSMI_STATUS_{self.err_code} - in words"


class AmdSmiTemperatureType(IntEnum):
    EDGE, HOTSPOT, JUNCTION, VRAM = range(4)


class AmdSmiClkType(IntEnum):
    SYS = 0
    GFX = 0
    DF = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT, MAX, MIN, MAX_HYST, MIN_HYST, CRITICAL = range(6)


HEALTHY: dict[str, Any] = {
    "amdsmi_get_gpu_asic_info": {
        "market_name": "AMD Instinct MI300X",
        "vendor_id": "0x1002",
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "device_id": "0x74a1",
        "rev_id": "0x00",
        "asic_serial": "0x1A2B3C4D5E6F7081",
        "oam_id": 0,
        "num_compute_units": 304,
        "target_graphics_version": "gfx942",
    },
    "amdsmi_get_gpu_total_ecc_count": {
        "correctable_count": 7,
        "uncorrectable_count": 0,
        "deferred_count": 0,
    },
    "amdsmi_get_gpu_bad_page_info": [],
    "amdsmi_get_temp_metric": [41, 100],
    "amdsmi_get_pcie_info": {
        "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000, "slot_type": "OAM"},
        "pcie_metric": {"pcie_width": 16, "pcie_speed": 32000, "pcie_bandwidth": "N/A"},
    },
    "amdsmi_get_violation_status": {
        "reference_timestamp": 1,
        "acc_counter": 9,
        "per_ppt_pwr": 0,
        "active_prochot_thrm": False,
        "active_ppt_pwr": True,
        "active_socket_thrm": False,
        "active_vr_thrm": False,
        "active_hbm_thrm": "N/A",
    },
    "amdsmi_get_gpu_process_list": [],
    "amdsmi_get_gpu_activity": {"gfx_activity": 0, "umc_activity": 0, "mm_activity": "N/A"},
    "amdsmi_get_clock_info": {"clk": 132, "min_clk": 132, "max_clk": 2100, "clk_locked": "N/A"},
    "amdsmi_get_gpu_vram_usage": {"vram_total": 196592, "vram_used": 283},
    "amdsmi_get_power_info": {"current_socket_power": 750, "average_socket_power": "N/A"},
}


def _played(call: str, bus: str = "") -> Any:
    for name in (call, f"{call}@{bus}"):
        if name in PLAY.get("errors", {}):
            raise AmdSmiLibraryException(PLAY["errors"][name])
        if name == PLAY.get("hangs"):
            time.sleep(600)
    return PLAY["gpus"].get(bus, {}).get(call, HEALTHY.get(call))


def amdsmi_init() -> None:
    _played("amdsmi_init")


def amdsmi_shut_down() -> None:
    _played("amdsmi_shut_down")


def amdsmi_get_processor_handles() -> list[str]:
    _played("amdsmi_get_processor_handles")
    return list(PLAY["gpus"])


def amdsmi_get_gpu_device_bdf(handle: str) -> str:
    _played("amdsmi_get_gpu_device_bdf", handle)
    return handle


def amdsmi_get_gpu_asic_info(handle: str) -> Any:
    return _played("amdsmi_get_gpu_asic_info", handle)


def amdsmi_get_gpu_total_ecc_count(handle: str) -> Any:
    return _played("amdsmi_get_gpu_total_ecc_count", handle)


def amdsmi_get_gpu_bad_page_info(handle: str) -> Any:
    return _played("amdsmi_get_gpu_bad_page_info", handle)


def amdsmi_get_temp_metric(
    handle: str, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric
) -> Any:
    assert isinstance(sensor, AmdSmiTemperatureType)
    assert isinstance(metric, AmdSmiTemperatureMetric)
    now, critical = _played("amdsmi_get_temp_metric", handle)
    return now if metric is AmdSmiTemperatureMetric.CURRENT else critical


def amdsmi_get_pcie_info(handle: str) -> Any:
    return _played("amdsmi_get_pcie_info", handle)


def amdsmi_get_violation_status(handle: str) -> Any:
    return _played("amdsmi_get_violation_status", handle)


def amdsmi_get_gpu_activity(handle: str) -> Any:
    return _played("amdsmi_get_gpu_activity", handle)


def amdsmi_get_clock_info(handle: str, kind: AmdSmiClkType) -> Any:
    assert isinstance(kind, AmdSmiClkType)
    return _played("amdsmi_get_clock_info", handle)


def amdsmi_get_gpu_vram_usage(handle: str) -> Any:
    return _played("amdsmi_get_gpu_vram_usage", handle)


def amdsmi_get_power_info(handle: str) -> Any:
    return _played("amdsmi_get_power_info", handle)


def amdsmi_get_gpu_process_list(handle: str) -> Any:
    return _played("amdsmi_get_gpu_process_list", handle)


for _name in PLAY.get("missing", ()):
    del globals()[_name]
