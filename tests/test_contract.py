"""What the project promises of itself: that every check is whole, that a start costs little, and
that what README.md says is what the program does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from support.cases import Case, cases_of, file_of_tests, judged, load
from support.language import strange_word

from preflight import registry
from preflight.cli import main
from preflight.headline import finished
from preflight.model import OF_ANY_CHECK, Blame, Cause, Confidence, Finding, Missing, Status
from preflight.registry import SECTIONS, Loaded
from preflight.render import explain

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = registry.load()
CHECKS = tuple(CATALOGUE)
IDS = [loaded.id for loaded in CHECKS]
a_check = pytest.mark.parametrize("loaded", CHECKS, ids=IDS)


# --- every check is whole ---


def test_no_check_is_broken() -> None:
    assert CATALOGUE.broken == {}


def test_each_check_has_a_test_file_and_each_test_file_a_check() -> None:
    checks = {path.stem for path in (ROOT / "checks").glob("[a-z]*.py")}
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests/checks").glob("test_*.py")}
    assert tests == checks
    assert {i.replace(".", "_") for i in IDS} == checks


@cache
def table(check_id: str) -> tuple[tuple[Case, tuple[Finding, ...]], ...]:
    """The cases of a check's test, with what its judge makes of them."""
    loaded = CATALOGUE.checks[check_id]
    return tuple((case, tuple(judged(loaded.module, case))) for case in cases_of(loaded.id))


def missing(case: Case) -> list[Missing]:
    """The observations that the case lacks."""
    saw = case.saw if isinstance(case.saw, Mapping) else {"": case.saw}
    return [each for each in saw.values() if isinstance(each, Missing)]


@a_check
def test_every_code_is_produced_by_a_case_as_it_is_declared(loaded: Loaded) -> None:
    """With each status and each blame that it declares, and with no other."""
    produced: dict[str, tuple[set[Status], set[Blame]]] = {}
    for _, findings in table(loaded.id):
        for finding in findings:
            statuses, blames = produced.setdefault(finding.code, (set(), set()))
            statuses.add(finding.status)
            blames.add(finding.blame)
    declared = {
        code: (set(kind.statuses), set(kind.blames) or produced[code][1])
        for code, kind in loaded.module.FINDINGS.items()
    }
    shared = shared_findings(loaded)
    assert set(declared) == set(produced)
    for code, (statuses, blames) in declared.items():
        if code in shared:
            assert produced[code][0] <= statuses, code
            assert produced[code][1] <= blames, code
        else:
            assert produced[code] == (statuses, blames), code


def shared_findings(loaded: Loaded) -> set[str]:
    """The codes that other checks have, too: not every one chooses from all that is declared."""
    return {
        code
        for code, kind in loaded.module.FINDINGS.items()
        for other in CHECKS
        if other.id != loaded.id and kind is other.module.FINDINGS.get(code)
    }


@a_check
def test_a_healthy_machine_is_among_the_cases(loaded: Loaded) -> None:
    healthy = [case for case, findings in table(loaded.id) if not findings and not missing(case)]
    assert healthy, "no case in which all was seen and nothing found"


# what judge/verdict.py calls undecided when the check has no words of its own for it
BLIND = (Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED, Cause.CANNOT_OBSERVE)


def cannot_tell(case: Case, findings: tuple[Finding, ...]) -> bool:
    if any(f.status is Status.UNDECIDED or f.confidence is Confidence.POSSIBLE for f in findings):
        return True
    return not findings and any(each.cause in BLIND for each in missing(case))


@a_check
def test_a_case_in_which_it_cannot_tell_is_among_them(loaded: Loaded) -> None:
    """In the table of the judge, or as an observation that gives up."""
    in_table = any(cannot_tell(case, findings) for case, findings in table(loaded.id))
    gives_up = "pytest.raises(CannotObserve" in file_of_tests(loaded.id).read_text(encoding="utf-8")
    assert in_table or gives_up


@a_check
def test_its_types_are_compared_by_the_type_checker(loaded: Loaded) -> None:
    assert f"\nconforms({loaded.id.replace('.', '_')})\n" in file_of_tests(loaded.id).read_text(
        "utf-8"
    )


def words(text: str) -> str:
    return " ".join(text.split())


