"""What can be seen in a training script beside the paths of its ranks: works that nobody waits for,
accumulation that talks too much, a scaler that bf16 doesn't need, devices and backends.

Each rule would rather miss something than be wrong: whatever may be the healthy way of doing it,
anywhere in the files that were read, silences it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from preflight.domains.script.control_flow import is_collective
from preflight.domains.script.source import (
    FUNCTIONS,
    Hit,
    Module,
    NameScope,
    Program,
    last_part,
    name_set,
)
from preflight.frozen import dataclass

DDP = frozenset(
    f"torch.nn.parallel.{where}DistributedDataParallel" for where in ("", "distributed.")
)
SCALERS = name_set(
    "torch.cuda.amp.GradScaler torch.amp.GradScaler torch.cuda.amp.grad_scaler.GradScaler "
    "torch.amp.grad_scaler.GradScaler"
)
AUTOCASTS = name_set(
    "torch.autocast torch.amp.autocast torch.cuda.amp.autocast torch.amp.autocast_mode.autocast "
    "torch.cpu.amp.autocast"
)
PRECISIONS = ("16", "half", "dtype", "precision", "scal", "float", "supported")
"""In a test that chooses how gradients are kept."""
INIT = "torch.distributed.init_process_group"
BF16 = "torch.bfloat16"

# libraries that place processes on devices, shard the data and accumulate by themselves
FRAMEWORKS = name_set(
    "accelerate lightning pytorch_lightning lightning_fabric deepspeed ignite composer ray horovod "
    "colossalai determined mmengine mmcv fastai catalyst torchtnt"
)
DEBUG = "TORCH_DISTRIBUTED_DEBUG"


@dataclass(frozen=True, slots=True)
class Mentions:
    """Every name, attribute, keyword and short text in all files: what may be done anywhere."""

    names: frozenset[str]
    texts: frozenset[str]
    imports: frozenset[str]

    @property
    def framework(self) -> bool:
        return bool(self.imports & FRAMEWORKS)


def mentions(modules: Iterable[Module]) -> Mentions:
    """Collects them from all files."""
    names: set[str] = set()
    texts: set[str] = set()
    imports: set[str] = set()
    for module in modules:
        imports |= {full.partition(".")[0] for full in module.names.values()}
        names |= {*module.names, *(last_part(full) for full in module.names.values())}
        for node in (n for scope in module.scopes for n in scope.nodes):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                    names.add(name)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Constant(value=str(text)) if len(text) < 80:
                    texts.add(text)
    return Mentions(frozenset(names), frozenset(texts), frozenset(imports))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument; None where it is not given."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def open_ended(call: ast.Call) -> bool:
    """Whether arguments come from somewhere that can't be seen."""
    return any(k.arg is None for k in call.keywords) or any(
        isinstance(a, ast.Starred) for a in call.args
    )


def constant(node: ast.expr | None, scope: NameScope) -> object:
    """The value of a literal, or of a name that is bound to nothing else; None for the rest."""
    if isinstance(node, ast.Name):
        node = scope.value(node.id)
    return node.value if isinstance(node, ast.Constant) else None


def calls_of(module: Module, *wanted: str) -> Iterator[tuple[NameScope, ast.Call]]:
    """The calls of functions with these full names."""
    return ((s, c) for s, c in module.calls() if module.full(c.func) in wanted)


def under_a_test(module: Module, nodes: Iterable[ast.AST]) -> bool:
    """Whether one of these may not be reached: it stands in an `if`, a try or the like."""
    wanted = {id(node) for node in nodes}
    tests = (ast.If, ast.IfExp, ast.Try, ast.Match, ast.While, ast.BoolOp)
    return any(
        id(inner) in wanted
        for scope in module.scopes
        for node in scope.nodes
        if isinstance(node, tests) and not is_main(node)
        for inner in ast.walk(node)
        if inner is not node
    )


def is_main(node: ast.AST) -> bool:
    """Whether it is `if __name__ == "__main__":`, which keeps nothing out."""
    return isinstance(node, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test)
    )


# --- works ---


