"""`preflight baseline record`: a good report becomes the expectation, and passes it itself."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import NAMES, catalogue, document, judged

from preflight.baseline import learn
from preflight.baseline.learn import NOT_MEASURED, SOURCES, learnt
from preflight.config import file, resolve
from preflight.config.resolve import Flags
from preflight.expect import KEYS, Expect
from preflight.judge import verdict
from preflight.model import PreflightError, Report, Status, Verdict
from preflight.render import expect_toml
from preflight.render import json as as_json

GPUS = "healthy-8-gpus"
NOTHING_TO_EXPECT = ("paced", "spare-port")
"""One has looked at a command and at nothing of the machines, one at RDMA ports alone."""
READY = [n for n in NAMES if judged(n).verdict is Verdict.READY and n not in NOTHING_TO_EXPECT]


def changed(name: str, change: Callable[[Any], None] = lambda _: None, **more: Any) -> Report:
    """A scenario with something else in it, judged again."""
    made = json.loads(json.dumps(document(name))) | more  # no node shares a value with another
    change(made)
    made |= {"checks": [], "findings": [], "verdict": "ready", "exit_code": 0}
    read = as_json.parse(json.dumps(made)).observations
    return verdict.judge(read, catalogue(), Expect())


def every(check: str, change: Callable[[Any], None], *nodes: str) -> Callable[[Any], None]:
    """A change to what a check saw: everywhere, or on these nodes."""

    def make(made: Any) -> None:
        for key, seen in made["observations"][check].items():
            if not nodes or key in nodes:
                change(seen["ok"])

    return make


def written(report: Report, name: str = "good.json") -> str:
    return expect_toml.render(name, report, learnt(report))


def expectations(text: str) -> Expect:
    """The text of a config file as `run --config` reads it."""
    table = file.parsed("b.toml", text)
    today = datetime.date(2026, 11, 22)
    return resolve.resolve(Flags(), table, "b.toml", catalogue(), today).expect


def values(report: Report) -> Mapping[str, Any]:
    return {one.key: one.value for one in learnt(report)}


def why(report: Report, key: str) -> str:
    (one,) = (one for one in learnt(report) if one.key == key)
    assert one.value is None
    return one.why


def test_every_key_is_recorded_or_has_a_reason_why_not() -> None:
    assert set(SOURCES) | set(NOT_MEASURED) == set(KEYS), "a new key: say where its value is"
    assert set(SOURCES) & set(NOT_MEASURED) == set()


def test_what_is_recorded_of_a_machine_with_gpus() -> None:
    assert values(judged(GPUS)) == {
        "gpus_per_node": 8,
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "torch": ">=2.13.0",
        "cuda": ">=12.8",
        "nccl": ">=2.27.5",
        "driver": ">=570.124.06",
        "memlock_gib": None,
        "shm_gib": 32.0,
        "nofile": 1048576,
        "tcp_gbits": None,
        "allreduce_busbw_gbs": None,
    }
    assert why(judged(GPUS), "memlock_gib") == "unlimited, which no number says"


@pytest.mark.parametrize("name", READY)
def test_a_report_passes_its_own_expectations(name: str) -> None:
    report = judged(name)
    expect = expectations(written(report))
    assert expect.values
    assert {key: setting.source for key, setting in expect.values.items()} == dict.fromkeys(
        expect.values, "config b.toml"
    )
    again = verdict.judge(report.observations, catalogue(), expect)
    before = [(r.id, r.status) for r in report.rows if r.id not in report.tolerated]
    assert [(r.id, r.status) for r in again.rows if r.id not in report.tolerated] == before


@pytest.mark.parametrize("name", NOTHING_TO_EXPECT)
def test_a_report_without_any_value_says_that_it_holds_nothing(name: str) -> None:
    with pytest.raises(PreflightError, match="nothing that could be expected"):
        written(judged(name))


def _torch(seen: Any) -> None:
    seen["build"]["version"] = "2.12.1+cu128"


def _driver(seen: Any) -> None:
    seen["driver"] = "570.86.15"


def _seven(seen: Any) -> None:
    seen["answer"]["count"] = 7
    seen["answer"]["gpus"].pop()
    seen["pci"].pop()


def _other(seen: Any) -> None:
    for gpu in seen["answer"]["gpus"]:
        gpu["name"] = "NVIDIA H200"


def _shm(seen: Any) -> None:
    seen["shm_size"] = seen["shm_free"] = 16 << 30


def _files(seen: Any) -> None:
    seen["files"] = 65536


@pytest.mark.parametrize(
    ("check", "change", "code"),
    [
        ("host.software", _torch, "unexpected-version"),
        ("host.software", _driver, "unexpected-version"),
        ("gpu.visible", _seven, "gpu-count"),
        ("gpu.visible", _other, "gpu-model"),
        ("host.limits", _shm, "shm-small"),
        ("host.limits", _files, "nofile-low"),
    ],
)
def test_what_is_less_than_recorded_fails(check: str, change: Any, code: str) -> None:
    worse = changed(GPUS, every(check, change))
    # seven GPUs are too few for its eight ranks, whatever was recorded
    assert change is _seven or worse.verdict is Verdict.READY, "healthy by itself"
    expect = expectations(written(judged(GPUS)))
    found = verdict.judge(worse.observations, catalogue(), expect)
    assert found.verdict is Verdict.NOT_READY
    told = [f for f in found.findings if f.code == code and f.status is Status.FAIL]
    assert told
    assert "config b.toml" in told[0].expected


def test_newer_and_higher_is_fine() -> None:
    def newer(seen: Any) -> None:
        seen["build"]["version"], seen["driver"] = "2.14.0+cu128", "580.10"

    def higher(seen: Any) -> None:
        seen["shm_size"] = seen["shm_free"] = 64 << 30
        seen["files"] = -1

    better = changed(GPUS, every("host.software", newer))
    higher_too = changed(GPUS, every("host.limits", higher))
    expect = expectations(written(judged(GPUS)))
    for report in (better, higher_too):
        again = verdict.judge(report.observations, catalogue(), expect)
        assert again.verdict is Verdict.READY, again.findings


def speeds(*gbits: float) -> Callable[[Any], None]:
    """What came in on each of the two nodes of a report."""

    def plant(made: Any) -> None:
        made["observations"]["net.speed"] = {
            f"gpu-b0{number + 7}": {
                "ok": {
                    "place": {"number": number, "count": 2},
                    "interface": "bond0",
                    "trials": [
                        {
                            "peer": 1 - number,
                            "round": 0,
                            "again": False,
                            "moved": {"inward": {"rate": rate * 1.25e8}, "latency": 0.0001},
                        }
                    ],
                }
            }
            for number, rate in enumerate(gbits)
        }

    return plant


def test_a_part_of_the_slowest_node_is_the_floor_of_what_was_measured() -> None:
    report = changed("two-nodes", speeds(5.0, 6.0))
    assert report.verdict is Verdict.READY
    assert values(report)["tcp_gbits"] == 2.0
    assert "tcp_gbits = 2.0" in written(report)
    assert "# net.speed, 40% of the slowest node's 5" in written(report)
    expect = expectations(written(report))
    for gbits, verdict_ in ((2.1, Verdict.READY), (1.9, Verdict.NOT_READY)):
        later = changed("two-nodes", speeds(gbits, 6.0))
        assert verdict.judge(later.observations, catalogue(), expect).verdict is verdict_


def test_what_one_stream_can_not_show_is_not_expected() -> None:
    assert values(changed("two-nodes", speeds(90.0, 60.0)))["tcp_gbits"] == 3.2


def test_a_network_that_moves_nothing_is_no_bar() -> None:
    assert why(changed("two-nodes", speeds(0.001, 6.0)), "tcp_gbits").startswith("0.001 is too")


def rates(seconds: float, backend: str = "nccl", ranks: int = 16) -> Callable[[Any], None]:
    """What all-reduces of 1 GiB took on two nodes."""

    def plant(made: Any) -> None:
        seen = {"backend": backend, "ranks": ranks, "each": 8}
        point = {"bytes": 1 << 30, "seconds": seconds}
        made["observations"]["world.bandwidth"] = {
            f"{node}/{rank}": {"ok": {**seen, "curve": [point] if rank % 8 else []}}
            for node, first in (("gpu-b07", 0), ("gpu-b08", 8))
            for rank in range(first, first + 8)
        }

    return plant


def test_the_floor_of_an_all_reduce_is_that_of_gpus_of_several_nodes() -> None:
    key = "allreduce_busbw_gbs"
    report = changed("two-nodes", rates(0.01))
    assert values(report)[key] == 161.06
    assert "# world.bandwidth, 80% of the slowest node's 201" in written(report)
    expect = expectations(written(report))
    for seconds, code in ((0.012, None), (0.013, "below-expected")):
        later = changed("two-nodes", rates(seconds))
        found = verdict.judge(later.observations, catalogue(), expect).findings
        codes = [f.code for f in found if f.check == "world.bandwidth"]
        assert codes == ([code] if code else [])
    assert key not in values(changed("two-nodes", rates(0.01, "gloo"))), "it measures CPUs"
    assert key not in values(changed("two-nodes", rates(0.01, ranks=8))), "NVLink alone"
    assert key not in values(changed("two-nodes", rates(0.0)))


@pytest.mark.parametrize("name", ["port-held", "absent", "no-torch", "nodes-64"])
def test_only_a_ready_report_is_a_baseline(name: str) -> None:
    report = judged(name)
    with pytest.raises(PreflightError, match=r"READY; this one is [A-Z ]+$"):
        learnt(report)


def test_an_interrupted_report_is_none() -> None:
    cut = changed(GPUS, interrupted="SIGTERM")
    with pytest.raises(PreflightError, match="interrupted: 'SIGTERM'"):
        learnt(cut)


def test_a_report_without_anything_to_expect() -> None:
    def only_a_port(made: Any) -> None:
        made["observations"] = {"net.port": made["observations"]["net.port"]}

    bare = changed("healthy", only_a_port)
    assert bare.verdict is Verdict.READY
    with pytest.raises(PreflightError, match="nothing that could be expected"):
        learnt(bare)


def test_what_differs_between_nodes_is_left_out() -> None:
    report = changed("two-nodes", every("host.limits", _shm, "gpu-b08"))
    assert why(report, "shm_gib") == "differs between nodes: 16.0, 32.0"
    assert "# shm_gib: differs between nodes: 16.0, 32.0\n" in written(report)
    assert values(report)["nofile"] == 1048576


def test_what_is_not_known_of_every_node_is_left_out() -> None:
    def nothing(seen: Any) -> None:
        seen["driver"] = ""

    def a_driver(seen: Any) -> None:
        seen["driver"] = "570.1"

    report = changed("two-nodes", every("host.software", a_driver, "gpu-b07"))
    assert why(report, "driver") == "known of 1 of 2 nodes"
    assert "driver" not in values(changed("two-nodes", every("host.software", nothing)))


def test_what_was_not_looked_at_is_said() -> None:
    assert why(judged("quick"), "torch") == "host.software is not in this report"
    assert "gpu_model" not in values(judged("healthy")), "no GPUs here is an answer"


def test_what_was_tolerated_is_no_expectation() -> None:
    report = judged("tolerated")
    (check,) = report.tolerated
    taken = {one.key for one in learnt(report) if one.check == check and one.value is not None}
    assert taken == set()


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [("memlock", 8 << 20, "memlock_gib"), ("files", 20000, "nofile"), ("shm_size", 1, "shm_gib")],
)
def test_no_floor_makes_a_check_look_less_closely(field: str, value: int, key: str) -> None:
    def less(seen: Any) -> None:
        seen[field] = value

    assert "may ask for more than that by itself" in why(
        changed(GPUS, every("host.limits", less)), key
    )


@settings(max_examples=50, deadline=None)  # the first one loads what the others have
@given(st.text(min_size=1, max_size=40), st.text(max_size=60))
def test_foreign_text_stays_in_its_place(foreign: str, path: str) -> None:
    """Neither the name of a node nor that of a GPU adds a line of its own to the file."""

    def plant(made: Any) -> None:
        made["world"]["nodes"][0]["name"] = foreign
        made["world"]["job"] = foreign
        made["started"] = foreign
        by_check = made["observations"]
        for check, by_key in by_check.items():
            by_check[check] = {k.replace("gpu-b07", foreign): o for k, o in by_key.items()}
        for seen in by_check["gpu.visible"].values():
            for gpu in seen["ok"]["answer"]["gpus"]:
                gpu["name"] = foreign

    made = json.loads(json.dumps(document(GPUS)))
    plant(made)
    made |= {"checks": [], "findings": [], "verdict": "ready", "exit_code": 0}
    report = as_json.parse(json.dumps(made))
    text = written(report, path)
    table = file.parsed("b.toml", text)
    assert set(table) == {"expect"}
    assert set(table["expect"]) <= set(SOURCES)
    assert table["expect"].get("gpu_model", foreign) == foreign
    if table["expect"].get("gpu_model", "x").strip():
        expectations(text)


def test_the_bars_of_a_check_are_those_of_the_table() -> None:
    from preflight.checks import host_limits

    assert SOURCES["memlock_gib"].least * (1 << 30) == host_limits.MEMLOCK_RDMA
    assert SOURCES["shm_gib"].least * (1 << 30) == host_limits.SHM_COMFORT
    enough = host_limits.FILES_PER_RANK + 4000 * host_limits.FILES_PER_PEER
    assert SOURCES["nofile"].least >= enough
    assert learn.UNLIMITED == host_limits.UNLIMITED
