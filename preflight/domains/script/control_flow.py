"""The collectives of a script in the order in which each rank gets to them.

A function is gone through once for each of some ranks. A test that its text decides for a rank
(`rank == 0`) leads that rank one way; one that it doesn't is an alternative that is the same for
all. So a barrier for rank 0 in one place and for the others in another one comes out even. What a
function called by its name does is part of its caller's path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from preflight.domains.script.rank_values import RANKS, by_rank, differs, truth
from preflight.domains.script.source import FUNCTIONS, Module, NameScope, last_part
from preflight.frozen import dataclass

# where each has its group, counted from the left (torch/distributed/distributed_c10d.py)
COLLECTIVES = {
    "all_reduce": 2,
    "broadcast": 2,
    "reduce": 3,
    "all_gather": 2,
    "all_gather_into_tensor": 2,
    "all_gather_object": 2,
    "gather": 3,
    "gather_object": 3,
    "scatter": 3,
    "scatter_object_list": 3,
    "reduce_scatter": 3,
    "reduce_scatter_tensor": 3,
    "all_to_all": 2,
    "all_to_all_single": 4,
    "broadcast_object_list": 2,
    "barrier": 0,
    "monitored_barrier": 0,
    "new_group": 99,
}
PACKAGES = frozenset({"torch.distributed", "torch.distributed.distributed_c10d", "deepspeed.comm"})
WHOLE = frozenset({"torch.distributed.group.WORLD", "torch.distributed.GroupMember.WORLD"})

GATHERS = frozenset({"gather", "gather_for_metrics", "reduce", "pad_across_processes"})
"""Methods of an Accelerator that all ranks have to call."""
LIGHTNING = frozenset({"lightning", "pytorch_lightning"})
LOGS = frozenset({"log", "log_dict"})

# decorators after which a function still runs on the ranks that call it
PLAIN = frozenset({"no_grad", "inference_mode", "record"})
# except* came with Python 3.11
TRIES: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
NESTED_MAX = 4
LENGTH_MAX = 400
"""Collectives of one path; who has more of them is not followed to the end."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A test that parts the ranks, and the way taken: its body, or what stands in its else."""

    test: ast.If | ast.IfExp
    body: bool


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a path. kind is the collective's name, an exit (`return`, `continue`, `break`),
    `loop` or `either`, which have paths inside; what a called function does carries its name."""

    kind: str
    node: ast.AST
    guards: tuple[Guard, ...] = ()
    inside: tuple[tuple[PathStep, ...], ...] = ()
    by: str = ""

    EXITS: ClassVar = frozenset({"return", "continue", "break"})

    @property
    def key(self) -> object:
        """What must be the same on all ranks."""
        return (self.kind, *(keys(path) for path in self.inside)) if self.inside else self.kind

    def leaves(self) -> Iterator[PathStep]:
        """The step itself, or those inside it: collectives and exits."""
        if not self.inside:
            yield self
        for path in self.inside:
            for step in path:
                yield from step.leaves()

    def leaves_by(self, *kinds: str) -> bool:
        """Whether there is an exit of one of these kinds in it."""
        return any(step.kind in kinds for step in self.leaves())


Path = tuple[PathStep, ...]


def keys(path: Iterable[PathStep]) -> tuple[object, ...]:
    """What must be the same on all ranks, along a path."""
    return tuple(step.key for step in path)


def collectives(path: Iterable[PathStep]) -> list[PathStep]:
    """All collectives on a path, those in loops and branches too."""
    return [s for step in path for s in step.leaves() if s.kind not in PathStep.EXITS]


def is_collective(call: ast.Call, module: Module) -> str:
    """The name of a collective of all ranks that a call is; empty for other calls, for one in a
    group of its own, and where it can't be told."""
    full = module.full(call.func)
    name = last_part(full)
    if isinstance(call.func, ast.Attribute) and (own := _of_a_framework(call, call.func, module)):
        return own
    if name not in COLLECTIVES or full.removesuffix("." + name) not in PACKAGES:
        return ""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in given or any(isinstance(a, ast.Starred) for a in call.args):
        return ""
    if name == "new_group":  # with it, members alone may make a group
        return "" if "use_local_synchronization" in given else name
    place = COLLECTIVES[name]
    group = given.get("group") or (call.args[place] if len(call.args) > place else None)
    none = group is None or (isinstance(group, ast.Constant) and group.value is None)
    return name if none or (group is not None and module.full(group) in WHOLE) else ""


