"""A training loop that each rank leaves by a value of its own: a loss on its own share of the data,
what one rank alone has worked out, a flag that one rank alone sets."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from preflight.domains.script.agreement_rules import (
    agreeing_functions,
    calls_in,
    may_agree,
    wraps,
)
from preflight.domains.script.placement import LOOPS, Placement, places
from preflight.domains.script.rank_values import RANKS, by_rank, differs, truth
from preflight.domains.script.rules import Mentions, calls_of, is_optimizer_step
from preflight.domains.script.source import (
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    last_part,
    name_set,
)

Loop = ast.For | ast.AsyncFor | ast.While
PARALLEL = ("ddp", "distributeddataparallel", "fsdp", "fullyshard", "fully_shard")
"""In a name, of a function too that wraps a model elsewhere."""
STOPS = ("early", "stop", "patience", "no_improve", "wait", "counter", "plateau", "bad_")
PLAIN_CALLS = name_set(
    "float int min max abs item mean sum len round isnan isinf isfinite sqrt exp log detach cpu"
)
"""Which make one number of others."""
SAMPLERS = name_set(
    "torch.utils.data.distributed.DistributedSampler torch.utils.data.DistributedSampler"
)
NESTED_MAX = 4


def early_stop_per_rank(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A way out of a training loop of DDP that ranks need not take together."""
    if seen.framework:
        return
    wrapped = wraps(program)
    if not wrapped and not any(word in n.lower() for n in seen.names for word in PARALLEL):
        return
    samplers = sum(1 for module in program.modules for _ in calls_of(module, *SAMPLERS))
    agree = agreeing_functions(program)
    quiet = not may_agree(seen.names)
    training = training_functions(program)
    for module in program.modules:
        for scope in module.scopes:
            found = list(places(scope))
            for place in found:
                loop = left_loop(place, training)
                if loop is None or not may_be_reached(place, scope, module):
                    continue
                why = _stop(module, scope, place, loop, agree)
                why = why or _by_a_flag(module, scope, place, loop, found, agree)
                if not why and wrapped and samplers:
                    why = _own_share(program, loop, place, agree, samplers, quiet)
                if why:
                    yield from module.hit("early-stop-per-rank", place.node, scope, why)


def training_functions(program: Program) -> frozenset[str]:
    """The functions and methods, by their last names, that call backward(), or one that does."""
    called: dict[str, set[str]] = {}
    for module in program.modules:
        for scope in module.scopes:
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                own = called.setdefault(last_part(scope.name), set())
                own |= {last_name(n.func) for n in scope.nodes if isinstance(n, ast.Call)}
    found = {name for name, own in called.items() if "backward" in own}
    for _ in range(NESTED_MAX):
        found |= {name for name, own in called.items() if own & found}
    return frozenset(found)


def left_loop(place: Placement, training: frozenset[str]) -> Loop | None:
    """The loop that a break or a return leaves, if it is one of training."""
    if not isinstance(place.node, (ast.Break, ast.Return)) or not place.loops:
        return None
    loop = place.loops[-1]
    if not isinstance(loop, LOOPS):
        return None
    if isinstance(loop, ast.For) and "epoch" in ast.unparse(loop.target).lower():
        return loop if isinstance(place.node, ast.Break) or _trains(loop, training) else None
    return loop if _trains(loop, training) else None


def _trains(loop: Loop, training: frozenset[str]) -> bool:
    names = calls_in(loop)
    return "backward" in names or bool(names & training)


def may_be_reached(place: Placement, scope: NameScope, module: Module) -> bool:
    """Whether a place is not only for a job of one rank."""
    for test, body in place.branches:
        values = {truth(value) for value in by_rank(test.test, scope, module)}
        if values == {not body}:
            return False
    return True


def tests_within(place: Placement, loop: Loop) -> list[ast.If]:
    inside = set(ast.walk(loop))
    return [test for test, _ in place.branches if test in inside]


