"""What goes wrong within a step: gradients that are thrown away between micro-batches, clipped
while they are still scaled, a mixed precision of yesterday."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeGuard

from preflight.domains.script.placement import LOOPS, Placement, places
from preflight.domains.script.rules import (
    SCALERS,
    Mentions,
    accumulation_count,
    calls_of,
    constant,
    keyword,
    under_a_test,
    without_inner_loops,
)
from preflight.domains.script.source import (
    SCOPES,
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    last_part,
    name_set,
)

CLIPS = name_set("clip_grad_norm_ clip_grad_value_ clip_grad_norm")
PLAIN = CLIPS | name_set("zero_grad no_grad enable_grad set_grad_enabled requires_grad_")
"""What has to do with gradients, and keeps none."""
Batch = ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef
BATCHES = (*LOOPS, ast.FunctionDef, ast.AsyncFunctionDef)
"""What may do one micro-batch: a pass of a loop, or a method that a loop elsewhere calls."""
PRECISION = ("amp", "fp16", "half", "scaler", "mixed", "precision", "apex")
"""In a test that asks whether gradients are scaled at all."""


def accumulation_reset(program: Program, seen: Mentions) -> Iterator[Hit]:
    """zero_grad() in every micro-batch, where the optimizer steps only after some of them."""
    if seen.framework or "accumulate" in seen.names:
        return
    for module in program.modules:
        for scope in module.scopes:
            for body in (n for n in (scope.node, *scope.nodes) if isinstance(n, BATCHES)):
                if _keeps_gradients(body):
                    continue
                for reset in (*_every_batch(body), *_in_inner_loop(body)):
                    yield from module.hit("accumulation-reset", reset, scope)


def _keeps_gradients(loop: ast.AST) -> bool:
    """Whether gradients are looked at in a loop: what is reset may have been put aside before."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return True
        if isinstance(node, ast.Call):
            name = last_part(ast.unparse(node.func)).lower()
            if "grad" in name and name not in PLAIN:
                return True
    return False


def _every_batch(loop: Batch) -> Iterator[ast.AST]:
    """`if (i + 1) % n == 0: optimizer.step()`, and zero_grad() beside it instead of within."""
    steps: list[str] = []
    for statement in loop.body:
        if isinstance(statement, ast.If) and accumulation_count(statement.test):
            inner = [n for part in statement.body for n in without_inner_loops(part)]
            if not any(_is_backward(n) for n in inner):
                steps += [o for n in inner if (o := _stepped(n))]
        elif any(isinstance(n, ast.Continue) for n in ast.walk(statement)):
            return  # what follows is not for every batch
    beside = [n for statement in loop.body for n in _always(statement)]
    # a second optimizer that steps in every batch is a game of its own
    if len(set(steps)) == 1 and any(map(_is_backward, beside)) and not any(map(_stepped, beside)):
        yield from (n for n in beside if _resets(n, steps[0]))


def _in_inner_loop(outer: Batch) -> Iterator[ast.AST]:
    """A loop of micro-batches inside of a step, and zero_grad() in that one."""
    for number, loop in enumerate(outer.body):
        if not isinstance(loop, ast.For):
            continue
        inside = [n for statement in loop.body for n in without_inner_loops(statement)]
        beside = [n for statement in loop.body for n in _always(statement)]
        after = [n for statement in outer.body[number + 1 :] for n in _always(statement)]
        steps = {owner for n in after if (owner := _stepped(n))}
        if len(steps) != 1 or any(_stepped(n) for n in inside):
            continue
        if any(_is_backward(n) for n in beside):
            yield from (n for n in beside if _resets(n, min(steps)))


