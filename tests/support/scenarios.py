"""The observation documents of the goldens: what was seen on one machine, judged again each time.

A document in golden/observations/ is a JSON report without its conclusions, written short:

    "based on": NAME   this report is NAME's, but for what follows: a check that is named here
                       replaces that check's observations, null takes it out; settings are merged
    "on": {"n[1-3]": 4}  what NAME saw on its one node is seen on each of these, with so many ranks;
                       what is written of a check then replaces single observations of it, and
                       "world" is merged, too
    "n[1-3]": {...}    the same observation for the nodes n1 to n3
    "n1/[0-3]": {...}  the same observation for the ranks 0 to 3
    "broken": {...}    checks that could not be loaded when it is judged, and why
"""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from preflight import registry
from preflight.expect import Expect, value_of
from preflight.judge import verdict
from preflight.judge.policy import Policy, Waiver
from preflight.model import (
    Finding,
    Kind,
    Node,
    Observations,
    Report,
    Setting,
    Status,
    Subject,
    Verdict,
)
from preflight.registry import Catalogue
from preflight.render import json as as_json

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = sorted(path.stem for path in (GOLDEN / "observations").glob("*.json"))

RANGE = re.compile(r"(.*)/\[(\d+)-(\d+)\]")
NODES = re.compile(r"(.*)\[(\d+)-(\d+)\](.*)")
UNJUDGED = {"verdict": "undecided", "exit_code": 4, "checks": [], "findings": []}


@cache
def catalogue() -> Catalogue:
    return registry.load()


def document(name: str) -> dict[str, Any]:
    """The whole document of a scenario, as a saved report would hold it."""
    written = json.loads((GOLDEN / "observations" / f"{name}.json").read_text(encoding="utf-8"))
    made: dict[str, Any] = {}
    if base := written.pop("based on", None):
        made = document(base)
    on = {name: count for key, count in written.pop("on", {}).items() for name in _nodes(key)}
    if on:
        _on_all(made, on)
        own = written.get("observations", {})
        written["observations"] = {
            i: _merged(made["observations"].get(i, {}), _spread(by_key))
            for i, by_key in own.items()
        }
    for part, value in written.items():
        if part in made and (part in ("settings", "observations") or (on and part == "world")):
            merged = made[part] | value
            made[part] = {key: entry for key, entry in merged.items() if entry is not None}
        else:
            made[part] = value
    made["observations"] = {i: _spread(by_key) for i, by_key in made["observations"].items()}
    return made


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {key: entry for key, entry in (old | new).items() if entry is not None}


def _on_all(made: dict[str, Any], on: dict[str, int]) -> None:
    """What one node with its ranks saw, seen by several nodes."""
    here = made["world"]["nodes"][0]["name"]
    nodes = []
    first = 0
    for number, (name, count) in enumerate(on.items()):
        ranks = list(range(first, first + count))
        nodes.append({"name": name, "ranks": ranks, "addr": f"10.20.3.{7 + number}"})
        first += count
    for check_id, by_key in made["observations"].items():
        whole, alone = by_key.get(here), [v for k, v in by_key.items() if k != here]
        spread = {}
        for node in nodes:
            if whole is not None:
                spread[node["name"]] = whole
            for number, rank in enumerate(node["ranks"] if alone else ()):
                spread[f"{node['name']}/{rank}"] = alone[number % len(alone)]
        made["observations"][check_id] = spread
    made["world"] = made["world"] | {"nodes": nodes, "size": first, "met": first}


def _nodes(key: str) -> list[str]:
    """The nodes that `n[08-11]` stands for."""
    found = NODES.fullmatch(key)
    if not found:
        return [key]
    numbers = range(int(found[2]), int(found[3]) + 1)
    return [f"{found[1]}{number:0{len(found[2])}}{found[4]}" for number in numbers]


def _spread(by_key: dict[str, Any]) -> dict[str, Any]:
    spread = {}
    for key, observation in by_key.items():
        found = RANGE.fullmatch(key)
        if found:
            ranks = range(int(found[2]), int(found[3]) + 1)
            spread.update({f"{found[1]}/{rank}": observation for rank in ranks})
        else:
            spread.update(dict.fromkeys(_nodes(key), observation))
    return spread


def observations(name: str) -> Observations:
    return as_json.parse(json.dumps(document(name) | UNJUDGED)).observations


def judged(name: str) -> Report:
    """The report of a scenario, by the expectations and waivers that its settings record; waivers
    are held against the day on which it was seen."""
    seen = observations(name)
    expected: dict[str, Setting] = {}
    waivers = []
    for key, setting in seen.settings.items():
        kind, _, what = key.partition(".")
        if kind == "expect":
            expected[what] = Setting(value_of(what, setting.value), setting.source)
        elif kind == "tolerate":
            waivers.append(Waiver(what, setting.value["why"], setting.value["until"]))
    strict = seen.settings["strict"].value
    policy = Policy(strict=strict, waivers=tuple(waivers), today=seen.started[:10])
    known = catalogue()
    if broken := document(name).get("broken", {}):
        whole = {i: loaded for i, loaded in known.checks.items() if i not in broken}
        known = Catalogue(whole, broken)
    return verdict.judge(seen, known, Expect(expected), policy)


def hostile(foreign: str) -> Report:
    """A report in which every text that comes from elsewhere is `foreign`."""
    report = judged("healthy")
    seen = report.observations
    node = Node(foreign, (0, 1, 2, 3), foreign)
    found = Finding(
        code="code",
        status=Status.FAIL,
        subjects=(Subject(Kind.NIC, foreign, foreign, (0,)),),
        saw=foreign,
        expected=foreign,
        folded=(foreign,),
        alternatives=(foreign,),
        check=foreign,
    )
    rows = tuple(
        dataclasses.replace(
            row,
            id=foreign,
            stage=foreign,
            reason=foreign,
            by_subject={foreign: Status.FAIL},
            measured=dataclasses.replace(row.measured, text=foreign),
        )
        for row in report.rows[:2]
    )
    topology = dataclasses.replace(
        seen.topology, launcher=foreign, job=foreign, nodes=(node,), master_addr=foreign
    )
    settings = {foreign: seen.settings["level"], "level": seen.settings["level"]}
    observed = dataclasses.replace(
        seen, topology=topology, settings=settings, interrupted=foreign, tool={"version": foreign}
    )
    return dataclasses.replace(
        report,
        verdict=Verdict.NOT_READY,
        rows=rows,
        findings=(found,),
        observations=observed,
        skipped=(foreign,),
        tolerated=(foreign,),
        exclude=(foreign,),
    )