# --- one rank leaves, or sets a flag ---


def _stop(
    module: Module, scope: NameScope, place: Placement, loop: Loop, agree: frozenset[str]
) -> str:
    """Why only some ranks stop, where a test of the rank keeps others out; what other ranks do to
    stop as well, in this loop, may be right."""
    parted = [t for t in tests_within(place, loop) if differs(by_rank(t.test, scope, module))]
    if not parted:
        return ""
    ways = [n for n in ast.walk(loop) if isinstance(n, (ast.Break, ast.Return, ast.Raise))]
    own = calls_in(parted[0])
    around = frozenset(name for part in _after(loop, parted[0]) for name in calls_in(part))
    told = may_agree(own | around) or (own | around) & agree
    return "" if len(ways) > 1 or told else "only some ranks get to it"


def _after(loop: Loop, test: ast.If) -> list[ast.stmt]:
    """What a loop does from a test on, and before the next round's training: all statements that
    don't hold the test."""
    return [part for part in loop.body if part.lineno > test.lineno]


def _by_a_flag(
    module: Module,
    scope: NameScope,
    place: Placement,
    loop: Loop,
    found: Sequence[Placement],
    agree: frozenset[str],
) -> str:
    """Why ranks don't leave together, where the test asks for what some of them alone have changed
    in this loop, and nothing tells the others."""
    tests = tests_within(place, loop)
    if any(differs(by_rank(test.test, scope, module)) for test in tests):
        return ""
    inside = [p for p in found if loop in p.loops]
    for key in sorted({key for test in tests for key in _asked(test.test)}):
        writes = [p for p in inside if _changes(p.node, key)]
        ranks = {rank for p in writes for rank in _ranks_at(p, loop, scope, module)}
        if not writes or len(ranks) == RANKS:
            continue
        if not is_told(loop, {key}, agree):
            return f"{key} is changed under a test of the rank only"
    return ""


def _asked(test: ast.expr) -> Iterator[str]:
    """What a test reads, as it is written: `stop`, `self.stop`, and `stopper` of `stopper.stop`."""
    for node in ast.walk(test):
        match node:
            case ast.Name(id=name) if name != "self":
                yield name
            case ast.Attribute(value=ast.Name(id="self")):
                yield ast.unparse(node)


def _changes(node: ast.AST, key: str) -> bool:
    """Whether a node binds this, or something of it, or calls it or a method of it."""
    match node:
        case ast.Assign(targets=targets):
            return any(_is_of(part, key) for one in targets for part in _parts(one))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return _is_of(target, key)
        case ast.For(target=target):
            return any(_is_of(part, key) for part in _parts(target))
        case ast.Call(func=func):
            return _is_of(func, key)
    return False


def _parts(target: ast.expr) -> Sequence[ast.expr]:
    return target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _is_of(node: ast.expr, key: str) -> bool:
    text = ast.unparse(node)
    return text == key or text.startswith((key + ".", key + "["))


def _ranks_at(place: Placement, loop: Loop, scope: NameScope, module: Module) -> set[int]:
    """The ranks that may get to a place in a loop."""
    ranks = set(range(RANKS))
    within = set(tests_within(place, loop))
    for test, body in place.branches:
        if test in within:
            values = by_rank(test.test, scope, module)
            if differs(values):
                ranks &= {r for r, value in enumerate(values) if truth(value) is not (not body)}
    return ranks


def is_told(loop: ast.AST, keys: set[str], agree: frozenset[str]) -> bool:
    """Whether one of these, or what a loop or a function makes of them, goes through something in
    which ranks agree."""
    wanted = set(keys)
    for _ in range(NESTED_MAX):
        wanted |= {
            ast.unparse(part)
            for node in ast.walk(loop)
            if isinstance(node, ast.Assign) and _reads(node.value, wanted)
            for target in node.targets
            for part in _parts(target)
        }
    for node in ast.walk(loop):
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if (may_agree(frozenset({name})) or name in agree) and _touches(node, wanted):
                return True
    return False


