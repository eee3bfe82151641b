"""Features that are gathered from all ranks for a contrastive loss, by a collective that carries no
gradient: torch.distributed.all_gather() fills plain tensors, so that what a loss makes of them ends
there. Each rank then learns from its own rows alone.

It is meant where the function runs without gradients, as for a queue or an evaluation, and where
the rank puts its own part back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from preflight.domains.script.rules import Mentions
from preflight.domains.script.source import Hit, NameScope, Program, last_name, last_part, name_set

GATHERS = name_set(
    "torch.distributed.all_gather torch.distributed.all_gather_into_tensor "
    "torch.distributed.distributed_c10d.all_gather"
)
JOINS = name_set("cat concat concatenate stack vstack")
PRODUCTS = name_set("matmul mm bmm einsum cdist cosine_similarity")
LOSSES = name_set("cross_entropy nll_loss log_softmax CrossEntropyLoss logsumexp")
"""A loss over the products of all pairs has one of these."""
KEEPS = ("contiguous", "float", "half", "clone")
"""Methods whose result still has the gradient of what they are called on."""
WITHOUT = name_set("no_grad inference_mode detach set_grad_enabled requires_grad_ stop_gradient")
"""Whoever writes one of these has thought of gradients."""
MEANT = ("eval", "valid", "test", "metric", "recall", "retriev", "accuracy", "queue", "momentum")
"""In names of functions that train nothing."""


def gathered_without_gradient(program: Program, seen: Mentions) -> Iterator[Hit]:
    """all_gather of features whose products with others go into a loss."""
    if "backward" not in seen.names or not LOSSES & {*seen.names}:
        return
    for module in program.modules:
        for scope, call in module.calls():
            if module.full(call.func) not in GATHERS or not isinstance(scope.node, ast.FunctionDef):
                continue
            into, given = _arguments(call)
            if not into or not given or _is_meant(scope, scope.node):
                continue
            if _put_back(scope, into):
                continue
            joined = _joined(scope, into, call)
            if _in_loss(scope, joined, into) or _returned_into_loss(program, scope, joined, into):
                yield from module.hit("gather-without-gradient", call, scope, given)


def _arguments(call: ast.Call) -> tuple[str, str]:
    """What it gathers into, and of what: plain names, of which the second is not detached."""
    match call.args:
        case [ast.Name(id=into), ast.Name(id=given), *_]:
            return into, given
        case [ast.Name(id=into), ast.Call(func=ast.Attribute(ast.Name(id=given), of), args=[])]:
            return (into, given) if of in KEEPS else ("", "")
    return "", ""


def _is_meant(scope: NameScope, function: ast.FunctionDef) -> bool:
    """Whether gradients are thought of there, or nothing is trained."""
    if any(part in function.name.lower() for part in MEANT):
        return True
    owner = scope.parent.node if scope.parent is not None else None
    bases = owner.bases if isinstance(owner, ast.ClassDef) else []
    if any(last_name(base) == "Function" for base in bases):
        return True  # an autograd function of its own
    thought = (*function.decorator_list, *scope.nodes)
    return any(_name_of(node) in WITHOUT for node in thought)


def _put_back(scope: NameScope, into: str) -> bool:
    """Whether one part of what was gathered is replaced, as by the rank's own, or the list is
    another one later."""
    return len(scope.bound.get(into, ())) > 1 or any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and last_name(node.value) == into
        for node in scope.nodes
    )


def _joined(scope: NameScope, into: str, call: ast.Call) -> set[str]:
    """The names of all that was gathered, as one tensor."""
    names = {into} if last_name(call.func) == "all_gather_into_tensor" else set()
    for name, values in scope.bound.items():
        if any(value is not None and _joins(value, into) for value in values):
            names.add(name)
    return names


def _joins(node: ast.AST, into: str) -> bool:
    """Whether it makes one tensor of the parts."""
    return any(
        isinstance(inner, ast.Call)
        and last_name(inner.func) in JOINS
        and any(last_name(argument) == into for argument in inner.args)
        for inner in ast.walk(node)
    )


def _in_loss(scope: NameScope, names: set[str], into: str = "") -> bool:
    """Whether a product with one of these names stands in a function that computes a loss."""
    if not any(isinstance(n, ast.Call) and last_name(n.func) in LOSSES for n in scope.nodes):
        return False
    return any(
        last_name(inner) in names or (into and _joins(inner, into))
        for node in scope.nodes
        for factor in _factors(node)
        for inner in ast.walk(factor)
        if isinstance(inner, (ast.Name, ast.Call))
    )


def _factors(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return [left, right]
        case ast.Call(func=func, args=args) if last_name(func) in PRODUCTS:
            # of a method what it is called on as well
            return [*args, *([func.value] if isinstance(func, ast.Attribute) else [])]
    return []


def _returned_into_loss(program: Program, home: NameScope, joined: set[str], into: str) -> bool:
    """Whether the function returns what was gathered, and a caller puts that into a loss."""
    returned = [n.value for n in home.nodes if isinstance(n, ast.Return) and n.value is not None]
    if not any(_joins(one, into) or last_name(one) in joined for one in returned):
        return False
    name = last_part(home.name)
    return any(
        _in_loss(scope, _bound_to(scope, name)) and _trains(program, scope)
        for scope in _callers(program, name)
    )


def _trains(program: Program, function: NameScope) -> bool:
    """Whether a function is called somewhere with gradients, or by nobody who is seen."""
    name = last_part(function.name)
    called = any(
        last_name(call.func) == name for module in program.modules for _, call in module.calls()
    )
    return not called or any(True for _ in _callers(program, name))


def _callers(program: Program, name: str) -> Iterator[NameScope]:
    """The functions that call one of this name, with gradients."""
    for module in program.modules:
        for scope, call in module.calls():
            if last_name(call.func) != name or _without_gradients(scope, call):
                continue
            yield scope


def _without_gradients(scope: NameScope, call: ast.Call) -> bool:
    """Whether a call stands where there are none, or in a function that trains nothing."""
    blocks = [node for node in scope.nodes if isinstance(node, ast.With) and _without(node)]
    if any(inner is call for block in blocks for inner in ast.walk(block)):
        return True
    if not isinstance(scope.node, ast.FunctionDef):
        return False
    decorated = any(_name_of(one) in WITHOUT for one in scope.node.decorator_list)
    return decorated or any(part in scope.node.name.lower() for part in MEANT)


def _without(block: ast.With) -> bool:
    return any(_name_of(item.context_expr) in WITHOUT for item in block.items)


def _name_of(node: ast.AST) -> str:
    """`no_grad` of `torch.no_grad` and of `torch.no_grad()`."""
    return last_name(node.func if isinstance(node, ast.Call) else node)


def _bound_to(scope: NameScope, function: str) -> set[str]:
    """The names in a function that have what this one returns."""
    return {
        name
        for name, values in scope.bound.items()
        if any(isinstance(v, ast.Call) and last_name(v.func) == function for v in values)
    }
