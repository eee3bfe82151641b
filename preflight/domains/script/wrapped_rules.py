"""The wrapped model on some ranks only: DDP broadcasts buffers in a forward, FSDP collects
parameters, an engine of DeepSpeed saves with all ranks.

What is called under a test of the rank is followed through functions and methods to the model, and
a model back through parameters and attributes to what has wrapped it. Ranks part at a test around a
call, at one that lets the others return before it, and at a decorator.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from preflight.domains.script.agreement_rules import FSDP, WRAPPERS
from preflight.domains.script.callees import (
    callee,
    functions_of,
    given,
    given_by_callers,
    is_parameter,
    methods_beside,
)
from preflight.domains.script.control_flow import is_collective
from preflight.domains.script.placement import Placement, places
from preflight.domains.script.rank_values import by_rank, differs
from preflight.domains.script.rules import FRAMEWORKS, Mentions, constant, keyword
from preflight.domains.script.source import (
    FUNCTIONS,
    Hit,
    Module,
    NameScope,
    Program,
    last_name,
    last_part,
    name_set,
)
from preflight.domains.script.stop_rules import training_functions
from preflight.frozen import dataclass

ENGINE = "deepspeed.initialize"
PREPARED = "accelerate.Accelerator.prepare"
OWN_WRAPPERS = name_set("accelerate deepspeed")
"""Frameworks whose wrapped models are known."""
WHOLE = name_set("state_dict generate")
"""What FSDP does with all ranks, beside a forward."""
SAVES = "save_checkpoint"
UNWRAPS = ("unwrap", "module", "de_parallel", "without_ddp", "raw", "base_model")
"""In the name of a function that gives the model in a wrapper."""
BUFFERS = (
    *("batchnorm", "syncbatchnorm", "resnet", "mobilenet", "efficientnet"),
    *("densenet", "inception", "regnet", "shufflenet", "mnasnet", "_bn"),
)
"""In a name of which a model is made that has buffers, which DDP broadcasts in each forward."""
LANGUAGE_MODELS = ("bert", "gpt2", "llama", "qwen2", "mistral")
"""In the name of a model of transformers that has buffers (positions, masks or frequencies)."""
RANK_ZERO = name_set(
    "rank_zero_only on_main_process on_local_main_process main_process_only master_only "
    "rank0_only rank_zero master_process_only only_on_master"
)
DEPTH_MAX = 4
EACH_ITEM = "[*]"
SHORT = {ENGINE: "DeepSpeed", PREPARED: "DDP"}


@dataclass(frozen=True, slots=True)
class Use:
    """What is done with a model: `target` names it in the function that does it (`model`,
    `self.model`), `what` is empty for a forward, else the method that is called."""

    target: str
    how: str
    what: str = ""
    at: tuple[NameScope, Module] | None = None
    """The method of another object, where `target` is an attribute of that one."""


def wrapped_under_rank(program: Program, seen: Mentions) -> Iterator[Hit]:
    """A call of the wrapped model that some ranks alone get to."""
    if seen.imports & (FRAMEWORKS - OWN_WRAPPERS):
        return
    search = _Search(program, seen)
    training = training_functions(program) | {"backward"}
    for module in program.modules:
        functions = functions_of(program, module)
        for scope in module.scopes:
            if isinstance(scope.node, (ast.Lambda, ast.ClassDef)):
                continue
            for place, call, shown in _parted_calls(scope, module):
                for use in search.uses(call, scope, module, functions):
                    wrapper = search.wrapper(use.target, *(use.at or (scope, module)))
                    if not wrapper or not search.needs_all(use, wrapper):
                        continue
                    synced = wrapper not in FSDP and not use.what
                    if not (synced and _trains_next(place, scope, module, training)):
                        short = "FSDP" if wrapper in FSDP else SHORT.get(wrapper, "DDP")
                        other = f"{use.how} of {short} {shown}"
                        yield from module.hit("wrapped-under-rank", call, scope, other)
                        break


# --- where ranks part ---


def _parted_calls(scope: NameScope, module: Module) -> Iterator[tuple[Placement, ast.Call, str]]:
    """The calls of a function that some ranks alone get to, and what keeps the others out."""
    left = _left_early(scope, module)
    decorator = decorated(scope, module)
    for place in places(scope):
        call = place.node
        if not isinstance(call, ast.Call) or place.handler:
            continue
        test = _parting(place, scope, module)
        if test is not None:
            yield place, call, f"under 'if {ast.unparse(test.test)[:40]}'"
        elif left is not None and call.lineno > left.lineno:
            yield place, call, f"after 'if {ast.unparse(left.test)[:40]}: return'"
        elif decorator:
            yield place, call, f"under @{decorator}"


def _parting(place: Placement, scope: NameScope, module: Module) -> ast.If | None:
    """The innermost test around a place that keeps some ranks out of it, and gives them nothing
    else to do: what they call instead may be the same."""
    for test, _ in reversed(place.branches):
        if differs(by_rank(test.test, scope, module)) and not test.orelse:
            return test
    return None


def _trains_next(
    place: Placement, scope: NameScope, module: Module, training: frozenset[str]
) -> bool:
    """Whether all ranks train after this in the same pass of a loop, with no collective before
    that: DDP broadcasts buffers in the first forward without gradients, and not in the next one
    with them, so that this broadcast meets the one in the forward of the others."""
    if not place.loops:
        return False
    line = getattr(place.node, "lineno", 0)
    later = [
        call
        for p in places(scope)
        if place.loops[-1] in p.loops
        and isinstance(call := p.node, ast.Call)
        and call.lineno > line
        and _parting(p, scope, module) is None
    ]
    trains = [call.lineno for call in later if last_name(call.func) in training]
    meets = [call.lineno for call in later if is_collective(call, module)]
    return bool(trains) and min(trains) <= min(meets, default=1 << 30)


def _left_early(scope: NameScope, module: Module) -> ast.If | None:
    """`if rank != 0: return`, after which a function goes on without the other ranks."""
    for statement in getattr(scope.node, "body", []):
        match statement:
            case ast.If(body=[ast.Return(value=None | ast.Constant())], orelse=[]):
                if differs(by_rank(statement.test, scope, module)):
                    return statement
    return None


def decorated(scope: NameScope, module: Module) -> str:
    """The decorator that calls a function on some ranks only: a library's, or one of this file."""
    for decorator in getattr(scope.node, "decorator_list", []):
        name = last_part(ast.unparse(decorator))
        own = [s for s in module.scopes if last_part(s.name) == name and s.parent]
        if name in RANK_ZERO and not own:
            return name
        if any(_calls_on_some(one, module) for one in own if isinstance(one.node, FUNCTIONS)):
            return name
    return ""


