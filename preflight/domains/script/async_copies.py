"""Copies between the GPU and the CPU with non_blocking=True, whose memory is read or overwritten
before they have ended.

What is copied to the CPU so is read at once, and holds whatever was there before; a pinned buffer
that is filled again for the next batch changes the one that is still on its way. Any word of a
wait silences it, since the text does not show for which copy that is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from preflight.domains.script.rules import Mentions, keyword
from preflight.domains.script.source import (
    FUNCTIONS,
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    name_set,
)
from preflight.domains.script.step_rules import waits_each_step

READS = name_set("numpy item tolist")
READERS = name_set("float int print bool str repr json.dumps")
WAITS = ("sync", "wait", "query", "event", "join", "barrier")
"""In the name of what waits for a copy, or lets the program know when it has ended."""
ENDS = name_set("item cpu tolist numpy nonzero is_nonzero")
"""Of a tensor on the GPU these wait for all that its stream was given before."""


def copy_not_awaited(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A copy to the CPU that is read, and a pinned buffer that is filled again, without a wait. A
    program that reads its loss in each step waits for all copies there."""
    each_step = any(True for _ in waits_each_step(program, seen))
    for module in program.modules:
        if not any(_is_true(keyword(call, "non_blocking")) for _, call in module.calls()):
            continue
        for scope in module.scopes:
            if not isinstance(scope.node, ast.ClassDef):
                yield from _read_at_once(module, scope)
                yield from () if each_step else _filled_again(module, scope)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _read_at_once(module: Module, scope: NameScope) -> Iterator[Hit]:
    """`x = y.to("cpu", non_blocking=True)`, then `x.numpy()`, with nothing between that waits."""
    nodes = sorted(
        (n for n in scope.nodes if isinstance(n, (ast.Assign, ast.Call))),
        key=lambda n: (n.lineno, n.col_offset),
    )
    for number, node in enumerate(nodes):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _to_cpu(value, module):
                own = {id(one) for one in ast.walk(value)}
                rest = [later for later in nodes[number + 1 :] if id(later) not in own]
                if line := _first_read(rest, name, module):
                    text = f"{name}, which is read in line {line}"
                    yield from module.hit("copy-not-awaited", node, scope, text)


def _first_read(rest: Iterable[ast.Assign | ast.Call], name: str, module: Module) -> int:
    """The line that reads a tensor; 0 where something waits before, or the name is another one."""
    for node in rest:
        if _binds(node, name) or _may_wait([node], but=name):
            return 0
        if isinstance(node, ast.Call) and _reads(node, name, module):
            return node.lineno
    return 0


def _to_cpu(value: ast.expr, module: Module) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr="to"), args=[target, *_]) if _is_true(
            keyword(value, "non_blocking")
        ):
            if isinstance(target, ast.Call) and module.full(target.func) == "torch.device":
                target = target.args[0] if target.args else target
            return isinstance(target, ast.Constant) and target.value == "cpu"
    return False


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(last_name(one) == name for one in node.targets)


def _reads(call: ast.Call, name: str, module: Module) -> bool:
    """Whether a call needs the numbers of a tensor at once."""
    match call.func:
        case ast.Attribute(value=owner, attr=attr) if attr in READS:
            return _root(owner) == name
    full = module.full(call.func)
    reader = full in READERS or full.startswith("numpy.") or last_name(call.func) in READERS
    return reader and any(isinstance(one, ast.Name) and one.id == name for one in call.args)


def _root(node: ast.expr) -> str:
    """`x` of `x[0].float()`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _may_wait(nodes: Iterable[ast.AST], but: str = "") -> bool:
    """Whether any of these waits for the GPU. but: a tensor on the CPU, for whose numbers nothing
    waits."""
    for node in nodes:
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if any(word in name.lower() for word in WAITS):
                return True
            on = node.func.value if isinstance(node.func, ast.Attribute) else None
            if name in ENDS and on is not None and not (but and _root(on) == but):
                return True
    return False


def _filled_again(module: Module, scope: NameScope) -> Iterator[Hit]:
    """A pinned buffer of an object, or of before a loop, that each batch is put into and copied to
    the GPU from."""
    if not isinstance(scope.node, FUNCTIONS):
        return
    for owner, body, rest in _rounds(module, scope):
        if _may_wait(rest):
            continue
        pinned = _pinned(owner)
        filled = {name for node in body if (name := _fills(node)) in pinned}
        for node in body:
            name = _sends(node)
            if name in filled and isinstance(node, ast.Call):
                text = f"{name}, which is filled again for the next one"
                yield from module.hit("copy-not-awaited", node, scope, text)
                break


def _rounds(
    module: Module, scope: NameScope
) -> Iterator[tuple[list[ast.AST], list[ast.AST], list[ast.AST]]]:
    """Where buffers may be made, what is done again and again, and where a wait may be."""
    parent = scope.parent
    if parent is not None and isinstance(parent.node, ast.ClassDef):
        own = [n for s in module.scopes if s.parent is parent for n in s.nodes]
        if scope.node in parent.node.body and getattr(scope.node, "name", "") != "__init__":
            yield own, list(scope.nodes), own
    for node in scope.nodes:
        if isinstance(node, (ast.For, ast.While)):
            body = [n for part in node.body for n in ast.walk(part)]
            before = [n for n in scope.nodes if getattr(n, "lineno", 0) < node.lineno]
            yield before, body, body


def _pinned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names of one buffer each, in memory that is locked for the GPU."""
    found = set()
    for node in nodes:
        match node:
            case ast.Assign(targets=[target], value=ast.Call() as made):
                pins = last_name(made.func) == "pin_memory" or _is_true(keyword(made, "pin_memory"))
                if pins and isinstance(target, (ast.Name, ast.Attribute)):
                    found.add(ast.unparse(target))
    return found


def _fills(node: ast.AST) -> str:
    """The buffer that numbers are put into."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="copy_")):
            return _buffer(owner)
        case ast.Assign(targets=[ast.Subscript(value=owner)]):
            return _buffer(owner)
        case ast.Call() if (out := keyword(node, "out")) is not None:
            return _buffer(out)
    return ""


def _sends(node: ast.AST) -> str:
    """The buffer that is copied to the GPU, which goes on meanwhile."""
    if not isinstance(node, ast.Call) or not _is_true(keyword(node, "non_blocking")):
        return ""
    match node:
        case ast.Call(func=ast.Attribute(attr="copy_"), args=[source, *_]):
            return _buffer(source)
        case ast.Call(func=ast.Attribute(value=source, attr="to" | "cuda")):
            return _buffer(source)
    return ""


def _buffer(node: ast.expr) -> str:
    """`self.stage` of `self.stage[:n]`; one of several is another one in each round."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Slice, ast.Tuple)):
        node = node.value
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
