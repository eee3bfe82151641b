"""Collectives behind the name of a function in another file, or of a method: what a test of the
rank keeps some ranks out of though it does not show there.

A function counts when each rank that calls it surely gets to a collective in it, and a name when
all functions that the files define by it do.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence

from preflight.domains.script.control_flow import (
    Walk,
    called_by_name,
    collectives,
    is_collective,
    reaching_a_collective,
    surely,
)
from preflight.domains.script.placement import places
from preflight.domains.script.rank_values import by_rank, differs
from preflight.domains.script.source import Hit, Module, NameScope, Program, last_part

ROUNDS = 3
"""How many functions may lie between a call and its collective, beside those of one file."""


def collective_elsewhere(program: Program) -> Iterator[Hit]:
    """A call under a test of the rank, of a function elsewhere that gets to a collective."""
    reached = certain_functions(program)
    if not reached:
        return
    homes = _homes(program)
    owners: dict[str, list[NameScope | None]] = {}
    for module in program.modules:
        for scope in module.scopes:
            owners.setdefault(last_part(scope.name), []).append(scope.parent)
    for module in program.modules:
        beside = reaching_a_collective(module)
        for scope in module.scopes:
            found = [p for p in places(scope) if isinstance(p.node, ast.Call)]
            names = [_name(p.node) for p in found]
            for place, name in zip(found, names, strict=True):
                if name not in reached or names.count(name) > 1 or place.handler:
                    continue  # called twice: perhaps by some ranks here, by the others there
                if _is_of_a_library(place.node, module, homes[name]):
                    continue
                if _is_of_another(place.node, scope, owners[name]):
                    continue
                if isinstance(getattr(place.node, "func", None), ast.Name) and name in beside:
                    continue  # its path is followed
                test = next(
                    (
                        test
                        for test, _ in reversed(place.branches)
                        if differs(by_rank(test.test, scope, module)) and not test.orelse
                    ),
                    None,
                )
                if test is not None:
                    shown = f"{name}() gets to {reached[name]}; under 'if {ast.unparse(test.test)}'"
                    yield from module.hit("collective-under-rank", place.node, scope, shown)


def _homes(program: Program) -> dict[str, set[str]]:
    """The names of functions, methods and classes -> the files that define them."""
    found: dict[str, set[str]] = {}
    for module in program.modules:
        for scope in module.scopes:
            found.setdefault(last_part(scope.name), set()).add(module.file)
    return found


def certain_functions(program: Program) -> Mapping[str, str]:
    """The names of functions and methods -> the collective that whoever calls them gets to."""
    defined: dict[str, list[tuple[Module, NameScope]]] = {}
    for module in program.modules:
        for scope in module.scopes:
            if isinstance(scope.node, ast.FunctionDef):
                defined.setdefault(last_part(scope.name), []).append((module, scope))
    reached: dict[str, str] = {}
    homes = _homes(program)
    called = {
        id(module): called_by_name(module)
        for module in program.modules
        if any(is_collective(call, module) for _, call in module.calls())
    }
    for name, found in defined.items():
        for module, scope in found:
            if id(module) in called:
                walk = Walk(module, 0, frozenset(), called[id(module)])
                if met := collectives(surely(walk.path(scope))):
                    reached.setdefault(name, met[0].kind)
                    found.remove((module, scope))
                    break
    for _ in range(ROUNDS):
        for name, found in defined.items():
            by = [_always_calls(scope, module, reached, homes) for module, scope in found]
            if by and all(by) and name not in reached:
                reached[name] = reached[by[0]]
    return {
        name: kind
        for name, kind in reached.items()
        if all(_always_calls(scope, module, reached, homes) for module, scope in defined[name])
    }


def _always_calls(
    scope: NameScope, module: Module, reached: Mapping[str, str], homes: Mapping[str, set[str]]
) -> str:
    """Which of these a function calls, outside of any test and before it may leave."""
    leaves = min(
        (n.lineno for n in scope.nodes if isinstance(n, (ast.Return, ast.Yield, ast.Raise))),
        default=1 << 30,
    )
    for place in places(scope):
        open_way = not (place.branches or place.tries or place.handler)
        if open_way and isinstance(place.node, ast.Call) and place.node.lineno <= leaves:
            name = _name(place.node)
            if name in reached and not _is_of_a_library(place.node, module, homes[name]):
                return name
    return ""


def _is_of_another(node: ast.AST, scope: NameScope, owners: Sequence[NameScope | None]) -> bool:
    """Whether a method is called of another object, where only this object's class has a method of
    that name: `self.writer.save()` in a class that defines save() itself."""
    func = getattr(node, "func", None)
    if not isinstance(func, ast.Attribute) or getattr(func.value, "id", "") == "self":
        return False
    return all(owner is not None and owner is scope.parent for owner in owners)


def _is_of_a_library(node: ast.AST, module: Module, homes: set[str]) -> bool:
    """Whether an import says that the function called is another one than those in these files."""
    func = getattr(node, "func", None)
    first = getattr(func, "value", func)
    if not isinstance(func, (ast.Name, ast.Attribute)) or not isinstance(first, ast.Name):
        return False
    if first.id not in module.names:
        return False
    parts = module.full(func).strip(".").split(".")[:-1]
    stems = {os.path.basename(home).removesuffix(".py") for home in homes}
    return not stems & {*parts} and "__init__" not in stems


def _name(node: ast.AST) -> str:
    func = getattr(node, "func", None)
    return str(getattr(func, "id", getattr(func, "attr", "")))
