"""Reports of many nodes for what is drawn of them: every check that a golden knows, seen alike on
all nodes, and in place of some of them what a case wants to be seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from preflight.expect import Expect
from preflight.judge import verdict
from preflight.judge.policy import Policy
from preflight.model import Report
from preflight.render import json as as_json
from preflight.serde import encode
from support import scenarios

ALIKE = ("healthy-8-gpus", "nodes-64", "two-nodes", "sick-gpus", "paced", "slow-fabric", "healthy")
"""Where the observation of a check is taken from: the first that has one."""

BETWEEN = ("job.", "agree.", "rdzv.reach", *(f"net.{name}" for name in ("mesh", "name", "payload")))
BETWEEN += ("net.port", "net.speed", "rdzv.torchrun", "world.bandwidth", "world.ddp")
"""What is about one node's place among the others: one cannot stand for all."""


@cache
def _alike() -> Mapping[str, Any]:
    """A check -> what a healthy node or rank saw of it, and whether it is asked of each rank."""
    found: dict[str, Any] = {}
    for name in ALIKE:
        for check, by_key in scenarios.document(name)["observations"].items():
            for key, one in by_key.items():
                if "ok" in one and check not in found:
                    found[check] = one, key.rpartition("/")[2].isdigit()
    return found


def report(
    nodes: int, ranks: int = 8, instead: Mapping[str, Mapping[str, Any]] | None = None
) -> Report:
    """Of nodes n0, n1 … The checks of `instead` have seen these values, by key; a check that is
    about what lies between nodes is only there where it is given."""
    names = [f"n{number}" for number in range(nodes)]
    document = scenarios.document("nodes-64") | scenarios.UNJUDGED
    document["world"] = document["world"] | {
        "nodes": [
            {
                "name": name,
                "ranks": list(range(number * ranks, (number + 1) * ranks)),
                "addr": f"10.0.{number // 250}.{number % 250 + 1}",
            }
            for number, name in enumerate(names)
        ],
        "size": nodes * ranks,
        "met": nodes * ranks,
        "master": {"addr": "n0", "port": 29500},
    }
    observations: dict[str, Any] = {}
    for check, (one, each_rank) in _alike().items():
        if check.startswith(BETWEEN):
            continue
        keys = [f"{n}/{i * ranks + r}" for i, n in enumerate(names) for r in range(ranks)]
        observations[check] = dict.fromkeys(keys if each_rank else names, one)
    for check, by_key in (instead or {}).items():
        observations[check] = {
            key: {"ok": encode(value), "seconds": 0.4, "marks": []} for key, value in by_key.items()
        }
    document["observations"] = observations
    seen = as_json.parse(json.dumps(document)).observations
    return verdict.judge(seen, scenarios.catalogue(), Expect({}), Policy())