def not_waited(program: Program) -> Iterator[Hit]:
    """`async_op=True` whose Work is dropped, or kept under a name that is never looked at."""
    for module in program.modules:
        for scope in module.scopes:
            for node in scope.nodes:
                for call, dropped in _async_calls(node, scope, module):
                    if dropped and not _synchronised(call, scope):
                        yield from module.hit("async-not-waited", call, scope, dropped)


def _async_calls(node: ast.AST, scope: NameScope, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """The asynchronous collectives of a statement, with what becomes of the Work if it is lost."""
    match node:
        case ast.Expr(value=ast.Call() as call) if _is_async(call, module):
            yield call, "its Work is dropped"
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"))):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and _is_async(inner, module):
                    yield inner, _unused(name, scope)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            part = value.elt if isinstance(value, ast.ListComp) else value
            if isinstance(part, ast.Call) and _is_async(part, module):
                yield part, _unused(name, scope)


def _is_async(call: ast.Call, module: Module) -> bool:
    value = keyword(call, "async_op")
    wanted = isinstance(value, ast.Constant) and value.value is True
    full = module.full(call.func)
    return wanted and (bool(is_collective(call, module)) or full.startswith("torch.distributed."))


def _unused(name: str, scope: NameScope) -> str:
    """Why a Work under a name is lost; empty when anything is done with the name but adding to it.
    Closures may use it, and the whole file what the module itself binds."""
    if name == "_" or scope.bound.get(name) is None:
        return ""  # dropped with intent, or another scope's
    added = {
        id(node.value)
        for node in ast.walk(scope.node)
        if isinstance(node, ast.Attribute) and node.attr == "append"
    }
    for node in ast.walk(scope.node):
        match node:
            case ast.Name(id=found, ctx=ast.Load()) if found == name and id(node) not in added:
                return ""
            case ast.Global(names=names) | ast.Nonlocal(names=names) if name in names:
                return ""
            case ast.Call(func=ast.Name(id="locals" | "globals" | "vars")):
                return ""
    return f"{name} is never waited for"


def _synchronised(call: ast.Call, scope: NameScope) -> bool:
    """Whether a function waits for the device, or calls a barrier behind: NCCL's comes after all
    that the group was asked for before, and holds up whoever calls it."""
    return any(
        isinstance(node, ast.Attribute)
        and (node.attr == "synchronize" or (node.attr == "barrier" and node.lineno > call.lineno))
        for node in scope.nodes
    )


# --- a step ---


def no_sync_missing(program: Program, seen: Mentions) -> Iterator[Hit]:
    """Steps of the optimizer every n batches, the loss divided by n, and DDP sums gradients in each
    batch all the same."""
    spared = {"no_sync", "require_backward_grad_sync", "accumulate", "require_forward_param_sync"}
    if seen.framework or seen.names & spared:
        return
    for module in program.modules:
        if not list(calls_of(module, *DDP)):
            continue
        for scope in module.scopes:
            for body in (scope.node, *scope.nodes):
                backward = None
                if isinstance(body, ast.For):
                    backward = _accumulates(body) or _micro_batches(body)
                elif isinstance(body, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    backward = _accumulates(body)
                if backward is not None:
                    yield from module.hit("no-sync-missing", backward, scope)


def _accumulates(loop: ast.For | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Call | None:
    """The backward() of a loop that adds up gradients over some batches: the loss is divided by
    their number, or gradients are reset where the optimizer steps and nowhere else."""
    backward, steps, divided = None, [], set()
    resets, kept = 0, 0
    for statement in loop.body:
        for node in without_inner_loops(statement):
            match node:
                case ast.Call(func=ast.Attribute(attr="backward")):
                    backward = node
                case ast.Call(func=ast.Attribute(attr="zero_grad")):
                    resets += 1
                case ast.If() if count := accumulation_count(node.test):
                    inner = [n for part in node.body for n in without_inner_loops(part)]
                    if any(map(is_optimizer_step, inner)) and not any(map(_is_backward, inner)):
                        steps.append(count)
                        kept += sum(map(_is_reset, inner))
                case ast.BinOp(op=ast.Div(), right=by) | ast.AugAssign(op=ast.Div(), value=by):
                    divided.add(ast.unparse(by))
    summed = any(count in divided for count in steps) or (len(steps) == 1 and kept == resets > 0)
    return backward if steps and summed else None


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward"


def _is_reset(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "zero_grad"


def _micro_batches(outer: ast.For) -> ast.Call | None:
    """The backward() of a loop of n micro-batches inside of a step, the loss divided by n."""
    for number, loop in enumerate(outer.body):
        match loop:
            case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[count])):
                inside = [n for part in loop.body for n in without_inner_loops(part)]
                after = [n for part in outer.body[number + 1 :] for n in without_inner_loops(part)]
            case _:
                continue
        backward = None
        for node in inside:
            match node:
                case ast.Call(func=ast.Attribute(attr="backward")):
                    backward = node
        divided = any(
            isinstance(n, (ast.BinOp, ast.AugAssign))
            and isinstance(n.op, ast.Div)
            and ast.unparse(n.right if isinstance(n, ast.BinOp) else n.value) == ast.unparse(count)
            for n in inside
        )
        steps = any(is_optimizer_step(n) for n in inside), any(map(is_optimizer_step, after))
        if backward is not None and divided and steps == (False, True):
            return backward
    return None


def without_inner_loops(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement and all in it, but for loops and functions inside."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (ast.For, ast.While, ast.ClassDef, *FUNCTIONS)):
            yield node
            waiting += ast.iter_child_nodes(node)


def accumulation_count(test: ast.expr) -> str:
    """n of `(step + 1) % n == 0`; not of `!=`, which is true of most steps."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq):
        return ""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            one = isinstance(node.right, ast.Constant) and node.right.value == 1
            return "" if one else ast.unparse(node.right)
    return ""


def is_optimizer_step(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = ast.unparse(node.func.value).lower()
    return node.func.attr == "step" and ("opt" in owner or "scaler" in owner)


def scaler_with_bf16(program: Program) -> Iterator[Hit]:
    """A GradScaler where all autocasts are to bfloat16. A setting may switch both on; what chooses
    a precision may choose float16, and silences the rule."""
    scalers = [(m, s, c) for m in program.modules for s, c in calls_of(m, *SCALERS)]
    casts = [(m, s, c) for m in program.modules for s, c in calls_of(m, *AUTOCASTS)]
    scaled = any(
        isinstance(c.func, ast.Attribute) and c.func.attr == "scale"
        for module in program.modules
        for _, c in module.calls()
    )
    if not scalers or not casts or not scaled or any(open_ended(c) for *_, c in scalers + casts):
        return
    if not all(_to_bf16(m, s, c) for m, s, c in casts):
        return
    for module, scope, call in scalers:
        if not _chosen_by_precision(module, scope, call):
            yield from module.hit("scaler-bf16", call, scope)


def _chosen_by_precision(module: Module, scope: NameScope, call: ast.Call) -> bool:
    """Whether something asks for a precision, or for a scaler, before it is made or enabled."""
    enabled = keyword(call, "enabled")
    if enabled is not None and constant(enabled, scope) is False:
        return True
    asked = [] if enabled is None else [enabled]
    if isinstance(enabled, ast.Name):
        asked += [value for value in scope.values(enabled.id) if value is not None]
    for around in (n for s in module.scopes for n in s.nodes if isinstance(n, (ast.If, ast.IfExp))):
        if any(inner is call for inner in ast.walk(around)):
            asked.append(around.test)
    text = " ".join(map(ast.unparse, asked)).lower()
    return any(word in text for word in PRECISIONS)


def _to_bf16(module: Module, scope: NameScope, call: ast.Call) -> bool:
    dtype = keyword(call, "dtype")
    if dtype is None and len(call.args) > 1:
        dtype = call.args[1]
    if isinstance(dtype, ast.Name):
        dtype = scope.value(dtype.id)
    return dtype is not None and module.full(dtype) == BF16
