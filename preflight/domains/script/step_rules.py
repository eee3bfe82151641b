"""What goes wrong within a step: gradients that are thrown away between micro-batches, clipped
while they are still scaled, batches that stay on the CPU, a mixed precision of yesterday."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeGuard

from preflight.domains.script.placement import LOOPS, Placement, places
from preflight.domains.script.rules import (
    DDP,
    SCALERS,
    Mentions,
    accumulation_count,
    calls_of,
    constant,
    keyword,
    open_ended,
    under_a_test,
    without_inner_loops,
)
from preflight.domains.script.source import (
    SCOPES,
    Hit,
    Module,
    NameScope,
    Program,
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
LOSSES = name_set(
    "cross_entropy mse_loss nll_loss l1_loss smooth_l1_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits CrossEntropyLoss MSELoss NLLLoss L1Loss SmoothL1Loss BCELoss "
    "BCEWithLogitsLoss"
)
LOADERS = name_set("torch.utils.data.DataLoader torch.utils.data.dataloader.DataLoader")


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
        if any(_called_name(n) == UNSCALES for n in scope.nodes)
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
            if any(_called_name(p.node) in (UNSCALES, *divides) for p in found):
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


def _called_name(node: ast.AST) -> str:
    """The last name of what is called."""
    func = getattr(node, "func", None)
    return str(getattr(func, "id", getattr(func, "attr", "")))


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
    moved = {name for name in names if any(_moves(node, name) for node in inside)}
    if not moved or not any(map(_is_backward, inside)):
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
    rest = [node for node in inside if id(node) not in same]
    for name in (n for n in names if n not in moved and not _is_touched(n, rest)):
        for node in inside:
            if not isinstance(node, ast.Call) or len(node.args) != 2:
                continue
            given = {a.id for a in node.args if isinstance(a, ast.Name)}
            if name in given and given & made and _is_any_loss(program, node, scope, module):
                yield from module.hit("batch-not-moved", node, scope, f"{name} stays on the CPU")
                break


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
                return how == "cuda" or (how == "to" and bool(value.args))
    return False


def _is_any_loss(program: Program, call: ast.Call, scope: NameScope, module: Module) -> bool:
    """A loss of torch's, also where it is handed in: each name that is spelled alike is one."""
    if _is_loss(call, scope, module):
        return True
    func = call.func
    if not isinstance(func, ast.Name) or scope.values(func.id) != [None]:
        return False
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
