"""Decisions that each rank makes for itself, where all have to make the same: to skip a batch, to
call a collective, in which order."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from preflight.domains.script.callees import (
    callee,
    functions_of,
    given_by_callers,
    is_parameter,
)
from preflight.domains.script.control_flow import (
    is_collective,
    reaching_a_collective,
)
from preflight.domains.script.placement import Placement, places
from preflight.domains.script.rank_values import RANK_NAMES
from preflight.domains.script.rules import (
    DDP,
    Mentions,
    calls_of,
    is_optimizer_step,
)
from preflight.domains.script.source import (
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    last_part,
    name_set,
)

FSDP = name_set(
    "torch.distributed.fsdp.FullyShardedDataParallel "
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel"
)
WRAPPERS = DDP | FSDP
BROAD = name_set(
    "Exception BaseException RuntimeError torch.cuda.OutOfMemoryError torch.OutOfMemoryError "
    "torch.distributed.DistBackendError torch.distributed.DistError"
)
ENDS = name_set("sys.exit exit quit os._exit os.abort os.kill sys.abort")
ALONE = ("distributed", "world_size", "ddp", "is_initialized", "num_processes", "n_gpu")
"""In a test that asks whether there are other ranks."""
AGREES = ("reduce", "gather", "broadcast", "barrier", "sync", "all_to_all", "allreduce", "mpi")
"""In the name of what lets ranks agree; NO_AGREEMENT have them in their names all the same."""
NO_AGREEMENT = name_set(
    "broadcast_buffers no_sync synchronize SyncBatchNorm convert_sync_batchnorm ReduceLROnPlateau "
    "reduce_lr reduce_lr_on_plateau torch.cuda.synchronize reduction lr_reduce"
)
RANDOM = (
    *("random.random", "random.randint", "random.choice", "random.uniform", "random.randrange"),
    *("numpy.random.rand", "numpy.random.random", "numpy.random.randint", "numpy.random.uniform"),
    *("numpy.random.choice", "numpy.random.binomial", "torch.rand", "torch.randint"),
    *("torch.bernoulli", "random.getrandbits", "random.gauss"),
)
SEEDS = name_set(
    "seed manual_seed manual_seed_all seed_everything set_seed seed_all setup_seed fix_seed "
    "set_random_seed init_seeds set_seeds fix_random_seeds same_seeds"
)
EVERY = "*"
GENERATORS = name_set(
    "torch.Generator random.Random numpy.random.RandomState numpy.random.default_rng"
)
SETS = name_set("set frozenset")
IDENTITY = name_set("parameters buffers modules children")
NAMED = name_set("named_parameters named_buffers named_modules named_children")
PAIRS = NAMED | {"items"}
"""Members of a set of these are ordered by their addresses, which PYTHONHASHSEED does not mend."""
REACHED = 32
"""Functions that are followed from one try."""


def wraps(program: Program) -> bool:
    """Whether a model is wrapped in DDP or FSDP anywhere."""
    return any(True for module in program.modules for _ in calls_of(module, *WRAPPERS))


def may_agree(names: frozenset[str]) -> bool:
    """Whether one of these names is of what lets ranks agree."""
    lower = (name.lower() for name in names - NO_AGREEMENT)
    return any(word in name for name in lower for word in AGREES)


# --- errors ---

TOGETHER = "throw_on_early_termination"
"""Of Join: all ranks raise in one step, once one of them has no data left."""


def collective_swallowed(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A try around a collective, or around backward() of DDP, in a loop, after which a rank goes on
    with the next round: it is one call behind all others from then on."""
    parallel = wraps(program) and not seen.framework
    for module in program.modules:
        functions = functions_of(program, module)
        for scope in module.scopes:
            found = list(places(scope))
            for place in found:
                if isinstance(place.node, ast.Try) and place.loops and not place.handler:
                    reached = _called_in(place.node, scope, module, functions)
                    yield from _swallows(module, scope, place, found, parallel, reached)


