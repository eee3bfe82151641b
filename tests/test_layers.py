"""Which way the imports run, what stays pure, and how long a file may be: read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Import:
    module: str
    at_top: bool  # run when the importing module is
    for_types: bool  # under `if TYPE_CHECKING:`, so never run at all


def imports(tree: ast.Module) -> Iterator[Import]:
    """Every import of a module, inside functions too."""

    def walk(node: ast.AST, at_top: bool, for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(a.name, at_top, for_types) for a in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, "relative imports hide which way they point"
                base = child.module or ""
                for alias in child.names:
                    # `from preflight import host` may name a module or something in it
                    whole = f"{base}.{alias.name}"
                    yield Import(whole if whole in modules() else base, at_top, for_types)
            else:
                inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                typed = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from walk(child, at_top and not inside, for_types or typed)

    yield from walk(tree, True, False)


@cache
def modules() -> Mapping[str, ast.Module]:
    """Name -> source of all that is ours. preflight/checks is a link to checks/."""
    found = {}
    for folder, package in (
        ("preflight", "preflight"),
        ("preflight/render", "preflight.render"),
        ("preflight/hooks", "preflight.hooks"),
        ("preflight/knowledge", "preflight.knowledge"),
        ("preflight/rehearsal", "preflight.rehearsal"),
        ("checks", "preflight.checks"),
    ):
        for path in (ROOT / folder).glob("*.py"):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


@cache
def graph() -> Mapping[str, tuple[Import, ...]]:
    return {name: tuple(imports(tree)) for name, tree in modules().items()}


def ours(name: str) -> set[str]:
    """Which modules of ours one imports, without the package's name."""
    return {
        i.module.removeprefix("preflight.")
        for i in graph()[f"preflight.{name}"]
        if i.module.startswith("preflight.") and not i.for_types
    }


def reached(name: str) -> set[str]:
    """All that comes along with a module."""
    seen: set[str] = set()
    waiting = ours(name)
    while waiting:
        one = waiting.pop()
        seen.add(one)
        waiting |= ours(one) - seen
    return seen


def users(*wanted: str) -> set[str]:
    """Who imports one of these packages, anywhere."""
    return {
        name.removeprefix("preflight.")
        for name, found in graph().items()
        if any(i.module.split(".")[0] in wanted for i in found)
    }


def names(prefix: str) -> list[str]:
    return [n.removeprefix("preflight.") for n in modules() if n.startswith(f"preflight.{prefix}")]


CHECK_MODULES = names("checks.")


def test_the_model_knows_nothing_of_ours() -> None:
    assert ours("model") == set()


@pytest.mark.parametrize("name", ["compare", "host", "topology", "expect", "check", "fold"])
def test_what_stands_on_the_model_knows_the_model_only(name: str) -> None:
    assert ours(name) <= {"model", "roll", *(["launchers"] if name == "topology" else [])}


def test_the_table_of_launchers_knows_nothing_of_ours() -> None:
    assert ours("launchers") == set()


# Who runs a check, who judges it, who shows it: a check knows none of them, however far away.
ABOVE_CHECKS = {
    "_worker",
    "attend",
    "calls",
    "cli",
    "company",
    "config",
    "door",
    "fold",
    "forkserver",
    "interrupt",
    "isolate",
    "meeting",
    "messages",
    "runner",
    "screen",
    "verdict",
    "wire",
}


def test_what_is_above_the_checks_exists() -> None:
    assert ABOVE_CHECKS - set(names("")) == set()


@pytest.mark.parametrize("name", CHECK_MODULES)
def test_a_check_knows_what_it_looks_at_and_nothing_above(name: str) -> None:
    along = reached(name)
    assert along & ABOVE_CHECKS == set()
    assert {n for n in along if n.startswith("render")} == set()
    assert {n for n in along if n.startswith("checks")} == set(), "a check imports no check"


def test_the_processes_know_nothing_of_checks() -> None:
    for name in ("isolate", "calls", "forkserver", "_worker", "start"):
        assert reached(name) <= {"model", "calls", "forkserver", "_worker", "isolate"}, name


def test_the_meeting_knows_nothing_of_checks() -> None:
    """Nor of processes: whoever turns the loop is told which sockets to watch."""
    words = {"model", "document", "roll", "messages", "wire"}
    for name in ("wire", "messages", "door", "meeting", "attend"):
        assert reached(name) <= words | {"door", "headcount"}, name


def test_nobody_knows_the_command_line() -> None:
    assert {n for n in names("") if "cli" in ours(n)} == {"__main__"}


DRAWN_BY = {"agent", "baseline_cli", "cli", "screen", "hooks.act", "hooks.words"}
SENT_BY = {"deputy", "gathering"}
"""Who sends a JSON report, and who reads it: `render` has both."""


def test_only_the_command_line_knows_how_things_are_drawn() -> None:
    """With agent.py, which publishes, screen.py, which decides where the output goes, and the
    hooks, whose lines go elsewhere."""
    drawing = {n for n in names("") if any(m.startswith("render") for m in ours(n))}
    assert {n for n in drawing if not n.startswith("render")} <= DRAWN_BY | SENT_BY


IMPURE = {
    "asyncio",
    "ctypes",
    "datetime",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "psutil",
    "pynvml",
    "random",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "torch",
}
EFFECTS = {"open", "print", "input", "exec", "eval"}
PURE = ["model", "compare", "document", "expect", "fold", "generic", "units", "verdict"]
PURE += ["launchers", "orders", "parcel", "gathering"]
PURE += ["hooks.words", "hooks.snippet"]
PURE += ["facts", "baseline", "difference"]


