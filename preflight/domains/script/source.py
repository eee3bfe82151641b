"""A user's training script as trees: read, never imported or run, with what it imports from beside
itself.

Everything is bounded: the size of a file, how many of them, and how far away. What is read is
hostile as any input is; a file that can't be read or taken apart is passed over, except the script.
"""

from __future__ import annotations

import ast
import io
import os
import stat
import tokenize
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import field

from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable

SIZE_MAX = 1 << 20
TOTAL_MAX = 4 << 20
"""Bytes of all files together: parsing takes a second or so for each MiB."""
FILES_MAX = 50
DEPTH_MAX = 3
"""How many imports a module may be away from the script."""
TEXT_MAX = 100

IGNORE = "preflight: ignore"
"""In a comment on a line: nothing is said of that line."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Hit:
    """A pattern at a place. `other` says what it has to do with, such as the test around it."""

    rule: str
    file: str
    line: int
    function: str
    text: str
    other: str = ""


@dataclass(slots=True)
class NameScope:
    """The module, a class or a function: its own nodes (not those of scopes inside it) and what
    its names are bound to; None stands for a value that can't be seen (a parameter, a loop)."""

    node: ast.AST
    name: str
    parent: NameScope | None
    nodes: list[ast.AST] = field(default_factory=list)
    bound: dict[str, list[ast.expr | None]] = field(default_factory=dict)

    def values(self, name: str) -> list[ast.expr | None]:
        """What a name may be bound to, in the innermost scope that binds it."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.bound and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope.bound[name]
            scope = scope.parent
        return []

    def value(self, name: str) -> ast.expr | None:
        """The only thing that a name is ever bound to, where it can be seen."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None


@dataclass(slots=True)
class Module:
    """One file. `names` maps what imports bind to the full names: `dist` to `torch.distributed`."""

    file: str
    path: str
    tree: ast.Module
    lines: list[str]
    names: Mapping[str, str]
    ignored: frozenset[int]
    scopes: list[NameScope]

    def full(self, node: ast.AST) -> str:
        """The full dotted name of an expression, after imports; empty when it has none."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))

    def calls(self) -> Iterator[tuple[NameScope, ast.Call]]:
        for scope in self.scopes:
            for node in scope.nodes:
                if isinstance(node, ast.Call):
                    yield scope, node

    def hit(self, rule: str, node: ast.AST, scope: NameScope, other: str = "") -> Iterator[Hit]:
        """The pattern at a node, unless a comment there says that it is meant so."""
        line = getattr(node, "lineno", 1)
        if not self.ignored & {line, getattr(node, "end_lineno", line)}:
            text = self.lines[line - 1].strip() if line <= len(self.lines) else ""
            yield Hit(rule, self.file, line, scope.name, text[:TEXT_MAX], other[:TEXT_MAX])


@dataclass(frozen=True, slots=True)
class Program:
    """The script, which is the first of `modules`, and what it imports from beside itself.
    `broken` holds syntax errors that whoever starts the script will meet for certain."""

    modules: tuple[Module, ...]
    broken: tuple[Hit, ...]


def last_part(dotted: str) -> str:
    """The last part of a dotted name."""
    return dotted.rpartition(".")[2]


def last_name(node: object) -> str:
    """`c` of the expressions `c` and `a.b.c`; empty of others."""
    return str(getattr(node, "id", getattr(node, "attr", "")))


def name_set(text: str) -> frozenset[str]:
    """A set of names, written as one text."""
    return frozenset(text.split())


def read_program(host: Host, script: str, cwd: str) -> Program:
    """The script and its modules; CannotObserve when it can't be read, NotApplicable when it isn't
    Python's."""
    start = os.path.normpath(os.path.join(cwd, script))
    folder = os.path.dirname(start)
    waiting = deque([(start, 0, True)])
    seen = {start}
    modules: list[Module] = []
    broken: list[Hit] = []
    left = TOTAL_MAX
    while waiting and len(seen) - len(waiting) < FILES_MAX:
        path, depth, certain = waiting.popleft()
        shown = _display_path(path, cwd, folder)
        try:
            data = _read_file(host, path, shown)
        except CannotObserve:
            if path == start:
                raise
            continue
        if not _is_python(data):
            if path == start:
                raise NotApplicable(f"{shown} is not a Python script")
            continue
        left -= len(data)
        if left < 0:
            break
        try:
            module = parse_module(data, shown, path)
        except SyntaxError as error:
            broken += [_syntax_error(error, data, shown)] if certain else []
            continue
        except (ValueError, RecursionError, MemoryError) as error:
            if path == start:
                raise CannotObserve(f"{shown}: {str(error)[:TEXT_MAX]}") from None
            continue
        modules.append(module)
        if depth < DEPTH_MAX:
            for found, always in _imported(host, module, folder):
                if found not in seen:
                    seen.add(found)
                    waiting.append((found, depth + 1, certain and always))
    return Program(tuple(modules), tuple(broken))