def _of_a_framework(call: ast.Call, func: ast.Attribute, module: Module) -> str:
    """The name of what Accelerate or Lightning does with all ranks; empty for other methods."""
    name, owner = func.attr, func.value
    if name == "wait_for_everyone":  # Accelerate's barrier
        return name
    if name in GATHERS:
        of_it = getattr(owner, "id", getattr(owner, "attr", "")) == "accelerator"
        return name if of_it else ""
    of_self = isinstance(owner, ast.Name) and owner.id == "self"
    if not of_self or not (name == "all_gather" or name in LOGS):
        return ""
    if not any(full.partition(".")[0] in LIGHTNING for full in module.names.values()):
        return ""
    if name == "all_gather":
        return name
    given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    synced = given.get("sync_dist") is True and given.get("rank_zero_only") is not True
    return f"{name}(sync_dist=True)" if synced else ""


@dataclass(slots=True)
class Walk:
    """The way of one rank through the functions of a module. `spared` are tests (by id) that are
    passed over: they have been reported."""

    module: Module
    rank: int
    spared: frozenset[int]
    functions: Mapping[str, NameScope]
    known: dict[str, list[PathStep]] = field(default_factory=dict)
    within: list[str] = field(default_factory=list)

    def path(self, scope: NameScope) -> Path:
        """What this rank does in a function, or in the module's own statements."""
        body: list[ast.stmt] = getattr(scope.node, "body", [])
        steps, _ = self._block(body, scope, ())
        return tuple(steps[:LENGTH_MAX])

    def _block(
        self, body: Sequence[ast.stmt], scope: NameScope, guards: tuple[Guard, ...]
    ) -> tuple[list[PathStep], bool]:
        """The steps of some statements, and whether the rank surely leaves in them."""
        steps: list[PathStep] = []
        for statement in body:
            more, left = self._statement(statement, scope, guards)
            steps += more
            if left:
                return steps, True
        return steps, False

    def _statement(
        self, node: ast.stmt, scope: NameScope, guards: tuple[Guard, ...]
    ) -> tuple[list[PathStep], bool]:
        match node:
            case ast.If():
                return self._if(node, scope, guards)
            case ast.For() | ast.AsyncFor() | ast.While():
                head = node.test if isinstance(node, ast.While) else node.iter
                inside, _ = self._block(node.body, scope, guards)
                after, left = self._block(node.orelse, scope, guards)
                steps = self._expression(head, scope, guards)
                loop = PathStep("loop", node, guards, (tuple(inside),))
                return steps + _worth_it(loop) + after, left
            case ast.With() | ast.AsyncWith():
                steps = [s for i in node.items for s in self._expression(i, scope, guards)]
                inside, left = self._block(node.body, scope, guards)
                return steps + inside, left
            case _ if isinstance(node, TRIES):
                steps, left = self._block([*node.body, *node.orelse], scope, guards)
                for handler in node.handlers:
                    other, _ = self._block(handler.body, scope, guards)
                    steps += _either(handler, guards, other, [])
                last_of_all, ended = self._block(node.finalbody, scope, guards)
                return steps + last_of_all, left or ended
            case ast.Match():
                steps = self._expression(node.subject, scope, guards)
                for case in node.cases:
                    other, _ = self._block(case.body, scope, guards)
                    steps += _either(node, guards, other, [])
                return steps, False
            case ast.Return() | ast.Continue() | ast.Break():
                steps = self._expression(node, scope, guards)
                return [*steps, PathStep(type(node).__name__.lower(), node, guards)], True
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return [], False
            case ast.Expr(value=ast.Call() as call) if ends_well(call, self.module):
                return [PathStep("return", node, guards)], True
            case _:
                return self._expression(node, scope, guards), False

    def _if(
        self, node: ast.If, scope: NameScope, guards: tuple[Guard, ...]
    ) -> tuple[list[PathStep], bool]:
        steps = self._expression(node.test, scope, guards)
        if id(node) in self.spared:
            return steps, False
        values = by_rank(node.test, scope, self.module)
        parted = differs(values)
        goes = truth(values[self.rank])
        if goes is not None and (parted or len({truth(v) for v in values}) == 1):
            chosen = node.body if goes else node.orelse
            inner = (*guards, Guard(node, goes)) if parted else guards
            more, left = self._block(chosen, scope, inner)
            return steps + more, left
        inner = (*guards, Guard(node, True)) if parted else guards
        then, left_then = self._block(node.body, scope, inner)
        inner = (*guards, Guard(node, False)) if parted else guards
        other, left_other = self._block(node.orelse, scope, inner)
        if parted:  # who leaves on a condition of its own may be right: only collectives count
            then, other = _staying(then), _staying(other)
        return steps + _either(node, guards, then, other), left_then and left_other

    def _expression(
        self, node: ast.AST, scope: NameScope, guards: tuple[Guard, ...]
    ) -> list[PathStep]:
        """The collectives in an expression, inner ones first."""
        if isinstance(node, FUNCTIONS):
            return []
        if isinstance(node, ast.IfExp) and id(node) not in self.spared:
            values = by_rank(node.test, scope, self.module)
            goes = truth(values[self.rank])
            if differs(values) and goes is not None:
                chosen = node.body if goes else node.orelse
                return self._expression(chosen, scope, (*guards, Guard(node, goes)))
        steps = [
            step
            for child in ast.iter_child_nodes(node)
            for step in self._expression(child, scope, guards)
        ]
        if isinstance(node, ast.Call):
            name = is_collective(node, self.module)
            if name:
                steps.append(PathStep(name, node, guards))
            elif isinstance(node.func, ast.Name) and node.func.id in self.functions:
                steps += self._called(node, node.func.id, guards)
        return steps

    def _called(self, node: ast.Call, name: str, guards: tuple[Guard, ...]) -> list[PathStep]:
        """What a function surely does: up to where it may leave, without what depends."""
        if name not in self.known:
            if name in self.within or len(self.within) >= NESTED_MAX:
                return []
            self.within.append(name)
            self.known[name] = surely(self.path(self.functions[name]))
            self.within.pop()
        return [
            PathStep(step.kind, node, guards, step.inside, step.by or name)
            for step in self.known[name]
        ]