@a_check
def test_explain_has_every_section_and_every_code(loaded: Loaded) -> None:
    shown = explain.explain(loaded, "", 98)
    assert words(shown).startswith(words(f"{loaded.id} {loaded.question}"))
    for section in SECTIONS:
        assert re.search(rf"^ {section} +\S", shown, re.MULTILINE), section
    for code in loaded.module.FINDINGS:
        assert f"\n  {code}\n" in shown, code


@a_check
def test_explain_knows_every_code_by_itself(loaded: Loaded) -> None:
    for code, advice in loaded.module.FINDINGS.items():
        found, given = explain.find(CATALOGUE, code)
        assert given == code
        assert code in found.module.FINDINGS
        shown = words(explain.explain(loaded, code, 98))
        blank = advice.filled({})  # there is no finding whose fields could be put in
        for text in (blank.who, blank.cause, blank.means):
            assert text, f"{code} lacks a text"
            assert words(text) in shown
        assert advice.now or advice.text or advice.commands, f"{code}: what is to be done?"


@a_check
def test_every_code_has_a_headline_whose_words_its_judge_gives(loaded: Loaded) -> None:
    """In each case: no placeholder is left, and a command to paste is in no sentence."""
    assert [code for code, kind in loaded.module.FINDINGS.items() if not kind.headline] == []
    for case, findings in table(loaded.id):
        for finding in findings:
            template = loaded.module.FINDINGS[finding.code].headline
            wanted = {name for _, name, _, _ in Formatter().parse(template) if name}
            lacking = wanted - {"at", "where", "seen"} - {n for n, v in finding.fields.items() if v}
            assert not lacking, (case.name, finding.code, lacking)
            told = finished(finding.headline, finding.subjects)
            assert 8 < len(told) <= 320, told
            assert told == told.strip(), told


PASTED = (
    *(
        "cd",
        "chmod",
        "dmesg",
        "echo",
        "export",
        "find",
        "ip",
        "mkdir",
        "nvidia-cuda-mps-control",
        "nvidia-smi",
        "ping",
        "pip",
        "preflight",
    ),
    *("python", "rm", "sbatch", "ssh", "sysctl", "torchrun", "ulimit", "unset"),
)
"""What a `do now` begins with: a builtin of the shell, or a program that is there."""


@a_check
def test_what_is_done_now_is_a_command_that_a_shell_takes(loaded: Loaded) -> None:
    for case, findings in table(loaded.id):
        for finding in findings:
            command = finding.advice.now.partition("   ")[0] if finding.advice else ""
            if not command or "{command}" in loaded.module.FINDINGS[finding.code].now:
                continue  # none, or the user's own
            first = next(w for w in command.split() if "=" not in w or w[0].islower())
            assert first in PASTED, (case.name, command)
            assert not re.search(r"…|<[a-z ]+>|\b[A-Z]+-[A-Z-]+\b", command), command
            checked = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
            assert (checked.returncode, checked.stderr) == (0, ""), command


VERB = re.compile(
    r"(add|agree|allow|ask|bind|boot|bring|call|change|check|choose|clean|clear|compare|"
    r"compute|configure|correct|count|create|delete|disable|drain|end|exclude|export|expose|"
    r"find|fix|give|install|join|keep|let|list|load|log|look|make|mount|name|pass|power-cycle|"
    r"put|raise|re-run|read|reboot|reduce|register|rehearse|reinstall|remount|remove|repair|replace|"
    r"request|reseat|reset|restart|run|set|show|start|stop|sum|switch|train|unset|update|use|"
    r"wait|widen|write)\b"
)
"""What a `fix` may begin with; a new one is welcome if it is a verb that says what to do."""


@a_check
def test_a_fix_begins_with_a_verb_and_all_texts_use_the_fields_words(loaded: Loaded) -> None:
    for code, kind in loaded.module.FINDINGS.items():
        assert not kind.text or VERB.match(kind.text), (code, kind.text)
        for text in (kind.headline, kind.cause, kind.means, kind.now, kind.text, kind.who):
            assert not strange_word(text), (code, text)
    for case, findings in table(loaded.id):
        for finding in findings:
            for text in (finding.saw, finding.expected, *finding.alternatives):
                assert not strange_word(text), (case.name, text)
    for text in (loaded.question, *loaded.sections.values()):
        assert not strange_word(text), text


