"""A learning rate that each rank sets for itself: ReduceLROnPlateau is given the loss of the rank's
own share of the data, or some ranks alone step a scheduler.

DDP makes gradients equal, not what an optimizer does with them: ranks with different rates train
different models from then on, and nothing fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from preflight.domains.script.agreement_rules import (
    agreeing_functions,
    calls_in,
    may_agree,
    wraps,
)
from preflight.domains.script.own_clock import TELLS_NOBODY
from preflight.domains.script.placement import Placement, places
from preflight.domains.script.rank_values import by_rank, differs
from preflight.domains.script.rules import Mentions, calls_of
from preflight.domains.script.source import Hit, Module, NameScope, Program, last_part
from preflight.domains.script.stop_rules import PLAIN_CALLS, SAMPLERS, is_told

SCHEDULERS = "torch.optim.lr_scheduler."
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
METRICS = frozenset({"torchmetrics", "torcheval"})
"""Their values may be those of all ranks, though the script calls no collective for it."""
CHAIN_MAX = 6


def rate_per_rank(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A step of a scheduler by what a rank alone knows, in a program that wraps a model: a loss of
    its own, or anything where the data of each loader is shared out and ranks agree on nothing."""
    if seen.framework or not wraps(program):
        return
    agree = agreeing_functions(program)
    samplers = sum(1 for module in program.modules for _ in calls_of(module, *SAMPLERS))
    training = _measuring(program, agree)
    quiet = samplers > 1 and not may_agree(seen.names) and not seen.imports & METRICS
    for module in program.modules:
        made = _schedulers(module)
        for scope in module.scopes if made else ():
            for place in places(scope):
                match place.node:
                    case ast.Call(func=ast.Attribute(value=owner, attr="step"), args=args) as call:
                        kind = made.get(ast.unparse(owner), "")
                        why = ""
                        if kind and (test := _parting(place, scope, module)) is not None:
                            shown = f"only under 'if {ast.unparse(test.test)[:40]}'"
                            why = "" if _may_be_told(scope, agree) else shown
                        elif kind == PLATEAU and samplers and args:
                            own = _own_loss(args[0], scope, training, agree)
                            own = own or (ast.unparse(args[0])[:40] if quiet else "")
                            why = own and f"ReduceLROnPlateau by {own} of the rank's own share"
                        if why:
                            yield from module.hit("rate-per-rank", call, scope, why)


def _schedulers(module: Module) -> dict[str, str]:
    """What is bound to a scheduler of torch's and to nothing else -> its class."""
    found: dict[str, set[str]] = {}
    for scope in module.scopes:
        for node in scope.nodes:
            if isinstance(node, ast.Assign):
                full = module.full(node.value.func) if isinstance(node.value, ast.Call) else ""
                for target in node.targets:
                    if isinstance(target, (ast.Name, ast.Attribute)):
                        found.setdefault(ast.unparse(target), set()).add(full)
    return {
        name: next(iter(kinds))
        for name, kinds in found.items()
        if len(kinds) == 1 and next(iter(kinds)).startswith(SCHEDULERS)
    }


def _measuring(program: Program, agree: frozenset[str]) -> frozenset[str]:
    """The functions of these files, each the only one of its name, that train and in which ranks
    agree on nothing: what they give back is of the rank's own share."""
    names = [
        last_part(scope.name)
        for module in program.modules
        for scope in module.scopes
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return frozenset(
        name
        for module in program.modules
        for scope in module.scopes
        if isinstance(scope.node, ast.FunctionDef)
        and names.count(name := last_part(scope.name)) == 1
        and name not in agree
        and "backward" in calls_in(scope.node)
    )


def _parting(place: Placement, scope: NameScope, module: Module) -> ast.If | None:
    """The test that keeps some ranks out of a place and gives them nothing else to do."""
    for test, _ in reversed(place.branches):
        if differs(by_rank(test.test, scope, module)) and not test.orelse:
            return test
    return None


def _may_be_told(scope: NameScope, agree: frozenset[str]) -> bool:
    """Whether ranks agree on anything in a function: it may be the rate, or the optimizer's
    state."""
    called = calls_in(scope.node) - {"barrier"}
    return bool(called & agree) or may_agree(called)


def _own_loss(
    value: ast.expr, scope: NameScope, training: frozenset[str], agree: frozenset[str]
) -> str:
    """What a value is made of, by arithmetic alone, if that is a loss on which this function calls
    backward(), or what a function of `training` has given back; and no rank tells it others."""
    losses = {
        node.func.value.id
        for node in scope.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and isinstance(node.func.value, ast.Name)
    }
    names = _names(value)
    calls = set(calls_in(value))
    for _ in range(CHAIN_MAX):
        before = len(names)
        for node in scope.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)) and _binds(node, names - losses):
                calls |= calls_in(node.value)
                if calls_in(node.value) <= PLAIN_CALLS:
                    names |= _names(node.value)
        if len(names) == before:
            break
    if may_agree(frozenset(calls)) or calls & agree or is_told(scope.node, names, agree):
        return ""
    measured = sorted(names & losses) or [f"{name}()" for name in sorted(calls & training)]
    known = calls <= training | PLAIN_CALLS and not _is_handed_on(scope, names - losses)
    return measured[0] if measured and known else ""


def _is_handed_on(scope: NameScope, names: set[str]) -> bool:
    """Whether a function that may change it in place is given one of these."""
    return any(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and any(isinstance(a, ast.Name) and a.id in names for a in node.value.args)
        and not calls_in(node.value) <= TELLS_NOBODY | {"step"}
        for node in scope.nodes
    )


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _binds(node: ast.Assign | ast.AugAssign, names: set[str]) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(n, ast.Name) and n.id in names for t in targets for n in ast.walk(t))
