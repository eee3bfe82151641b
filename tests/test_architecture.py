"""Who may import whom, and that whatever judges touches nothing: read from the source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set

import pytest
from support.source import ROOT, Source, product

LEAVES = frozenset(
    {
        "model",
        "check",
        "registry",
        "host",
        "expect",
        "frozen",
        "headline",
        "inference",
        "serde",
        "roster",
        "humanize",
        "redact",
        "sanitize",
        "nodeset",
        "packed",
        "console",
        "cpu_wait",
        "strenum",
    }
)
"""The vocabulary, and all that a check is written with: modules at the top of preflight/, which
everybody may import and which import leaves only."""

MAY_IMPORT: Mapping[str, Set[str]] = {
    # besides the leaves
    "process": set(),
    "identity": set(),
    "judge": set(),
    "domains.params": set(),
    "domains.kernel_log": set(),
    "domains.pci": set(),
    "domains.torch": set(),
    "domains.job": {"domains.collectives", "domains.settings"},
    "domains.script": set(),
    "domains.settings": {"domains.params"},
    "domains.net": {"domains.settings", "domains.params", "domains.kernel_log", "domains.pci"},
    "domains.gpu": {"domains.torch", "domains.params", "domains.kernel_log", "domains.pci"},
    "domains.system": {"domains.net", "domains.settings", "domains.gpu"},
    "domains.rendezvous": {"domains.net", "identity"},
    "domains.collectives": {"domains.net", "domains.torch"},
    "checks": {"domains.*", "identity"},
    "baseline": {"domains.net", "domains.collectives"},
    "config": {"judge", "domains.system"},
    "meeting": {"process", "domains.net", "domains.system"},
    "engine": {"process", "identity", "meeting", "judge", "config", "domains.gpu"},
    "render": {"baseline", "engine"},
    "output": {"render", "engine", "process", "config"},
    "remote": {
        "output", "render", "engine", "meeting", "process", "config", "identity", "judge",
    },
    "slurm": {"output", "render", "engine", "process", "config", "identity", "domains.net"},
    "rehearsal": {
        "output", "engine", "process", "config", "identity", "domains.job", "domains.settings",
        "domains.collectives", "domains.gpu",
    },
    "attach": {
        "rehearsal", "engine", "process", "config", "identity", "domains.job", "domains.net",
    },
    "cli": {"*"},
    "__main__": {"cli", "process"},
    "__init__": set(),
}  # fmt: skip
"""Package (or module at the top that is no leaf) -> the packages that it may import."""


def package(module: str) -> str:
    """`domains.net` of preflight.domains.net.dns, `checks` of preflight.checks.net_port."""
    parts = module.split(".")[1:]
    if not parts:
        return "__init__"
    return ".".join(parts[:2]) if parts[0] == "domains" else parts[0]


def arrows(source: Source) -> Iterator[tuple[str, str, str]]:
    """(package, package, which module imports which): what is really run, string targets too."""
    for module, found in source.imports.items():
        for one in found:
            if one.module.split(".")[0] != "preflight" or one.for_types:
                continue
            start, end = package(module), package(one.module)
            if end != "__init__" and (start != end or start == "checks"):
                yield start, end, f"{module} -> {one.module}"


def allowed(start: str, end: str) -> bool:
    if end in LEAVES:
        return True
    if start in LEAVES:
        return False
    may = MAY_IMPORT[start]
    return end in may or "*" in may or (end.startswith("domains.") and "domains.*" in may)


def test_every_package_is_in_the_table() -> None:
    found = {package(module) for module in product().trees}
    found -= {"domains"}  # its __init__ is empty
    assert found == LEAVES | set(MAY_IMPORT)


def test_imports_follow_the_table() -> None:
    """Without exception; a check imports no other check."""
    assert [how for start, end, how in arrows(product()) if not allowed(start, end)] == []


def circles(source: Source) -> list[str]:
    """Packages that import each other, leaves as well: a -> b -> a."""
    leads: dict[str, set[str]] = defaultdict(set)
    for start, end, _ in arrows(source):
        leads[start].add(end)
    found, done = [], set()

    def walk(one: str, path: tuple[str, ...]) -> None:
        if one in path:
            found.append(" -> ".join((*path[path.index(one) :], one)))
        elif one not in done:
            for following in sorted(leads.get(one, ())):
                walk(following, (*path, one))
            done.add(one)

    for one in sorted(LEAVES | set(MAY_IMPORT)):
        walk(one, ())
    return found


def test_nothing_is_allowed_that_nobody_does() -> None:
    """Else the table would say less and less."""
    done = {(start, end) for start, end, _ in arrows(product())}
    plain = ((s, e) for s, may in MAY_IMPORT.items() for e in may if "*" not in e)
    assert [f"{start} -> {end}" for start, end in plain if (start, end) not in done] == []


def test_the_documentation_has_the_same_table() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8").partition("| may import |")[2]
    rows = re.findall(r"^\| `([\w., `]+)` \| (.+) \|$", text, re.MULTILINE)
    told = {
        one: set(re.findall(r"`([\w.*]+)`", may)) for who, may in rows for one in who.split("`, `")
    }
    assert {p: may for p, may in told.items() if p in MAY_IMPORT} == {
        p: set(may) for p, may in MAY_IMPORT.items() if p[0] != "_"
    }


def test_no_packages_import_each_other() -> None:
    assert circles(product()) == []
    text = f"{ast.unparse(product().trees['preflight.model'])}\nfrom preflight import check\n"
    assert circles(product().planted("preflight.model", text)) == [
        "check -> headline -> humanize -> model -> check"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("preflight.domains.net.dns", "from preflight.engine import plan"),
        ("preflight.judge.fold", "from preflight.checks import net_port"),
        ("preflight.checks.net_port", "import preflight.checks.net_mesh"),
        ("preflight.meeting.tasks", 'TARGET = "preflight.output.tasks:write_file"'),
        ("preflight.engine.plan", "def f():\n    from preflight.render import json"),
        ("preflight.model", "from preflight.judge import fold"),
        ("preflight.output.files", "from preflight.cli import main"),
    ],
)
def test_the_table_bites(module: str, line: str) -> None:
    planted = product().planted(module, f"{ast.unparse(product().trees[module])}\n{line}\n")
    (broken,) = {how for start, end, how in arrows(planted) if not allowed(start, end)}
    assert broken.startswith(module)


def test_workers_are_told_functions_not_names() -> None:
    """So that the type checker and the table above see what a worker will import."""
    named = re.compile(r"preflight(\.\w+)+:\w+")
    texts = (
        (module, node.value)
        for module, tree in product().trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert [(module, text) for module, text in texts if named.fullmatch(text)] == []


# --- what judges is pure ---

PURE = ("judge", "render", "baseline")
"""Packages of which every definition is pure."""


def judging(source: Source) -> list[tuple[str, str]]:
    """Where judging and rendering begins."""
    checks = [m for m in source.trees if m.startswith("preflight.checks.")]
    roots = [(check, name) for check in checks for name in ("judge", "measured", "FINDINGS")]
    pure = [m for m in source.trees if package(m) in PURE]
    return roots + [(m, name) for m in pure for name in source.scopes[m].defined]


def impure(source: Source) -> dict[str, str]:
    """What a judge can come to that touches the machine -> how it comes there."""
    reached = source.reached(*judging(source))

    def way(here: tuple[str, str]) -> Iterator[str]:
        while here[0]:
            yield ".".join(here)
            here = reached[here]

    return {
        f"{module}.{name}: {', '.join(sorted(touched))}": " <- ".join(way((module, name)))
        for module, name in reached
        if (touched := source.effects(module, name))
    }


def test_what_a_judge_reaches_touches_nothing() -> None:
    assert impure(product()) == {}


def test_the_walk_from_the_judges_gets_far() -> None:
    """Else the guard above would guard nothing."""
    reached = product().reached(*judging(product()))
    modules = {module for module, _ in reached}
    assert len(reached) > 1500
    assert {m for m in product().trees if package(m) in (*PURE, "checks")} - modules <= {
        "preflight.checks", *(f"preflight.{name}" for name in PURE)
    }  # fmt: skip
    assert sum(m.startswith("preflight.domains.") for m in modules) > 60


EFFECTS = {
    "a folder": ("import os", "os.listdir('/')"),
    "the clock": ("import time", "time.time()"),
    "a name": ("from socket import getfqdn", "getfqdn()"),
    "a file": ("", "open('/etc/hosts')"),
    "a late import": ("", "__import__('os')"),
    "today": ("import datetime", "datetime.datetime.now()"),
}


def functions_reached() -> list[tuple[str, str]]:
    """One function of each module that a judge comes to: the last one, far from its door."""
    found = product().reached(*judging(product()))
    scopes = product().scopes
    last = {m: n for m, n in found if isinstance(scopes[m].defined[n], ast.FunctionDef)}
    return sorted(last.items())


def planted() -> Iterator[tuple[str, str, str]]:
    """Each module with one of the effects in turn, and one module with all of them."""
    functions = functions_reached()
    for number, (module, name) in enumerate(functions):
        yield module, name, list(EFFECTS)[number % len(EFFECTS)]
    yield from ((*functions[len(functions) // 2], what) for what in EFFECTS)


SHARES = 8
"""Tests that divide what is planted among them: to find it out takes seconds, not for each worker
of pytest before its first test."""


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_the_guard_bites(share: int) -> None:
    """Planted into a copy of a module that some judge calls, it is found and the way there told."""
    mine = sorted(set(planted()))[share::SHARES]
    assert len(mine) > 10
    for module, name, what in mine:
        line, call = EFFECTS[what]
        tree = ast.parse(ast.unparse(product().trees[module]))
        at = next(i for i, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef))
        tree.body[at:at] = ast.parse(line).body
        (function,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
        function.body += ast.parse(call).body
        found = impure(product().planted(module, ast.unparse(tree)))
        assert [text for text in found if text.startswith(f"{module}.{name}: ")] == list(found)
        assert found, (module, name, what)


# --- who may do what ---


def users(*packages: str, at_top: bool = False) -> set[str]:
    """Who imports one of these packages, anywhere or at its top."""
    return {
        name.removeprefix("preflight.")
        for name, found in product().imports.items()
        for one in found
        if one.module.split(".")[0] in packages
        and (not at_top or (one.at_top and not one.for_types))
    }


def test_who_starts_and_ends_processes() -> None:
    in_workers = {"slurm.scontrol", "remote.launch_worker", "rehearsal.pyspy"}
    assert users("subprocess") == {"process.forkserver", "rehearsal.command"} | in_workers
    # the user's: ranks that are children of it
    assert users("multiprocessing") == {"rehearsal.injected.preflight_responder"}
    used: dict[str, set[str]] = {}
    for name, tree in product().trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "os":
                used.setdefault(node.attr, set()).add(name.removeprefix("preflight."))
    # fs_probe: in a worker, a child for each place that may be on a dead file system;
    # group_signals: one in the process group of the rehearsed command
    probe, noting = "domains.system.fs_probe", "rehearsal.group_signals"
    assert used["fork"] == {"process.forkserver", "process.worker", probe, noting}
    # signals: itself, of the second signal; workdir: in a worker, what was rehearsed
    ends = {"process.pool", "process.worker", probe, noting}
    ends |= {"process.signals", "rehearsal.workdir"}
    assert used["kill"] | used["killpg"] == ends
    assert used["execvpe"] == {"cli.main"}
    assert used["execv"] == {"process.worker"}  # a fork server becomes the job's Python
    others = {
        n for n in used if re.match(r"exec(?!(v|vpe)$)|spawn|posix_spawn|forkpty|system$|popen$", n)
    }
    assert others == set()


def test_who_draws() -> None:
    assert users("rich") <= {"render.human", "cli.main"}
    assert {name.partition(".")[0] for name in users("typer")} == {"cli"}


@pytest.mark.parametrize("name", ["torch", "pynvml", "psutil", "numpy"])
def test_what_may_hang_is_imported_in_a_worker_only(name: str) -> None:
    assert users(name, at_top=True) == set()


# --- names ---


def test_one_name_is_one_thing() -> None:
    """No class is called as another one somewhere else; what runs in the user's Python knows none
    of the others."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in product().trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and ".injected." not in module:
                found[node.name].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_every_package_and_every_module_says_what_is_in_it() -> None:
    assert [name for name, tree in product().trees.items() if not ast.get_docstring(tree)] == []


def test_every_domain_module_has_a_file_with_tests_of_its_name() -> None:
    """Who changes preflight/domains/net/dns.py finds its tests in
    tests/unit/domains/net/test_dns.py."""
    without = set()
    for module, tree in product().trees.items():
        parts = module.split(".")[1:]
        if parts[:1] != ["domains"] or len(parts) < 3:
            continue
        if any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(tree)):
            *packages, name = parts
            if not ROOT.joinpath("tests/unit", *packages, f"test_{name}.py").is_file():
                without.add(module)
    assert without == set()