WRITTEN_FOR_CHECKS = (
    *("preflight/checks/", "preflight/domains/", "preflight/identity/", "preflight/baseline/"),
    "preflight/rehearsal/",
)
"""The checks' own rules and what they explain; the table of what a baseline takes from whose
observation; the rehearsal, which is what the checks of the group job observe."""


def test_no_check_is_known_by_its_name() -> None:
    """What the engine has to know of a check, that declares; see check.Check."""
    found = [
        f"{path}: {node.value}"
        for path in sorted((ROOT / "preflight").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(WRITTEN_FOR_CHECKS)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in IDS
    ]
    assert found == []


def test_what_findings_explain_is_there() -> None:
    """An id, a prefix, a glob, or id:code by the code of today."""
    for loaded in CHECKS:
        declared = (loaded.check.explains, *(k.explains for k in loaded.module.FINDINGS.values()))
        for name in {name for names in declared for name in names or ()}:
            check_id, _, code = name.partition(":")
            found = [CATALOGUE.checks[i] for i in CATALOGUE.matching(check_id)]
            known = code in found[0].module.FINDINGS or code in OF_ANY_CHECK
            assert not code or known, f"{loaded.id} explains {name}"


def test_a_code_of_old_is_no_code_of_today() -> None:
    """Of the same check; so that what a saved report or a script calls by it stays clear."""
    for loaded in CHECKS:
        kinds = loaded.module.FINDINGS
        was = [old for kind in kinds.values() for old in kind.was]
        assert len({*was, *kinds}) == len(was) + len(kinds), loaded.id


# --- what a start costs ---


@pytest.mark.parametrize(
    "arguments", [("list",), ("run", "--level", "quick", "--nproc", "2")], ids=lambda a: a[0]
)
def test_the_parent_imports_little(arguments: tuple[str, ...]) -> None:
    """A worker's stderr is a pipe to the parent: what is told here is the parent's own."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-P", "-m", "preflight", *arguments],
        cwd="/tmp",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = set(re.findall(r"^import time:[ \d|]+\| +(\S+)$", ended.stderr, re.MULTILINE))
    assert {"typer", "preflight.cli", "preflight.model"} <= told, ended.stderr[-2000:]
    heavy = {"torch", "pynvml", "psutil", "numpy", "asyncio", "pydantic", "rich.table"}
    assert told & heavy == set()


# --- what is written down ---


@cache
def readme() -> Any:
    return load(ROOT / "tools/readme.py")


def written() -> dict[str, str]:
    found: dict[str, str] = readme().written()
    return found


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250


def test_the_readme_has_the_blocks() -> None:
    assert {"screen red", "screen green", "help run", "checks", "exits"} <= set(written())


@pytest.mark.parametrize("name", [n for n in written() if readme().deterministic(n)])
def test_the_readme_says_what_the_program_says(name: str) -> None:
    assert written()[name] == readme().block(name), "make readme"


def test_the_readme_shows_real_screens() -> None:
    """Their figures differ by machine; that the commands were run, and how they ended, doesn't."""
    for name, screen in readme().SCREENS.items():
        shown = written()[f"screen {name}"]
        assert f"\n$ {screen.command}\n" in shown, "make readme"
        verdict = "READY" if screen.exits == 0 else "NOT READY"
        judges = "preflight explain" not in screen.command
        assert not judges or re.search(rf"^ {verdict}  ", shown, re.M)


def test_help_names_the_same_exit_codes_as_the_readme() -> None:
    table = {int(n) for row in readme().EXITS for n in re.findall(r"\d+", str(row[0]))}
    # 1 is never ours: --help has no place for it
    assert {int(n) for n in re.findall(r"\b\d+\b", main.EXITS)} == table - {1}


def test_the_architecture_names_every_package() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for path in (ROOT / "preflight").rglob("__init__.py")
        if not path.parent.is_symlink()
    }
    inside = {"preflight", "preflight/checks", "preflight/rehearsal/injected"}  # of another row
    named = set(re.findall(r"^\| `([\w/]+)/` \|", text, re.MULTILINE))
    assert named >= packages - inside
    assert {"checks", "tests"} <= named
    assert all((ROOT / name).is_dir() for name in named)


def test_the_tests_that_security_names_are_there() -> None:
    named = re.findall(
        r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`", (ROOT / "SECURITY.md").read_text()
    )
    text = ""
    for file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8") if file else text
        assert not test or f"\ndef {test}(" in text, test
    assert sum(bool(test) for _, test in named) > 15