def _always(statement: ast.AST) -> Iterator[ast.AST]:
    """What is done whenever the statement is reached."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (ast.If, ast.IfExp, ast.Try, ast.Match, *LOOPS, *SCOPES)):
            yield node
            waiting += ast.iter_child_nodes(node)


UNSCALES = "unscale_"
READING = name_set("item tolist cpu")


def waits_each_step(program: Program, seen: Mentions) -> Iterator[Hit]:
    """The loss read or printed in every step, or synchronize(): on a GPU the host waits there."""
    if not ("cuda" in seen.names or any(text.startswith("cuda") for text in seen.texts)):
        return
    for module in program.modules:
        for scope in module.scopes:
            for loop in (n for n in scope.nodes if isinstance(n, LOOPS)):
                each = [n for statement in loop.body for n in _always(statement)]
                if any(map(_stepped, each)):
                    losses = {name for n in each if (name := _differentiated(n))}
                    for node in (n for n in each if _waits_for(n, losses)):
                        yield from module.hit("waits-each-step", node, scope)


def _differentiated(node: ast.AST) -> str:
    """`loss` of loss.backward() and of scaler.scale(loss).backward()."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    owner = node.func.value
    if isinstance(owner, ast.Call) and owner.args and last_part(ast.unparse(owner.func)) == "scale":
        owner = owner.args[0]
    return owner.id if node.func.attr == "backward" and isinstance(owner, ast.Name) else ""


def _waits_for(node: ast.AST, losses: Collection[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func).endswith("cuda.synchronize"):
        return True
    if isinstance(node.func, ast.Name) and node.func.id in ("float", "print"):
        return any(isinstance(arg, ast.Name) and arg.id in losses for arg in node.args)
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in READING):
        return False
    read = node.func.value
    if isinstance(read, ast.Call) and isinstance(read.func, ast.Attribute):
        read = read.func.value if read.func.attr == "detach" else read
    return isinstance(read, ast.Name) and read.id in losses


def _is_backward(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _stepped(node: ast.AST) -> str:
    """The optimizer that a call steps, as it is written."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    owner = ast.unparse(node.func.value)
    if node.func.attr != "step" or not ("opt" in owner.lower() or "scaler" in owner.lower()):
        return ""
    return ast.unparse(node.args[0]) if "scaler" in owner.lower() and node.args else owner


def _resets(node: ast.AST, optimizer: str) -> bool:
    """zero_grad() of that optimizer, or of a model, whose gradients are the same."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = ast.unparse(node.func.value)
    return node.func.attr == "zero_grad" and (owner == optimizer or "opt" not in owner.lower())


def clip_scaled(program: Program, seen: Mentions) -> Iterator[Hit]:
    """Gradients are clipped between scaler.scale(loss).backward() and scaler.step(optimizer), and
    nobody has divided them by the scale."""
    if seen.framework or "apex" in seen.imports:
        return
    scalers = [(s, c) for module in program.modules for s, c in calls_of(module, *SCALERS)]
    if any(constant(keyword(c, "enabled"), s) is False for s, c in scalers):
        return
    divides = {
        last_part(scope.name)
        for module in program.modules
        for scope in module.scopes
        if any(last_name(getattr(n, "func", None)) == UNSCALES for n in scope.nodes)
    }
    if any(
        last_part(s.name) == "scale" and "." in s.name for m in program.modules for s in m.scopes
    ):
        return  # a scaler of their own, which may clip as it likes
    elsewhere = not (divides or "get_scale" in seen.names) and any(
        _scales(n) for module in program.modules for scope in module.scopes for n in scope.nodes
    )
    for module in program.modules:
        for scope in module.scopes:
            found = [p for p in places(scope) if isinstance(p.node, ast.Call)]
            if any(last_name(getattr(p.node, "func", None)) in (UNSCALES, *divides) for p in found):
                continue
            scaled = [p for p in found if _scales(p.node)]
            steps = [p for p in found if _stepped(p.node) and _owner_scales(p.node)]
            for clip in found:
                if not _clips(clip.node, module):
                    continue
                after = [p for p in steps if _line(p) > _line(clip) and p.meets(clip)]
                before = [p for p in scaled if _line(p) < _line(clip) and p.meets(clip)]
                known = before or (after if elsewhere and not scaled else [])
                if after and any(not _asks_for_precision(clip, one) for one in known):
                    yield from module.hit("clip-scaled", clip.node, scope)


def unscaled_each_batch(program: Program, seen: Mentions) -> Iterator[Hit]:
    """scaler.unscale_(optimizer) in every batch, and scaler.step(optimizer) after some of them:
    what was accumulated is divided by the scale once more in each."""
    if seen.framework:
        return
    for module in program.modules:
        for scope in module.scopes:
            found = [p for p in places(scope) if isinstance(p.node, ast.Call)]
            steps = [p for p in found if _stepped(p.node) and _owner_scales(p.node)]
            for place in (p for p in found if last_name(getattr(p.node, "func", None)) == UNSCALES):
                after = [p for p in steps if _line(p) > _line(place) and p.meets(place)]
                before = [p for p in found if _scales(p.node) and p.meets(place)]
                own = {id(test) for test, _ in place.branches}
                each = any(own.issuperset(id(t) for t, _ in p.branches) for p in before)
                if each and after and all(_waits_for_more(one, place, scope) for one in after):
                    yield from module.hit("unscaled-each-batch", place.node, scope)


def _waits_for_more(step: Placement, unscaled: Placement, scope: NameScope) -> bool:
    """Whether a step stands under a test that counts batches and the other does not: what stands
    under a test of its own may ask for the same in other words."""
    own = {id(test) for test, _ in unscaled.branches}
    if not own.issubset(id(test) for test, _ in step.branches):
        return False
    for test, body in step.branches:
        asked = test.test
        if isinstance(asked, ast.Name):
            asked = scope.value(asked.id) or asked
        if id(test) not in own and body and accumulation_count(asked):
            return True
    return False


def _line(place: Placement) -> int:
    return int(getattr(place.node, "lineno", 0))


def _scales(node: ast.AST) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(attr="backward", value=ast.Call(func=ast.Attribute(attr="scale")))
        ):
            return True
    return False