def _called_in(
    node: ast.Try, scope: NameScope, module: Module, functions: Mapping[str, NameScope]
) -> list[ast.AST]:
    """All that is in the program's functions that the try calls, and in those that they call."""
    found: list[ast.AST] = []
    waiting = [(scope, n) for part in node.body for n in ast.walk(part)]
    known: set[int] = set()
    while waiting:
        where, inner = waiting.pop()
        called = callee(inner, where, module, functions) if isinstance(inner, ast.Call) else None
        if called is not None and id(called) not in known and len(known) < REACHED:
            known.add(id(called))
            found += called.nodes
            waiting += [(called, n) for n in called.nodes]
    return found


def _swallows(
    module: Module,
    scope: NameScope,
    place: Placement,
    found: Sequence[Placement],
    parallel: bool,
    reached: Sequence[ast.AST],
) -> Iterator[Hit]:
    node = place.node
    assert isinstance(node, ast.Try)
    inside = [n for part in node.body for n in ast.walk(part) if isinstance(n, ast.Call)]
    called = [name for call in inside if (name := is_collective(call, module))]
    plain = [name for name in called if name != "monitored_barrier"]
    steps = parallel and any(_is_backward(n) for n in (*inside, *reached))
    raised = {n for one in reached if (n := _raises(one))}
    handler = next(
        (
            h
            for h in node.handlers
            if (_is_broad(h, module) or _catches(h, raised)) and _goes_on(h.body)
        ),
        None,
    )
    if handler is None or not (plain or steps):
        return
    if any(k.arg == TOGETHER for call in inside for k in call.keywords):
        return
    around = [p.node for p in found if place.loops[-1] in p.loops]
    if not plain and not any(is_optimizer_step(n) for n in (*around, *reached)):
        return  # a measurement, or a test
    # ranks that tell each other what has happened to them leave the batch out together
    own = {id(call) for call in inside}
    beside = [n for n in (*around, *reached) if id(n) not in own]
    if any(_agrees(n, module) for n in beside) or _agreeing_handler(handler, module):
        return
    what = f"{plain[0]} in the try" if plain else "backward() of DDP in the try"
    kind = ast.unparse(handler.type) if handler.type is not None else "everything"
    yield from module.hit("collective-swallowed", handler, scope, f"catches {kind[:30]}; {what}")


def _raises(node: ast.AST) -> str:
    """What `raise Odd(...)` raises."""
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name)):
            return name
    return ""


def _catches(handler: ast.ExceptHandler, raised: Collection[str]) -> bool:
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(one, ast.Name) and one.id in raised for one in kinds)


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward"


def _agrees(node: ast.AST, module: Module) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = last_part(module.full(node.func)) or getattr(node.func, "attr", "")
    return may_agree(frozenset({name}))


def _agreeing_handler(handler: ast.ExceptHandler, module: Module) -> bool:
    return any(_agrees(n, module) for part in handler.body for n in ast.walk(part))


def _is_broad(handler: ast.ExceptHandler, module: Module) -> bool:
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(one is None or module.full(one) in BROAD for one in kinds)


def _goes_on(body: Sequence[ast.stmt]) -> bool:
    """Whether a way through these statements stays in the loop."""
    for statement in body:
        match statement:
            case ast.Raise() | ast.Return() | ast.Break():
                return False
            case ast.Continue():
                return True
            case ast.If(test=test, body=then, orelse=other):
                if any(word in ast.unparse(test).lower() for word in ALONE):
                    return False  # it goes on where it has no peers
                if not (_goes_on(then) or _goes_on(other)):
                    return False
            case ast.With(body=inner):
                if not _goes_on(inner):
                    return False
            case ast.Expr(value=ast.Call() as call):
                if ast.unparse(call.func) in ENDS or _ends_all(call):
                    return False
    return True


def _ends_all(call: ast.Call) -> bool:
    name = last_part(ast.unparse(call.func)).lower()
    return any(word in name for word in ("destroy", "abort", "exit", "fail", "raise", "die"))


# --- whom they ask ---


def agreeing_functions(program: Program) -> frozenset[str]:
    """The functions and methods, by their last names, that call something in which ranks may
    agree, or a function that does."""
    called: dict[str, set[str]] = {}
    for module in program.modules:
        for scope in module.scopes:
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                own = called.setdefault(last_part(scope.name), set())
                own |= {last_name(n.func) for n in scope.nodes if isinstance(n, ast.Call)}
    agree = {name for name, own in called.items() if may_agree(frozenset(own))}
    for _ in range(4):
        agree |= {name for name, own in called.items() if own & agree}
    return frozenset(agree)


