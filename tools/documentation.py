"""Builds the documentation: `make docs` -> build/site (pages) and build/preflight.1 (man page).

    python tools/documentation.py            writes the pages, has mkdocs build them, checks links
    python tools/documentation.py --pages    only writes them, to build/pages

The guides are the Markdown of the repository. A page for each check and for each finding is made of
what the checks declare, the same that `preflight explain` prints, and of screens of the goldens and
demos. What a page links to that is no page of the site is shown as text.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer

REPOSITORY = Path(__file__).parents[1]
PAGES, SITE, MAN = (REPOSITORY / "build" / name for name in ("pages", "site", "preflight.1"))
sys.path[:0] = [str(REPOSITORY / "tests")]

from support import scenarios  # noqa: E402  it lies in tests/

from preflight import __version__, registry  # noqa: E402
from preflight.cli import demo  # noqa: E402
from preflight.cli import main as cli  # noqa: E402
from preflight.identity.launchers import LAUNCHERS  # noqa: E402
from preflight.model import Report  # noqa: E402
from preflight.registry import SECTIONS, Loaded  # noqa: E402
from preflight.render.findings import aside, finding_lines  # noqa: E402
from preflight.render.human import PIPED, printed  # noqa: E402

GUIDES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md"),
    *(f"docs/{path.name}" for path in sorted((REPOSITORY / "docs").glob("*.md"))),
)
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
SHIM = "iframe-worker@1.0.4"
"""A package of npm; mkdocs-material would have each reader load it from elsewhere."""
MARKUP = re.compile(r"([\\`*_{}\[\]<>|#])")


def escaped(text: str) -> str:
    """Prose of a declaration as Markdown that shows it as it is."""
    return MARKUP.sub(r"\\\1", text)


def fenced(text: str, kind: str = "text") -> str:
    return f"```{kind}\n{text.rstrip()}\n```\n"


@cache
def reports() -> tuple[Report, ...]:
    """Where the screens of findings are from."""
    return (*map(demo.saved, demo.names()), *map(scenarios.judged, scenarios.NAMES))


@cache
def screens() -> Mapping[tuple[str, str], str]:
    """(check, code) -> how a report has shown it."""
    found: dict[tuple[str, str], str] = {}
    for report in reports():
        for finding in report.findings:
            key = finding.check, finding.code
            if key not in found:
                found[key] = printed(finding_lines(finding, PIPED, report, True), PIPED)
    return found


# --- pages of the checks ---


def finding_page(loaded: Loaded, code: str) -> str:
    advice = loaded.module.FINDINGS[code].filled({})
    statuses = " or ".join(str(status).upper() for status in advice.statuses)
    blames = " or ".join(map(str, loaded.blames(code)))
    parts = [f"# {code}\n", f"`{loaded.id}:{code}` · {statuses} · blames {blames}"]
    parts[-1] += " · drains the node in SLURM hooks\n" if loaded.drains(code) else "\n"
    if advice.was:
        parts.append(f"Once called {', '.join(f'`{old}`' for old in advice.was)}.\n")
    parts += ["## What you see\n", f"{escaped(advice.means)}\n"]
    if seen := loaded.sections.get("Seen as", ""):
        parts += ["Messages that faults of this check leave in logs:\n", f"{escaped(seen)}\n"]
    parts += ["## Cause\n", f"{escaped(advice.cause)}\n", "## Check\n"]
    parts += [fenced(f"preflight run --only {loaded.id}", "sh")]
    parts += [f"What it looks at: [{loaded.id}](../../checks/{loaded.id}.md).\n", "## Fix\n"]
    if advice.now:
        parts += ["At once:\n", fenced(advice.now, "sh")]
    if advice.text:
        parts.append(f"{escaped(advice.text)}\n")
    if advice.commands:
        lines = [f"{c.run}   # {aside(c)}" if aside(c) else c.run for c in advice.commands]
        parts.append(fenced("\n".join(lines), "sh"))
    parts.append(f"Who can repair it: {escaped(advice.who)}.\n")
    if shown := screens().get((loaded.id, code)):
        parts += ["## Example\n", fenced(shown)]
    return "\n".join(parts)


def check_page(loaded: Loaded) -> str:
    check = loaded.check
    facts = [f"stage {check.stage}", f"level {check.when}", f"at most {check.budget:g} s"]
    facts.append("read only" if check.disturbs == "-" else f"touches {check.disturbs}")
    needs = [*check.needs, *sorted(map(str, check.requires))]
    facts += [f"needs {', '.join(needs)}"] if needs else []
    parts = [f"# {loaded.id}\n", f"{escaped(loaded.question)}\n", escaped(" · ".join(facts)) + "\n"]
    for section in SECTIONS:
        if text := loaded.sections.get(section, ""):
            parts += [f"## {section}\n", f"{escaped(text)}\n"]
    parts.append("## Findings\n")
    for code, kind in loaded.module.FINDINGS.items():
        cause = escaped(kind.filled({}).cause)
        parts.append(f"- [{code}](../findings/{loaded.id}/{code}.md): {cause}")
    options = check.options.items()
    if options:
        parts.append("\n## Options\n")
        parts += [f'- `[checks."{loaded.id}"] {name}`: {escaped(said)}' for name, said in options]
    return "\n".join(parts) + "\n"


def checks_index(catalogue: registry.Catalogue) -> str:
    rows = [f"| [{c.id}]({c.id}.md) | {c.check.when} | {escaped(c.question)} |" for c in catalogue]
    return "\n".join(["# Checks\n", "| Check | Level | Question |", "|---|---|---|", *rows]) + "\n"


def findings_index(catalogue: registry.Catalogue) -> str:
    parts = [
        "# Findings\n",
        "What a report calls a fault by. Search for the message in your log.\n",
    ]
    for loaded in catalogue:
        parts.append(f"\n## {loaded.id}\n")
        for code, kind in loaded.module.FINDINGS.items():
            means = escaped(kind.filled({}).means)
            parts.append(f"- [{code}]({loaded.id}/{code}.md): {means}")
    return "\n".join(parts) + "\n"


def launchers_page() -> str:
    """What each launcher is known by."""
    parts = ["# Launchers\n", "How preflight knows who started it: `preflight plan` shows it.\n"]
    parts += ["| Launcher | Known by |", "|---|---|"]
    for launcher in LAUNCHERS:
        known = ", ".join(f"`{name}`" for name in launcher.sign)
        parts.append(f"| {escaped(launcher.name)} | {known} |")
    return "\n".join(parts) + "\n"


# --- guides ---


def guide(name: str, known: frozenset[str]) -> str:
    """A page of the repository; what it links to beyond the site is shown as text."""
    text = COMMENT.sub("", (REPOSITORY / name).read_text(encoding="utf-8"))
    folder = Path(name).parent

    def link(found: re.Match[str]) -> str:
        picture, said, to, anchor = found[1], found[2], found[3], found[4] or ""
        if "://" in to:
            return found[0]
        parts: list[str] = []
        for part in (folder / to).parts:
            if part == "..":
                parts = parts[:-1]
            elif part != ".":
                parts.append(part)
        target = "/".join(parts)
        if target in known:
            return found[0].replace("README.md", "index.md") if target == "README.md" else found[0]
        return f"{said} (`{to}{anchor}`)" if not picture else ""

    return LINK.sub(link, text)


def write(path: str, text: str) -> None:
    target = PAGES / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """(path, Markdown) of every page."""
    catalogue = registry.load()
    pictures = {f"docs/images/{p.name}" for p in (REPOSITORY / "docs/images").glob("*.png")}
    known = frozenset((*GUIDES, *pictures))
    for name in GUIDES:
        yield name, guide(name, known)
    yield "checks/index.md", checks_index(catalogue)
    yield "findings/index.md", findings_index(catalogue)
    yield "launchers.md", launchers_page()
    for loaded in catalogue:
        yield f"checks/{loaded.id}.md", check_page(loaded)
        for code in loaded.module.FINDINGS:
            yield f"findings/{loaded.id}/{code}.md", finding_page(loaded, code)


# --- the man page ---


def _troff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def man() -> str:
    """preflight(1): the commands and flags as --help has them."""
    app = typer.main.get_command(cli.app)
    lines = [f'.TH PREFLIGHT 1 "" "preflight {__version__}" "User Commands"', ".SH NAME"]
    lines += ["preflight \\- checks a cluster before a distributed PyTorch job", ".SH SYNOPSIS"]
    lines += [".B preflight", ".I COMMAND", "[OPTIONS]", ".SH DESCRIPTION", _troff(app.help or "")]
    lines.append(".SH COMMANDS")
    for name, command in _commands(app, ""):
        lines += [f".SS {_troff(name)}", _troff(" ".join((command.help or "").split()))]
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            said = getattr(parameter, "help", None) or ""
            option = parameter.param_type_name == "option"
            words = ", ".join(parameter.opts) if option else parameter.metavar or parameter.name
            lines += [".TP", f".B {_troff(words)}", _troff(" ".join(said.split()))]
    lines += [".SH EXIT STATUS", _troff(" ".join(cli.EXITS.split()))]
    lines += [".SH SEE ALSO", _troff("preflight explain NAME: every check and finding, offline")]
    return "".join(f"{line}\n" for line in lines if line)


def _commands(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def put_shim() -> None:
    """A browser lets no page of a file start a worker, in which the search runs: this stands in for
    one. Without npm, or the network, the search works from a server only."""
    target = PAGES / "assets/iframe-worker.js"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("", encoding="utf-8")
    try:
        command = ["npm", "pack", "--silent", SHIM]
        made = subprocess.run(
            command, cwd=PAGES.parent, capture_output=True, text=True, check=True, timeout=60
        )
        with tarfile.open(PAGES.parent / made.stdout.split()[-1]) as package:
            found = package.extractfile("package/shim/index.js")
            target.write_bytes(found.read() if found else b"")
    except (OSError, subprocess.SubprocessError, tarfile.TarError, LookupError) as error:
        print(f"{SHIM}: {error}; the search works from a server only", file=sys.stderr)


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    count = 0
    for path, text in pages():
        write(path, text)
        count += 1
    if (REPOSITORY / "docs/images").is_dir():
        shutil.copytree(REPOSITORY / "docs/images", PAGES / "docs/images", dirs_exist_ok=True)
    # the front page
    shutil.move(PAGES / "README.md", PAGES / "index.md")
    put_shim()
    MAN.write_text(man(), encoding="utf-8")
    print(f"{count} pages in {PAGES}, {MAN}")
    if "--pages" not in sys.argv[1:]:
        config = REPOSITORY / "docs/mkdocs.yml"
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", config]
        subprocess.run(command, check=True, timeout=900)
        print(f"the site is in {SITE}")


if __name__ == "__main__":
    main()