def _calls_on_some(decorator: NameScope, module: Module) -> bool:
    """Whether a decorator's wrapper calls the function that it is given on some ranks only."""
    args = getattr(decorator.node, "args", None)
    if not isinstance(args, ast.arguments) or not args.args:
        return False
    wanted = args.args[0].arg
    calls = [
        (call.lineno, _is_parted(call, inner, module))
        for inner in module.scopes
        if inner.parent is decorator and isinstance(inner.node, FUNCTIONS)
        for call in inner.nodes
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == wanted
    ]
    return bool(calls) and all(parted for _, parted in calls)


def _is_parted(call: ast.Call, scope: NameScope, module: Module) -> bool:
    return any(call is found for found, _ in _parted_calls_plain(scope, module))


def _parted_calls_plain(scope: NameScope, module: Module) -> Iterator[tuple[ast.Call, ast.If]]:
    """As _parted_calls, without decorators, which would ask for themselves."""
    left = _left_early(scope, module)
    for place in places(scope):
        if isinstance(place.node, ast.Call):
            test = _parting(place, scope, module)
            if test is None and left is not None and place.node.lineno > left.lineno:
                test = left
            if test is not None:
                yield place.node, test


# --- what is called, and what it is wrapped in ---


class _Search:
    """Follows models through the functions and the attributes of a program."""

    def __init__(self, program: Program, seen: Mentions) -> None:
        self.program = program
        self.buffers = _has_buffers(program, seen)
        self.local = bool(seen.names & {"LOCAL_STATE_DICT", "SHARDED_STATE_DICT"})
        self.shared_buffers = "broadcast_buffers" not in seen.names
        self.asked: set[tuple[int, str]] = set()

    def needs_all(self, use: Use, wrapper: str) -> bool:
        """Whether this use of a model talks to the other ranks."""
        if wrapper == ENGINE:
            return use.what == SAVES
        if wrapper in FSDP:
            return use.what in WHOLE - ({"state_dict"} if self.local else set()) or not use.what
        if wrapper == PREPARED and not self.shared_buffers:
            return False
        return self.buffers and not use.what

    def uses(
        self,
        call: ast.Call,
        scope: NameScope,
        module: Module,
        functions: Mapping[str, NameScope],
        depth: int = 0,
    ) -> Iterator[Use]:
        """What a call does with models, itself or by way of the function that it calls."""
        shown = ast.unparse(call.func)[:40]
        match call.func:
            case ast.Name(id=name):
                yield Use(name, f"{name}() is a forward")
            case ast.Attribute(value=owner, attr=what) if what in WHOLE or what == SAVES:
                if target := _target(owner):
                    yield Use(target, f"{shown}()", what)
            case ast.Attribute():
                if target := _target(call.func):
                    yield Use(target, f"{target}() is a forward")
            case ast.Subscript():
                if target := _target(call.func):
                    yield Use(target, f"{shown}() is a forward")
        function = callee(call, scope, module, functions)
        if function is None or depth >= DEPTH_MAX:
            return
        home = next(m for m in self.program.modules if function in m.scopes)
        values = given(call, function)
        siblings = methods_beside(scope, module)
        beside = functions_of(self.program, home) if home is not module else functions
        for inner in (n for n in function.nodes if isinstance(n, ast.Call)):
            for use in self.uses(inner, function, home, beside, depth + 1):
                how = f"{shown}() calls {use.target}{_dotted(use.what)}"
                if use.at is not None:
                    yield Use(use.target, how, use.what, use.at)
                elif (use.target.startswith("self.") and function not in siblings) or _is_its_own(
                    use.target, function
                ):
                    yield Use(use.target, how, use.what, (function, home))
                elif target := self._in_caller(use.target, function, values, home is module):
                    yield Use(target, how, use.what)

    def _in_caller(
        self, target: str, function: NameScope, values: Mapping[str, ast.expr], here: bool
    ) -> str:
        """What a callee's name of a model stands for where it is called."""
        base, item = _split(target)
        if base in function.bound:
            known = is_parameter(base, function) and base in values
            holder = _target(values[base]) if known else ""
            return holder + item if holder else ""
        return target if here else ""

    def wrapper(self, target: str, scope: NameScope, module: Module, depth: int = 0) -> str:
        """What a model is wrapped in, by the name that a function has for it; empty where that is
        not known, and where it is also bound to what is in the wrapper."""
        if depth > DEPTH_MAX or (id(scope), target) in self.asked:
            return ""
        self.asked.add((id(scope), target))
        try:
            if target.startswith("self."):
                return self._of_the_class(target, scope, module, depth)
            return self._of_a_name(target, scope, module, depth)
        finally:
            self.asked.discard((id(scope), target))

    def _of_the_class(self, target: str, scope: NameScope, module: Module, depth: int) -> str:
        found = ""
        for method in methods_beside(scope, module):
            for node in method.nodes:
                if isinstance(node, ast.Assign):
                    for value in _values_for(target, node, method):
                        if _is_unwrapped(value):
                            return ""
                        found = self._of_a_value(value, target, method, module, depth) or found
        return found

    def _of_a_name(self, name: str, scope: NameScope, module: Module, depth: int) -> str:
        base, _ = _split(name)
        binder: NameScope | None = scope
        while binder is not None and base not in binder.bound:
            binder = binder.parent
        if binder is None:
            return ""
        if is_parameter(base, binder):
            return self._of_a_parameter(name, binder, depth)
        found = ""
        for node in binder.nodes:
            if isinstance(node, ast.Assign):
                for value in _values_for(name, node, binder):
                    if _is_unwrapped(value):
                        return ""
                    found = self._of_a_value(value, name, binder, module, depth) or found
        return found

    def _of_a_parameter(self, name: str, function: NameScope, depth: int) -> str:
        base, item = _split(name)
        for module, scope, value in given_by_callers(self.program, function, base):
            if isinstance(value, ast.Call):
                found = "" if item else self._of_a_value(value, name, scope, module, depth)
            else:
                holder = _target(value)
                found = self.wrapper(holder + item, scope, module, depth + 1) if holder else ""
            if found:
                return found
        return ""

    def _of_a_value(
        self, value: ast.expr, target: str, scope: NameScope, module: Module, depth: int
    ) -> str:
        match value:
            case ast.Call():
                full = module.full(value.func)
                if full in WRAPPERS:
                    kept = constant(keyword(value, "broadcast_buffers"), scope) is not False
                    return full if kept or full in FSDP else ""
                if full == ENGINE:
                    return ENGINE
                is_accelerator = _target(value.func).endswith("accelerator.prepare")
                return PREPARED if is_accelerator else ""
            case ast.Name() | ast.Attribute() | ast.Subscript() if (
                other := _target(value)
            ) and other != target:
                return self.wrapper(other, scope, module, depth + 1)
        return ""