@pytest.mark.parametrize("name", PURE + names("render."))
def test_right_of_the_observations_all_is_pure(name: str) -> None:
    module = f"preflight.{name}"
    assert {i.module.split(".")[0] for i in graph()[module]} & IMPURE == set()
    called = {
        node.func.id
        for node in ast.walk(modules()[module])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & EFFECTS == set()


def is_text_of_path(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """os.path.dirname and the like only cut strings."""
    cuts = ("basename", "dirname", "join", "normpath", "splitext")
    return (
        isinstance(node, ast.Attribute)
        and node.attr in cuts
        and ast.unparse(node.value) == "os.path"
    )


@pytest.mark.parametrize("name", CHECK_MODULES)
def test_a_judge_does_no_io(name: str) -> None:
    """Neither judge() nor measured(), nor what they call in their module, uses a module that looks
    at the machine or at the clock, or imports anything for itself."""
    tree = modules()[f"preflight.{name}"]
    impure = {
        (alias.asname or alias.name).split(".")[0]
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if getattr(node, "module", alias.name).split(".")[0] in IMPURE
    }
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    seen: set[str] = set()
    waiting = {"judge", "measured"}
    while waiting:
        one = waiting.pop()
        seen.add(one)
        text = {n.value for n in ast.walk(functions[one]) if is_text_of_path(n)}
        used = {
            n.id
            for n in ast.walk(functions[one])
            if isinstance(n, ast.Name) and not any(n in ast.walk(path) for path in text)
        }
        assert used & (impure | EFFECTS | {"Host", "Context"}) == set(), one
        late = [n for n in ast.walk(functions[one]) if isinstance(n, (ast.Import, ast.ImportFrom))]
        assert not late, one
        waiting |= (used & set(functions)) - seen


def test_who_starts_and_ends_processes() -> None:
    in_workers = {"hooks._controller", "_fanout", "rehearsal.pyspy"}
    assert users("subprocess") == {"forkserver", "rehearsal.command"} | in_workers
    assert not users("multiprocessing")
    used: dict[str, set[str]] = {}
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os":
                used.setdefault(node.attr, set()).add(name.removeprefix("preflight."))
    # touch: in a worker, a child for each place that may be on a dead file system
    assert used["fork"] == {"forkserver", "_worker", "knowledge.touch"}
    # interrupt: itself, of the second signal; rehearsal.folder: in a worker, what was rehearsed
    ends = {"isolate", "_worker", "knowledge.touch", "interrupt", "rehearsal.folder"}
    assert used["kill"] | used["killpg"] == ends
    assert used["execvp"] == {"cli"}
    others = {
        n for n in used if re.match(r"exec(?!vp$)|spawn|posix_spawn|forkpty|system$|popen$", n)
    }
    assert others == set()


def test_who_draws() -> None:
    assert users("rich") <= {"render.human", "cli"}
    assert users("typer") == {"baseline_cli", "cli", "exits", "flags", "rehearse_cli", "slurm"}


@pytest.mark.parametrize("package", ["torch", "pynvml", "psutil", "numpy"])
def test_what_may_hang_is_imported_in_a_worker_only(package: str) -> None:
    at_top = {
        name
        for name, found in graph().items()
        if any(i.at_top and not i.for_types and i.module.split(".")[0] == package for i in found)
    }
    assert at_top == set()


# A check is one file, with its documentation and its advice: in these that is half of the lines.
ONE_FILE = "one check is one file; its finding codes are many, and each has its advice in it"
TABLE = "mostly a table of cases"
BOUNDARY = "everything that can be given to one boundary of the program, in sections"

LONG = {
    "checks/gpu_health.py": ONE_FILE,
    "checks/gpu_links.py": ONE_FILE,
    "checks/gpu_visible.py": ONE_FILE,
    "checks/host_software.py": ONE_FILE,
    "checks/host_storage.py": ONE_FILE,
    "checks/net_interface.py": ONE_FILE,
    "checks/net_name.py": ONE_FILE,
    "checks/net_speed.py": ONE_FILE,
    "checks/net_rdma.py": ONE_FILE,
    "preflight/check.py": "what a check is, and how checks are found: nearly half is documentation",
    "preflight/company.py": "host or guest, and the ways from one to the other, in one view",
    "preflight/host.py": "the only door to the machine: one method a place, none of them long",
    "preflight/isolate.py": "the only place that ends processes: the life of a call, in one view",
    "preflight/runner.py": "the order of a run, alone and with others, in one view",
    "preflight/model.py": "the words of all other files; nearly no code",
    "tests/checks/test_env_identity.py": TABLE,
    "tests/checks/test_gpu_links.py": TABLE,
    "tests/checks/test_gpu_visible.py": TABLE,
    "tests/checks/test_net_rdma.py": TABLE,
    "tests/checks/test_net_speed.py": TABLE,
    "tests/checks/test_rdzv_reach.py": TABLE,
    "tests/checks/test_rdzv_torchrun.py": TABLE,
    "tests/test_meeting.py": BOUNDARY,
    "tests/test_cli.py": BOUNDARY,
    "tests/test_config.py": BOUNDARY,
    "tests/test_run.py": BOUNDARY,
}
"""Files over 400 lines, each with its reason."""


def test_a_long_file_has_a_reason() -> None:
    long = {}
    for folder in ("preflight", "checks", "tests", "tools", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.relative_to(ROOT)
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > 400 and inside.parts[:2] != ("preflight", "checks"):
                long[str(inside)] = lines
    assert {path: lines for path, lines in long.items() if path not in LONG} == {}
    assert set(LONG) - set(long) == set(), "no longer that long"
