"""The tests marked `gpu` are nobody's who doesn't ask for them, and what tools/measured.py makes of
a report: the checks' own values, read back from the document."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import scenarios

from preflight.render import json as as_json

ROOT = Path(__file__).parents[1]
BY_HAND = {
    "about": {"date": "2026-11-22", "GPUs": "8 x H100"},
    "quick": [0.5, 0.4, 0.9],
    "standard": [20.25],
    "beyond": [3 << 29, 1 << 29],
    "memory": 5 << 30,
    "rehearsed": [(10.0, 10.2), (10.0, 10.1), (10.0, 11.0)],
}


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    before = [*sys.path]
    spec = importlib.util.spec_from_file_location("measured", ROOT / "tools/measured.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["measured"] = made  # dataclasses look there
    spec.loader.exec_module(made)
    sys.path[:] = before
    return made


def report(scenario: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(as_json.render(scenarios.judged(scenario)))
    return made


def values(of: Mapping[str, Any], check: str) -> Mapping[str, Any]:
    (found,) = (row["measured"] for row in of["checks"] if row["id"] == check)
    return dict(found)


def rows(text: str) -> list[list[str]]:
    """The cells of the lines of a table, its head among them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len({len(line) for line in cells}) <= 1, "a row has more cells than the head"
    return [line for line in cells if set(line) != {"---"}]


def test_every_gpu_has_its_rates(measured: ModuleType) -> None:
    of = report("wrong-gpus")
    head, *body = rows(measured.rates(of))
    told = values(of, "gpu.compute")
    assert [line[0] for line in body] == [f"rank {rank}" for rank in range(8)]
    column = next(n for n, name in enumerate(head) if name == "bf16, TFLOP/s")
    of_places = {f"rank {k.rpartition('/')[2]}": v for k, v in told["bf16_tflops"].items()}
    assert {line[0]: float(line[column]) for line in body} == pytest.approx(of_places, abs=0.5)
    assert len(head) - 1 == sum(key.endswith(("_tflops", "_gbs")) for key in told)


def test_the_matrix_of_copies_has_gaps_where_none_was_right(measured: ModuleType) -> None:
    of = report("wrong-gpus")
    (pairs,) = values(of, "gpu.p2p")["gb_per_s"].values()
    pairs["0->1"] = 123.0  # the way back is another one
    head, *body = rows(measured.copies(of))
    seen = {
        f"{line[0].strip('*')}->{other}": float(cell)
        for line in body
        for other, cell in zip(head[1:], line[1:], strict=True)
        if cell
    }
    assert seen == pytest.approx(pairs, rel=0.01)
    assert len(body) == 8
    assert len(seen) == 42


def test_the_times_of_all_reduces_are_those_of_the_check(measured: ModuleType) -> None:
    of = report("healthy-8-gpus")
    head, *body = rows(measured.sums(of))
    told = values(of, "world.nccl")
    assert head == ["bytes", "`world.nccl`"]
    assert len(body) == len(told["seconds"])
    assert f"{told['busbw_gbs']:.0f} GB/s" in body[-1][1]
    assert f"{told['seconds'][str(64 << 20)] * 1e6:,.0f} µs" in body[-1][1]
    assert body[-1][0] == "64 MiB"


def test_one_rank_has_no_bus_bandwidth(measured: ModuleType) -> None:
    of = report("healthy-8-gpus")
    of["world"]["size"] = 1
    assert "GB/s" not in measured.sums(of)


def test_every_check_is_a_row_and_every_finding_is_told(measured: ModuleType) -> None:
    of = report("wrong-gpus")
    text = measured.checks(of)
    assert [line[0].strip("`") for line in rows(text)[1:]] == [row["id"] for row in of["checks"]]
    assert "not_ready" in text
    assert "No finding" not in text
    for finding in of["findings"]:
        assert f"`{finding['check']}` {finding['code']} ({finding['status']})" in text


def test_no_row_holds_names_or_addresses_of_the_machine(measured: ModuleType) -> None:
    of = report("healthy-8-gpus")
    texts = [row["text"] for row in of["checks"]]
    assert any("gpu-b07" in text for text in texts)
    assert any("10.20.3.7" in text for text in texts)
    made = measured.document(measured.Figures(report=of, **BY_HAND))
    assert "gpu-b07" not in made
    assert "10.20.3.7" not in made


def test_what_was_not_measured_has_no_part(measured: ModuleType) -> None:
    of = report("healthy")  # no GPU
    made = measured.document(measured.Figures(report=of, **BY_HAND))
    assert "gpu.p2p`)" not in made
    assert "gpu.compute`)" not in made
    assert "All-reduces" not in made


def test_what_preflight_costs(measured: ModuleType) -> None:
    text = measured.costs(measured.Figures(report=report("healthy"), **BY_HAND))
    told = {line[0]: line[1] for line in rows(text)}
    assert told["`preflight run --level quick`"] == "0.5 s (0.4 to 0.9, 3 runs)"
    assert told["`preflight run --level standard`"] == "20.2 s"
    assert told["memory of a GPU, at most"] == "1.5 GiB, 512 MiB"
    assert [v for k, v in told.items() if "rehearse" in k] == [
        "+2.0% of 10.00 s (median of 3 pairs)"
    ]


def test_how_the_tests_ended_is_read_from_pytest(measured: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef broken(): raise RuntimeError('a | b')\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "def test_errs(broken): pass\n"
        "def test_lacks(): pytest.skip('needs 2 GPUs')\n"
    )
    results = tmp_path / "results.xml"
    ended(tmp_path, f"--junitxml={results}", ".")
    tests = measured.results_of(results.read_text())
    assert tests.passed == 1
    assert tests.failed == ("test_it::test_fails", "test_it::test_errs")
    assert tests.skipped == {"test_it::test_lacks": "needs 2 GPUs"}
    said = measured.verdict(measured.Figures(report={}, **{**BY_HAND, "tests": tests}))
    assert "**1 of 3 tests marked `gpu` pass.**" in said
    assert "- failed: `test_it::test_errs`" in said
    assert "- not run: `test_it::test_lacks`: needs 2 GPUs" in said


def test_tests_that_did_not_run_or_end_are_never_called_passed(measured: ModuleType) -> None:
    assert measured.told(None) == "The tests marked `gpu` were not run."
    assert "did not end" in measured.told(measured.Tests(passed=12, ended=False))


def ended(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_tests_for_gpus_are_deselected_unless_asked_for() -> None:
    """All of them: none lacks the mark, so nothing is left to run."""
    done = ended(ROOT, "--collect-only", "tests/gpu")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    found = re.search(r"no tests collected \((\d+) deselected\)", done.stdout)
    assert found, done.stdout
    assert int(found[1]) > 20


def test_without_a_gpu_the_tool_says_so_and_writes_nothing(tmp_path: Path) -> None:
    """Nor do the tests pass: an NVML that is none is what every machine can have."""
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "def nvmlInit(): raise NVMLError('NVML Shared Library Not Found')\n"
    )
    target = ROOT / "docs/measured.md"
    before = target.read_bytes() if target.exists() else None
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/measured.py")],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("no GPU here: pynvml.NVMLError: NVML Shared Library Not Found")
    assert (target.read_bytes() if target.exists() else None) == before
