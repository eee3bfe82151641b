"""Finds collectives of a script that some ranks get to and others don't."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence

from preflight.domains.script.control_flow import (
    Guard,
    Path,
    PathStep,
    all_paths,
    called_by_name,
    collectives,
    is_collective,
    reaching_a_collective,
)
from preflight.domains.script.placement import places
from preflight.domains.script.rank_values import RANKS, by_rank, differs, truth
from preflight.domains.script.source import Hit, Module, NameScope, name_set
from preflight.frozen import dataclass

TOLD_MAX = 5
"""Places of one function."""

# methods that hold no collective, whatever they belong to
HARMLESS = name_set(
    "info debug warning error exception log print append extend update pop write flush close "
    "format join strip split item eval train to cpu size dim numel detach clone mkdir exists "
    "set_description set_postfix add_scalar step zero_grad items keys values get sleep"
)
BUILTINS = frozenset(dir(builtins))
LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "tqdm", "wandb"}


DivergencePoint = tuple[PathStep, PathStep, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A collective that only `ranks` get to, under a test of its own or because others have left;
    `hits` is empty where a comment says that it is meant."""

    left: bool
    name: str
    ranks: frozenset[int]
    hits: tuple[Hit, ...]


def divergences(modules: tuple[Module, ...]) -> Iterator[Hit]:
    """The places at which ranks part, but for those that even out: one function in which rank 0
    waits, and another in which the others do, are the two halves of a meeting."""
    found: list[Divergence] = []
    for module in modules:
        try:
            if any(is_collective(call, module) for _, call in module.calls()):
                reach = reaching_a_collective(module)
                found += [p for scope in module.scopes for p in _in_function(module, scope, reach)]
        except RecursionError:  # nested so deeply that nobody wrote it
            continue
    served = [place for module in modules for place in _served_in_loops(module)] if found else []
    for one in found:
        halves = [p for p in found if p.name == one.name and not p.left | one.left]
        others = [p.ranks for p in halves]
        if not one.left:
            others += [ranks for name, ranks in served if name == one.name]
        if not any(ranks.isdisjoint(one.ranks) for ranks in others):
            yield from one.hits


def _served_in_loops(module: Module) -> Iterator[tuple[str, frozenset[int]]]:
    """Collectives that some ranks repeat in a loop of their own until another rank lets them out of
    it, and which ranks: whatever that one does elsewhere, they take part in."""
    for scope in module.scopes:
        if isinstance(scope.node, (ast.Lambda, ast.ClassDef)):
            continue
        for place in places(scope):
            if isinstance(place.node, ast.Call) and (kind := is_collective(place.node, module)):
                forever = {id(loop) for loop in place.loops if isinstance(loop, ast.While)}
                for test, body in place.branches if forever else ():
                    values = by_rank(test.test, scope, module)
                    own = any(id(node) in forever for node in ast.walk(test))
                    if own and differs(values):
                        takers = {r for r, value in enumerate(values) if truth(value) is body}
                        yield kind, frozenset(takers)


def _in_function(
    module: Module, scope: NameScope, reach: Mapping[str, NameScope]
) -> Iterator[Divergence]:
    """The divergences of one function, each test once."""
    if isinstance(scope.node, (ast.Lambda, ast.ClassDef)):
        return
    spared: frozenset[int] = frozenset()
    for _ in range(TOLD_MAX):
        place = _difference(all_paths(module, scope, spared, reach), ())
        if place is None:
            return
        step, met, ranks = place
        guard = step.guards[-1]
        spared |= {id(guard.test)}
        if not _may_meet(module, scope, ranks):
            yield Divergence(
                step is not met,
                met.kind,
                ranks,
                tuple(_hits(module, scope, step, guard, met)),
            )


def _hits(
    module: Module, scope: NameScope, step: PathStep, guard: Guard, met: PathStep
) -> Iterator[Hit]:
    test = f"{'if' if guard.body else 'else of if'} {ast.unparse(guard.test.test)}"
    line = guard.test.lineno
    called = f"{met.by}(), which calls {met.kind}," if met.by else met.kind
    if step is met:
        other = f"{called} under '{test[:40]}', line {line}"
    else:
        other = f"left under '{test[:40]}'; {called} follows in line {line_of(met)}"
    yield from module.hit("collective-under-rank", step.node, scope, other)


