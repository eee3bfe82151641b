"""What is pasted into a shell runs nothing but what we have written, whatever its fields hold."""

from __future__ import annotations

import html
import json
import re
import shlex
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
from preflight.output import files
from preflight.render import formats, human
from preflight.render import json as as_json
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
    "=canary",
    "a:=canary",
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


ZSH = shutil.which("zsh") or ""


def test_what_zsh_looks_up_as_a_command_is_quoted() -> None:
    """NCCL's `=mlx5_0`: unquoted, `export NCCL_IB_HCA==mlx5_0` sets nothing there."""
    assert shell_word("=mlx5_0") == "'=mlx5_0'"
    assert shell_word("a:=b") == "'a:=b'"
    assert shell_word("--x=y") == "--x=y"
    fields = {n: "eth0" for a in DECLARED for n in names_in(a)}
    lines = {line for advice in DECLARED for line in pasted(advice.filled(fields))}
    assert [line for line in lines if "==" in line and "export" in line] == []


@pytest.mark.skipif(not ZSH, reason="needs zsh")
def test_zsh_takes_it_as_it_is() -> None:
    for value in ("=mlx5_0", "a:=b", "^docker0", "=="):
        said = f"export X={shell_word(value)}; printf %s $X"
        assert subprocess.run([ZSH, "-fc", said], capture_output=True, text=True).stdout == value


@pytest.mark.parametrize("name", scenarios.NAMES)
def test_what_is_said_of_a_command_is_no_part_of_it(name: str) -> None:
    """Also where all of it is copied: out of the JSON report, or by the button of the page."""
    report = scenarios.judged(name)
    advices = [finding.advice for finding in report.findings if finding.advice]
    told = [finding["remedy"]["now"] for finding in json.loads(as_json.render(report))["findings"]]
    remarked = [advice.now for advice in advices if "   " in advice.now]
    assert [now.replace("   # ", "   ", 1) for now in told if "   " in now] == remarked
    assert all("   # " in now for now in told if "   " in now)
    read = as_json.parse(as_json.render(report))
    assert [f.advice.now for f in read.findings if f.advice] == [a.now for a in advices]
    shown = "".join(formats.parts("html", report, Look()))
    copied = [html.unescape(code) for code in re.findall(r"<code>([^<]*)</code><button", shown)]
    assert [code for code in copied if "   " in code] == []


def test_every_part_of_a_file_s_name_is_a_word() -> None:
    """A config file of the working directory chooses it."""
    assert files._parts("out/r.n1.json.gz", "n1", True) == "out/r.*.json.gz"
    assert files._parts("out/r.n1.json.gz", "n1", False) == "out/r.*json.gz"  # and out/r.json.gz
    for unasked in (True, False):
        for saved in ("r.n1.json;canary", "r.n1.$(canary)", "`canary`.n1.json"):
            words = files._parts(saved, "n1", unasked)
            assert "'" in words
            assert "canary" in shlex.split(words)[0]
        assert files._parts("r.n1.js\non", "n1", unasked) == ""


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


@pytest.mark.parametrize(
    "command",
    [
        "srun -w n4 --overlap pgrep -af preflight",
        "MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
        "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)",
        "pip install torch --index-url https://download.pytorch.org/whl/cu128",
        "dcgmi diag -r 3",
    ],
)
def test_a_command_within_a_sentence_stays_on_one_line(command: str) -> None:
    for filler in range(60):
        lines = pasteable(f"{'x' * filler} look at it: {command}, then go on", 65)
        assert any(command in line for line in lines), lines
