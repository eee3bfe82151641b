"""The saved reports of `preflight demo`: they are whole, say what today's version says, and have
nothing of the machine that made them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from support.scenarios import catalogue

import preflight
from preflight.cli import demo
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.judge.policy import Policy
from preflight.model import PreflightError, Report, Verdict
from preflight.render import html, human
from preflight.render import json as as_json

FOLDER = Path(preflight.__file__).parent / demo.FOLDER
a_demo = pytest.mark.parametrize("name", sorted(demo.names()))
FOUND = {
    "512-nodes": "host.storage:stalled",
    "driver-hangs": "gpu.visible:driver-hangs",
    "firewall": "net.mesh:inbound-closed",
    "master-port-dropped": "rdzv.reach:dropped-here",
    "missing-node": "rdzv.reach:absent-host-silent",
    "mount-lost": "host.storage:stalled",
    "mtu-black-hole": "net.payload:blackhole-node",
    "name-elsewhere": "rdzv.reach:address-elsewhere",
    "nic-down": "net.rdma:port-down",
    "port-held": "net.port:port-held",
    "rank-sleeps": "job.collectives:rank-stuck",
    "sick-gpu": "gpu.health:remap-pending",
    "slow-link": "net.speed:node-slow",
    "tcp-for-infiniband": "world.nccl:sockets-chosen",
    "uneven-data": "job.collectives:data-uneven",
    "world-size": "env.identity:world-differs",
    "wrong-collective": "job.collectives:collective-mismatch",
}


@cache
def saved(name: str) -> Report:
    return demo.saved(name)


def test_there_are_enough_and_they_are_small() -> None:
    assert set(demo.names()) == set(FOUND)
    assert len(FOUND) >= 12
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {demo.INDEX, *(f"{name}.json.gz" for name in FOUND)}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000


@a_demo
def test_a_demo_names_its_culprit_first(name: str) -> None:
    report = saved(name)
    assert report.findings[0].name == FOUND[name], [f.name for f in report.findings]
    assert f" {FOUND[name]}" in human.render(report)


@a_demo
def test_a_demo_says_what_this_version_says(name: str) -> None:
    """Else it has to be made again: make demos."""
    report = saved(name)
    again = verdict.judge(report.observations, catalogue(), Expect({}), Policy())
    assert [f.name for f in again.findings] == [f.name for f in report.findings]
    assert again.verdict is report.verdict


@a_demo
def test_a_demo_is_a_page_too(name: str) -> None:
    assert len(html.render(saved(name))) < 400_000


@a_demo
def test_a_demo_has_nothing_of_the_machine_that_made_it(name: str) -> None:
    text = as_json.render(saved(name))
    assert not re.findall(r"/(?:root|work)/|pytest|pyenv|preflight-lab", text)


def test_verdicts_are_of_several_kinds() -> None:
    verdicts = {saved(name).verdict for name in FOUND}
    assert {Verdict.NOT_READY, Verdict.INCOMPLETE, Verdict.READY} <= verdicts


def test_an_unknown_demo_is_told_with_the_nearest() -> None:
    with pytest.raises(PreflightError, match=r"did you mean 'firewall'|firewall"):
        demo.saved("firewal")


def test_live_needs_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert demo.live_script().endswith("/tools/demos.py")
    monkeypatch.setattr(demo, "LIVE", str(tmp_path / "tools/demos.py"))
    with pytest.raises(PreflightError, match="needs preflight's source"):
        demo.live_script()


def test_the_table_has_a_line_each() -> None:
    shown = demo.table()
    assert all(f" {name} " in shown for name in FOUND)
    assert max(map(len, shown.splitlines())) <= 80
