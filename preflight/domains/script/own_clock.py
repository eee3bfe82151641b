"""A training loop that each rank leaves when its own clock says so: ranks start and read their
clocks at different moments, so that one leaves a step before the others, which wait for it.

Real reports: IAS-Astrophysics/athenak#572 (wall clocks of MPI ranks). torchtnt's
TimeLimitInterrupter lets ranks agree for that reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from preflight.domains.script.agreement_rules import (
    agreeing_functions,
    calls_in,
    may_agree,
    wraps,
)
from preflight.domains.script.placement import Placement, places
from preflight.domains.script.rank_values import by_rank, differs
from preflight.domains.script.rules import Mentions
from preflight.domains.script.source import Hit, Module, Program, last_name, last_part, name_set
from preflight.domains.script.stop_rules import (
    PLAIN_CALLS,
    Loop,
    compares,
    is_told,
    left_loop,
    may_be_reached,
    tests_within,
    training_functions,
)

CLOCKS = name_set(
    "time.time time.monotonic time.perf_counter time.process_time time.time_ns time.monotonic_ns "
    "time.perf_counter_ns timeit.default_timer datetime.datetime.now datetime.datetime.utcnow"
)
ARITHMETIC = PLAIN_CALLS | name_set("bool total_seconds tensor timedelta")
"""Through which a reading of a clock goes and stays one."""
TELLS_NOBODY = name_set(
    "print info debug warning error log write update set_description set_postfix add_scalar append "
    "format"
)
UNEVEN = "torch.distributed.algorithms.join.Join"
CHAIN_MAX = 4


def stops_by_own_clock(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A way out of a training loop of DDP or FSDP that is taken when a clock has passed a limit, in
    which ranks agree on nothing about that."""
    if seen.framework or not wraps(program) or _may_be_uneven(program):
        return
    agree = agreeing_functions(program)
    training = training_functions(program)
    for module in program.modules:
        for scope in module.scopes:
            for place in places(scope):
                for loop, tests in _ways_out(place, training):
                    if not may_be_reached(place, scope, module) or any(
                        differs(by_rank(test, scope, module)) for test in tests
                    ):
                        continue
                    clock = _clock_that_decides(program, module, loop, tests, agree)
                    if clock:
                        why = f"each rank asks its own {clock}()"
                        yield from module.hit("early-stop-per-rank", place.node, scope, why)


def _may_be_uneven(program: Program) -> bool:
    """DDP's Join lets ranks have different numbers of steps: `with Join([model])`, or, in older
    releases, `with model.join()`."""
    for module in program.modules:
        if UNEVEN in module.names.values():
            return True
        for node in (n for scope in module.scopes for n in scope.nodes):
            entered = node.items if isinstance(node, (ast.With, ast.AsyncWith)) else []
            if any("join" in {c.lower() for c in calls_in(i)} for i in entered):
                return True
    return False


def _ways_out(
    place: Placement, training: frozenset[str]
) -> Iterator[tuple[Loop, Sequence[ast.expr]]]:
    """The loop of training that a place may end, and the tests that decide it."""
    loop = left_loop(place, training)
    if loop is not None:
        yield loop, [test.test for test in tests_within(place, loop)]
    node = place.node
    if isinstance(node, ast.While):
        called = calls_in(node)
        if "backward" in called or called & training:
            yield node, [node.test]


def _clock_that_decides(
    program: Program,
    module: Module,
    loop: Loop,
    tests: Sequence[ast.expr],
    agree: frozenset[str],
) -> str:
    """The clock by which tests come out as they do, if nothing tells the other ranks; what an
    unknown function makes of it may."""
    decides = list(tests)
    names = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    for _ in range(CHAIN_MAX):
        before = len(decides)
        for node in ast.walk(loop):
            for part in _made_of(node, names):
                if part not in decides:
                    decides.append(part)
                    names |= {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
        if len(decides) == before:
            break
    called = frozenset().union(*map(calls_in, decides))
    if may_agree(called) or called & agree:
        return ""
    clock = _read_in(decides, module) or _read_by(program, module, tests)
    told = is_told(loop, names, agree) or _is_handed_on(loop, decides, names, module)
    return "" if told else clock


def _made_of(node: ast.AST, names: set[str]) -> Iterator[ast.expr]:
    """What binds one of these names by arithmetic alone, and the test under which it becomes a
    constant."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
        ) if name in names and not isinstance(value, ast.Constant):
            yield value
        case ast.If(test=test, body=body):
            for part in body:
                match part:
                    case ast.Assign(
                        targets=[ast.Name(id=name)], value=ast.Constant(value=bool())
                    ) if name in names:
                        yield test


def _read_in(decides: Iterable[ast.expr], module: Module) -> str:
    """The clock that is read where a limit is compared, or in what is compared, through arithmetic
    alone."""
    parts = [part for part in decides if _is_arithmetic(part, module)]
    if not any(compares(part) for part in parts):
        return ""
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and (full := module.full(node.func)) in CLOCKS:
                return full
    return ""


def _read_by(program: Program, module: Module, tests: Sequence[ast.expr]) -> str:
    """The clock of a function of these files that a test calls, of which there is one by its name:
    `if time_is_up():`, `if self.out_of_time():`."""
    called = {name for test in tests for name in calls_in(test)}
    for name in sorted(called):
        found = [
            (home, scope)
            for home in program.modules
            for scope in home.scopes
            if last_part(scope.name) == name and isinstance(scope.node, ast.FunctionDef)
        ]
        if len(found) == 1:
            home, scope = found[0]
            returned = [n.value for n in scope.nodes if isinstance(n, ast.Return) and n.value]
            if clock := _read_in(returned, home):
                return clock
    return ""


def _is_arithmetic(part: ast.expr, module: Module) -> bool:
    return all(
        module.full(node.func) in CLOCKS or last_name(node.func) in ARITHMETIC
        for node in ast.walk(part)
        if isinstance(node, ast.Call)
    )


def _is_handed_on(loop: Loop, decides: Sequence[ast.expr], names: set[str], module: Module) -> bool:
    """Whether the flag or the time goes into something unknown, which may tell the others."""
    bound = {
        n.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for n in ast.walk(target)
        if isinstance(n, ast.Name) and n.id in names
    }
    for node in ast.walk(loop):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in bound:
                if value in decides and not _is_arithmetic(value, module):
                    return True
            case ast.Expr(value=ast.Call(args=args) as call) if any(
                isinstance(a, ast.Name) and a.id in bound for a in args
            ):
                if last_name(call.func) not in TELLS_NOBODY:
                    return True
    return False
