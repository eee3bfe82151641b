"""Batches that stay on the CPU beside a model on the GPU: as they came from the loader, or moved by
a statement that keeps nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from preflight.domains.script.callees import (
    callee,
    functions_of,
    given,
    given_by_callers,
    is_parameter,
)
from preflight.domains.script.rules import DDP, Mentions, calls_of, keyword, open_ended
from preflight.domains.script.source import (
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    last_part,
    name_set,
)

LOSSES = name_set(
    "cross_entropy mse_loss nll_loss l1_loss smooth_l1_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits CrossEntropyLoss MSELoss NLLLoss L1Loss SmoothL1Loss BCELoss "
    "BCEWithLogitsLoss"
)
LOADERS = name_set("torch.utils.data.DataLoader torch.utils.data.dataloader.DataLoader")
DTYPE = re.compile(r"\w*dtype|b?float\d*|u?int\d*|half|double|long|short|bool|int")
"""The last part of what `.to()` is given, where it is no device."""


def batch_not_moved(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A batch of a DataLoader goes into a model or a loss on the GPU as it came."""
    if seen.framework:
        return
    parallel = any(True for module in program.modules for _ in calls_of(module, *DDP))
    for module in program.modules:
        for scope in module.scopes:
            models = _on_gpu(scope, module)
            for node in scope.nodes:
                if isinstance(node, ast.For):
                    if models:
                        yield from _kept_on_cpu(module, scope, node, models)
                    if parallel:
                        yield from _left_behind(program, module, scope, node)
                        yield from _moved_for_nothing(module, scope, node)


def _on_gpu(scope: NameScope, module: Module) -> dict[str, bool]:
    """Names of models that are wrapped in DDP on a GPU -> whether it moves its inputs itself."""
    found = _on_gpu(scope.parent, module) if scope.parent is not None else {}
    found = {name: moves for name, moves in found.items() if name not in scope.bound}
    for node in scope.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                module.full(call.func) in DDP and call.args and not open_ended(call)
            ):
                moves = keyword(call, "device_ids") is not None or len(call.args) > 1
                if moves or _goes_to_gpu(call.args[0], scope):
                    found[name] = moves
    return found


def _goes_to_gpu(model: ast.expr, scope: NameScope) -> bool:
    """`.cuda()` or `.to("cuda:…")` of this model, in the call or before it."""
    wanted = ast.unparse(model)
    for node in (*ast.walk(model), *scope.nodes):
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda", value=owner)):
                if ast.unparse(owner) in wanted or node in ast.walk(model):
                    return True
            case ast.Call(func=ast.Attribute(attr="to", value=owner), args=[where, *_]):
                same = ast.unparse(owner) in wanted or node in ast.walk(model)
                if same and _is_gpu(where, scope):
                    return True
            case ast.Assign(targets=[target], value=ast.Call() as call):
                if ast.unparse(target) == wanted and any(
                    isinstance(n, ast.Attribute) and n.attr == "cuda" for n in ast.walk(call)
                ):
                    return True
    return False


def _is_gpu(where: ast.expr, scope: NameScope) -> bool:
    if isinstance(where, ast.Name):
        value = scope.value(where.id)
        return value is not None and "cuda" in ast.unparse(value)
    return "cuda" in ast.unparse(where)


def _kept_on_cpu(
    module: Module, scope: NameScope, loop: ast.For, models: dict[str, bool]
) -> Iterator[Hit]:
    names = _batch_names(loop, scope, module)
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    outputs = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign) and _called_model(node.value, models)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name in names:
        if _is_touched(name, inside):
            continue
        for node in inside:
            if not isinstance(node, ast.Call) or open_ended(node):
                continue
            given = {a.id for a in node.args if isinstance(a, ast.Name)}
            into_model = _called_model(node, models)
            if name in given and into_model and not models[into_model]:
                yield from module.hit("batch-not-moved", node, scope, f"{name} stays on the CPU")
                break
            of_model = given & outputs or any(_called_model(a, models) for a in node.args)
            if name in given and of_model and _is_loss(node, scope, module):
                yield from module.hit("batch-not-moved", node, scope, f"{name} stays on the CPU")
                break


