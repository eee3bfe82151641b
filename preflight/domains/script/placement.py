"""Where a node of a function stands: under which tests, in which loops, in which try."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.domains.script.control_flow import TRIES
from preflight.domains.script.source import SCOPES, NameScope
from preflight.frozen import dataclass

LOOPS = (ast.For, ast.AsyncFor, ast.While)
Branch = tuple[ast.If, bool]
"""A test, and whether it is its body (True) or its else."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with what is around it, the outermost first; `handler`: in an except."""

    node: ast.AST
    branches: tuple[Branch, ...] = ()
    loops: tuple[ast.AST, ...] = ()
    tries: tuple[ast.Try, ...] = ()
    handler: bool = False

    def excludes(self, other: Placement) -> bool:
        """Whether the two are in different branches of one test: never both in one pass."""
        mine = {id(test): body for test, body in self.branches}
        return any(mine.get(id(test), body) is not body for test, body in other.branches)

    def meets(self, other: Placement) -> bool:
        """Whether one pass of the same loop may get to both."""
        return self.loops == other.loops and not self.excludes(other)


def places(scope: NameScope) -> Iterator[Placement]:
    """Every node of a scope, not those of functions and classes inside it."""
    waiting = [Placement(node) for node in _body(scope.node)]
    while waiting:
        here = waiting.pop()
        yield here
        waiting += reversed(list(_inside(here)))


def _body(node: ast.AST) -> Sequence[ast.AST]:
    body = getattr(node, "body", [])
    return body if isinstance(body, list) else [body]


def _inside(here: Placement) -> Iterator[Placement]:
    node = here.node
    if isinstance(node, SCOPES):
        return

    def at(inner: ast.AST, handler: bool = False) -> Placement:
        return Placement(inner, here.branches, here.loops, here.tries, here.handler or handler)

    if isinstance(node, ast.If):
        yield at(node.test)
        for part, body in ((node.body, True), (node.orelse, False)):
            for inner in part:
                branches = (*here.branches, (node, body))
                yield Placement(inner, branches, here.loops, here.tries, here.handler)
    elif isinstance(node, LOOPS):
        yield at(node.test if isinstance(node, ast.While) else node.iter)
        for inner in node.body:
            yield Placement(inner, here.branches, (*here.loops, node), here.tries, here.handler)
        yield from map(at, node.orelse)
    elif isinstance(node, TRIES):
        for inner in node.body:
            yield Placement(inner, here.branches, here.loops, (*here.tries, node), here.handler)
        for handler in node.handlers:
            yield from (at(inner, True) for inner in handler.body)
        yield from map(at, (*node.orelse, *node.finalbody))
    else:
        yield from map(at, ast.iter_child_nodes(node))
