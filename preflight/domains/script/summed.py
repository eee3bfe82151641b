"""Gradients that are summed over the ranks and divided nowhere: in a communication hook of DDP,
which then leaves the division to it, or by all_reduce of each `grad`. Steps are as many times too
large as there are ranks. And those that are divided twice: a loss over the tokens of all ranks, of
whose gradients DDP takes the mean.

Without SGD a sum does little harm, as Adam divides by the size of gradients; and a loss that is a
sum, or is scaled, may be meant for one: both silence it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from preflight.domains.script.rules import DDP, Mentions, calls_of, keyword
from preflight.domains.script.source import Hit, Module, NameScope, Program, last_name, name_set

REDUCES = name_set(
    "torch.distributed.all_reduce torch.distributed.all_reduce_coalesced "
    "torch.distributed.distributed_c10d.all_reduce"
)
REGISTERS = "register_comm_hook"
SCALES = name_set(
    "div div_ mul mul_ true_divide divide divide_ multiply multiply_ mean lerp_ _foreach_div "
    "_foreach_div_ _foreach_mul _foreach_mul_ AVG PREMUL_SUM _make_nccl_premul_sum addcdiv_"
)
"""Methods and operations that make a mean of a sum."""
RATES = ("lr", "rate")
RANKS = ("world", "size()", "ranks", "gpus", "nproc")
"""In what stands for their number."""
FOLLOWED = 4
"""Functions that call each other."""


def gradients_summed(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A hook that is registered, or all_reduce of gradients by hand."""
    if seen.framework or "SGD" not in seen.names or _is_meant(program, seen):
        return
    known = _functions(program)
    for module in program.modules:
        for scope, call in module.calls():
            if last_name(call.func) == REGISTERS:
                yield from _hook(call, known)
            elif module.full(call.func) in REDUCES and _is_of_all(call):
                names = _gradients(call, scope)
                if names and not _other_operation(call) and not _scaled(scope, names):
                    yield from module.hit("gradients-summed", call, scope, "all_reduce of grad")


Functions = dict[str, tuple[ast.AST, NameScope, Module]]


def _functions(program: Program) -> Functions:
    """The functions of these files, each the only one of its name."""
    found: Functions = {}
    twice = set()
    for module in program.modules:
        for scope in module.scopes:
            if isinstance(scope.node, ast.FunctionDef):
                name = scope.node.name
                twice |= {name} & set(found)
                found[name] = (scope.node, scope, module)
    return {name: known for name, known in found.items() if name not in twice}


def _hook(call: ast.Call, known: Functions) -> Iterator[Hit]:
    """A function of this program that reduces, and in which nothing is scaled."""
    given = call.args[1] if len(call.args) > 1 else keyword(call, "hook")
    name = last_name(given)
    if name not in known or not isinstance(given, (ast.Name, ast.Attribute)):
        return
    node, home, of = known[name]
    body = list(_followed(node, known))
    reduces = [
        inner
        for part in body
        for inner in ast.walk(part)
        if isinstance(inner, ast.Call)
        and (of.full(inner.func) in REDUCES or last_name(inner.func) == "allreduce")
    ]
    plain = not any(map(_scales, body)) and not _hands_on(body, known)
    if reduces and plain and not any(map(_other_operation, reduces)):
        yield from of.hit("gradients-summed", reduces[0], home, f"the hook {name}()")


def _followed(node: ast.AST, known: Functions) -> Iterator[ast.AST]:
    """A function with those that it calls."""
    names: set[str] = set()
    waiting = [node]
    while waiting and len(names) < FOLLOWED:
        one = waiting.pop()
        yield one
        for inner in ast.walk(one):
            name = last_name(inner.func) if isinstance(inner, ast.Call) else ""
            if name in known and name not in names:
                names.add(name)
                waiting.append(known[name][0])


def _hands_on(body: list[ast.AST], known: Functions) -> bool:
    """Whether a function does part of it that is not in these files: one that is handed what was
    reduced, or a hook of torch's."""
    return any(
        "hook" in last_name(inner.func).lower() and last_name(inner.func) not in known
        for part in body
        for inner in ast.walk(part)
        if isinstance(inner, ast.Call)
    )


