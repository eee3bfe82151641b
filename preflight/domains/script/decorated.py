"""Collectives in a function that a decorator lets run on one rank only, such as Accelerate's
`@accelerator.on_main_process` or Lightning's `@rank_zero_only`.

Accelerator.gather's docstring: "This gather happens in all processes."
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from preflight.domains.script.control_flow import is_collective, reaching_a_collective
from preflight.domains.script.placement import Placement, places
from preflight.domains.script.rank_values import by_rank, differs, truth
from preflight.domains.script.source import Hit, Module, NameScope, Program
from preflight.domains.script.wrapped_rules import decorated


def collective_decorated(program: Program) -> Iterator[Hit]:
    """A collective, or a function of the file that gets to one, under such a decorator; silent
    where the other ranks alone call one of that name, which may be the other half."""
    for module in program.modules:
        reach = reaching_a_collective(module)
        found = [
            (name, call, scope, how)
            for scope in module.scopes
            if (how := decorated(scope, module))
            for place in places(scope)
            if isinstance(call := place.node, ast.Call)
            and not _is_for_one(place, scope, module)
            and (name := _collective(call, module, reach))
        ]
        if not found:
            continue
        met = _of_others(module, reach)
        for name, call, scope, how in found:
            if name not in met:
                yield from module.hit("collective-under-rank", call, scope, f"{name} under @{how}")


def _collective(call: ast.Call, module: Module, reach: Mapping[str, NameScope]) -> str:
    if name := is_collective(call, module):
        return name
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    return called if called in reach and not decorated(reach[called], module) else ""


def _is_for_one(place: Placement, scope: NameScope, module: Module) -> bool:
    """Whether it is only reached where there is one rank, or none at all."""
    return any(
        {truth(value) for value in by_rank(test.test, scope, module)} == {not body}
        for test, body in place.branches
    )


def _of_others(module: Module, reach: Mapping[str, NameScope]) -> set[str]:
    """The collectives under a test that keeps rank 0 out."""
    return {
        name
        for scope in module.scopes
        for place in places(scope)
        if isinstance(place.node, ast.Call) and (name := _collective(place.node, module, reach))
        for test, body in place.branches
        if differs(values := by_rank(test.test, scope, module)) and truth(values[0]) is not body
    }
