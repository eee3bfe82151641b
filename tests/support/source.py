"""The project's own source as data: its modules, their imports, and all that a function reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

IMPURE = """
    asyncio concurrent ctypes fcntl getpass glob logging mmap multiprocessing os pathlib platform
    psutil pty pynvml queue random resource secrets select selectors shutil signal socket ssl
    subprocess sys tempfile threading time torch urllib uuid
"""
"""Modules that look at the machine, the clock or the network."""

TEXT = re.compile(
    r"os\.path\.(basename|dirname|join|normpath|splitext|isabs|commonpath)"
    r"|pathlib\.Pure\w+|signal\.(Signals|SIG\w+)|socket\.AF_\w+|urllib\.parse\.\w+"
    r"|sys\.modules"
)
"""What of them only cuts strings or names numbers."""

BUILTINS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint", "__import__"})

NOW = frozenset({"now", "today", "utcnow", "fromtimestamp", "utcfromtimestamp"})
"""What of datetime asks a clock or the local time zone."""

MACHINE = frozenset({("preflight.host", "Host"), ("preflight.check", "Context")})
"""Who has one can look at the machine. Their names in annotations lead nowhere."""

TYPED = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING"})
"""What is imported under a test of it is never run."""

WORKERS = re.compile(r"preflight\.([\w.]+):(\w+)")
"""What a worker is told to call, where a string says it."""


@dataclass(frozen=True)
class Import:
    """One imported module of ours or of somebody else."""

    module: str
    at_top: bool  # run when the importing module is
    for_types: bool  # under `if TYPE_CHECKING:`, so never run at all


@dataclass(frozen=True)
class Source:
    """All modules by dotted name (`preflight.checks.net_port` for checks/net_port.py)."""

    trees: Mapping[str, ast.Module]

    def planted(self, module: str, text: str) -> Source:
        """The same with another source text of one module; what is known of the others is kept."""
        made = Source({**self.trees, module: ast.parse(text)})
        tree = made.trees[module]
        if "imports" in self.__dict__:
            made.__dict__["imports"] = {**self.imports, module: tuple(made._imports(tree))}
        if "scopes" in self.__dict__:
            scope = Module(module, tree, frozenset(made.trees))
            made.__dict__["scopes"] = {**self.scopes, module: scope}
        return made

    @cached_property
    def imports(self) -> Mapping[str, tuple[Import, ...]]:
        """Every import of every module, inside functions too, and what workers are told by name."""
        return {name: tuple(self._imports(tree)) for name, tree in self.trees.items()}

    def _imports(self, tree: ast.Module) -> Iterator[Import]:
        waiting: list[tuple[ast.AST, bool, bool]] = [(tree, True, False)]
        while waiting:
            node, at_top, for_types = waiting.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Import):
                    yield from (Import(a.name, at_top, for_types) for a in child.names)
                elif isinstance(child, ast.ImportFrom):
                    assert child.level == 0, "relative imports hide which way they point"
                    base = child.module or ""
                    for alias in child.names:
                        # `from preflight import host` may name a module or something in it
                        whole = f"{base}.{alias.name}"
                        yield Import(whole if whole in self.trees else base, at_top, for_types)
                elif isinstance(child, ast.Constant):
                    named = isinstance(child.value, str) and WORKERS.fullmatch(child.value)
                    if named and f"preflight.{named[1]}" in self.trees:
                        yield Import(f"preflight.{named[1]}", False, for_types)
                elif not isinstance(child, (ast.Name, ast.expr_context)):
                    inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                    typed = isinstance(child, ast.If) and _dotted(child.test) in TYPED
                    waiting.append((child, at_top and not inside, for_types or typed))

    @cached_property
    def scopes(self) -> Mapping[str, Module]:
        return {
            name: Module(name, tree, frozenset(self.trees)) for name, tree in self.trees.items()
        }

    def reached(self, *roots: tuple[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
        """(module, definition) -> who leads there first: all functions, classes and constants that
        these can come to, by the names that stand in them. A class counts with all its methods."""
        found: dict[tuple[str, str], tuple[str, str]] = dict.fromkeys(roots, ("", ""))
        waiting = list(roots)
        while waiting:
            module, name = one = waiting.pop()
            for following in self.scopes[module].leads[name]:
                known = following[1] in self.scopes[following[0]].defined
                if known and following not in found and following not in MACHINE:
                    found[following] = one
                    waiting.append(following)
        return found

    def effects(self, module: str, name: str) -> set[str]:
        """What of the machine, the clock or the network one definition touches by itself."""
        return set(self.scopes[module].touches[name])


@dataclass(frozen=True)
class Module:
    """One module: what its names stand for."""

    name: str
    tree: ast.Module
    ours: frozenset[str]
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    bound: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name -> (module, name in it); the name is empty for the module itself."""

    def __post_init__(self) -> None:
        for statement in self.tree.body:
            inner = statement.body if isinstance(statement, (ast.If, ast.Try)) else [statement]
            for one in inner:
                self.bound.update(self._binds(one))
            for name in _names(statement):
                self.defined[name] = statement

    @cached_property
    def _inside(self) -> Mapping[str, tuple[ast.AST, ...]]:
        """All nodes of each definition, itself first: to walk is what takes the time."""
        return {name: tuple(ast.walk(definition)) for name, definition in self.defined.items()}

    @cached_property
    def leads(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        return {name: tuple(dict.fromkeys(self._leads_to(name))) for name in self.defined}

    @cached_property
    def touches(self) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(self._effects(name)) for name in self.defined}

    def _binds(self, node: ast.AST) -> dict[str, tuple[str, str]]:
        """What an import gives names to."""
        found = {}
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or whole] = (whole, "")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = (whole, "") if whole in self.ours else (node.module or "", alias.name)
                found[alias.asname or alias.name] = target
        return found

    def _meant(self, name: str) -> Iterator[tuple[ast.AST, str, bool]]:
        """Each node of a definition that means something of this module or of an imported one, as
        dotted text, and whether it stands in an annotation. Locals mean nothing else."""
        definition, inside = self.defined[name], self._inside[name]
        notes = {id(n) for node in inside for n in _annotation(node)}
        local = _locals(definition, inside) if isinstance(definition, ast.FunctionDef) else set()
        heads: set[int] = set()
        for node in inside:  # the longest first, as ast.walk has them
            if not isinstance(node, ast.Attribute) or id(node) in heads:
                continue
            text = _dotted(node)
            if not text or text.partition(".")[0] in local:
                continue
            heads |= {id(n) for n in ast.walk(node)}
            yield node, text, id(node) in notes
        for node in inside:
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if id(node) not in heads and node.id not in local:
                yield node, node.id, id(node) in notes

    def _leads_to(self, name: str) -> Iterator[tuple[str, str]]:
        """The definitions of ours that stand in one of this module's. Of an imported module an
        attribute, of an imported name itself. Late imports count as well."""
        late: dict[str, tuple[str, str]] = {}
        for node in self._inside[name]:
            late |= self._binds(node)
        for _, text, _ in self._meant(name):
            head, _, rest = text.partition(".")
            module, inside = late.get(head) or self.bound.get(head, ("", ""))
            if head in self.defined and head not in late:
                yield self.name, head
            elif inside and module in self.ours:
                yield module, inside
            elif rest and module in self.ours:
                yield module, rest.partition(".")[0]

    def _effects(self, name: str) -> Iterator[str]:
        """What one definition touches by itself."""
        for node, text, noted in self._meant(name):
            head, _, rest = text.partition(".")
            module, inside = self.bound.get(head, ("", ""))
            whole = ".".join(part for part in (module, inside, rest) if part)
            if _looks(module):
                if not (TEXT.match(whole) or noted):
                    yield whole
            elif (module == "datetime" and whole.rpartition(".")[2] in NOW) or (
                (module, inside) in MACHINE and not noted
            ):
                yield whole
            elif isinstance(node, ast.Name) and head in BUILTINS and head not in self.defined:
                yield head
        for node in self._inside[name]:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                base = getattr(node, "module", None)
                for module in [base] if base else [a.name for a in node.names]:
                    if _looks(module) and not TEXT.match(f"{module}.x"):
                        yield f"import {module}"