def _owner_scales(node: ast.AST) -> bool:
    func = getattr(node, "func", None)
    return isinstance(func, ast.Attribute) and "scaler" in ast.unparse(func.value).lower()


def _clips(node: ast.AST, module: Module) -> bool:
    return isinstance(node, ast.Call) and last_part(module.full(node.func)) in CLIPS


def _asks_for_precision(clip: Placement, scaled: Placement) -> bool:
    """Whether clipping stands under a test of the precision that the scaled backward() does not
    stand under."""
    shared = {(ast.unparse(test.test), body) for test, body in scaled.branches}
    own = {(ast.unparse(test.test), body) for test, body in clip.branches} - shared
    return any(word in test.lower() for test, _ in own for word in PRECISION)


def apex_amp(program: Program) -> Iterator[Hit]:
    """amp of apex, in a file that can't be run without it."""
    for module in program.modules:
        calls = list(calls_of(module, "apex.amp.initialize", "apex.amp.scale_loss"))
        imports = [
            node
            for scope in module.scopes
            for node in scope.nodes
            if isinstance(node, (ast.Import, ast.ImportFrom)) and _of_apex(node)
        ]
        given_up = [node for scope in module.scopes for node in scope.nodes if _gives_up(node)]
        wanted = {id(n) for one in given_up for part in one.body for n in ast.walk(part)}
        chosen = [node for node in imports if id(node) not in wanted]
        if calls and not under_a_test(module, [*chosen, *given_up]):
            first = min(calls, key=lambda c: c[1].lineno)
            yield from module.hit("apex-amp", first[1], first[0])


def _gives_up(node: ast.AST) -> TypeGuard[ast.Try]:
    """`try: import apex`, and an error of the script's own where there is none."""
    return isinstance(node, ast.Try) and all(
        isinstance(handler.body[-1], ast.Raise) for handler in node.handlers
    )


def _of_apex(node: ast.Import | ast.ImportFrom) -> bool:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.partition(".")[0] == "apex" for name in names)
