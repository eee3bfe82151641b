"""Whom a call calls, and what parameters are given."""

from __future__ import annotations

import ast

import pytest

from preflight.domains.script.callees import (
    callee,
    functions_of,
    given,
    given_by_callers,
    is_parameter,
)
from preflight.domains.script.source import Program, parse_module

CLASS = (
    "class T:\n  def __init__(self, net):\n    self.run(net)\n  def run(self, a, b=1):\n    pass\n"
)
OTHER = "def run(a, *rest, key=None):\n  a = 2\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (OTHER + "run(x, y, key=z)\n", {"a": "x", "key": "z"}),
        (OTHER + "run(*x)\n", {}),
        (CLASS, {"a": "net"}),
        ("from lib import run\nrun(x)\n", {"a": "x"}),
        ("import lib\nlib.run(x)\n", {"a": "x"}),
        ("run(x)\n", None),  # of nobody knows where
        ("other.run(x)\n", None),
    ],
)
def test_a_call_is_followed(text: str, values: dict[str, str] | None) -> None:
    module = parse_module(text.encode(), "train.py")
    program = Program((module, parse_module(OTHER.encode(), "lib.py")), ())
    scope, call = next(c for c in module.calls() if isinstance(c[1], ast.Call))
    function = callee(call, scope, module, functions_of(program, module))
    assert (function is None) is (values is None)
    if function is not None:
        assert {k: ast.unparse(v) for k, v in given(call, function).items()} == values


def test_what_callers_give() -> None:
    module = parse_module((CLASS + "T(model)\nT(net=other)\n").encode(), "train.py")
    made = next(s for s in module.scopes if s.name == "T.__init__")
    found = given_by_callers(Program((module,), ()), made, "net")
    assert [ast.unparse(value) for *_, value in found] == ["model", "other"]


def test_a_parameter_is_bound_once() -> None:
    module = parse_module(OTHER.encode(), "lib.py")
    function = next(s for s in module.scopes if s.name == "run")
    assert [is_parameter(name, function) for name in ("a", "key", "none")] == [False, True, False]