def calls_in(node: ast.AST) -> frozenset[str]:
    """The last names of all functions that are called in it."""
    return frozenset(last_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call))


# --- chance and order ---


def random_branch(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A collective under a throw of dice that each rank makes for itself."""
    alike = seeded_alike(program)
    for module in program.modules:
        reach = reaching_a_collective(module)
        for scope in module.scopes:
            for place in places(scope):
                test = place.node
                if not isinstance(test, ast.If) or not (dice := _dice(test, scope, module)):
                    continue
                if alike & {dice.partition(".")[0], EVERY}:
                    continue
                then, other = (_collectives(p, module, reach) for p in (test.body, test.orelse))
                if then != other:
                    name = (then or other)[0]
                    yield from module.hit("random-branch", test, scope, f"{name} under {dice}()")


def seeded_alike(program: Program) -> set[str]:
    """The libraries whose numbers are the same on all ranks, since they are seeded without the
    rank: `random`, `numpy` or `torch`; EVERY for a function of which nothing else is known."""
    found = set()
    for module in program.modules:
        functions = functions_of(program, module)
        for scope, call in module.calls():
            full = module.full(call.func)
            name = last_part(full) or getattr(call.func, "attr", "")
            if name in SEEDS or "seed" in name.lower():
                given = [*call.args, *(k.value for k in call.keywords)]
                if _is_handed_on(given, scope) or _is_of_its_own(call, scope, module):
                    continue
                called = callee(call, scope, module, functions)
                if called is not None and _seeds_by_rank(called):
                    continue
                if not any(_mentions_rank(n) for one in given for n in ast.walk(one)):
                    library = full.partition(".")[0]
                    found.add(library if library in ("random", "numpy", "torch") else EVERY)
    return found


def _is_handed_on(given: Sequence[ast.expr], scope: NameScope) -> bool:
    """`def set_seed(seed): torch.manual_seed(seed)`: who calls it chooses the seed."""
    if "seed" not in last_part(scope.name).lower() or not given:
        return False
    return all(isinstance(n, ast.Name) and scope.bound.get(n.id) == [None] for n in given)


def _seeds_by_rank(function: NameScope) -> bool:
    """`def seed_everything(seed): torch.manual_seed(seed + rank)`, of all that it seeds."""
    seeds = [
        [*node.args, *(k.value for k in node.keywords)]
        for node in function.nodes
        if isinstance(node, ast.Call) and last_name(node.func) in SEEDS
    ]
    return bool(seeds) and all(
        any(_mentions_rank(n) for one in given for n in ast.walk(one)) for given in seeds
    )


def _is_of_its_own(call: ast.Call, scope: NameScope, module: Module) -> bool:
    """The seed of a generator that the script has made, not that of all others."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=name)):
            made = scope.value(name)
            return isinstance(made, ast.Call) and module.full(made.func) in GENERATORS
        case ast.Attribute(value=ast.Call(func=made)):
            return module.full(made) in GENERATORS
    return False


def _mentions_rank(node: ast.AST) -> bool:
    name = getattr(node, "id", getattr(node, "attr", ""))
    return isinstance(name, str) and name.lower() in RANK_NAMES


def _dice(test: ast.If, scope: NameScope, module: Module) -> str:
    """The function of chance in a test, also by way of a name; on a GPU all begin with one seed."""
    looked = [test.test]
    names = (n.id for n in ast.walk(test.test) if isinstance(n, ast.Name))
    looked += [value for name in names if (value := scope.value(name)) is not None]
    for node in (n for one in looked for n in ast.walk(one)):
        if isinstance(node, ast.Call) and (full := module.full(node.func)) in RANDOM:
            chosen = {k.arg for k in node.keywords} & {"device", "generator"}
            return "" if chosen else full
    return ""


def _collectives(
    body: Sequence[ast.stmt], module: Module, reach: Mapping[str, NameScope]
) -> list[str]:
    found = []
    for node in (n for part in body for n in ast.walk(part)):
        if isinstance(node, ast.Call):
            if name := is_collective(node, module):
                found.append(name)
            elif isinstance(node.func, ast.Name) and node.func.id in reach:
                found.append(node.func.id)
    return found


def set_order(program: Program, environ: Mapping[str, str]) -> Iterator[Hit]:
    """A loop over a set that calls a collective for each member: their order is another one in each
    process, since Python hashes text with a seed of its own."""
    fixed = environ.get("PYTHONHASHSEED", "").isdecimal()
    for module in program.modules:
        reach = reaching_a_collective(module)
        for scope in module.scopes:
            for node in scope.nodes:
                if isinstance(node, ast.For) and (
                    members := _set_looped(node, scope, module)
                    or _set_given(program, node.iter, scope)
                ):
                    by_address = members == "objects"
                    called = _collectives(node.body, module, reach)
                    if called and (by_address or not fixed):
                        other = f"{called[0]} in an order of its own on each rank"
                        yield from module.hit("set-order", node, scope, other)


def _set_looped(loop: ast.For, scope: NameScope, module: Module) -> str:
    """What the set is made of that a loop goes through; what is looked up by its members in that
    of which the set is made is a dict."""
    made = loop.iter
    if isinstance(made, ast.Name):
        if scope.value(made.id) is not None:
            made = scope.value(made.id) or made
        if isinstance(made, ast.Call) and made.args == [] and _is_set(made):
            return _added(ast.unparse(loop.iter), scope)
    found = _set_of(made, scope, module)
    if not found and isinstance(made, ast.Call) and _is_set(made) and made.args:
        source, by = ast.unparse(made.args[0]), ast.unparse(loop.target)
        looked = (n for part in loop.body for n in ast.walk(part) if isinstance(n, ast.Subscript))
        if any(ast.unparse(n.value) == source and ast.unparse(n.slice) == by for n in looked):
            return "texts"
    return found


def _set_given(program: Program, looped: ast.expr, function: NameScope) -> str:
    """The same of a parameter, for which all who call the function give a set."""
    if not isinstance(looped, ast.Name) or not is_parameter(looped.id, function):
        return ""
    found = [
        _set_of(value, scope, module)
        for module, scope, value in given_by_callers(program, function, looped.id)
    ]
    return found[0] if found and all(found) else ""


def _is_set(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in SETS


def _added(name: str, scope: NameScope) -> str:
    """What is added to an empty set, as far as its text says so."""
    for node in scope.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=found), attr="add"), args=[part]
            ) if found == name:
                if members := _members(part) or _loop_members(part, scope):
                    return members
    return ""


