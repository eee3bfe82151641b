"""What is on the screen of each finding of some checks: golden/findings/<check>.human-80.

Each code is shown with the first case of the check's own table (tests/checks) that leads to it,
judged and printed as a run would be. `pytest tests/test_golden_findings.py --update-golden` writes
them again.
"""

from __future__ import annotations

import dataclasses

import pytest
from support.cases import Case, cases_of, expectations, world
from support.scenarios import GOLDEN, catalogue

from preflight.judge import verdict
from preflight.model import Observation, Observations, Seen, Setting
from preflight.render import human
from preflight.serde import encode

CHECKS = (
    "env.vars",
    "gpu.health",
    "gpu.links",
    "gpu.visible",
    "host.cpu",
    "host.limits",
    "host.software",
    "host.storage",
    "job.backend",
    "job.balance",
    "job.collectives",
    "job.cost",
    "job.model",
    "job.pace",
    "job.ranks",
    "job.script",
    "job.optimizer",
    "job.warnings",
    "net.mesh",
    "net.name",
    "net.payload",
    "net.port",
    "net.rdma",
    "net.speed",
    "rdzv.reach",
)
SETTINGS = {"level": Setting("deep", "--level"), "strict": Setting(False, "default")}


def as_saved(one: Observation) -> Observation:
    return dataclasses.replace(one, value=encode(one.value)) if isinstance(one, Seen) else one


def screen(check: str, case: Case) -> str:
    """As `preflight run` prints it, with nothing else looked at."""
    seen = world(check, case.saw, case.topology)
    met = dataclasses.replace(seen.topology, master_addr="10.20.3.7", master_port=29500)
    observed = Observations(
        tool={"name": "preflight", "version": "0.1.0"},
        started="2026-11-22T03:29:30Z",
        seconds=1.0,
        settings=SETTINGS,
        topology=met,
        checks={check: {key: as_saved(one) for key, one in seen.observations.items()}},
    )
    report = verdict.judge(observed, catalogue(), expectations(case.expect))
    assert any(found.code == case.code for found in report.findings), case.name
    return human.render(report, human.Look(width=80))


@pytest.mark.parametrize("check", CHECKS)
def test_each_finding_has_its_screen(check: str, request: pytest.FixtureRequest) -> None:
    loaded = catalogue().checks[check]
    first: dict[str, Case] = {}
    for case in cases_of(check):
        if case.code is not None:
            first.setdefault(case.code, case)
    assert set(first) == set(loaded.module.FINDINGS)
    parts = (f"=== {code}: {first[code].name}\n\n{screen(check, first[code])}" for code in first)
    shown = "\n".join(parts)
    path = GOLDEN / "findings" / f"{check}.human-80"
    if request.config.getoption("--update-golden"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")
