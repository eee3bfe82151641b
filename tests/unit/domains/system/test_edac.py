"""Counters of the host's memory: uncorrected errors alone, with the DIMM where it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.system.edac import CONTROLLERS, LABEL, UncorrectedErrors, uncorrected_errors
from preflight.host import Host

TOP = "sys/devices/system/edac/mc"


def counted(root: Path, files: dict[str, str]) -> tuple[UncorrectedErrors, ...]:
    for name, text in files.items():
        path = root / TOP / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return uncorrected_errors(Host(str(root)))


def test_no_driver_no_errors(tmp_path: Path) -> None:
    assert counted(tmp_path, {}) == ()


def test_corrected_errors_are_not_counted(tmp_path: Path) -> None:
    files = {"mc0/ue_count": "0\n", "mc0/ce_count": "41\n", "mc0/dimm0/dimm_ce_count": "41\n"}
    assert counted(tmp_path, files) == ()


@pytest.mark.parametrize("kind", ["dimm", "rank"])
def test_the_dimm_is_named(kind: str, tmp_path: Path) -> None:
    assert counted(
        tmp_path,
        {
            "mc0/ue_count": "0\n",
            "mc1/ue_count": "3\n",
            "mc1/mc_name": "Skylake Socket#0 IMC#1\n",
            f"mc1/{kind}0/dimm_ue_count": "0\n",
            f"mc1/{kind}0/dimm_label": "A1\n",
            f"mc1/{kind}1/dimm_ue_count": "1\n",
            f"mc1/{kind}1/dimm_label": "B1\n",
            f"mc1/{kind}2/dimm_ue_count": "1\n",
            f"mc1/{kind}2/dimm_label": "\n",
            f"mc1/{kind}2/dimm_location": "channel 1 slot 0 \n",
            f"mc1/{kind}3/dimm_ue_count": "1\n",
            "mc10/ue_count": "1\n",
        },
    ) == (
        UncorrectedErrors("mc1", 3, {"B1": 1, "channel 1 slot 0": 1, f"{kind}3": 1}),
        UncorrectedErrors("mc10", 1),
    )


def test_the_memory_of_gpus_is_not_the_host_s(tmp_path: Path) -> None:
    assert counted(tmp_path, {"mc4/ue_count": "2\n", "mc4/mc_name": "MI200\n"}) == ()


@pytest.mark.parametrize("text", ["", "many\n", "-1\n"])
def test_a_count_that_is_no_number(text: str, tmp_path: Path) -> None:
    assert counted(tmp_path, {"mc0/ue_count": text}) == ()


def test_names_and_controllers_are_bounded(tmp_path: Path) -> None:
    files = {f"mc{n}/ue_count": "1\n" for n in range(2 * CONTROLLERS)}
    files |= {"mc0/dimm0/dimm_ue_count": "1\n", "mc0/dimm0/dimm_label": "x\x1b" * 999}
    found = counted(tmp_path, files)
    assert len(found) == CONTROLLERS
    ((label, _),) = found[0].dimms.items()
    assert len(label) <= LABEL
    assert label.isprintable()