def _loop_members(part: ast.expr, scope: NameScope) -> str:
    """`n` of `for n, p in model.named_parameters()` is a text, `p` an object."""
    for node in scope.nodes:
        match part, node:
            case (
                ast.Name(id=name),
                ast.For(
                    target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                    iter=ast.Call(func=ast.Attribute(attr=attr)),
                ),
            ) if name in (first, second) and attr in PAIRS:
                return "texts" if name == first else "objects" if attr in NAMED else ""
    return ""


def _set_of(node: ast.expr, scope: NameScope, module: Module, depth: int = 0) -> str:
    """`texts` or `objects` for what is surely a set; empty for numbers, which are in one order, and
    for what is none."""
    if depth > 4:
        return ""
    match node:
        case ast.Name(id=name):
            value = scope.value(name)
            return _set_of(value, scope, module, depth + 1) if value is not None else ""
        case ast.Set(elts=parts):
            texts = any(isinstance(p, ast.Constant) and isinstance(p.value, str) for p in parts)
            return "texts" if texts else ""
        case ast.SetComp(elt=part):
            return _members(part)
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in SETS:
            return _members(inner)
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _set_of(left, scope, module, depth + 1) or _set_of(
                node.right, scope, module, depth + 1
            )
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in (
            *("union", "intersection", "difference", "symmetric_difference"),
        ):
            return _set_of(owner, scope, module, depth + 1)
    return ""


def _members(node: ast.expr) -> str:
    """What a set is made of, as far as its text says so."""
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr=name)) if name in IDENTITY:
                return "objects"
            case ast.Call(func=ast.Attribute(attr="keys" | "split" | "state_dict")):
                return "texts"
            case ast.Constant(value=str()) | ast.JoinedStr():
                return "texts"
            case ast.Attribute(attr="name" | "key") | ast.Name(id="name" | "names" | "keys"):
                return "texts"
    return ""
