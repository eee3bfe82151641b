"""Whom a call of a script calls, as far as its files say so, and what a function's parameters are
given by those who call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from preflight.domains.script.control_flow import called_by_name
from preflight.domains.script.source import FUNCTIONS, Module, NameScope, Program, last_part

Site = tuple[Module, NameScope, ast.expr]
"""Where an argument is given, and the argument."""


def functions_of(program: Program, module: Module) -> dict[str, NameScope]:
    """The functions that a plain name of a module stands for: its own, and those that it imports
    from the other files."""
    return _imported_functions(program, module) | called_by_name(module)


def _imported_functions(program: Program, module: Module) -> dict[str, NameScope]:
    """The functions of other files that a name of this one stands for, by `from x import f` or as
    `x.f`, where one file only defines them."""
    found: dict[str, list[NameScope]] = {}
    for other in program.modules:
        if other is not module:
            for name, scope in called_by_name(other).items():
                found.setdefault(name, []).append(scope)
    used = {name for name, full in module.names.items() if last_part(full) == name}
    used |= {
        n.attr
        for _, c in module.calls()
        if isinstance(n := c.func, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id in module.names
    }
    return {name: scopes[0] for name, scopes in found.items() if len(scopes) == 1 and name in used}


def callee(
    call: ast.Call, scope: NameScope, module: Module, functions: Mapping[str, NameScope]
) -> NameScope | None:
    """The function, or the method of the same class, that a call calls."""
    match call.func:
        case ast.Name(id=name) if name in functions:
            return functions[name]
        case ast.Name(id=name):
            return _method_of(name, "__call__", scope, module)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            methods = (s for s in methods_beside(scope, module) if last_part(s.name) == name)
            return next(methods, None)
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in module.names:
            return functions.get(name)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return _method_of(owner, name, scope, module)
    return None


def _method_of(owner: str, name: str, scope: NameScope, module: Module) -> NameScope | None:
    """The method of an object that a name is bound to, where its class is of the same file."""
    made = scope.value(owner)
    if not isinstance(made, ast.Call):
        return None
    of = module.full(made.func)
    found = (s for s in module.scopes if s.name == f"{of}.{name}" and of)
    return next(found, None)


def methods_beside(scope: NameScope, module: Module) -> list[NameScope]:
    """The methods of the class that a function is a method of; none for another function."""
    owner = scope.parent
    if owner is None or not isinstance(owner.node, ast.ClassDef):
        return []
    return [s for s in module.scopes if s.parent is owner and isinstance(s.node, FUNCTIONS)]


def given(call: ast.Call, function: NameScope) -> dict[str, ast.expr]:
    """What each parameter of a function is given by a call, by the parameter's name."""
    node = function.node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return {}
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    if is_method(function):
        names = names[1:]
    found: dict[str, ast.expr] = {}
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        found[name] = value
    return found | {k.arg: k.value for k in call.keywords if k.arg}


def is_method(function: NameScope) -> bool:
    """Whether a function is called with an instance before its arguments."""
    owner = function.parent
    if owner is None or not isinstance(owner.node, ast.ClassDef):
        return False
    node = function.node
    decorators = getattr(node, "decorator_list", [])
    return not any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators)


def is_parameter(name: str, function: NameScope) -> bool:
    """Whether a name is a parameter of a function that is bound to nothing else in it."""
    args = getattr(function.node, "args", None)
    if not isinstance(args, ast.arguments) or function.bound.get(name) != [None]:
        return False
    return any(one.arg == name for one in (*args.posonlyargs, *args.args, *args.kwonlyargs))


def given_by_callers(program: Program, function: NameScope, parameter: str) -> Iterator[Site]:
    """What a parameter is given in all calls by the function's name, or by that of its class for
    what makes an instance."""
    called = last_part(function.name)
    if called == "__init__" and function.parent is not None:
        called = last_part(function.parent.name)
    for module in program.modules:
        for scope, call in module.calls():
            name = str(getattr(call.func, "id", getattr(call.func, "attr", "")))
            if called == "__call__" and _method_of(name, called, scope, module) is function:
                name = called
            if name == called and parameter in (values := given(call, function)):
                yield module, scope, values[parameter]