def surely(path: Path) -> list[PathStep]:
    """What is done of a path whatever happens: up to where it may leave, without what depends."""
    found: list[PathStep] = []
    for step in path:
        if step.leaves_by("return"):
            break
        if step.kind != "either" and collectives((step,)) and not step.leaves_by(*step.EXITS):
            found.append(step)
    return found


def called_by_name(module: Module) -> dict[str, NameScope]:
    """The functions of a module that a plain name stands for, wherever it is used."""
    top = module.scopes[0]
    return {
        scope.name: scope
        for scope in module.scopes
        if isinstance(scope.node, ast.FunctionDef)
        and scope.parent is top
        and len(top.bound.get(scope.name, [])) == 1
        and all(last_part(module.full(_called_as(d))) in PLAIN for d in scope.node.decorator_list)
        and not any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in scope.nodes)
    }


def _called_as(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def ends_well(call: ast.Call, module: Module) -> bool:
    """`sys.exit()`: with an error the launcher would end the others, too."""
    if module.full(call.func) not in ("sys.exit", "exit", "quit", "os._exit"):
        return False
    code = call.args[0] if call.args else ast.Constant(0)
    return isinstance(code, ast.Constant) and code.value in (0, None)


def _either(
    node: ast.AST, guards: tuple[Guard, ...], then: list[PathStep], other: list[PathStep]
) -> list[PathStep]:
    """Two ways that the text doesn't choose between; one when they are the same."""
    if then and keys(then) == keys(other):
        return then
    return _worth_it(PathStep("either", node, guards, (tuple(then), tuple(other))))


def _staying(steps: Sequence[PathStep]) -> list[PathStep]:
    return [step for step in steps if step.kind not in PathStep.EXITS]


def _worth_it(step: PathStep) -> list[PathStep]:
    """Outside of tests all steps stay, so that the paths of the ranks can be laid side by side;
    inside one, those with a collective or a way out of the function."""
    needed = not step.guards or collectives((step,)) or step.leaves_by("return")
    return [step] if needed else []


def reaching_a_collective(module: Module) -> dict[str, NameScope]:
    """The functions that can be called by a plain name and get to a collective, themselves or by
    way of such functions."""
    functions = called_by_name(module)
    calls = {
        name: [n for n in scope.nodes if isinstance(n, ast.Call)]
        for name, scope in functions.items()
    }
    found = {n for n, own in calls.items() if any(is_collective(c, module) for c in own)}
    for _ in range(NESTED_MAX):
        found |= {
            name
            for name, own in calls.items()
            if any(isinstance(c.func, ast.Name) and c.func.id in found for c in own)
        }
    return {name: scope for name, scope in functions.items() if name in found}


def all_paths(
    module: Module, scope: NameScope, spared: frozenset[int], functions: Mapping[str, NameScope]
) -> list[Path]:
    """The path of each rank through one function."""
    return [Walk(module, rank, spared, functions).path(scope) for rank in range(RANKS)]