def _left_behind(
    program: Program, module: Module, scope: NameScope, loop: ast.For
) -> Iterator[Hit]:
    """Of what one batch holds a part goes to the device and another one into a loss of torch's
    as it came, beside what a model has made of the first."""
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
    unpacked = [n for node in inside for n in _unpacked(node, names)]
    names += [n.id for n in unpacked]
    moved = {name for name in names if any(_moves(node, name) for node in inside)}
    for node in inside:
        match node:
            case ast.Assign(targets=[ast.Name(id=part)], value=value) if part not in names:
                if _is_part(value, names):
                    names.append(part)
                elif _is_moved(value, names):
                    moved.add(part)
    if not moved:
        return
    yield from _handed_on(program, module, scope, inside, [n for n in names if n not in moved])
    if not any(map(_is_backward, inside)):
        return
    made = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and moved & {a.id for a in node.value.args if isinstance(a, ast.Name)}
        for target in node.targets
        if isinstance(target, ast.Name)
    } - set(names)
    same = {id(n) for node in inside for n in _bound_to_itself(node)}
    same |= {id(n) for node in inside for n in _taken_from(node, names)} | set(map(id, unpacked))
    rest = [node for node in inside if id(node) not in same]
    for name in (n for n in names if n not in moved and not _is_touched(n, rest)):
        for node in inside:
            if not isinstance(node, ast.Call) or len(node.args) != 2:
                continue
            given = {a.id for a in node.args if isinstance(a, ast.Name)}
            of_model = given & made or any(_is_given(a, moved) for a in node.args)
            if name in given and of_model and _is_any_loss(program, node, scope, module):
                yield from module.hit("batch-not-moved", node, scope, f"{name} stays on the CPU")
                break


def _is_given(node: ast.expr, names: Collection[str]) -> bool:
    """Whether it is a call that is given one of these."""
    given = node.args if isinstance(node, ast.Call) else []
    return any(isinstance(a, ast.Name) and a.id in names for a in given)


def _unpacked(node: ast.AST, names: Collection[str]) -> Iterator[ast.Name]:
    """The names in `x, y = batch`, of which each is a part of the batch."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Name(id=name)) if name in names:
            yield from (part for part in parts if isinstance(part, ast.Name))


def _is_part(value: ast.expr, names: Collection[str]) -> bool:
    """`batch["labels"]`, as it came."""
    match value:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str())):
            return name in names
    return False


def _is_moved(value: ast.expr, names: Collection[str]) -> bool:
    """`batch["labels"].to(device)`."""
    match value:
        case ast.Call(func=ast.Attribute(attr="to" | "cuda" as how, value=owner)):
            return _is_part(owner, names) and (how == "cuda" or _names_a_place(value))
    return False


def _taken_from(node: ast.AST, names: Collection[str]) -> Iterator[ast.AST]:
    """The name in `labels = batch["labels"]`, which is bound to what the batch holds."""
    match node:
        case ast.Assign(targets=[ast.Name() as name], value=value) if _is_part(value, names):
            yield name


def _moved_for_nothing(module: Module, scope: NameScope, loop: ast.For) -> Iterator[Hit]:
    """`labels.to(device)` as a statement of its own, which moves nothing, and then a loss of what
    a model has made and of the labels."""
    if not any(isinstance(n, ast.Tuple) for n in ast.walk(loop.target)):
        return  # a batch that holds tensors may move itself
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    made = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in inside:
        match node:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="to" | "cuda" as how)
                ) as call
            ) if name in names - made and any(_is_loss_of(n, name, made) for n in inside):
                if how == "cuda" or _names_a_place(call):
                    yield from module.hit(
                        "batch-not-moved", call, scope, f"{name} stays on the CPU"
                    )


def _is_loss_of(node: ast.AST, name: str, made: Collection[str]) -> bool:
    """`loss(output, labels)`, by a name that says so."""
    if not isinstance(node, ast.Call) or len(node.args) != 2:
        return False
    given = {a.id for a in node.args if isinstance(a, ast.Name)}
    called = last_name(node.func).lower()
    a_loss = any(word in called for word in ("loss", "criterion", "entropy"))
    return a_loss and name in given and bool(given & set(made))


def _handed_on(
    program: Program,
    module: Module,
    scope: NameScope,
    inside: list[ast.AST],
    left: Collection[str],
) -> Iterator[Hit]:
    """A part of the batch that stays on the CPU is given to a function or a method, beside one that
    was moved, and that puts it into a loss of torch's as it came."""
    functions = functions_of(program, module)
    untouched = [name for name in left if not _is_touched(name, inside)]
    for call in (n for n in inside if isinstance(n, ast.Call)):
        function = callee(call, scope, module, functions)
        if function is None or not _is_trained_by(function):
            continue
        values = given(call, function)
        home = next(m for m in program.modules if function in m.scopes)
        for name in untouched:
            for parameter, value in values.items():
                if getattr(value, "id", "") != name or not is_parameter(parameter, function):
                    continue
                if _is_touched(parameter, function.nodes):
                    continue
                if any(
                    isinstance(n, ast.Call)
                    and len(n.args) == 2
                    and any(getattr(a, "id", "") == parameter for a in n.args)
                    and _is_loss(n, function, home)
                    for n in function.nodes
                ):
                    other = f"{name} stays on the CPU"
                    yield from module.hit("batch-not-moved", call, scope, other)


