"""What the tests of checks share: worlds made of plain values, and cases that are a table.

A check's test module has CASES, a tuple of Case; tests/test_contract.py runs through all of them
and demands that every FINDINGS code is produced by at least one.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from preflight.check import Context, Preloaded, complete
from preflight.expect import Expect, value_of
from preflight.model import (
    Finding,
    FindingType,
    Missing,
    Node,
    Seen,
    Setting,
    Status,
    Topology,
    World,
    place_of,
)
from preflight.sanitize import shell_prose
from preflight.serde import decode, encode

TESTS = Path(__file__).parents[1]
SENTENCE = 4
"""A field of a finding with more words than these is a sentence of the judge's."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of a judge's table: what was seen, and which finding it must lead to.

    saw       a value of observe()'s type, a Missing, or key -> one of them
    code      the finding's code; None when there must be no finding at all
    """

    name: str
    saw: Any
    code: str | None = None
    status: Status | None = None
    expect: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    topology: Topology | None = None
    subject: str | None = None  # str() of the primary subject


def load(path: Path) -> ModuleType:
    """A module by its path: neither tests/checks nor tools is a package."""
    name = f"contract_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look there
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def file_of_tests(check_id: str) -> Path:
    return TESTS / f"checks/test_{check_id.replace('.', '_')}.py"


def cases_of(check_id: str) -> tuple[Case, ...]:
    """The table of a check's tests."""
    return tuple(load(file_of_tests(check_id)).CASES)


def topology(ranks: int = 4, node: str = "n1", **changes: Any) -> Topology:
    """One node that holds all ranks."""
    made = Topology(
        size=ranks,
        nodes=(Node(node, tuple(range(ranks))),),
        master_addr="127.0.0.1",
        master_port=29500,
    )
    return dataclasses.replace(made, **changes)


def world(check: str, saw: Any, top: Topology | None = None) -> World[Any]:
    """A world from a value, a Missing, or key -> value or Missing (keys `n1`, `n1/0`)."""
    if not isinstance(saw, Mapping):
        saw = {"n1": saw}
    if top is None:
        ranks = {place_of(key)[1] for key in saw} - {None}
        top = topology(max(4, len(ranks)) if not ranks else len(ranks))
    return World(
        check,
        {k: v if isinstance(v, (Missing, Seen)) else Seen(v) for k, v in saw.items()},
        top,
    )


def expectations(values: Mapping[str, Any]) -> Expect:
    return Expect({k: Setting(value_of(k, v), f"--expect {k}={v}") for k, v in values.items()})


def judged(module: Any, case: Case) -> list[Finding]:
    """The findings of a case; asserts what every finding must have."""
    check = module.__name__.rpartition(".")[2].replace("_", ".", 1)
    seen = world(check, case.saw, case.topology)
    findings = [
        complete(check, module.CHECK, module.FINDINGS[f.code], f)
        for f in module.judge(seen, expectations(case.expect))
    ]
    for finding in findings:
        assert finding.subjects, f"{finding.code} has no subject"
        assert finding.saw, f"{finding.code} does not say what it saw"
        advice: FindingType = module.FINDINGS[finding.code]
        texts = [advice.means, advice.now, advice.text, *(c.run for c in advice.commands)]
        for text in texts:
            text.format_map(dict(finding.fields))  # a template field that is missing is an error
        for name, value in finding.fields.items():
            if len(str(value).split()) > SENTENCE and any(f"{{{name}!s}}" in t for t in texts):
                assert shell_prose(str(value)) == value, "a sentence in a shell's quotes"
    text = module.measured(seen).text
    assert "\n" not in text
    return findings


def assert_case(module: Any, case: Case) -> None:
    """The case's finding is there, and no other that is as heavy."""
    findings = judged(module, case)
    if case.code is None:
        assert not findings, [(f.code, f.saw) for f in findings]
        return
    codes = [f.code for f in findings]
    assert case.code in codes, codes
    finding = findings[codes.index(case.code)]
    if case.status is not None:
        assert finding.status is case.status
    if case.subject is not None:
        assert str(finding.subjects[0]) == case.subject


def round_trips(value: Any) -> None:
    """An observation survives its way through JSON."""
    assert decode(type(value), encode(value)) == value


class SilentPeers:
    """Peers for an observation that has none."""

    def say(self, topic: str, value: Any = None, to: Any = None) -> None:
        pass

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        return {}


def context(**changes: Any) -> Context:
    """A Context for calling observe() in the test's own process."""
    top = changes.pop("topology", None) or topology(changes.get("local_world_size", 4))
    marks: list[str] = []
    values: dict[str, Any] = {
        "topology": top,
        "node": "n1",
        "seconds": 5.0,
        "mark": marks.append,
        "peers": SilentPeers(),
        "world_size": top.size,
        "local_world_size": top.size,
        "master_addr": top.master_addr,
        "master_port": top.master_port,
        "preloaded": {"torch": Preloaded(1.0)},
    }
    return Context(**(values | changes))