def _is_its_own(target: str, function: NameScope) -> bool:
    """Whether a function binds a name itself, `net = nets["g"]`, and is not given it."""
    base, _ = _split(target)
    return base in function.bound and not is_parameter(base, function)


def _dotted(what: str) -> str:
    return f".{what}()" if what else ", a forward"


def _target(node: ast.expr) -> str:
    """`model`, `self.model`, and `nets['g']` of a dict, where EACH_ITEM stands for a key that is a
    variable; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=attr):
            return f"{owner}.{attr}" if owner == "self" or attr == "prepare" else ""
        case ast.Attribute(value=ast.Attribute(attr=owner), attr="prepare"):
            return f"{owner}.prepare"
        case ast.Subscript(value=ast.Name() | ast.Attribute() as holder, slice=key):
            match key:
                case ast.Constant(value=str(text)):
                    item = f"[{text!r}]"
                case ast.Name():
                    item = EACH_ITEM
                case _:
                    return ""
            return base + item if (base := _target(holder)) else ""
    return ""


def _split(target: str) -> tuple[str, str]:
    """A dict's name and the item in it, which is empty for what is not in a dict."""
    base, bracket, rest = target.partition("[")
    return base, bracket + rest


def _values_for(target: str, node: ast.Assign, scope: NameScope) -> Iterator[ast.expr]:
    """What a statement binds a target to; of a dict the item, also where each of them is wrapped in
    a loop or a comprehension that leaves none out."""
    base, item = _split(target)
    for name, value in _bound_by(node):
        if name == target:
            if item != EACH_ITEM or not _leaves_some(node, scope):
                yield value
        elif item and name == base:
            match value:
                case ast.Dict(keys=keys, values=values):
                    for key, one in zip(keys, values, strict=True):
                        if isinstance(key, ast.Constant) and f"[{key.value!r}]" == item:
                            yield one
                case ast.DictComp(value=one, generators=[ast.comprehension(ifs=[])]):
                    yield one
        elif item and name == base + EACH_ITEM and not _leaves_some(node, scope):
            yield value