def parse_module(data: bytes, shown: str, path: str = "") -> Module:
    """A file's text as a module; SyntaxError and what else the parser has against it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that are none: not our affair
        tree = ast.parse(data, shown)
    lines = data.decode(errors="replace").splitlines()
    scopes = _scopes(tree)
    return Module(shown, path, tree, lines, _imported_names(tree), _ignored_lines(data), scopes)


def _read_file(host: Host, path: str, shown: str) -> bytes:
    """A regular file's bytes; a pipe or a device is not even waited for."""
    try:
        file = os.open(host.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise CannotObserve(f"{shown}: not a regular file")
            with open(file, "rb", closefd=False) as opened:
                data = opened.read(SIZE_MAX + 1)
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        raise CannotObserve(f"{shown}: {getattr(error, 'strerror', error)}") from None
    if len(data) > SIZE_MAX:
        raise CannotObserve(f"{shown}: larger than {SIZE_MAX >> 20} MiB")
    return data


def _is_python(data: bytes) -> bool:
    """No binary, and no script of another interpreter."""
    first = data[:200].partition(b"\n")[0]
    return b"\0" not in data and (not first.startswith(b"#!") or b"python" in first)


def _display_path(path: str, cwd: str, folder: str) -> str:
    """As short as is clear: from the working directory, else from the script's folder."""
    for base in (cwd, folder):
        if path.startswith(base.rstrip("/") + "/"):
            return os.path.relpath(path, base)
    return path


def _syntax_error(error: SyntaxError, data: bytes, shown: str) -> Hit:
    line = error.lineno or 1
    lines = data.decode(errors="replace").splitlines()
    text = lines[line - 1].strip() if line <= len(lines) else ""
    return Hit("syntax-error", shown, line, "", text[:TEXT_MAX], str(error.msg)[:TEXT_MAX])


def _ignored_lines(data: bytes) -> frozenset[int]:
    """The lines with a comment that asks for silence; a string that reads the same is none."""
    if IGNORE.encode() not in data:
        return frozenset()
    try:
        return frozenset(
            token.start[0]
            for token in tokenize.tokenize(io.BytesIO(data).readline)
            if token.type == tokenize.COMMENT and IGNORE in token.string
        )
    except (tokenize.TokenError, SyntaxError):
        return frozenset()


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What the imports of a file bind, those inside functions too."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:  # of the same package: a name that is no library's
                found[alias.asname or alias.name] = f".{node.module or ''}.{alias.name}"
    return found


def _scopes(tree: ast.Module) -> list[NameScope]:
    """The module's scope and all inside it, without recursion."""
    found = [NameScope(tree, "", None)]
    waiting: list[tuple[ast.AST, NameScope]] = [(tree, found[0])]
    while waiting:
        node, scope = waiting.pop()
        inner = scope
        if isinstance(node, SCOPES):
            name = getattr(node, "name", "lambda")
            inner = NameScope(node, f"{scope.name}.{name}" if scope.name else name, scope)
            found.append(inner)
            scope.nodes.append(node)
            if not isinstance(node, ast.Lambda):
                scope.bound.setdefault(name, []).append(None)
            if isinstance(node, FUNCTIONS):
                a = node.args
                every = (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg)
                inner.bound |= {one.arg: [None] for one in every if one}
        elif node is not tree:
            scope.nodes.append(node)
            _bind(node, scope)
        waiting += [(child, inner) for child in reversed(list(ast.iter_child_nodes(node)))]
    return found


def _bind(node: ast.AST, scope: NameScope) -> None:
    """What a statement binds. Names are enough: attributes may be changed from anywhere."""
    pairs: list[tuple[ast.AST, ast.expr | None]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        pairs = [(node.target, node.value)] if node.value else []
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.AugAssign, ast.comprehension)):
        pairs = [(node.target, None)]
    elif isinstance(node, ast.withitem) and node.optional_vars:
        pairs = [(node.optional_vars, None)]
    while pairs:
        target, value = pairs.pop()
        if isinstance(target, ast.Name):
            scope.bound.setdefault(target.id, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            values = value.elts if same and isinstance(value, (ast.Tuple, ast.List)) else None
            for number, part in enumerate(target.elts):
                pairs.append((part, values[number] if values else None))
        elif isinstance(target, ast.Starred):
            pairs.append((target.value, None))


def _imported(host: Host, module: Module, folder: str) -> Iterator[tuple[str, bool]]:
    """The files beside the script that a module imports, and whether it does so whatever happens:
    in a statement of its own, outside of any function, test or try."""
    always = {id(node) for node in module.tree.body}
    for node in ast.walk(module.tree):
        wanted: list[str] = []
        base = folder
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = os.path.join(os.path.dirname(module.path), *[".."] * (node.level - 1))
            above = f"{node.module}." if node.module else ""
            wanted = [node.module] if node.module else []
            wanted += [f"{above}{alias.name}" for alias in node.names]
        for path in dict.fromkeys(p for name in wanted for p in _files(host, base, name)):
            yield path, id(node) in always


def _files(host: Host, base: str, dotted: str) -> Iterator[str]:
    """The files that an import of `a.b` reads, as far as they lie here."""
    parts = dotted.split(".")
    for count in range(1, len(parts) + 1):
        stem = os.path.normpath(os.path.join(base, *parts[:count]))
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            if os.path.isfile(host.path(path)):
                yield path
                break
