"""What a script says of devices and backends: all ranks on the first GPU, NCCL in words, debugging
that ends DDP."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping

from preflight.domains.script.rules import (
    DDP,
    DEBUG,
    INIT,
    Mentions,
    calls_of,
    constant,
    keyword,
    open_ended,
    under_a_test,
)
from preflight.domains.script.source import Hit, Module, NameScope, Program, last_part

CUDA = "cuda"
# whoever writes one of these places processes in some way
PLACED = frozenset({"set_device", "device_id", "device_ids", "init_device_mesh"})
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# whoever asks chooses
CHOOSES = frozenset({"is_available", "is_nccl_available", "device_count", "is_gloo_available"})


def _starts(program: Program) -> Iterator[tuple[Module, NameScope, ast.Call, str]]:
    """Calls of init_process_group with the backend that they name in a literal, in lower case."""
    for module in program.modules:
        for scope, call in calls_of(module, INIT):
            named = constant(call.args[0] if call.args else keyword(call, "backend"), scope)
            yield module, scope, call, named.lower() if isinstance(named, str) else ""


def nccl_literal(program: Program, seen: Mentions) -> Iterator[Hit]:
    """NCCL, whatever the machine is: the only backend that the script knows of."""
    found = list(_starts(program))
    if len(found) != 1 or seen.names & CHOOSES or seen.framework:
        return
    if any("gloo" in text.lower() for text in seen.texts):
        return
    module, scope, call, name = found[0]
    if name == "nccl" and not open_ended(call) and not under_a_test(module, [call]):
        yield from module.hit("nccl-on-cpu", call, scope)


def set_device_missing(
    program: Program, seen: Mentions, environ: Mapping[str, str]
) -> Iterator[Hit]:
    """NCCL, tensors that go to "cuda" without a number, and nothing that gives a rank its GPU."""
    nccl = any("nccl" in name for *_, name in _starts(program))
    if not nccl or seen.framework or seen.names & PLACED or seen.texts & {*VISIBLE}:
        return
    if any(_one_device(environ.get(name, "")) for name in VISIBLE):
        return  # each rank sees one GPU: it is the first
    first: tuple[Module, NameScope, ast.Call] | None = None
    for module in program.modules:
        if any(_chooses_gpu(module, node) for scope in module.scopes for node in scope.nodes):
            return
        for scope, call in module.calls():
            if _to_unknown_device(module, scope, call):
                return
            if first is None and _to_any(module, scope, call):
                first = (module, scope, call)
    if first:
        yield from first[0].hit("set-device-missing", first[2], first[1])


def _one_device(visible: str) -> bool:
    return bool(visible.strip()) and "," not in visible


def _chooses_gpu(module: Module, node: ast.AST) -> bool:
    """Whether a GPU is chosen: `cuda:{rank}`, `cuda(rank)`, `torch.device("cuda", rank)`, or a name
    that holds a device which came from elsewhere."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text.startswith(CUDA)
        case ast.Constant(value=str(text)):
            return text.startswith("cuda:")
        case ast.Call(func=ast.Attribute(attr="cuda"), args=[_, *_]):
            return True
        case ast.Call(func=ast.Attribute(attr="cuda"), keywords=[_, *_]):
            return True
        case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Constant(value=int())]):
            return True
        case ast.Call():
            several = len(node.args) + len(node.keywords) > 1
            device = module.full(node.func) in ("torch.device", "torch.cuda.device")
            return device and (several or not _says_cuda(node))
    return False


def _says_cuda(call: ast.Call) -> bool:
    return any(isinstance(n, ast.Constant) and n.value == CUDA for n in ast.walk(call))


def _to_any(module: Module, scope: NameScope, call: ast.Call) -> bool:
    """`.cuda()` and `.to("cuda")`, also by way of a name that is bound to nothing else."""
    if not isinstance(call.func, ast.Attribute) or module.full(call.func).startswith("torch."):
        return False
    if call.func.attr == "cuda":
        return not call.args and not call.keywords
    if call.func.attr != "to":
        return False
    where = call.args[0] if call.args else keyword(call, "device")
    if isinstance(where, ast.Name):
        where = scope.value(where.id)
    if isinstance(where, ast.Call) and module.full(where.func) == "torch.device":
        return _says_cuda(where)
    return isinstance(where, ast.Constant) and where.value == CUDA


def _to_unknown_device(module: Module, scope: NameScope, call: ast.Call) -> bool:
    """Whether something goes to a device that the text doesn't show, such as `.to(rank)`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args):
        return False
    where = call.args[0]
    if isinstance(where, ast.Name):
        return scope.value(where.id) is None
    return isinstance(where, ast.Attribute) and not module.full(where).startswith("torch.")


def detail_with_ddp(program: Program, environ: Mapping[str, str], gpu: bool) -> Iterator[Hit]:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL, from the environment or set here, with DDP over Gloo."""
    starts = list(_starts(program))
    if not starts or not all(_gloo(scope, call, gpu) for _, scope, call, _ in starts):
        return
    for module in program.modules:
        for scope, call in calls_of(module, *DDP):
            if environ.get(DEBUG, "").upper() == "DETAIL":
                yield from module.hit("detail-ddp", call, scope, f"{DEBUG} of the environment")
            elif setter := _where_detail_is_set(program.modules[0]):
                yield from program.modules[0].hit("detail-ddp", setter[1], setter[0])
            return


def _gloo(scope: NameScope, call: ast.Call, gpu: bool) -> bool:
    """Whether a group is Gloo's: by name, or for lack of a GPU where the script may choose."""
    value = call.args[0] if call.args else keyword(call, "backend")
    if isinstance(value, ast.Name):
        value = scope.value(value.id)
    if isinstance(value, ast.Constant):
        return value.value == "gloo"
    texts = {n.value for n in ast.walk(value) if isinstance(n, ast.Constant)} if value else set()
    return not gpu and not open_ended(call) and "gloo" in texts


def _where_detail_is_set(script: Module) -> tuple[NameScope, ast.AST] | None:
    """Where the script itself asks for DETAIL: by a call, or by the variable. That is read when
    torch is imported, and later changes have no effect."""
    top = script.scopes[0]
    imports = (ast.Import, ast.ImportFrom)
    others = [n.lineno for n in top.nodes if isinstance(n, imports) and not _standard(n)]
    for scope, call in calls_of(script, "torch.distributed.set_debug_level"):
        if call.args and last_part(script.full(call.args[0])) == "DETAIL":
            return scope, call
    for node in top.nodes:
        if _sets_detail(script, node) and getattr(node, "lineno", 0) < min(others, default=0):
            return top, node
    return None


def _standard(node: ast.Import | ast.ImportFrom) -> bool:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in names)


def _sets_detail(module: Module, node: ast.AST) -> bool:
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=holder, slice=ast.Constant(value=name))],
            value=ast.Constant(value=str(text)),
        ):
            variable = last_part(module.full(holder)) == "environ" and name == DEBUG
            return variable and text.upper() == "DETAIL"
        case _:
            return False