@cache
def _looks(module: str) -> bool:
    return module.partition(".")[0] in IMPURE.split()


def _dotted(node: ast.AST) -> str:
    """`a.b.c` of nothing but names; else empty. ast.unparse takes fifty times as long."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(names))) if isinstance(node, ast.Name) else ""


def _annotation(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of the annotation that a node carries."""
    for name in ("annotation", "returns"):
        if (note := getattr(node, name, None)) is not None:
            yield from ast.walk(note)


def _locals(function: ast.FunctionDef, inside: Iterable[ast.AST]) -> set[str]:
    """The names that a function itself binds: its parameters, and what it assigns."""
    found = set()
    for node in inside:
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef) and node is not function:
            found.add(node.name)
    return found


def _names(statement: ast.stmt) -> list[str]:
    """What a statement of a module's body defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        found = (n for t in statement.targets for n in ast.walk(t))
        return [n.id for n in found if isinstance(n, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    if isinstance(statement, (ast.If, ast.Try)):
        return [n for inner in statement.body for n in _names(inner)]
    return []


@cache
def product() -> Source:
    """What is shipped: preflight/ and checks/ (preflight/checks is a link to it)."""
    found = {}
    for path in sorted((ROOT / "preflight").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] != "checks":
            found[".".join(parts).removesuffix(".__init__")] = path
    for path in (ROOT / "checks").glob("*.py"):
        found[f"preflight.checks.{path.stem}".removesuffix(".__init__")] = path
    return Source({n: ast.parse(p.read_text("utf-8"), str(p)) for n, p in found.items()})
