"""How a script deals out its data: a DataLoader without a sampler under DDP, a sampler that is
never told the epoch. There are many healthy ways of doing it; each of them silences these rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from preflight.domains.script.rank_values import RANK_NAMES, SIZE_NAMES
from preflight.domains.script.rules import DDP, INIT, Mentions, calls_of, keyword, open_ended
from preflight.domains.script.source import (
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    last_part,
    name_set,
)

LOADERS = name_set("torch.utils.data.DataLoader torch.utils.data.dataloader.DataLoader")
SAMPLERS = name_set(
    "torch.utils.data.distributed.DistributedSampler torch.utils.data.DistributedSampler"
)
MAPS = name_set(
    "torch.utils.data.TensorDataset torch.utils.data.Dataset torch.utils.data.Subset "
    "torch.utils.data.ConcatDataset torch.utils.data.dataset.Dataset "
    "torch.utils.data.dataset.TensorDataset"
)
# names and words after which the data may be dealt out by hand or needn't be; Opacus makes a loader
# for each rank of the one that make_private() is given
BY_HAND = (
    "shard", "partition", "iterable", "streaming", "webdataset", "split_dataset_by_node",
    "make_private",
)  # fmt: skip
AGAIN = name_set("set_epoch set_sampler_epoch reset_epoch")
ASIDE = re.compile(
    r"(?:vali?|valid(?:ation)?|tests?|testing|eval|evaluation|dev|calib(?:ration)?|infer(?:ence)?"
    r"|pred(?:ict(?:ion)?)?|fid)(?:sets?|data(?:set|loader)?|loader|sampler|dl|ds)?"
)
"""A word in the name of a loader that isn't for training: each rank may well see all of it."""
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
OPENS = name_set("load open memmap fromfile loadtxt read_csv read_parquet load_dataset glob")
TELLS = name_set("print spawn info debug warning error format join log")
SHUFFLE_AT = 3
"""The fourth of a DataLoader is its sampler, the fourth of a DistributedSampler its shuffle."""