def _is_trained_by(function: NameScope) -> bool:
    """Whether a function calls backward()."""
    return any(_is_backward(node) for node in function.nodes)


def _bound_to_itself(node: ast.AST) -> Iterator[ast.AST]:
    """`target` in `image, target = image.to(device), target`."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            for name, value in zip(names, values, strict=False):
                if isinstance(value, ast.Name) and value.id == getattr(name, "id", ""):
                    yield name


def _moves(node: ast.AST, name: str) -> bool:
    """`name.to(device)` or `name.cuda()` that is kept under the same name."""
    if not isinstance(node, ast.Assign):
        return False
    targets = node.targets[0]
    values = [node.value]
    bound = [targets]
    if isinstance(targets, ast.Tuple) and isinstance(node.value, ast.Tuple):
        bound, values = list(targets.elts), list(node.value.elts)
    for target, value in zip(bound, values, strict=False):
        match target, value:
            case ast.Name(id=to), ast.Call(func=ast.Attribute(attr=how, value=owner)) if (
                to == name == getattr(owner, "id", "")
            ):
                return how == "cuda" or (how == "to" and _names_a_place(value))
    return False


def _names_a_place(call: ast.Call) -> bool:
    """Whether `.to()` is given a device, or what may be one: `x.to(torch.float16)` stays where it
    is, and its neighbour too."""
    return keyword(call, "device") is not None or any(
        not DTYPE.fullmatch(last_name(argument).lower()) for argument in call.args
    )


def _is_any_loss(program: Program, call: ast.Call, scope: NameScope, module: Module) -> bool:
    """A loss of torch's, also where it is handed in: each name that is spelled alike is one."""
    if _is_loss(call, scope, module):
        return True
    func = call.func
    if not isinstance(func, ast.Name) or scope.values(func.id) != [None]:
        return False
    if is_parameter(func.id, scope):
        sites = list(given_by_callers(program, scope, func.id))
        if sites and all(_makes_loss(value, s, m) for m, s, value in sites):
            return True
    values = [
        (m, s, value)
        for m in program.modules
        for s in m.scopes
        for value in s.bound.get(func.id, [])
        if value is not None
    ]
    return bool(values) and all(
        any(last_part(m.full(n.func)) in LOSSES for n in ast.walk(value) if isinstance(n, ast.Call))
        for m, _, value in values
    )


def _makes_loss(value: ast.expr, scope: NameScope, module: Module) -> bool:
    """Whether a value is a loss of torch's, also by way of a name."""
    if isinstance(value, ast.Name):
        known = scope.value(value.id)
        value = known if known is not None else value
    calls = (n for n in ast.walk(value) if isinstance(n, ast.Call))
    return any(last_part(module.full(n.func)) in LOSSES for n in calls)


def _called_model(node: ast.AST, models: dict[str, bool]) -> str:
    func = getattr(node, "func", None)
    return func.id if isinstance(func, ast.Name) and func.id in models else ""


def _batch_names(loop: ast.For, scope: NameScope, module: Module) -> list[str]:
    """What a loop over a plain DataLoader binds."""
    source, target = loop.iter, loop.target
    if isinstance(source, ast.Call) and module.full(source.func) == "enumerate" and source.args:
        if not (isinstance(target, ast.Tuple) and len(target.elts) == 2):
            return []
        source, target = source.args[0], target.elts[1]
    if isinstance(source, ast.Name):
        known = scope.value(source.id)
        source = known if known is not None else source
    if not isinstance(source, ast.Call) or module.full(source.func) not in LOADERS:
        return []
    if keyword(source, "collate_fn") is not None or open_ended(source):
        return []  # it may move them
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def _is_touched(name: str, inside: list[ast.AST]) -> bool:
    """Whether a batch is bound again, or anything of its own is called, such as .to()."""
    for node in inside:
        match node:
            case ast.Name(id=found, ctx=ast.Store()) if found == name:
                return True
            case ast.Attribute(value=ast.Name(id=found), attr=attr) if found == name:
                if attr not in ("size", "shape", "dtype"):
                    return True
    return False


def _is_loss(call: ast.Call, scope: NameScope, module: Module) -> bool:
    """A loss of torch's, or a name that is bound to one."""
    func = call.func
    if isinstance(func, ast.Name):
        value = scope.value(func.id)
        if isinstance(value, ast.Call):
            parts = [module.full(n.func) for n in ast.walk(value) if isinstance(n, ast.Call)]
            return any(last_part(full) in LOSSES for full in parts)
    full = module.full(func)
    return full.startswith("torch.") and last_part(full) in LOSSES


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward"