def _leaves_some(node: ast.Assign, scope: NameScope) -> bool:
    """Whether a test that asks for the key or the dict stands around `nets[key] = DDP(...)`."""
    used = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return any(
        used & {n.id for n in ast.walk(test.test) if isinstance(n, ast.Name)}
        for test in scope.nodes
        if isinstance(test, ast.If) and any(inner is node for inner in ast.walk(test))
    )


def _bound_by(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """What a statement binds to what: of an engine only the first name, of what an accelerator has
    prepared each, of other tuples those that are laid out in the text."""
    for target in node.targets:
        match target, node.value:
            case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
                yield from zip(map(_target, names), values, strict=True)
            case ast.Tuple(elts=names), ast.Call(func=func):
                first = last_part(ast.unparse(func)) == "initialize"
                for name in names[:1] if first else names:
                    yield _target(name), node.value
            case _:
                yield _target(target), node.value


def _is_unwrapped(value: ast.expr) -> bool:
    """`model.module`, also where it is chosen or given by a function."""
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and node.attr == "module":
            return True
        if isinstance(node, ast.Call):
            name = last_part(ast.unparse(node.func)).lower()
            if any(word in name for word in UNWRAPS):
                return True
    return False


def _has_buffers(program: Program, seen: Mentions) -> bool:
    """Whether a model that these files make or name has buffers for certain."""
    lower = {name.lower() for name in seen.names | seen.texts}
    if any(word in name for name in lower for word in BUFFERS):
        return True
    for module in program.modules:
        named = [last_part(f) for f in module.names.values() if f.startswith("transformers.")]
        named += seen.texts if any(name.startswith("AutoModel") for name in named) else []
        models = (n.lower() for n in named if not n.endswith(("Tokenizer", "TokenizerFast")))
        if any(word in name for name in models for word in LANGUAGE_MODELS):
            return True
        for scope in module.scopes:
            for place in places(scope):
                match place.node:
                    case ast.Call(func=ast.Attribute(attr="register_buffer")) if not place.branches:
                        return True
    return False
