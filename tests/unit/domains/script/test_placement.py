"""Under which tests and in which loops a node stands."""

from __future__ import annotations

import ast

from preflight.domains.script.placement import Placement, places
from preflight.domains.script.source import parse_module

TEXT = """
for i in data:
    if i:
        a()
    else:
        b()
    try:
        c()
    except ValueError:
        d()
    with e() as f:
        g()
    def h():
        inside()
"""


def found() -> dict[str, Placement]:
    scope = parse_module(TEXT.encode(), "train.py").scopes[0]
    calls = [p for p in places(scope) if isinstance(p.node, ast.Call)]
    return {ast.unparse(p.node): p for p in calls}


def test_every_call_has_its_place() -> None:
    seen = found()
    assert list(seen) == ["a()", "b()", "c()", "d()", "e()", "g()"]
    assert all(len(place.loops) == 1 for place in seen.values())
    assert [len(seen[c].tries) for c in ("a()", "c()", "d()")] == [0, 1, 0]
    assert [name for name, place in seen.items() if place.handler] == ["d()"]


def test_branches_of_one_test_exclude_each_other() -> None:
    seen = found()
    assert seen["a()"].excludes(seen["b()"])
    assert not seen["a()"].excludes(seen["a()"])
    assert not seen["a()"].excludes(seen["c()"])