def line_of(step: PathStep) -> int:
    """The line of a step in its file."""
    return int(getattr(step.node, "lineno", 0))


def _difference(paths: Sequence[Path], after: Sequence[PathStep]) -> DivergencePoint | None:
    """Where the paths of the ranks begin to differ: the step under a test of the rank that makes
    them differ, the collective that is not for all, and the ranks that get to it. `after` are the
    collectives behind the end of these paths."""
    for number in range(max(map(len, paths), default=0)):
        here = [path[number] if number < len(path) else None for path in paths]
        if len({step.key if step else None for step in here}) == 1:
            continue
        rest = [collectives(path[number:]) for path in paths]
        behind = [*(step for own in rest for step in own), *after]
        known = [step for step in here if step]
        if len(known) == len(here) and len({(s.kind, id(s.node)) for s in known}) == 1:
            if not known[0].inside:
                return None
            for part in range(len(known[0].inside)):
                found = _difference([s.inside[part] for s in known], behind)
                if found:
                    return found
            continue
        return _responsible_step(here, rest, after) or _extra_step(paths, number)
    return None


def _extra_step(paths: Sequence[Path], end: int) -> DivergencePoint | None:
    """Where paths differ in length only: the last step before that which stands under a test and
    has met its like of another place."""
    for number in reversed(range(end)):
        here = [_pick(path[number]) for path in paths]
        tests = {id(step.guards[-1].test) if step and step.guards else None for step in here}
        if len(tests) > 1:
            return _responsible_step(here, [()] * len(here), ())
    return None


def _responsible_step(
    here: Sequence[PathStep | None], rest: Sequence[Sequence[PathStep]], after: Sequence[PathStep]
) -> DivergencePoint | None:
    """Of steps that differ: a collective under a test, else the way out under one."""
    picked = [_pick(step) for step in here]
    guarded = [step for step in picked if step and step.guards]
    if not guarded:
        return None
    step = min(guarded, key=lambda s: (s.kind in PathStep.EXITS, line_of(s)))
    takes = frozenset(r for r, s in enumerate(picked) if s is not None and s.node is step.node)
    if step.kind not in PathStep.EXITS:
        return step, step, takes
    missed = [s for r, own in enumerate(rest) if r not in takes for s in own]
    missed += after if step.kind == "return" else ()
    return (step, missed[0], frozenset(range(RANKS)) - takes) if missed else None


def _pick(step: PathStep | None) -> PathStep | None:
    """The first collective or way out in a step that stands under a test of the rank."""
    if step is None or not step.inside:
        return step
    if step.by:
        first = collectives((step,))[0]
        return PathStep(first.kind, step.node, step.guards, (), step.by)
    picked = (_pick(inner) for path in step.inside for inner in path)
    return next((s for s in picked if s and s.guards), None)


def _may_meet(module: Module, scope: NameScope, ranks: frozenset[int]) -> bool:
    """Whether the other ranks may get to collectives that can't be seen: on a way that is theirs
    alone they call something of which nothing is known."""
    functions = called_by_name(module)
    for node in scope.nodes:
        if not isinstance(node, ast.If):
            continue
        values = by_rank(node.test, scope, module)
        if not differs(values):
            continue
        for branch, shut in ((node.body, False), (node.orelse, True)):
            takers = {rank for rank, value in enumerate(values) if truth(value) is not shut}
            if takers.isdisjoint(ranks):
                calls = [n for part in branch for n in ast.walk(part) if isinstance(n, ast.Call)]
                if any(_unknown(module, functions, call) for call in calls):
                    return True
    return False


def _unknown(module: Module, functions: Mapping[str, NameScope], call: ast.Call) -> bool:
    """Whether a call may hide a collective."""
    if is_collective(call, module):
        return False
    full = module.full(call.func)
    top = full.partition(".")[0]
    if isinstance(call.func, ast.Name) and call.func.id in functions:
        own = [n for n in functions[call.func.id].nodes if isinstance(n, ast.Call)]
        return any(is_collective(c, module) or _unknown(module, {}, c) for c in own)
    if isinstance(call.func, ast.Name) and full in BUILTINS:
        return False
    if top in module.names and top in LIBRARIES:
        return False
    return not (isinstance(call.func, ast.Attribute) and call.func.attr in HARMLESS)
