"""A dataset whose order each rank draws for itself, before DistributedSampler deals it out by
index, or the program itself by `files[rank::world_size]`: the ranks take parts of different orders,
and use some samples twice and others never.

Only what a class with `__getitem__` keeps of itself, random_split, and what is shuffled in the very
function that takes a rank's part; any seed that the ranks share silences it, and so does whatever
lets the ranks agree.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from preflight.domains.script.agreement_rules import (
    EVERY,
    calls_in,
    may_agree,
    seeded_alike,
)
from preflight.domains.script.data_rules import SAMPLERS
from preflight.domains.script.rank_values import RANK_NAMES, SIZE_NAMES
from preflight.domains.script.rules import Mentions, calls_of, keyword
from preflight.domains.script.source import (
    Hit,
    NameScope,
    Program,
    last_name,
    name_set,
)

IN_PLACE = name_set("random.shuffle numpy.random.shuffle")
DRAWN = name_set("numpy.random.permutation torch.randperm random.sample")
WORLD_NAMES = SIZE_NAMES | name_set("world num_replicas")
SPLITS = name_set("torch.utils.data.random_split torch.utils.data.dataset.random_split")


def order_per_rank(program: Program, seen: Mentions) -> Iterator[Hit]:
    """`random.shuffle(self.rows)` in a dataset, or random_split, without a seed of all ranks."""
    if seen.framework:
        return
    sampled = any(True for m in program.modules for _ in calls_of(m, *SAMPLERS))
    alike = seeded_alike(program)
    for module in program.modules:
        for scope, call in module.calls():
            full = module.full(call.func)
            if full.partition(".")[0] in alike or EVERY in alike:
                continue
            drawn = full in IN_PLACE | DRAWN and (
                (sampled and _is_kept(call, scope)) or _is_dealt_out(call, scope)
            )
            split = sampled and full in SPLITS
            if not (drawn or split) or keyword(call, "generator") is not None:
                continue
            if not may_agree(calls_in(_home(scope).node)):
                yield from module.hit("order-per-rank", call, scope, f"{full}() without a seed")


def _home(scope: NameScope) -> NameScope:
    """The class of a method, else the function itself."""
    owner = scope.parent
    return owner if owner is not None and isinstance(owner.node, ast.ClassDef) else scope


def _is_kept(call: ast.Call, scope: NameScope) -> bool:
    """Whether a dataset keeps what is shuffled when it is made: `self.rows`, or a name that is
    bound to one."""
    home = _home(scope)
    made = isinstance(scope.node, ast.FunctionDef) and scope.node.name == "__init__"
    if not made or "__getitem__" not in home.bound:
        return False
    kept = {
        name.id
        for node in scope.nodes
        if isinstance(node, ast.Assign) and any(_is_own(target) for target in node.targets)
        for name in ast.walk(node.value)
        if isinstance(name, ast.Name)
    }
    for node in scope.nodes:
        match node:
            case ast.Expr(value=value) if value is call and call.args:
                given = call.args[0]
                return _is_own(given) or getattr(given, "id", "") in kept
            case ast.Assign(targets=[target], value=value) if any(
                inner is call for inner in ast.walk(value)
            ):
                return _is_own(target) or getattr(target, "id", "") in kept
    return False


def _is_dealt_out(call: ast.Call, scope: NameScope) -> bool:
    """Whether a rank takes its part of what is shuffled: `files[rank::world_size]`, or the members
    whose number leaves the rank as the rest of a division by the number of ranks."""
    names = {n.id for n in call.args[:1] if isinstance(n, ast.Name)}
    for node in scope.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if any(
                inner is call for inner in ast.walk(value)
            ):
                names.add(name)
    for node in scope.nodes:
        match node:
            case ast.Subscript(
                value=ast.Name(id=name), slice=ast.Slice(lower=ast.expr() as lower, step=step)
            ) if name in names and step is not None:
                if _mentions(lower, RANK_NAMES) and _mentions(step, WORLD_NAMES):
                    return True
            case ast.For(iter=ast.Call(func=ast.Name(id="enumerate"), args=[ast.Name(id=name)])):
                if name in names and any(_is_rest(n) for part in node.body for n in ast.walk(part)):
                    return True
    return False


def _is_rest(node: ast.AST) -> bool:
    """`number % world_size == rank`"""
    match node:
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), right=by), comparators=[rank]):
            return _mentions(by, WORLD_NAMES) and _mentions(rank, RANK_NAMES)
    return False


def _mentions(node: ast.expr, names: Collection[str]) -> bool:
    return any(last_name(inner).lower() in names for inner in ast.walk(node))


def _is_own(node: ast.expr) -> bool:
    """`self.rows`"""
    return isinstance(node, ast.Attribute) and last_name(node.value) == "self"