def sampler_missing(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A training loader over a data set with an index, in a file that wraps its model in DDP, and
    nothing anywhere that gives each rank data of its own."""
    lower = {name.lower() for name in seen.names | seen.texts}
    if seen.framework or any("sampler" in n or any(w in n for w in BY_HAND) for n in lower):
        return
    ranks, sizes = _given_names(program)
    if any(_deals_out(module, ranks, sizes) for module in program.modules):
        return
    for module in program.modules:
        if any(calls_of(module, *DDP)):
            for scope, call in calls_of(module, *LOADERS):
                if len(call.args) <= SHUFFLE_AT and not open_ended(call):
                    yield from _without_sampler(module, scope, call)


def _without_sampler(module: Module, scope: NameScope, call: ast.Call) -> Iterator[Hit]:
    data = call.args[0] if call.args else keyword(call, "dataset")
    if data is None or _is_aside(_target(call, scope), ast.unparse(data), scope.name):
        return
    if _has_index(data, scope, module):
        yield from module.hit("sampler-missing", call, scope)


def _is_aside(target: str, data: str, function: str) -> bool:
    """Whether a loader or a sampler is not for training, by its name or that of its data; where
    they say nothing, by that of the function which makes it."""
    for name in (f"{target} {data}", function):
        words = [word.lower() for word in WORDS.findall(name)]
        if any(word.startswith("train") for word in words):
            return False
        if any(ASIDE.fullmatch(word) for word in words):
            return True
    return False


def _target(call: ast.Call, scope: NameScope) -> str:
    """The name that a call's value gets, also where it is one of two choices."""
    for node in scope.nodes:
        if isinstance(node, ast.Assign):
            value = node.value
            either = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
            if any(one is call for one in either):
                return ast.unparse(node.targets[0])
    return ""


def _has_index(data: ast.expr, scope: NameScope, module: Module) -> bool:
    """Whether a data set is known to be one with an index (`__getitem__`), not a stream."""
    if isinstance(data, ast.Name):
        value = scope.value(data.id)
        if value is None:
            return _annotated(data.id, scope, module)
        data = value
    if not isinstance(data, ast.Call):
        return False
    full = module.full(data.func)
    if full in MAPS or full.startswith("torchvision.datasets."):
        return True
    for inner in module.scopes:
        if isinstance(inner.node, ast.ClassDef) and inner.name == full:
            return "__getitem__" in inner.bound and "__iter__" not in inner.bound
    return False


def _annotated(name: str, scope: NameScope, module: Module) -> bool:
    """A parameter that is declared to be a Dataset."""
    if not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    args = scope.node.args
    return any(
        one.arg == name and one.annotation is not None and module.full(one.annotation) in MAPS
        for one in (*args.args, *args.kwonlyargs)
    )


def _given_names(program: Program) -> tuple[frozenset[str], frozenset[str]]:
    """How a program calls the rank and the number of ranks: as most do, or by names of its own, as
    in `me, world = dist.get_rank(), dist.get_world_size()`."""
    ranks, sizes = set(RANK_NAMES), set(SIZE_NAMES)
    for node in (n for m in program.modules for s in m.scopes for n in s.nodes):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        for to, of in pairs:
            name = getattr(to, "id", getattr(to, "attr", "")).lower()
            called = last_name(of.func) if isinstance(of, ast.Call) else ""
            if name and called == "get_rank":
                ranks.add(name)
            elif name and called == "get_world_size":
                sizes.add(name)
    return frozenset(ranks), frozenset(sizes)


def _deals_out(module: Module, ranks: frozenset[str], sizes: frozenset[str]) -> bool:
    """Whether something but the start of the processes is given a rank and the number of ranks, is
    cut by a rank, or is seeded by one: then each rank has data of its own."""
    top = module.scopes[0]
    functions = {s.name for s in module.scopes if s.parent is top and _is_function(s)}
    looked_at: set[int] = set()  # within another one: what that does not mention, these don't
    for scope in module.scopes:
        for node in scope.nodes:
            match node:
                case ast.Call() if _call_deals_out(module, node, functions, ranks, sizes):
                    return True
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if "seed" in name:
                    if _mentions([value], ranks):
                        return True
                case ast.Slice() if _mentions([node], ranks):  # its length may have a name
                    return True
                case ast.Compare() | ast.BinOp() if id(node) not in looked_at:
                    looked_at.update(map(id, ast.walk(node)))
                    if _mentions([node], ranks) and _mentions([node], sizes):
                        return True
    return False


def _call_deals_out(
    module: Module,
    call: ast.Call,
    functions: set[str],
    ranks: frozenset[str],
    sizes: frozenset[str],
) -> bool:
    full = module.full(call.func)
    name = last_part(full) or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
    if ("seed" in name.lower() or name in OPENS) and _mentions(call.args, ranks):
        return True
    values = [*call.args, *(k.value for k in call.keywords)]
    if full == INIT or full in functions or name in TELLS:
        return False
    return _mentions(values, ranks) and _mentions(values, sizes)


def _is_function(scope: NameScope) -> bool:
    return isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _mentions(nodes: Iterable[ast.AST], names: frozenset[str]) -> bool:
    for node in (inner for one in nodes for inner in ast.walk(one)):
        if isinstance(node, ast.Name) and node.id.lower() in names:
            return True
        if isinstance(node, ast.Attribute) and node.attr.lower() in names:
            return True
    return False


def set_epoch_missing(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A DistributedSampler that shuffles, several epochs, and nobody who tells it which."""
    if seen.framework or any(map(_tells_epoch, program.modules)):
        return
    if not any(map(_has_epochs, program.modules)):
        return
    for module in program.modules:
        for scope, call in calls_of(module, *SAMPLERS):
            shuffle = keyword(call, "shuffle")
            if len(call.args) > SHUFFLE_AT:
                shuffle = call.args[SHUFFLE_AT]
            always = isinstance(shuffle, ast.Constant) and shuffle.value is True
            if open_ended(call) or not (shuffle is None or always):
                continue
            seed = keyword(call, "seed")  # a new sampler for each epoch
            if seed is not None and "epoch" in ast.unparse(seed).lower():
                continue
            data = call.args[0] if call.args else keyword(call, "dataset")
            shown = ast.unparse(data) if data else ""
            if not _is_aside(_target(call, scope), shown, scope.name):
                yield from module.hit("set-epoch-missing", call, scope)


def _tells_epoch(module: Module) -> bool:
    """Whether set_epoch() is called, or handed on: to define it is not enough."""
    return any(
        isinstance(node, (ast.Attribute, ast.Name))
        and getattr(node, "attr", getattr(node, "id", "")) in AGAIN
        for scope in module.scopes
        for node in scope.nodes
    )


def _has_epochs(module: Module) -> bool:
    """`for epoch in range(…)` of more than one, `for i in range(epochs)` or `while epoch < …`."""
    for scope in module.scopes:
        for node in scope.nodes:
            if isinstance(node, ast.While) and "epoch" in ast.unparse(node.test).lower():
                return True
            if isinstance(node, ast.For) and _counts_epochs(node):
                count = node.iter.args if isinstance(node.iter, ast.Call) else []
                one = len(count) == 1 and isinstance(count[0], ast.Constant)
                if not (one and isinstance(count[0], ast.Constant) and count[0].value == 1):
                    return True
    return False


def _counts_epochs(loop: ast.For) -> bool:
    by = ast.unparse(loop.target).lower()
    if "epoch" in by or by == "ep":
        return True
    return isinstance(loop.iter, ast.Call) and "epoch" in ast.unparse(loop.iter).lower()
