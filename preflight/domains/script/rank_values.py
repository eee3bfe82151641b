"""What an expression of a script is on each rank, as far as its text says so.

The names are those that people give: `rank`, `LOCAL_RANK`, `is_main_process()`. An expression is
worked out for RANKS ranks of one node; where that can't be done its value is None, "not known".
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from preflight.domains.script.source import Module, NameScope, last_part, name_set

RANKS = 4
Value = int | None
"""A truth value is a number, too."""
ByRank = tuple[Value, ...]

UNKNOWN: ByRank = (None,) * RANKS
EACH: ByRank = tuple(range(RANKS))
SIZE: ByRank = (RANKS,) * RANKS
FIRST: ByRank = (True, *(False,) * (RANKS - 1))
ALL: ByRank = (True,) * RANKS

# as written by users, in small letters. Ranks in a group or a mesh (dp_rank, tp_rank) are not among
# them: the number says nothing of who else gets there
RANK_NAMES = name_set(
    "rank local_rank global_rank world_rank ddp_rank ddp_local_rank dist_rank my_rank myrank "
    "process_rank process_index local_process_index get_rank get_local_rank get_global_rank "
    "get_world_rank"
)
SIZE_NAMES = name_set("world_size get_world_size ddp_world_size num_processes")
FIRST_NAMES = name_set(
    "is_main_process is_master_process main_process master_process is_local_main_process is_main "
    "is_master is_rank_zero is_rank_0 is_rank0 is_global_zero is_world_process_zero rank_zero "
    "is_first_process is_primary is_chief"
)
VARIABLES = {
    "RANK": EACH,
    "LOCAL_RANK": EACH,
    "SLURM_PROCID": EACH,
    "SLURM_LOCALID": EACH,
    "OMPI_COMM_WORLD_RANK": EACH,
    "WORLD_SIZE": SIZE,
}
ENVIRONS = frozenset({"os.environ.get", "os.getenv", "os.environ", "environ", "getenv"})
RUNNING = frozenset({"torch.distributed.is_initialized", "torch.distributed.is_available"})

OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# beyond this a number of a script is no rank
MOST = 1 << 31


def differs(values: ByRank) -> bool:
    """Whether a test surely keeps some ranks out and may let others in, or the other way round:
    "true on rank 0, else it depends" is a setting that a user may choose."""
    truths = {None if v is None else bool(v) for v in values}
    return False in truths and len(truths) > 1


def truth(value: Value) -> bool | None:
    """A value as a test takes it; None where it is not known."""
    return None if value is None else bool(value)


def by_rank(node: ast.expr, scope: NameScope, module: Module, depth: int = 0) -> ByRank:
    """The value of an expression on each rank."""
    if depth > 20:
        return UNKNOWN

    def inner(part: ast.expr) -> ByRank:
        return by_rank(part, scope, module, depth + 1)

    match node:
        case ast.Constant(value=value):
            return _constant(value)
        case ast.Name() | ast.Attribute():
            return _name(node, scope, module, depth)
        case ast.Call():
            return _call(node, scope, module, depth)
        case ast.Subscript(value=holder, slice=ast.Constant(value=str(key))):
            named = last_part(module.full(holder)) == "environ"
            return VARIABLES.get(key, UNKNOWN) if named else UNKNOWN
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return tuple(None if v is None else not v for v in inner(part))
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return tuple(None if v is None else -v for v in inner(part))
        case ast.BoolOp(op=op, values=parts):
            sides = [inner(part) for part in parts]
            return tuple(_joined([s[rank] for s in sides], op) for rank in range(RANKS))
        case ast.BinOp(left=left, op=op, right=right):
            return _pairwise(inner(left), op, inner(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if isinstance(op, (ast.In, ast.NotIn)):
                return _member(inner(left), op, right, inner)
            return _pairwise(inner(left), op, inner(right))
        case ast.NamedExpr(value=value):
            return inner(value)
        case _:
            return UNKNOWN


def _constant(value: object) -> ByRank:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 9:
        value = int(value)  # os.environ["RANK"] == "0"
    return (value,) * RANKS if isinstance(value, int) and abs(value) < MOST else UNKNOWN


def _name(node: ast.expr, scope: NameScope, module: Module, depth: int) -> ByRank:
    name = last_part(module.full(node)).lower() if module.full(node) else _attribute(node)
    bound = scope.values(node.id) if isinstance(node, ast.Name) else []
    if bound and all(isinstance(one, ast.Constant) for one in bound):
        return UNKNOWN  # LoRA's rank, or a setting: no rank of a process
    if name in RANK_NAMES:
        return EACH
    if name in SIZE_NAMES:
        return SIZE
    if name in FIRST_NAMES:
        return FIRST
    if len(bound) == 1 and bound[0] is not None:
        return by_rank(bound[0], scope, module, depth + 1)
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return _of_the_instance(attr, scope, module, depth)
    return UNKNOWN


def _of_the_instance(attr: str, scope: NameScope, module: Module, depth: int) -> ByRank:
    """The value of `self.attr`, which the methods of one class bind once."""
    owner = scope.parent
    if owner is None or not isinstance(owner.node, ast.ClassDef):
        return UNKNOWN
    found = [
        (node.value, method)
        for method in module.scopes
        if method.parent is owner
        for node in method.nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and target.attr == attr
        and getattr(target.value, "id", "") == "self"
    ]
    if len(found) != 1:
        return UNKNOWN
    return by_rank(*found[0], module, depth + 1)


def _attribute(node: ast.expr) -> str:
    return node.attr.lower() if isinstance(node, ast.Attribute) else ""


def _call(node: ast.Call, scope: NameScope, module: Module, depth: int) -> ByRank:
    full = module.full(node.func)
    name = last_part(full) or _attribute(node.func)
    if full in ENVIRONS and node.args and isinstance(node.args[0], ast.Constant):
        return VARIABLES.get(str(node.args[0].value), UNKNOWN)
    if full in RUNNING or ("dist" in name and ("init" in name or "avail" in name)):
        return ALL
    if name in ("int", "bool") and len(node.args) == 1:
        return by_rank(node.args[0], scope, module, depth + 1)
    if name in FIRST_NAMES:
        return FIRST
    if node.args or node.keywords:
        return UNKNOWN  # the rank in a group
    return EACH if name in RANK_NAMES else SIZE if name in SIZE_NAMES else UNKNOWN


def _joined(values: list[Value], op: ast.boolop) -> Value:
    """`and` and `or` with what is not known."""
    decides = isinstance(op, ast.Or)
    truths = [truth(v) for v in values]
    if decides in truths:
        return decides
    return None if None in truths else not decides


def _pairwise(left: ByRank, op: ast.AST, right: ByRank) -> ByRank:
    function = OPERATORS.get(type(op))
    if function is None:
        return UNKNOWN
    found: list[Value] = []
    for a, b in zip(left, right, strict=True):
        zero = b == 0 and isinstance(op, (ast.Mod, ast.FloorDiv))
        value = None if a is None or b is None or zero else function(a, b)
        found.append(value if value is not None and abs(value) < MOST else None)
    return tuple(found)


def _member(
    left: ByRank, op: ast.cmpop, right: ast.expr, inner: Callable[[ast.expr], ByRank]
) -> ByRank:
    """`rank in (0, -1)`."""
    if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
        return UNKNOWN
    sides = [inner(part) for part in right.elts]
    found: list[Value] = []
    for rank, value in enumerate(left):
        among = [side[rank] for side in sides]
        known = value is not None and None not in among
        found.append((value in among) is isinstance(op, ast.In) if known else None)
    return tuple(found)
