"""A batch that one rank leaves out: its loss is NaN or its data is empty, and the backward() of DDP
or FSDP, which all other ranks call, comes after that decision.

Real reports: NVIDIA-NeMo/Automodel#2468, lightseekorg/TorchSpec#126.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from preflight.domains.script.agreement_rules import (
    agreeing_functions,
    calls_in,
    may_agree,
    wraps,
)
from preflight.domains.script.rules import Mentions, calls_of
from preflight.domains.script.source import Hit, Module, NameScope, Program, name_set

SHARDED = name_set(
    "torch.distributed.fsdp.fully_shard torch.distributed._composable.fsdp.fully_shard"
)
NOT_A_NUMBER = name_set("isnan isinf isfinite")
COUNTS = name_set("len numel nonzero count_nonzero")
TOTALS = name_set("sum any")


def batch_skipped(program: Program, seen: Mentions) -> Iterator[Hit]:
    """`if torch.isnan(loss): continue` and the like, in a loop that calls backward() after it, in
    which ranks agree on nothing."""
    sharded = any(True for module in program.modules for _ in calls_of(module, *SHARDED))
    if seen.framework or not (wraps(program) or sharded):
        return
    agree = agreeing_functions(program)
    for module in program.modules:
        for scope in module.scopes:
            for loop in (n for n in scope.nodes if isinstance(n, ast.For)):
                if not may_agree(called := calls_in(loop)) and not called & agree:
                    yield from _skips(module, scope, loop)


def _skips(module: Module, scope: NameScope, loop: ast.For) -> Iterator[Hit]:
    last = max((n.lineno for part in loop.body for n in _backward(part)), default=0)
    own = {n.id for n in ast.walk(loop) if _stores(n)}
    for part in loop.body:
        if part.lineno >= last:
            return
        match part:
            case ast.If(test=test, body=body, orelse=[]) if _leaves(body) and not any(
                True for inner in body for _ in _backward(inner)
            ):
                if why := _by_the_data(test, own):
                    yield from module.hit("batch-skipped", body[-1], scope, why)
            case ast.Try(body=body, handlers=handlers) if any(_calls_something(n) for n in body):
                bound = {n.id for one in body for n in ast.walk(one) if _stores(n)}
                used = {
                    n.id
                    for other in loop.body
                    if other.lineno > part.lineno
                    for call in _backward(other)
                    for n in ast.walk(call)
                    if isinstance(n, ast.Name)
                }
                for handler in handlers:
                    if bound & used and _leaves(handler.body):
                        kind = ast.unparse(handler.type) if handler.type else "every error"
                        why = f"after {kind[:40]}"
                        yield from module.hit("batch-skipped", handler.body[-1], scope, why)


def _stores(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _calls_something(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def _backward(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "backward":
            yield inner


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], (ast.Continue, ast.Break))


def _by_the_data(test: ast.expr, own: set[str]) -> str:
    """Why a test may come out differently on each rank: it asks the loss, or the batch, of the loop
    whether it is a number, or whether there is anything in it."""
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    if not names & own:
        return ""
    called = calls_in(test)
    text = ast.unparse(test)[:40]
    if called & NOT_A_NUMBER:
        return f"by '{text}' of its own loss"
    return f"by '{text}' of its own batch" if _asks_for_nothing(test, own) else ""


def _asks_for_nothing(test: ast.expr, own: set[str]) -> bool:
    """`len(batch) == 0`, `batch is None`, `not mask.any()`, `mask.sum() == 0`."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_asks_for_nothing(part, own) for part in parts)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[right]):
            return name in own and isinstance(right, ast.Constant) and right.value is None
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            return bool(calls_in(left) & (COUNTS | TOTALS)) and _is_of(left, own)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return bool(calls_in(part) & TOTALS) and _is_of(part, own)
    return False


def _is_of(node: ast.expr, own: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in own for n in ast.walk(node))