def _touches(call: ast.Call, wanted: set[str]) -> bool:
    """Whether a call is given one of these, or is of a method of one: a barrier is not."""
    given: list[ast.expr] = [*call.args, *(k.value for k in call.keywords)]
    if isinstance(call.func, ast.Attribute):
        given.append(call.func.value)
    return any(_reads(one, wanted) for one in given)


def _reads(node: ast.AST, wanted: Iterable[str]) -> bool:
    keys = set(wanted)
    return any(
        isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) in keys for n in ast.walk(node)
    )


# --- each rank decides by its own data ---


def _own_share(
    program: Program,
    loop: Loop,
    place: Placement,
    agree: frozenset[str],
    samplers: int,
    quiet: bool,
) -> str:
    """Why each rank decides alone, where everything that the decision is made from is seen: values
    of functions of these files, in which ranks agree on nothing, or the loss of the training."""
    tests = tests_within(place, loop)
    calls, names = _made_from(loop, tests)
    if may_agree(frozenset(calls)) or calls & agree or is_told(loop, names, agree):
        return ""
    if _losses(loop) & names and any(compares(test.test) for test in tests):
        return "each rank decides by the loss of its own share"
    if not _stops_by(tests):
        return ""
    known = {
        last_part(scope.name): scope
        for module in program.modules
        for scope in module.scopes
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    measured = [known[name] for name in calls if name in known]
    trains = any(_calls_backward(scope) for scope in measured)
    unknown = calls - set(known) - PLAIN_CALLS
    if quiet and samplers > 1:
        return "each rank decides by its own share"
    if measured and not unknown and (trains or samplers > 1):
        return "each rank decides by its own share"
    return ""


def _stops_by(tests: Sequence[ast.If]) -> bool:
    text = " ".join(ast.unparse(test.test).lower() for test in tests)
    return any(word in text for word in STOPS)


def _losses(loop: Loop) -> set[str]:
    """The names on which a loop calls backward(), scaled or not."""
    found: set[str] = set()
    for node in ast.walk(loop):
        match node:
            case ast.Call(func=ast.Attribute(attr="backward", value=ast.Name(id=name))):
                found.add(name)
            case ast.Call(
                func=ast.Attribute(
                    attr="backward",
                    value=ast.Call(func=ast.Attribute(attr="scale"), args=[ast.Name(id=name)]),
                )
            ):
                found.add(name)
    return found if any(is_optimizer_step(node) for node in ast.walk(loop)) else set()


def compares(test: ast.expr) -> bool:
    """Whether a test weighs one number against another."""
    weighs = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    return any(
        isinstance(node, ast.Compare) and isinstance(node.ops[0], weighs) for node in ast.walk(test)
    )


def _calls_backward(scope: NameScope) -> bool:
    return any(isinstance(n, ast.Call) and last_name(n.func) == "backward" for n in scope.nodes)


def _made_from(loop: Loop, tests: Sequence[ast.If]) -> tuple[set[str], set[str]]:
    """The functions whose values decide a test, and the names, by way of what the loop binds."""
    wanted = {n.id for test in tests for n in ast.walk(test.test) if isinstance(n, ast.Name)}
    calls = {name for test in tests for name in calls_in(test.test)}
    for _ in range(6):
        before = len(wanted)
        for node in ast.walk(loop):
            if isinstance(node, ast.If) and any(_binds(n, wanted) for n in ast.walk(node)):
                wanted |= {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            if _binds(node, wanted):
                value = getattr(node, "value", None)
                if isinstance(value, ast.AST):
                    wanted |= {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
                    calls |= calls_in(value)
        if len(wanted) == before:
            break
    return calls, wanted - {"self"}


def _binds(node: ast.AST, names: set[str]) -> bool:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return False
    return any(isinstance(n, ast.Name) and n.id in names for t in targets if t for n in ast.walk(t))
