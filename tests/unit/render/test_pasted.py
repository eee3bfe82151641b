"""What is pasted into a shell runs nothing but what we have written, whatever its fields hold."""

from __future__ import annotations

import shutil
import string
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support import scenarios

from preflight import registry
from preflight.model import FindingType
from preflight.nodeset import hostlist
from preflight.render import human
from preflight.render.layout import pasteable
from preflight.render.style import Look
from preflight.sanitize import shell_word

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="needs bash")

DECLARED: tuple[FindingType, ...] = tuple(
    advice for loaded in registry.load() for advice in loaded.module.FINDINGS.values()
)
FIELDS = string.Formatter()

HOSTILE = (
    "x;canary",
    "x\ncanary",
    "$(canary)",
    "`canary`",
    "'$(canary)'",
    "' canary '\";canary;\"'",
    "’;canary;’ ‘;canary",
    "-oProxyCommand=canary",
    "x[$(canary)]",
    "x && canary & canary | canary # canary",
    "*;canary %s {canary} ~canary !canary",
    "a b   canary   c",
    "   canary",
    "x\x1b[2J\u202e;canary",
    "'" * 300 + ";canary",
    "a " * 100 + "; canary ;" + " b" * 100,
    "a" * 5000 + ";canary",
    "cut in its quotes' ;canary…",
)

# no program is found but the canary, nothing is written and no process ended: what is pasted is
# for other machines
SHELL = """
enable -n kill ulimit
command_not_found_handle() { :; }
hash -r
set -r
for pasted; do (eval "$pasted"); done
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is made when `canary` is run."""
    file = tmp_path / "sang"
    program = tmp_path / "bin" / "canary"
    program.parent.mkdir()
    program.write_text(f"#!{BASH}\n: > {file}\n")
    program.chmod(0o755)
    return file


def paste(commands: Iterable[str], canary: Path) -> None:
    path = {"PATH": str(canary.parent / "bin")}
    words = [BASH, "--norc", "-c", SHELL, "bash", *commands]
    nothing = subprocess.DEVNULL
    subprocess.run(
        words, env=path, cwd=canary.parent, stdin=nothing, stdout=nothing, stderr=nothing
    )


def names_in(advice: FindingType) -> set[str]:
    texts = (advice.now, advice.text, advice.means, *(c.run + c.where for c in advice.commands))
    return {name for text in texts for _, name, _, _ in FIELDS.parse(text) if name}


def pasted(advice: FindingType) -> Iterator[str]:
    """All that a user may paste of one finding: from JSON, and each line of each screen."""
    runs = [command.run for command in advice.commands]
    yield from (advice.now.partition("   ")[0], *runs)
    for look in (Look(width=98), Look(width=40, ascii=True)):
        for text in (advice.now, advice.text):
            yield from pasteable(look.paste(text), look.width - look.indent - look.label)
        yield from map(look.paste, runs)


def test_the_canary_sings(canary: Path) -> None:
    paste(["echo '", "true; x=$(canary)"], canary)
    assert canary.exists()


@pytest.mark.parametrize("hostile", HOSTILE, ids=[ascii(text[:20]) for text in HOSTILE])
def test_no_field_is_run(hostile: str, canary: Path) -> None:
    fields = dict.fromkeys({n for a in DECLARED for n in names_in(a)} - {"now"}, hostile)
    lines = {line for advice in DECLARED for line in pasted(advice.filled(fields))}
    paste(sorted(line for line in lines if "canary" in line), canary)
    assert not canary.exists()


def test_no_field_stands_in_quotes() -> None:
    """There its own quotes would end those."""
    for advice in DECLARED:
        for template in (advice.now, advice.text, *(c.run for c in advice.commands)):
            before = ""
            for text, name, _, conversion in FIELDS.parse(template):
                before += text
                # an apostrophe within a word is one
                quotes = [c for i, c in enumerate(before) if c == "'" and not _in_word(before, i)]
                assert name is None or len(quotes) % 2 == before.count('"') % 2 == 0, template
                assert conversion != "r" or name == "now", template


def _in_word(text: str, at: int) -> bool:
    return text[at - 1 : at].isalpha() and text[at + 1 : at + 2].isalpha()


@pytest.mark.parametrize("hostile", HOSTILE, ids=[ascii(text[:20]) for text in HOSTILE])
def test_a_word_is_whole_or_none(hostile: str) -> None:
    word = shell_word(hostile)
    if word:
        printf = [BASH, "-c", f"printf %s {word}"]
        assert subprocess.run(printf, capture_output=True, text=True).stdout == hostile


def test_what_begins_like_an_option_is_none() -> None:
    advice = FindingType(cause="", means="", now="ssh {host} true", text="")
    assert advice.filled({"host": "-oProxyCommand=x"}).now == ""
    assert hostlist(["-oProxyCommand=x", "$(x)", "n1;x", "n1"]) == "n1"


def test_the_commands_of_the_screens_are_ones(tmp_path: Path) -> None:
    """bash can read each of them; a sentence is none."""
    reports = [scenarios.judged(name) for name in scenarios.NAMES]
    advices = [f.advice for report in reports for f in report.findings if f.advice]
    runs = {command.run for advice in advices for command in advice.commands}
    nows = [*map(human.do_now, reports), *(advice.now for advice in advices)]
    runs |= {now.partition("   ")[0] for now in nows if "   " in now or "sbatch" in now}
    assert len(runs) > 40
    script = tmp_path / "all.sh"
    script.write_text("\n".join(sorted(runs)))
    checked = subprocess.run([BASH, "-n", str(script)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