def mean_of_a_mean(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A loss divided by a number that all_reduce has summed, of a model in DDP, and nothing that is
    multiplied by the number of ranks."""
    if seen.framework or "SGD" not in seen.names or REGISTERS in seen.names:
        return
    if not any(True for module in program.modules for _ in calls_of(module, *DDP)):
        return
    if any(_by_ranks(n) for m in program.modules for s in m.scopes for n in s.nodes):
        return
    known = _functions(program)
    for module in program.modules:
        for scope in module.scopes:
            losses = _losses(scope)
            summed = _summed_names(scope, module, known) if losses else set()
            for loss in losses:
                match loss:
                    case ast.BinOp(op=ast.Div(), right=ast.Name(id=by)) if by in summed:
                        other = f"divided by {by}, a sum over all ranks"
                        yield from module.hit("loss-divided-twice", loss, scope, other)


def _by_ranks(node: ast.AST) -> bool:
    """Whether anything is multiplied or divided by the number of ranks."""
    match node:
        case ast.BinOp(op=ast.Div() | ast.Mult()) | ast.AugAssign(op=ast.Div() | ast.Mult()):
            return any(word in ast.unparse(node).lower() for word in RANKS)
        case ast.Call(func=ast.Attribute(attr=name)) if name in SCALES:
            return any(word in ast.unparse(node).lower() for word in RANKS)
    return False


def _losses(scope: NameScope) -> list[ast.expr]:
    """What backward() is called of here: an expression, or that of a name that is bound once."""
    found: list[ast.expr] = []
    for node in scope.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="backward", value=ast.Name(id=name))):
                value = scope.value(name)
                if value is not None:
                    found.append(value)
            case ast.Call(func=ast.Attribute(attr="backward", value=ast.BinOp() as value)):
                found.append(value)
    return found


def _summed_names(scope: NameScope, module: Module, known: Functions) -> set[str]:
    """Names that all_reduce has summed over all ranks here, or that a function of these files gives
    back which does that and scales nothing."""
    names: set[str] = set()
    for node in scope.nodes:
        match node:
            case ast.Call(args=[ast.Name(id=name), *_]) as call if (
                module.full(call.func) in REDUCES
                and _is_of_all(call)
                and not _other_operation(call)
            ):
                names.add(name)
            case ast.Assign(targets=[target], value=ast.Call() as call):
                found = known.get(last_name(call.func))
                if found is not None and _sums(found[0], found[2]):
                    names |= _names(target)
    return names


def _sums(function: ast.AST, module: Module) -> bool:
    """Whether a function reduces by sums alone, over all ranks, and scales nothing."""
    reduces = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and module.full(node.func) in REDUCES
    ]
    plain = all(_is_of_all(call) and not _other_operation(call) for call in reduces)
    return bool(reduces) and plain and not _scales(function)


def _scales(node: ast.AST) -> bool:
    """Whether anything is multiplied, divided or averaged."""
    for inner in ast.walk(node):
        match inner:
            case ast.BinOp(op=ast.Div() | ast.Mult()) | ast.AugAssign(op=ast.Div() | ast.Mult()):
                return True
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in SCALES:
                return True
    return False


def _other_operation(call: ast.Call) -> bool:
    """Whether it is something else than a sum, or may be."""
    op = keyword(call, "op") or (call.args[1] if len(call.args) > 1 else None)
    if any(k.arg is None for k in call.keywords):
        return True
    return op is not None and last_name(op) != "SUM"


def _is_of_all(call: ast.Call) -> bool:
    """Whether no group is named: ranks that have parts of one model sum gradients on purpose."""
    return keyword(call, "group") is None and len(call.args) < 3


def _gradients(call: ast.Call, scope: NameScope) -> set[str]:
    """What is reduced, by the names that it has or that it is made of; none where these are no
    gradients."""
    given = call.args[0] if call.args else keyword(call, "tensor")
    if given is None:
        return set()
    names, found = _names(given), _has_grad(given)
    for _ in range(FOLLOWED):
        made = [value for name in names if (value := scope.value(name)) is not None]
        found = found or any(map(_has_grad, made))
        names = names.union(*map(_names, made))
    return names if found else set()


def _scaled(scope: NameScope, names: set[str]) -> bool:
    """Whether something of these names is scaled there, or anything by the number of ranks; in a
    function that does not train, whether anything is scaled at all."""
    trains = any(last_name(getattr(n, "func", None)) == "backward" for n in scope.nodes)
    if not trains and not isinstance(scope.node, ast.Module):
        return _scales(scope.node)
    return any(
        any(name in names for name in _names(node))
        or any(word in ast.unparse(node).lower() for word in RANKS)
        for node in scope.nodes
        if isinstance(node, (ast.BinOp, ast.AugAssign, ast.Call)) and _scales(node)
    )


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _has_grad(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(node))


def _is_meant(program: Program, seen: Mentions) -> bool:
    """Whether a sum may be what is wanted: gradients or a loss are scaled anywhere, the loss is a
    sum, or the learning rate is made smaller."""
    if "sum" in seen.texts:
        return True
    losses = {
        last_name(node.func.value)
        for module in program.modules
        for _, node in module.calls()
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    }
    for module in program.modules:
        for scope, node in ((s, n) for s in module.scopes for n in s.nodes):
            if "loss" in scope.name.lower() and _scales(node):
                return True
            match node:
                case ast.BinOp(op=ast.Div() | ast.Mult(), left=left, right=right):
                    parts = [left, right]
                case ast.AugAssign(op=ast.Div() | ast.Mult(), target=target, value=value):
                    parts = [target, value]
                case ast.Call(func=ast.Attribute(attr=name, value=owner)) if name in SCALES:
                    parts = [owner]
                case ast.Call(func=ast.Attribute(attr="sum", value=owner)):
                    parts = [owner]
                case _:
                    continue
            if any(_has_grad(part) or _is_loss(part, losses) for part in parts):
                return True
            divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
            if divides and any(word in ast.unparse(parts[0]).lower() for word in RATES):
                return True
    return False


def _is_loss(node: ast.AST, losses: set[str]) -> bool:
    """Whether a value is of a loss. Of one that is logged only the number is used."""
    if any(isinstance(n, ast.Attribute) and n.attr in ("item", "detach") for n in ast.walk(node)):
        return False
    names = [name for n in ast.walk(node) if (name := last_name(n))]
    return any("loss" in name.lower() or name in losses for name in names)
